//! The host's executable of a traced function. Its steps compute directly in the buffers of arguments, results and variables.
//!
//! While a function runs, it owns the variables that it assigns and changes them in place. No other reader or writer can use them.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result, Rule};
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::Shared;
use crate::compile::plan;
use crate::compile::plan::{Division, Fusion};
use crate::compile::plan::{Location, Plan, Target};
use crate::compile::planner::plan;
use crate::host::control_step::{Branches, Effect};
use crate::host::fused_group::{Cut, Group, Member};
use crate::host::kernel_step::{Address, Memory, Operand, Scratch, Single};
use crate::host::launch_step::{Launched, Prepared};
use crate::runtime::verify;
use crate::tensor::device::account::Holder;
use crate::tensor::device::{Buffer, Device};
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use crate::tensor::profile::{Activity, NamedOp, Ops, Profiler, during};
use crate::tensor::variable::Variable;
use crate::tensor::{Tensor, size};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

/// A planned function, ready to run. Apart from scratch memory, which is reused, a run allocates only replacements for result buffers
/// that the caller still holds.
pub(crate) struct Executable {
    device: Device,
    steps: Vec<HostStep>,
    scratch: Shared<Scratch>,
    scratch_bytes: usize,
    /// The buffers of constants, results, arguments and variables, in this order. The last two kinds are present only during a run.
    buffers: Vec<Option<Shared<Buffer>>>,
    results: Range<usize>,
    /// The types of the arguments, whose buffers follow those of the results in `buffers`.
    arguments: Vec<TensorType>,
    variables: Vec<Bound>,
    outputs: Vec<(TensorType, usize)>,
}

pub(crate) struct HostStep {
    pub(crate) work: Work,
    /// The description that a profiler receives.
    pub(crate) ops: Box<Ops>,
}

pub(crate) enum Work {
    Single(Single),
    Group(Group),
    Launched(Launched),
    Prepared(Prepared),
    Branches(Branches),
    Effect(Effect),
}

/// The device of a run, and the profiler that listens to it.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'c> {
    pub(crate) device: &'c Device,
    profiler: Option<&'c dyn Profiler>,
}

