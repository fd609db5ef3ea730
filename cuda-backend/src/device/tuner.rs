//! The tuner: measures the plans that may compute an op, and chooses the fastest one.

use crate::device::Shared;
use crate::device::launch::Operand;
use crate::device::tensor_cores::cublaslt_is_right;
use crate::driver::tuning::Key;
use crate::gpu::Gpu;
use crate::gpu::cublaslt::Places;
use crate::gpu::region::{GRAIN, Kind, Memory};
use crate::lower::call::KernelCall;
use crate::lower::product::Product;
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

/// Nanoseconds by which cuBLASLt must be faster than gradlet's kernels. It computes between CUDA graphs, not in them.
const GRAPH: u64 = 10_000;

/// A plan for an op.
#[derive(Clone)]
pub(super) enum Plan {
    /// Kernels of gradlet: those of this rank.
    Kernels(usize),
    /// cuBLASLt.
    CublasLt(Product),
}

/// The choices between plans for a device.
pub(super) struct Tuner {
    /// True if the device measures plans. If it does not, it only uses times that others have measured.
    measures: bool,
    /// The GPU in the keys of times.
    gpu: String,
    /// Kind of the memory on which the plans run.
    kind: Kind,
    /// The chosen plans, by the op and the size of the workspace.
    chosen: Mutex<HashMap<(String, u64), Plan>>,
}

impl Tuner {
    pub(super) fn new(gpu: &Gpu, kind: Kind, measures: bool) -> Tuner {
        // Modules with the same name, such as those of an Orin, differ in their number of multiprocessors.
        let name = format!("{}, {} multiprocessors", gpu.name().replace([';', '\n'], " "), gpu.multiprocessors());
        Tuner { measures, gpu: name, kind, chosen: Mutex::default() }
    }

    fn chosen(&self) -> MutexGuard<'_, HashMap<(String, u64), Plan>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the plan for an op. Measures all of them if this is the op's first use and nobody has measured them before.
    pub(super) fn plan(&self, device: &Shared, job: &Job<'_>) -> Result<Plan> {
        let times = device.stream().enter()?.times();
        if job.target.strict || !lower::has_plans(job.op) || !self.measures && times.is_empty() {
            return Ok(Plan::Kernels(0));
        }
        let key = (text(job), job.target.workspace);
        if let Some(plan) = self.chosen().get(&key) {
            return Ok(plan.clone());
        }
        let own = lower::plans(job)?;
        let key_of = |plan: &str| [self.gpu.as_str(), &key.0, plan].map(String::from);
        let mut plans: Vec<(Key, Plan)> = (0..).zip(&own).map(|(rank, (plan, _))| (key_of(plan), Plan::Kernels(rank))).collect();
        if let Some(product) = Product::of(job)? {
            let library = key_of(product.name());
            if (self.measures || times.time(&library).is_some()) && is_computed(device, &product)? {
                plans.push((library, Plan::CublasLt(product)));
            }
        }
        if self.measures && plans.len() > 1 {
            let _turn = times.turn();
            let unknown = plans.iter().filter(|(key, _)| times.time(key).is_none()).collect::<Vec<_>>();
            let scratch = if unknown.is_empty() { None } else { alive(device, Scratch::new(device, self.kind, job).map(Some))? };
            if let Some(scratch) = scratch {
                for (key, plan) in unknown {
                    let time = match plan {
                        Plan::Kernels(rank) => scratch.time_kernels(device, &own[*rank].1),
                        Plan::CublasLt(product) => scratch.time(device, &|| device.multiply(product, &scratch.places())),
                    };
                    alive(device, time)?.into_iter().for_each(|time| times.keep(key.clone(), time));
                }
                // A plan that failed may have left work on the memory.
                device.stream().synchronize()?;
            }
        }
        let cost = |(key, plan): (Key, Plan)| Some((times.time(&key)? + if matches!(plan, Plan::CublasLt(_)) { GRAPH } else { 0 }, plan));
        let fastest = plans.into_iter().filter_map(cost).min_by_key(|(cost, _)| *cost);
        let plan = fastest.map_or(Plan::Kernels(0), |(_, plan)| plan);
        self.chosen().insert(key, plan.clone());
        Ok(plan)
    }
}

/// True if cuBLASLt is there and computes a product. Before its first use, it is checked.
fn is_computed(device: &Shared, product: &Product) -> Result<bool> {
    let context = device.stream().context();
    let Some(multiplier) = context.multiplier() else { return Ok(false) };
    let (_, workspace) = device.whole_workspace()?;
    let is_right = || *context.multiplier_is_right.get_or_init(|| cublaslt_is_right(device));
    Ok(multiplier.computes(product, workspace) && is_right())
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

    /// Returns where the operands of a product are.
    fn places(&self) -> Places {
        let input = |index: usize| self.inputs.get(index).copied().unwrap_or(0);
        Places { operands: [input(0), input(1)], bias: input(2), result: self.outputs.first().copied().unwrap_or(0) }
    }

    /// Returns the time of the launches in nanoseconds, or `None` if they need a workspace and there is none.
    fn time_kernels(&self, device: &Shared, calls: &[KernelCall]) -> Result<Option<u64>> {
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
        self.time(device, &|| {
            let work = device.work()?;
            ready.iter().try_for_each(|one| one.launch(work.driver, work.stream))
        })
    }

    /// Returns the time of `work`, which puts a run on the device's stream, in nanoseconds.
    fn time(&self, device: &Shared, work: &dyn Fn() -> Result<()>) -> Result<Option<u64>> {
        let run = |runs: u64| device.stream().timed(&mut || (0..runs).try_for_each(|_| work()));
        // The first run finds cold caches and clocks.
        run(1)?;
        let runs = (ROUND / run(1)?.max(1)).clamp(1, MOST_RUNS);
        let mut rounds = [0; ROUNDS];
        rounds.iter_mut().try_for_each(|round| run(runs).map(|time| *round = time / runs))?;
        rounds.sort_unstable();
        Ok(Some(rounds[ROUNDS / 2]))
    }
}
