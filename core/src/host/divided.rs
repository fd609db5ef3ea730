//! The executable of a function whose nodes run on several devices: an executable for each stretch, with copies between them.
//!
//! The stretches take the values of variables as arguments. The variables get their new values after the last stretch, so a function that
//! fails leaves all of them as they were.

use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::compile::divide::Stretch;
use crate::compile::optimize::{localize, optimize};
use crate::compile::plan::Fusion;
use crate::host::executable::{Caller, Executable};
use crate::host::kernel_step::Scratch;
use crate::tensor::Tensor;
use crate::tensor::device::{Buffer, Device};
use crate::tensor::graph::{Graph, ValueId};
use crate::tensor::profile::Activity;
use crate::tensor::variable::Variable;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

/// A function that several devices run.
pub(crate) struct Divided {
    device: Device,
    parts: Vec<Part>,
    /// The values that are inputs, with their types.
    inputs: Vec<(ValueId, TensorType)>,
    outputs: Vec<ValueId>,
    variables: Vec<Bound>,
    /// The constants that are results.
    constants: Vec<(ValueId, Tensor)>,
    values: usize,
}

struct Part {
    device: Device,
    executable: Executable,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    /// The values that no later part needs.
    last: Vec<ValueId>,
}

/// The tensors of each value: one for each device that has it. Empty before it is computed, and after its last use.
type Values = Vec<Vec<Tensor>>;

/// A variable of the function, with the values at its beginning and at its end.
struct Bound {
    variable: Variable,
    initial: ValueId,
    assigned: Option<ValueId>,
}

/// Bytes of variables during a run, which are put back on drop.
struct Held<'v>(Vec<(&'v Variable, Shared<Buffer>)>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(variable, buffer)| variable.put(buffer));
    }
}

impl Divided {
    /// Creates the executable of `graph`, which `stretches` divide, for calls on `device`.
    pub(crate) fn new(graph: &Graph, stretches: Vec<Stretch>, device: &Device, scratch: &Shared<Scratch>) -> Result<Divided> {
        let results: Vec<ValueId> = graph.results().collect();
        let mut parts: Vec<Part> = Vec::new();
        for Stretch { device: index, graph: mut own, inputs, outputs } in stretches {
            let device = device.member(index).ok_or(Error::Internal)?;
            optimize(&mut own)?;
            localize(&device, &mut own)?;
            let executable = Executable::new(&own, &device, Fusion::of(&device), scratch)?;
            parts.push(Part { device, executable, inputs, outputs, last: Vec::new() });
        }
        let mut needed: BTreeSet<ValueId> = results.iter().copied().collect();
        for part in parts.iter_mut().rev() {
            part.last = part.inputs.iter().chain(&part.outputs).copied().filter(|id| !needed.contains(id)).collect();
            needed.extend(&part.inputs);
        }
        let mut variables = Vec::new();
        for capture in &graph.captures {
            let variable = capture.source.variable().ok_or(Error::Internal)?.clone();
            variables.push(Bound { variable, initial: capture.initial, assigned: capture.assigned });
        }
        variables.sort_by_key(|bound| bound.variable.id());
        let constant = |&id: &ValueId| graph.constant(id).map(|tensor| (id, tensor.clone()));
        Ok(Divided {
            device: device.clone(),
            parts,
            inputs: graph.inputs.iter().map(|&id| (id, graph.values[id].tensor_type)).collect(),
            outputs: graph.outputs.clone(),
            variables,
            constants: results.iter().filter_map(constant).collect(),
            values: graph.values.len(),
        })
    }

    /// Returns the sum of the parts' planned sizes and of the variables' sizes, in bytes.
    pub(crate) fn planned_bytes(&self) -> Result<usize> {
        let parts = self.parts.iter().map(|part| part.executable.planned_bytes()).sum::<Result<usize>>()?;
        let variables = self.variables.iter().map(|bound| Ok(bound.variable.tensor_type()?.bytes().unwrap_or(0)));
        Ok(parts + variables.sum::<Result<usize>>()?)
    }

