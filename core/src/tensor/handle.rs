//! Tensor: the user's handle of a computed or recorded value.

use crate::base::dtype::{DType, Element};
use crate::base::error::{Error, Result};
use crate::base::op::MAX_INPUTS;
use crate::base::quantization::AffineQuantization;
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::{Shared, Weak};
use crate::tensor::device::account::Holder;
use crate::tensor::device::buffer::Bytes;
use crate::tensor::device::{Buffer, Device};
use crate::tensor::profile::{Activity, Copied, during};
use crate::tensor::scope::{Emitter, Op, Outputs, ScopeHandle};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

/// Immutable value with an element type and a shape. Clones share the value.
///
/// ```
/// use gradlet_core::{Tensor, ops};
/// let device = ops::portable_cpu();
/// let x = Tensor::new(&device, &[1.0f32, -2.0, 3.0], &[3])?;
/// assert_eq!(x.relu()?.to_vec::<f32>()?, [1.0, 0.0, 3.0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "tf.Tensor", alias = "tf.constant")]
pub struct Tensor {
    tensor_type: TensorType,
    value: Value,
    quantization: Option<Shared<AffineQuantization>>,
}

#[derive(Clone)]
enum Value {
    Computed(Shared<Buffer>),
    /// No value: the device had no memory for it, or the tensor is symbolic. Every use fails with this error.
    Refused(Shared<Error>),
    Recorded(Shared<Recorded>),
}

/// Value recorded by a scope.
struct Recorded {
    scope: Weak<dyn Emitter>,
    id: u32,
    /// The same value in the scope's parent, or `None` in a trace, which computes nothing.
    under: Option<Tensor>,
}

impl Tensor {
    /// Creates a tensor on `device` with these elements in row-major order.
    ///
    /// Fails if the dimensions do not match the number of elements.
    pub fn new<T: Element>(device: &Device, elements: &[T], dims: &[u32]) -> Result<Tensor> {
        Tensor::from_bytes(device, TensorType::new(T::DTYPE, Shape::new(dims)?), bytemuck::cast_slice(elements))
    }

    /// Creates a scalar on `device`. If the device has no memory for it, every use of the tensor fails with [`Error::OutOfMemory`].
    pub fn scalar<T: Element>(device: &Device, value: T) -> Tensor {
        let tensor_type = TensorType::new(T::DTYPE, Shape::SCALAR);
        match Buffer::filled(device, bytemuck::bytes_of(&value), size_of::<T>(), Holder::Tensor("")) {
            Ok(buffer) => Tensor::computed(tensor_type, buffer),
            Err(error) => Tensor::refused(tensor_type, error),
        }
    }

    /// Creates a tensor that has a type and no value. [`Function::concrete`](crate::Function::concrete) takes it, because it needs only the
    /// types of its arguments. Every other use fails.
    ///
    /// ```
    /// use gradlet_core::{DType, Eager, Function, Scope, Shape, Tensor, TensorType, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let relu = Function::new(|_: &dyn Scope, x: Tensor| x.relu());
    /// let pair = Tensor::symbolic(TensorType::new(DType::F32, Shape::new(&[2])?));
    /// let concrete = relu.concrete(&scope, &pair)?;
    /// let x = Tensor::new(&scope.device(), &[-1.0f32, 1.0], &[2])?;
    /// assert_eq!(concrete.run(&[x])?[0].to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    #[doc(alias = "tf.TensorSpec", alias = "keras.Input")]
    pub fn symbolic(tensor_type: TensorType) -> Tensor {
        Tensor::refused(tensor_type, Error::message("the tensor is symbolic: it has a type, but no value"))
    }

    fn refused(tensor_type: TensorType, error: Error) -> Tensor {
        Tensor { tensor_type, value: Value::Refused(Shared::new(error)), quantization: None }
    }

