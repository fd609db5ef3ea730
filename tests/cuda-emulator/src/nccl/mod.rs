//! NCCL's functions, with the signatures that `libnccl` exports, for programs in which one thread controls all GPUs.
//!
//! - A call outside of a group, and a group without the calls of all ranks, is an error. NCCL would wait for ever.
//! - Communicators need distinct devices, and streams and memory of their devices.
//! - The sum of more than two ranks has the order of a ring, whose beginning depends on the place of the element.
//! - Work is done in the order of the streams, when somebody waits for it.

mod api;
mod reduction;

pub use api::*;
pub(crate) use reduction::Reduction;

use crate::driver::Handle;
use reduction::{Kind, Operand};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// NcclResult of a call: NCCL's `ncclResult_t`.
pub type NcclResult = i32;

/// Results, as NCCL numbers them.
const SUCCESS: NcclResult = 0;
const UNHANDLED_CUDA_ERROR: NcclResult = 1;
const INVALID_ARGUMENT: NcclResult = 4;
const INVALID_USAGE: NcclResult = 5;

/// Numbers of calls and of what they have done.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NcclCounts {
    /// Sets of communicators that were created.
    pub inits: u64,
    /// Groups of calls.
    pub groups: u64,
    /// Sums over all ranks.
    pub all_reduces: u64,
    /// Copies from one rank to all.
    pub broadcasts: u64,
    /// Communicators that were destroyed.
    pub destroyed: u64,
    /// Communicators that were aborted.
    pub aborted: u64,
}

/// The state of NCCL.
#[derive(Default)]
struct Library {
    communicators: HashMap<Handle, Communicator>,
    last_clique: usize,
    counts: NcclCounts,
    /// The function that is to fail in its next call, with its result.
    failure: Option<(String, NcclResult)>,
}

/// A rank of a clique.
#[derive(Clone, Copy)]
struct Communicator {
    clique: usize,
    rank: usize,
    ranks: usize,
    device: usize,
}

/// A call that waits for the end of its group.
struct Call {
    communicator: Communicator,
    stream: Handle,
    kind: Kind,
    operand: Operand,
}

static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The calls of the group that this thread has started.
    static GROUP: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

fn library() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    /// Returns the result that a test wants for this call of `function`.
    fn failure(&mut self, function: &str) -> Option<NcclResult> {
        self.failure.take_if(|(name, _)| name == function).map(|(_, result)| result)
    }

    /// Orders the calls of a group: for each clique, the calls that belong together, by rank. Returns `None` if one is missing.
    fn matched(calls: Vec<Call>) -> Option<Vec<Vec<Call>>> {
        let mut ranks: HashMap<(usize, usize), Vec<Call>> = HashMap::new();
        let mut cliques: Vec<(usize, usize)> = Vec::new();
        for call in calls {
            let Communicator { clique, rank, ranks: all, .. } = call.communicator;
            if !cliques.contains(&(clique, all)) {
                cliques.push((clique, all));
            }
            ranks.entry((clique, rank)).or_default().push(call);
        }
        let mut matched = Vec::new();
        for (clique, all) in cliques {
            let mut lists: Vec<_> = (0..all).map(|rank| ranks.remove(&(clique, rank)).map(Vec::into_iter)).collect::<Option<_>>()?;
            while lists.iter().any(|list| list.len() > 0) {
                let together: Vec<Call> = lists.iter_mut().map(Iterator::next).collect::<Option<_>>()?;
                let is_same = |call: &Call| call.kind == together[0].kind && call.operand.fits(&together[0].operand);
                if !together.iter().all(is_same) {
                    return None;
                }
                matched.push(together);
            }
        }
        Some(matched)
    }
}
