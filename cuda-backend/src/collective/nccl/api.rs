//! The functions of NCCL that gradlet calls, as the library exports them.

use gradlet_core::DType;
use libloading::Library;
use std::ffi::{c_char, c_int, c_void};

/// Result of a call: 0, or the number of an error.
pub(super) type Status = c_int;
/// A communicator: the place of a GPU in a group.
pub(super) type Communicator = *mut c_void;
/// A stream of the driver.
type Stream = *mut c_void;

/// The reduction that adds.
pub(super) const SUM: c_int = 0;
/// The status of work that has not ended.
pub(super) const IN_PROGRESS: Status = 7;

macro_rules! functions {
    ($($name:ident: $symbol:literal($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions.
        pub(super) struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Api {
            /// Finds the functions in `library`. Returns the name of the first one that is missing, if one is.
            pub(super) fn find(library: &Library) -> Result<Api, &'static str> {
                Ok(Api {
                    $(
                        // SAFETY: the functions of NCCL 2 have these signatures.
                        $name: unsafe { *library.get(concat!($symbol, "\0").as_bytes()).map_err(|_| $symbol)? },
                    )*
                })
            }
        }
    };
}

functions! {
    version: "ncclGetVersion"(*mut c_int) -> Status;
    error_string: "ncclGetErrorString"(Status) -> *const c_char;
    init_all: "ncclCommInitAll"(*mut Communicator, c_int, *const c_int) -> Status;
    destroy: "ncclCommDestroy"(Communicator) -> Status;
    abort: "ncclCommAbort"(Communicator) -> Status;
    async_error: "ncclCommGetAsyncError"(Communicator, *mut Status) -> Status;
    group_start: "ncclGroupStart"() -> Status;
    group_end: "ncclGroupEnd"() -> Status;
    all_reduce: "ncclAllReduce"(*const c_void, *mut c_void, usize, c_int, c_int, Communicator, Stream) -> Status;
    broadcast: "ncclBroadcast"(*const c_void, *mut c_void, usize, c_int, c_int, Communicator, Stream) -> Status;
}

/// Returns NCCL's number of an element type, if replicas combine it.
pub(super) fn number(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::I32 => Some(2),
        DType::I64 => Some(4),
        DType::F32 => Some(7),
        DType::F64 => Some(8),
        _ => None,
    }
}
