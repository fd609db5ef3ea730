//! `Program::load`: verifies an artifact once, so that the executor needs no further checks.

use crate::base::error::{Error, Result};
use crate::base::op::Kernel;
use crate::runtime::check;
use crate::runtime::program::{CHECKSUM_FROM, Program, checksum};

impl<'a> Program<'a> {
    /// Verifies the artifact `bytes` for running `signatures` with `kernels`, and opens it.
    ///
    /// `bytes` must begin at a multiple of 16 ([`Aligned`](crate::runtime::Aligned)). Bytes after the artifact's own length are ignored.
    /// Only the kernels of the named signatures are needed.
    ///
    /// An error names the record of a table, or the instruction and the rule that it breaks. [`Error::MissingKernel`] means that `kernels`
    /// lacks a kernel; [`missing_kernel`](crate::runtime::program::missing_kernel) returns its name.
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
        // The blocks are checked after all names are resolved, because every loaded signature affects which variables are in RAM.
        for index in 0..program.signatures.len() as u32 {
            if program.loaded & (1 << index) != 0 {
                check::block(&program, index)?;
            }
        }
        Ok(program)
    }
}
