//! A traced function on the host: steps that compute in the very buffers of arguments, results and variables.
//!
//! While a function runs, the variables that it assigns are taken from everybody else, and changed in place.

use crate::device::{AlignedBytes, Buffer, Device};
use crate::error::{Error, Result, Rule};
use crate::fuse::{Division, Fusion};
use crate::graph::{Graph, Node, Origin, ValueId};
use crate::group::{Cut, Group, Member};
use crate::plan::{self, Location, Plan, Target, plan};
use crate::shape::{Shape, TensorType};
use crate::steps::{Memory, Operand, Place, Single};
use crate::sync::Shared;
use crate::tensor::Tensor;
use crate::variable::Variable;
use crate::verify;
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

/// A planned function, ready to run. It allocates only what its caller still holds of earlier results.
pub(crate) struct Executable {
    device: Device,
    steps: Vec<Step>,
    scratch: AlignedBytes,
    /// Those of constants, results, arguments and variables, in this order. The last two are here during a run only.
    buffers: Vec<Option<Shared<Buffer>>>,
    results: Range<usize>,
    /// The arguments' types; their buffers follow the results'.
    arguments: Vec<TensorType>,
    variables: Vec<Bound>,
    outputs: Vec<(TensorType, usize)>,
}

enum Step {
    Single(Single),
    Group(Group),
}

/// A variable of the function, and the number of its buffer.
struct Bound {
    variable: Variable,
    assigned: bool,
    buffer: usize,
}

impl Executable {
    pub(crate) fn new(graph: &Graph, device: &Device, fusion: Fusion) -> Result<Executable> {
        let plan = plan(graph, Target::Host(fusion));
        if plan.scratch == u32::MAX {
            return Err(Error::TooLarge);
        }
        Builder::new(plan, device)?.finish()
    }

    /// The bytes of scratch memory, results, constants and variables.
    pub(crate) fn planned_bytes(&self) -> Result<usize> {
        let here = self.buffers.iter().flatten().map(|buffer| buffer.bytes().len()).sum::<usize>();
        let variables = self.variables.iter().map(|bound| Ok(bound.variable.tensor_type()?.bytes().unwrap_or(0) as usize));
        Ok(self.scratch.len() + here + variables.sum::<Result<usize>>()?)
    }

    /// Runs the function on the tensors that `gather` gives, and gives its results to `build`.
    pub(crate) fn run<R>(
        &mut self,
        gather: impl FnOnce(&mut dyn FnMut(&Tensor)),
        build: impl FnOnce(&mut dyn FnMut() -> Tensor) -> R,
    ) -> Result<R> {
        let run = Run(self);
        run.0.set_arguments(gather)?;
        run.0.take_variables()?;
        run.0.renew_results();
        run.0.compute()?;
        let mut outputs = run.0.outputs.iter();
        // The structure that is built has as many tensors as the function has outputs.
        let mut next = || {
            let (tensor_type, buffer) = outputs.next()?;
            Some(Tensor::shared(*tensor_type, run.0.buffers.get(*buffer)?.clone()?))
        };
        Ok(build(&mut || next().unwrap_or_else(|| Tensor::scalar(&run.0.device, 0.0f32))))
    }

    fn set_arguments(&mut self, gather: impl FnOnce(&mut dyn FnMut(&Tensor))) -> Result<()> {
        let Executable { arguments, buffers, results, .. } = self;
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
                Ok(buffer) => buffers[results.end + index] = Some(buffer.clone()),
            }
        });
        if count != arguments.len() {
            return Err(Error::message(format!("the function takes {} tensors, got {count}", arguments.len())));
        }
        set
    }

    fn take_variables(&mut self) -> Result<()> {
        for bound in &self.variables {
            let variable = &bound.variable;
            self.buffers[bound.buffer] = Some(if bound.assigned { variable.take()? } else { variable.buffer()? });
        }
        Ok(())
    }

    /// New buffers for the results that somebody holds.
    fn renew_results(&mut self) {
        for buffer in self.buffers[self.results.clone()].iter_mut().flatten() {
            if Shared::get_mut(buffer).is_none() {
                *buffer = Shared::new(self.device.zeros(buffer.bytes().len()));
            }
        }
    }

    fn compute(&mut self) -> Result<()> {
        let mut before = 0;
        for step in &self.steps {
            let memory = Memory { scratch: &mut self.scratch, buffers: &mut self.buffers };
            let (ran, nodes) = match step {
                Step::Single(single) => (single.run(memory), 1),
                Step::Group(group) => (group.run(memory, &self.device), group.len()),
            };
            ran.map_err(|error| error.at(before as u32))?;
            before += nodes;
        }
        Ok(())
    }
}

