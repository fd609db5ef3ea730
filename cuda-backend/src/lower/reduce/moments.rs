//! Mean and variance of the same tensor, which one kernel finds in one pass, for devices that are not strict.

use super::fast::{Elements, Shape, looping};
use super::group::opened;
use super::{Groups, normalize};
use crate::lower::Target;
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::lower::elementwise::{self, Grouped};
use crate::ptx::Code;
use gradlet_core::device::{Member, Slot, Source};
use gradlet_core::ops::code;
use gradlet_core::{DType, Error, Result, TensorType};

const FILE: &str = "moments";
/// Least number of elements of a result, if they are neighbours. Then each thread of a block has some.
const LONG: u64 = 2048;
/// Number of blocks for each multiprocessor, if the rows have parts. While some of them begin or end, others keep the memory busy.
const FULL: u64 = 16;
/// Number of blocks for each multiprocessor from which on a thread takes four neighbouring columns.
const MANY: u64 = 4;

/// True if these members find a mean and a variance: some that compute the elements, if they are not in memory, then the mean, differences
/// from it, their squares, and the mean of the squares.
pub(crate) fn are(members: &[Member]) -> bool {
    matches!(members, [.., mean, _, _, variance] if [mean, variance].iter().all(|member| member.op.code == code::mean))
}

/// Returns the shape of the reduction, if there is a kernel for it.
fn shape(x: &TensorType, axes: &[u32], target: &Target) -> Option<Shape> {
    let fits = x.dtype == DType::F32 && !target.strict;
    Shape::new(&Groups::new(x.shape.dims(), axes)).filter(|shape| fits && (shape.inner > 1 || shape.extent >= LONG))
}

/// Lowers members that find a mean and a variance. Fails if there is no kernel for them.
pub(crate) fn group(members: &[Member], target: &Target) -> Result<Grouped> {
    let [others @ .., mean, difference, _, variance] = members else { return Err(Error::Internal) };
    let tensor_type = difference.output;
    let Some(shape) = shape(&tensor_type, mean.attributes.get(1..).unwrap_or(&[]), target) else {
        return normalize::group(members, target);
    };
    let (x, place, inputs, mut outputs) = match mean.inputs[..] {
        [Source::Memory(slot)] => (Elements::Memory(Argument::Input(0)), Some(slot), vec![slot], Vec::new()),
        [Source::Value { member, .. }] => {
            let (x, inputs, outputs) = opened(others, member, &shape)?;
            (x, others.get(member).and_then(|other| other.kept), inputs, outputs)
        }
        _ => return Err(Error::Internal),
    };
    let results = [0, 1].map(|result| Argument::Output(outputs.len() + result));
    let calls = calls(shape, x, results, target);
    outputs.extend([mean, variance].into_iter().map(|member| member.kept.ok_or(Error::Internal)).collect::<Result<Vec<Slot>>>()?);
    let grouped = Grouped { calls, inputs, outputs };
    let (Some(place), Some(mean), Some(_)) = (place, mean.kept, difference.kept) else { return Ok(grouped) };
    // The differences are stored.
    let [_, Source::Value { tensor_type: along, .. }] = difference.inputs[..] else { return Err(Error::Internal) };
    let inputs = [(place, tensor_type), (mean, along)].map(|(slot, tensor_type)| Source::Memory(Slot { tensor_type, ..slot }));
    let own = Member { inputs: inputs.to_vec(), ..difference.clone() };
    Ok(grouped.then(elementwise::group(tensor_type.shape.elements().unwrap_or(0), &[own], target)?))
}

