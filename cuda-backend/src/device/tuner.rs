//! The tuner: measures the plans that may compute an op, and chooses the fastest one.

use crate::device::Shared;
use crate::device::launch::Operand;
use crate::driver::tuning::Key;
use crate::gpu::Gpu;
use crate::gpu::region::{GRAIN, Kind, Memory};
use crate::lower::call::KernelCall;
use crate::lower::{self, Job};
use gradlet_core::device::Refused;
use gradlet_core::{Error, Result, TensorType};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of timed rounds of a plan. Their median counts.
const ROUNDS: usize = 3;
/// Wanted time of a round in nanoseconds, and largest number of runs in a round.
const ROUND: u64 = 200_000;
const MOST_RUNS: u64 = 16;

/// The choices between plans for a device.
pub(super) struct Tuner {
    /// True if the device measures plans. If it does not, it only uses times that others have measured.
    measures: bool,
    /// The GPU in the keys of times.
    gpu: String,
    /// Kind of the memory on which the plans run.
    kind: Kind,
    /// The ranks of the chosen plans, by the op and the size of the workspace.
    ranks: Mutex<HashMap<(String, u64), usize>>,
}

impl Tuner {
    pub(super) fn new(gpu: &Gpu, kind: Kind, measures: bool) -> Tuner {
        // Modules with the same name, such as those of an Orin, differ in their number of multiprocessors.
        let name = format!("{}, {} multiprocessors", gpu.name().replace([';', '\n'], " "), gpu.multiprocessors());
        Tuner { measures, gpu: name, kind, ranks: Mutex::default() }
    }

    fn ranks(&self) -> MutexGuard<'_, HashMap<(String, u64), usize>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rank of the plan for an op. Measures the plans if this is the op's first use and nobody has measured them before.
    pub(super) fn rank(&self, device: &Shared, job: &Job<'_>) -> Result<usize> {
        let times = device.stream().context().driver().times();
        if job.target.strict || !lower::has_plans(job.op) || !self.measures && times.is_empty() {
            return Ok(0);
        }
        let key = (text(job), job.target.workspace);
        if let Some(&rank) = self.ranks().get(&key) {
            return Ok(rank);
        }
        let plans = lower::plans(job)?;
        let keys: Vec<Key> = plans.iter().map(|(plan, _)| [self.gpu.clone(), key.0.clone(), plan.clone()]).collect();
        if self.measures && plans.len() > 1 {
            let _turn = times.turn();
            let unknown = keys.iter().zip(&plans).filter(|(key, _)| times.time(key).is_none()).collect::<Vec<_>>();
            if let Some(scratch) = alive(device, Scratch::new(device, self.kind, job).map(Some))? {
                for (key, (_, calls)) in unknown {
                    alive(device, scratch.time(device, calls))?.into_iter().for_each(|time| times.keep(key.clone(), time));
                }
                // A plan that failed may have left work on the memory.
                device.stream().synchronize()?;
            }
        }
        let known = (0..).zip(&keys).filter_map(|(rank, key)| Some((times.time(key)?, rank)));
        let rank = known.min().map_or(0, |(_, rank)| rank);
        self.ranks().insert(key, rank);
        Ok(rank)
    }
}

/// Returns the op with its attributes and types as a text.
fn text(job: &Job<'_>) -> String {
    let attributes: Vec<String> = job.attributes.iter().map(u32::to_string).collect();
    job.inputs.iter().fold(format!("{} {}", job.op.name, attributes.join(",")), |text, input| format!("{text} {input}"))
}

/// Returns `None` for an error that leaves the GPU as it was: it has too little memory, or the driver refuses a kernel. The plan then has
/// no time.
fn alive<T>(device: &Shared, result: Result<Option<T>>) -> Result<Option<T>> {
    result.or_else(|error| device.stream().context().available().map(|_| None).map_err(|_| error))
}

/// Memory for the operands of a measurement, apart from that of the device and from its limit.
struct Scratch {
    _memory: Memory,
    inputs: Vec<u64>,
    outputs: Vec<u64>,
}

impl Scratch {
    /// Allocates memory for the operands of an op, and fills it with zeros.
    fn new(device: &Shared, kind: Kind, job: &Job<'_>) -> Result<Scratch> {
        let bytes = |tensor_type: &TensorType| tensor_type.bytes().map(|bytes| (bytes as u64).max(1)).ok_or(Error::TooLarge);
        let operands = job.inputs.iter().chain(job.outputs).map(bytes).collect::<Result<Vec<u64>>>()?;
        let all = operands.iter().map(|bytes| bytes.next_multiple_of(GRAIN)).sum();
        let mut memory = Memory::new(device.stream().context(), kind, Some(all), false)?;
        let mut place = |&bytes: &u64| {
            let address = memory.allocate(bytes).map_err(|refused| match refused {
                Refused::Failed(error) => error,
                Refused::Full { .. } => Error::Internal,
            })?;
            device.fill(&[0], address, bytes as usize).map(|()| address)
        };
        let mut inputs = operands.iter().map(&mut place).collect::<Result<Vec<u64>>>()?;
        let outputs = inputs.split_off(job.inputs.len());
        Ok(Scratch { _memory: memory, inputs, outputs })
    }

    /// Returns the time of the launches in nanoseconds, or `None` if they need a workspace and there is none.
    fn time(&self, device: &Shared, calls: &[KernelCall]) -> Result<Option<u64>> {
        if calls.iter().any(KernelCall::needs_workspace) && !device.workspace.is_there()? {
            return Ok(None);
        }
        let mut ready = calls.iter().map(|call| device.ready(call, 0)).collect::<Result<Vec<_>>>()?;
        for one in &mut ready {
            one.place(|operand| match operand {
                Operand::Input(index) => self.inputs.get(index).copied(),
                Operand::Output(index) => self.outputs.get(index).copied(),
            })?;
        }
        let run = |runs: u64| {
            device.stream().timed(&mut || {
                let (driver, stream) = device.work()?;
                (0..runs).try_for_each(|_| ready.iter().try_for_each(|one| one.launch(driver, stream)))
            })
        };
        // The first run finds cold caches and clocks.
        run(1)?;
        let runs = (ROUND / run(1)?.max(1)).clamp(1, MOST_RUNS);
        let mut rounds = [0; ROUNDS];
        rounds.iter_mut().try_for_each(|round| run(runs).map(|time| *round = time / runs))?;
        rounds.sort_unstable();
        Ok(Some(rounds[ROUNDS / 2]))
    }
}
