//! Steps that become one launch, because they do the same work on different tensors: those of an optimizer.

use crate::lower::Target;
use crate::lower::call::KernelCall;
use crate::lower::elementwise::{Segment, Work, segment};
use gradlet_core::Result;
use gradlet_core::device::{Slot, Source, Step};

/// The part of a step in a launch for several steps. The launch belongs to the last one of them. The others have nothing left to do.
#[derive(Default)]
pub(super) struct Merged {
    pub call: Option<KernelCall>,
    /// The inputs and outputs of all steps of the launch.
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
}

/// Finds the steps that become one launch. Returns the part of each step, or `None` if the step stays alone.
///
/// All steps but the last one of a launch then run later than in the order of `steps`. Hence a step only joins others if no step after them
/// needs their results or writes their tensors.
pub(super) fn merge(steps: &[Step], target: &Target) -> Result<Vec<Option<Merged>>> {
    let mut merged: Vec<Option<Merged>> = steps.iter().map(|_| None).collect();
    let mut open: Vec<Batch> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let (read, written) = tensors(step);
        let (ended, other): (Vec<Batch>, Vec<Batch>) = open.into_iter().partition(|batch| batch.meets(&read, &written));
        ended.into_iter().for_each(|batch| batch.end(&mut merged, target));
        open = other;
        let Some((work, own)) = segment(step, target)? else { continue };
        match open.iter_mut().find(|batch| batch.work == work && batch.segments.len() < work.most_segments()) {
            Some(batch) => batch.segments.push((index, own)),
            None => open.push(Batch { work, segments: vec![(index, own)] }),
        }
    }
    open.into_iter().for_each(|batch| batch.end(&mut merged, target));
    Ok(merged)
}

/// Independent steps with the same work.
struct Batch {
    work: Work,
    /// The steps' numbers and tensors.
    segments: Vec<(usize, Segment)>,
}

impl Batch {
    /// True if a step that reads and writes these tensors must run after the batch.
    fn meets(&self, read: &[Slot], written: &[Slot]) -> bool {
        let meet = |one: &[Slot], other: &[Slot]| one.iter().any(|one| other.iter().any(|other| overlap(one, other)));
        self.segments.iter().any(|(_, own)| meet(&own.outputs, read) || meet(&own.outputs, written) || meet(&own.inputs, written))
    }

    /// Gives the steps their parts, if there are several.
    fn end(self, merged: &mut [Option<Merged>], target: &Target) {
        let Some(((last, _), others @ [_, ..])) = self.segments.split_last() else { return };
        others.iter().for_each(|(index, _)| merged[*index] = Some(Merged::default()));
        let elements: Vec<u64> = self.segments.iter().map(|(_, own)| own.elements).collect();
        let slots = |of: fn(&Segment) -> &[Slot]| self.segments.iter().flat_map(|(_, own)| of(own)).copied().collect();
        let (inputs, outputs) = (slots(|own| &own.inputs), slots(|own| &own.outputs));
        merged[*last] = Some(Merged { call: Some(self.work.launch(&elements, target)), inputs, outputs });
    }
}

/// Returns the tensors that a step reads, and those that it writes.
pub(super) fn tensors(step: &Step) -> (Vec<Slot>, Vec<Slot>) {
    match step {
        Step::Op(op) => (op.inputs.clone(), op.outputs.clone()),
        Step::Group { members, .. } => {
            let read = members.iter().flat_map(|member| &member.inputs).filter_map(|source| match source {
                Source::Memory(slot) => Some(*slot),
                Source::Value { .. } => None,
            });
            (read.collect(), members.iter().filter_map(|member| member.kept).collect())
        }
    }
}

/// True if two slots have a byte in common.
pub(super) fn overlap(one: &Slot, other: &Slot) -> bool {
    let end = |slot: &Slot| slot.offset.saturating_add(slot.tensor_type.bytes().unwrap_or(usize::MAX) as u64);
    one.base == other.base && one.offset < end(other) && other.offset < end(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::device::StepOp;
    use gradlet_core::{DType, Shape, TensorType, ops};

    fn slot(base: u32, elements: u32) -> Slot {
        Slot { tensor_type: TensorType::new(DType::F32, Shape::new(&[elements]).unwrap()), base, offset: 0 }
    }

    fn step(op: &'static gradlet_core::custom_op::OpDef, inputs: &[Slot], output: Slot) -> Step {
        Step::Op(StepOp { op, attributes: Vec::new(), inputs: inputs.to_vec(), outputs: vec![output] })
    }

    /// A step of gradient descent on variable `base` by gradient `base + 10`. The learning rate is in the scratch memory.
    fn descent(base: u32) -> Step {
        let variable = slot(base, 20);
        step(&ops::sgd_step::DEF, &[variable, slot(base + 10, 20), slot(0, 1)], variable)
    }

    /// Returns the numbers of the steps that have a launch for several steps, and the operands of those launches.
    fn launches(steps: &[Step]) -> Vec<(usize, usize)> {
        let merged = merge(steps, &Target::ORIN).unwrap();
        let launches = merged.iter().enumerate().filter_map(|(index, merged)| Some((index, merged.as_ref()?)));
        launches
            .filter(|(_, merged)| merged.call.is_some())
            .map(|(index, merged)| (index, merged.inputs.len() + merged.outputs.len()))
            .collect()
    }

    #[test]
    fn independent_steps_become_one() {
        let product = step(&ops::matmul::DEF, &[slot(5, 20), slot(6, 20)], slot(12, 20));
        assert_eq!(launches(&[descent(1), descent(2), descent(3)]), [(2, 12)]);
        assert_eq!(launches(&[descent(1), product.clone(), descent(2)]), [(2, 8)]);
        assert_eq!(launches(&[descent(1)]), []);
        // Other work stays apart.
        let other = step(&ops::add::DEF, &[slot(7, 20), slot(8, 20)], slot(9, 20));
        assert_eq!(launches(&[descent(1), other.clone(), descent(2), other]), [(2, 8)]);
    }

    #[test]
    fn a_step_between_keeps_its_place() {
        // It reads the first variable, writes the first gradient, or writes the first variable.
        for (inputs, output) in [([slot(1, 20), slot(5, 20)], 6), ([slot(5, 20), slot(6, 20)], 11), ([slot(5, 20), slot(6, 20)], 1)] {
            let between = step(&ops::matmul::DEF, &inputs, slot(output, 20));
            assert_eq!(launches(&[descent(1), between.clone(), descent(2), descent(3)]), [(3, 8)]);
        }
        // Two steps on one variable.
        assert_eq!(launches(&[descent(1), descent(1), descent(2)]), [(2, 8)]);
    }

    #[test]
    fn a_table_has_room_for_some() {
        let steps: Vec<Step> = (1..=90).map(|base| descent(base * 20)).collect();
        assert_eq!(launches(&steps), [(70, 71 * 4), (89, 19 * 4)]);
    }
}
