//! The order of the steps of a graph: which of them wait for which.

use gradlet_core::device::Slot;

/// Effects of a step.
#[derive(Default)]
pub(super) struct Effects {
    reads: Vec<Bytes>,
    writes: Vec<Bytes>,
    /// True if the step uses the device's workspace, which all steps share.
    workspace: bool,
    /// True if the step may refuse its data. No later step may have changed a buffer of the program then.
    refuses: bool,
}

/// A range of bytes of a base, the first of which is the scratch memory of the function.
struct Bytes {
    base: u32,
    start: u64,
    end: u64,
}

impl Bytes {
    fn of(slot: &Slot) -> Bytes {
        let end = slot.offset.saturating_add(slot.tensor_type.bytes().unwrap_or(usize::MAX) as u64);
        Bytes { base: slot.base, start: slot.offset, end }
    }

    fn meets(&self, other: &Bytes) -> bool {
        self.base == other.base && self.start < other.end && other.start < self.end
    }
}

impl Effects {
    pub(super) fn new(inputs: &[Slot], outputs: &[Slot], workspace: bool, refuses: bool) -> Effects {
        let bytes = |slots: &[Slot]| slots.iter().map(Bytes::of).collect();
        Effects { reads: bytes(inputs), writes: bytes(outputs), workspace, refuses }
    }

    pub(super) fn refuses(&self) -> bool {
        self.refuses
    }

    /// True if this step must run after the step `before`.
    fn follows(&self, before: &Effects) -> bool {
        let meet = |one: &[Bytes], other: &[Bytes]| one.iter().any(|one| other.iter().any(|other| one.meets(other)));
        let lasts = self.refuses || self.writes.iter().any(|bytes| bytes.base != 0);
        before.refuses && lasts
            || self.workspace && before.workspace
            || meet(&self.reads, &before.writes)
            || meet(&self.writes, &before.writes)
            || meet(&self.writes, &before.reads)
    }
}

/// Returns for each step the earlier steps that it waits for. Those for which others of them wait already are left out.
pub(super) fn order(steps: &[Effects]) -> Vec<Vec<usize>> {
    // For each step, a bit for every earlier one that has ended when it begins.
    let mut ended: Vec<Vec<u64>> = Vec::with_capacity(steps.len());
    let mut order = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let (mut own, mut waits) = (vec![0u64; steps.len().div_ceil(64)], Vec::new());
        for before in (0..index).rev() {
            if own[before / 64] >> (before % 64) & 1 == 0 && step.follows(&steps[before]) {
                own.iter_mut().zip(&ended[before]).for_each(|(own, of_other)| *own |= of_other);
                own[before / 64] |= 1 << (before % 64);
                waits.push(before);
            }
        }
        ended.push(own);
        order.push(waits);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{DType, Shape, TensorType};

    /// Returns a slot of 4 bytes.
    fn slot(base: u32, offset: u64) -> Slot {
        Slot { tensor_type: TensorType::new(DType::F32, Shape::SCALAR), base, offset }
    }

    fn step(reads: &[Slot], writes: &[Slot]) -> Effects {
        Effects::new(reads, writes, false, false)
    }

    #[test]
    fn steps_wait_for_those_whose_memory_they_share() {
        let [a, b, c] = [0, 4, 8].map(|offset| slot(0, offset));
        // Two branches that meet, then memory of an input that is written again.
        let steps = [step(&[], &[a]), step(&[a], &[b]), step(&[a], &[c]), step(&[b, c], &[slot(1, 0)]), step(&[], &[b])];
        assert_eq!(order(&steps), [vec![], vec![0], vec![0], vec![2, 1], vec![3]]);
        // Other memory, and a part of a tensor.
        let steps = [step(&[], &[a]), step(&[], &[slot(1, 0)]), step(&[], &[slot(0, 2)]), step(&[slot(0, 4)], &[])];
        assert_eq!(order(&steps), [vec![], vec![], vec![0], vec![2]]);
    }

    #[test]
    fn the_workspace_is_shared() {
        let parts = |offset| Effects::new(&[], &[slot(0, offset)], true, false);
        assert_eq!(order(&[parts(0), step(&[], &[slot(0, 4)]), parts(8)]), [vec![], vec![], vec![0]]);
    }

    #[test]
    fn what_lasts_waits_for_checks() {
        let check = |offset| Effects::new(&[slot(0, offset)], &[], false, true);
        let steps = [check(0), check(4), step(&[], &[slot(0, 8)]), step(&[], &[slot(3, 0)])];
        assert_eq!(order(&steps), [vec![], vec![0], vec![], vec![1]]);
    }

    #[test]
    fn many_steps_wait_only_for_the_last_ones() {
        let chain: Vec<Effects> = (0..200).map(|_| step(&[slot(0, 0)], &[slot(0, 0)])).collect();
        assert!(order(&chain).iter().enumerate().all(|(index, waits)| *waits == index.checked_sub(1).into_iter().collect::<Vec<_>>()));
    }
}
