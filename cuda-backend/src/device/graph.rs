//! The steps of a compiled function: each run of kernels is a CUDA graph, which the driver launches at once.

use crate::device::arrival::{Early, Landing, MOST, early_slots};
use crate::device::launch::{Operand, Ready};
use crate::device::merge::{Merged, merge, overlap};
use crate::device::moments;
use crate::device::order::{Effects, order};
use crate::device::{NO_FAULT, Shared, Work, may_refuse};
use crate::driver::Driver;
use crate::driver::api::Handle;
use crate::gpu::cublaslt::Places;
use crate::gpu::stream::{NO_TIME, destroy_events, new_event};
use crate::lower::product::Product;
use crate::lower::{self, Target};
use gradlet_core::device::{Launch, Placed, Recorded, Slot, Step, StepOp};
use gradlet_core::{DType, Error, Result, Shape, TensorType};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of kernels up to which they are launched one by one.
const FEW: usize = 2;

/// Steps of a compiled function.
pub(crate) struct Recording {
    device: Arc<Shared>,
    steps: Vec<Prepared>,
    parts: Vec<Part>,
}

/// A step with its launches.
pub(super) struct Prepared {
    /// The op, or `None` for a group.
    op: Option<StepOp>,
    on_host: bool,
    /// The product, if cuBLASLt computes the step.
    product: Option<Product>,
    launches: Mutex<Vec<Ready>>,
    /// The operands of the launches.
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    refuses: bool,
}

/// A part of the steps.
enum Part {
    /// Steps whose kernels are a graph.
    Graph(Range<usize>, Mutex<Option<Graph>>),
    /// Steps with so few kernels that a graph would take longer than they do.
    Kernels(Range<usize>),
    /// A step that the host computes, or several steps of a collective op.
    Host(Range<usize>),
    /// A step that cuBLASLt computes, which knows streams and no nodes of graphs.
    Product(usize),
}

impl Recording {
    pub(crate) fn new(device: &Arc<Shared>, mut steps: Vec<Step>) -> Result<Recording> {
        let mut merged = merge(&steps, &device.target())?;
        moments::join(&mut steps, &mut merged, &device.target());
        let prepare = |(index, (step, merged))| Prepared::new(device, step, merged, index as u32);
        let steps: Vec<Prepared> = steps.into_iter().zip(merged).enumerate().map(prepare).collect::<Result<_>>()?;
        let mut parts: Vec<Part> = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            match parts.last_mut() {
                Some(Part::Host(range)) if step.goes_with(device, &steps[range.clone()]) => range.end = index + 1,
                _ if step.on_host => parts.push(Part::Host(index..index + 1)),
                _ if step.product.is_some() => parts.push(Part::Product(index)),
                Some(Part::Graph(range, _)) => range.end = index + 1,
                _ => parts.push(Part::Graph(index..index + 1, Mutex::default())),
            }
        }
        for part in &mut parts {
            if let Part::Graph(range, _) = part
                && Prepared::are_few(&steps[range.clone()])
            {
                *part = Part::Kernels(range.clone());
            }
        }
        Ok(Recording { device: device.clone(), steps, parts })
    }

    /// Launches the kernels of the steps of `range`, one by one.
    fn launch_each(&self, range: &Range<usize>, bases: &[u64]) -> Result<(), (usize, Error)> {
        let _turn = self.device.turn();
        range
            .clone()
            .try_for_each(|index| self.steps[index].launch(&self.device, bases).map_err(|error| (index, self.failed(range, error))))
    }

    /// Returns the error of the launch of the steps of `range`. A GPU reports failures late.
    fn failed(&self, range: &Range<usize>, error: Error) -> Error {
        let steps = &self.steps[range.clone()];
        let (first, last) = (steps[0].name(), steps[steps.len() - 1].name());
        let text = format!("{} failed in the {} steps from {first} to {last}, or before", self.device.name(), steps.len());
        error.context(text)
    }

    /// Runs the steps of `range`, which the host computes or a collective op combines.
    fn on_host(&self, range: Range<usize>, bases: &[u64]) -> Result<()> {
        let steps =
            self.steps[range].iter().map(|step| step.op.as_ref().ok_or(Error::Internal).and_then(|op| Ok((op, placed(op, bases)?))));
        let steps = steps.collect::<Result<Vec<_>>>()?;
        let launches = steps.iter().map(|(op, [inputs, outputs])| Launch { op: op.op, attributes: &op.attributes, inputs, outputs });
        self.device.host_ops.run(&self.device, &launches.collect::<Vec<Launch<'_>>>())
    }

    /// Runs the steps of `range` in one launch.
    fn launch(&self, range: &Range<usize>, graph: &Mutex<Option<Graph>>, bases: &[u64]) -> Result<(), (usize, Error)> {
        let steps = &self.steps[range.clone()];
        let here = |error: Error| (range.start, self.failed(range, error));
        let driver = self.device.stream().enter().map_err(here)?;
        let mut kept = graph.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = match kept.take() {
            // A graph that was not changed completely is not used again.
            Some(mut graph) => graph.update(driver, steps, bases).map(|()| graph),
            None => Graph::new(&self.device, steps, bases),
        };
        let graph = kept.insert(graph.map_err(here)?);
        let _turn = self.device.turn();
        let fault = graph.run(&self.device, bases).map_err(here)?;
        if fault == NO_FAULT {
            return Ok(());
        }
        self.device.clear_fault().map_err(here)?;
        let index = fault as usize;
        let refused = self.steps.get(index).map_or(Error::Internal, |step| step.refusal(&self.device, bases));
        Err((index, refused))
    }
}

