//! The flat program: an artifact's bytes, checked once and then read in place.
//!
//! `SPEC.md` has the format. [`Program::load`] checks everything that a run relies on; after that no accessor fails.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result, Section};
use crate::base::op::Kernel;
pub use crate::base::op::NONE;
use crate::base::shape::TensorType;
use bytemuck::{Pod, Zeroable};
use crc::{CRC_32_ISCSI, Crc, NoTable};

/// The first bytes of an artifact.
pub const MAGIC: [u8; 4] = *b"GRDL";
/// The format version that this crate writes, as (major, minor). It reads every minor version up to this one.
pub const VERSION: (u16, u16) = (1, 0);
/// The alignment of artifacts, arenas, and of every tensor in them.
pub const ALIGN: usize = 16;
/// The most signatures an artifact has: their sets are bits of a word.
pub const MAX_SIGNATURES: usize = 32;
/// How deep branches and loops can stand in one another.
pub const MAX_DEPTH: usize = 16;
/// The checksum covers the bytes from here to the artifact's length.
pub(crate) const CHECKSUM_FROM: usize = 16;

/// Where a table lies: a byte offset and a number of records (of bytes, for names, metadata and data).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Range {
    /// Bytes from the start of the artifact, a multiple of 16.
    pub offset: u32,
    /// How many records.
    pub count: u32,
}

/// The first 112 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// The major version: another one is refused.
    pub major: u16,
    /// The minor version: an older one is read.
    pub minor: u16,
    /// The bytes of the whole artifact.
    pub length: u32,
    /// CRC-32C of everything after this field.
    pub checksum: u32,
    /// The tables, in the order of [`Section`] from `Signatures` on.
    pub sections: [Range; 12],
}

/// A named entry point.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct SignatureRecord {
    /// The number of its name.
    pub name: u32,
    /// Its block.
    pub block: u32,
    /// The number of its first input's name; the others follow.
    pub input_names: u32,
    /// The number of its first output's name; the others follow.
    pub output_names: u32,
}

/// A run of instructions with inputs and outputs: the body of a signature, or what a branch or a loop runs.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockRecord {
    /// Its first instruction.
    pub first: u32,
    /// How many instructions.
    pub instructions: u32,
    /// The index of its first input in the operands.
    pub inputs: u32,
    /// How many inputs.
    pub input_count: u32,
    /// The index of its first output in the operands.
    pub outputs: u32,
    /// How many outputs.
    pub output_count: u32,
    /// The bytes of scratch memory it needs.
    pub scratch: u32,
}

/// A variable, shared by all signatures.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct VariableRecord {
    /// The number of its name.
    pub name: u32,
    /// Its tensor record.
    pub tensor: u32,
    /// The offset of its initial value in the data; [`NONE`] for zeros, and then only signatures that assign it use it.
    pub initial: u32,
    /// A bit for each signature that assigns it. While none of those is loaded, it stays in flash.
    pub assigned_by: u32,
    /// 1 if an optimizer trains it.
    pub trainable: u32,
}

/// A tensor's type and place.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TensorRecord {
    /// Its type.
    pub tensor_type: u16,
    /// A [`Space`] number.
    pub space: u8,
    /// 0.
    pub reserved: u8,
    /// In flash: the offset in the data. In scratch: the offset there. Of a variable: its index.
    pub location: u32,
    /// Its bytes.
    pub bytes: u32,
    /// Its quantisation; [`NONE`] where there is none.
    pub quantization: u32,
}

/// Where a tensor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Space {
    /// In the artifact's data: never written.
    Flash = 0,
    /// In scratch memory.
    Scratch = 1,
    /// A variable: in RAM if a loaded signature assigns it, else in flash.
    Variable = 2,
}

impl Space {
    pub(crate) const FLASH: u8 = Space::Flash as u8;
    pub(crate) const SCRATCH: u8 = Space::Scratch as u8;
}

