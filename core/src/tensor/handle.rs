//! The user's handle of a value, computed or recorded.

use crate::base::dtype::{DType, Element};
use crate::base::error::{Error, Result};
use crate::base::op::MAX_INPUTS;
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::{Shared, Weak};
use crate::base::view::TensorView;
use crate::tensor::device::{AlignedBytes, Buffer, Device};
use crate::tensor::scope::{Emitter, Op, Outputs, ScopeHandle};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

/// A value with an element type and a shape. Cloning shares it; it never changes.
///
/// ```
/// use gradlet_core::{Tensor, ops};
/// let device = ops::portable_cpu();
/// let x = Tensor::new(&device, &[1.0f32, -2.0, 3.0], &[3])?;
/// assert_eq!(x.relu()?.to_vec::<f32>()?, [1.0, 0.0, 3.0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    tensor_type: TensorType,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Computed(Shared<Buffer>),
    Recorded(Shared<Recorded>),
}

/// A value in a scope's record.
struct Recorded {
    scope: Weak<dyn Emitter>,
    id: u32,
    /// The same value in the scope's parent; none in a trace, which computes nothing.
    under: Option<Tensor>,
}

impl Tensor {
    /// A tensor on `device` with these elements in row-major order.
    ///
    /// Fails where the dimensions do not give as many elements as there are.
    pub fn new<T: Element>(device: &Device, elements: &[T], dims: &[u32]) -> Result<Tensor> {
        Tensor::from_bytes(device, TensorType::new(T::DTYPE, Shape::new(dims)?), bytemuck::cast_slice(elements))
    }

    /// A scalar on `device`.
    pub fn scalar<T: Element>(device: &Device, value: T) -> Tensor {
        Tensor::filled(device, TensorType::new(T::DTYPE, Shape::SCALAR), bytemuck::bytes_of(&value))
    }

    /// Zeros on `device`. Fails with [`Error::TooLarge`] past 4 GiB.
    pub fn zeros(device: &Device, tensor_type: TensorType) -> Result<Tensor> {
        Ok(Tensor::computed(tensor_type, device.zeros(tensor_type.bytes().ok_or(Error::TooLarge)? as usize)))
    }

    /// A tensor on `device` with `value` in every element.
    pub fn full<T: Element>(device: &Device, value: T, dims: &[u32]) -> Result<Tensor> {
        let tensor_type = TensorType::new(T::DTYPE, Shape::new(dims)?);
        tensor_type.bytes().ok_or(Error::TooLarge)?;
        Ok(Tensor::filled(device, tensor_type, bytemuck::bytes_of(&value)))
    }

