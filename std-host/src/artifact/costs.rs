//! Costs of the instructions of an artifact.

use crate::artifact::inspect::grouped;
use gradlet_core::artifact::describe::{Description, InstructionInfo, OperandInfo};
use gradlet_core::runtime::program::Space;
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
    let of_element = match (instruction.op.as_str(), filter.as_slice()) {
        ("packed_conv2d", _) => product(kernel) * x.last().map_or(0, |&channels| u64::from(channels)),
        ("packed_depthwise_conv2d", _) => product(kernel),
        ("matmul" | "dense" | "quantized_dense" | "packed_dense", _) => x.last().map_or(0, |&columns| columns.into()),
        ("conv2d" | "conv2d_max_pool2d", [taps @ .., _]) | ("quantized_conv2d", [_, taps @ ..]) => product(taps),
        ("depthwise_conv2d", [kh, kw, ..]) | ("quantized_depthwise_conv2d", [_, kh, kw, _]) => product(&[*kh, *kw]),
        _ => 0,
    };
    product(&y).saturating_mul(of_element)
}

/// Lists what each instruction of an artifact costs: its constants in flash, the bytes of its results, and its multiply-accumulates. A row
/// of totals follows for each signature, with the size of its arena.
pub fn costs(description: &Description) -> String {
    let mut text = String::new();
    for signature in &description.signatures {
        let rows: Vec<(usize, &InstructionInfo)> = signature.walk();
        let width = rows.iter().map(|(depth, one)| 2 * depth + one.op.len()).max().unwrap_or(0).max(9);
        let _ =
            writeln!(text, "\nsignature {}\n       {:width$} {:>11} {:>11} {:>13}", signature.name, "op", "flash B", "result B", "MACs");
        let mut seen: Vec<(u32, u32)> = Vec::new();
        let (mut flash, mut macs) = (0u64, 0u64);
        for (depth, instruction) in rows {
            let mut own = 0;
            for one in instruction.inputs.iter().filter(|one| one.space == Space::Flash) {
                if !seen.contains(&(one.location, one.bytes)) {
                    seen.push((one.location, one.bytes));
                    own += u64::from(one.bytes);
                }
            }
            let result: u64 = instruction.outputs.iter().map(|one| u64::from(one.bytes)).sum();
            let (count, name) = (multiply_accumulates(instruction), format!("{}{}", "  ".repeat(depth), instruction.op));
            let _ = writeln!(
                text,
                "  {:>3}  {name:width$} {:>11} {:>11} {:>13}",
                instruction.index,
                grouped(own),
                grouped(result),
                grouped(count)
            );
            (flash, macs) = (flash + own, macs + count);
        }
        let arena = grouped(signature.arena_bytes);
        let _ = writeln!(text, "       {:width$} {:>11} {:>11} {:>13}", "total", grouped(flash), "", grouped(macs));
        let _ = writeln!(text, "  arena {arena} B if loaded alone, of which {} B scratch", grouped(signature.scratch));
    }
    text
}