    /// Runs the function on the tensors that `gather` passes to its argument, and builds the results with `build`.
    pub(crate) fn run<R>(
        &mut self,
        caller: &Caller<'_>,
        gather: impl FnOnce(&mut dyn FnMut(&Tensor)),
        build: impl FnOnce(&mut dyn FnMut() -> Tensor) -> R,
    ) -> Result<R> {
        let mut values: Values = alloc::vec![Vec::new(); self.values];
        self.constants.iter().for_each(|(id, tensor)| values[*id].push(tensor.clone()));
        self.set_arguments(&mut values, gather)?;
        let mut held = Held(Vec::new());
        for Bound { variable, initial, assigned } in &self.variables {
            let buffer = if assigned.is_some() { variable.take_shared()? } else { variable.buffer()? };
            values[*initial].push(Tensor::shared(variable.tensor_type()?, buffer.clone()));
            if assigned.is_some() {
                held.0.push((variable, buffer));
            }
        }
        for part in &mut self.parts {
            part.run(caller, &mut values)?;
        }
        let results = self.outputs.iter().map(|&id| on(caller.device, &mut values, id)).collect::<Result<Vec<Tensor>>>()?;
        let mut renewed = Vec::new();
        for (id, (variable, old)) in self.variables.iter().filter_map(|bound| bound.assigned).zip(&held.0) {
            let value = on(old.device(), &mut values, id)?;
            renewed.push(Buffer::lasting(value.buffer()?, || variable.holder())?);
        }
        for ((variable, place), buffer) in held.0.iter_mut().zip(renewed) {
            buffer.hold(|| variable.holder());
            *place = buffer;
        }
        drop((held, values));
        let mut results = results.into_iter();
        Ok(build(&mut || results.next().unwrap_or_else(|| Tensor::scalar(&self.device, 0.0f32))))
    }

    fn set_arguments(&self, values: &mut Values, gather: impl FnOnce(&mut dyn FnMut(&Tensor))) -> Result<()> {
        let (mut count, mut set) = (0, Ok(()));
        gather(&mut |tensor| {
            let index = count;
            count += 1;
            let Some(&(id, wanted)) = self.inputs.get(index).filter(|_| set.is_ok()) else { return };
            match tensor.buffer() {
                _ if wanted != tensor.tensor_type() => {
                    set = Err(Error::message(format!("input {index} is {wanted}, got {}", tensor.tensor_type())));
                }
                Err(error) => set = Err(error),
                Ok(buffer) => values[id].push(Tensor::shared(wanted, buffer.clone())),
            }
        });
        if count != self.inputs.len() {
            return Err(Error::message(format!("the function takes {} tensors, but got {count}", self.inputs.len())));
        }
        set
    }
}

impl Part {
    /// Runs the part. Takes its inputs from `values`, and adds its outputs.
    fn run(&mut self, caller: &Caller<'_>, values: &mut Values) -> Result<()> {
        let Part { device, executable, inputs, outputs, last } = self;
        // The caller may have a profiler, which the device of the plan has not.
        let device = caller.device.member(device.index()).unwrap_or_else(|| device.clone());
        let arguments = inputs.iter().map(|&id| on(&device, values, id)).collect::<Result<Vec<Tensor>>>()?;
        let own = Caller::on(&device);
        let misplaced = |_, _: &Device| Error::Internal;
        let gather = |take: &mut dyn FnMut(&Tensor)| arguments.iter().for_each(take);
        let count = outputs.len();
        let work = || executable.run(&own, &misplaced, gather, |next| (0..count).map(|_| next()).collect::<Vec<Tensor>>());
        let results = caller.during(Activity::Scope(device.name()), work)?;
        outputs.iter().zip(results).for_each(|(&id, result)| values[id].push(result));
        last.iter().for_each(|&id| values[id].clear());
        Ok(())
    }
}

/// Returns value `id` on `device`. A copy is kept for later parts.
fn on(device: &Device, values: &mut Values, id: ValueId) -> Result<Tensor> {
    let tensors = values.get_mut(id).ok_or(Error::Internal)?;
    for tensor in tensors.iter() {
        if tensor.buffer()?.device() == device {
            return Ok(tensor.clone());
        }
    }
    let copy = tensors.first().ok_or(Error::Internal)?.brought(device)?;
    tensors.push(copy.clone());
    Ok(copy)
}