    /// Creates a tensor of zeros on `device`. Fails with [`Error::TooLarge`] if its size exceeds `usize`, and with [`Error::OutOfMemory`].
    pub fn zeros(device: &Device, tensor_type: TensorType) -> Result<Tensor> {
        Ok(Tensor::computed(tensor_type, Buffer::zeros(device, size(tensor_type)?, Holder::Tensor(""))?))
    }

    /// Creates a tensor on `device` with `value` in every element. Fails like [`Tensor::zeros`].
    pub fn full<T: Element>(device: &Device, value: T, dims: &[u32]) -> Result<Tensor> {
        let tensor_type = TensorType::new(T::DTYPE, Shape::new(dims)?);
        let buffer = Buffer::filled(device, bytemuck::bytes_of(&value), size(tensor_type)?, Holder::Tensor(""))?;
        Ok(Tensor::computed(tensor_type, buffer))
    }

    /// Creates a tensor on `device` from row-major, little-endian bytes. Fails if the type needs another number of bytes.
    pub fn from_bytes(device: &Device, tensor_type: TensorType, bytes: &[u8]) -> Result<Tensor> {
        if size(tensor_type)? != bytes.len() {
            let elements = bytes.len() / tensor_type.dtype.size();
            return Err(Error::message(format!("cannot create a {tensor_type} tensor from {elements} elements")));
        }
        Ok(Tensor::computed(tensor_type, Buffer::concat(device, &[bytes], Holder::Tensor(""))?))
    }

    /// Creates a tensor on `device` whose row-major, little-endian bytes `write` fills in. They are 0 before. Fails if `write` fails,
    /// with [`Error::TooLarge`] if its size exceeds `usize`, and with [`Error::OutOfMemory`].
    pub fn written(device: &Device, tensor_type: TensorType, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Tensor> {
        Ok(Tensor::computed(tensor_type, Buffer::written(device, size(tensor_type)?, Holder::Tensor(""), write)?))
    }

    /// Creates a tensor on `device` from `parts`, concatenated row-major, little-endian bytes. Fails if the type needs another number
    /// of bytes.
    pub fn from_parts(device: &Device, tensor_type: TensorType, parts: &[impl AsRef<[u8]>]) -> Result<Tensor> {
        let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        if size(tensor_type)? != bytes {
            return Err(Error::message(format!("cannot create a {tensor_type} tensor from {bytes} bytes")));
        }
        Ok(Tensor::computed(tensor_type, Buffer::concat(device, &parts, Holder::Tensor(""))?))
    }

    pub(crate) fn computed(tensor_type: TensorType, buffer: Buffer) -> Tensor {
        Tensor::shared(tensor_type, Shared::new(buffer))
    }

    pub(crate) fn shared(tensor_type: TensorType, buffer: Shared<Buffer>) -> Tensor {
        Tensor { tensor_type, value: Value::Computed(buffer), quantization: None }
    }

    pub(crate) fn recorded(tensor_type: TensorType, scope: Weak<dyn Emitter>, id: u32, under: Option<Tensor>) -> Tensor {
        Tensor { tensor_type, value: Value::Recorded(Shared::new(Recorded { scope, id, under })), quantization: None }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.tensor_type.dtype
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.tensor_type.shape
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        self.tensor_type.shape.dims()
    }

    /// Returns the element type and the shape.
    pub fn tensor_type(&self) -> TensorType {
        self.tensor_type
    }

    /// Returns the same value with scales and zero points. They change nothing that is computed: artifacts, displays and
    /// [`Tensor::quantization`] show for which real numbers the integers stand. The results of [`Tensor::quantize`] and of the quantised
    /// ops have them, while other ops drop them.
    ///
    /// ```
    /// # use gradlet_core::{Quantization, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[-128i8, 127], &[2])?.with_quantization(Quantization { scale: 0.5, zero_point: 0 })?;
    /// assert_eq!(x.quantization().unwrap().single().unwrap().real(127), 63.5);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Fails unless the element type is i8, u8, i16 or i32, the scales are positive and finite, there is one scale or one for each index of
    /// the axis, with as many zero points, and the zero points are elements of that type.
    pub fn with_quantization(&self, quantization: impl Into<AffineQuantization>) -> Result<Tensor> {
        let quantization = quantization.into();
        quantization.check(&self.tensor_type)?;
        Ok(Tensor { quantization: Some(Shared::new(quantization)), ..self.clone() })
    }

    /// Returns the scales and zero points, if the tensor has any.
    pub fn quantization(&self) -> Option<&AffineQuantization> {
        self.quantization.as_deref()
    }

    pub(crate) fn shared_quantization(&self) -> Option<&Shared<AffineQuantization>> {
        self.quantization.as_ref()
    }

    /// Returns the device that holds the value. For a value in a trace, returns the device that the trace is for.
    ///
    /// Fails with [`Error::Traced`] if the trace has ended.
    pub fn device(&self) -> Result<Device> {
        match &self.value {
            Value::Computed(buffer) => Ok(buffer.device().clone()),
            Value::Refused(error) => Err((**error).clone()),
            Value::Recorded(recorded) => match (&recorded.under, recorded.scope.upgrade()) {
                (Some(under), _) => under.device(),
                (None, Some(scope)) => Ok(scope.device().current()),
                (None, None) => Err(Error::Traced),
            },
        }
    }

    /// Returns the elements in row-major order, which are copied to the host. Fails with [`Error::Traced`] in a trace, and if `T` is not
    /// the element type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::message(format!("the tensor is {}, so its elements are not {}", self.tensor_type, T::DTYPE)));
        }
        let buffer = self.buffer()?;
        if let Some(bytes) = buffer.bytes() {
            return Ok(bytemuck::cast_slice(bytes).to_vec());
        }
        let mut elements = alloc::vec![T::zeroed(); buffer.len() / size_of::<T>()];
        buffer.download(bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// Returns the row-major, little-endian bytes: those of a CPU's tensor themselves, otherwise a copy. Fails with [`Error::Traced`] in
    /// a trace, and if the device cannot copy them.
    pub fn bytes(&self) -> Result<Bytes<'_>> {
        self.buffer()?.read()
    }

