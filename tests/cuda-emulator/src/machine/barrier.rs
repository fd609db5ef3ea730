//! Barriers of a block, and of some of its warps.

use super::{
    Memory,
    code::{Barrier, Function, Instruction, Operation, Reduction, Vote},
    engine::{Engine, Outcome, Stop, first, stop},
    memory::{Fault, FaultKind},
    registers::{FULL, LANES, lanes},
    warp::Warp,
};

/// Barriers of a block.
const COUNT: usize = 16;

/// The barriers that some warps of a block meet at, and when barriers were.
#[derive(Default)]
pub struct Barriers {
    /// Whether the kernel has such barriers.
    pub are_counted: bool,
    counted: [Counted; COUNT],
    /// Warps that a complete barrier lets go on, each with the accesses that it has ordered.
    released: Vec<(u32, Vec<u32>)>,
    /// The times of the barriers of the whole block.
    pub times: Vec<u32>,
}

/// A barrier that threads of a number meet at.
#[derive(Clone, Default)]
struct Counted {
    /// Threads that it needs, and those that have come.
    needed: u32,
    come: u32,
    /// For each warp, the time up to which the barrier orders its accesses.
    ordered: Vec<u32>,
    waiting: Vec<u32>,
}

impl Barriers {
    pub fn new(function: &Function) -> Self {
        let is_counted = |i: &Instruction| matches!(&i.operation, Operation::Barrier(barrier) if barrier.count.is_some());
        Self { are_counted: function.code.iter().any(is_counted), ..Self::default() }
    }

    pub fn begin(&mut self) {
        self.times.clear();
        self.released.clear();
        if self.are_counted {
            self.counted.fill(Counted::default());
        }
    }
}

impl<M: Memory> Engine<'_, M> {
    /// Runs the warps of a block from barrier to barrier.
    pub fn run_block(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        loop {
            for warp in warps.iter_mut().filter(|warp| warp.runnable() != 0) {
                self.run_warp(warp).map_err(|stop| self.report(warp, *stop))?;
            }
            if self.release_counted(warps) {
                continue;
            }
            let Some(waiting) = warps.iter().find(|warp| warp.waiting != 0) else { return Ok(()) };
            let (lane, place) = (first(waiting.waiting), waiting.places[first(waiting.waiting)]);
            self.check_barrier(warps, place).map_err(|text| {
                let fault = Fault::new(FaultKind::BarrierDivergence, text);
                self.report(waiting, Stop { lane, fault })
            })?;
            self.check_warpgroups(warps)?;
            self.release(warps, place);
        }
    }

    /// Executes a barrier. Returns whether the lanes wait.
    pub fn meet_block(&mut self, warp: &mut Warp, barrier: &Barrier, active: u32) -> Outcome<bool> {
        let Some(count) = barrier.count else { return Ok(true) };
        let diverges = |text: String| stop(first(active), FaultKind::BarrierDivergence, text);
        let number = uniform(warp, barrier.number, active)?;
        let needed = uniform(warp, count, active)?;
        if active != FULL {
            return diverges("a barrier of some warps, which not all lanes of the warp reach together".into());
        }
        let threads: u32 = self.launch.block.iter().product();
        if number as usize >= COUNT || !needed.is_multiple_of(LANES as u32) || !(1..=threads).contains(&needed) {
            return diverges(format!("barrier {number} for {needed} threads"));
        }
        let state = &mut self.barriers.counted[number as usize];
        if state.come > 0 && state.needed != needed {
            return diverges(format!("barrier {number} is for {needed} threads here, for {} elsewhere", state.needed));
        }
        self.clock += 1;
        state.needed = needed;
        state.come += LANES as u32;
        join(&mut state.ordered, &warp.seen);
        state.ordered[warp.index as usize] = self.clock;
        if state.come < needed {
            if barrier.waits {
                state.waiting.push(warp.index);
            }
            return Ok(barrier.waits);
        }
        let complete = std::mem::take(state);
        self.barriers.released.extend(complete.waiting.iter().map(|index| (*index, complete.ordered.clone())));
        if barrier.waits {
            join(&mut warp.seen, &complete.ordered);
            warp.synchronized = self.clock;
        }
        Ok(false)
    }

    /// Lets warps go on whose barriers are complete. Returns whether there were any.
    fn release_counted(&mut self, warps: &mut [Warp]) -> bool {
        let released = std::mem::take(&mut self.barriers.released);
        for (index, ordered) in &released {
            let warp = &mut warps[*index as usize];
            join(&mut warp.seen, ordered);
            warp.synchronized = self.clock;
            let next = warp.places[0] + 1;
            warp.move_to(warp.waiting, next);
            warp.waiting = 0;
        }
        !released.is_empty()
    }

    /// Checks that every thread of the block waits at a barrier.
    fn check_barrier(&self, warps: &[Warp], place: u32) -> Result<(), String> {
        let Operation::Barrier(barrier) = &self.function.code[place as usize].operation else { return Ok(()) };
        if barrier.count.is_some() {
            let states = self.barriers.counted.iter().enumerate().filter(|(_, state)| !state.waiting.is_empty());
            let states: Vec<String> = states.map(|(number, state)| format!("{number} ({} of {})", state.come, state.needed)).collect();
            return Err(format!("it waits for threads that do not come to barrier {}", states.join(" and ")));
        }
        let first = warps[0].registers.narrow.values[barrier.number as usize][0];
        for warp in warps {
            let name = |lane: usize| self.thread(warp, lane);
            if let Some(lane) = lanes(warp.present & !warp.live).next() {
                return Err(format!("it waits at a barrier, but thread {} has ended", name(lane)));
            }
            if let Some(lane) = lanes(warp.waiting).find(|lane| warp.places[*lane] != place) {
                let line = self.function.code[warp.places[lane] as usize].line;
                return Err(format!("it waits at a barrier, but thread {} waits at another one, in line {line}", name(lane)));
            }
            let numbers = &warp.registers.narrow;
            let undefined = warp.waiting & !numbers.defined[barrier.number as usize];
            let reduction = &barrier.reduction;
            if undefined != 0 || reduction.is_some_and(|r| warp.waiting & !warp.registers.predicates_defined[r.source as usize] != 0) {
                let lane = super::engine::first(warp.waiting);
                return Err(format!("an operand of thread {} depends on a value that was never written", name(lane)));
            }
            if let Some(lane) = lanes(warp.waiting).find(|lane| numbers.values[barrier.number as usize][*lane] != first) {
                return Err(format!("it waits at barrier {first}, but thread {} at another one", name(lane)));
            }
        }
        Ok(())
    }

    /// Lets all threads go on after a barrier.
    fn release(&mut self, warps: &mut [Warp], place: u32) {
        self.clock += 1;
        self.barrier = self.clock;
        self.barriers.times.push(self.clock);
        if let Operation::Barrier(barrier) = &self.function.code[place as usize].operation
            && let Some(reduction) = barrier.reduction
        {
            reduce(warps, reduction);
        }
        for warp in warps {
            warp.move_to(warp.waiting, place + 1);
            warp.synchronized = self.clock;
            warp.seen.fill(self.clock);
            warp.waiting = 0;
        }
    }
}