impl<'c> Caller<'c> {
    /// Creates a caller on `device`, with the device's profiler.
    pub(crate) fn on(device: &'c Device) -> Caller<'c> {
        Caller { device, profiler: device.profiler() }
    }

    /// Runs `work`, a part of a run, and reports it to the profiler as `activity`.
    #[inline(always)]
    pub(crate) fn during<R>(&self, activity: Activity<'_>, work: impl FnOnce() -> R) -> R {
        during(self.profiler, activity, work)
    }

    /// Runs `work`, which the device does in its own memory, and reports it to the profiler as `ops`, with the device's time.
    pub(crate) fn timed(&self, ops: &Ops, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        match self.profiler {
            Some(profiler) => self.device.timed(profiler, Activity::Ops(ops), work),
            None => work(),
        }
    }

    /// Passes the function's graphs to the profiler, if there is one.
    pub(crate) fn show(&self, name: &str, traced: &Graph, optimized: &Graph) {
        if let Some(profiler) = self.profiler {
            self.during(Activity::Gap("show the graph"), || profiler.function(name, traced, optimized));
        }
    }
}

/// Runs steps in order.
pub(crate) fn run(steps: &[HostStep], memory: &mut Memory<'_>, caller: &Caller<'_>) -> Result<()> {
    for (index, step) in steps.iter().enumerate() {
        let here = Memory { scratch: &mut *memory.scratch, remote: memory.remote, buffers: &mut *memory.buffers };
        let ran = match caller.profiler {
            None => step.work.run(here, caller),
            Some(_) => step.told(here, caller),
        };
        if let Err(error) = ran {
            let before: usize = steps.iter().take(index).map(|step| step.ops.nodes.len()).sum();
            let inside = if matches!(step.work, Work::Prepared(_)) { error.instruction().unwrap_or(0) } else { 0 };
            return Err(error.at(before as u32 + inside));
        }
    }
    Ok(())
}

impl HostStep {
    /// Runs the step and reports it to the profiler. A separate function keeps the loop without a profiler short.
    #[cold]
    #[inline(never)]
    fn told(&self, memory: Memory<'_>, caller: &Caller<'_>) -> Result<()> {
        match &self.work {
            Work::Prepared(prepared) => prepared.told(&memory, caller),
            Work::Launched(launched) => caller.timed(&self.ops, || launched.run(&memory, caller.device)),
            work => caller.during(Activity::Ops(&self.ops), || work.run(memory, caller)),
        }
    }
}

impl Work {
    #[inline(always)]
    fn run(&self, memory: Memory<'_>, caller: &Caller<'_>) -> Result<()> {
        match self {
            Work::Single(single) => single.run(memory),
            Work::Group(group) => group.run(memory, caller.device),
            Work::Launched(launched) => launched.run(&memory, caller.device),
            Work::Prepared(prepared) => prepared.run(&memory),
            Work::Branches(branches) => branches.run(memory, caller),
            Work::Effect(effect) => effect.run(&memory, caller.device),
        }
    }
}

/// A variable of the function, with the index of its buffer.
struct Bound {
    variable: Variable,
    assigned: bool,
    buffer: usize,
}

/// Returns the error for a plan whose scratch memory is too large. The error names the largest values.
fn too_large(plan: &Plan) -> Error {
    let mut types: Vec<_> = plan.graph.values.iter().map(|value| value.tensor_type).collect();
    types.sort_by_key(|tensor_type| core::cmp::Reverse(tensor_type.bytes().unwrap_or(usize::MAX)));
    let largest: Vec<_> = types.iter().take(3).map(|tensor_type| format!("{tensor_type}")).collect();
    Error::TooLarge.context(format!("the scratch memory of the function, whose largest values are {}", largest.join(", ")))
}

impl Executable {
    /// Plans `graph` for execution in `scratch`. If a plan that joins neighbours has no room on the device, takes one
    /// that does not.
    pub(crate) fn new(graph: &Graph, device: &Device, fusion: Fusion, scratch: &Shared<Scratch>) -> Result<Executable> {
        let planned = |neighbours| plan(graph, Target::Host(Fusion { neighbours, ..fusion }));
        let mut plan = planned(fusion.neighbours);
        if fusion.neighbours && plan.scratch as u64 > scratch.room(device) {
            plan = planned(false);
        }
        if plan.scratch == usize::MAX {
            return Err(too_large(&plan));
        }
        Builder::new(&plan, device, scratch)?.finish(&plan, scratch.clone())
    }

    /// Returns the size of scratch memory, results, constants and variables, in bytes.
    pub(crate) fn planned_bytes(&self) -> Result<usize> {
        let here = self.buffers.iter().flatten().map(|buffer| buffer.len()).sum::<usize>();
        let variables = self.variables.iter().map(|bound| Ok(bound.variable.tensor_type()?.bytes().unwrap_or(0)));
        Ok(self.scratch_bytes + here + variables.sum::<Result<usize>>()?)
    }

    /// Runs the function on the tensors that `gather` passes to its argument, and builds the results with `build`. `misplaced` creates
    /// the error for an argument on another device.
    pub(crate) fn run<R>(
        &mut self,
        caller: &Caller<'_>,
        misplaced: &dyn Fn(usize, &Device) -> Error,
        gather: impl FnOnce(&mut dyn FnMut(&Tensor)),
        build: impl FnOnce(&mut dyn FnMut() -> Tensor) -> R,
    ) -> Result<R> {
        let run = Run(self);
        caller.during(Activity::Gap("take arguments"), || run.0.set_arguments(misplaced, gather))?;
        caller.during(Activity::Gap("take variables"), || run.0.take_variables())?;
        caller.during(Activity::Gap("renew results"), || run.0.renew_results())?;
        run.0.compute(caller)?;
        let results = caller.during(Activity::Gap("give results"), || run.0.give(build));
        caller.during(Activity::Gap("put variables back"), || drop(run));
        Ok(results)
    }

