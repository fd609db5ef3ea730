//! Execution of a launch: blocks one after another, warps one after another, lanes together.

use super::{
    Launch, Memory, Options, Statistics,
    barrier::Barriers,
    code::{Exchange, Function, Instruction, Operation, Place, Special, WarpOperation},
    matrix::Warpgroups,
    memory::{Fault, FaultKind},
    races::Races,
    registers::{LANES, Register, fill, lanes},
    shadow::Moment,
    spaces::Shared,
    warp::Warp,
};

/// Reason why a lane stopped.
pub struct Stop {
    pub lane: usize,
    pub fault: Fault,
}

/// A result, or a stop; boxed, because there is at most one.
pub type Outcome<T> = Result<T, Box<Stop>>;

/// A stop of a lane.
#[cold]
pub fn stop<T>(lane: usize, kind: FaultKind, text: impl Into<String>) -> Outcome<T> {
    Err(Box::new(Stop { lane, fault: Fault::new(kind, text) }))
}

/// The first lane of a mask.
pub fn first(mask: u32) -> usize {
    (mask.trailing_zeros() as usize).min(LANES - 1)
}

/// The state of a launch.
pub struct Engine<'l, M> {
    pub function: &'l Function,
    pub launch: &'l Launch<'l>,
    pub memory: &'l mut M,
    pub shared: Shared,
    pub races: Option<Races>,
    pub block: [u32; 3],
    /// Counts synchronizations.
    pub clock: u32,
    /// When the block began, and when its last barrier was.
    pub begin: u32,
    pub barrier: u32,
    pub barriers: Barriers,
    pub warpgroups: Warpgroups,
    pub budget: u64,
    pub statistics: Statistics,
}

/// Effect of an instruction on the lanes that execute it together.
enum Flow {
    Next,
    /// They continue elsewhere.
    Jump(u32),
    /// Some of them leave the group: they ended or wait.
    Leave(u32),
    /// Others join the group.
    Join(u32),
    /// They continue where [`Warp::places`] says.
    Scatter,
}

impl<'l, M: Memory> Engine<'l, M> {
    pub fn new(launch: &'l Launch<'l>, memory: &'l mut M, options: &Options) -> Self {
        let size = launch.function.shared + launch.dynamic_shared;
        let barriers = Barriers::new(launch.function);
        let warps = launch.block.iter().product::<u32>().div_ceil(LANES as u32);
        Self {
            function: launch.function,
            launch,
            memory,
            shared: Shared::new(size as usize, launch.function.shared_bytewise, if barriers.are_counted { warps as usize } else { 0 }),
            races: options.global_races.then(Races::default),
            block: [0; 3],
            clock: 0,
            begin: 0,
            barrier: 0,
            barriers,
            warpgroups: Warpgroups::new(launch.function),
            budget: options.budget,
            statistics: Statistics::default(),
        }
    }

