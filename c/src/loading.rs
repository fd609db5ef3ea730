//! Loading in slices, for firmware with a watchdog or other tasks.

use crate::kernels::Kernel;
use crate::memory::{Out, Region};
use crate::outcome::Outcome;
use crate::place::{self, place};
use crate::program::{self, Program, sources};
use gradlet_core::runtime::Loading as Going;

/// Size of a `gradlet_loading`, in words of a pointer's size.
pub const GRADLET_LOADING_WORDS: usize = 48;

/// A load in progress. The struct stays where it is.
#[repr(C)]
pub struct Loading {
    words: [usize; GRADLET_LOADING_WORDS],
}

place!(Loading: Opened, b"load");

/// A load, and the memory that it reads: artifact and list of kernels.
pub struct Opened {
    loading: Going<'static>,
    memory: [Region; 2],
}

/// Begins a load. The arguments are those of gradlet_program_load.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_loading_init(
    loading: *mut Loading,
    artifact: *const u8,
    bytes: usize,
    kernels: *const *const Kernel,
    kernel_count: usize,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe {
            let own = place::begin(0, loading)?;
            let (bytes, kernels, memory) = sources(own, (artifact, bytes), (kernels, kernel_count))?;
            place::clear(loading);
            // Later calls have the load as argument 0.
            let memory = memory.map(|region| region.of_argument(0));
            place::put(loading, Opened { loading: Going::new(bytes, kernels)?, memory });
        }
        Ok(())
    })
}

/// Goes on with a load for about `budget` instructions of a Cortex-M4. Stores in `done` whether only gradlet_loading_finish is left.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_loading_advance(loading: *mut Loading, budget: u32, done: *mut bool) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut opened = unsafe { place::take(0, loading)? };
        let [artifact, kernels] = opened.memory;
        let done = Out::new(2, done, &[opened.region(0), artifact, kernels])?;
        // SAFETY: as above.
        unsafe { done.set(opened.loading.advance(budget).is_ready()) };
        Ok(())
    })
}

/// Ends a load, and initialises its program. Bit `i` of `signatures` loads the signature with index `i`. The load is then over, also if the
/// artifact has an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_loading_finish(loading: *mut Loading, program: *mut Program, signatures: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe {
            let own = place::begin(1, program)?;
            own.apart(&Region::checked(0, loading))?;
            place::look(0, loading)?.memory.iter().try_for_each(|memory| own.apart(memory))?;
            let Opened { loading, memory } = place::remove(0, loading)?;
            place::clear(program);
            program::put(program, loading.finish_at(signatures)?, signatures, memory);
        }
        Ok(())
    })
}
