//! Runs golden cases. It reads artifacts with their inputs from a file on the host, and writes the outputs to another.
//!
//! The command line names both files. A case is: `u32` length of the artifact in bytes, `u32` number of inputs, the artifact padded to 16
//! bytes, then the inputs. An input is a `u32` length in bytes, then the bytes padded to 4. The answer to a case is: `u32` status (0 if it
//! ran), `u32` number of outputs, then the outputs in the same form as the inputs. The signature is `call`.

#![no_std]
#![no_main]

use emulated::Failure;
use emulated::console::{self, Arguments};
use emulated::file::File;
use emulated::memory::Arena;
use gradlet_core::{Kernel, Program, Session, ops};

/// Kernels that a case has in place of the portable ones.
#[cfg(feature = "mps3-an547")]
use gradlet_helium::KERNELS as FIRST;
#[cfg(not(feature = "mps3-an547"))]
static FIRST: &[&Kernel] = &[];

static ARTIFACT: Arena<{ 1 << 20 }> = Arena::new();
static INPUTS: Arena<{ 1 << 20 }> = Arena::new();
static ARENA: Arena<{ 3 << 19 }> = Arena::new();

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let (Some(cases), Some(answers)) = (arguments.get(1), arguments.get(2)) else {
        return Err(Failure::Usage("CASES ANSWERS"));
    };
    let (mut cases, mut answers) = (File::open(cases)?, File::create(answers)?);
    let take = |arena: Option<emulated::memory::Painted>| arena.ok_or(Failure::Check("arena"));
    let (artifact, inputs, arena) = (take(ARTIFACT.take())?, take(INPUTS.take())?, take(ARENA.take())?);
    let kernels: heapless::Vec<&Kernel, 1024> = FIRST.iter().chain(ops::KERNELS).copied().collect();
    let mut count = 0;
    while let Some(case) = Case::read(&mut cases, artifact.bytes, inputs.bytes)? {
        let ran = case.map(|case| case.run(&kernels, artifact.bytes, inputs.bytes, arena.bytes, &mut answers));
        if !matches!(ran, Some(Ok(()))) {
            answers.write_u32(1)?;
            answers.write_u32(0)?;
        }
        count += 1;
    }
    console::report("cases", count);
    Ok(())
}

/// Sizes of a case: the length of its artifact in bytes, and the number of its inputs. [`Case::read`] fills the buffers with the contents.
struct Case {
    artifact: usize,
    inputs: u32,
}

impl Case {
    /// Reads the next case into the buffers `artifact` and `inputs`. Returns `None` at the end of the file, and `Some(None)` for a case
    /// that does not fit into the buffers.
    fn read(file: &mut File, artifact: &mut [u8], inputs: &mut [u8]) -> Result<Option<Option<Case>>, Failure> {
        let Some(length) = file.read_u32()? else { return Ok(None) };
        let case = Case { artifact: length as usize, inputs: file.read_u32()?.ok_or(Failure::File)? };
        let mut fits = read_padded(file, artifact, case.artifact, 16)?.is_some();
        let mut at = 0;
        for _ in 0..case.inputs {
            let length = file.read_u32()?.ok_or(Failure::File)?;
            let slot = inputs.get_mut(at..).unwrap_or(&mut []);
            if let Some((head, rest)) = slot.split_first_chunk_mut() {
                *head = length.to_le_bytes();
                fits &= read_padded(file, rest, length as usize, 4)?.is_some();
            } else {
                fits &= read_padded(file, &mut [], length as usize, 4)?.is_some();
            }
            at += 4 + (length as usize).next_multiple_of(4);
        }
        Ok(Some(fits.then_some(case)))
    }

    fn run(&self, kernels: &[&Kernel], artifact: &[u8], inputs: &[u8], arena: &mut [u8], answers: &mut File) -> Result<(), Failure> {
        let artifact = artifact.get(..self.artifact).unwrap_or(&[]);
        let program = Program::load(artifact, kernels, &["call"])?;
        let call = program.signature("call")?;
        let mut session = Session::new(&program, arena)?;
        let mut rest = inputs;
        for index in 0..self.inputs {
            let (length, bytes) = rest.split_first_chunk().ok_or(Failure::File)?;
            let length = u32::from_le_bytes(*length) as usize;
            let value = session.input_bytes_mut(call, index as usize)?;
            if value.len() != length {
                return Err(Failure::Check("input"));
            }
            value.copy_from_slice(bytes.get(..length).ok_or(Failure::File)?);
            rest = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        session.run(call)?;
        let count = (0..).take_while(|&index| session.output_bytes(call, index).is_ok()).count();
        answers.write_u32(0)?;
        answers.write_u32(count as u32)?;
        for index in 0..count {
            let bytes = session.output_bytes(call, index)?;
            answers.write_u32(bytes.len() as u32)?;
            answers.write(bytes)?;
            answers.write([0; 3].get(..bytes.len().next_multiple_of(4) - bytes.len()).unwrap_or(&[]))?;
        }
        Ok(())
    }
}

/// Reads `length` bytes, and the padding to a multiple of `padding`, into `buffer`. If they do not fit, skips them and returns `None`.
fn read_padded(file: &mut File, buffer: &mut [u8], length: usize, padding: usize) -> Result<Option<()>, Failure> {
    let length = length.next_multiple_of(padding);
    match buffer.get_mut(..length) {
        Some(buffer) => file.read(buffer)?.then_some(Some(())).ok_or(Failure::File),
        None => file.skip(length).map(|()| None),
    }
}