    /// When and by whom a lane accesses memory.
    #[inline(always)]
    pub fn moment<'w>(&self, warp: &'w Warp, lane: usize) -> Moment<'w> {
        Moment {
            now: self.clock,
            thread: warp.thread(lane),
            begin: self.begin,
            barrier: self.barrier,
            warp: warp.synchronized,
            seen: &warp.seen,
        }
    }

    /// Runs a warp until each lane has ended or waits at a barrier.
    pub fn run_warp(&mut self, warp: &mut Warp) -> Outcome<()> {
        loop {
            while let Some((place, mask, next)) = warp.hindmost() {
                self.run_group(warp, place, mask, next)?;
            }
            if warp.parked == 0 {
                return Ok(());
            }
            self.release_parked(warp)?;
        }
    }

    /// Runs lanes that are at the same place until they part, stop, or reach the next lanes.
    fn run_group(&mut self, warp: &mut Warp, mut place: u32, mut mask: u32, next: u32) -> Outcome<()> {
        let function = self.function;
        let mut count = u64::from(mask.count_ones());
        if self.statistics.warp_instructions > self.budget {
            warp.move_to(mask, place);
            return stop(first(mask), FaultKind::Timeout, format!("the launch executed more than {} instructions", self.budget));
        }
        while place < next {
            let instruction = &function.code[place as usize];
            self.statistics.warp_instructions += 1;
            self.statistics.lane_instructions += count;
            let active = guarded(warp, instruction, mask).map_err(|stop| located(warp, mask, place, stop))?;
            if active == 0 {
                place += 1;
                continue;
            }
            if instruction.flops != 0 {
                let lanes = if active == mask { count } else { active.count_ones().into() };
                self.statistics.flops += u64::from(instruction.flops) * lanes;
            }
            if let Operation::Compute(f, operands) = &instruction.operation {
                f(&mut warp.registers, operands, active);
                place += 1;
                continue;
            }
            match self.execute(warp, instruction, place, active).map_err(|stop| located(warp, mask, place, stop))? {
                Flow::Next => place += 1,
                Flow::Jump(target) if active == mask => {
                    if target <= place && self.statistics.warp_instructions > self.budget {
                        break;
                    }
                    place = target;
                }
                Flow::Jump(target) => {
                    warp.move_to(active, target);
                    warp.move_to(mask & !active, place + 1);
                    return Ok(());
                }
                Flow::Scatter => {
                    warp.move_to(mask & !active, place + 1);
                    return Ok(());
                }
                Flow::Leave(leaving) => {
                    mask &= !leaving;
                    if mask == 0 {
                        return Ok(());
                    }
                    count = mask.count_ones().into();
                    place += 1;
                }
                Flow::Join(joining) => {
                    mask |= joining;
                    count = mask.count_ones().into();
                    place += 1;
                }
            }
        }
        warp.move_to(mask, place);
        Ok(())
    }

    /// Executes what is no computation with registers.
    fn execute(&mut self, warp: &mut Warp, instruction: &Instruction, place: u32, active: u32) -> Outcome<Flow> {
        match &instruction.operation {
            Operation::Compute(f, operands) => f(&mut warp.registers, operands, active),
            Operation::Load(transfer) => self.load(warp, transfer, active)?,
            Operation::Store(transfer) => self.store(warp, transfer, active)?,
            Operation::Atomic(atomic) => self.atomic(warp, atomic, active)?,
            Operation::Special(special, to) => self.special(warp, *special, *to, active),
            Operation::Copy(from, to, length) => copy(warp, *from, *to, *length, active)?,
            Operation::Branch(target) => return Ok(Flow::Jump(*target)),
            Operation::Switch(index, targets) => return switch(warp, *index, targets, active),
            Operation::Call(target, link) => {
                let back = [place + 1; LANES];
                let kept = warp.registers.narrow.values[*link as usize];
                let merged = std::array::from_fn(|lane| if active >> lane & 1 != 0 { back[lane] } else { kept[lane] });
                warp.registers.narrow.set(*link, merged, active, active);
                return Ok(Flow::Jump(*target));
            }
            Operation::Return(link) => {
                let back = warp.registers.narrow.values[*link as usize];
                let target = back[first(active)];
                if lanes(active).all(|lane| back[lane] == target) {
                    return Ok(Flow::Jump(target));
                }
                lanes(active).for_each(|lane| warp.places[lane] = back[lane]);
                return Ok(Flow::Scatter);
            }
            Operation::Exit => {
                warp.live &= !active;
                return Ok(Flow::Leave(active));
            }
            Operation::Trap => return stop(first(active), FaultKind::Trap, "the kernel gives up"),
            Operation::Barrier(barrier) => {
                if !self.meet_block(warp, barrier, active)? {
                    return Ok(Flow::Next);
                }
                warp.waiting |= active;
                warp.move_to(active, place);
                return Ok(Flow::Leave(active));
            }
            Operation::Warp(operation, exchange) => return self.meet(warp, *operation, exchange, place, active),
            Operation::ActiveMask(d) => {
                let values = [active; LANES];
                merge(warp, *d, values, active);
            }
            Operation::CopyAsync(copy) => self.copy_async(warp, copy, active)?,
            Operation::CommitCopies => warp.copies.commit(active),
            Operation::WaitCopies(groups) => self.wait_copies(warp, *groups, active),
            Operation::ProxyFence => self.fence_proxy(warp, active),
            Operation::LoadMatrix(load) => self.load_matrix(warp, load, active)?,
            Operation::Product(product) => self.product(warp, product, active)?,
            Operation::Warpgroup(operation) => self.warpgroup(warp, operation, place, active)?,
        }
        Ok(Flow::Next)
    }

    /// Executes a warp's operation once all lanes that it names are there; until then the lanes are parked.
    fn meet(&mut self, warp: &mut Warp, operation: WarpOperation, exchange: &Exchange, place: u32, active: u32) -> Outcome<Flow> {
        let members = Self::members(warp, exchange, active)?;
        let parked = warp.at(warp.parked, place);
        if members & warp.live & !(active | parked) != 0 {
            warp.parked |= active;
            warp.move_to(active, place);
            return Ok(Flow::Leave(active));
        }
        warp.parked &= !parked;
        self.clock += 1;
        warp.synchronized = self.clock;
        self.exchange(warp, operation, exchange, active | parked)?;
        Ok(Flow::Join(parked))
    }

    /// Lets parked lanes go on whose partners have ended since.
    fn release_parked(&mut self, warp: &mut Warp) -> Outcome<()> {
        for lane in lanes(warp.parked) {
            let place = warp.places[lane];
            let group = warp.at(warp.parked, place);
            if let Operation::Warp(_, exchange) = &self.function.code[place as usize].operation
                && warp.registers.narrow.values[exchange.members as usize][lane] & warp.live & !group == 0
            {
                warp.parked &= !group;
                return Ok(());
            }
        }
        let lane = first(warp.parked);
        stop(lane, FaultKind::WarpDivergence, "it waits for lanes of its warp that do not come: they wait elsewhere")
    }

    fn special(&self, warp: &mut Warp, special: Special, to: Place, active: u32) {
        let uniform = |value: u32| [value; LANES];
        let lane = |f: fn(u32) -> u32| std::array::from_fn(|lane| f(lane as u32));
        let threads: u32 = self.launch.block.iter().product();
        let values = match special {
            Special::Thread(axis) => warp.threads[axis as usize],
            Special::BlockSize(axis) => uniform(self.launch.block[axis as usize]),
            Special::Block(axis) => uniform(self.block[axis as usize]),
            Special::GridSize(axis) => uniform(self.launch.grid[axis as usize]),
            Special::Lane => lane(|lane| lane),
            Special::Warp => uniform(warp.index),
            Special::Warps => uniform(threads.div_ceil(LANES as u32)),
            Special::LaneEqual => lane(|lane| 1 << lane),
            Special::LaneBelow => lane(|lane| (1 << lane) - 1),
            Special::LaneUpTo => lane(|lane| u32::MAX >> (31 - lane)),
            Special::LaneAbove => lane(|lane| !(u32::MAX >> (31 - lane))),
            Special::LaneFrom => lane(|lane| u32::MAX << lane),
            Special::Clock => uniform(self.statistics.warp_instructions as u32),
            Special::DynamicShared => uniform(self.launch.dynamic_shared),
            Special::TotalShared => uniform(self.shared.bytes.len() as u32),
            Special::Zero => uniform(0),
            Special::One => uniform(1),
        };
        match to {
            Place::Narrow(d) => merge(warp, d, values, active),
            Place::Wide(d) => {
                let mut out = warp.registers.wide.values[d as usize];
                lanes(active).for_each(|lane| out[lane] = values[lane].into());
                warp.registers.wide.set(d, out, active, active);
            }
            Place::Nowhere => {}
        }
    }
}

