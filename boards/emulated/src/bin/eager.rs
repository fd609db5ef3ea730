//! Builds a model on the microcontroller, and trains it eagerly with a tape. It needs no artifact and no host.

#![no_std]
#![no_main]

use emulated::console::{self, Arguments};
use emulated::heap::Heap;
use emulated::memory::Arena;
use emulated::{Failure, counter, file::File, learn};

const HEAP_BYTES: usize = 96 << 10;

#[global_allocator]
static HEAP: Heap = Heap::new();
static MEMORY: Arena<HEAP_BYTES> = Arena::new();

emulated::entry!(firmware);

/// Trains for the number of steps in the command line. Writes every loss, then every variable, to the file that the command line names.
fn firmware() -> Result<(), Failure> {
    let memory = MEMORY.take().ok_or(Failure::Check("heap"))?;
    HEAP.give(memory.bytes);
    let arguments = Arguments::new();
    let (Some(steps), Some(path)) = (arguments.number(1), arguments.get(2)) else { return Err(Failure::Usage("STEPS FILE")) };
    let mut file = File::create(path)?;
    let (mut most, mut written) = (0, Ok(()));
    let count = |step: &mut dyn FnMut()| most = counter::measure(step).1.max(most);
    learn::learn(steps, count, |bytes| {
        if written.is_ok() {
            written = file.write(bytes);
        }
    })?;
    written?;
    console::report("heap_peak", HEAP.peak());
    console::report("instructions_train_step", most);
    Ok(())
}
