//! Steps that become one: a mean, and the mean of the squares of differences from it. Together, they read their tensor once.

use crate::device::merge::{Merged, overlap};
use crate::lower::{Target, reduce};
use gradlet_core::device::{Member, Slot, Source, Step};
use gradlet_core::ops::code;
use gradlet_core::{DType, TensorType};

/// Joins steps that follow each other, where a kernel does the work of both. The first one has nothing left to do then.
pub(super) fn join(steps: &mut [Step], merged: &mut [Option<Merged>], target: &Target) {
    for at in 1..steps.len() {
        if let Some(members) = moments(&steps[at - 1], &steps[at], target) {
            let elements = members.first().and_then(|first| first.output.shape.elements()).unwrap_or(0);
            steps[at] = Step::Group { elements, members };
            merged[at - 1] = Some(Merged::default());
        }
    }
}

/// Returns the members of a step that does the work of a mean and of a variance.
fn moments(first: &Step, second: &Step, target: &Target) -> Option<Vec<Member>> {
    let Step::Group { members: squares, .. } = second else { return None };
    let [difference, square, variance] = squares.as_slice() else { return None };
    if difference.op.code != code::sub || variance.op.code != code::mean || difference.kept.or(square.kept).is_some() {
        return None;
    }
    let mut members = ending_with_mean(first)?;
    let mean = members.last()?;
    let (x, tensor_type, place) = match mean.inputs[..] {
        [Source::Memory(slot)] => (mean.inputs[0], slot.tensor_type, slot),
        [Source::Value { member, tensor_type }] => (mean.inputs[0], tensor_type, members.get(member)?.kept?),
        _ => return None,
    };
    let axes = mean.attributes.get(1..)?;
    let [Source::Memory(minuend), Source::Memory(subtrahend)] = difference.inputs[..] else { return None };
    let same = same(&minuend, &place)
        && minuend.tensor_type == tensor_type
        && difference.output == tensor_type
        && self::same(&subtrahend, &mean.kept?)
        && is_kept(&subtrahend.tensor_type, &tensor_type, axes);
    let squared = square.op.code == code::mul && reads(square, &[0, 0]);
    let own = reads(variance, &[1]) && square.output == tensor_type && variance.attributes.get(1..)? == axes;
    let apart = |slot: &Slot| variance.kept.is_some_and(|variance| !overlap(slot, &variance));
    let read = members.iter().flat_map(|member| &member.inputs).filter_map(|source| memory(source));
    let free = read.chain(members.iter().filter_map(|member| member.kept)).all(|slot| apart(&slot));
    if !(same && squared && own && free && reduce::moments::has_kernel(&tensor_type, axes, target)) {
        return None;
    }
    let base = members.len();
    let value = |member, tensor_type| Source::Value { member, tensor_type };
    let from_mean = vec![x, value(base - 1, subtrahend.tensor_type)];
    members.push(Member { inputs: from_mean, ..difference.clone() });
    members.push(Member { inputs: vec![value(base, tensor_type); 2], ..square.clone() });
    members.push(Member { inputs: vec![value(base + 1, tensor_type)], ..variance.clone() });
    Some(members)
}

/// Returns the members of a step that ends with a mean of f32.
fn ending_with_mean(step: &Step) -> Option<Vec<Member>> {
    let members = match step {
        Step::Op(op) => {
            let (&[x], &[y]) = (op.inputs.as_slice(), op.outputs.as_slice()) else { return None };
            let (attributes, inputs) = (op.attributes.clone(), vec![Source::Memory(x)]);
            vec![Member { op: op.op, attributes, inputs, output: y.tensor_type, kept: Some(y) }]
        }
        Step::Group { members, .. } => members.clone(),
    };
    let ends = members.last().is_some_and(|last| last.op.code == code::mean && last.output.dtype == DType::F32);
    (ends && !reduce::moments::are(&members)).then_some(members)
}

/// True if the inputs of `member` are the values of these members, in the shape of its output or of what it reduces.
fn reads(member: &Member, values: &[usize]) -> bool {
    let read = |source: &Source| if let Source::Value { member, .. } = source { Some(*member) } else { None };
    member.inputs.iter().map(read).eq(values.iter().map(|&value| Some(value)))
}

fn memory(source: &Source) -> Option<Slot> {
    if let Source::Memory(slot) = source { Some(*slot) } else { None }
}

/// True if two slots begin at the same place.
fn same(one: &Slot, other: &Slot) -> bool {
    (one.base, one.offset, one.tensor_type.dtype) == (other.base, other.offset, other.tensor_type.dtype)
}

/// True if `mean` has dimension 1 along these axes of `x`, and otherwise those of `x`.
fn is_kept(mean: &TensorType, x: &TensorType, axes: &[u32]) -> bool {
    let dims = (0..).zip(x.shape.dims()).map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim });
    mean.dtype == x.dtype && dims.eq(mean.shape.dims().iter().copied())
}