/// One op on tensors. Inputs come first among its operands, then outputs.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct InstructionRecord {
    /// Its kernel in the artifact's table.
    pub kernel: u16,
    /// How many inputs.
    pub inputs: u8,
    /// How many outputs.
    pub outputs: u8,
    /// The index of its first operand.
    pub operands: u32,
    /// The index of its first attribute word.
    pub attributes: u32,
    /// How many attribute words.
    pub attribute_words: u32,
}

/// A kernel that instructions name.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct KernelRecord {
    /// The op's number.
    pub op: u16,
    /// The element type's number.
    pub dtype: u8,
    /// 0.
    pub reserved: u8,
    /// The number of the op's name.
    pub name: u32,
}

impl KernelRecord {
    fn is(&self, kernel: &Kernel) -> bool {
        kernel.def.code.0 == self.op && kernel.dtype as u8 == self.dtype
    }
}

/// A checked artifact, read in place. It borrows the bytes and the kernels, and allocates nothing.
///
/// ```no_run
/// # static MODEL: gradlet_core::Aligned<[u8; 0]> = gradlet_core::Aligned([]);
/// use gradlet_core::{Kernel, Program, Session, ops};
/// static KERNELS: &[&Kernel] = &[&ops::dense::F32, &ops::relu::F32];
/// let mut arena = gradlet_core::Aligned([0u8; 4096]);
///
/// let program = Program::load(&MODEL.0, KERNELS, &["infer"])?;
/// let infer = program.signature("infer")?;
/// let mut session = Session::new(&program, &mut arena.0)?;
/// session.input_mut::<f32>(infer, 0)?.fill(0.5);
/// session.run(infer)?;
/// let probabilities: &[f32] = session.output(infer, 0)?;
/// # Ok::<(), gradlet_core::Error>(())
/// ```
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
    /// The kernels that stand where the artifact's own table has them.
    pub(crate) in_order: &'a [&'a Kernel],
    pub(crate) loaded: u32,
}

/// A loaded signature of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureId(pub(crate) u32);

/// The bytes of a record of each section.
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

/// The bytes of each table. One loop for all of them, to keep firmware small.
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

/// The records of a table that [`tables`] found, whole and aligned.
#[inline]
fn records<T: Pod>(table: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(table).unwrap_or(&[])
}

/// The types of a table that [`tables`] found. An error names the first whose element type has no such number.
fn types_of(table: &[u8]) -> Result<&[TensorType]> {
    let unknown = |record: &[u8]| bytemuck::checked::try_from_bytes::<TensorType>(record).is_err();
    bytemuck::checked::try_cast_slice(table).map_err(|_| {
        let index = table.chunks_exact(size_of::<TensorType>()).position(unknown).unwrap_or(0);
        Error::Record { section: Section::Types, index: index as u32 }
    })
}

/// CRC-32C (Castagnoli) of `bytes`, as the header holds it.
pub fn checksum(bytes: &[u8]) -> u32 {
    Checksum::NEW.add(bytes).get()
}

/// A CRC-32C in the making.
#[derive(Clone, Copy)]
pub(crate) struct Checksum(u32);

impl Checksum {
    /// That of no bytes.
    pub(crate) const NEW: Checksum = Checksum(!0);

    /// With more bytes. One function for all, to keep firmware small.
    #[inline(never)]
    pub(crate) fn add(self, bytes: &[u8]) -> Checksum {
        const CRC: &Crc<u32, NoTable> = &Crc::<u32, NoTable>::new(&CRC_32_ISCSI);
        let mut digest = CRC.digest_with_initial(self.0.reverse_bits());
        digest.update(bytes);
        Checksum(!digest.finalize())
    }

    pub(crate) fn get(self) -> u32 {
        !self.0
    }
}

impl<'a> Program<'a> {
    /// Reads the header and finds the tables, without checking checksum or records: for bytes that were loaded before.
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
        let bytes = bytes.get(..header.length as usize).ok_or(Error::Truncated { needed: header.length, got })?;
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

