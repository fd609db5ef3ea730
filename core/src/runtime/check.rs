//! The checks of [`Program::load`]: first every record of every table, then each instruction of the loaded signatures.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result, Rule, Section};
use crate::base::op::{Kernel, MAX_INPUTS, MAX_OUTPUTS};
use crate::base::shape::TensorType;
use crate::ops;
use crate::runtime::program;
use crate::runtime::program::{
    ALIGN, BlockRecord, InstructionRecord, MAX_DEPTH, MAX_SIGNATURES, NONE, Program, SignatureId, Space, TensorRecord,
};
use crate::runtime::verify;
use crate::runtime::verify::Region;
use heapless::Vec;

/// Checks each record of `table` with `fits`, which returns `Some(true)` for a correct record. The error names the first incorrect one.
fn each<T>(section: Section, table: &[T], fits: impl Fn(u32, &T) -> Option<bool>) -> Result<()> {
    match table.iter().enumerate().position(|(index, record)| fits(index as u32, record) != Some(true)) {
        Some(index) => Err(Error::Record { section, index: index as u32 }),
        None => Ok(()),
    }
}

fn within(first: u32, count: u32, length: usize) -> bool {
    u64::from(first) + u64::from(count) <= length as u64
}

/// Checks every table of the artifact.
pub(crate) fn tables(program: &Program<'_>) -> Result<()> {
    let names = names(program)?;
    if program.signatures.len() > MAX_SIGNATURES {
        return Err(Error::Record { section: Section::Signatures, index: MAX_SIGNATURES as u32 });
    }
    each(Section::Signatures, program.signatures, |_, record| {
        let block = program.blocks.get(record.block as usize)?;
        let inputs_named = within(record.input_names, block.input_count, names);
        Some((record.name as usize) < names && inputs_named && within(record.output_names, block.output_count, names))
    })?;
    each(Section::Blocks, program.blocks, |_, record| {
        let runs = within(record.first, record.instructions, program.instructions.len());
        let inputs = within(record.inputs, record.input_count, program.operands.len());
        Some(runs && inputs && within(record.outputs, record.output_count, program.operands.len()))
    })?;
    each(Section::Operands, program.operands, |_, &operand| Some(usize::from(operand) < program.tensors.len()))?;
    each(Section::Types, program.types, |_, tensor_type| Some(tensor_type.shape.is_valid()))?;
    each(Section::Tensors, program.tensors, |_, record| tensor_fits(program, record))?;
    each(Section::Variables, program.variables, |index, record| {
        let tensor = program.tensors.get(record.tensor as usize)?;
        let own = tensor.space == Space::Variable as u8 && tensor.location == index;
        let initial = record.initial == NONE || in_data(program, record.initial, tensor.bytes);
        Some(own && initial && (record.name as usize) < names)
    })?;
    each(Section::Kernels, program.kernel_records, |_, record| {
        Some(DType::from_code(record.dtype).is_some() && (record.name as usize) < names)
    })?;
    memory(program)
}

/// Checks that an arena for all variables and the largest scratch memory is smaller than 2 GiB. Sizes and offsets then fit into `usize`
/// on every target.
fn memory(program: &Program<'_>) -> Result<()> {
    let mut left = program::MAX_MEMORY;
    for record in program.variables {
        left = left.saturating_sub(program.bytes_of(record)).saturating_sub(ALIGN as u32);
    }
    if program.blocks.iter().all(|block| block.scratch < left) { Ok(()) } else { Err(Error::TooLarge) }
}

/// Returns the number of names. Fails if one is incomplete.
fn names(program: &Program<'_>) -> Result<usize> {
    let (mut rest, mut count) = (program.names, 0);
    while !rest.is_empty() {
        rest = program::take_name(rest).ok_or(Error::Record { section: Section::Names, index: count as u32 })?.1;
        count += 1;
    }
    Ok(count)
}

fn in_data(program: &Program<'_>, offset: u32, bytes: u32) -> bool {
    (offset as usize).is_multiple_of(ALIGN) && within(offset, bytes, program.data.len())
}

fn tensor_fits(program: &Program<'_>, record: &TensorRecord) -> Option<bool> {
    let tensor_type = program.types.get(usize::from(record.tensor_type))?;
    let scaled = record.quantization == NONE || in_data(program, record.quantization, program::LEAST_QUANTIZATION);
    let typed = scaled && tensor_type.bytes() == Some(record.bytes as usize);
    let placed = match space(record)? {
        Space::Flash => in_data(program, record.location, record.bytes),
        Space::Scratch => (record.location as usize).is_multiple_of(ALIGN) && record.location.checked_add(record.bytes).is_some(),
        Space::Variable => {
            let own = program.tensors.get(program.variables.get(record.location as usize)?.tensor as usize)?;
            program.tensor_type(own) == tensor_type
        }
    };
    Some(typed && placed)
}

/// Returns the space of a tensor record, or `None` if its number is unknown.
pub(crate) fn space(record: &TensorRecord) -> Option<Space> {
    [Space::Flash, Space::Scratch, Space::Variable].get(usize::from(record.space)).copied()
}

/// The blocks to which the instructions of a signature refer. Blocks must be numbered in the order of these references. Each block
/// therefore has exactly one reference, and no block can run itself.
struct Named {
    /// Index of the first block that is not checked yet; [`NONE`] before the first reference.
    first: u32,
    /// Index after the last block.
    next: u32,
}

