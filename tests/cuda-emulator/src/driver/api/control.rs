//! Functions for tests: the emulator's properties, its failures, its counts, and the program's own accounts of memory.

use super::device::give_text;
use crate::driver::counts::{Counts, KernelCounts, Triggers};
use crate::driver::state::{Emulator, emulator, give};
use crate::driver::status::{Outcome, Status};
use crate::driver::work::{Mark, MarkKind, Work};
use std::ffi::{CStr, c_char};

/// Sets properties before `cuInit`: words of the form `key=value`, separated by spaces.
///
/// `devices`, `memory` (bytes of each), `capability` (87 is 8.7), `multiprocessors` (of each), `driver` (12040 is 12.4), `name` (`_`
/// stands for a space), `budget` (instructions of a launch), `cublaslt` (nanoseconds of its products); 0 or 1: `cublaslt_wrong`,
/// `integrated`, `peers` (devices can use each other's memory), `global_races`, `uninitialised`, `no_device`, `terminated` (arrays of
/// kernel parameters end with a null pointer, so their number is checked).
///
/// Returns `CUDA_ERROR_INVALID_VALUE` for a word that is none of these, `CUDA_ERROR_NOT_SUPPORTED` after `cuInit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_configure(words: *const c_char) -> Status {
    let mut emulator = emulator();
    if emulator.is_initialised {
        return Status::NOT_SUPPORTED;
    }
    // SAFETY: the caller gives a text with a zero at its end, or null.
    let Some(words) = (unsafe { text(words) }) else { return Status::INVALID_VALUE };
    match emulator.configuration.set(words) {
        Ok(()) => Status::SUCCESS,
        Err(word) => {
            eprintln!("CUDA emulator: {word} is no property");
            Status::INVALID_VALUE
        }
    }
}

/// Asks for a failure, which happens once.
///
/// - `refuse-allocation-after N`: after N more allocations, the next one fails for lack of memory.
/// - `fail-launch-after N`: after N more launches of kernels or graphs, the next one fails, and the device with it.
/// - `lose-device-after N [STATUS]`: after N more calls that need a device, the next one loses it, with status 46 or the given one.
/// - `refuse-module TEXT`: the next module whose PTX has the text is refused.
/// - `none`: nothing fails.
/// - `reset-counts`: all counts are 0.
///
/// Returns `CUDA_ERROR_INVALID_VALUE` for anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_control(words: *const c_char) -> Status {
    // SAFETY: the caller gives a text with a zero at its end, or null.
    let words = unsafe { text(words) };
    words.and_then(|words| emulator().control(words)).map_or(Status::INVALID_VALUE, |()| Status::SUCCESS)
}

/// Writes the counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_counts(counts: *mut Counts) -> Status {
    give(counts, emulator().counts).into()
}

/// Writes a line for each kernel that has run: its name, its launches, its operations on floating-point numbers, the bytes that its
/// threads loaded from and stored to device memory, and the threads and the bytes of dynamic shared memory of a block, separated by spaces.
///
/// A fused multiplication and addition is two operations, a product of matrices two for each pair of factors. A byte that several threads
/// load counts once for each. Returns the bytes of the text with the zero at its end; it is cut to the size of the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_kernels(buffer: *mut c_char, size: usize) -> usize {
    let line = |(name, counts): (&String, &KernelCounts)| {
        let KernelCounts { launches, flops, loaded, stored, threads, dynamic_shared } = counts;
        format!("{name} {launches} {flops} {loaded} {stored} {threads} {dynamic_shared}\n")
    };
    let text: String = emulator().kernels.iter().map(line).collect();
    if size > 0 {
        // A null buffer gets nothing.
        let _: Outcome = give_text(buffer, size, &text);
    }
    text.len() + 1
}

/// Returns the text of the last fault or of the last refused call, or an empty text. It is valid until the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_report() -> *const c_char {
    emulator().report.as_ptr()
}

/// Says that the program gives a range of memory a new use: it gets the pattern of fresh memory and may be used.
///
/// This and the next two functions take effect after the work that was submitted before, and before later work. They may name memory
/// of a device or page-locked memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_poison(address: u64, bytes: u64) {
    mark(address, bytes, MarkKind::Poison);
}

/// Says that the program has freed a range of memory in its own accounts: each use of it is a fault.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_ban(address: u64, bytes: u64) {
    mark(address, bytes, MarkKind::Ban);
}

/// Allows the use of a range of memory, which keeps what it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_unban(address: u64, bytes: u64) {
    mark(address, bytes, MarkKind::Unban);
}

/// Makes the emulator as it was when it was loaded. Handles and addresses from before are invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_reset() {
    emulator().reset();
}

fn mark(address: u64, bytes: u64, kind: MarkKind) {
    let mut emulator = emulator();
    if bytes > 0 && emulator.mark(address, bytes as usize, kind).is_err() {
        eprintln!("CUDA emulator: {bytes} bytes at {address:#x} are no part of an allocation");
    }
}

impl Emulator {
    fn mark(&mut self, address: u64, bytes: usize, kind: MarkKind) -> Outcome {
        let block = self.memory.find(address).ok_or(Status::INVALID_VALUE)?;
        block.range(address, bytes).ok_or(Status::INVALID_VALUE)?;
        let device = block.device;
        if self.devices[device].fault.is_some() {
            return Ok(());
        }
        self.submit_mark(address, Work::Mark(Mark { address, bytes, kind }))
    }

    fn control(&mut self, words: &str) -> Option<()> {
        let (verb, rest) = words.trim().split_once(' ').unwrap_or((words.trim(), ""));
        let number = |word: &str| word.parse::<u64>().ok();
        match verb {
            "refuse-allocation-after" => self.triggers.allocation = Some(number(rest)?),
            "fail-launch-after" => self.triggers.launch = Some(number(rest)?),
            "lose-device-after" => {
                let (count, status) = rest.split_once(' ').unwrap_or((rest, "46"));
                self.triggers.device = Some((number(count)?, Status(status.parse().ok()?)));
            }
            "refuse-module" if !rest.is_empty() => self.triggers.module = Some(rest.to_string()),
            "none" => self.triggers = Triggers::default(),
            "reset-counts" => {
                self.counts = Counts::default();
                self.kernels.clear();
            }
            _ => return None,
        }
        Some(())
    }
}

/// Returns the text at an address.
///
/// # Safety
///
/// The text has a zero at its end, or the address is null.
unsafe fn text<'t>(address: *const c_char) -> Option<&'t str> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(address) }.to_str().ok()
}
