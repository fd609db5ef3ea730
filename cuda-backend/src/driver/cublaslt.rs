//! cuBLASLt, NVIDIA's library of products of matrices: loaded at run time, with the functions that gradlet calls.

use super::api::{Address, Handle, Status, functions};
use gradlet_core::{Error, Result};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::path::Path;

/// Names of the library, the newest first.
const NAMES: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"];

/// How a product is computed: cuBLASLt's `cublasLtMatmulAlgo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Algorithm([u64; 8]);

/// A proposed algorithm: cuBLASLt's `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Proposal {
    pub algorithm: Algorithm,
    pub workspace: usize,
    pub state: Status,
    pub waves: f32,
    pub reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Proposal>() == 96);

functions! {
    create: "cublasLtCreate"(*mut Handle);
    destroy: "cublasLtDestroy"(Handle);
    create_matmul: "cublasLtMatmulDescCreate"(*mut Handle, c_int, c_int);
    destroy_matmul: "cublasLtMatmulDescDestroy"(Handle);
    set_matmul: "cublasLtMatmulDescSetAttribute"(Handle, c_int, *const c_void, usize);
    create_layout: "cublasLtMatrixLayoutCreate"(*mut Handle, c_int, u64, u64, i64);
    destroy_layout: "cublasLtMatrixLayoutDestroy"(Handle);
    set_layout: "cublasLtMatrixLayoutSetAttribute"(Handle, c_int, *const c_void, usize);
    create_preference: "cublasLtMatmulPreferenceCreate"(*mut Handle);
    destroy_preference: "cublasLtMatmulPreferenceDestroy"(Handle);
    set_preference: "cublasLtMatmulPreferenceSetAttribute"(Handle, c_int, *const c_void, usize);
    propose: "cublasLtMatmulAlgoGetHeuristic"(
        Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Proposal, *mut c_int
    );
    multiply: "cublasLtMatmul"(
        Handle, Handle, *const f32, Address, Handle, Address, Handle, *const f32, Address, Handle, Address, Handle, *const Algorithm,
        Address, usize, Handle
    );
}

/// The library.
pub(crate) struct CublasLt {
    pub api: Api,
    /// The functions above are part of the library, which is therefore never closed before them.
    _library: Library,
}

impl CublasLt {
    /// Loads the library that is installed, if there is one.
    pub(super) fn load() -> Option<CublasLt> {
        // SAFETY: the library may be loaded at any time; its initialisers have no requirements.
        let load = |name| unsafe { Library::new(name) }.ok();
        let (name, library) = NAMES.into_iter().find_map(|name| Some((name, load(name)?)))?;
        // The library stays loaded, as the driver does.
        std::mem::forget(load(name));
        Api::find(&library).ok().map(|api| CublasLt { api, _library: library })
    }

    /// Loads the library in the file `path`.
    ///
    /// # Safety
    ///
    /// The file is NVIDIA's cuBLASLt, or a library with its functions.
    pub(super) unsafe fn open(path: &Path) -> Result<CublasLt> {
        let failed = |why: &dyn std::fmt::Display| Error::message(format!("{} is no cuBLASLt: {why}", path.display()));
        // SAFETY: as above, and the caller names cuBLASLt.
        let library = unsafe { Library::new(path) }.map_err(|error| failed(&error))?;
        let api = Api::find(&library).map_err(|symbol| failed(&format!("it has no {symbol}")))?;
        Ok(CublasLt { api, _library: library })
    }
}
