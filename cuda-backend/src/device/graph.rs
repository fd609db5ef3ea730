//! The steps of a compiled function: each run of kernels is a CUDA graph, which the driver launches at once.

use crate::device::launch::{Operand, Ready};
use crate::device::{NO_FAULT, Shared, may_refuse};
use crate::driver::Driver;
use crate::driver::api::{CopyEnd, CopyNode, DEVICE, HOST, Handle};
use crate::lower::{Job, elementwise};
use gradlet_core::device::{Launch, Placed, Recorded, Slot, Step, StepOp};
use gradlet_core::{Error, Result, TensorType};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps of a compiled function.
pub(crate) struct Recording {
    device: Arc<Shared>,
    steps: Vec<Prepared>,
    parts: Vec<Part>,
}

/// A step with its launches.
struct Prepared {
    /// The op, or `None` for a group.
    op: Option<StepOp>,
    on_host: bool,
    launches: Mutex<Vec<Ready>>,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    refuses: bool,
}

/// A part of the steps.
enum Part {
    /// Steps whose kernels are a graph.
    Graph(Range<usize>, Mutex<Option<Graph>>),
    /// A step that the host computes.
    Host(usize),
}

impl Recording {
    pub(crate) fn new(device: &Arc<Shared>, steps: Vec<Step>) -> Result<Recording> {
        let prepare = |(index, step)| Prepared::new(device, step, index as u32);
        let steps: Vec<Prepared> = steps.into_iter().enumerate().map(prepare).collect::<Result<_>>()?;
        let mut parts: Vec<Part> = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            match parts.last_mut() {
                _ if step.on_host => parts.push(Part::Host(index)),
                Some(Part::Graph(range, _)) => range.end = index + 1,
                _ => parts.push(Part::Graph(index..index + 1, Mutex::default())),
            }
        }
        Ok(Recording { device: device.clone(), steps, parts })
    }

    /// Runs the steps of `range` in one launch.
    fn launch(&self, range: &Range<usize>, graph: &Mutex<Option<Graph>>, bases: &[u64]) -> Result<(), (usize, Error)> {
        let steps = &self.steps[range.clone()];
        let here = |error: Error| {
            let (first, last) = (steps[0].name(), steps[steps.len() - 1].name());
            let text = format!("{} failed in the {} steps from {first} to {last}, or before", self.device.name(), steps.len());
            (range.start, error.context(text))
        };
        let driver = self.device.stream().enter().map_err(here)?;
        let mut kept = graph.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = match kept.take() {
            // A graph that was not changed completely is not used again.
            Some(mut graph) => graph.update(driver, steps, bases).map(|()| graph),
            None => Graph::new(&self.device, steps, bases),
        };
        let graph = kept.insert(graph.map_err(here)?);
        let _turn = self.device.turn();
        let fault = graph.run(&self.device).map_err(here)?;
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
            Part::Host(index) => self.step(*index, bases).map_err(|error| (*index, error)),
        })
    }

    fn step(&self, index: usize, bases: &[u64]) -> Result<()> {
        let step = self.steps.get(index).ok_or(Error::Internal)?;
        if let Some(op) = &step.op {
            return step.with(op, bases, |launch| self.device.launch(launch));
        }
        // Copies, because the graph has the addresses of its own last run.
        let mut launches = step.launches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let driver = self.device.stream().enter()?;
        let _turn = self.device.turn();
        launches.iter_mut().try_for_each(|launch| {
            launch.place(|operand| step.address(operand, bases))?;
            launch.launch(driver, self.device.stream().handle())
        })
    }
}

impl Prepared {
    fn new(device: &Shared, step: Step, index: u32) -> Result<Prepared> {
        match step {
            Step::Op(op) => {
                let types = |slots: &[Slot]| slots.iter().map(|slot| slot.tensor_type).collect::<Vec<TensorType>>();
                let (inputs, outputs) = (types(&op.inputs), types(&op.outputs));
                let job = Job { op: op.op, attributes: &op.attributes, inputs: &inputs, outputs: &outputs };
                let on_host = device.on_host(&job);
                let launches = if on_host { Vec::new() } else { device.prepare(&job, index)? };
                let refuses = may_refuse(op.op, job.dtype());
                let (inputs, outputs) = (op.inputs.clone(), op.outputs.clone());
                Ok(Prepared { op: Some(op), on_host, launches: Mutex::new(launches), inputs, outputs, refuses })
            }
            Step::Group { elements, members } => {
                let (call, inputs, outputs) = elementwise::group(elements, &members)?;
                let launches = if elements == 0 { Vec::new() } else { vec![device.ready(&call, index)?] };
                Ok(Prepared { op: None, on_host: false, launches: Mutex::new(launches), inputs, outputs, refuses: false })
            }
        }
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

    /// Calls `work` with the op and its operands.
    fn with<R>(&self, op: &StepOp, bases: &[u64], work: impl FnOnce(&Launch<'_>) -> Result<R>) -> Result<R> {
        fn placed<'s>(slots: &'s [Slot], bases: &[u64]) -> Result<Vec<Placed<'s>>> {
            let placed = |slot: &'s Slot| Some(Placed { tensor_type: &slot.tensor_type, address: address(slot, bases)? });
            slots.iter().map(placed).collect::<Option<_>>().ok_or(Error::Internal)
        }
        let (inputs, outputs) = (placed(&self.inputs, bases)?, placed(&self.outputs, bases)?);
        work(&Launch { op: op.op, attributes: &op.attributes, inputs: &inputs, outputs: &outputs })
    }

    /// Returns the error of the step, which has refused its data.
    fn refusal(&self, device: &Shared, bases: &[u64]) -> Error {
        let Some(op) = &self.op else { return Error::Internal };
        self.with(op, bases, |launch| Ok(device.refusal(launch))).unwrap_or_else(|error| error)
    }
}