    /// A tensor on `device` with these row-major, little-endian bytes. Fails where they are not as many as the type needs.
    pub fn from_bytes(device: &Device, tensor_type: TensorType, bytes: &[u8]) -> Result<Tensor> {
        if tensor_type.bytes().ok_or(Error::TooLarge)? as usize != bytes.len() {
            let elements = bytes.len() / tensor_type.dtype.size();
            return Err(Error::message(format!("{elements} elements do not make a tensor {tensor_type}")));
        }
        Tensor::written(device, tensor_type, |own| {
            own.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// A tensor on `device` whose row-major, little-endian bytes `write` sets; before, they are 0. Fails as `write` does, and with
    /// [`Error::TooLarge`] past 4 GiB.
    pub fn written(device: &Device, tensor_type: TensorType, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Tensor> {
        let mut buffer = device.zeros(tensor_type.bytes().ok_or(Error::TooLarge)? as usize);
        write(buffer.bytes_mut())?;
        Ok(Tensor::computed(tensor_type, buffer))
    }

    /// A tensor on `device` whose row-major, little-endian bytes are those of `parts`, one after another. Fails where they are not as
    /// many as the type needs.
    pub fn from_parts(device: &Device, tensor_type: TensorType, parts: &[&[u8]]) -> Result<Tensor> {
        let bytes = AlignedBytes::concat(parts);
        if tensor_type.bytes().ok_or(Error::TooLarge)? as usize != bytes.len() {
            return Err(Error::message(format!("{} bytes do not make a tensor {tensor_type}", bytes.len())));
        }
        Ok(Tensor::computed(tensor_type, Buffer::new(device, bytes)))
    }

    /// Every element of a small type has the bytes `element`.
    fn filled(device: &Device, tensor_type: TensorType, element: &[u8]) -> Tensor {
        let mut buffer = device.zeros(tensor_type.bytes().unwrap_or(0) as usize);
        buffer.bytes_mut().chunks_exact_mut(element.len()).for_each(|slot| slot.copy_from_slice(element));
        Tensor::computed(tensor_type, buffer)
    }

    pub(crate) fn computed(tensor_type: TensorType, buffer: Buffer) -> Tensor {
        Tensor::shared(tensor_type, Shared::new(buffer))
    }

    pub(crate) fn shared(tensor_type: TensorType, buffer: Shared<Buffer>) -> Tensor {
        Tensor { tensor_type, value: Value::Computed(buffer) }
    }

    pub(crate) fn recorded(tensor_type: TensorType, scope: Weak<dyn Emitter>, id: u32, under: Option<Tensor>) -> Tensor {
        Tensor { tensor_type, value: Value::Recorded(Shared::new(Recorded { scope, id, under })) }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.tensor_type.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.tensor_type.shape
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        self.tensor_type.shape.dims()
    }

    /// The element type and the shape.
    pub fn tensor_type(&self) -> TensorType {
        self.tensor_type
    }

    /// The device that holds the value, or for a value in a trace, the device it is traced for.
    ///
    /// Fails with [`Error::Traced`] if the trace is over.
    pub fn device(&self) -> Result<Device> {
        match &self.value {
            Value::Computed(buffer) => Ok(buffer.device().clone()),
            Value::Recorded(recorded) => match recorded.scope.upgrade() {
                Some(scope) => Ok(scope.device().clone()),
                None => recorded.under.as_ref().ok_or(Error::Traced)?.device(),
            },
        }
    }

    /// The elements, in row-major order. Fails with [`Error::Traced`] in a trace, and where `T` is not the element type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::message(format!("the tensor is {}, not {}[…]", self.tensor_type, T::DTYPE)));
        }
        Ok(bytemuck::cast_slice(self.buffer()?.bytes()).to_vec())
    }

    /// The row-major, little-endian bytes. Fails with [`Error::Traced`] in a trace.
    pub fn bytes(&self) -> Result<&[u8]> {
        Ok(self.buffer()?.bytes())
    }

    /// The only element. Fails as [`Tensor::to_vec`], and where there is not exactly one.
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.to_vec()?.as_slice() {
            [item] => Ok(*item),
            _ => Err(Error::message(format!("item() needs one element, the tensor is {}", self.tensor_type))),
        }
    }

    /// The buffer below all scopes. Fails with [`Error::Traced`] in a trace.
    pub(crate) fn buffer(&self) -> Result<&Shared<Buffer>> {
        match &self.value {
            Value::Computed(buffer) => Ok(buffer),
            Value::Recorded(recorded) => recorded.under.as_ref().ok_or(Error::Traced)?.buffer(),
        }
    }

    /// The scope that the tensor belongs to now: scopes that are over do not count.
    pub(crate) fn scope(&self) -> Result<Option<ScopeHandle>> {
        let Value::Recorded(recorded) = &self.value else { return Ok(None) };
        match recorded.scope.upgrade().filter(|scope| scope.recording()) {
            Some(scope) => Ok(Some(ScopeHandle::new(scope).current())),
            None => recorded.under.as_ref().ok_or(Error::Traced)?.scope(),
        }
    }

    /// True if both are handles of one value.
    pub(crate) fn is_same(&self, other: &Tensor) -> bool {
        match (&self.value, &other.value) {
            (Value::Computed(own), Value::Computed(other)) => Shared::ptr_eq(own, other),
            (Value::Recorded(own), Value::Recorded(other)) => {
                own.id == other.id && core::ptr::addr_eq(own.scope.as_ptr(), other.scope.as_ptr())
            }
            _ => false,
        }
    }

    /// The number of the value in `scope`'s record and the same value in its parent, if it is recorded there.
    pub(crate) fn in_scope(&self, scope: *const ()) -> Option<(u32, Option<&Tensor>)> {
        let Value::Recorded(recorded) = &self.value else { return None };
        if core::ptr::addr_eq(recorded.scope.as_ptr(), scope) {
            return Some((recorded.id, recorded.under.as_ref()));
        }
        recorded.under.as_ref()?.in_scope(scope)
    }

    /// Computes `op` now; every input must be computed.
    pub(crate) fn compute(op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        Tensor::compute_on(Tensor::common_device(inputs)?, op, attributes, inputs)
    }

    /// The device of the first input; if only another one tells a profiler what it runs, that one.
    pub(crate) fn common_device<'t>(inputs: &[&'t Tensor]) -> Result<&'t Device> {
        let (first, others) = inputs.split_first().ok_or(Error::Arity { got: 0 })?;
        let first = first.buffer()?.device();
        others.iter().try_fold(first, |device, other| Ok(device.or_profiled(other.buffer()?.device())))
    }

    /// Computes `op` on `device`, where every input must be.
    pub(crate) fn compute_on(device: &Device, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let mut types = heapless::Vec::<TensorType, MAX_INPUTS>::new();
        let mut views = heapless::Vec::<TensorView<'_>, MAX_INPUTS>::new();
        for tensor in inputs {
            let buffer = tensor.buffer()?;
            if buffer.device() != device {
                let (name, other) = (device.name(), buffer.device().name());
                return Err(Error::message(format!("the inputs of {} are on {name} and {other}: copy one", op.def.name)));
            }
            types.push(tensor.tensor_type).map_err(|_| Error::Arity { got: inputs.len() as u8 })?;
            let _ = views.push(TensorView { tensor_type: &tensor.tensor_type, data: Some(buffer.bytes()) });
        }
        let explain = |error| explain(op, inputs, error);
        let outputs = op.def.output_types(&types, attributes).map_err(explain)?;
        let outputs = &outputs[..usize::from(op.def.outputs)];
        let computed = device.run(op.def, attributes, &views, outputs).map_err(explain)?;
        Ok(computed.into_iter().zip(outputs).map(|(buffer, &tensor_type)| Tensor::computed(tensor_type, buffer)).collect())
    }

    /// Emits `op` into the innermost scope of the inputs, or computes it now.
    pub(crate) fn emit(op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let recorded = inputs.iter().any(|tensor| matches!(tensor.value, Value::Recorded(_)));
        if let Some(scope) = if recorded { crate::tensor::scope::innermost(inputs)? } else { None } {
            return scope.emit_op(op, attributes, inputs);
        }
        let device = inputs.first().ok_or(Error::Arity { got: 0 })?.buffer()?.device();
        match crate::tensor::scope::narrow(op, device, inputs) {
            Some(dtype) => crate::tensor::scope::widened(dtype, inputs, |inputs| Tensor::compute(op, attributes, inputs)),
            None => Tensor::compute(op, attributes, inputs),
        }
    }

    /// [`Tensor::emit`], for an op with one output.
    pub(crate) fn emit1(op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Tensor> {
        Tensor::emit(op, attributes, inputs)?.pop().ok_or(Error::Internal)
    }
}

/// Puts the call in words before an error: `matmul(f32[2,3], f32[4,5]): …; usage: …`.
pub(crate) fn explain(op: &'static Op, inputs: &[&Tensor], error: Error) -> Error {
    let types: Vec<_> = inputs.iter().map(|tensor| format!("{}", tensor.tensor_type)).collect();
    error.with_usage(format!("{}({})", op.def.name, types.join(", ")), op.usage)
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.tensor_type)
    }
}