    fn give<R>(&self, build: impl FnOnce(&mut dyn FnMut() -> Tensor) -> R) -> R {
        let mut outputs = self.outputs.iter();
        // `build` takes exactly as many tensors as the function has outputs, so the fallback scalar is never used.
        let mut next = || {
            let (tensor_type, buffer) = outputs.next()?;
            Some(Tensor::shared(*tensor_type, self.buffers.get(*buffer)?.clone()?))
        };
        build(&mut || next().unwrap_or_else(|| Tensor::scalar(&self.device, 0.0f32)))
    }

    fn set_arguments(&mut self, misplaced: &dyn Fn(usize, &Device) -> Error, gather: impl FnOnce(&mut dyn FnMut(&Tensor))) -> Result<()> {
        let Executable { device, arguments, buffers, results, .. } = self;
        let (mut count, mut set) = (0, Ok(()));
        gather(&mut |tensor| {
            let index = count;
            count += 1;
            let Some(wanted) = arguments.get(index).filter(|_| set.is_ok()) else { return };
            match tensor.buffer() {
                _ if *wanted != tensor.tensor_type() => {
                    set = Err(Error::message(format!("input {index} is {wanted}, got {}", tensor.tensor_type())));
                }
                Err(error) => set = Err(error),
                Ok(buffer) if buffer.device() != device && device.placement().is_none() => set = Err(misplaced(index, buffer.device())),
                Ok(buffer) if buffer.device() != device => match tensor.brought(device) {
                    Ok(copy) => buffers[results.end + index] = copy.buffer().ok().cloned(),
                    Err(error) => set = Err(error),
                },
                Ok(buffer) => buffers[results.end + index] = Some(buffer.clone()),
            }
        });
        if count != arguments.len() {
            return Err(Error::message(format!("the function takes {} tensors, but got {count}", arguments.len())));
        }
        set
    }

    fn take_variables(&mut self) -> Result<()> {
        for bound in &self.variables {
            let variable = &bound.variable;
            let buffer = self.buffers[bound.buffer].insert(if bound.assigned { variable.take()? } else { variable.buffer()? });
            if *buffer.device() != self.device {
                let (name, other, own) = (variable.name(), buffer.device().name(), self.device.name());
                return Err(Error::message(format!("variable {name:?} is on {other}, but the function runs on {own}: create it there")));
            }
        }
        Ok(())
    }

    /// Allocates new buffers in place of the results that a caller still holds.
    fn renew_results(&mut self) -> Result<()> {
        for buffer in self.buffers[self.results.clone()].iter_mut().flatten() {
            if Shared::get_mut(buffer).is_none() {
                let renewed = Buffer::allocate(&self.device, buffer.len(), self.scratch.holder())?;
                buffer.hold(|| Holder::Tensor(""));
                *buffer = Shared::new(renewed);
            }
        }
        Ok(())
    }

    fn compute(&mut self, caller: &Caller<'_>) -> Result<()> {
        let Executable { steps, buffers, device, scratch, scratch_bytes, .. } = self;
        scratch.with(device, *scratch_bytes, |scratch| {
            let remote = scratch.address();
            let scratch = scratch.bytes_mut().and_then(|bytes| bytes.get_mut(..*scratch_bytes)).unwrap_or_default();
            device.during(|| run(steps, &mut Memory { scratch, remote, buffers }, caller)).ok_or(Error::Internal)?
        })
    }
}

/// A run of an executable. However the run ends, dropping this value returns all buffers to their owners.
struct Run<'e>(&'e mut Executable);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let Executable { buffers, results, variables, .. } = &mut *self.0;
        for bound in variables {
            match buffers[bound.buffer].take() {
                Some(buffer) if bound.assigned => bound.variable.put(buffer),
                _ => (),
            }
        }
        buffers[results.end..].iter_mut().for_each(|buffer| *buffer = None);
    }
}

/// An executable under construction.
pub(crate) struct Builder<'d> {
    pub(crate) device: &'d Device,
    /// The buffers of constants, then those of results.
    buffers: Vec<Option<Shared<Buffer>>>,
    results: Range<usize>,
    inputs: usize,
}

