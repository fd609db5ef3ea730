//! Trains a model in slices as a task of embassy, beside the task of a sensor with an interrupt 1,000 times a second.

#![no_std]
#![no_main]

use cortex_m::Peripherals;
use embassy_executor::{Executor, Spawner};
use embassy_futures::yield_now;
use emulated::console::Arguments;
use emulated::memory::Arena;
use emulated::{Failure, console, counter, end, load, memory, mlp, scalar, sensor, session};
use gradlet_core::{Program, Session};
use static_cell::StaticCell;

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();
static PROGRAM: StaticCell<Program<'static>> = StaticCell::new();
static EXECUTOR: StaticCell<Executor> = StaticCell::new();

#[cortex_m_rt::entry]
fn main() -> ! {
    memory::paint_stack();
    counter::start();
    EXECUTOR.init(Executor::new()).run(|spawner| {
        if let Err(failure) = spawn(spawner) {
            end(Err(failure));
        }
    })
}

#[cortex_m_rt::exception]
fn SysTick() {
    sensor::deliver();
}

fn spawn(spawner: Spawner) -> Result<(), Failure> {
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let program = PROGRAM.init(load(&MODEL.0, KERNELS, &["infer", "train"])?);
    let session = session(program, arena.bytes)?;
    sensor::start(&mut Peripherals::take().ok_or(Failure::Check("peripherals"))?.SYST);
    let full = |_| Failure::Check("tasks");
    spawner.spawn(sample().map_err(full)?);
    spawner.spawn(learn(session).map_err(full)?);
    Ok(())
}

/// Takes the samples of the sensor whenever the other task waits.
#[embassy_executor::task]
async fn sample() {
    loop {
        while sensor::take().is_some() {}
        yield_now().await;
    }
}

#[embassy_executor::task]
async fn learn(mut session: Session<'static, 'static>) {
    let outcome = train(&mut session).await;
    let (samples, lost) = sensor::counts();
    console::report("samples", samples);
    console::report("samples_lost", lost);
    end(outcome)
}

async fn train(session: &mut Session<'_, '_>) -> Result<(), Failure> {
    let steps = Arguments::new().number(1).ok_or(Failure::Usage("STEPS"))?;
    let train = session.program().signature("train")?;
    for step in 0..steps {
        mlp::example(session, train, step)?;
        session.begin(train)?;
        while session.advance(20_000)?.is_pending() {
            yield_now().await;
        }
        console::report("loss_bits", scalar(session, train)?.to_bits());
    }
    Ok(())
}
