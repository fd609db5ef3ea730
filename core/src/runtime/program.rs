//! The flat program: the bytes of an artifact, verified once and then read in place.
//!
//! `SPEC.md` specifies the format. [`Program::load`] checks everything that a run relies on; afterwards no accessor fails.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result, Section};
use crate::base::op::Kernel;
pub use crate::base::op::NONE;
use crate::base::shape::TensorType;
use bytemuck::{Pod, Zeroable};

/// The first four bytes of an artifact.
pub const MAGIC: [u8; 4] = *b"GRDL";
/// The newest format version, as (major, minor). This crate reads every minor version up to this one. It writes 1.0 unless the artifact
/// needs more.
pub const VERSION: (u16, u16) = (1, 2);
/// Bit of [`VariableRecord::flags`]: an optimizer trains the variable.
#[cfg(feature = "alloc")]
pub(crate) const TRAINABLE: u32 = 1;
/// Bit of [`VariableRecord::flags`], from version 1.1 on: a session keeps a second copy of the variable.
pub(crate) const KEPT: u32 = 2;
/// Alignment of artifacts, of arenas, and of every tensor in them, in bytes.
pub const ALIGN: usize = 16;
/// Size of the smallest record of scales and zero points, in bytes: the axis, the number of scales, a scale and a zero point.
pub(crate) const LEAST_QUANTIZATION: u32 = 16;
/// Size that an arena for all variables and the largest scratch memory stays below, in bytes.
pub(crate) const MAX_MEMORY: u32 = i32::MAX as u32;
/// Maximum number of signatures in an artifact: a set of signatures is stored as the bits of a u32.
pub const MAX_SIGNATURES: usize = 32;
/// Maximum nesting depth of branches and loops.
pub const MAX_DEPTH: usize = 16;
/// Offset of the first byte that the checksum covers. The last one is the last byte of the artifact.
pub(crate) const CHECKSUM_FROM: usize = 16;

/// The location of a table: a byte offset and a number of records. A record of the names, metadata and data sections is one byte.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Range {
    /// Offset from the start of the artifact, in bytes; a multiple of 16.
    pub offset: u32,
    /// Number of records.
    pub count: u32,
}

/// The header: the first 112 bytes of an artifact.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Header {
    /// The first four bytes: [`MAGIC`].
    pub magic: [u8; 4],
    /// The major version. A reader rejects every major version other than that of [`VERSION`].
    pub major: u16,
    /// The minor version. A reader accepts older minor versions and rejects newer ones.
    pub minor: u16,
    /// Length of the whole artifact, in bytes.
    pub length: u32,
    /// CRC-32C of everything after this field.
    pub checksum: u32,
    /// The tables, in the order of [`Section`], beginning with `Signatures`.
    pub sections: [Range; 12],
}

/// A signature: a named entry point of the artifact.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct SignatureRecord {
    /// Index of the signature's name in the names section.
    pub name: u32,
    /// Index of the signature's block.
    pub block: u32,
    /// Index of the name of its first input. The names of the other inputs follow.
    pub input_names: u32,
    /// Index of the name of its first output. The names of the other outputs follow.
    pub output_names: u32,
}

/// A sequence of instructions with inputs and outputs: the body of a signature, of a branch or of a loop.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockRecord {
    /// Index of the block's first instruction.
    pub first: u32,
    /// Number of instructions in the block.
    pub instructions: u32,
    /// Index of the block's first input in the operands.
    pub inputs: u32,
    /// Number of the block's inputs.
    pub input_count: u32,
    /// Index of the block's first output in the operands.
    pub outputs: u32,
    /// Number of the block's outputs.
    pub output_count: u32,
    /// Size of the scratch memory that the block needs, in bytes.
    pub scratch: u32,
}

/// A variable. All signatures share it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct VariableRecord {
    /// Index of the variable's name in the names section.
    pub name: u32,
    /// Index of the variable's tensor record.
    pub tensor: u32,
    /// Offset of the variable's initial value in the data section. [`NONE`] means zeros; such a variable can be used only if a loaded
    /// signature assigns it.
    pub initial: u32,
    /// A bit for each signature that assigns the variable. The variable stays in flash unless one of these signatures is loaded.
    pub assigned_by: u32,
    /// Bit 0: an optimizer trains the variable. Bit 1, from version 1.1 on: a session keeps a second copy.
    pub flags: u32,
}