/// The value of a narrow register that all lanes agree on.
fn uniform(warp: &Warp, register: u16, active: u32) -> Outcome<u32> {
    let undefined = active & !warp.registers.narrow.defined[register as usize];
    if undefined != 0 {
        return stop(first(undefined), FaultKind::UninitialisedRegister, "the barrier depends on a value that was never written");
    }
    let values = &warp.registers.narrow.values[register as usize];
    let value = values[first(active)];
    match lanes(active).find(|lane| values[*lane] != value) {
        Some(lane) => stop(lane, FaultKind::BarrierDivergence, format!("a barrier of {} here, of {value} in another lane", values[lane])),
        None => Ok(value),
    }
}

/// Adds to the accesses that are ordered.
fn join(ordered: &mut Vec<u32>, others: &[u32]) {
    ordered.resize(ordered.len().max(others.len()), 0);
    ordered.iter_mut().zip(others).for_each(|(time, other)| *time = (*time).max(*other));
}

/// Gives all threads the reduction of their predicates.
fn reduce(warps: &mut [Warp], reduction: Reduction) {
    let ayes = |warp: &Warp| {
        let value = warp.registers.predicates[reduction.source as usize];
        (warp.live & if reduction.negated { !value } else { value }).count_ones()
    };
    let count: u32 = warps.iter().map(ayes).sum();
    let threads: u32 = warps.iter().map(|warp| warp.live.count_ones()).sum();
    for warp in warps {
        let live = warp.live;
        let verdict = match reduction.kind {
            Vote::Count | Vote::Ballot => {
                super::engine::merge(warp, reduction.destination, [count; LANES], live);
                continue;
            }
            Vote::All => count == threads,
            Vote::Any => count != 0,
            Vote::Uniform => count == threads || count == 0,
        };
        warp.registers.set_predicate(reduction.destination, if verdict { live } else { 0 }, live, live);
    }
}
