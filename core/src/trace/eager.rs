//! Eager execution.

use crate::base::error::{Error, Result};
use crate::base::op::MAX_INPUTS;
use crate::base::random::Stream;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared};
use crate::tensor::Tensor;
use crate::tensor::device::{Buffer, Device};
use crate::tensor::graph::Control;
use crate::tensor::profile::Activity;
use crate::tensor::replicas::Role;
use crate::tensor::scope::{Emitter, Entered, Op, Outputs, Scope, ScopeHandle};
use crate::tensor::variable::{Taken, Variable};
use crate::trace::copies;
use crate::trace::replay::interpret;
use alloc::vec::Vec;

/// Scope that computes eagerly and records nothing.
///
/// ```
/// use gradlet_core::{Eager, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// ```
#[derive(Clone)]
#[doc(alias = "eager execution", alias = "tf.executing_eagerly")]
pub struct Eager(Shared<Immediate>);

struct Immediate {
    device: Device,
    seed: u64,
    random: Variable,
    role: Option<Role>,
}

impl Eager {
    /// Creates a scope whose new tensors are on `device`, with random seed 0.
    pub fn new(device: &Device) -> Eager {
        Eager::with_seed(device, 0)
    }

    /// Creates a scope whose new tensors are on `device`, with this random seed.
    pub fn with_seed(device: &Device, seed: u64) -> Eager {
        Eager::of(device, seed, None)
    }

    /// Creates a scope with a role among replicas, for the author of a strategy. A replica's scope reads and assigns its own copies of
    /// variables. In the scope around the replicas, a new variable has a copy on each of their devices.
    pub fn with_role(device: &Device, seed: u64, role: Role) -> Eager {
        Eager::of(device, seed, Some(role))
    }

    fn of(device: &Device, seed: u64, role: Option<Role>) -> Eager {
        let random = Variable::untrained("seed_generator_state");
        Eager(Shared::new(Immediate { device: device.clone(), seed, random, role }))
    }
}

impl Scope for Eager {
    fn handle(&self) -> ScopeHandle {
        ScopeHandle::new(self.0.clone())
    }
}

impl Immediate {
    /// Returns the device that updates `variables`: the scope's device or, in a group, that of the first variable.
    fn updater(&self, variables: &[&Variable]) -> Option<Device> {
        if self.device.placement().is_none() {
            return Some(self.device.clone());
        }
        self.device.peer(&variables.first()?.device().ok()?)
    }

    /// Returns the types of `variables` and `inputs`, the operands of an update, or `None` if `device` cannot do the update in place. After
    /// `None`, the caller takes the ordinary path, which reports any error.
    fn update_types(
        &self,
        device: &Device,
        op: &Op,
        attributes: &[u32],
        variables: &[&Variable],
        inputs: &[&Tensor],
    ) -> Option<UpdateTypes> {
        let able = |(index, variable): (usize, &&Variable)| {
            op.def.in_place.contains(&(index as u8, index as u8)) && !variables.iter().take(index).any(|other| other == variable)
        };
        let here = |tensor: &&Tensor| tensor.buffer().is_ok_and(|buffer| *buffer.device() == *device || device.placement().is_some());
        let own = variables.iter().map(|variable| variable.tensor_type());
        let types = own.chain(inputs.iter().map(|tensor| Ok(tensor.tensor_type()))).collect::<Result<UpdateTypes>>().ok()?;
        let outputs = op.def.output_types(&types, attributes).ok()?;
        let same = types.starts_with(outputs.get(..variables.len())?);
        let dtype = types.first()?.dtype;
        let computes = device.has_kernel(op.def, dtype) && !op.may_refuse(dtype);
        let owns = |variable: &&Variable| variable.device().is_ok_and(|other| other == *device);
        (same && computes && variables.iter().all(owns) && variables.iter().enumerate().all(able) && inputs.iter().all(here))
            .then_some(types)
    }
}

type UpdateTypes = heapless::Vec<TensorType, MAX_INPUTS>;

