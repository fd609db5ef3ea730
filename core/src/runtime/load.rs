//! `Program::load`: verifies an artifact once, so that the executor need not check it again.

use crate::base::error::{Error, Result};
use crate::base::op::Kernel;
use crate::runtime::check;
use crate::runtime::program::{CHECKSUM_FROM, Program, checksum};

impl<'a> Program<'a> {
    /// Checks the artifact `bytes` for running `signatures` with `kernels`, and opens it.
    ///
    /// `bytes` must begin at a multiple of 16 ([`crate::Aligned`]); bytes after the artifact's own length are ignored.
    /// Kernels are needed only for the named signatures. The errors name the place: the record of a table, or the
    /// instruction and the rule it breaks; [`Error::MissingKernel`] where `kernels` lacks one
    /// ([`missing_kernel`](crate::runtime::program::missing_kernel) names it).
    pub fn load(bytes: &'a [u8], kernels: &'a [&'a Kernel], signatures: &[&str]) -> Result<Program<'a>> {
        let mut program = Program::open(bytes, kernels)?;
        let header = program.header;
        let covered = bytes.get(CHECKSUM_FROM..header.length as usize).unwrap_or(&[]);
        let computed = checksum(covered);
        if computed != header.checksum {
            return Err(Error::Checksum { stored: header.checksum, computed });
        }
        check::tables(&program)?;
        for name in signatures {
            program.loaded |= 1 << program.find(name)?.0;
        }
        // Which variables are in RAM depends on all of them.
        for index in 0..program.signatures.len() as u32 {
            if program.loaded & (1 << index) != 0 {
                check::block(&program, index)?;
            }
        }
        Ok(program)
    }
}
