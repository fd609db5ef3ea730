//! Counts of the program's calls, and the failures that a test has asked for.

use super::status::Status;

/// Numbers of calls and of what they have done.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Launches of kernels outside graphs.
    pub kernel_launches: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Kernels that were launched as nodes of graphs.
    pub graph_kernel_nodes: u64,
    /// Copies and fills that were launched as nodes of graphs.
    pub graph_copies: u64,
    /// Copies from the host to a device outside graphs.
    pub uploads: u64,
    /// Their bytes.
    pub upload_bytes: u64,
    /// Copies from a device to the host outside graphs.
    pub downloads: u64,
    /// Their bytes.
    pub download_bytes: u64,
    /// Copies within a device outside graphs.
    pub device_copies: u64,
    /// Fills outside graphs.
    pub fills: u64,
    /// Allocations of device memory and of page-locked memory.
    pub allocations: u64,
    /// Allocations that were freed.
    pub frees: u64,
    /// Modules that were loaded.
    pub modules: u64,
    /// Calls that wait for a stream, an event or a context.
    pub synchronizations: u64,
    /// Instructions of threads that were executed.
    pub instructions: u64,
}

/// Numbers of what the launches of a kernel have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelCounts {
    pub launches: u64,
    pub flops: u64,
    pub loaded: u64,
    pub stored: u64,
    /// Threads of a block, and bytes of its dynamic shared memory: the most of all launches.
    pub threads: u32,
    pub dynamic_shared: u32,
}

/// Failures that a test has asked for. Each one happens once.
#[derive(Default)]
pub(crate) struct Triggers {
    /// Allocations that still succeed.
    pub allocation: Option<u64>,
    /// Launches that still succeed.
    pub launch: Option<u64>,
    /// Calls that still succeed before the device is lost, and the status that it is lost with.
    pub device: Option<(u64, Status)>,
    /// Part of the text of the modules that the driver refuses.
    pub module: Option<String>,
}

impl Triggers {
    /// True if this allocation is to fail.
    pub(crate) fn refuses_allocation(&mut self) -> bool {
        is_now(&mut self.allocation)
    }

    /// True if this launch is to fail.
    pub(crate) fn fails_launch(&mut self) -> bool {
        is_now(&mut self.launch)
    }

    /// Returns the status with which the device is lost in this call, if it is.
    pub(crate) fn loss(&mut self) -> Option<Status> {
        match &mut self.device {
            Some((0, status)) => {
                let status = *status;
                self.device = None;
                Some(status)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    }
}

/// Counts down. Returns true once, when nothing is left.
fn is_now(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => {
            *left = None;
            true
        }
        Some(count) => {
            *count -= 1;
            false
        }
        None => false,
    }
}
