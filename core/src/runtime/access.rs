//! Access of the caller to the inputs, outputs and variables of a session.

use crate::base::dtype::Element;
use crate::base::error::{Error, Result};
use crate::base::quantization::Quantization;
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};
use crate::runtime::arena::Bytes;
use crate::runtime::program::{Program, SignatureId};
use crate::runtime::session::Session;

/// Identifier of a tensor that the caller of a session reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorId {
    /// An input of a signature, with its index.
    Input(SignatureId, usize),
    /// An output of a signature, with its index.
    Output(SignatureId, usize),
    /// A variable, with its index in the artifact.
    Variable(usize),
}

impl<'p> Session<'p, '_> {
    /// Returns a tensor, with its type. The views of an input and of an output are valid as [`Session`] describes.
    ///
    /// Fails with [`Error::NoSuchTensor`] if there is no such tensor, or if a variable has no bytes, because its initial value is zero and
    /// no loaded signature assigns it.
    pub fn view(&self, id: TensorId) -> Result<TensorView<'_>> {
        let (tensor_type, place) = self.find(id)?;
        Ok(TensorView { tensor_type, data: Some(self.bytes(Some(place))) })
    }

    /// Returns a tensor for writing, with its type.
    ///
    /// Fails with [`Error::NoSuchTensor`] like [`Session::view`], and if the tensor is an output or a variable in flash.
    pub fn view_mut(&mut self, id: TensorId) -> Result<TensorViewMut<'_>> {
        let (tensor_type, place) = self.find(id)?;
        match (id, &place) {
            (TensorId::Input(..), _) => (),
            (TensorId::Variable(_), Bytes::Memory(..)) => self.count_change(),
            (TensorId::Output(_, index) | TensorId::Variable(index), _) => return Err(Error::NoSuchTensor { index: index as u32 }),
        }
        Ok(TensorViewMut { tensor_type, data: self.bytes_mut(Some(place)) })
    }

    fn find(&self, id: TensorId) -> Result<(&'p TensorType, Bytes<'p>)> {
        let program = self.places.program;
        let (found, index) = match id {
            TensorId::Input(signature, index) => (Some(self.input_operand(signature, index)?.into()), index),
            TensorId::Output(signature, index) => (Some(self.output_operand(signature, index)?.into()), index),
            TensorId::Variable(index) => (program.variables.get(index).map(|variable| variable.tensor as usize), index),
        };
        found.and_then(|tensor| self.places.of(tensor)).ok_or(Error::NoSuchTensor { index: index as u32 })
    }

    fn locate(&self, operand: u16) -> Option<Bytes<'p>> {
        Some(self.places.of(operand.into())?.1)
    }

    fn variable_bytes(&self, index: usize) -> Option<Bytes<'p>> {
        Some(self.places.of(self.places.program.variables.get(index)?.tensor as usize)?.1)
    }

    /// Returns input `index` of `signature` for writing. Fails if there is no such input or its element type is not `T`.
    pub fn input_mut<T: Element>(&mut self, signature: SignatureId, index: usize) -> Result<&mut [T]> {
        let wrong = Error::TensorType { index: index as u32 };
        let operand = self.input_operand(signature, index)?;
        if !self.is::<T>(operand) {
            return Err(wrong);
        }
        bytemuck::try_cast_slice_mut(self.bytes_mut(self.locate(operand))).map_err(|_| wrong)
    }

    /// Sets input `index` of `signature` to `values`, in row-major order.
    ///
    /// ```no_run
    /// # fn firmware(session: &mut gradlet_core::Session<'_, '_>, train: gradlet_core::runtime::SignatureId) -> gradlet_core::Result<()> {
    /// session.set_input(train, 0, &[0.5f32; 64])?;
    /// session.set_input(train, 1, &[3i32])?;
    /// session.run(train)
    /// # }
    /// ```
    ///
    /// Fails with [`Error::NoSuchTensor`] if there is no such input, with [`Error::TensorType`] if its element type is not `T`, and with
    /// [`Error::Length`], which states the right number of elements, if `values` has another one. The input is then unchanged.
    pub fn set_input<T: Element>(&mut self, signature: SignatureId, index: usize, values: &[T]) -> Result<()> {
        set(self.input_mut(signature, index)?, index, values)
    }

    /// Returns output `index` of `signature` as the last run left it. Fails if there is no such output or its element type is not `T`.
    pub fn output<T: Element>(&self, signature: SignatureId, index: usize) -> Result<&[T]> {
        let wrong = Error::TensorType { index: index as u32 };
        let operand = self.output_operand(signature, index)?;
        if !self.is::<T>(operand) {
            return Err(wrong);
        }
        bytemuck::try_cast_slice(self.bytes(self.locate(operand))).map_err(|_| wrong)
    }

    fn is<T: Element>(&self, operand: u16) -> bool {
        self.tensor_type(operand).dtype == T::DTYPE
    }

    /// Returns the bytes of input `index` of `signature` for writing.
    pub fn input_bytes_mut(&mut self, signature: SignatureId, index: usize) -> Result<&mut [u8]> {
        let operand = self.input_operand(signature, index)?;
        Ok(self.bytes_mut(self.locate(operand)))
    }

    /// Returns the bytes of output `index` of `signature` as the last run left them.
    pub fn output_bytes(&self, signature: SignatureId, index: usize) -> Result<&[u8]> {
        let operand = self.output_operand(signature, index)?;
        Ok(self.bytes(self.locate(operand)))
    }

    /// Returns the type of input `index` of `signature`.
    pub fn input_type(&self, signature: SignatureId, index: usize) -> Result<TensorType> {
        let operand = self.input_operand(signature, index)?;
        Ok(*self.tensor_type(operand))
    }

    /// Returns the type of output `index` of `signature`.
    pub fn output_type(&self, signature: SignatureId, index: usize) -> Result<TensorType> {
        let operand = self.output_operand(signature, index)?;
        Ok(*self.tensor_type(operand))
    }

    /// Returns the scale and zero point of input `index` of `signature`, which quantise the real numbers that it stands for. Returns `None`
    /// if the input is not quantised. Fails if there is no such input.
    ///
    /// ```no_run
    /// # use gradlet_core::{Result, Session, runtime::SignatureId};
    /// # fn firmware(session: &mut Session<'_, '_>, infer: SignatureId, reading: f32) -> Result<f32> {
    /// if let Some(quantization) = session.input_quantization(infer, 0)? {
    ///     let reading = quantization.nearest(reading).clamp(-128, 127) as i8;
    ///     session.input_mut::<i8>(infer, 0)?.fill(reading);
    /// }
    /// session.run(infer)?;
    /// let first = session.output::<i8>(infer, 0)?[0];
    /// Ok(session.output_quantization(infer, 0)?.map_or(0.0, |quantization| quantization.real(first.into())))
    /// # }
    /// ```
    pub fn input_quantization(&self, signature: SignatureId, index: usize) -> Result<Option<Quantization>> {
        Ok(self.quantization(self.input_operand(signature, index)?))
    }

    /// Returns the scale and zero point of output `index` of `signature`, or `None` if the output is not quantised. Fails if there is no
    /// such output.
    pub fn output_quantization(&self, signature: SignatureId, index: usize) -> Result<Option<Quantization>> {
        Ok(self.quantization(self.output_operand(signature, index)?))
    }

    fn quantization(&self, operand: u16) -> Option<Quantization> {
        let program = self.places.program;
        program.tensors.get(usize::from(operand)).and_then(|record| program.whole_quantization(record))
    }

    /// Returns the bytes of variable `index`, in the artifact's order. Fails if there is no such variable. Also fails if the variable has
    /// no bytes, because its initial value is zero and no loaded signature assigns it.
    pub fn variable(&self, index: usize) -> Result<&[u8]> {
        match self.variable_bytes(index) {
            None => Err(Error::NoSuchTensor { index: index as u32 }),
            place => Ok(self.bytes(place)),
        }
    }

    /// Returns the bytes of variable `index` for writing. Fails if there is no such variable or it is not in RAM.
    pub fn variable_mut(&mut self, index: usize) -> Result<&mut [u8]> {
        match self.variable_bytes(index) {
            Some(place @ Bytes::Memory(..)) => {
                self.count_change();
                Ok(self.bytes_mut(Some(place)))
            }
            _ => Err(Error::NoSuchTensor { index: index as u32 }),
        }
    }

    /// Sets variable `index`, in the artifact's order, to `values`. A parameter of a step, such as the learning rate, is set this way if a
    /// loaded signature assigns it: see [`Artifact::setter`](crate::Artifact::setter).
    ///
    /// Fails with [`Error::NoSuchTensor`] if there is no such variable or it is not in RAM, with [`Error::TensorType`] if its element type
    /// is not `T`, and with [`Error::Length`] if `values` has another number of elements. The variable is then unchanged.
    pub fn set_variable<T: Element>(&mut self, index: usize, values: &[T]) -> Result<()> {
        let wrong = Error::TensorType { index: index as u32 };
        let program = self.places.program;
        let record = program.variables.get(index).ok_or(Error::NoSuchTensor { index: index as u32 })?;
        if !u16::try_from(record.tensor).is_ok_and(|operand| self.is::<T>(operand)) {
            return Err(wrong);
        }
        set(bytemuck::try_cast_slice_mut(self.variable_mut(index)?).map_err(|_| wrong)?, index, values)
    }

    /// Returns the program.
    pub fn program(&self) -> &'p Program<'p> {
        self.places.program
    }

    /// Returns the bytes of variable `index`, or `None` if the variable has no bytes.
    pub(crate) fn value(&self, index: usize) -> Option<&[u8]> {
        let place = self.variable_bytes(index)?;
        Some(self.bytes(Some(place)))
    }

    /// Overwrites the bytes of a variable in RAM, beginning at byte `at` of the variable.
    pub(crate) fn overwrite(&mut self, variable: u32, at: usize, bytes: &[u8]) {
        let start = (self.places.offset(variable) as usize).saturating_add(at);
        // The comparison lets the compiler leave out the panic of a copy between different lengths.
        if let Some(value) = self.memory.get_mut(start, bytes.len()).filter(|value| value.len() == bytes.len()) {
            value.copy_from_slice(bytes);
        }
    }

    /// Returns the number of variables.
    pub fn variable_count(&self) -> usize {
        self.places.program.variables.len()
    }

    fn input_operand(&self, signature: SignatureId, index: usize) -> Result<u16> {
        nth(self.places.program.inputs(self.places.program.block(signature)?), index)
    }

    fn output_operand(&self, signature: SignatureId, index: usize) -> Result<u16> {
        nth(self.places.program.outputs(self.places.program.block(signature)?), index)
    }

    fn bytes<'s>(&'s self, place: Option<Bytes<'s>>) -> &'s [u8] {
        match place {
            Some(Bytes::Flash(data)) => data,
            Some(Bytes::Memory(start, bytes)) => self.memory.get(start, bytes).unwrap_or(&[]),
            None => &[],
        }
    }

    fn bytes_mut(&mut self, place: Option<Bytes<'_>>) -> &mut [u8] {
        match place {
            Some(Bytes::Memory(start, bytes)) => self.memory.get_mut(start, bytes).unwrap_or(&mut []),
            _ => &mut [],
        }
    }

    fn tensor_type(&self, operand: u16) -> &'p TensorType {
        let program = self.places.program;
        program.tensors.get(usize::from(operand)).map_or(&TensorType::EMPTY, |record| program.tensor_type(record))
    }
}

fn nth(numbers: &[u16], index: usize) -> Result<u16> {
    numbers.get(index).copied().ok_or(Error::NoSuchTensor { index: index as u32 })
}

/// Copies `values` to `place`, the tensor with index `index`.
fn set<T: Element>(place: &mut [T], index: usize, values: &[T]) -> Result<()> {
    if place.len() != values.len() {
        return Err(Error::Length { index: index as u32, want: place.len() as u32, got: values.len() as u32 });
    }
    place.copy_from_slice(values);
    Ok(())
}
