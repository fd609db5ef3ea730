//! The training loop. It is the same on every board.

use crate::model::KERNELS;
use crate::sample::{self, ARENA_BYTES, LOSS, SIGNATURE};
use core::ops::Range;
use core::task::Poll;
use embassy_futures::yield_now;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::embedded_io::Write;
use gradlet_core::runtime::embedded_storage::nor_flash::NorFlash;
use gradlet_core::runtime::{Aligned, Slots, Telemetry};
use gradlet_core::{Program, Result, Session};
use static_cell::ConstStaticCell;

/// Training steps of a round. A save follows each round, and erases one of two slots. Flash endures
/// about 10,000 erase cycles.
const ROUND: u32 = 1_000;
/// Steps between two losses on the line. A loss takes 2 ms at 115,200 baud.
const REPORTED: u32 = 10;
/// Instructions of a Cortex-M4 in a slice of work, about. Other tasks run between the slices.
const SLICE: u32 = 20_000;

/// The exported model. It stays in flash.
static MODEL: Aligned<[u8; include_bytes!("../model.grdl").len()]> =
    Aligned(*include_bytes!("../model.grdl"));
/// Memory of the training step and of the variables.
static ARENA: ConstStaticCell<Aligned<[u8; ARENA_BYTES]>> =
    ConstStaticCell::new(Aligned([0; ARENA_BYTES]));
/// Frames that wait for the line.
static FRAMES: ConstStaticCell<[u8; 512]> = ConstStaticCell::new([0; 512]);

/// Trains for `rounds` rounds, from the newest checkpoint in the bytes `slots` of `flash` on, and
/// reports over `line`. Returns true if there was a checkpoint. Call it once.
///
/// An error also goes over the line, as a text.
pub async fn learn<F: NorFlash, W: Write>(
    board: &str,
    flash: F,
    slots: Range<u32>,
    line: W,
    rounds: u32,
) -> Result<bool> {
    let mut telemetry = Telemetry::new(line, FRAMES.take());
    let done = train(board, flash, slots, &mut telemetry, rounds).await;
    if let Err(error) = &done {
        telemetry.format("error", 0, format_args!("{error}"));
        send(&mut telemetry);
    }
    done
}

async fn train<F: NorFlash, W: Write>(
    board: &str,
    flash: F,
    slots: Range<u32>,
    telemetry: &mut Telemetry<'_, W>,
    rounds: u32,
) -> Result<bool> {
    let program = Program::load(&MODEL.0, KERNELS, &[SIGNATURE])?;
    let signature = program.signature(SIGNATURE)?;
    let mut session = Session::new(&program, &mut ARENA.take().0)?;
    let mut slots = Slots::new(flash, slots, 2)?;
    let restored = slots.restore(&mut session)?;
    // A save takes the number after the highest one in any slot, also in those of another model.
    let numbers = slots.list().flatten().map(|slot| slot.sequence);
    let mut saves = numbers.max().unwrap_or(0);

    for _ in 0..rounds {
        telemetry.hello(board, "seconds", 1, Some(program.identity()));
        for step in saves * ROUND..(saves + 1) * ROUND {
            sample::sample(&mut session, signature, step)?;
            session.begin(signature)?;
            while session.advance(SLICE)?.is_pending() {
                yield_now().await;
            }
            if step % REPORTED == 0 {
                let loss = session.output::<f32>(signature, LOSS)?;
                telemetry.scalar(
                    "train/loss",
                    step,
                    loss.first().copied().unwrap_or(f32::NAN),
                );
                send(telemetry);
            }
        }
        slots.begin_save(&session, Contents::Changed)?;
        saves = loop {
            match slots.advance_save(&session, SLICE)? {
                Poll::Ready(sequence) => break sequence,
                Poll::Pending => yield_now().await,
            }
        };
        telemetry.text("state", saves * ROUND, "saved");
        send(telemetry);
    }
    Ok(restored.is_some())
}

/// Sends the frames. The training goes on if the line fails.
fn send<W: Write>(telemetry: &mut Telemetry<'_, W>) {
    let _ = telemetry.flush();
}
