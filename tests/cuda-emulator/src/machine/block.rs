//! Blocks and their barriers.

use super::{
    Launch, Memory, Options, Statistics,
    code::{Operation, Reduction, Vote, Word},
    engine::{Engine, Stop, first},
    memory::{Fault, FaultKind},
    registers::{LANES, lanes},
    warp::Warp,
};

/// Checks a launch against the limits of GPUs and of its kernel.
pub fn check(launch: &Launch<'_>) -> Result<(), Fault> {
    let ([gx, gy, gz], [x, y, z]) = (launch.grid, launch.block);
    let function = launch.function;
    let wrong = if gx == 0 || gx > i32::MAX as u32 || !(1..=65_535).contains(&gy) || !(1..=65_535).contains(&gz) {
        format!("a grid of {gx}×{gy}×{gz} blocks")
    } else if !(1..=1024).contains(&x) || !(1..=1024).contains(&y) || !(1..=64).contains(&z) || x * y * z > function.max_threads {
        format!("a block of {x}×{y}×{z} threads, where {} are allowed", function.max_threads)
    } else if function.shared.saturating_add(launch.dynamic_shared) > 48 << 10 {
        format!("{} + {} bytes of shared memory", function.shared, launch.dynamic_shared)
    } else if launch.parameters.len() != function.parameter_bytes() as usize {
        format!("{} bytes of parameters, where {} are expected", launch.parameters.len(), function.parameter_bytes())
    } else if let Some(Word::Address(name, _)) =
        function.constants.iter().map(|c| &c.value).find(|value| matches!(value, Word::Address(..)))
    {
        format!("the variable `{name}` has no address: the module is not linked")
    } else {
        return Ok(());
    };
    Err(Fault::new(FaultKind::LaunchLimits, format!("`{}`: {wrong}", function.name)))
}

/// Runs all blocks.
pub fn run<M: Memory>(launch: &Launch<'_>, memory: &mut M, options: &Options) -> Result<Statistics, Fault> {
    check(launch)?;
    let mut engine = Engine::new(launch, memory, options);
    let threads: u32 = launch.block.iter().product();
    let count = threads.div_ceil(LANES as u32);
    let template = Warp::new(launch.function);
    // Without barriers one warp is over before the next begins, and all can use the same registers.
    let together = launch.function.code.iter().any(|i| matches!(i.operation, Operation::Barrier(..)));
    let mut warps: Vec<Warp> = (0..if together { count } else { 1 }).map(|_| Warp::new(launch.function)).collect();
    for z in 0..launch.grid[2] {
        for y in 0..launch.grid[1] {
            for x in 0..launch.grid[0] {
                engine.begin_block([x, y, z]);
                if together {
                    for (index, warp) in warps.iter_mut().enumerate() {
                        warp.begin(index as u32, launch, &template.registers, engine.begin);
                    }
                    engine.run_block(&mut warps)?;
                } else {
                    for index in 0..count {
                        warps[0].begin(index, launch, &template.registers, engine.begin);
                        engine.run_warp(&mut warps[0]).map_err(|stop| engine.report(&warps[0], *stop))?;
                    }
                }
            }
        }
    }
    Ok(engine.statistics)
}

impl<M: Memory> Engine<'_, M> {
    fn begin_block(&mut self, block: [u32; 3]) {
        self.block = block;
        self.clock += 1;
        (self.begin, self.barrier) = (self.clock, self.clock);
        if let Some(races) = &mut self.races {
            races.begins.push(self.clock);
        }
    }

    /// Runs the warps of a block from barrier to barrier.
    fn run_block(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        loop {
            for warp in warps.iter_mut().filter(|warp| warp.runnable() != 0) {
                self.run_warp(warp).map_err(|stop| self.report(warp, *stop))?;
            }
            let Some(waiting) = warps.iter().find(|warp| warp.waiting != 0) else { return Ok(()) };
            let (lane, place) = (first(waiting.waiting), waiting.places[first(waiting.waiting)]);
            self.check_barrier(warps, place).map_err(|text| {
                let fault = Fault::new(FaultKind::BarrierDivergence, text);
                self.report(waiting, Stop { lane, fault })
            })?;
            self.release(warps, place);
        }
    }

    /// Checks that every thread of the block waits at a barrier.
    fn check_barrier(&self, warps: &[Warp], place: u32) -> Result<(), String> {
        for warp in warps {
            let name = |lane: usize| self.thread(warp, lane);
            if let Some(lane) = lanes(warp.present & !warp.live).next() {
                return Err(format!("it waits at a barrier, but thread {} has ended", name(lane)));
            }
            if let Some(lane) = lanes(warp.waiting).find(|lane| warp.places[*lane] != place) {
                let line = self.function.code[warp.places[lane] as usize].line;
                return Err(format!("it waits at a barrier, but thread {} waits at another one, in line {line}", name(lane)));
            }
            let Operation::Barrier(number, reduction) = &self.function.code[place as usize].operation else { continue };
            let numbers = &warp.registers.narrow;
            let undefined = warp.waiting & !numbers.defined[*number as usize];
            if undefined != 0 || reduction.is_some_and(|r| warp.waiting & !warp.registers.predicates_defined[r.source as usize] != 0) {
                return Err(format!("an operand of thread {} depends on a value that was never written", name(first(warp.waiting))));
            }
            let first = warps[0].registers.narrow.values[*number as usize][0];
            if let Some(lane) = lanes(warp.waiting).find(|lane| numbers.values[*number as usize][*lane] != first) {
                return Err(format!("it waits at barrier {first}, but thread {} at another one", name(lane)));
            }
        }
        Ok(())
    }

    /// Lets all threads go on after a barrier.
    fn release(&mut self, warps: &mut [Warp], place: u32) {
        self.clock += 1;
        self.barrier = self.clock;
        if let Operation::Barrier(_, Some(reduction)) = self.function.code[place as usize].operation {
            reduce(warps, reduction);
        }
        for warp in warps {
            warp.move_to(warp.waiting, place + 1);
            warp.synchronized = self.clock;
            warp.waiting = 0;
        }
    }

    /// The coordinates of a lane's thread.
    fn thread(&self, warp: &Warp, lane: usize) -> String {
        let [x, y, z] = [0, 1, 2].map(|axis| warp.threads[axis][lane]);
        format!("({x}, {y}, {z})")
    }

    /// Adds to a fault where it happened.
    fn report(&self, warp: &Warp, stop: Stop) -> Fault {
        let function = self.function;
        let line = function.code.get(warp.places[stop.lane] as usize).map_or(0, |i| i.line);
        let text = function.source.binary_search_by_key(&line, |(line, _)| *line).map_or("", |index| &function.source[index].1);
        let [x, y, z] = self.block;
        let thread = self.thread(warp, stop.lane);
        Fault::new(
            stop.fault.kind,
            format!("`{}`, block ({x}, {y}, {z}), thread {thread}, line {line} `{text}`: {}", function.name, stop.fault.text),
        )
    }
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