/// Returns the launches that write mean and variance of `x`.
fn calls(shape: Shape, x: Elements, results: [Argument; 2], target: &Target) -> Vec<KernelCall> {
    let (room, multiprocessors) = (target.workspace / (shape.outer * shape.inner * 8).max(1), u64::from(target.multiprocessors));
    let (columns, divided) = (shape.inner, |shape: Shape| shape.with_parts(FULL * multiprocessors, room));
    let in_memory = matches!(x, Elements::Memory(_)) && columns % 4 == 0 && columns > 4;
    let quads = in_memory.then(|| divided(Shape { inner: columns / 4, ..shape }.with_members()));
    let quads = quads.filter(|quads| quads.blocks() * quads.parts() >= MANY * multiprocessors);
    let (shape, entry) = quads.map_or((divided(shape), "moments_f32"), |quads| (quads, "moments_quads_f32"));
    let parts = shape.parts();
    let to = if parts == 1 { results.clone() } else { [Argument::Workspace, Argument::Workspace] };
    let (x, opening) = match x {
        Elements::Memory(x) => (Some(x), None),
        Elements::Opening(opening, others) => (None, Some((opening, others))),
    };
    let call = |code, x: Option<Argument>, to: [Argument; 2], shape: &Shape, parts: u64| {
        let last = [shape.argument(), Argument::Words(vec![shape.members as u32])];
        let arguments = x.into_iter().chain(to).chain(last).collect();
        let grid = [looping(shape.blocks(), target), parts as u32, 1];
        KernelCall { code, grid, block: [BLOCK, 1, 1], shared: 0, arguments }
    };
    let mut calls = vec![call(Code::stored(FILE, entry.into()), x, to, &shape, parts)];
    if let Some((opening, others)) = opening {
        calls[0].code = Code::Opened { file: FILE, entry: "moments_opening_f32".into(), opening };
        calls[0].arguments.extend(others);
    }
    if parts > 1 {
        let members = parts.next_power_of_two().min(BLOCK.into());
        let code = Code::stored(FILE, "moments_parts_f32".into());
        calls.push(call(code, Some(Argument::Workspace), results, &Shape { members, inner: columns, ..shape }, 1));
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{Shape, ops};

    fn slot(dims: &[u32], offset: u64) -> Slot {
        Slot { tensor_type: TensorType::new(DType::F32, Shape::new(dims).unwrap()), base: 0, offset }
    }

    /// Returns the names of the launches and their numbers of blocks, for a tensor that is reduced along the first axis.
    fn launches(dims: [u32; 2]) -> Vec<(String, [u32; 3])> {
        let (x, result) = (slot(&dims, 0), slot(&[1, dims[1]], 1 << 30));
        let value = |member| Source::Value { member, tensor_type: x.tensor_type };
        let member = |op, attributes: &[u32], inputs, output: Slot, kept: bool| {
            let (attributes, kept) = (attributes.to_vec(), kept.then_some(output));
            Member { op, attributes, inputs, output: output.tensor_type, kept }
        };
        let members = [
            member(&ops::mean::DEF, &[1, 0], vec![Source::Memory(x)], result, true),
            member(&ops::sub::DEF, &[], vec![Source::Memory(x), value(0)], x, false),
            member(&ops::mul::DEF, &[], vec![value(1), value(1)], x, false),
            member(&ops::mean::DEF, &[1, 0], vec![value(2)], result, true),
        ];
        assert!(are(&members) && !are(&members[1..]));
        let grouped = group(&members, &Target { strict: false, ..Target::ORIN }).unwrap();
        assert_eq!((grouped.inputs.len(), grouped.outputs.len()), (1, 2));
        grouped.calls.iter().map(|call| (call.code.entry().to_string(), call.grid)).collect()
    }

    #[test]
    fn few_columns_have_parts() {
        assert_eq!(launches([64, 4096]), [("moments_f32".into(), [128, 1, 1])]);
        let [(first, grid), (last, one)] = launches([1 << 20, 8]).try_into().unwrap();
        assert_eq!((first.as_str(), last.as_str(), grid[0], one), ("moments_quads_f32", "moments_parts_f32", 1, [8, 1, 1]));
        assert_eq!(grid[1], 256);
        let [(first, grid), (_, one)] = launches([1 << 20, 7]).try_into().unwrap();
        assert_eq!((first.as_str(), grid, one), ("moments_f32", [1, 256, 1], [7, 1, 1]));
    }

    #[test]
    fn short_rows_have_other_kernels() {
        let [rows, columns] = [[300, 40], [40, 300]].map(|dims| slot(&dims, 0).tensor_type);
        let target = Target { strict: false, ..Target::ORIN };
        assert!(shape(&rows, &[1], &target).is_none() && shape(&columns, &[0], &target).is_some());
        assert!(shape(&columns, &[0], &Target { strict: true, ..target }).is_none());
    }
}