impl Emitter for Immediate {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        if op.def.outputs == 0 {
            // An effect belongs to the scope's device, not to the device of a tensor.
            return Tensor::compute_on(&self.device, op, attributes, inputs);
        }
        Tensor::compute_on(Tensor::common_device(inputs)?.or_led(&self.device), op, attributes, inputs)
    }

    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        interpret(control, None, inputs)
    }

    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>> {
        None
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        if self.role.is_none() {
            return copies::value(variable);
        }
        let value = copies::value(&copies::own(self.role.as_ref(), variable))?;
        if self.device.placement().is_some() { Ok(value) } else { value.brought(&self.device) }
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        let own = copies::own(self.role.as_ref(), variable);
        if own.is_mirrored() {
            return copies::assign(&own, value, |copy, value| copy.set(&value.brought(&copy.device()?)?));
        }
        if self.role.is_some() { own.set(&value.brought(&own.device()?)?) } else { own.set(value) }
    }

    fn role(&self) -> Option<&Role> {
        self.role.as_ref()
    }

    fn update_in_place(&self, op: &'static Op, attributes: &[u32], variables: &[&Variable], inputs: &[&Tensor]) -> Result<bool> {
        let own: heapless::Vec<Variable, MAX_INPUTS> = variables.iter().map(|variable| copies::own(self.role.as_ref(), variable)).collect();
        if own.iter().any(Variable::is_mirrored) {
            return Ok(false);
        }
        let variables: &[&Variable] = &own.iter().collect::<heapless::Vec<&Variable, MAX_INPUTS>>();
        let Some(device) = self.updater(variables) else { return Ok(false) };
        let Some(types) = self.update_types(&device, op, attributes, variables, inputs) else { return Ok(false) };
        let inputs = inputs.iter().map(|tensor| tensor.brought(&device)).collect::<Result<heapless::Vec<Tensor, MAX_INPUTS>>>()?;
        let mut buffers = heapless::Vec::<&Buffer, MAX_INPUTS>::new();
        for tensor in &inputs {
            buffers.push(tensor.buffer()?).map_err(|_| Error::Internal)?;
        }
        let mut taken = Taken::new(variables)?;
        device.update(op.def, attributes, &types, taken.buffers_mut().collect(), &buffers)?;
        if device.placement().is_some_and(|placement| placement.now().logs) {
            device.log_op(op);
        }
        Ok(true)
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn enter(&self, layer: &Entered<'_>) {
        self.enter_scope(layer.name);
    }

    fn leave(&self, _: Option<TensorType>) {
        self.leave_scope();
    }

    fn enter_scope(&self, name: &str) {
        if let Some(profiler) = self.device.profiler() {
            profiler.begin(&Activity::Scope(name));
        }
    }

    fn leave_scope(&self) {
        if let Some(profiler) = self.device.profiler() {
            profiler.end();
        }
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        None
    }

    fn recording(&self) -> bool {
        true
    }

    fn may_create(&self) -> bool {
        true
    }

    fn random_state(&self) -> Result<Variable> {
        self.random.create_with(|| Tensor::new(&self.device, &[self.seed as i64, 0], &[2]))?;
        Ok(self.random.clone())
    }

    fn next_stream(&self) -> Result<Stream> {
        let state = self.random_state()?;
        state.write(|bytes| {
            let Ok([key, next]) = bytemuck::try_cast_slice_mut::<u8, i64>(bytes) else { return Err(Error::Internal) };
            let stream = Stream { key: *key as u64, stream: *next as u64 };
            *next = next.wrapping_add(1);
            Ok(stream)
        })?
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops;
    use std::string::ToString;
    use std::vec;

    fn setting(values: &[f32]) -> (Eager, Variable) {
        let scope = Eager::new(&ops::portable_cpu());
        let value = Tensor::new(&scope.device(), values, &[values.len() as u32]).unwrap();
        let variable = Variable::new(&scope, "v", &value).unwrap();
        (scope, variable)
    }

    fn elements(variable: &Variable) -> vec::Vec<f32> {
        variable.value().unwrap().to_vec().unwrap()
    }

    #[test]
    fn an_update_is_in_place_unless_somebody_holds_the_value() {
        let (scope, variable) = setting(&[1.0, 2.0]);
        let one = Tensor::scalar(&scope.device(), 1.0f32);
        let place = |variable: &Variable| variable.value().unwrap().bytes().unwrap().as_ptr();
        let first = place(&variable);
        scope.update(&ops::sub::OP, &[], &[&variable], &[&one]).unwrap();
        assert_eq!((elements(&variable), place(&variable)), (vec![0.0, 1.0], first));
        let held = scope.read(&variable).unwrap();
        scope.update(&ops::add::OP, &[], &[&variable], &[&held]).unwrap();
        assert_eq!((elements(&variable), held.to_vec::<f32>().unwrap()), (vec![0.0, 2.0], vec![0.0, 1.0]));
        assert_ne!(place(&variable), first);
    }

    #[test]
    fn several_variables_are_updated_together() {
        let (scope, w) = setting(&[1.0, 2.0]);
        let ((_, m), (_, v)) = (setting(&[0.5, 0.5]), setting(&[0.25, 0.25]));
        let before = [&w, &m, &v].map(|variable| scope.read(variable).unwrap());
        let gradient = Tensor::new(&scope.device(), &[3.0f32, -1.0], &[2]).unwrap();
        let (rate, steps) = (Tensor::scalar(&scope.device(), 0.1f32), Tensor::scalar(&scope.device(), 3i64));
        let wanted = before[0].adam_step([&before[1], &before[2]], &gradient, &rate, &steps, [0.9, 0.999], 1e-7).unwrap();
        drop(before);
        let attributes = [0.9f64, 0.999, 1e-7, 1.0 - 0.9, 1.0 - 0.999].map(|value| (value as f32).to_bits());
        scope.update(&ops::adam_step::OP, &attributes, &[&w, &m, &v], &[&gradient, &rate, &steps]).unwrap();
        for (variable, wanted) in [&w, &m, &v].into_iter().zip(wanted) {
            assert_eq!(elements(variable), wanted.to_vec::<f32>().unwrap());
        }
    }

    #[test]
    fn what_does_not_fit_is_told_as_by_the_op() {
        let (scope, variable) = setting(&[1.0, 2.0]);
        let wrong = Tensor::new(&scope.device(), &[1.0f32; 3], &[3]).unwrap();
        let error = scope.update(&ops::add::OP, &[], &[&variable], &[&wrong]).unwrap_err().to_string();
        assert!(error.starts_with("add(f32[2], f32[3]): "), "{error}");
        let wide = Tensor::new(&scope.device(), &[1.0f32; 4], &[2, 2]).unwrap();
        let error = scope.update(&ops::add::OP, &[], &[&variable], &[&wide]).unwrap_err().to_string();
        assert_eq!(error, "variable \"v\" is f32[2], so it cannot be set to f32[2,2]");
        assert_eq!(scope.update(&ops::add::OP, &[], &[&variable, &variable], &[]), Err(Error::Arity { got: 2 }));
        // An op that cannot work in place uses the fallback path.
        scope.update(&ops::sin::OP, &[], &[&variable], &[]).unwrap();
        assert!(elements(&variable)[0] < 1.0);
    }
}