fn address(slot: &Slot, bases: &[u64]) -> Option<u64> {
    bases.get(slot.base as usize)?.checked_add(slot.offset)
}

/// A CUDA graph: the launches of some steps, one after another, and a copy of the fault word to the host.
struct Graph {
    device: Arc<Shared>,
    /// The graph that was instantiated. The nodes belong to it.
    graph: Handle,
    executable: Handle,
    /// The nodes of each step.
    nodes: Vec<Vec<Handle>>,
    /// Where the fault word arrives, in pinned memory, if a step may refuse its data.
    landing: Option<*mut u32>,
}

// SAFETY: graphs and pinned memory are not tied to a thread. A graph has a lock.
unsafe impl Send for Graph {}

impl Graph {
    fn new(device: &Arc<Shared>, steps: &[Prepared], bases: &[u64]) -> Result<Graph> {
        let driver = device.stream().enter()?;
        let landing = if steps.iter().any(|step| step.refuses) { Some(pinned_word(driver)?) } else { None };
        let (null, device) = (std::ptr::null_mut(), device.clone());
        let mut graph = Graph { device, graph: null, executable: null, nodes: Vec::new(), landing };
        // SAFETY: the first argument is a place for the handle.
        driver.check("cuGraphCreate", unsafe { (driver.api().create_graph)(&mut graph.graph, 0) })?;
        let mut last = None;
        for step in steps {
            let (launches, _) = step.place(bases)?;
            graph.nodes.push(launches.iter().map(|launch| graph.add_kernel(driver, launch, &mut last)).collect::<Result<_>>()?);
        }
        if let Some(landing) = landing {
            graph.add_copy(driver, landing, last)?;
        }
        // SAFETY: the first argument is a place for the handle.
        let status = unsafe { (driver.api().instantiate)(&mut graph.executable, graph.graph, 0) };
        driver.check("cuGraphInstantiate", status)?;
        Ok(graph)
    }

    /// Adds a kernel that runs after `last`, which it becomes.
    fn add_kernel(&self, driver: &Driver, launch: &Ready, last: &mut Option<Handle>) -> Result<Handle> {
        let (mut node, before, add) = (std::ptr::null_mut(), last.as_slice(), driver.api().add_kernel);
        // SAFETY: there are as many dependencies as stated, and the driver copies the parameters.
        let status = launch.node(|parameters| unsafe { add(&mut node, self.graph, before.as_ptr(), before.len(), parameters) });
        driver.check("cuGraphAddKernelNode", status)?;
        *last = Some(node);
        Ok(node)
    }

    /// Adds a copy of the fault word to `landing`, after the kernels.
    fn add_copy(&self, driver: &Driver, landing: *mut u32, last: Option<Handle>) -> Result<()> {
        let copy = CopyNode {
            source: CopyEnd { memory_type: DEVICE, device: self.device.fault(), pitch: 4, height: 1, ..CopyEnd::default() },
            destination: CopyEnd { memory_type: HOST, host: landing as u64, pitch: 4, height: 1, ..CopyEnd::default() },
            width_in_bytes: 4,
            height: 1,
            depth: 1,
        };
        let (mut node, before, context) = (std::ptr::null_mut(), last.as_slice(), self.device.stream().context().handle());
        // SAFETY: as above. Both ends have 4 bytes, and exist as long as the graph.
        let status = unsafe { (driver.api().add_copy)(&mut node, self.graph, before.as_ptr(), before.len(), &copy, context) };
        driver.check("cuGraphAddMemcpyNode", status)
    }

    /// Tells the driver the addresses that have changed since the last run.
    fn update(&mut self, driver: &Driver, steps: &[Prepared], bases: &[u64]) -> Result<()> {
        for (step, nodes) in steps.iter().zip(&self.nodes) {
            let (launches, changed) = step.place(bases)?;
            for (launch, &node) in launches.iter().zip(nodes).filter(|_| changed) {
                // SAFETY: the node belongs to this graph, and the driver copies the parameters.
                let status = launch.node(|parameters| unsafe { (driver.api().set_kernel)(self.executable, node, parameters) });
                driver.check("cuGraphExecKernelNodeSetParams", status)?;
            }
        }
        Ok(())
    }

    /// Launches the graph. If a step may refuse its data, waits for the end. Returns the number of the step that has refused.
    fn run(&self, device: &Shared) -> Result<u32> {
        let driver = device.stream().enter()?;
        // SAFETY: the graph and the stream exist.
        driver.check("cuGraphLaunch", unsafe { (driver.api().launch_graph)(self.executable, device.stream().handle()) })?;
        let Some(landing) = self.landing else { return Ok(NO_FAULT) };
        device.stream().synchronize()?;
        // SAFETY: the copy is done, and nothing else writes the word.
        Ok(unsafe { landing.read_volatile() })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.device.stream().synchronize();
        let Ok(driver) = self.device.stream().enter() else { return };
        // SAFETY: all work is done, and nothing else has the handles.
        unsafe {
            if !self.executable.is_null() {
                (driver.api().destroy_executable)(self.executable);
            }
            if !self.graph.is_null() {
                (driver.api().destroy_graph)(self.graph);
            }
            if let Some(landing) = self.landing {
                (driver.api().free_host)(landing.cast());
            }
        }
    }
}

/// Allocates a word of pinned memory.
fn pinned_word(driver: &Driver) -> Result<*mut u32> {
    let mut word = std::ptr::null_mut();
    // SAFETY: the first argument is a place for the address.
    driver.check("cuMemHostAlloc", unsafe { (driver.api().allocate_host)(&mut word, 4, 1) })?;
    Ok(word.cast())
}