/// Calls `visit` with every constant that the plan's nodes read or that the plan returns.
fn constants(plan: &Plan, visit: &mut dyn FnMut(&Tensor)) {
    let graph = &plan.graph;
    let nodes = plan.steps.iter().flat_map(|step| &step.nodes);
    for &id in nodes.flat_map(|&node| &graph.nodes[node].inputs).chain(&graph.outputs) {
        if let Origin::Constant(tensor) = &graph.values[id].origin {
            visit(tensor);
        }
    }
    plan.bodies.iter().flat_map(|bodies| &bodies.plans).for_each(|body| constants(body, visit));
}

impl<'d> Builder<'d> {
    fn new(plan: &Plan, device: &'d Device, scratch: &Scratch) -> Result<Builder<'d>> {
        let mut buffers: Vec<Option<Shared<Buffer>>> = Vec::new();
        let mut computed = Ok(());
        constants(plan, &mut |tensor| match tensor.buffer() {
            Ok(buffer) if buffer.device() != device => {
                let (tensor_type, other, own) = (tensor.tensor_type(), buffer.device().name(), device.name());
                let text = format!(
                    "a tensor {tensor_type} that the function's body uses is on {other}, but the function runs on {own}: copy it with `to`"
                );
                computed = Err(Error::message(text));
            }
            Ok(buffer) if !buffers.iter().flatten().any(|other| Shared::ptr_eq(other, buffer)) => buffers.push(Some(buffer.clone())),
            Ok(_) => (),
            Err(error) => computed = Err(error),
        });
        computed?;
        let first = buffers.len();
        for (value, location) in plan.graph.values.iter().zip(&plan.locations) {
            if let Location::Result(index) = *location {
                let bytes = size(value.tensor_type)?;
                buffers.resize(buffers.len().max(first + index + 1), None);
                if buffers[first + index].is_none() {
                    buffers[first + index] = Some(Shared::new(Buffer::allocate(device, bytes, scratch.holder())?));
                }
            }
        }
        let results = first..buffers.len();
        let inputs = plan.graph.inputs.len();
        buffers.resize(results.end + inputs + plan.graph.captures.len(), None);
        Ok(Builder { device, buffers, results, inputs })
    }

    fn finish(self, plan: &Plan, scratch: Shared<Scratch>) -> Result<Executable> {
        let graph = &plan.graph;
        let steps = self.steps(plan, &|name| name.clone())?;
        let outputs = graph.outputs.iter().map(|&id| match self.place(plan, id)? {
            Address::Buffer(buffer) => Ok((graph.values[id].tensor_type, buffer)),
            Address::Scratch(_) => Err(Error::Internal),
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let mut variables: Vec<Bound> = Vec::new();
        for (capture, buffer) in graph.captures.iter().zip(self.first_variable()..) {
            let variable = capture.source.variable().ok_or(Error::Internal)?.clone();
            variables.push(Bound { variable, assigned: capture.assigned.is_some(), buffer });
        }
        variables.sort_by_key(|bound| bound.variable.id());
        Ok(Executable {
            device: self.device.clone(),
            steps,
            scratch,
            scratch_bytes: plan.scratch,
            results: self.results,
            arguments: graph.inputs.iter().map(|&id| graph.values[id].tensor_type).collect(),
            variables,
            outputs,
            buffers: self.buffers,
        })
    }

    fn first_variable(&self) -> usize {
        self.results.end + self.inputs
    }

    fn place(&self, plan: &Plan, id: ValueId) -> Result<Address> {
        Ok(match plan.locations[id] {
            Location::Scratch(start) | Location::Block(start) => Address::Scratch(start),
            Location::Constant => {
                let buffer = plan.graph.constant(id).ok_or(Error::Internal)?.buffer()?;
                let same = |other: &Option<Shared<Buffer>>| other.as_ref().is_some_and(|other| Shared::ptr_eq(other, buffer));
                Address::Buffer(self.buffers.iter().position(same).ok_or(Error::Internal)?)
            }
            Location::Register => return Err(Error::Internal),
            Location::Result(index) => Address::Buffer(self.results.start + index),
            Location::Input(index) => Address::Buffer(self.results.end + index),
            Location::Variable(index) => Address::Buffer(self.first_variable() + index),
        })
    }

    /// Creates the steps of a plan. `named` maps the name of each node to its name in the whole function.
    fn steps(&self, plan: &Plan, named: &Named<'_>) -> Result<Vec<HostStep>> {
        let (mut steps, mut run) = (Vec::new(), Vec::new());
        for step in &plan.steps {
            let ops = ops(plan, step, named);
            match self.remote_step(plan, step)? {
                Some(remote) => run.push((remote, ops)),
                None => {
                    steps.extend(self.remote_steps(core::mem::take(&mut run))?);
                    steps.push(HostStep { work: self.work(plan, step, named)?, ops: Box::new(ops) });
                }
            }
        }
        steps.extend(self.remote_steps(run)?);
        Ok(steps)
    }

    fn work(&self, plan: &Plan, step: &plan::Step, named: &Named<'_>) -> Result<Work> {
        if let Some(bodies) = plan.bodies.iter().find(|bodies| *step.nodes == [bodies.node]) {
            return self.branches(plan, &plan.graph.nodes[bodies.node], &bodies.plans, named);
        }
        let mut members = Vec::new();
        for &index in &step.nodes {
            let node = &plan.graph.nodes[index];
            let member = self.member(plan, node, &step.division)?;
            verify::at(index as u32, self.check(plan, node, &member.inputs, &member.outputs))?;
            members.push(member);
        }
        match members.as_slice() {
            [Member { outputs, .. }] if outputs.len() < 2 && step.division == Division::NONE => (),
            _ => return Ok(Work::Group(Group::new(members, step.division))),
        }
        let Some(Member { kernel, attributes, inputs, outputs }) = members.pop() else { return Err(Error::Internal) };
        let inputs = inputs.into_iter().map(|(operand, _)| operand).collect();
        Ok(match outputs.first() {
            Some(&(output, _)) => Work::Single(Single { kernel, attributes, inputs, output }),
            None => Work::Effect(Effect { kernel, attributes, inputs }),
        })
    }

    /// Creates the step of a branch or a loop.
    fn branches(&self, plan: &Plan, node: &Node, bodies: &[Plan], named: &Named<'_>) -> Result<Work> {
        let own = Node { name: node.name.as_ref().map(named), ..node.clone() };
        let steps = |(body, plan)| self.steps(plan, &|name| own.inner_name(bodies.len(), body, name));
        let mut blocks = bodies.iter().enumerate().map(steps).collect::<Result<Vec<_>>>()?;
        // The output of its condition decides a loop, its first input a branch.
        let (decided, id, words) = match (node.attributes.as_slice(), bodies.first()) {
            (&[most], Some(condition)) => {
                // The loop's body computes the condition again at its end.
                blocks[1].extend(self.steps(condition, &|name| own.inner_name(bodies.len(), 0, name))?);
                (condition, condition.graph.outputs[0], alloc::vec![0, 1, most])
            }
            _ => (plan, node.inputs[0], (0..blocks.len() as u32).collect()),
        };
        let (by, _) = self.operand(decided, id, &Division::NONE)?;
        let kernel = self.device.kernel(node.op.def, by.tensor_type.dtype)?;
        Ok(Work::Branches(Branches { kernel, attributes: words, by, blocks }))
    }

    pub(crate) fn operands(&self, plan: &Plan, ids: &[ValueId], division: &Division) -> Result<Vec<(Operand, Cut)>> {
        ids.iter().map(|&id| self.operand(plan, id, division)).collect()
    }

    fn member(&self, plan: &Plan, node: &Node, division: &Division) -> Result<Member> {
        Ok(Member {
            kernel: self.device.kernel(node.op.def, dtype(plan, node))?,
            attributes: node.attributes.clone(),
            inputs: self.operands(plan, &node.inputs, division)?,
            outputs: self.operands(plan, &node.outputs, division)?,
        })
    }

    /// Returns the operand for value `id`, and how it is divided into blocks.
    pub(crate) fn operand(&self, plan: &Plan, id: ValueId, division: &Division) -> Result<(Operand, Cut)> {
        let tensor_type = plan.graph.values[id].tensor_type;
        let (width, bytes) = (tensor_type.dtype.size(), size(tensor_type)?);
        let operand = Operand { tensor_type, bytes, place: self.place(plan, id)? };
        Ok(match plan.locations[id] {
            _ if *division == Division::NONE => (operand, Cut::Whole),
            Location::Block(_) => (Operand { bytes: division.threads * division.block * width, ..operand }, Cut::Block(width)),
            _ if bytes == division.elements * width => (operand, Cut::Elements(width)),
            _ => (Operand { tensor_type: TensorType::new(tensor_type.dtype, trailing(&tensor_type)), ..operand }, Cut::Whole),
        })
    }

    /// Checks a node against the rules that artifacts must follow.
    pub(crate) fn check(&self, plan: &Plan, node: &Node, inputs: &[(Operand, Cut)], outputs: &[(Operand, Cut)]) -> Result<(), Rule> {
        let types = |ids: &[ValueId]| ids.iter().map(|&id| plan.graph.values[id].tensor_type).collect::<Vec<_>>();
        let places = |operands: &[(Operand, Cut)]| operands.iter().map(|(operand, _)| self.verified(operand)).collect::<Vec<_>>();
        verify::types(node.op.def, &node.attributes, &types(&node.inputs), &types(&node.outputs))?;
        verify::regions(node.op.def, &places(inputs), &places(outputs))
    }

    fn verified(&self, operand: &Operand) -> verify::Region {
        let bytes = operand.bytes;
        match operand.place {
            Address::Scratch(start) => verify::Region { space: verify::Region::SCRATCH, start, bytes },
            Address::Buffer(index) => {
                let argument = self.results.end..self.first_variable();
                let constant = index < self.results.start || argument.contains(&index);
                let space = if constant { verify::Region::FLASH } else { verify::Region::variable(index as u32) };
                verify::Region { space, start: 0, bytes }
            }
        }
    }
}

/// Returns the element type that decides which kernel computes `node`.
pub(crate) fn dtype(plan: &Plan, node: &Node) -> DType {
    node.inputs.first().or(node.outputs.first()).map_or(DType::U8, |&id| plan.graph.values[id].tensor_type.dtype)
}

/// Maps the name of a body's node to its name in the whole function.
pub(crate) type Named<'n> = dyn Fn(&Shared<str>) -> Shared<str> + 'n;

/// Describes a step for a profiler.
fn ops(plan: &Plan, step: &plan::Step, named: &Named<'_>) -> Ops {
    let graph = &plan.graph;
    let nodes = || step.nodes.iter().map(|&index| &graph.nodes[index]);
    let whole = |id: &ValueId| !matches!(plan.locations[*id], Location::Block(_));
    let mut written: Vec<ValueId> = nodes().flat_map(|node| &node.outputs).copied().filter(whole).collect();
    let mut read: Vec<ValueId> = nodes().flat_map(|node| &node.inputs).copied().filter(whole).collect();
    let bytes = |ids: &mut Vec<ValueId>| {
        ids.sort_unstable();
        ids.dedup();
        ids.iter().map(|&id| graph.values[id].tensor_type.bytes().unwrap_or(0) as u64).sum()
    };
    read.retain(|id| !written.contains(id));
    let output = |node: &Node| Some(graph.values[*node.outputs.first()?].tensor_type);
    let named = |node: &Node| NamedOp { name: node.name.as_ref().map(named), op: node.op.def, output: output(node) };
    Ops { nodes: nodes().map(named).collect(), read: bytes(&mut read), written: bytes(&mut written) }
}

/// Returns the shape of an operand that every block reads completely: a scalar or one axis.
fn trailing(tensor_type: &TensorType) -> Shape {
    match tensor_type.shape.elements() {
        None | Some(1) => Shape::SCALAR,
        Some(columns) => Shape::new(&[columns as u32]).unwrap_or(Shape::SCALAR),
    }
}
