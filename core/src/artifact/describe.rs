//! Describes the contents of an artifact, for people and tools. The kernels of its ops need not exist.

use crate::artifact::doc_key;
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, Section};
use crate::base::op::{Call, OpCode, Slice};
use crate::base::quantization::Quantization;
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};
use crate::ops;
use crate::runtime::program;
use crate::runtime::program::{BlockRecord, InstructionRecord, KernelRecord, MAX_DEPTH, Program, SignatureRecord, Space};
use crate::runtime::verify;
use crate::tensor::device::AlignedBytes;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Size of the operands of all instructions whose parts are measured, in bytes. It bounds the time that a hostile artifact can take.
const MEASURED: u64 = 1 << 30;

/// A description of an artifact.
#[derive(Clone, Debug)]
pub struct Description {
    /// The format version, as (major, minor).
    pub version: (u16, u16),
    /// Length of the whole artifact, in bytes.
    pub length: u32,
    /// Checksum, as the header stores it.
    pub checksum: u32,
    /// Size of constants and initial values, in bytes; a part of `length`.
    pub data_bytes: u32,
    /// Metadata as (key, value), without the lines that document signatures.
    pub metadata: Vec<(String, String)>,
    /// The artifact's variables.
    pub variables: Vec<VariableInfo>,
    /// The artifact's signatures.
    pub signatures: Vec<SignatureInfo>,
    /// The kernels that firmware must link, as (op, element type).
    pub kernels: Vec<(String, DType)>,
}

/// A variable of an artifact.
#[derive(Clone, Debug)]
pub struct VariableInfo {
    /// Name of the variable.
    pub name: String,
    /// Element type and shape.
    pub tensor_type: TensorType,
    /// True if optimizers train the variable.
    pub trainable: bool,
    /// Size of the variable, in bytes.
    pub bytes: u32,
    /// Names of the signatures that assign the variable. It stays in flash unless one of them is loaded.
    pub assigned_by: Vec<String>,
}

/// A signature of an artifact.
#[derive(Clone, Debug)]
pub struct SignatureInfo {
    /// Name of the signature.
    pub name: String,
    /// Documentation, if the artifact has any for this signature.
    pub doc: Option<String>,
    /// Names and locations of the inputs.
    pub inputs: Vec<(String, OperandInfo)>,
    /// Names and locations of the outputs.
    pub outputs: Vec<(String, OperandInfo)>,
    /// The instructions, in execution order.
    pub instructions: Vec<InstructionInfo>,
    /// Size of the arena in bytes if only this signature is loaded.
    pub arena_bytes: u32,
    /// Size of the variables in RAM, in bytes; a part of `arena_bytes`.
    pub variable_bytes: u32,
    /// Size of the second copy of the variables ([`Artifact::keep_copy`](super::Artifact::keep_copy)), in bytes; a part of `arena_bytes`.
    pub copy_bytes: u32,
    /// Size of the scratch memory, in bytes; a part of `arena_bytes`.
    pub scratch: u32,
}

impl SignatureInfo {
    /// Returns every instruction with its nesting depth, which is 0 at the top level. The instructions of branches and loops follow the
    /// instruction that runs them.
    pub fn walk(&self) -> Vec<(usize, &InstructionInfo)> {
        let mut found = Vec::new();
        walk(&self.instructions, 0, &mut found);
        found
    }

    /// Returns the instruction with the longest part that a slice cannot divide ([`InstructionInfo::part`]).
    pub fn longest_slice(&self) -> Option<&InstructionInfo> {
        self.walk().into_iter().map(|(_, instruction)| instruction).rev().max_by_key(|instruction| instruction.part)
    }
}

fn walk<'s>(instructions: &'s [InstructionInfo], depth: usize, found: &mut Vec<(usize, &'s InstructionInfo)>) {
    for instruction in instructions {
        found.push((depth, instruction));
        instruction.blocks.iter().for_each(|block| walk(&block.instructions, depth + 1, found));
    }
}

/// An instruction of an artifact.
#[derive(Clone, Debug)]
pub struct InstructionInfo {
    /// Index in the artifact.
    pub index: u32,
    /// Name of the op.
    pub op: String,
    /// Element type of its kernel.
    pub dtype: DType,
    /// The attribute words.
    pub attributes: Vec<u32>,
    /// The operands that it reads.
    pub inputs: Vec<OperandInfo>,
    /// The operands that it writes.
    pub outputs: Vec<OperandInfo>,
    /// The blocks that it runs, if it is a branch or a loop.
    pub blocks: Vec<BlockInfo>,
    /// The first part of its work that [`Session::advance`](crate::Session::advance) cannot divide, in instructions of a Cortex-M4, as the
    /// kernel estimates it. Nearly all kernels have parts of the same length. `None` for an op that gradlet does not have, for types that
    /// the op refuses, and after operands of 1 GiB in the artifact.
    pub part: Option<u32>,
}