/// A tensor: its type and its location.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TensorRecord {
    /// Index of the tensor's type in the types section.
    pub tensor_type: u16,
    /// The kind of memory that holds the tensor: a [`Space`] as a number.
    pub space: u8,
    /// Reserved; 0.
    pub reserved: u8,
    /// In flash: the offset in the data section. In scratch memory: the offset there. For a variable: its index.
    pub location: u32,
    /// Size of the tensor, in bytes.
    pub bytes: u32,
    /// Offset of its scales and zero points in the data section. [`NONE`] if it has none, and before version 1.2.
    pub quantization: u32,
}

/// The kind of memory that holds a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Space {
    /// The artifact's data section, which is never written.
    Flash = 0,
    /// Scratch memory.
    Scratch = 1,
    /// A variable: in RAM if a loaded signature assigns it, otherwise in flash.
    Variable = 2,
}

impl Space {
    pub(crate) const FLASH: u8 = Space::Flash as u8;
    pub(crate) const SCRATCH: u8 = Space::Scratch as u8;
}

/// One op on tensors. In the list of operands, the inputs come first, then the outputs.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct InstructionRecord {
    /// Index of the instruction's kernel in the artifact's kernel table.
    pub kernel: u16,
    /// Number of the instruction's inputs.
    pub inputs: u8,
    /// Number of the instruction's outputs.
    pub outputs: u8,
    /// Index of the instruction's first operand.
    pub operands: u32,
    /// Index of the instruction's first attribute word.
    pub attributes: u32,
    /// Number of attribute words.
    pub attribute_words: u32,
}

/// A kernel that instructions refer to.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct KernelRecord {
    /// Number of the op.
    pub op: u16,
    /// Number of the element type.
    pub dtype: u8,
    /// Reserved; 0.
    pub reserved: u8,
    /// Index of the op's name in the names section.
    pub name: u32,
}

impl KernelRecord {
    pub(crate) fn is(&self, kernel: &Kernel) -> bool {
        kernel.def.code.0 == self.op && kernel.dtype as u8 == self.dtype
    }
}

/// A verified artifact, read in place. It borrows the bytes and the kernels and allocates nothing.
///
/// ```no_run
/// # static MODEL: gradlet_core::runtime::Aligned<[u8; 0]> = gradlet_core::runtime::Aligned([]);
/// use gradlet_core::{Kernel, Program, Session, ops};
/// static KERNELS: &[&Kernel] = &[&ops::dense::F32, &ops::relu::F32];
/// let mut arena = gradlet_core::runtime::Aligned([0u8; 4096]);
///
/// let program = Program::load(&MODEL.0, KERNELS, &["infer"])?;
/// let infer = program.signature("infer")?;
/// let mut session = Session::new(&program, &mut arena.0)?;
/// session.input_mut::<f32>(infer, 0)?.fill(0.5);
/// session.run(infer)?;
/// let probabilities: &[f32] = session.output(infer, 0)?;
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[doc(alias = "FlatBufferModel")]
pub struct Program<'a> {
    pub(crate) header: &'a Header,
    pub(crate) signatures: &'a [SignatureRecord],
    pub(crate) blocks: &'a [BlockRecord],
    pub(crate) variables: &'a [VariableRecord],
    pub(crate) tensors: &'a [TensorRecord],
    pub(crate) instructions: &'a [InstructionRecord],
    pub(crate) kernel_records: &'a [KernelRecord],
    pub(crate) types: &'a [TensorType],
    pub(crate) attributes: &'a [u32],
    pub(crate) operands: &'a [u16],
    pub(crate) names: &'a [u8],
    #[cfg(feature = "alloc")]
    pub(crate) metadata: &'a [u8],
    pub(crate) data: &'a [u8],
    pub(crate) kernels: &'a [&'a Kernel],
    /// The linked kernels up to the first whose position differs from that in the artifact's kernel table, for access by index.
    pub(crate) in_order: &'a [&'a Kernel],
    pub(crate) loaded: u32,
}

/// Identifier of a loaded signature of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureId(pub(crate) u32);

impl SignatureId {
    /// Returns the index of the signature in the artifact.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// Size of one record of each section, in bytes.
const RECORD_BYTES: [u8; 12] = [
    size_of::<SignatureRecord>() as u8,
    size_of::<BlockRecord>() as u8,
    size_of::<VariableRecord>() as u8,
    size_of::<TensorRecord>() as u8,
    size_of::<InstructionRecord>() as u8,
    size_of::<KernelRecord>() as u8,
    size_of::<TensorType>() as u8,
    4,
    2,
    1,
    1,
    1,
];

/// Returns the bytes of each table. One loop serves all of them, to keep firmware small.
fn tables<'a>(bytes: &'a [u8], header: &Header) -> Result<[&'a [u8]; 12]> {
    let mut tables: [&[u8]; 12] = [&[]; 12];
    let sections = header.sections.iter().zip(RECORD_BYTES);
    for (index, (table, (range, size))) in tables.iter_mut().zip(sections).enumerate() {
        let start = range.offset as usize;
        let end = range.count.checked_mul(size.into()).and_then(|length| start.checked_add(length as usize));
        let found = end.filter(|_| start.is_multiple_of(ALIGN)).and_then(|end| bytes.get(start..end));
        *table = found.ok_or(Error::Record { section: Section::Header, index: index as u32 + 1 })?;
    }
    Ok(tables)
}