/// Sets lanes of a narrow register.
pub fn merge(warp: &mut Warp, d: Register, values: [u32; LANES], active: u32) {
    let mut out = warp.registers.narrow.values[d as usize];
    fill(&mut out, active, |lane| values[lane]);
    warp.registers.narrow.set(d, out, active, active);
}

/// The lanes of a group whose guard holds.
#[inline(always)]
fn guarded(warp: &Warp, instruction: &Instruction, mask: u32) -> Outcome<u32> {
    let guard = instruction.guard as usize;
    let value = warp.registers.predicates[guard];
    let undefined = mask & !warp.registers.predicates_defined[guard];
    if undefined != 0 {
        return stop(first(undefined), FaultKind::UninitialisedRegister, "the condition depends on a value that was never written");
    }
    Ok(mask & if instruction.negated { !value } else { value })
}

/// Notes where the lanes are, for the report of a fault.
#[cold]
fn located(warp: &mut Warp, mask: u32, place: u32, stop: Box<Stop>) -> Box<Stop> {
    warp.move_to(mask, place);
    stop
}

fn switch(warp: &mut Warp, index: Register, targets: &[u32], active: u32) -> Outcome<Flow> {
    let undefined = active & !warp.registers.narrow.defined[index as usize];
    if undefined != 0 {
        return stop(first(undefined), FaultKind::UninitialisedRegister, "the index depends on a value that was never written");
    }
    let indices = warp.registers.narrow.values[index as usize];
    for lane in lanes(active) {
        match targets.get(indices[lane] as usize) {
            Some(target) => warp.places[lane] = *target,
            None => {
                let text = format!("the index {} of a branch with {} targets", indices[lane], targets.len());
                return stop(lane, FaultKind::Trap, text);
            }
        }
    }
    Ok(Flow::Scatter)
}

fn copy(warp: &mut Warp, from: u32, to: u32, length: u32, active: u32) -> Outcome<()> {
    for lane in lanes(active) {
        let place = |address: u32| warp.local.offset(lane, address.into(), length as usize).map_err(|fault| Box::new(Stop { lane, fault }));
        let (from, to) = (place(from)?, place(to)?);
        warp.local.bytes.copy_within(from..from + length as usize, to);
        warp.local.written.copy_within(from..from + length as usize, to);
    }
    Ok(())
}