/// A block that an instruction runs.
#[derive(Clone, Debug)]
pub struct BlockInfo {
    /// The condition under which it runs: `true`, `false` or an index for a branch; `condition` or `body` for a loop.
    pub when: String,
    /// The block's instructions, in execution order.
    pub instructions: Vec<InstructionInfo>,
}

/// A tensor that an instruction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperandInfo {
    /// Element type and shape.
    pub tensor_type: TensorType,
    /// The kind of memory that holds it.
    pub space: Space,
    /// Offset in that memory, or index of the variable.
    pub location: u32,
    /// Size of the tensor, in bytes.
    pub bytes: u32,
    /// Scale and zero point, if the tensor has one of each.
    pub quantization: Option<Quantization>,
}

impl Description {
    /// Describes the artifact `bytes`, which need not be aligned. Checks the checksum and the tables like [`Program::load`].
    pub fn read(bytes: &[u8]) -> Result<Description> {
        let bytes = AlignedBytes::from(bytes);
        let mut program = Program::load(&bytes, &[], &[])?;
        let header = Program::open(&bytes, &[])?.header;
        let mut measured = MEASURED;
        let signatures = (0..program.signatures.len()).map(|index| {
            program.loaded = 1 << index;
            signature(&program, index, &mut measured)
        });
        let mut signatures = signatures.collect::<Result<Vec<_>>>()?;
        let mut metadata = metadata(&program);
        for signature in &mut signatures {
            let key = doc_key(&signature.name);
            signature.doc = metadata.iter().position(|(known, _)| *known == key).map(|index| metadata.remove(index).1);
        }
        let kernels = program.kernel_records.iter().map(|record| (name(&program, record.name), dtype(record.dtype)));
        Ok(Description {
            version: (header.major, header.minor),
            length: header.length,
            checksum: header.checksum,
            data_bytes: program.data.len() as u32,
            metadata,
            variables: variables(&program),
            kernels: kernels.collect(),
            signatures,
        })
    }
}

fn name(program: &Program<'_>, index: u32) -> String {
    String::from_utf8_lossy(program.name_bytes(index).unwrap_or_default()).into_owned()
}

fn dtype(code: u8) -> DType {
    DType::from_code(code).unwrap_or(DType::U8)
}

fn metadata(program: &Program<'_>) -> Vec<(String, String)> {
    let mut rest = program.metadata;
    let mut next = || {
        let (name, after) = program::take_name(rest)?;
        rest = after;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    core::iter::from_fn(|| next().zip(next())).collect()
}

fn variables(program: &Program<'_>) -> Vec<VariableInfo> {
    let describe = |record: &program::VariableRecord| {
        let tensor = program.tensors.get(record.tensor as usize)?;
        let assigns = |&(index, _): &(usize, &SignatureRecord)| record.assigned_by & (1 << index) != 0;
        let signatures = program.signatures.iter().enumerate().filter(assigns);
        Some(VariableInfo {
            name: name(program, record.name),
            tensor_type: *program.tensor_type(tensor),
            trainable: record.flags & program::TRAINABLE != 0,
            bytes: tensor.bytes,
            assigned_by: signatures.map(|(_, signature)| name(program, signature.name)).collect(),
        })
    };
    program.variables.iter().filter_map(describe).collect()
}

fn signature(program: &Program<'_>, index: usize, measured: &mut u64) -> Result<SignatureInfo> {
    let record = &program.signatures[index];
    let block = program.blocks.get(record.block as usize).ok_or(Error::UnknownSignature)?;
    let named = |first: u32, operands: &[u16]| {
        let places = operands.iter().zip(first..).map(|(&operand, number)| Ok((name(program, number), self::operand(program, operand)?)));
        places.collect::<Result<Vec<_>>>()
    };
    let [_, variables, copy] = program.sizes();
    Ok(SignatureInfo {
        name: name(program, record.name),
        doc: None,
        inputs: named(record.input_names, program.inputs(block))?,
        outputs: named(record.output_names, program.outputs(block))?,
        instructions: instructions(program, block, 0, &mut Left { instructions: program.instructions.len(), measured })?,
        arena_bytes: program.arena_bytes() as u32,
        variable_bytes: variables as u32,
        copy_bytes: copy as u32,
        scratch: block.scratch,
    })
}

/// The rest of the work that an artifact may cause.
struct Left<'m> {
    /// Number of instructions of the signature, in case blocks run each other.
    instructions: usize,
    /// Part of [`MEASURED`].
    measured: &'m mut u64,
}

