//! The machine that executes a parsed kernel, warp by warp.

pub(crate) mod arithmetic;
mod atomic;
mod barrier;
mod block;
pub(crate) mod code;
mod copies;
mod elements;
mod engine;
mod exchange;
pub(crate) mod fused;
pub(crate) mod matrix;
mod memory;
mod races;
pub(crate) mod registers;
mod shadow;
mod spaces;
mod transfer;
mod warp;

pub use code::{Function, Parameter};
pub use memory::{Access, Fault, FaultKind, LOCAL_WINDOW, Memory, Region, SHARED_WINDOW};

/// A launch of a kernel.
pub struct Launch<'l> {
    /// The kernel.
    pub function: &'l Function,
    /// Blocks of the grid along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of shared memory beside those that the function declares.
    pub dynamic_shared: u32,
    /// The parameters' bytes, in the layout of [`Function::parameters`].
    pub parameters: &'l [u8],
}

/// How strictly and how long a launch runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instructions of a warp after which a launch is stopped with [`FaultKind::Timeout`].
    pub budget: u64,
    /// Whether races on device memory are faults. It costs much time and memory.
    pub global_races: bool,
    /// Bytes of shared memory that a block may have.
    pub most_shared: u32,
}

/// Numbers of what a launch executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Instructions, counted once per warp.
    pub warp_instructions: u64,
    /// Instructions, counted once per thread.
    pub lane_instructions: u64,
    /// Operations on floating-point numbers: a fused multiplication and addition is two, a product of matrices two for each factor pair.
    pub flops: u64,
    /// Bytes that threads loaded from device memory, counted once per thread.
    pub loaded: u64,
    /// Bytes that threads stored to device memory.
    pub stored: u64,
}

/// Runs a launch with the default options.
pub fn run<M: Memory>(launch: &Launch<'_>, memory: &mut M) -> Result<Statistics, Fault> {
    run_with(launch, memory, &Options::default())
}

/// Runs a launch.
pub fn run_with<M: Memory>(launch: &Launch<'_>, memory: &mut M, options: &Options) -> Result<Statistics, Fault> {
    block::run(launch, memory, options)
}

impl Default for Options {
    fn default() -> Self {
        Self { budget: 2_000_000_000, global_races: false, most_shared: 48 << 10 }
    }
}
