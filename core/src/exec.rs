//! The interpreter: runs a checked program in memory that the caller gives.

use crate::arena::Split;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::op::{Call, MAX_INPUTS, MAX_OUTPUTS};
use crate::program::{ALIGN, InstructionRecord, NONE, Program, SignatureId, Space, TensorRecord, align, part};
use crate::shape::TensorType;
use crate::view::{TensorView, TensorViewMut};
use heapless::Vec;

/// A program with its memory: variables keep their values from run to run.
///
/// The arena holds `[offsets of the variables | variables | scratch]`, with nothing pointer-sized in it, so its size is
/// the same on every target. An input's bytes may be reused during a run: set inputs before each one. An output's
/// bytes stay until the next run of any signature.
pub struct Session<'p, 'm> {
    program: &'p Program<'p>,
    arena: &'m mut [u8],
    scratch: usize,
}

/// Where the bytes of a tensor are.
enum Bytes<'a> {
    Flash(&'a [u8]),
    Arena(usize, usize),
}

impl<'p, 'm> Session<'p, 'm> {
    /// Takes `arena`, and gives every variable its initial value.
    ///
    /// Fails with [`Error::Misaligned`] if `arena` does not begin at a multiple of 16, and with
    /// [`Error::ArenaTooSmall`], which names the bytes needed.
    pub fn new(program: &'p Program<'p>, arena: &'m mut [u8]) -> Result<Session<'p, 'm>> {
        let mut session = Session::resume(program, arena)?;
        session.reset();
        Ok(session)
    }

    /// Takes an `arena` that a session over the same program and signatures had before, with the values in it.
    pub fn resume(program: &'p Program<'p>, arena: &'m mut [u8]) -> Result<Session<'p, 'm>> {
        let needed = program.arena_bytes();
        if arena.as_ptr() as usize % ALIGN != 0 {
            return Err(Error::Misaligned);
        }
        let got = arena.len() as u32;
        let arena = arena.get_mut(..needed).ok_or(Error::ArenaTooSmall { needed: needed as u32, got })?;
        Ok(Session { program, arena, scratch: program.scratch_start() })
    }

    /// Gives every variable its initial value again.
    pub fn reset(&mut self) {
        let mut offset = self.program.variable_table_bytes();
        for (index, record) in self.program.variables.iter().enumerate() {
            let in_ram = self.program.in_ram(record);
            let entry = if in_ram { offset as u32 } else { NONE };
            if let Some(slot) = self.arena.get_mut(4 * index..4 * index + 4) {
                slot.copy_from_slice(&entry.to_le_bytes());
            }
            let bytes = self.program.tensors.get(record.tensor as usize).map_or(0, |tensor| tensor.bytes);
            if !in_ram {
                continue;
            }
            if let Some(value) = self.arena.get_mut(offset..offset + bytes as usize) {
                match record.initial {
                    NONE => value.fill(0),
                    initial => value.copy_from_slice(self.program.flash(initial, bytes)),
                }
            }
            offset += align(bytes as usize);
        }
    }

    /// Runs `signature` on the inputs that were set.
    ///
    /// Fails with [`Error::IndexOutOfRange`] or [`Error::DivisionByZero`], which name the instruction, where the data
    /// does not fit; variables that were assigned before that instruction keep their new values.
    pub fn run(&mut self, signature: SignatureId) -> Result<()> {
        let block = self.program.block(signature)?;
        for (index, instruction) in self.program.block_instructions(block).iter().enumerate() {
            self.step(instruction).map_err(|error| error.at(block.first + index as u32))?;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, instruction: &InstructionRecord) -> Result<()> {
        let program = self.program;
        let kernel = program.kernel(instruction.kernel.into()).ok_or(Error::MissingKernel { kernel: instruction.kernel.into() })?;
        let inputs = part(program.operands, instruction.operands, instruction.inputs.into());
        let outputs = part(program.operands, instruction.operands + u32::from(instruction.inputs), instruction.outputs.into());

        let mut written: Vec<(usize, usize), MAX_OUTPUTS> = Vec::new();
        for &operand in outputs {
            if let Some(Bytes::Arena(start, bytes)) = self.locate(operand) {
                let _ = written.push((start, bytes));
            }
        }
        let mut views: Vec<TensorView<'_>, MAX_INPUTS> = Vec::new();
        let mut places: [Bytes<'_>; MAX_INPUTS] = [const { Bytes::Arena(0, 0) }; MAX_INPUTS];
        for (place, &operand) in places.iter_mut().zip(inputs) {
            *place = self.locate(operand).ok_or(Error::NoSuchTensor { index: operand.into() })?;
        }
        let split = Split::new(self.arena, &written).ok_or(Error::Misaligned)?;
        for (place, &operand) in places.iter().zip(inputs) {
            let data = match *place {
                Bytes::Flash(data) => Some(data),
                Bytes::Arena(start, bytes) => split.read(start, bytes),
            };
            let Some(record) = program.tensors.get(usize::from(operand)) else { continue };
            let (dtype, dims) = dtype_dims(program, record);
            let _ = views.push(TensorView { dtype, dims, in_place: data.is_none(), data: data.unwrap_or(&[]) });
        }
        let mut view_muts: Vec<TensorViewMut<'_>, MAX_OUTPUTS> = Vec::new();
        for (data, &operand) in split.outputs().into_iter().zip(outputs) {
            let Some(record) = program.tensors.get(usize::from(operand)) else { continue };
            let (dtype, dims) = dtype_dims(program, record);
            let _ = view_muts.push(TensorViewMut { dtype, dims, data });
        }
        let attributes = part(program.attributes, instruction.attributes, instruction.attribute_words);
        (kernel.run)(&mut Call { attributes, inputs: &views, outputs: &mut view_muts })
    }

    #[inline]
    fn locate(&self, operand: u16) -> Option<Bytes<'p>> {
        let record = self.program.tensors.get(usize::from(operand))?;
        let bytes = record.bytes as usize;
        if record.space == Space::Scratch as u8 {
            return Some(Bytes::Arena(self.scratch + record.location as usize, bytes));
        }
        if record.space == Space::Flash as u8 {
            return Some(Bytes::Flash(self.program.flash(record.location, record.bytes)));
        }
        self.variable_bytes(record.location)
    }

    fn variable_bytes(&self, index: u32) -> Option<Bytes<'p>> {
        let variable = self.program.variables.get(index as usize)?;
        let bytes = self.program.tensors.get(variable.tensor as usize)?.bytes;
        let entry = self.arena.get(4 * index as usize..)?.first_chunk().copied().map(u32::from_le_bytes)?;
        Some(match entry {
            NONE => Bytes::Flash(self.program.flash(variable.initial, bytes)),
            offset => Bytes::Arena(offset as usize, bytes as usize),
        })
    }

