//! `Program::load`: verifies an artifact once, so that the executor needs no further checks.

use crate::base::error::{Error, Result};
use crate::base::op::Kernel;
use crate::runtime::check;
use crate::runtime::program::{CHECKSUM_FROM, Checksum, Program, checksum};
use core::task::Poll;

/// Cost of a byte of the checksum, in instructions of a Cortex-M4.
const SUM: u32 = 9;

impl<'a> Program<'a> {
    /// Verifies the artifact `bytes` for running `signatures` with `kernels`, and opens it.
    ///
    /// `bytes` must begin at a multiple of 16 ([`Aligned`](crate::runtime::Aligned)). Bytes after the artifact's own length are ignored.
    /// Only the kernels of the named signatures are needed.
    ///
    /// An error names the record of a table, or the instruction and the rule that it breaks. [`Error::MissingKernel`] means that `kernels`
    /// lacks a kernel; [`missing_kernel`](crate::runtime::program::missing_kernel) returns its name.
    ///
    /// [`Loading`] computes the checksum in slices.
    pub fn load(bytes: &'a [u8], kernels: &'a [&'a Kernel], signatures: &[&str]) -> Result<Program<'a>> {
        let program = Program::open(bytes, kernels)?;
        let computed = checksum(covered(bytes, &program));
        program.verify(computed, signatures)
    }

    /// Verifies and opens an artifact like [`Program::load`], for running the signatures whose indices in the artifact are the bits of
    /// `signatures`.
    pub fn load_at(bytes: &'a [u8], kernels: &'a [&'a Kernel], signatures: u32) -> Result<Program<'a>> {
        let program = Program::open(bytes, kernels)?;
        let computed = checksum(covered(bytes, &program));
        program.verify_at(computed, signatures)
    }

    /// Verifies the artifact like [`Program::verify`], for running the signatures of [`Program::load_at`].
    fn verify_at(mut self, computed: u32, signatures: u32) -> Result<Program<'a>> {
        self.loaded = signatures;
        let program = self.verify(computed, &[])?;
        let known = u32::MAX.unbounded_shl(program.signatures.len() as u32) & signatures == 0;
        if known { Ok(program) } else { Err(Error::UnknownSignature) }
    }

    /// Verifies the artifact, whose checksum is `computed`, for running `signatures`.
    #[inline]
    fn verify(mut self, computed: u32, signatures: &[&str]) -> Result<Program<'a>> {
        let stored = self.header.checksum;
        if computed != stored {
            return Err(Error::Checksum { stored, computed });
        }
        check::tables(&self)?;
        for name in signatures {
            self.loaded |= 1 << self.find(name)?.0;
        }
        // The blocks are checked after all names are resolved, because every loaded signature affects which variables are in RAM.
        for index in 0..self.signatures.len() as u32 {
            if self.loaded & (1 << index) != 0 {
                check::block(&self, index)?;
            }
        }
        Ok(self)
    }
}

/// Returns the bytes that the artifact's checksum covers.
fn covered<'a>(bytes: &'a [u8], program: &Program<'_>) -> &'a [u8] {
    bytes.get(CHECKSUM_FROM..program.header.length as usize).unwrap_or(&[])
}

/// A load whose checksum is computed in slices.
///
/// ```no_run
/// # use gradlet_core::{Kernel, Program, Result, runtime::Loading};
/// # fn watchdog() {}
/// # fn firmware<'a>(bytes: &'a [u8], kernels: &'a [&'a Kernel]) -> Result<Program<'a>> {
/// let mut loading = Loading::new(bytes, kernels)?;
/// while loading.advance(20_000).is_pending() {
///     watchdog(); // or yield to other tasks
/// }
/// let program = loading.finish(&["train"])?;
/// # Ok(program)
/// # }
/// ```
pub struct Loading<'a> {
    program: Program<'a>,
    /// The bytes that are not summed yet.
    rest: &'a [u8],
    sum: Checksum,
}

impl<'a> Loading<'a> {
    /// Reads the header of the artifact `bytes`. Fails like [`Program::load`].
    pub fn new(bytes: &'a [u8], kernels: &'a [&'a Kernel]) -> Result<Loading<'a>> {
        let program = Program::open(bytes, kernels)?;
        Ok(Loading { rest: covered(bytes, &program), program, sum: Checksum::NEW })
    }

    /// Goes on with the checksum for about `budget` instructions of a Cortex-M4. Returns `Ready` when all bytes are summed.
    pub fn advance(&mut self, budget: u32) -> Poll<()> {
        let bytes = (budget / SUM).max(1) as usize;
        let (part, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, &[]));
        (self.sum, self.rest) = (self.sum.add(part), rest);
        if rest.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sums the bytes that are left, verifies the tables and the signatures, and opens the artifact. The verification is not divided. Its
    /// time grows with the number of instructions and variables, not with their size. Fails like [`Program::load`].
    pub fn finish(self, signatures: &[&str]) -> Result<Program<'a>> {
        let computed = self.sum.add(self.rest).get();
        self.program.verify(computed, signatures)
    }

    /// Finishes like [`Loading::finish`], for running the signatures of [`Program::load_at`].
    pub fn finish_at(self, signatures: u32) -> Result<Program<'a>> {
        let computed = self.sum.add(self.rest).get();
        self.program.verify_at(computed, signatures)
    }
}
