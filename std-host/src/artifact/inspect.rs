//! Descriptions of an artifact, as text, as JSON and as an SVG image: signatures, ops, sizes in flash and RAM, and the use of RAM over
//! time.

pub use crate::artifact::costs::{Measured, costs, multiply_accumulates};
use crate::artifact::{json, svg};
use gradlet_core::TensorType;
use gradlet_core::artifact::describe::{BlockInfo, Description, InstructionInfo, OperandInfo, SignatureInfo};
use gradlet_core::runtime::program::Space;
use std::fmt::Write;

/// Maximum number of blocks of memory that are listed for a peak, largest first.
const HOLDERS: usize = 5;

/// Use of a block of scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An input of the signature.
    Input,
    /// A value of the forward pass.
    Value,
    /// A value of the backward pass, which begins with the first gradient op.
    Gradient,
    /// A value that no instruction reads: an output of the signature.
    Output,
}

/// A block of scratch memory, and the time in which it holds a value. Ops that work in place continue to use the same block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Offset in the scratch memory, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
    /// Position, in [`SignatureInfo::walk`], of the first instruction that uses it.
    pub first: usize,
    /// Position, in [`SignatureInfo::walk`], of the last instruction that uses it.
    pub last: usize,
    /// The ops that write it, in order, or the name of the input.
    pub label: String,
    /// Type of the first value in it.
    pub tensor_type: TensorType,
    /// Use of the memory.
    pub kind: Kind,
}

impl Storage {
    /// True if the memory holds a value during the instruction at position `index`.
    pub fn live_at(&self, index: usize) -> bool {
        (self.first..=self.last).contains(&index)
    }

    fn overlaps(&self, operand: &OperandInfo) -> bool {
        self.offset < operand.location.saturating_add(operand.bytes) && operand.location < self.offset.saturating_add(self.bytes)
    }
}

/// Returns the blocks of scratch memory that `signature` uses, sorted by their first use. Each one lasts from its first write to its
/// last read. Inputs exist from the start. A value that is written but never read lasts to the end.
pub fn storages(signature: &SignatureInfo) -> Vec<Storage> {
    let inputs = signature.inputs.iter().map(|(name, operand)| (storage(operand, 0, 0, name.clone(), Kind::Input), true));
    let mut timeline = Timeline { done: Vec::new(), open: inputs.collect(), backward: false };
    let all = signature.walk();
    for (index, (_, instruction)) in all.iter().enumerate() {
        let scratch =
            |operands: &'_ [OperandInfo]| operands.iter().copied().filter(|operand| operand.space == Space::Scratch).collect::<Vec<_>>();
        let (reads, writes) = (scratch(&instruction.inputs), scratch(&instruction.outputs));
        reads.iter().for_each(|operand| timeline.read(index, operand));
        writes.iter().for_each(|operand| timeline.write(index, operand, &instruction.op, &reads));
    }
    let last = all.len().saturating_sub(1);
    let results = signature.outputs.iter().map(|(_, operand)| *operand).filter(|operand| operand.space == Space::Scratch);
    let mut storages = timeline.finish(last, &results.collect::<Vec<_>>());
    // Values from outside of a loop are needed until the end of its last iteration.
    for (from, to) in loops(&all) {
        for storage in storages.iter_mut().filter(|storage| storage.first <= from && (from..to).contains(&storage.last)) {
            storage.last = to;
        }
    }
    storages
}

/// Returns the first and the last instruction of each loop, as positions in `all`, inner loops first.
fn loops(all: &[(usize, &InstructionInfo)]) -> Vec<(usize, usize)> {
    let begins = all.iter().enumerate().filter(|(_, (_, instruction))| instruction.blocks.iter().any(|block| block.when == "body"));
    let ends = begins.map(|(index, (depth, _))| (index, index + all[index + 1..].iter().take_while(|(inner, _)| inner > depth).count()));
    let mut ends: Vec<(usize, usize)> = ends.collect();
    ends.reverse();
    ends
}

struct Timeline {
    done: Vec<Storage>,
    /// Blocks whose value may still be read, each with a flag that is true once the value was read.
    open: Vec<(Storage, bool)>,
    /// True from the first gradient op on.
    backward: bool,
}

