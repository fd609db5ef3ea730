//! Scope that reports each layer and each op to an observer, for summaries and numeric checks.

use crate::base::dtype::{DType, Element};
use crate::base::error::{Error, Result};
use crate::base::op::MAX_INPUTS;
use crate::base::random::Stream;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, ThreadSafe, Weak};
use crate::tensor::device::Device;
use crate::tensor::graph::Control;
use crate::tensor::scope::{CustomRule, Emitter, Entered, Forward, Op, Outputs, Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use crate::tensor::{self, Tensor};
use crate::trace::replay::interpret;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Receiver of reports about layers and ops.
pub trait Observer: ThreadSafe {
    /// Reports that a layer begins.
    fn enter(&self, layer: &Entered<'_>) {
        let _ = layer;
    }

    /// Reports that the innermost open layer ends, with the type of its output, or `None` if it failed.
    fn leave(&self, output: Option<TensorType>) {
        let _ = output;
    }

    /// Reports that an op was emitted. An error of the observer becomes the op's error.
    fn emitted(&self, op: &'static Op, inputs: &[&Tensor], outputs: &[Tensor]) -> Result<()> {
        let _ = (op, inputs, outputs);
        Ok(())
    }
}

/// Returns a scope inside `scope` that reports its layers and ops to `observer`, for as long as the handle exists.
///
/// ```
/// use gradlet_core::scope::{Finite, observed};
/// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let checked = observed(&scope, Finite::new());
/// let x = Variable::new(&scope, "x", &Tensor::new(&scope.device(), &[1.0f32, 0.0], &[2])?)?;
/// let y = checked.read(&x)?;
/// let error = y.div(&y).unwrap_err().to_string();
/// assert!(error.starts_with("div(f32[2], f32[2]): returned NaN at position 1; its inputs are finite"));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub fn observed(scope: &dyn Scope, observer: Shared<dyn Observer>) -> ScopeHandle {
    let parent = scope.handle();
    let mode = parent.mode();
    let observed = Shared::new_cyclic(|this| Observed { this: this.clone(), parent, observer, body: Lock::default() });
    ScopeHandle::new(observed).in_mode(mode)
}

struct Observed {
    this: Weak<Observed>,
    parent: ScopeHandle,
    observer: Shared<dyn Observer>,
    body: Lock<Option<ScopeHandle>>,
}

impl Observed {
    fn wrap(&self, under: Tensor) -> Tensor {
        Tensor::recorded(under.tensor_type(), self.this.clone(), 0, Some(under))
    }

    /// Returns the value of `tensor` in the parent scope, or `tensor` itself if this scope did not wrap it.
    fn under(&self, tensor: &Tensor) -> Tensor {
        let address = core::ptr::from_ref(self).cast();
        tensor.in_scope(address).and_then(|(_, under)| under).unwrap_or(tensor).clone()
    }
}

impl Emitter for Observed {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let unders: heapless::Vec<Tensor, MAX_INPUTS> = inputs.iter().map(|tensor| self.under(tensor)).collect();
        let unders: heapless::Vec<&Tensor, MAX_INPUTS> = unders.iter().collect();
        let outputs = self.parent.recorder.emit(op, attributes, &unders)?;
        self.observer.emitted(op, &unders, &outputs)?;
        Ok(outputs.into_iter().map(|output| self.wrap(output)).collect())
    }

    fn custom(&self, inputs: &[&Tensor], forward: &Forward<'_>, rule: &Shared<dyn CustomRule>) -> Result<Vec<Tensor>> {
        // If no enclosing scope takes gradients, the ops of the function itself are observed.
        if self.parent.recorder.parent().is_none() {
            return forward(inputs);
        }
        let unders: Vec<Tensor> = inputs.iter().map(|tensor| self.under(tensor)).collect();
        let outputs = self.parent.recorder.custom(&unders.iter().collect::<Vec<_>>(), forward, rule)?;
        Ok(outputs.into_iter().map(|output| self.wrap(output)).collect())
    }

    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if !self.traces() {
            let scope = ScopeHandle::new(self.this.upgrade().ok_or(Error::Internal)?);
            return interpret(control, Some(&scope), inputs);
        }
        let unders: Vec<Tensor> = inputs.iter().map(|tensor| self.under(tensor)).collect();
        let outputs = self.parent.recorder.control(control, &unders)?;
        Ok(outputs.into_iter().map(|output| self.wrap(output)).collect())
    }

    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>> {
        Some(&self.body)
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        Ok(self.wrap(self.parent.recorder.read(variable)?))
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.parent.recorder.assign(variable, &self.under(value))
    }

    fn device(&self) -> &Device {
        self.parent.recorder.device()
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        Some(&self.parent)
    }

    fn recording(&self) -> bool {
        true
    }

    fn may_create(&self) -> bool {
        self.parent.recorder.may_create()
    }

    fn random_state(&self) -> Result<Variable> {
        self.parent.recorder.random_state()
    }

    fn next_stream(&self) -> Result<Stream> {
        self.parent.recorder.next_stream()
    }

    fn name_of(&self, tensor: &Tensor) -> Option<Shared<str>> {
        let under = self.under(tensor);
        under.scope().ok()??.recorder.name_of(&under)
    }

    fn enter(&self, layer: &Entered<'_>) {
        self.observer.enter(layer);
        self.parent.recorder.enter(layer);
    }

    fn leave(&self, output: Option<TensorType>) {
        self.observer.leave(output);
        self.parent.recorder.leave(output);
    }
}