/// Checks the block of signature `signature` and then, level by level, the blocks that it runs.
pub(crate) fn block(program: &Program<'_>, signature: u32) -> Result<()> {
    let whole = program.block(SignatureId(signature))?;
    let wrong = |index| Error::Record { section: Section::Blocks, index };
    io(program, whole).ok_or(wrong(signature))?;
    let mut named = Named { first: NONE, next: NONE };
    let (mut block, mut number, mut last, mut depth) = (whole, 0, 0, 0);
    loop {
        for (offset, instruction) in program.block_instructions(block).iter().enumerate() {
            let kernel = program.kernel(instruction.kernel).ok_or(Error::MissingKernel { kernel: instruction.kernel.into() })?;
            let checked = check_instruction(program, whole, kernel, 1 << signature, instruction, &mut named);
            verify::at(block.first + offset as u32, checked)?;
        }
        if number == last {
            (number, last, depth) = (named.first.wrapping_sub(1), named.next.wrapping_sub(1), depth + 1);
            named.first = named.next;
        }
        if number == last {
            return Ok(());
        }
        number = number.wrapping_add(1);
        block = program.blocks.get(number as usize).filter(|_| depth <= MAX_DEPTH).ok_or(wrong(number))?;
    }
}

/// Checks the blocks that an instruction runs. They must follow the blocks of earlier instructions, and all must have the same outputs.
/// Returns `None` if they break a rule.
fn runs(program: &Program<'_>, numbers: &[u32], named: &mut Named) -> Option<()> {
    let mut first: Option<&BlockRecord> = None;
    for &number in numbers {
        let block = program.blocks.get(number as usize)?;
        let other = first.get_or_insert(block);
        let agree = (block.outputs, block.output_count) == (other.outputs, other.output_count);
        if named.first == NONE {
            (named.first, named.next) = (number, number);
        }
        (agree && number == named.next && number as usize >= program.signatures.len()).then_some(())?;
        named.next += 1;
    }
    Some(())
}

/// Checks the inputs and outputs of a block. Each input must be in scratch memory, so that it can be written, and must not overlap
/// another one. Every operand in scratch memory must be within the block's scratch size. Returns `None` if the block breaks one of
/// these rules.
fn io(program: &Program<'_>, block: &BlockRecord) -> Option<()> {
    let inputs = program.inputs(block);
    for (index, &operand) in inputs.iter().enumerate() {
        let (_, place) = operand_type(program, block, operand)?;
        let apart = |&other: &u16| operand_type(program, block, other).is_some_and(|(_, other)| !other.overlaps(&place));
        let alone = inputs.iter().skip(index + 1).all(apart);
        (place.space == Region::SCRATCH && alone).then_some(())?;
    }
    program.outputs(block).iter().try_for_each(|&operand| operand_type(program, block, operand).map(drop))
}

/// Returns the type and the region of an operand, or `None` if the operand is not within the scratch size of its block.
fn operand_type(program: &Program<'_>, block: &BlockRecord, operand: u16) -> Option<(TensorType, Region)> {
    let record = program.tensors.get(usize::from(operand))?;
    let (space, start) = match space(record)? {
        Space::Flash => (Region::FLASH, record.location),
        Space::Scratch => (Region::SCRATCH, record.location),
        Space::Variable => {
            let variable = program.variables.get(record.location as usize)?;
            (variable.initial != NONE || program.in_ram(variable)).then_some((Region::variable(record.location), 0))?
        }
    };
    let place = Region { space, start: start as usize, bytes: record.bytes as usize };
    (space != Region::SCRATCH || within(start, record.bytes, block.scratch as usize)).then(|| (*program.tensor_type(record), place))
}

/// Largest number of operands of an instruction.
const OPERANDS: usize = MAX_INPUTS + MAX_OUTPUTS;

#[inline(never)]
fn check_instruction(
    program: &Program<'_>,
    block: &BlockRecord,
    kernel: &Kernel,
    signature: u32,
    instruction: &InstructionRecord,
    named: &mut Named,
) -> Result<(), Rule> {
    let (inputs, outputs) = (u32::from(instruction.inputs), u32::from(instruction.outputs));
    let in_tables = within(instruction.operands, inputs + outputs, program.operands.len())
        && within(instruction.attributes, instruction.attribute_words, program.attributes.len());
    if !in_tables || outputs as usize > MAX_OUTPUTS {
        return Err(Rule::Operands);
    }
    let (mut types, mut places) = (Vec::<_, OPERANDS>::new(), Vec::<_, OPERANDS>::new());
    for &operand in program::part(program.operands, instruction.operands, inputs + outputs) {
        let (tensor_type, place) = operand_type(program, block, operand).ok_or(Rule::Bounds)?;
        if types.len() == MAX_INPUTS && inputs as usize > MAX_INPUTS {
            return Err(Rule::Operands);
        }
        types.push(tensor_type).map_err(|_| Rule::Operands)?;
        places.push(place).map_err(|_| Rule::Operands)?;
    }
    let (input_types, output_types) = types.split_at_checked(inputs as usize).ok_or(Rule::Operands)?;
    let (input_places, output_places) = places.split_at_checked(inputs as usize).ok_or(Rule::Operands)?;
    let attributes = program::part(program.attributes, instruction.attributes, instruction.attribute_words);
    verify::types(kernel.def, attributes, input_types, output_types)?;
    // The kernel's element type is that of the first input, else of the first output. An instruction without operands uses u8.
    if input_types.first().or(output_types.first()).map_or(DType::U8, |first| first.dtype) != kernel.dtype {
        return Err(Rule::Kernel);
    }
    verify::regions(kernel.def, input_places, output_places)?;
    let assigns = |place: &Region| {
        let variable = program.variables.get(place.space.wrapping_sub(Region::variable(0)) as usize);
        variable.is_none_or(|record| record.assigned_by & signature != 0)
    };
    if !output_places.iter().all(assigns) {
        return Err(Rule::Assigns);
    }
    runs(program, ops::blocks(kernel.def.code, attributes), named).ok_or(Rule::Blocks)
}