impl Timeline {
    fn read(&mut self, index: usize, operand: &OperandInfo) {
        if let Some((storage, read)) = self.open.iter_mut().find(|(storage, _)| storage.overlaps(operand)) {
            (storage.last, *read) = (index, true);
        }
    }

    fn write(&mut self, index: usize, operand: &OperandInfo, op: &str, reads: &[OperandInfo]) {
        let in_place = reads.iter().any(|read| read.location == operand.location);
        if in_place && let Some((storage, read)) = self.open.iter_mut().find(|(storage, _)| storage.offset == operand.location) {
            storage.label = format!("{} → {op}", storage.label);
            (storage.bytes, storage.last, *read) = (storage.bytes.max(operand.bytes), index, false);
            return;
        }
        let (over, open) = std::mem::take(&mut self.open).into_iter().partition(|(storage, _)| storage.overlaps(operand));
        self.open = open;
        self.done.extend(Vec::into_iter(over).map(|(storage, _)| storage));
        self.backward |= op.contains("_grad");
        let kind = if self.backward { Kind::Gradient } else { Kind::Value };
        self.open.push((storage(operand, index, index, op.into(), kind), false));
    }

    fn finish(mut self, last: usize, results: &[OperandInfo]) -> Vec<Storage> {
        let is_result = |storage: &Storage| results.iter().any(|result| storage.overlaps(result));
        self.done.extend(self.open.into_iter().map(|(storage, read)| match read && !is_result(&storage) {
            true => storage,
            false => Storage { last, kind: Kind::Output, ..storage },
        }));
        self.done.sort_by_key(|storage| (storage.first, storage.offset));
        self.done
    }
}

fn storage(operand: &OperandInfo, first: usize, last: usize, label: String, kind: Kind) -> Storage {
    Storage { offset: operand.location, bytes: operand.bytes, first, last, label, tensor_type: operand.tensor_type, kind }
}

/// Returns the position, in [`SignatureInfo::walk`], of the instruction during which the most bytes of scratch memory hold
/// values. Also returns the number of these bytes.
pub fn peak(signature: &SignatureInfo, storages: &[Storage]) -> (usize, u32) {
    let live = |index: usize| {
        storages.iter().filter(|storage| storage.live_at(index)).fold(0u32, |sum, storage| sum.saturating_add(storage.bytes))
    };
    let all = (0..signature.walk().len()).map(|index| (index, live(index)));
    all.rev().max_by_key(|&(_, bytes)| bytes).unwrap_or((0, 0))
}

/// Describes the artifact as text: flash, kernels, variables, and each signature with its instructions, RAM and peak.
///
/// ```
/// # use gradlet::Eager;
/// # use gradlet::applications::ModelSpec;
/// # use gradlet::artifact::{export, inspect};
/// # let scope = Eager::new(&gradlet::cpu());
/// # let spec: ModelSpec = "mlp:4-3-2".parse()?;
/// # let model = std::sync::Arc::new(spec.build(&scope)?);
/// # let bytes = export::artifact(&scope, &model, &spec, &export::Options::default())?;
/// let description = gradlet::artifact::describe::Description::read(&bytes)?;
/// assert!(inspect::text(&description).contains("signature infer(x: f32[1,4]) -> (logits: f32[1,2])"));
/// let picture = inspect::svg(&description, &[&description.signatures[0]], &[]);
/// assert!(picture.starts_with("<svg"));
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn text(description: &Description) -> String {
    let mut text = String::new();
    let Description { version: (major, minor), length, data_bytes, .. } = description;
    let _ = writeln!(text, "gradlet artifact, format {major}.{minor}");
    for (key, value) in &description.metadata {
        let _ = writeln!(text, "{key}: {value}");
    }
    let structure = grouped(length.saturating_sub(*data_bytes));
    let _ =
        writeln!(text, "\nflash {} B: structure {structure} B, constants and initial values {} B", grouped(*length), grouped(*data_bytes));
    let kernels: Vec<String> = description.kernels.iter().map(|(op, dtype)| format!("{op} {dtype}")).collect();
    let _ = writeln!(text, "kernels ({}): {}", kernels.len(), kernels.join(", "));
    variables(&mut text, description);
    description.signatures.iter().for_each(|signature| self::signature(&mut text, description, signature));
    text
}