    /// Returns the only element. Fails like [`Tensor::to_vec`], and if the tensor does not have exactly one element.
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.to_vec()?.as_slice() {
            [item] => Ok(*item),
            _ => Err(Error::message(format!("item() needs a tensor with one element, not {}", self.tensor_type))),
        }
    }

    /// Returns the buffer of the computed value. Fails with [`Error::Traced`] in a trace.
    pub(crate) fn buffer(&self) -> Result<&Shared<Buffer>> {
        match &self.value {
            Value::Computed(buffer) => Ok(buffer),
            Value::Refused(error) => Err((**error).clone()),
            Value::Recorded(recorded) => recorded.under.as_ref().ok_or(Error::Traced)?.buffer(),
        }
    }

    /// Returns the buffer of the computed value, or `None` in a trace. Fails if there is no value.
    pub(crate) fn known(&self) -> Result<Option<&Shared<Buffer>>> {
        match self.value {
            Value::Recorded(_) => Ok(self.buffer().ok()),
            _ => self.buffer().map(Some),
        }
    }

    /// Returns the innermost scope that recorded the tensor and has not ended, or `None` for a computed tensor. Fails with
    /// [`Error::Traced`] if the tensor belongs to a trace that has ended.
    pub(crate) fn scope(&self) -> Result<Option<ScopeHandle>> {
        let Value::Recorded(recorded) = &self.value else { return Ok(None) };
        match recorded.scope.upgrade().filter(|scope| scope.recording()) {
            Some(scope) => Ok(Some(ScopeHandle::new(scope).current())),
            None => recorded.under.as_ref().ok_or_else(|| self.misused(Error::Traced))?.scope(),
        }
    }

    /// Adds the tensor's type as context to `error`, an error about the tensor's scope.
    pub(crate) fn misused(&self, error: Error) -> Error {
        error.context(format!("tensor {}", self.tensor_type))
    }

    /// True if both are handles of the same value.
    pub(crate) fn is_same(&self, other: &Tensor) -> bool {
        match (&self.value, &other.value) {
            (Value::Computed(own), Value::Computed(other)) => Shared::ptr_eq(own, other),
            (Value::Refused(own), Value::Refused(other)) => Shared::ptr_eq(own, other),
            (Value::Recorded(own), Value::Recorded(other)) => {
                own.id == other.id && core::ptr::addr_eq(own.scope.as_ptr(), other.scope.as_ptr())
            }
            _ => false,
        }
    }

    /// Returns the number of the value in the record of `scope`, and the same value in the parent scope (`None` if `scope` is a trace).
    /// Returns `None` if `scope` did not record the tensor.
    pub(crate) fn in_scope(&self, scope: *const ()) -> Option<(u32, Option<&Tensor>)> {
        let Value::Recorded(recorded) = &self.value else { return None };
        if core::ptr::addr_eq(recorded.scope.as_ptr(), scope) {
            return Some((recorded.id, recorded.under.as_ref()));
        }
        recorded.under.as_ref()?.in_scope(scope)
    }

    /// Computes `op` eagerly. Every input must be a computed tensor.
    pub(crate) fn compute(op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        Tensor::compute_on(Tensor::common_device(inputs)?, op, attributes, inputs)
    }

    /// Returns the device of the first input, or that of another input if only that one belongs to a group or reports to a profiler.
    pub(crate) fn common_device<'t>(inputs: &[&'t Tensor]) -> Result<&'t Device> {
        let Some((first, others)) = inputs.split_first() else { return Err(Error::Arity { got: 0 }) };
        let first = first.buffer()?.device();
        others.iter().try_fold(first, |device, other| Ok(device.or_led(other.buffer()?.device())))
    }

    /// Computes `op` on `device`, or on the device of its group that the program names or that has a kernel. Inputs on another device are
    /// copied if the device belongs to a group. Fails if it does not.
    pub(crate) fn compute_on(device: &Device, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let Some(placement) = device.placement() else { return Tensor::compute_here(device, op, attributes, inputs) };
        let now = placement.now();
        let chosen = device.chosen(now, op.def, inputs.first().map_or(DType::U8, |input| input.dtype()))?;
        if chosen.is_none() && !now.logs {
            return Tensor::compute_here(device, op, attributes, inputs);
        }
        let device = chosen.as_ref().unwrap_or(device);
        let computed = Tensor::compute_here(device, op, attributes, inputs)?;
        if now.logs {
            device.log_op(op);
        }
        Ok(computed)
    }

    /// Computes `op` on `device`. Inputs on another device are copied if the device belongs to a group.
    fn compute_here(device: &Device, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let mut types = heapless::Vec::<TensorType, MAX_INPUTS>::new();
        let mut buffers = heapless::Vec::<(&TensorType, &Buffer), MAX_INPUTS>::new();
        for tensor in inputs {
            let buffer = tensor.buffer()?;
            if buffer.device() != device && op.def.outputs > 0 {
                return Tensor::compute_copies(device, op, attributes, inputs);
            }
            types.push(tensor.tensor_type).map_err(|_| Error::Arity { got: inputs.len() as u8 })?;
            let _ = buffers.push((&tensor.tensor_type, buffer));
        }
        let explain = |error| explain(op, inputs, error);
        let outputs = op.def.output_types(&types, attributes).map_err(explain)?;
        let outputs = &outputs[..usize::from(op.def.outputs)];
        let computed = device.run(op.def, attributes, &buffers, outputs).map_err(explain)?;
        Ok(computed.into_iter().zip(outputs).map(|(buffer, &tensor_type)| Tensor::computed(tensor_type, buffer)).collect())
    }

    /// Computes `op` on copies of the inputs on `device`, a member of a group.
    #[cold]
    #[inline(never)]
    fn compute_copies(device: &Device, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        if device.placement().is_none() {
            let buffers = inputs.iter().map(|tensor| tensor.buffer()).collect::<Result<Vec<_>>>()?;
            let other = buffers.iter().map(|buffer| buffer.device()).find(|other| *other != device).ok_or(Error::Internal)?;
            let (name, other) = (device.name(), other.name());
            let text = format!("the inputs of {} are on {name} and {other}: copy one of them with `to`", op.def.name);
            return Err(Error::message(text));
        }
        let copies = inputs.iter().map(|tensor| tensor.brought(device)).collect::<Result<heapless::Vec<Tensor, MAX_INPUTS>>>()?;
        Tensor::compute_here(device, op, attributes, &copies.iter().collect::<heapless::Vec<&Tensor, MAX_INPUTS>>())
    }

    /// Returns the computed value on `device`. A copy is logged, and reported to the device's profiler.
    pub(crate) fn brought(&self, device: &Device) -> Result<Tensor> {
        let buffer = self.buffer()?;
        if buffer.device() == device {
            return Ok(Tensor::shared(self.tensor_type, buffer.clone()));
        }
        device.log_copy(self.tensor_type, buffer.device());
        let copy = Copied { tensor_type: self.tensor_type, from: buffer.device(), to: device };
        during(device.profiler(), Activity::Copy(&copy), || Tensor::from_bytes(device, self.tensor_type, &buffer.read()?))
    }

    /// Emits `op` into the innermost scope of the inputs. If there is none, computes it eagerly.
    pub(crate) fn emit(op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let recorded = inputs.iter().any(|tensor| matches!(tensor.value, Value::Recorded(_)));
        let explain = |error| explain(op, inputs, error);
        if let Some(scope) = if recorded { crate::tensor::scope::innermost(inputs).map_err(explain)? } else { None } {
            return scope.emit_op(op, attributes, inputs);
        }
        let Some(first) = inputs.first() else { return Err(Error::Arity { got: 0 }) };
        let device = first.buffer()?.device();
        match crate::tensor::scope::narrow(op, device, inputs) {
            Some(dtype) => crate::tensor::scope::widened(dtype, inputs, |inputs| Tensor::compute(op, attributes, inputs)),
            None => Tensor::compute(op, attributes, inputs),
        }
    }

    /// Emits an op with one output: see [`Tensor::emit`].
    pub(crate) fn emit1(op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Tensor> {
        let Some(output) = Tensor::emit(op, attributes, inputs)?.pop() else { return Err(Error::Internal) };
        Ok(output)
    }
}

impl Op {
    /// Computes or records the op in the scope of its inputs, as the methods of [`Tensor`] do: for the gradient rule of a user's op.
    pub fn emit(&'static self, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        Tensor::emit(self, attributes, inputs)
    }
}

/// Returns the size of a tensor in bytes. Fails with [`Error::TooLarge`] if the size exceeds `usize`. The error states the size.
pub(crate) fn size(tensor_type: TensorType) -> Result<usize> {
    let large = || Error::TooLarge.context(format!("a {tensor_type} tensor has {} bytes", tensor_type.wide_bytes()));
    tensor_type.bytes().ok_or_else(large)
}

/// Adds the call of the op before the error's text and the op's usage after it: `matmul(f32[2,3], f32[4,5]): …; usage: …`.
pub(crate) fn explain(op: &'static Op, inputs: &[&Tensor], error: Error) -> Error {
    let types: Vec<_> = inputs.iter().map(|tensor| format!("{}", tensor.tensor_type)).collect();
    error.with_usage(format!("{}({})", op.def.name, types.join(", ")), op.usage)
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.tensor_type)
    }
}