impl Recorded for Recording {
    fn run(&self, bases: &[u64]) -> Result<(), (usize, Error)> {
        self.parts.iter().try_for_each(|part| match part {
            Part::Graph(range, graph) => self.launch(range, graph, bases),
            Part::Kernels(range) => self.launch_each(range, bases),
            Part::Host(range) => self.on_host(range.clone(), bases).map_err(|error| (range.start, error)),
            Part::Product(index) => self.steps[*index].multiply(&self.device, bases).map_err(|error| (*index, error)),
        })
    }

    fn step(&self, index: usize, bases: &[u64]) -> Result<()> {
        let step = self.steps.get(index).ok_or(Error::Internal)?;
        if let Some(op) = &step.op {
            return step.with(op, bases, |launch| self.device.launch(launch));
        }
        // Copies, because the graph has the addresses of its own last run.
        let mut launches = step.launches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let _turn = self.device.turn();
        let work = self.device.work()?;
        launches.iter_mut().try_for_each(|launch| {
            launch.place(|operand| step.address(operand, bases))?;
            launch.launch(work.driver, work.stream)
        })
    }
}

impl Prepared {
    fn new(device: &Shared, step: Step, merged: Option<Merged>, index: u32) -> Result<Prepared> {
        if let Some(Merged { call, inputs, outputs }) = merged {
            let op = if let Step::Op(op) = step { Some(op) } else { None };
            let launches = Mutex::new(call.iter().map(|call| device.ready(call, index)).collect::<Result<_>>()?);
            return Ok(Prepared { op, on_host: false, product: None, launches, inputs, outputs, refuses: false });
        }
        match step {
            Step::Op(op) => {
                let types = |slots: &[Slot]| slots.iter().map(|slot| slot.tensor_type).collect::<Vec<TensorType>>();
                let (inputs, outputs) = (types(&op.inputs), types(&op.outputs));
                let job = device.job(op.op, &op.attributes, &inputs, &outputs);
                let on_host = device.on_host(&job);
                let work = if on_host { Work::Kernels(Vec::new()) } else { device.prepare(&job, index)? };
                let (launches, product) = match work {
                    Work::Kernels(launches) => (launches, None),
                    Work::Product(product) => (Vec::new(), Some(product)),
                };
                let refuses = may_refuse(op.op, job.dtype());
                let (inputs, outputs) = (op.inputs.clone(), op.outputs.clone());
                Ok(Prepared { op: Some(op), on_host, product, launches: Mutex::new(launches), inputs, outputs, refuses })
            }
            Step::Group { elements, members } => {
                let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
                let lower = |target: &Target| {
                    let grouped = lower::group(elements, &members, target)?;
                    (inputs, outputs) = (grouped.inputs, grouped.outputs);
                    Ok(grouped.calls)
                };
                let first = members.first().ok_or(Error::Internal)?;
                let target = device.target_for(first.op, first.output.dtype);
                let launches = Mutex::new(device.prepare_for(&target, index, lower)?);
                Ok(Prepared { op: None, on_host: false, product: None, launches, inputs, outputs, refuses: false })
            }
        }
    }