    /// The loaded signature called `name`. Fails with [`Error::UnknownSignature`].
    pub fn signature(&self, name: &str) -> Result<SignatureId> {
        let id = self.find(name)?;
        if self.loaded & (1 << id.0) == 0 { Err(Error::UnknownSignature) } else { Ok(id) }
    }

    pub(crate) fn find(&self, name: &str) -> Result<SignatureId> {
        let named = |record: &SignatureRecord| self.name_bytes(record.name) == Some(name.as_bytes());
        self.signatures.iter().position(named).map(|index| SignatureId(index as u32)).ok_or(Error::UnknownSignature)
    }

    /// Name `index`: names are postcard strings, one after the other.
    pub(crate) fn name_bytes(&self, index: u32) -> Option<&'a [u8]> {
        let mut rest = self.names;
        for _ in 0..index {
            rest = take_name(rest)?.1;
        }
        Some(take_name(rest)?.0)
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

    /// The attribute words of an instruction.
    #[inline]
    pub(crate) fn attributes(&self, instruction: &InstructionRecord) -> &'a [u32] {
        match instruction.attribute_words {
            0 => &[],
            words => part(self.attributes, instruction.attributes, words),
        }
    }

    /// The type of a tensor.
    #[inline]
    pub(crate) fn tensor_type(&self, record: &TensorRecord) -> &'a TensorType {
        self.types.get(usize::from(record.tensor_type)).unwrap_or(&TensorType::EMPTY)
    }

    /// The linked kernel for entry `index` of the artifact's kernel table. A table in the artifact's own order is found
    /// at once; any other order works too.
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

    /// True if variable `record` is in RAM: a loaded signature assigns it.
    pub(crate) fn in_ram(&self, record: &VariableRecord) -> bool {
        record.assigned_by & self.loaded != 0
    }

    /// The bytes of `record`, which is in flash.
    pub(crate) fn flash(&self, offset: u32, bytes: u32) -> &'a [u8] {
        part(self.data, offset, bytes)
    }

    /// The bytes of arena that the loaded signatures need: the largest scratch, the variables in RAM, and a table of all
    /// variables.
    pub fn arena_bytes(&self) -> usize {
        self.memory_bytes() + size_of::<u32>() * self.variables.len()
    }

    /// The bytes of the largest scratch and of the variables in RAM.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.scratch_bytes() + self.variable_bytes()
    }

    /// The bytes of the variables in RAM.
    pub(crate) fn variable_bytes(&self) -> usize {
        let in_ram = self.variables.iter().filter(|record| self.in_ram(record));
        in_ram.map(|record| align(self.bytes_of(record) as usize)).sum()
    }

    /// The bytes of a variable.
    pub(crate) fn bytes_of(&self, record: &VariableRecord) -> u32 {
        self.tensors.get(record.tensor as usize).map_or(0, |tensor| tensor.bytes)
    }

    /// The bytes of the largest scratch.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let loaded = (0..self.signatures.len() as u32).filter_map(|index| self.block(SignatureId(index)).ok());
        align(loaded.map(|block| block.scratch as usize).max().unwrap_or(0))
    }
}

/// The name of the op, and of the element type, that a failed load with [`Error::MissingKernel`] asked for: the line to
/// add to the firmware's kernel table is `&gradlet_core::ops::{op}::{DTYPE}`.
pub fn missing_kernel(bytes: &[u8], kernel: u32) -> Option<(&str, DType)> {
    let program = Program::open(bytes, &[]).ok()?;
    let record = program.kernel_records.get(kernel as usize)?;
    let name = core::str::from_utf8(program.name_bytes(record.name)?).ok()?;
    Some((name, DType::from_code(record.dtype)?))
}

/// `bytes` rounded up to [`ALIGN`].
pub(crate) const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// `count` records from `first`; none where that passes the end.
#[inline]
pub(crate) fn part<T>(table: &[T], first: u32, count: u32) -> &[T] {
    table.get(first as usize..).and_then(|rest| rest.get(..count as usize)).unwrap_or(&[])
}

/// A postcard string: its length as a varint, then its bytes. Gives the bytes and what follows.
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
