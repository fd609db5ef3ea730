//! Steps that become one: a mean, the mean of the squares of differences from it, and what normalizes rows with both. Together, they read
//! their tensor once.

use crate::device::merge::{Merged, overlap, tensors};
use crate::lower::elementwise::is_elementwise;
use crate::lower::{self, Target, reduce};
use gradlet_core::DType;
use gradlet_core::device::{Member, Slot, Source, Step};
use gradlet_core::ops::code;

/// Most steps after the variance that belong to a normalization: one for values of rows, and one for elements.
const MOST_AFTER: usize = 2;

/// Most steps after the variance among which one may also store the differences from the mean.
const MOST_BETWEEN: usize = 4;

/// Joins steps that follow each other, where a kernel does the work of all. Those before the last one have nothing left to do then.
pub(super) fn join(steps: &mut [Step], merged: &mut [Option<Merged>], target: &Target) {
    for at in 1..steps.len() {
        let Some(mut members) = moments(&steps[at - 1], &steps[at]) else { continue };
        let alone = merged[at + 1..].iter().take(MOST_BETWEEN).take_while(|merged| merged.is_none()).count();
        let after = alone.min(MOST_AFTER);
        let normalizes = |count: usize| Some((at + count, normalization(&members, &steps[at + 1..=at + count], target)?));
        let joined = (1..=after).rev().find_map(normalizes);
        let last = if let Some((last, joined)) = joined {
            members = joined;
            last
        } else if reduce::moments::group(&members, target).is_ok() {
            let (step, next) = steps[at..=at + alone].split_at_mut(1);
            let (difference, mut others) = (members.len() - 3, members.clone());
            others[difference].kept = None;
            if are_apart(&others, difference) && stored_later(&step[0], next, target) {
                members = others;
            } else if !are_apart(&members, difference) {
                continue;
            }
            at
        } else {
            continue;
        };
        let elements = members.first().and_then(|first| first.output.shape.elements()).unwrap_or(0);
        steps[last] = Step::Group { elements, members };
        merged[at - 1..last].iter_mut().for_each(|merged| *merged = Some(Merged::default()));
    }
}

/// Returns the members of a step that also does the work of the steps `after` those that find moments.
fn normalization(moments: &[Member], after: &[Step], target: &Target) -> Option<Vec<Member>> {
    let mut members = moments.to_vec();
    for step in after {
        let Step::Group { members: own, .. } = step else { return None };
        let base = members.len();
        for member in own {
            let inputs = member.inputs.iter().map(|source| read_after(source, base, &members)).collect::<Option<_>>()?;
            members.push(Member { inputs, ..member.clone() });
        }
    }
    let fits = reduce::normalize::are(&members) && are_apart(&members, moments.len() - 3);
    (fits && reduce::normalize::group(&members, target).is_ok()).then_some(members)
}

/// Moves the differences from the mean, if the step `squares` stores them, to one of the steps `after` it, which reads the same tensor.
/// Returns true if it did.
fn stored_later(squares: &Step, after: &mut [Step], target: &Target) -> bool {
    let Step::Group { members: squares, .. } = squares else { return false };
    let Some((difference, place)) = squares.first().and_then(|first| Some((first, first.kept?))) else { return false };
    let own: Vec<Slot> = difference.inputs.iter().filter_map(memory).collect();
    for step in after {
        let (read, written) = tensors(step);
        if read.iter().chain(&written).any(|slot| overlap(slot, &place)) {
            return false;
        }
        if let Step::Group { elements, members } = step
            && own.first().is_some_and(|x| read.iter().any(|slot| same(slot, x)))
            && difference.output.shape.elements() == Some(*elements)
        {
            let mut with = vec![difference.clone()];
            let shifted = |source: &Source| match *source {
                Source::Value { member, tensor_type } => Source::Value { member: member + 1, tensor_type },
                memory => memory,
            };
            with.extend(members.iter().map(|member| Member { inputs: member.inputs.iter().map(shifted).collect(), ..member.clone() }));
            // A product stays the first member of its group.
            let fits = members.first().is_some_and(|first| is_elementwise(first.op)) && lower::group(*elements, &with, target).is_ok();
            if fits {
                *members = with;
            }
            return fits;
        }
        if written.iter().any(|slot| own.iter().any(|own| overlap(slot, own))) {
            return false;
        }
    }
    false
}

/// Returns an input of a step that stands after `members`, whose own members count from `base` on. It is a value if they have stored it.
fn read_after(source: &Source, base: usize, members: &[Member]) -> Option<Source> {
    match *source {
        Source::Value { member, tensor_type } => Some(Source::Value { member: member + base, tensor_type }),
        Source::Memory(slot) => {
            let stores = |member: &Member| member.kept.is_some_and(|kept| overlap(&kept, &slot));
            match members.iter().rposition(stores) {
                Some(member) if members[member].kept.is_some_and(|kept| same(&kept, &slot)) => {
                    Some(Source::Value { member, tensor_type: slot.tensor_type })
                }
                Some(_) => None,
                None => Some(*source),
            }
        }
    }
}

/// True if nothing is written where something else is read or written, from member `from` on, which has a result for each element. A thread
/// may write its own elements where it has read them, and a value of a row where another one was.
fn are_apart(members: &[Member], from: usize) -> bool {
    let read: Vec<Slot> = members.iter().flat_map(|member| &member.inputs).filter_map(memory).collect();
    let written: Vec<Slot> = members.iter().filter_map(|member| member.kept).collect();
    let whole = |slot: &Slot| slot.tensor_type.shape.elements() == members[from].output.shape.elements();
    let free = |slot: &Slot| {
        let apart = |other: &Slot, may_be_same: bool| !overlap(slot, other) || may_be_same && same(slot, other);
        read.iter().all(|other| apart(other, whole(slot) && whole(other)))
            && written.iter().all(|other| apart(other, whole(slot) == whole(other)))
    };
    members[from..].iter().filter_map(|member| member.kept).all(|slot| free(&slot))
}

/// Returns the members of a step that does the work of a mean and of a variance.
fn moments(first: &Step, second: &Step) -> Option<Vec<Member>> {
    let Step::Group { members: squares, .. } = second else { return None };
    let [difference, square, variance] = squares.as_slice() else { return None };
    if difference.op.code != code::sub || variance.op.code != code::mean || square.kept.is_some() {
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
        && Some(subtrahend.tensor_type) == reduce::normalize::kept(&tensor_type, DType::F32, axes);
    let squared = square.op.code == code::mul && reads(square, &[0, 0]);
    let own = reads(variance, &[1]) && square.output == tensor_type && variance.attributes.get(1..)? == axes;
    if !(same && squared && own) {
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

/// True if two slots are the same place, with as many elements of one type.
fn same(one: &Slot, other: &Slot) -> bool {
    let key = |slot: &Slot| (slot.base, slot.offset, slot.tensor_type.dtype, slot.tensor_type.shape.elements());
    key(one) == key(other)
}