    /// Returns the effects of the launches. A step without launches has none.
    fn effects(&self) -> Effects {
        let launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        if launches.is_empty() {
            return Effects::default();
        }
        Effects::new(&self.inputs, &self.outputs, launches.iter().any(Ready::needs_workspace), self.refuses)
    }

    /// Returns the outputs that are buffers of the program, not scratch memory.
    pub(super) fn results(&self) -> impl Iterator<Item = &Slot> {
        self.outputs.iter().filter(|slot| slot.base != 0)
    }

    /// Returns the operands that the launches read.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &Slot> {
        self.inputs.iter()
    }

    fn name(&self) -> &str {
        self.op.as_ref().map_or("a group", |op| op.op.name)
    }

    fn address(&self, operand: Operand, bases: &[u64]) -> Option<u64> {
        let (Operand::Input(index) | Operand::Output(index)) = operand;
        let slots = if matches!(operand, Operand::Input(_)) { &self.inputs } else { &self.outputs };
        address(slots.get(index)?, bases)
    }

    /// Sets the addresses of the operands. Also returns true if one has changed.
    fn place(&self, bases: &[u64]) -> Result<(MutexGuard<'_, Vec<Ready>>, bool)> {
        let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = false;
        for launch in launches.iter_mut() {
            changed |= launch.place(|operand| self.address(operand, bases))?;
        }
        Ok((launches, changed))
    }

    /// True if steps have few kernels, none of which may refuse its data.
    fn are_few(steps: &[Prepared]) -> bool {
        let count = |step: &Prepared| step.launches.lock().unwrap_or_else(PoisonError::into_inner).len();
        steps.iter().map(count).sum::<usize>() <= FEW && !steps.iter().any(|step| step.refuses)
    }

    /// Launches the kernels.
    fn launch(&self, device: &Shared, bases: &[u64]) -> Result<()> {
        let (launches, _) = self.place(bases)?;
        let work = device.work()?;
        launches.iter().try_for_each(|launch| launch.launch(work.driver, work.stream))
    }

    /// Launches the product that cuBLASLt computes.
    fn multiply(&self, device: &Shared, bases: &[u64]) -> Result<()> {
        let (Some(op), Some(product)) = (&self.op, &self.product) else { return Err(Error::Internal) };
        let [inputs, outputs] = placed(op, bases)?;
        device.multiply(product, &Places::new(&inputs, &outputs)?)
    }

    /// Calls `work` with the op and its operands.
    fn with<R>(&self, op: &StepOp, bases: &[u64], work: impl FnOnce(&Launch<'_>) -> Result<R>) -> Result<R> {
        let [inputs, outputs] = &placed(op, bases)?;
        work(&Launch { op: op.op, attributes: &op.attributes, inputs, outputs })
    }

    /// True if this is a step of the same collective op as the steps `before`, and independent of them.
    fn goes_with(&self, device: &Shared, before: &[Prepared]) -> bool {
        let (Some(op), Some(Some(first))) = (&self.op, before.first().map(|step| &step.op)) else { return false };
        let dtype = |op: &StepOp| op.inputs.first().map(|slot| slot.tensor_type.dtype);
        let is_same = op.op.code == first.op.code && op.attributes == first.attributes && dtype(op) == dtype(first);
        let meet = |one: &[Slot], other: &[Slot]| one.iter().any(|one| other.iter().any(|other| overlap(one, other)));
        let depends =
            |on: &Prepared| meet(&self.inputs, &on.outputs) || meet(&self.outputs, &on.outputs) || meet(&self.outputs, &on.inputs);
        device.host_ops.moves(op.op) && is_same && !before.iter().any(depends)
    }

    /// Returns the error of the step, which has refused its data.
    fn refusal(&self, device: &Shared, bases: &[u64]) -> Error {
        let Some(op) = &self.op else { return Error::Internal };
        self.with(op, bases, |launch| Ok(device.refusal(launch))).unwrap_or_else(|error| error)
    }
}

