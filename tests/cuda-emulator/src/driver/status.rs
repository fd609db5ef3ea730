//! Results of the driver's functions.

use std::ffi::CStr;

/// Result of a call: the driver's `CUresult`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

/// Result of what a call does.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

macro_rules! statuses {
    ($($name:ident = $number:literal $meaning:literal;)*) => {
        impl Status {
            $(#[doc = $meaning] pub const $name: Status = Status($number);)*

            /// Returns the driver's name of the status and its meaning. Returns `None` if it is none of the driver's.
            pub(crate) fn texts(self) -> Option<(&'static CStr, &'static CStr)> {
                let (name, meaning) = match self.0 {
                    0 => ("CUDA_SUCCESS\0", "no error\0"),
                    $($number => (concat!("CUDA_ERROR_", stringify!($name), "\0"), concat!($meaning, "\0")),)*
                    _ => return None,
                };
                CStr::from_bytes_with_nul(name.as_bytes()).ok().zip(CStr::from_bytes_with_nul(meaning.as_bytes()).ok())
            }
        }
    };
}

statuses! {
    INVALID_VALUE = 1 "invalid argument";
    OUT_OF_MEMORY = 2 "out of memory";
    NOT_INITIALIZED = 3 "initialization error";
    DEVICE_UNAVAILABLE = 46 "CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = 100 "no CUDA-capable device is detected";
    INVALID_DEVICE = 101 "invalid device ordinal";
    INVALID_IMAGE = 200 "device kernel image is invalid";
    INVALID_CONTEXT = 201 "invalid device context";
    NO_BINARY_FOR_GPU = 209 "no kernel image is available for execution on the device";
    INVALID_PTX = 218 "a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = 222 "the provided PTX was compiled with an unsupported toolchain.";
    PEER_ACCESS_UNSUPPORTED = 217 "peer access is not supported between these two devices";
    INVALID_HANDLE = 400 "invalid resource handle";
    NOT_FOUND = 500 "named symbol not found";
    NOT_READY = 600 "device not ready";
    ILLEGAL_ADDRESS = 700 "an illegal memory access was encountered";
    LAUNCH_TIMEOUT = 702 "the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704 "peer access is already enabled";
    CONTEXT_IS_DESTROYED = 709 "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712 "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713 "pointer does not correspond to a registered memory region";
    ILLEGAL_INSTRUCTION = 715 "an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716 "misaligned address";
    LAUNCH_FAILED = 719 "unspecified launch failure";
    NOT_SUPPORTED = 801 "operation not supported";
}

impl Status {
    /// The call has succeeded.
    pub const SUCCESS: Status = Status(0);
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.texts() {
            Some((name, _)) => f.write_str(&name.to_string_lossy()),
            None => write!(f, "status {}", self.0),
        }
    }
}

impl From<Outcome> for Status {
    fn from(outcome: Outcome) -> Status {
        outcome.err().unwrap_or(Status::SUCCESS)
    }
}

/// Why queued work stopped: the context keeps the status, the report has the text.
#[derive(Debug)]
pub(crate) struct Stop {
    pub status: Status,
    pub text: String,
}

impl Stop {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Stop {
        Stop { status, text: text.into() }
    }
}
