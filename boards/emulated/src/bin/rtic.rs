//! Trains a model in slices as the idle task of RTIC, below the task of a sensor with an interrupt 1,000 times a second.

#![no_std]
#![no_main]

use gradlet_core::runtime::Aligned;

emulated::model!();

#[rtic::app(device = emulated::device, peripherals = false)]
mod app {
    use super::{ARENA_BYTES, Aligned, KERNELS, MODEL};
    use emulated::console::Arguments;
    use emulated::{Failure, console, counter, end, load, memory, mlp, scalar, sensor, session};
    use gradlet_core::{Program, Session};

    #[shared]
    struct Shared {
        /// The samples so far: their number and their sum.
        samples: (u32, f32),
    }

    #[local]
    struct Local {
        session: Session<'static, 'static>,
    }

    #[init(local = [
        program: Option<Program<'static>> = None,
        arena: Aligned<[u8; ARENA_BYTES]> = Aligned([0; ARENA_BYTES]),
    ])]
    fn init(cx: init::Context) -> (Shared, Local) {
        memory::paint_stack();
        counter::start();
        let loaded = load(&MODEL.0, KERNELS, &["infer", "train"]);
        let session = loaded.and_then(|program| session(cx.local.program.insert(program), &mut cx.local.arena.0));
        let mut core = cx.core;
        sensor::start(&mut core.SYST);
        match session {
            Ok(session) => (Shared { samples: (0, 0.0) }, Local { session }),
            Err(failure) => end(Err(failure)),
        }
    }

    #[task(binds = SysTick, priority = 2, shared = [samples])]
    fn sample(mut cx: sample::Context) {
        sensor::deliver();
        while let Some(sample) = sensor::take() {
            cx.shared.samples.lock(|samples| *samples = (samples.0 + 1, samples.1 + sample));
        }
    }

    #[idle(local = [session], shared = [samples])]
    fn idle(mut cx: idle::Context) -> ! {
        let outcome = learn(cx.local.session);
        console::report("samples", cx.shared.samples.lock(|samples| samples.0));
        end(outcome)
    }

    fn learn(session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let steps = Arguments::new().number(1).ok_or(Failure::Usage("STEPS"))?;
        let train = session.program().signature("train")?;
        for step in 0..steps {
            mlp::example(session, train, step)?;
            session.begin(train)?;
            while session.advance(20_000)?.is_pending() {}
            console::report("loss_bits", scalar(session, train)?.to_bits());
        }
        Ok(())
    }
}