    /// Input `index` of `signature`, to be set. Fails where there is none, or it has other elements than `T`.
    pub fn input_mut<T: Element>(&mut self, signature: SignatureId, index: usize) -> Result<&mut [T]> {
        let wrong = Error::TensorType { index: index as u32 };
        let operand = nth(self.program.inputs(self.program.block(signature)?), index)?;
        if !self.is::<T>(operand) {
            return Err(wrong);
        }
        bytemuck::try_cast_slice_mut(self.bytes_mut(self.locate(operand))).map_err(|_| wrong)
    }

    /// Output `index` of `signature`, as the last run left it. Fails where there is none, or it has other elements than `T`.
    pub fn output<T: Element>(&self, signature: SignatureId, index: usize) -> Result<&[T]> {
        let wrong = Error::TensorType { index: index as u32 };
        let operand = nth(self.program.outputs(self.program.block(signature)?), index)?;
        if !self.is::<T>(operand) {
            return Err(wrong);
        }
        bytemuck::try_cast_slice(self.bytes(self.locate(operand))).map_err(|_| wrong)
    }

    fn is<T: Element>(&self, operand: u16) -> bool {
        self.program.tensors.get(usize::from(operand)).is_some_and(|record| record.dtype == T::DTYPE as u8)
    }

    /// The bytes of input `index` of `signature`, to be set.
    pub fn input_bytes_mut(&mut self, signature: SignatureId, index: usize) -> Result<&mut [u8]> {
        let operand = nth(self.program.inputs(self.program.block(signature)?), index)?;
        Ok(self.bytes_mut(self.locate(operand)))
    }

    /// The bytes of output `index` of `signature`, as the last run left it.
    pub fn output_bytes(&self, signature: SignatureId, index: usize) -> Result<&[u8]> {
        let operand = nth(self.program.outputs(self.program.block(signature)?), index)?;
        Ok(self.bytes(self.locate(operand)))
    }

    /// The type of input `index` of `signature`.
    pub fn input_type(&self, signature: SignatureId, index: usize) -> Result<TensorType> {
        let operand = nth(self.program.inputs(self.program.block(signature)?), index)?;
        Ok(self.tensor_type(operand))
    }

    /// The type of output `index` of `signature`.
    pub fn output_type(&self, signature: SignatureId, index: usize) -> Result<TensorType> {
        let operand = nth(self.program.outputs(self.program.block(signature)?), index)?;
        Ok(self.tensor_type(operand))
    }

    /// The bytes of variable `index`, in the artifact's order.
    pub fn variable(&self, index: usize) -> Result<&[u8]> {
        match self.variable_bytes(index as u32) {
            None => Err(Error::NoSuchTensor { index: index as u32 }),
            place => Ok(self.bytes(place)),
        }
    }

    /// The bytes of variable `index`, to be set. Fails where there is none or it is in flash.
    pub fn variable_mut(&mut self, index: usize) -> Result<&mut [u8]> {
        match self.variable_bytes(index as u32) {
            Some(place @ Bytes::Arena(..)) => Ok(self.bytes_mut(Some(place))),
            _ => Err(Error::NoSuchTensor { index: index as u32 }),
        }
    }

    /// The number of variables.
    pub fn variable_count(&self) -> usize {
        self.program.variables.len()
    }

    fn bytes<'s>(&'s self, place: Option<Bytes<'s>>) -> &'s [u8] {
        match place {
            Some(Bytes::Flash(data)) => data,
            Some(Bytes::Arena(start, bytes)) => self.arena.get(start..start + bytes).unwrap_or(&[]),
            None => &[],
        }
    }

    fn bytes_mut(&mut self, place: Option<Bytes<'_>>) -> &mut [u8] {
        match place {
            Some(Bytes::Arena(start, bytes)) => self.arena.get_mut(start..start + bytes).unwrap_or(&mut []),
            _ => &mut [],
        }
    }

    fn tensor_type(&self, operand: u16) -> TensorType {
        self.program.tensors.get(usize::from(operand)).map_or(TensorType::EMPTY, |record| self.program.tensor_type(record))
    }
}

fn nth(numbers: &[u16], index: usize) -> Result<u16> {
    numbers.get(index).copied().ok_or(Error::NoSuchTensor { index: index as u32 })
}

#[inline]
fn dtype_dims<'a>(program: &Program<'a>, record: &TensorRecord) -> (DType, &'a [u32]) {
    (DType::from_code(record.dtype).unwrap_or(DType::U8), part(program.dims, record.dims, record.rank.into()))
}
