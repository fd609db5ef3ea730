//! Creates the steps of a compiled function that a remote device computes.

use crate::base::error::{Error, Result};
use crate::compile::plan;
use crate::compile::plan::{Division, Location, Plan, is_view};
use crate::host::executable::{Builder, HostStep, Work, dtype};
use crate::host::launch_step::{Launched, Prepared};
use crate::runtime::verify;
use crate::tensor::device::remote::{Member, Slot, Source, Step, StepOp};
use crate::tensor::graph::ValueId;
use crate::tensor::profile::Ops;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Builder<'_> {
    /// Returns the step that the device computes in its own memory, or `None` if the host takes part in it.
    pub(crate) fn remote_step(&self, plan: &Plan, step: &plan::Step) -> Result<Option<Step>> {
        let Some(remote) = self.device.remote() else { return Ok(None) };
        if plan.bodies.iter().any(|bodies| *step.nodes == [bodies.node]) {
            return Ok(None);
        }
        let &[index] = step.nodes.as_slice() else { return self.group(plan, step).map(Some) };
        let node = &plan.graph.nodes[index];
        if node.outputs.is_empty() && !remote.checks(node.op.def, dtype(plan, node)) {
            return Ok(None);
        }
        self.has_kernel(plan, index)?;
        let operands = |ids: &[ValueId]| self.operands(plan, ids, &Division::NONE);
        let (inputs, outputs) = (operands(&node.inputs)?, operands(&node.outputs)?);
        verify::at(index as u32, self.check(plan, node, &inputs, &outputs))?;
        let slots = |operands: &[(_, _)]| operands.iter().map(|(operand, _)| Slot::of(operand)).collect();
        let (inputs, outputs) = (slots(&inputs), slots(&outputs));
        Ok(Some(Step::Op(StepOp { op: node.op.def, attributes: node.attributes.clone(), inputs, outputs })))
    }

    fn has_kernel(&self, plan: &Plan, index: usize) -> Result<()> {
        let node = &plan.graph.nodes[index];
        let (op, dtype) = (node.op.def, dtype(plan, node));
        if self.device.has_kernel(op, dtype) { Ok(()) } else { Err(Error::NoKernel { op: op.name, dtype }) }
    }

    fn slot(&self, plan: &Plan, id: ValueId) -> Result<Slot> {
        Ok(Slot::of(&self.operand(plan, id, &Division::NONE)?.0))
    }

    /// Creates a step of several elementwise nodes.
    fn group(&self, plan: &Plan, step: &plan::Step) -> Result<Step> {
        let graph = &plan.graph;
        let mut members: Vec<Member> = Vec::new();
        let mut computed: Vec<ValueId> = Vec::new();
        for &index in &step.nodes {
            self.has_kernel(plan, index)?;
            let node = &graph.nodes[index];
            let &[output] = node.outputs.as_slice() else { return Err(Error::Internal) };
            let source = |&id: &ValueId| {
                let tensor_type = graph.values[id].tensor_type;
                let root = root(plan, id);
                match computed.iter().position(|&other| other == root) {
                    Some(member) => Ok(Source::Value { member, tensor_type }),
                    None => self.slot(plan, id).map(Source::Memory),
                }
            };
            let inputs = node.inputs.iter().map(source).collect::<Result<_>>()?;
            let kept = if plan.locations[output] == Location::Register { None } else { Some(self.slot(plan, output)?) };
            let output_type = graph.values[output].tensor_type;
            members.push(Member { op: node.op.def, attributes: node.attributes.clone(), inputs, output: output_type, kept });
            computed.push(output);
        }
        Ok(Step::Group { elements: step.division.elements, members })
    }

    /// Creates the steps for a run of remote steps: one that the device has prepared, or one for each of them.
    pub(crate) fn remote_steps(&self, run: Vec<(Step, Ops)>) -> Result<Vec<HostStep>> {
        let Some(remote) = self.device.remote().filter(|_| !run.is_empty()) else { return Ok(Vec::new()) };
        let (steps, ops): (Vec<Step>, Vec<Ops>) = run.into_iter().unzip();
        if let Some(recorded) = remote.record(steps.clone())? {
            let nodes = ops.iter().flat_map(|ops| ops.nodes.iter().cloned()).collect();
            let (read, written) = (ops.iter().map(|ops| ops.read).sum(), ops.iter().map(|ops| ops.written).sum());
            let steps = ops.into_iter().zip(steps.into_iter().map(attributes)).collect();
            let work = Work::Prepared(Prepared { recorded, steps });
            return Ok(alloc::vec![HostStep { work, ops: Box::new(Ops { nodes, read, written }) }]);
        }
        let launched = |(step, ops)| match step {
            Step::Op(op) => Ok(HostStep { work: Work::Launched(Launched(op)), ops: Box::new(ops) }),
            Step::Group { .. } => Err(Error::Internal),
        };
        steps.into_iter().zip(ops).map(launched).collect()
    }
}

/// Returns the attribute words of a step's first node.
fn attributes(step: Step) -> Vec<u32> {
    match step {
        Step::Op(op) => op.attributes,
        Step::Group { members, .. } => members.into_iter().next().map_or(Vec::new(), |member| member.attributes),
    }
}

/// Returns the value that `id` is a view of, or `id` if it is no view.
fn root(plan: &Plan, id: ValueId) -> ValueId {
    let graph = &plan.graph;
    let view = graph.nodes.iter().find(|node| node.outputs.contains(&id) && is_view(graph, node));
    view.map_or(id, |node| root(plan, node.inputs[0]))
}
