//! Writing the values of several variables, such as those of a checkpoint, so that a refusal of memory changes none of them.

use crate::base::dtype::DType;
#[cfg(doc)]
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::tensor::device::{AlignedBytes, Buffer};
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// Variables whose bytes a program is about to overwrite. All memory that this needs is allocated at the beginning. Other threads that
/// read or assign one of the variables wait until this value is dropped.
///
/// ```
/// use gradlet_core::tensor::Writing;
/// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let zero = Tensor::scalar(&scope.device(), 0u8);
/// let variables = [Variable::new(&scope, "a", &zero)?, Variable::new(&scope, "b", &zero)?];
/// for (mut value, byte) in Writing::new(&variables)?.values().zip([7, 8]) {
///     value.write(|bytes| bytes.fill(byte))?;
/// }
/// assert_eq!(scope.read(&variables[1])?.item::<u8>()?, 8);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub struct Writing<'v> {
    taken: Vec<Taken<'v>>,
}

struct Taken<'v> {
    variable: &'v Variable,
    tensor_type: TensorType,
    /// The value's bytes, or `None` before they are taken.
    buffer: Option<Shared<Buffer>>,
}

impl<'v> Writing<'v> {
    /// Takes `variables`, which must be distinct. Waits for functions and ops that use them.
    ///
    /// Fails with [`Error::Unbuilt`] if a variable has no value, and with [`Error::OutOfMemory`] if a value is shared with another owner
    /// and there is no memory for a copy.
    pub fn new(variables: impl IntoIterator<Item = &'v Variable>) -> Result<Writing<'v>> {
        let taken = |variable: &'v Variable| Ok(Taken { variable, tensor_type: variable.tensor_type()?, buffer: None });
        let mut writing = Writing { taken: variables.into_iter().map(taken).collect::<Result<_>>()? };
        // Functions and ops take variables in the same order, so no two threads wait for each other.
        let mut order: Vec<usize> = (0..writing.taken.len()).collect();
        order.sort_by_key(|&index| writing.taken[index].variable.id());
        for index in order {
            writing.taken[index].buffer = Some(writing.taken[index].variable.take()?);
        }
        Ok(writing)
    }

    /// Returns the values, in the order of the variables. Threads may share them.
    pub fn values(&mut self) -> impl Iterator<Item = Written<'_>> {
        self.taken
            .iter_mut()
            .filter_map(|taken| Some(Written { dtype: taken.tensor_type.dtype, buffer: Shared::get_mut(taken.buffer.as_mut()?)? }))
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        for taken in &mut self.taken {
            taken.buffer.take().into_iter().for_each(|buffer| taken.variable.put(buffer));
        }
    }
}

/// The value of a variable that is about to be overwritten.
pub struct Written<'w> {
    dtype: DType,
    buffer: &'w mut Buffer,
}

impl Written<'_> {
    /// Lets `write` set all bytes: the elements in row-major order and in the host's byte order. In a bool variable, each byte is 0 or 1.
    /// If `write` sets a byte to another value, it becomes 1. The bytes are arbitrary before.
    ///
    /// Fails if the device cannot copy the bytes.
    pub fn write<R>(&mut self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.change(false, write)
    }

    /// Lets `write` change some of the bytes. They hold the value before. Otherwise works like [`Written::write`].
    pub(crate) fn update<R>(&mut self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.change(true, write)
    }

    /// Lets `write` set bytes. If `keeps` is true, they hold the value before.
    fn change<R>(&mut self, keeps: bool, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if let Some(bytes) = self.buffer.bytes_mut() {
            return Ok(change(self.dtype, bytes, write));
        }
        let mut staged = AlignedBytes::staged(self.buffer.len())?;
        if keeps {
            self.buffer.download(&mut staged)?;
        }
        let result = change(self.dtype, &mut staged, write);
        self.buffer.upload(&staged)?;
        Ok(result)
    }
}

fn change<R>(dtype: DType, bytes: &mut [u8], write: impl FnOnce(&mut [u8]) -> R) -> R {
    let result = write(bytes);
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    result
}