/// Returns the inputs and the outputs of an op with their addresses.
fn placed<'s>(op: &'s StepOp, bases: &[u64]) -> Result<[Vec<Placed<'s>>; 2]> {
    let placed = |slot: &'s Slot| Some(Placed { tensor_type: &slot.tensor_type, address: address(slot, bases)? });
    let all = |slots: &'s [Slot]| slots.iter().map(placed).collect::<Option<_>>().ok_or(Error::Internal);
    Ok([all(&op.inputs)?, all(&op.outputs)?])
}

pub(super) fn address(slot: &Slot, bases: &[u64]) -> Option<u64> {
    bases.get(slot.base as usize)?.checked_add(slot.offset)
}

/// A CUDA graph: the launches of some steps. Steps that share no memory may run at the same time. If steps may refuse their data, a copy of
/// the fault word to the host comes after the last of them, beside the steps that follow. The host waits only for this copy, so it prepares
/// the next run meanwhile.
struct Graph {
    device: Arc<Shared>,
    /// The graph that was instantiated. The nodes belong to it.
    graph: Handle,
    executable: Handle,
    /// The nodes of each step.
    nodes: Vec<Vec<Handle>>,
    landing: Option<Landing>,
    /// Where the fault word arrives, and the event after that, if a step may refuse its data.
    check: Option<(*const u32, Handle)>,
    /// The results that the host may read before the graph has ended.
    early: Vec<Early>,
}

// SAFETY: graphs and pinned memory are not tied to a thread. A graph has a lock.
unsafe impl Send for Graph {}

impl Graph {
    fn new(device: &Arc<Shared>, steps: &[Prepared], bases: &[u64]) -> Result<Graph> {
        let driver = device.stream().enter()?;
        let (null, device) = (std::ptr::null_mut(), device.clone());
        let (nodes, early) = (Vec::new(), Vec::new());
        let mut graph = Graph { device, graph: null, executable: null, nodes, landing: None, check: None, early };
        let effects: Vec<Effects> = steps.iter().map(Prepared::effects).collect();
        let last_check = effects.iter().rposition(Effects::refuses);
        // SAFETY: the first argument is a place for the handle.
        driver.check("cuGraphCreate", unsafe { (driver.api().create_graph)(&mut graph.graph, 0) })?;
        for (index, waits) in order(&effects).iter().enumerate() {
            let mut before: Vec<Handle> = waits.iter().filter_map(|&index| graph.nodes[index].last().copied()).collect();
            let (launches, _) = steps[index].place(bases)?;
            let mut nodes = Vec::with_capacity(launches.len());
            for launch in launches.iter() {
                let node = graph.add_kernel(driver, launch, &before)?;
                nodes.push(node);
                before = vec![node];
            }
            let number = launches.last().map(Ready::step);
            drop(launches);
            graph.nodes.push(nodes);
            if last_check == Some(index) {
                graph.add_check(driver, &before)?;
            }
            let Some(number) = number else { continue };
            for slot in early_slots(steps, index).take(MOST - graph.early.len()) {
                graph.add_early(driver, slot, number, &before, bases)?;
            }
        }
        // SAFETY: the first argument is a place for the handle.
        let status = unsafe { (driver.api().instantiate)(&mut graph.executable, graph.graph, 0) };
        driver.check("cuGraphInstantiate", status)?;
        Ok(graph)
    }

    /// Adds a kernel that runs after the nodes `before`.
    fn add_kernel(&self, driver: &Driver, launch: &Ready, before: &[Handle]) -> Result<Handle> {
        let (mut node, add) = (std::ptr::null_mut(), driver.api().add_kernel);
        // SAFETY: there are as many dependencies as stated, and the driver copies the parameters.
        let status = launch.node(|parameters| unsafe { add(&mut node, self.graph, before.as_ptr(), before.len(), parameters) });
        driver.check("cuGraphAddKernelNode", status)?;
        Ok(node)
    }

    /// Adds an event after the nodes `before`.
    fn add_event(&self, driver: &Driver, event: Handle, before: &[Handle]) -> Result<()> {
        let (mut node, add) = (std::ptr::null_mut(), driver.api().add_event);
        // SAFETY: as above. The event exists as long as the graph.
        driver.check("cuGraphAddEventRecordNode", unsafe { add(&mut node, self.graph, before.as_ptr(), before.len(), event) })
    }