fn variables(text: &mut String, description: &Description) {
    text.push_str("\nvariables\n");
    let width = description.variables.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    for variable in &description.variables {
        let place = match variable.assigned_by.join(", ") {
            none if none.is_empty() => "in flash".into(),
            names => format!("in RAM for {names}"),
        };
        let (tensor_type, bytes) = (variable.tensor_type.to_string(), grouped(variable.bytes));
        let trained = if variable.trainable { "" } else { ", not trained" };
        let _ = writeln!(text, "  {:width$}  {tensor_type:<16} {bytes:>9} B  {place}{trained}", variable.name);
    }
}

fn signature(text: &mut String, description: &Description, signature: &SignatureInfo) {
    let typed = |(name, operand): &(String, OperandInfo)| match operand.quantization {
        Some(quantization) => format!("{name}: {} with {quantization}", operand.tensor_type),
        None => format!("{name}: {}", operand.tensor_type),
    };
    let list = |named: &[(String, OperandInfo)]| named.iter().map(typed).collect::<Vec<_>>().join(", ");
    let _ = writeln!(text, "\nsignature {}({}) -> ({})", signature.name, list(&signature.inputs), list(&signature.outputs));
    if let Some(doc) = &signature.doc {
        let _ = writeln!(text, "  {doc}");
    }
    let SignatureInfo { arena_bytes, variable_bytes, copy_bytes, scratch, .. } = signature;
    let table = grouped(arena_bytes.saturating_sub(*variable_bytes).saturating_sub(*copy_bytes).saturating_sub(*scratch));
    let copy = if *copy_bytes > 0 { format!("their second copy {} B, ", grouped(*copy_bytes)) } else { String::new() };
    let (arena, variables, scratch) = (grouped(*arena_bytes), grouped(*variable_bytes), grouped(*scratch));
    let _ = writeln!(text, "  RAM {arena} B if loaded alone: variables {variables} B, {copy}their table {table} B, scratch {scratch} B");
    let _ = writeln!(text, "  flash {} B of constants and initial values, as part of those above", grouped(flash(description, signature)));
    let width = signature.walk().iter().map(|(depth, instruction)| 4 * depth + instruction.op.len()).max().unwrap_or(0);
    Tree { text, description, width }.instructions(&signature.instructions, 0);
    if let Some(InstructionInfo { index, op, part: Some(part), .. }) = signature.longest_slice() {
        let _ = writeln!(text, "  longest slice, at instruction {index}, {op}: about {} instructions of a Cortex-M4", grouped(*part));
    }
    holders(text, signature);
}

/// The list of a signature's instructions. Those of branches and loops are indented, below a line that states when they run.
struct Tree<'a> {
    text: &'a mut String,
    description: &'a Description,
    width: usize,
}

impl Tree<'_> {
    fn instructions(&mut self, instructions: &[InstructionInfo], depth: usize) {
        let indent = "    ".repeat(depth);
        for InstructionInfo { index, op, inputs, outputs, blocks, .. } in instructions {
            let list = |operands: &[OperandInfo]| operands.iter().map(|one| operand(self.description, one)).collect::<Vec<_>>().join(", ");
            let (inputs, outputs, width) = (list(inputs), list(outputs), self.width - 4 * depth);
            let arrow = if outputs.is_empty() { "" } else { " -> " };
            let _ = writeln!(self.text, "  {:>3}  {indent}{op:width$}  {inputs}{arrow}{outputs}", index);
            for BlockInfo { when, instructions } in blocks {
                let _ = writeln!(self.text, "       {indent}  {when}:");
                self.instructions(instructions, depth + 1);
            }
        }
    }
}

/// Returns the number of bytes of flash data that the instructions of `signature` use: constants, and initial values of variables.
fn flash(description: &Description, signature: &SignatureInfo) -> u32 {
    let mut seen: Vec<(Space, u32, u32)> = Vec::new();
    for operand in signature.walk().iter().flat_map(|(_, instruction)| instruction.inputs.iter().chain(&instruction.outputs)) {
        let bytes = match operand.space {
            Space::Scratch => continue,
            Space::Flash => operand.bytes,
            Space::Variable => description.variables.get(operand.location as usize).map_or(0, |variable| variable.bytes),
        };
        if !seen.contains(&(operand.space, operand.location, bytes)) {
            seen.push((operand.space, operand.location, bytes));
        }
    }
    seen.iter().fold(0, |sum, &(_, _, bytes)| sum.saturating_add(bytes))
}

