//! cuBLASLt's functions, with the signatures that `libcublasLt` exports, as far as gradlet calls them.
//!
//! - Matrices are stored column by column. Their dimensions, types and alignments must fit, and the result is computed in place.
//! - A product needs an algorithm that was proposed for the same product, and at least the proposed workspace.
//! - Work is done in the order of the streams, when somebody waits for it. It takes the time that the configuration states.

mod api;
mod product;

pub use api::*;
pub(crate) use product::Product;

use crate::driver::Handle;
use product::Matrix;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// CublasResult of a call: `cublasStatus_t`.
pub type CublasResult = i32;

/// Results, as cuBLAS numbers them.
const SUCCESS: CublasResult = 0;
const NOT_INITIALIZED: CublasResult = 1;
const INVALID_VALUE: CublasResult = 7;
const NOT_SUPPORTED: CublasResult = 15;

/// A description of a product without its matrices.
#[derive(Clone, Copy, Default)]
struct Matmul {
    tf32: bool,
    transposed: [bool; 2],
    adds_bias: bool,
    bias: u64,
}

/// Limits for algorithms.
#[derive(Clone, Copy)]
struct Preference {
    workspace: u64,
    /// Alignment of the matrices in bytes.
    alignments: [u32; 4],
}

/// An algorithm that was proposed.
#[derive(Clone, Copy, PartialEq)]
struct Proposal {
    handle: Handle,
    transposed: [bool; 2],
    tf32: bool,
    adds_bias: bool,
    matrices: [Matrix; 3],
    alignments: [u32; 4],
}

/// The state of cuBLASLt.
#[derive(Default)]
struct Library {
    /// The device of each handle.
    handles: HashMap<Handle, usize>,
    matmuls: HashMap<Handle, Matmul>,
    layouts: HashMap<Handle, Matrix>,
    preferences: HashMap<Handle, Preference>,
    proposals: Vec<Proposal>,
    last: Handle,
}

static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(Mutex::default);

fn library() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    fn handle(&mut self) -> Handle {
        self.last += 16;
        self.last
    }

    /// Returns the layouts of the operands and of the result.
    fn matrices(&self, layouts: [Handle; 3]) -> Result<[Matrix; 3], CublasResult> {
        let layout = |handle: Handle| self.layouts.get(&handle).copied().ok_or(INVALID_VALUE);
        Ok([layout(layouts[0])?, layout(layouts[1])?, layout(layouts[2])?])
    }
}
