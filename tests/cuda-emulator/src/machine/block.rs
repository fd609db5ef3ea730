//! Blocks and their barriers.

use super::{
    Launch, Memory, Options, Statistics,
    code::{Operation, Word},
    engine::{Engine, Stop},
    memory::{Fault, FaultKind},
    registers::LANES,
    warp::Warp,
};

/// Checks a launch against the limits of GPUs and of its kernel.
pub fn check(launch: &Launch<'_>, most_shared: u32) -> Result<(), Fault> {
    let ([gx, gy, gz], [x, y, z]) = (launch.grid, launch.block);
    let function = launch.function;
    let wrong = if gx == 0 || gx > i32::MAX as u32 || !(1..=65_535).contains(&gy) || !(1..=65_535).contains(&gz) {
        format!("a grid of {gx}×{gy}×{gz} blocks")
    } else if !(1..=1024).contains(&x) || !(1..=1024).contains(&y) || !(1..=64).contains(&z) || x * y * z > function.max_threads {
        format!("a block of {x}×{y}×{z} threads, where {} are allowed", function.max_threads)
    } else if function.shared.saturating_add(launch.dynamic_shared) > most_shared {
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
    check(launch, options.most_shared)?;
    let mut engine = Engine::new(launch, memory, options);
    let threads: u32 = launch.block.iter().product();
    let count = threads.div_ceil(LANES as u32);
    let template = Warp::new(launch.function);
    // Without barriers and asynchronous work, one warp is over before the next begins, and all can use the same registers.
    let is_shared = |operation: &Operation| {
        use Operation::{Barrier, CopyAsync, Warpgroup};
        matches!(operation, Barrier(_) | CopyAsync(_) | Warpgroup(_))
    };
    let together = launch.function.code.iter().any(|instruction| is_shared(&instruction.operation));
    let mut warps: Vec<Warp> = (0..if together { count } else { 1 }).map(|_| Warp::new(launch.function)).collect();
    for z in 0..launch.grid[2] {
        for y in 0..launch.grid[1] {
            for x in 0..launch.grid[0] {
                engine.begin_block([x, y, z], count);
                if together {
                    for (index, warp) in warps.iter_mut().enumerate() {
                        warp.begin(index as u32, launch, &template.registers, engine.begin);
                        warp.seen.resize(if engine.barriers.are_counted { count as usize } else { 0 }, 0);
                    }
                    engine.run_block(&mut warps)?;
                    engine.end_block(&mut warps)?;
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
    fn begin_block(&mut self, block: [u32; 3], warps: u32) {
        self.block = block;
        self.clock += 1;
        (self.begin, self.barrier) = (self.clock, self.clock);
        self.barriers.begin();
        self.warpgroups.begin(warps);
        if let Some(races) = &mut self.races {
            races.begins.push(self.clock);
        }
    }

    /// Checks what a block must have ended, and forgets what it need not.
    fn end_block(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        self.check_warpgroups(warps)?;
        warps.iter_mut().for_each(|warp| self.forget_copies(warp));
        self.shared.forget_products();
        Ok(())
    }

    /// The coordinates of a lane's thread.
    pub fn thread(&self, warp: &Warp, lane: usize) -> String {
        let [x, y, z] = [0, 1, 2].map(|axis| warp.threads[axis][lane]);
        format!("({x}, {y}, {z})")
    }

    /// Adds to a fault where it happened.
    pub fn report(&self, warp: &Warp, stop: Stop) -> Fault {
        let function = self.function;
        let line = function.code.get(warp.places[stop.lane] as usize).map_or(0, |i| i.line);
        let text = function.source.binary_search_by_key(&line, |(line, _)| *line).map_or("", |index| &function.source[index].1);
        let [x, y, z] = self.block;
        let thread = self.thread(warp, stop.lane);
        let kind = match stop.fault.kind {
            // An accumulator is undefined while a product is on its way to it.
            FaultKind::UninitialisedRegister if warp.products.are_in_flight() => FaultKind::InFlight,
            kind => kind,
        };
        Fault::new(kind, format!("`{}`, block ({x}, {y}, {z}), thread {thread}, line {line} `{text}`: {}", function.name, stop.fault.text))
    }
}