/// Returns the records of a table that [`tables`] found to be complete and aligned.
#[inline]
fn records<T: Pod>(table: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(table).unwrap_or(&[])
}

/// Returns the types of a table that [`tables`] found. The error names the first record whose element type number is unknown.
fn types_of(table: &[u8]) -> Result<&[TensorType]> {
    let unknown = |record: &[u8]| bytemuck::checked::try_from_bytes::<TensorType>(record).is_err();
    bytemuck::checked::try_cast_slice(table).map_err(|_| {
        let index = table.chunks_exact(size_of::<TensorType>()).position(unknown).unwrap_or(0);
        Error::Record { section: Section::Types, index: index as u32 }
    })
}

/// Returns the CRC-32C (Castagnoli) of `bytes`, as the header stores it.
pub fn checksum(bytes: &[u8]) -> u32 {
    Checksum::NEW.add(bytes).get()
}

/// Polynomial of CRC-32C, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// A CRC-32C that is computed incrementally.
#[derive(Clone, Copy)]
pub(crate) struct Checksum(u32);

/// Remainder of each nibble, for [`Checksum::add`]. With these 64 bytes, a checksum takes 7.5 instructions for each byte on a Cortex-M4.
static NIBBLES: [u32; 16] = {
    let (mut table, mut nibble) = ([0; 16], 0);
    while nibble < 16 {
        let (mut remainder, mut bit) = (nibble as u32, 0);
        while bit < 4 {
            remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[nibble] = remainder;
        nibble += 1;
    }
    table
};

impl Checksum {
    /// The state before the first byte.
    pub(crate) const NEW: Checksum = Checksum(!0);

    /// Returns the state after more bytes. Every checksum uses this one function, to keep firmware small.
    #[inline(never)]
    pub(crate) fn add(self, bytes: &[u8]) -> Checksum {
        let nibble = |state: u32| (state >> 4) ^ NIBBLES.get((state & 15) as usize).copied().unwrap_or_default();
        let (mut state, mut rest) = (self.0, bytes);
        loop {
            match rest {
                [a, b, c, d, others @ ..] => {
                    state ^= u32::from_le_bytes([*a, *b, *c, *d]);
                    state = nibble(nibble(nibble(nibble(nibble(nibble(nibble(nibble(state))))))));
                    rest = others;
                }
                [byte, others @ ..] => {
                    state = nibble(nibble(state ^ u32::from(*byte)));
                    rest = others;
                }
                [] => return Checksum(state),
            }
        }
    }

    /// Returns the state of `other` after more bytes, given the state of `self` before and after the same bytes. They are `count` bytes.
    ///
    /// The remainder is linear: over `count` bytes, the difference of two states is multiplied by x^(8 · count), whatever the bytes are.
    pub(crate) fn follow(self, after: Checksum, other: Checksum, count: usize) -> Checksum {
        let (mut difference, mut factor, mut count) = (self.0 ^ other.0, 1 << 23, count);
        while count > 0 {
            if count % 2 == 1 {
                difference = product(difference, factor);
            }
            factor = product(factor, factor);
            count /= 2;
        }
        Checksum(after.0 ^ difference)
    }

    pub(crate) fn get(self) -> u32 {
        !self.0
    }
}

/// Product of two remainders. The highest bit is the coefficient of x^0.
#[inline(never)]
fn product(a: u32, b: u32) -> u32 {
    let (mut sum, mut a, mut b) = (0, a, b);
    while a != 0 {
        if a >> 31 == 1 {
            sum ^= b;
        }
        a <<= 1;
        b = (b >> 1) ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    sum
}

impl<'a> Program<'a> {
    /// Reads the header and finds the tables, but checks neither the checksum nor the records. Only for bytes that were loaded before, or
    /// that the caller checks afterwards.
    pub(crate) fn open(bytes: &'a [u8], kernels: &'a [&'a Kernel]) -> Result<Program<'a>> {
        let got = bytes.len() as u32;
        if !(bytes.as_ptr() as usize).is_multiple_of(ALIGN) {
            return Err(Error::Misaligned);
        }
        if bytes.get(..4).is_some_and(|magic| magic != MAGIC) {
            return Err(Error::NotAnArtifact);
        }
        let header: &Header = bytes
            .get(..size_of::<Header>())
            .and_then(|part| bytemuck::try_from_bytes(part).ok())
            .ok_or(Error::Truncated { needed: size_of::<Header>() as u32, got })?;
        if header.major != VERSION.0 || header.minor > VERSION.1 {
            return Err(Error::Version { major: header.major, minor: header.minor });
        }
        let needed = header.length.max(size_of::<Header>() as u32);
        let bytes = bytes.get(..header.length as usize).filter(|_| header.length == needed).ok_or(Error::Truncated { needed, got })?;
        let [signatures, blocks, variables, tensors, instructions, kernel_records, types, attributes, operands, names, _metadata, data] =
            tables(bytes, header)?;
        let mut program = Program {
            header,
            signatures: records(signatures),
            blocks: records(blocks),
            variables: records(variables),
            tensors: records(tensors),
            instructions: records(instructions),
            kernel_records: records(kernel_records),
            types: types_of(types)?,
            attributes: records(attributes),
            operands: records(operands),
            names,
            #[cfg(feature = "alloc")]
            metadata: _metadata,
            data,
            kernels,
            in_order: &[],
            loaded: 0,
        };
        let fits = |(record, kernel): &(&KernelRecord, &&Kernel)| record.is(kernel);
        let in_order = program.kernel_records.iter().zip(kernels).take_while(fits).count();
        program.in_order = kernels.get(..in_order).unwrap_or(&[]);
        Ok(program)
    }

    /// Returns the loaded signature with the name `name`. Fails with [`Error::UnknownSignature`] if there is none.
    pub fn signature(&self, name: &str) -> Result<SignatureId> {
        let id = self.find(name)?;
        if self.loaded & (1 << id.0) == 0 { Err(Error::UnknownSignature) } else { Ok(id) }
    }

    /// Returns the loaded signature with this index in the artifact. Fails with [`Error::UnknownSignature`] if there is none.
    pub fn signature_at(&self, index: u32) -> Result<SignatureId> {
        let id = SignatureId(index);
        self.block(id).map(|_| id)
    }

    pub(crate) fn find(&self, name: &str) -> Result<SignatureId> {
        let named = |record: &SignatureRecord| self.name_bytes(record.name) == Some(name.as_bytes());
        self.signatures.iter().position(named).map(|index| SignatureId(index as u32)).ok_or(Error::UnknownSignature)
    }

    /// Returns the bytes of name `index`, or `None` if there is no such name. Names are consecutive postcard strings.
    pub(crate) fn name_bytes(&self, index: u32) -> Option<&'a [u8]> {
        let (mut rest, mut left) = (self.names, index);
        loop {
            let (name, others) = take_name(rest)?;
            match left {
                0 => return Some(name),
                _ => (rest, left) = (others, left - 1),
            }
        }
    }

    pub(crate) fn block(&self, signature: SignatureId) -> Result<&'a BlockRecord> {
        let record = self.signatures.get(signature.0 as usize).filter(|_| self.loaded & (1 << signature.0) != 0);
        record.and_then(|record| self.blocks.get(record.block as usize)).ok_or(Error::UnknownSignature)
    }

    pub(crate) fn inputs(&self, block: &BlockRecord) -> &'a [u16] {
        part(self.operands, block.inputs, block.input_count)
    }

    pub(crate) fn outputs(&self, block: &BlockRecord) -> &'a [u16] {
        part(self.operands, block.outputs, block.output_count)
    }

    pub(crate) fn block_instructions(&self, block: &BlockRecord) -> &'a [InstructionRecord] {
        part(self.instructions, block.first, block.instructions)
    }

    /// Returns the attribute words of an instruction.
    #[inline]
    pub(crate) fn attributes(&self, instruction: &InstructionRecord) -> &'a [u32] {
        match instruction.attribute_words {
            0 => &[],
            words => part(self.attributes, instruction.attributes, words),
        }
    }

    /// Returns the type of a tensor.
    #[inline]
    pub(crate) fn tensor_type(&self, record: &TensorRecord) -> &'a TensorType {
        self.types.get(usize::from(record.tensor_type)).unwrap_or(&TensorType::EMPTY)
    }

    /// Returns the linked kernel for entry `index` of the artifact's kernel table, or `None` if there is none. The lookup is immediate if
    /// the linked kernels have the artifact's order, and a search otherwise.
    #[inline]
    pub(crate) fn kernel(&self, index: u16) -> Option<&'a Kernel> {
        match self.in_order.get(usize::from(index)) {
            Some(kernel) => Some(kernel),
            None => self.find_kernel(index),
        }
    }

    #[inline(never)]
    fn find_kernel(&self, index: u16) -> Option<&'a Kernel> {
        let record = self.kernel_records.get(usize::from(index))?;
        self.kernels.iter().find(|kernel| record.is(kernel)).copied()
    }

    /// True if the variable is in RAM because a loaded signature assigns it.
    pub(crate) fn in_ram(&self, record: &VariableRecord) -> bool {
        record.assigned_by & self.loaded != 0
    }

    /// Returns the `bytes` bytes at `offset` in the data section.
    pub(crate) fn flash(&self, offset: u32, bytes: u32) -> &'a [u8] {
        part(self.data, offset, bytes)
    }

    /// Returns the bytes of a variable's initial value; an empty slice for zeros.
    #[inline]
    pub(crate) fn initial(&self, record: &VariableRecord) -> &'a [u8] {
        if record.initial == NONE { &[] } else { self.flash(record.initial, self.bytes_of(record)) }
    }

    /// Returns the size of the arena that the loaded signatures need, in bytes: the largest scratch memory, the variables in RAM, their
    /// second copy if the artifact asks for one, an address for every variable, and the number of changes and the state of the session.
    pub fn arena_bytes(&self) -> usize {
        self.scratch_bytes() + self.kept_bytes()
    }

    /// Returns the size of the arena without scratch memory, in bytes.
    pub fn kept_bytes(&self) -> usize {
        let [_, variables, copy] = self.sizes();
        variables + copy + size_of::<u32>() * (self.variables.len() + 2)
    }

    /// Returns the sizes of the largest scratch memory, of the variables in RAM, and of their second copy, in bytes.
    #[inline(never)]
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let in_ram = self.variables.iter().filter(|record| self.in_ram(record));
        let variables = in_ram.map(|record| align(self.bytes_of(record) as usize)).sum();
        let kept = self.header.minor > 0 && self.variables.iter().any(|record| record.flags & KEPT != 0);
        [self.scratch_bytes(), variables, if kept { variables } else { 0 }]
    }

    /// Returns the size of a variable, in bytes.
    pub(crate) fn bytes_of(&self, record: &VariableRecord) -> u32 {
        self.tensors.get(record.tensor as usize).map_or(0, |tensor| tensor.bytes)
    }

    /// Returns the size of the largest scratch memory of a loaded signature, in bytes.
    pub fn scratch_bytes(&self) -> usize {
        let loaded = (0..self.signatures.len() as u32).filter_map(|index| self.block(SignatureId(index)).ok());
        align(loaded.map(|block| block.scratch as usize).max().unwrap_or(0))
    }
}

