//! Shared code of the firmwares: console and files of the debugging host, an instruction counter, and painted memory.

#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod banks;
pub mod board;
pub mod console;
pub mod counter;
#[cfg(feature = "mps2-an386")]
pub mod device;
pub mod digits;
pub mod file;
pub mod flash;
#[cfg(feature = "alloc")]
pub mod heap;
#[cfg(feature = "alloc")]
pub mod learn;
#[cfg(feature = "mps2-an386")]
pub mod line;
pub mod memory;
pub mod mlp;
pub mod model;
pub mod semihost;
#[cfg(feature = "mps2-an386")]
pub mod sensor;
pub mod uart;
#[cfg(feature = "mps2-an386")]
pub mod watchdog;

use gradlet_core::runtime::program;
use gradlet_core::{DType, Error};
use semihost::exit;

/// Defines the entry of a firmware, which runs the function `$firmware` by [`run`].
#[macro_export]
macro_rules! entry {
    ($firmware:path) => {
        #[cfg_attr(target_arch = "arm", cortex_m_rt::entry)]
        #[cfg_attr(target_arch = "riscv32", riscv_rt::entry)]
        fn main() -> ! {
            $crate::run($firmware)
        }
    };
}

/// Reason why a firmware stops early.
pub enum Failure {
    /// gradlet returned an error. The text names the failed stage.
    Core(&'static str, Error),
    /// A file could not be opened, read or written.
    File,
    /// The command line is wrong. The text lists the expected arguments.
    Usage(&'static str),
    /// A check failed. The text names it.
    Check(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Core("run", error)
    }
}

/// Runs a firmware: paints the stack, starts the counter, then reports the outcome and the deepest stack use.
pub fn run(firmware: fn() -> Result<(), Failure>) -> ! {
    memory::paint_stack();
    counter::start();
    end(firmware())
}

/// Reports the outcome of a firmware and the deepest stack use, and ends the firmware.
pub fn end(result: Result<(), Failure>) -> ! {
    console::report("stack_high_water", memory::stack_high_water());
    match result {
        Ok(()) => exit(true),
        Err(failure) => {
            explain(&failure);
            exit(false)
        }
    }
}

/// Reports the deepest stack use, and restarts the machine. The core is reset, and all of its state is lost.
pub fn restart() -> ! {
    console::report("stack_high_water", memory::stack_high_water());
    #[cfg(target_arch = "arm")]
    cortex_m::peripheral::SCB::sys_reset();
    #[cfg(target_arch = "riscv32")]
    board::reset()
}

fn explain(failure: &Failure) {
    match failure {
        Failure::Core(stage, _) => console::text("error", stage),
        Failure::File => console::text("error", "file"),
        Failure::Usage(usage) => console::text("usage", usage),
        Failure::Check(what) => console::text("broken", what),
    }
}

/// Loads the artifact `bytes`. If a kernel is not linked, reports the op and the element type that the kernel list lacks.
pub fn load<'a>(
    bytes: &'a [u8],
    kernels: &'a [&'a gradlet_core::Kernel],
    signatures: &[&str],
) -> Result<gradlet_core::Program<'a>, Failure> {
    gradlet_core::Program::load(bytes, kernels, signatures).map_err(|error| {
        if let Error::MissingKernel { kernel } = error
            && let Some((op, dtype)) = program::missing_kernel(bytes, kernel)
        {
            console::text("missing_kernel", op);
            console::report("missing_kernel_dtype", dtype as u32);
        }
        Failure::Core("load", error)
    })
}

/// Creates the session of `program` in `arena`. If the arena is too small, reports the number of bytes that it must have.
pub fn session<'p, 'm>(program: &'p gradlet_core::Program<'p>, arena: &'m mut [u8]) -> Result<gradlet_core::Session<'p, 'm>, Failure> {
    gradlet_core::Session::new(program, arena).map_err(|error| {
        if let Error::ArenaTooSmall { needed, .. } = error {
            console::report("arena_needed", needed);
        }
        Failure::Core("arena", error)
    })
}

/// Returns the first element of output 0, which must be `f32`.
pub fn scalar(session: &gradlet_core::Session<'_, '_>, signature: gradlet_core::runtime::SignatureId) -> Result<f32, Failure> {
    let wrong = Failure::Core("output", Error::TensorType { index: DType::F32 as u32 });
    session.output::<f32>(signature, 0)?.first().copied().ok_or(wrong)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    console::text("error", "panic");
    exit(false)
}

#[cfg(target_arch = "arm")]
#[cortex_m_rt::exception]
unsafe fn HardFault(_: &cortex_m_rt::ExceptionFrame) -> ! {
    fault()
}

#[cfg(target_arch = "riscv32")]
#[unsafe(export_name = "ExceptionHandler")]
extern "C" fn exception(_: &riscv_rt::TrapFrame) -> ! {
    fault()
}

fn fault() -> ! {
    console::text("error", "fault");
    exit(false)
}