/// Observer that stops at the first NaN or infinite number, like TensorFlow's `enable_check_numerics`. The error states the op, the
/// types of its inputs, the position, and the current layer.
///
/// It checks computed values, so it finds nothing in a trace.
#[derive(Default)]
pub struct Finite {
    layers: Lock<Vec<String>>,
}

impl Finite {
    /// Creates an observer without open layers.
    pub fn new() -> Shared<Finite> {
        Shared::new(Finite::default())
    }
}

impl Observer for Finite {
    fn enter(&self, layer: &Entered<'_>) {
        self.layers.lock().push(layer.name.into());
    }

    fn leave(&self, _: Option<TensorType>) {
        self.layers.lock().pop();
    }

    fn emitted(&self, op: &'static Op, inputs: &[&Tensor], outputs: &[Tensor]) -> Result<()> {
        let Some((number, position)) = outputs.iter().find_map(not_finite) else { return Ok(()) };
        let inputs_say = match inputs.iter().enumerate().find_map(|(index, input)| Some((index, not_finite(input)?))) {
            Some((index, (number, position))) => format!("input {index} already has {number} at position {position}"),
            None => "its inputs are finite".into(),
        };
        let layers = self.layers.lock();
        let layer = if layers.is_empty() { String::new() } else { format!(" in layer {:?}", layers.join("/")) };
        Err(tensor::explain(op, inputs, Error::message(format!("returned {number} at position {position}{layer}; {inputs_say}"))))
    }
}

/// Returns the first element of `tensor` that is NaN or infinite, and its position. Returns `None` if all elements are finite.
fn not_finite(tensor: &Tensor) -> Option<(f64, usize)> {
    fn first<T: Element>(tensor: &Tensor, wide: fn(T) -> f64) -> Option<(f64, usize)> {
        let numbers = tensor.to_vec::<T>().ok()?.into_iter().map(wide);
        numbers.enumerate().find(|(_, number)| !number.is_finite()).map(|(position, number)| (number, position))
    }
    match tensor.dtype() {
        DType::F32 => first::<f32>(tensor, f64::from),
        DType::F64 => first::<f64>(tensor, |number| number),
        DType::F16 | DType::Bf16 => not_finite(&tensor.cast(DType::F32).ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autodiff::Differentiate;
    use crate::trace::eager::Eager;
    use alloc::string::ToString;

    fn scope() -> Eager {
        Eager::new(&crate::ops::portable_cpu())
    }

    fn vector(values: &[f32]) -> Tensor {
        Tensor::new(&crate::ops::portable_cpu(), values, &[values.len() as u32]).unwrap()
    }

    #[test]
    fn the_first_bad_number_is_named_in_gradients_too() {
        let scope = scope();
        let checked = observed(&scope, Finite::new());
        let tape = checked.tape();
        let x = tape.watch(&vector(&[4.0, 0.0])).unwrap();
        let y = x.sqrt().unwrap();
        let error = tape.gradient(&y, &x).unwrap_err().to_string();
        assert!(error.contains("returned inf at position 1; its inputs are finite"), "{error}");
        let x = Variable::new(&scope, "x", &vector(&[1.0, f32::NAN])).unwrap();
        let error = checked.read(&x).unwrap().relu().unwrap_err().to_string();
        assert!(error.starts_with("relu(f32[2]): returned NaN at position 1; input 0 already has NaN at position 1"), "{error}");
    }

    #[test]
    fn what_is_observed_computes_the_same() {
        let scope = scope();
        let checked = observed(&scope.with_training(true), Finite::new());
        assert!(checked.training());
        let x = Variable::new(&checked, "x", &vector(&[1.0, 2.0])).unwrap();
        let twice = checked.read(&x).unwrap();
        checked.assign(&x, &twice.add(&twice).unwrap()).unwrap();
        assert_eq!(scope.read(&x).unwrap().to_vec::<f32>(), Ok(alloc::vec![2.0, 4.0]));
        drop(checked);
        assert_eq!(twice.add(&vector(&[1.0, 1.0])).unwrap().to_vec::<f32>(), Ok(alloc::vec![2.0, 3.0]));
    }
}
