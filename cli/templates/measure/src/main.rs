//! Runs each signature of a model, and prints what a run takes: instructions, also of each op, and
//! stack.

#![no_std]
#![no_main]

mod clock;
mod model;
mod runs;
mod stack;

use cortex_m_semihosting::{debug, hprintln};
use gradlet_core::runtime::telemetry::Profiler;
use gradlet_core::runtime::{Aligned, SignatureId};
use gradlet_core::{Program, Result, Session};
use runs::{ARENA_BYTES, OPS, RUNS, Run};
use static_cell::ConstStaticCell;

#[unsafe(link_section = ".model")]
static MODEL: Aligned<[u8; include_bytes!("../model.grdl").len()]> =
    Aligned(*include_bytes!("../model.grdl"));
/// The inputs of all runs, one after another.
#[unsafe(link_section = ".model")]
static INPUTS: [u8; include_bytes!("../inputs.bin").len()] = *include_bytes!("../inputs.bin");
static ARENA: ConstStaticCell<Aligned<[u8; ARENA_BYTES]>> =
    ConstStaticCell::new(Aligned([0; ARENA_BYTES]));
static COUNTS: ConstStaticCell<[u32; OPS]> = ConstStaticCell::new([0; OPS]);

#[cortex_m_rt::entry]
fn main() -> ! {
    clock::start();
    let (arena, counts) = (&mut ARENA.take().0, COUNTS.take());
    for run in &RUNS {
        if let Err(error) = measure(run, arena, counts) {
            hprintln!("error {}", error);
            exit(false);
        }
    }
    exit(true)
}

/// Measures a run, first as a whole and then op by op.
fn measure(run: &Run, arena: &mut [u8], counts: &mut [u32]) -> Result<()> {
    let program = Program::load(&MODEL.0, model::KERNELS, &[run.signature])?;
    let signature = program.signature(run.signature)?;
    let mut session = Session::new(&program, arena)?;
    hprintln!("signature {}", run.signature);

    fill(&mut session, signature, run)?;
    let ((outcome, ticks), stack) = stack::of(|| {
        let before = clock::ticks();
        let outcome = session.run(signature);
        (outcome, clock::ticks().wrapping_sub(before))
    });
    outcome?;
    hprintln!("ticks {}", ticks);
    hprintln!("stack {}", stack);
    for index in 0..run.outputs {
        hprintln!("output {}", hash(session.output_bytes(signature, index)?));
    }

    session.reset();
    fill(&mut session, signature, run)?;
    let mut profiler = Profiler::new(clock::ticks, counts);
    profiler.run(&mut session, signature)?;
    for (op, ticks) in (profiler.first()..).zip(profiler.counts()) {
        hprintln!("op {} {}", op, ticks);
    }
    Ok(())
}

/// Sets the inputs of a run.
fn fill(session: &mut Session<'_, '_>, signature: SignatureId, run: &Run) -> Result<()> {
    let mut rest = INPUTS.get(run.first..).unwrap_or(&[]);
    for index in 0..run.inputs {
        let input = session.input_bytes_mut(signature, index)?;
        if let Some((bytes, after)) = rest.split_at_checked(input.len()) {
            input.copy_from_slice(bytes);
            rest = after;
        }
    }
    Ok(())
}

/// The hash FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

fn exit(success: bool) -> ! {
    debug::exit(if success {
        debug::EXIT_SUCCESS
    } else {
        debug::EXIT_FAILURE
    });
    loop {
        cortex_m::asm::bkpt();
    }
}

#[cortex_m_rt::exception]
unsafe fn HardFault(_: &cortex_m_rt::ExceptionFrame) -> ! {
    hprintln!("error the processor faulted, as it does when the stack is too large");
    exit(false)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    hprintln!("error {}", info);
    exit(false)
}