fn holders(text: &mut String, signature: &SignatureInfo) {
    let storages = storages(signature);
    let (at, bytes) = peak(signature, &storages);
    let all = signature.walk();
    let Some((_, instruction)) = all.get(at) else { return };
    let _ = writeln!(
        text,
        "  peak at instruction {}, {}: {} of {} B of scratch hold values",
        instruction.index,
        instruction.op,
        grouped(bytes),
        grouped(signature.scratch)
    );
    let mut live: Vec<&Storage> = storages.iter().filter(|storage| storage.live_at(at)).collect();
    live.sort_by_key(|storage| std::cmp::Reverse(storage.bytes));
    let index = |at: usize| all.get(at).map_or(0, |(_, instruction)| instruction.index);
    for storage in live.into_iter().take(HOLDERS) {
        let Storage { first, last, label, tensor_type, .. } = storage;
        let _ = writeln!(
            text,
            "    {:>9} B  {label}: {tensor_type}, instructions {} to {}",
            grouped(storage.bytes),
            index(*first),
            index(*last)
        );
    }
}

/// Formats an operand: `f32[1,10]@64` in scratch memory, the name of a variable, or `constant f32[]`.
fn operand(description: &Description, operand: &OperandInfo) -> String {
    let OperandInfo { tensor_type, location, .. } = operand;
    match operand.space {
        Space::Scratch => format!("{tensor_type}@{location}"),
        Space::Flash => format!("constant {tensor_type}"),
        Space::Variable => description.variables.get(*location as usize).map_or("?".into(), |variable| variable.name.clone()),
    }
}

/// Draws the arenas of these signatures over time as an SVG image. Instructions are on the horizontal axis and offsets on the vertical
/// axis. Each variable in RAM and each block of scratch memory is a rectangle. The peak is marked. The bars above show the work of each
/// instruction: its multiply-accumulates, or, for a signature in `measured`, the instructions of the processor.
pub fn svg(description: &Description, signatures: &[&SignatureInfo], measured: &[Measured]) -> String {
    svg::picture(description, signatures, measured)
}

/// Describes the artifact as a JSON value with the same data as [`text`] and [`costs`]. The instructions of branches and loops are nested
/// in `blocks`.
pub fn json(description: &Description, measured: &[Measured]) -> serde_json::Value {
    json::value(description, measured)
}

/// Formats a number with commas between thousands.
pub(crate) fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{DType, Shape};

    fn operand(location: u32, elements: u32) -> OperandInfo {
        let tensor_type = TensorType::new(DType::F32, Shape::new(&[elements]).unwrap());
        OperandInfo { tensor_type, space: Space::Scratch, location, bytes: 4 * elements, quantization: None }
    }

    fn instruction(op: &str, inputs: &[OperandInfo], output: OperandInfo) -> InstructionInfo {
        InstructionInfo {
            index: 0,
            op: op.into(),
            dtype: DType::F32,
            attributes: Vec::new(),
            inputs: inputs.into(),
            outputs: vec![output],
            blocks: Vec::new(),
            part: None,
        }
    }

    #[test]
    fn lifetimes() {
        let instructions = vec![
            instruction("dense", &[operand(0, 4)], operand(16, 8)),
            instruction("relu", &[operand(16, 8)], operand(16, 8)),
            instruction("dense", &[operand(16, 8)], operand(0, 2)),
        ];
        let x = ("x".to_string(), operand(0, 4));
        let signature = SignatureInfo {
            name: "infer".into(),
            doc: None,
            inputs: vec![x],
            outputs: vec![("y".into(), operand(0, 2))],
            instructions,
            arena_bytes: 48,
            variable_bytes: 0,
            copy_bytes: 0,
            scratch: 48,
        };
        let storages = storages(&signature);
        let seen: Vec<_> = storages.iter().map(|s| (s.label.as_str(), s.offset, s.first, s.last, s.kind)).collect();
        assert_eq!(seen, [("x", 0, 0, 0, Kind::Input), ("dense → relu", 16, 0, 2, Kind::Value), ("dense", 0, 2, 2, Kind::Output)]);
        assert_eq!(peak(&signature, &storages), (0, 48));
    }

    #[test]
    fn groups() {
        assert_eq!([0u32, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