/// A run: when it ends, in whatever way, everybody has their buffers again.
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
struct Builder<'d> {
    device: &'d Device,
    plan: Plan,
    buffers: Vec<Option<Shared<Buffer>>>,
    /// The buffer of each value that is a constant.
    constants: Vec<Option<usize>>,
    results: Range<usize>,
}

impl<'d> Builder<'d> {
    fn new(plan: Plan, device: &'d Device) -> Result<Builder<'d>> {
        let graph = &plan.graph;
        let mut builder = Builder { device, buffers: Vec::new(), constants: alloc::vec![None; graph.values.len()], results: 0..0, plan };
        let graph = &builder.plan.graph;
        let nodes = builder.plan.steps.iter().flat_map(|step| &step.nodes);
        for &id in nodes.flat_map(|&node| &graph.nodes[node].inputs).chain(&graph.outputs) {
            if let (Origin::Constant(tensor), None) = (&graph.values[id].origin, builder.constants[id]) {
                builder.constants[id] = Some(builder.buffers.len());
                builder.buffers.push(Some(tensor.buffer()?.clone()));
            }
        }
        let first = builder.buffers.len();
        for (id, location) in builder.plan.locations.iter().enumerate() {
            if let Location::Result(index) = *location {
                let bytes = graph.values[id].tensor_type.bytes().ok_or(Error::TooLarge)? as usize;
                builder.buffers.resize(builder.buffers.len().max(first + index + 1), None);
                builder.buffers[first + index].get_or_insert_with(|| Shared::new(device.zeros(bytes)));
            }
        }
        builder.results = first..builder.buffers.len();
        builder.buffers.resize(builder.results.end + graph.inputs.len() + graph.captures.len(), None);
        Ok(builder)
    }

    fn finish(self) -> Result<Executable> {
        let graph = &self.plan.graph;
        let steps = self.plan.steps.iter().map(|step| self.step(step)).collect::<Result<_>>()?;
        let outputs = graph.outputs.iter().map(|&id| match self.place(id)? {
            Place::Buffer(buffer) => Ok((graph.values[id].tensor_type, buffer)),
            Place::Scratch(_) => Err(Error::Traced),
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let mut variables: Vec<Bound> = Vec::new();
        for (capture, buffer) in graph.captures.iter().zip(self.first_variable()..) {
            let variable = capture.source.variable().ok_or(Error::Traced)?.clone();
            variables.push(Bound { variable, assigned: capture.assigned.is_some(), buffer });
        }
        variables.sort_by_key(|bound| bound.variable.id());
        Ok(Executable {
            device: self.device.clone(),
            steps,
            scratch: AlignedBytes::zeroed(self.plan.scratch as usize),
            results: self.results,
            arguments: graph.inputs.iter().map(|&id| graph.values[id].tensor_type).collect(),
            variables,
            outputs,
            buffers: self.buffers,
        })
    }

    fn first_variable(&self) -> usize {
        self.results.end + self.plan.graph.inputs.len()
    }

    fn place(&self, id: ValueId) -> Result<Place> {
        Ok(match self.plan.locations[id] {
            Location::Scratch(start) | Location::Block(start) => Place::Scratch(start as usize),
            Location::Constant => Place::Buffer(self.constants[id].ok_or(Error::Traced)?),
            Location::Result(index) => Place::Buffer(self.results.start + index),
            Location::Input(index) => Place::Buffer(self.results.end + index),
            Location::Variable(index) => Place::Buffer(self.first_variable() + index),
        })
    }

    fn step(&self, step: &plan::Step) -> Result<Step> {
        let mut members = Vec::new();
        for &index in &step.nodes {
            let node = &self.plan.graph.nodes[index];
            let member = self.member(node, &step.division)?;
            verify::at(index as u32, self.check(node, &member))?;
            members.push(member);
        }
        match members.as_slice() {
            [Member { outputs, .. }] if outputs.len() == 1 && step.division == Division::NONE => (),
            _ => return Ok(Step::Group(Group::new(members, step.division))),
        }
        let Some(Member { kernel, attributes, inputs, outputs }) = members.pop() else { return Err(Error::Traced) };
        let inputs = inputs.into_iter().map(|(operand, _)| operand).collect();
        Ok(Step::Single(Single { kernel, attributes, inputs, output: outputs[0].0 }))
    }

    fn member(&self, node: &Node, division: &Division) -> Result<Member> {
        let operands = |ids: &[ValueId]| ids.iter().map(|&id| self.operand(id, division)).collect::<Result<Vec<_>>>();
        let typed_by = *node.inputs.first().or(node.outputs.first()).ok_or(Error::Arity { got: 0 })?;
        Ok(Member {
            kernel: self.device.kernel(node.op.def, self.plan.graph.values[typed_by].tensor_type.dtype)?,
            attributes: node.attributes.clone(),
            inputs: operands(&node.inputs)?,
            outputs: operands(&node.outputs)?,
        })
    }

    /// Value `id`, and how it is divided.
    fn operand(&self, id: ValueId, division: &Division) -> Result<(Operand, Cut)> {
        let tensor_type = self.plan.graph.values[id].tensor_type;
        let (size, bytes) = (tensor_type.dtype.size(), tensor_type.bytes().ok_or(Error::TooLarge)? as usize);
        let operand = Operand { tensor_type, bytes, place: self.place(id)? };
        Ok(match self.plan.locations[id] {
            _ if *division == Division::NONE => (operand, Cut::Whole),
            Location::Block(_) => (Operand { bytes: division.threads * division.block * size, ..operand }, Cut::Block(size)),
            _ if bytes == division.elements * size => (operand, Cut::Elements(size)),
            _ => (Operand { tensor_type: TensorType::new(tensor_type.dtype, trailing(&tensor_type)), ..operand }, Cut::Whole),
        })
    }

    /// Checks a node by the rules that artifacts must keep.
    fn check(&self, node: &Node, member: &Member) -> Result<(), Rule> {
        let types = |ids: &[ValueId]| ids.iter().map(|&id| self.plan.graph.values[id].tensor_type).collect::<Vec<_>>();
        let places = |operands: &[(Operand, Cut)]| operands.iter().map(|(operand, _)| self.verified(operand)).collect::<Vec<_>>();
        verify::types(node.op.def, &node.attributes, &types(&node.inputs), &types(&node.outputs))?;
        verify::places(node.op.def, &places(&member.inputs), &places(&member.outputs))
    }

    fn verified(&self, operand: &Operand) -> verify::Place {
        let bytes = operand.bytes as u32;
        match operand.place {
            Place::Scratch(start) => verify::Place { space: verify::Place::SCRATCH, start: start as u32, bytes },
            Place::Buffer(index) => {
                let argument = self.results.end..self.first_variable();
                let constant = index < self.results.start || argument.contains(&index);
                let space = if constant { verify::Place::FLASH } else { verify::Place::variable(index as u32) };
                verify::Place { space, start: 0, bytes }
            }
        }
    }
}

/// The shape of an operand that every block reads: a scalar, or one axis.
fn trailing(tensor_type: &TensorType) -> Shape {
    match tensor_type.shape.elements() {
        None | Some(1) => Shape::SCALAR,
        Some(columns) => Shape::new(&[columns]).unwrap_or(Shape::SCALAR),
    }
}
