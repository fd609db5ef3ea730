//! Costs of the instructions of an artifact.

use crate::artifact::inspect::grouped;
use gradlet_core::artifact::describe::{Description, InstructionInfo, OperandInfo, SignatureInfo};
use gradlet_core::runtime::program::Space;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the number of multiply-accumulates of an instruction: those of a forward product or convolution. Returns 0 for other ops.
///
/// Positions outside an image count, as they do in the literature.
pub fn multiply_accumulates(instruction: &InstructionInfo) -> u64 {
    let dims = |operands: &[OperandInfo], at: usize| operands.get(at).map_or(Vec::new(), |one| one.tensor_type.shape.dims().to_vec());
    let product = |dims: &[u32]| dims.iter().map(|&dim| u64::from(dim)).product::<u64>();
    let (x, filter, y) = (dims(&instruction.inputs, 0), dims(&instruction.inputs, 1), dims(&instruction.outputs, 0));
    // The last words of a packed convolution.
    let kernel = instruction.attributes.last_chunk::<2>().map_or(&[][..], |kernel| kernel);
    // The word of a product that says whether x is transposed.
    let flag = match instruction.op.as_str() {
        "matmul" => instruction.attributes.first(),
        "quantized_matmul" => instruction.attributes.get(7),
        _ => None,
    };
    let of_element = match (instruction.op.as_str(), filter.as_slice()) {
        ("packed_conv2d", _) => product(kernel) * x.last().map_or(0, |&channels| u64::from(channels)),
        ("packed_depthwise_conv2d", _) => product(kernel),
        _ if flag == Some(&1) => x.iter().nth_back(1).map_or(0, |&rows| rows.into()),
        ("matmul" | "quantized_matmul" | "dense" | "quantized_dense" | "packed_dense", _) => x.last().map_or(0, |&columns| columns.into()),
        // Each output has an equal part of the filters over features, and of those over time.
        ("quantized_svdf_step", _) => {
            (product(&filter) + product(&dims(&instruction.inputs, 2))) / y.last().map_or(1, |&units| units.max(1).into())
        }
        ("conv2d" | "conv2d_max_pool2d", [taps @ .., _]) | ("quantized_conv2d", [_, taps @ ..]) => product(taps),
        ("depthwise_conv2d", [kh, kw, ..]) | ("quantized_depthwise_conv2d", [_, kh, kw, _]) => product(&[*kh, *kw]),
        _ => 0,
    };
    product(&y).saturating_mul(of_element)
}

/// Costs of a run of a signature on a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Name of the signature.
    pub signature: String,
    /// Name of the processor.
    pub processor: String,
    /// Number of instructions of the whole run.
    pub instructions: u64,
    /// Stack that the run uses, in bytes.
    pub stack: u32,
    /// Number of instructions of each op that ran, by the op's index in the artifact.
    pub ops: BTreeMap<u32, u64>,
}

impl Measured {
    /// Returns the instructions of the op at `index`, of all times that it ran.
    pub(crate) fn of(&self, index: u32) -> u64 {
        self.ops.get(&index).copied().unwrap_or(0)
    }

    /// Returns the instructions of the executor, which are no op's.
    fn executor(&self) -> u64 {
        self.instructions.saturating_sub(self.ops.values().sum())
    }

    /// Returns the measurement of `signature`, if `all` has one.
    pub(crate) fn find<'m>(all: &'m [Measured], signature: &SignatureInfo) -> Option<&'m Measured> {
        all.iter().find(|one| one.signature == signature.name)
    }
}

/// Lists what each instruction of an artifact costs: its constants and initial values in flash, the bytes of its results, and its
/// multiply-accumulates. A row of totals follows for each signature, with the size of its arena. A signature in `measured` also has the
/// instructions of the processor, and its stack. The multiply-accumulates of an instruction in a loop are those of one iteration, and its
/// measured instructions are those of all iterations.
pub fn costs(description: &Description, measured: &[Measured]) -> String {
    let mut text = String::new();
    for signature in &description.signatures {
        table(&mut text, signature, Measured::find(measured, signature));
    }
    text
}

/// A row of the table: flash, results and multiply-accumulates of an op, and its instructions.
struct Row {
    name: String,
    cells: [Option<u64>; 3],
    instructions: Option<u64>,
}

fn table(text: &mut String, signature: &SignatureInfo, measured: Option<&Measured>) {
    let mut rows = rows(signature, measured);
    let sum = |cell: usize| rows.iter().filter_map(|(_, row)| row.cells[cell]).fold(0u64, u64::saturating_add);
    let (cells, instructions) = ([Some(sum(0)), None, Some(sum(2))], measured.map(|one| one.instructions));
    if let Some(measured) = measured {
        rows.push((None, Row { name: "executor".into(), cells: [None; 3], instructions: Some(measured.executor()) }));
    }
    rows.push((None, Row { name: "total".into(), cells, instructions }));

    let width = rows.iter().map(|(_, row)| row.name.len()).max().unwrap_or(0);
    let column = if measured.is_some() { format!(" {:>13}", "instructions") } else { String::new() };
    let _ = writeln!(
        text,
        "\nsignature {}\n       {:width$} {:>11} {:>11} {:>13}{column}",
        signature.name, "op", "flash B", "result B", "MACs"
    );
    let number = |number: Option<u64>| number.map_or(String::new(), grouped);
    for (index, Row { name, cells, instructions }) in &rows {
        let (index, [flash, result, macs]) = (index.map_or(String::new(), |index| index.to_string()), cells.map(number));
        let column = instructions.map_or(String::new(), |count| format!(" {:>13}", grouped(count)));
        let line = format!("  {index:>3}  {name:width$} {flash:>11} {result:>11} {macs:>13}{column}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ =
        writeln!(text, "  arena {} B if loaded alone, of which {} B scratch", grouped(signature.arena_bytes), grouped(signature.scratch));
    let _ = match measured {
        Some(Measured { processor, stack, .. }) => writeln!(text, "  stack {} B, by a run on a {processor}", grouped(*stack)),
        None => writeln!(text, "  stack and instructions depend on the compiler: they are measured with --measure"),
    };
}

/// Returns the rows of the ops, each with the op's index.
fn rows(signature: &SignatureInfo, measured: Option<&Measured>) -> Vec<(Option<u32>, Row)> {
    let mut seen: Vec<(Space, u32, u32)> = Vec::new();
    let mut row = |(depth, instruction): (usize, &InstructionInfo)| {
        let mut flash = 0;
        for one in instruction.inputs.iter().filter(|one| one.space != Space::Scratch) {
            if !seen.contains(&(one.space, one.location, one.bytes)) {
                seen.push((one.space, one.location, one.bytes));
                flash += u64::from(one.bytes);
            }
        }
        let result = instruction.outputs.iter().map(|one| u64::from(one.bytes)).sum();
        let cells = [flash, result, multiply_accumulates(instruction)].map(Some);
        let name = format!("{}{}", "  ".repeat(depth), instruction.op);
        (Some(instruction.index), Row { name, cells, instructions: measured.map(|one| one.of(instruction.index)) })
    };
    signature.walk().into_iter().map(&mut row).collect()
}