/// Returns the op name and the element type of a kernel that a failed load with [`Error::MissingKernel`] needed. The line to add to the
/// firmware's kernel table is `&gradlet_core::ops::{op}::{DTYPE}`. Returns `None` if `bytes` is not an artifact or has no such kernel.
pub fn missing_kernel(bytes: &[u8], kernel: u32) -> Option<(&str, DType)> {
    let program = Program::open(bytes, &[]).ok()?;
    let record = program.kernel_records.get(kernel as usize)?;
    let name = core::str::from_utf8(program.name_bytes(record.name)?).ok()?;
    Some((name, DType::from_code(record.dtype)?))
}

/// Returns `bytes` rounded up to a multiple of [`ALIGN`].
pub(crate) const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Returns the `count` records from `first` on, or an empty slice if they reach past the end.
#[inline]
pub(crate) fn part<T>(table: &[T], first: u32, count: u32) -> &[T] {
    table.get(first as usize..).and_then(|rest| rest.get(..count as usize)).unwrap_or(&[])
}

/// Reads a postcard string: its length as a varint, then its bytes. Returns the bytes of the string and the bytes after it, or `None` if
/// the string is incomplete.
pub(crate) fn take_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0usize;
    for (index, &byte) in bytes.iter().enumerate().take(3) {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return bytes.get(index + 1..)?.split_at_checked(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Checksum;

    #[test]
    fn a_checksum_follows_another_over_the_same_bytes() {
        let bytes: [u8; 300] = core::array::from_fn(|index| (index * 37) as u8);
        for count in [0, 1, 2, 3, 7, 8, 64, 255, 256, 300] {
            let (one, other) = (Checksum::NEW.add(b"one"), Checksum(7));
            let [after, expected] = [one, other].map(|sum| sum.add(&bytes[..count]).get());
            assert_eq!(one.follow(one.add(&bytes[..count]), other, count).get(), expected, "{count} bytes, {after}");
        }
    }
}