/// Returns the instructions of a block.
fn instructions(program: &Program<'_>, block: &BlockRecord, depth: usize, left: &mut Left<'_>) -> Result<Vec<InstructionInfo>> {
    let describe = |(index, instruction): (u32, &InstructionRecord)| {
        left.instructions = left.instructions.checked_sub(1).ok_or(Error::Record { section: Section::Blocks, index: 0 })?;
        let kernel = program.kernel_records.get(usize::from(instruction.kernel)).ok_or(Error::UnknownSignature)?;
        let inputs = program::part(program.operands, instruction.operands, instruction.inputs.into());
        let outputs = instruction.operands.saturating_add(instruction.inputs.into());
        let outputs = program::part(program.operands, outputs, instruction.outputs.into());
        let operands = |numbers: &[u16]| numbers.iter().map(|&number| operand(program, number)).collect::<Result<Vec<_>>>();
        let nested = nested(OpCode(kernel.op), dtype(kernel.dtype), program.attributes(instruction));
        let blocks = nested.into_iter().map(|(when, number)| {
            let missing = Error::Record { section: Section::Blocks, index: number };
            let block = program.blocks.get(number as usize).filter(|_| depth < MAX_DEPTH).ok_or(missing)?;
            Ok(BlockInfo { when, instructions: instructions(program, block, depth + 1, left)? })
        });
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        let (inputs, outputs) = (operands(inputs)?, operands(outputs)?);
        let attributes = program.attributes(instruction).to_vec();
        let part = part(kernel, &attributes, [&inputs, &outputs], left.measured);
        Ok(InstructionInfo { index, op: name(program, kernel.name), dtype: dtype(kernel.dtype), attributes, inputs, outputs, blocks, part })
    };
    (block.first..).zip(program.block_instructions(block)).map(describe).collect()
}

/// Returns the cost of the longest part of an instruction: runs the first row of its kernel on zeros, and reads what the kernel charges.
fn part(record: &KernelRecord, attributes: &[u32], [inputs, outputs]: [&[OperandInfo]; 2], measured: &mut u64) -> Option<u32> {
    let kernel = ops::KERNELS.iter().find(|kernel| record.is(kernel))?;
    let types = |operands: &[OperandInfo]| operands.iter().map(|one| one.tensor_type).collect::<Vec<_>>();
    verify::types(kernel.def, attributes, &types(inputs), &types(outputs)).ok()?;
    let bytes: u64 = inputs.iter().chain(outputs).map(|one| u64::from(one.bytes)).sum();
    *measured = measured.checked_sub(bytes)?;
    let zeros = |operands: &[OperandInfo]| operands.iter().map(|one| AlignedBytes::zeroed(one.bytes as usize)).collect::<Vec<_>>();
    let (read, mut written) = (zeros(inputs), zeros(outputs));
    let read = inputs.iter().zip(&read).map(|(one, data)| TensorView { tensor_type: &one.tensor_type, data: Some(data) });
    let written = outputs.iter().zip(&mut written).map(|(one, data)| TensorViewMut { tensor_type: &one.tensor_type, data });
    let (read, mut written) = (read.collect::<Vec<_>>(), written.collect::<Vec<_>>());
    let mut slice = Slice::of(0);
    slice.enter();
    // A kernel that refuses zeros has charged them before.
    let _ = (kernel.run)(&mut Call { attributes, inputs: &read, outputs: &mut written, slice: &mut slice });
    Some(Slice::DISPATCH.saturating_add(slice.row))
}

/// Returns the blocks that an instruction runs, with the condition under which each runs.
fn nested(op: OpCode, dtype: DType, attributes: &[u32]) -> Vec<(String, u32)> {
    let names: &[&str] = match (op, dtype) {
        (ops::code::cond, DType::Bool) => &["true", "false"],
        (ops::code::while_loop, _) => &["condition", "body"],
        (ops::code::cond, _) => return attributes.iter().enumerate().map(|(index, &block)| (format!("{index}"), block)).collect(),
        _ => &[],
    };
    names.iter().zip(attributes).map(|(&name, &block)| (name.into(), block)).collect()
}

fn operand(program: &Program<'_>, number: u16) -> Result<OperandInfo> {
    let missing = Error::NoSuchTensor { index: number.into() };
    let record = program.tensors.get(usize::from(number)).ok_or(missing.clone())?;
    let space = crate::runtime::check::space(record).ok_or(missing)?;
    let quantization = program.whole_quantization(record);
    Ok(OperandInfo { tensor_type: *program.tensor_type(record), space, location: record.location, bytes: record.bytes, quantization })
}