    fn landing(&mut self, driver: &Driver) -> Result<&mut Landing> {
        if self.landing.is_none() {
            self.landing = Some(Landing::new(driver)?);
        }
        self.landing.as_mut().ok_or(Error::Internal)
    }

    /// Adds a copy of the fault word to the host after the nodes `before`, and an event after it.
    fn add_check(&mut self, driver: &Driver, before: &[Handle]) -> Result<()> {
        let device = self.device.clone();
        // Step 0 always runs.
        let mut copy = self.landing(driver)?.copy(&device, TensorType::new(DType::I32, Shape::SCALAR), 0)?;
        let (_, event) = self.check.insert((copy.host.cast(), std::ptr::null_mut()));
        new_event(driver, event, NO_TIME)?;
        let event = *event;
        let (launch, _) = copy.place(device.fault())?;
        let node = self.add_kernel(driver, launch, before)?;
        self.add_event(driver, event, &[node])
    }

    /// Adds a copy of a result of step `step` to the host after the nodes `before`, and an event after it.
    fn add_early(&mut self, driver: &Driver, slot: Slot, step: u32, before: &[Handle], bases: &[u64]) -> Result<()> {
        let (device, from) = (self.device.clone(), address(&slot, bases).ok_or(Error::Internal)?);
        let mut event = std::ptr::null_mut();
        new_event(driver, &mut event, NO_TIME)?;
        self.early.push(Early { slot, event, copy: None });
        if device.memory().host(from).is_some() {
            return self.add_event(driver, event, before);
        }
        let mut copy = self.landing(driver)?.copy(&device, slot.tensor_type, step + 1)?;
        let node = self.add_kernel(driver, copy.place(from)?.0, before)?;
        self.early.last_mut().ok_or(Error::Internal)?.copy = Some((copy, node));
        self.add_event(driver, event, &[node])
    }

    /// Tells the driver the addresses that have changed since the last run.
    fn update(&mut self, driver: &Driver, steps: &[Prepared], bases: &[u64]) -> Result<()> {
        for (step, nodes) in steps.iter().zip(&self.nodes) {
            let (launches, changed) = step.place(bases)?;
            for (launch, &node) in launches.iter().zip(nodes).filter(|_| changed) {
                set(driver, self.executable, node, launch)?;
            }
        }
        for Early { slot, copy, .. } in &mut self.early {
            let Some((copy, node)) = copy else { continue };
            if let (launch, true) = copy.place(address(slot, bases).ok_or(Error::Internal)?)? {
                set(driver, self.executable, *node, launch)?;
            }
        }
        Ok(())
    }

    /// Launches the graph. If steps may refuse their data, waits for the last of them. Returns the number of the step that has refused.
    fn run(&self, device: &Shared, bases: &[u64]) -> Result<u32> {
        let work = device.work()?;
        // SAFETY: the graph and the stream exist.
        work.driver.check("cuGraphLaunch", unsafe { (work.driver.api().launch_graph)(self.executable, work.stream) })?;
        drop(work);
        device.launched(&self.early, bases);
        let Some((word, event)) = self.check else { return Ok(NO_FAULT) };
        device.stream().wait_for(event)?;
        // SAFETY: the copy is done, and nothing else writes the word.
        Ok(unsafe { word.read_volatile() })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.device.stream().synchronize();
        let Ok(driver) = self.device.stream().enter() else { return };
        self.device.ended(&self.early);
        let early = self.early.iter().map(|early| early.event);
        destroy_events(driver, self.check.iter().map(|(_, event)| *event).chain(early));
        // SAFETY: all work is done, and nothing else has the handles.
        unsafe {
            if !self.executable.is_null() {
                (driver.api().destroy_executable)(self.executable);
            }
            if !self.graph.is_null() {
                (driver.api().destroy_graph)(self.graph);
            }
        }
        self.landing.iter().for_each(|landing| landing.free(driver));
    }
}

/// Tells the driver the parameters of a node.
fn set(driver: &Driver, executable: Handle, node: Handle, launch: &Ready) -> Result<()> {
    // SAFETY: the node belongs to the graph, and the driver copies the parameters.
    let status = launch.node(|parameters| unsafe { (driver.api().set_kernel)(executable, node, parameters) });
    driver.check("cuGraphExecKernelNodeSetParams", status)
}
