//! Assertion: fails unless every element is true. For booleans. Like `tf.debugging.Assert`.

use crate::base::dtype::{Bool, DType};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};
#[cfg(feature = "alloc")]
use alloc::{string::String, vec::Vec};

/// Definition of the op, which has no outputs. The attribute words are the bytes of a message that describes the assertion,
/// padded with zeros. Kernels ignore them.
pub static DEF: OpDef = OpDef { code: crate::ops::code::assert, name: "assert", inputs: (1, 1), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], _: &[u32], _: &mut [TensorType]) -> Result<()> {
    crate::ops::shared::elementwise::boolean(0, inputs)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let elements = call.input(0)?.slice::<Bool>();
    let rows = call.rows(elements.len(), 5);
    match elements.get(rows.clone()).unwrap_or_default().iter().position(|element| !element.get()) {
        Some(position) => Err(Error::Assertion { node: 0, position: Error::position(rows.start + position) }),
        None => Ok(()),
    }
}

/// Portable kernel for bool.
pub const BOOL: Kernel = Kernel { def: &DEF, dtype: DType::Bool, run };

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(&DEF, "assert(x), where x is bool", Gradient::None("it has no output that anything depends on"));

/// If `error` is a failed assertion or check, adds the message in `attributes` to it. Returns any other error unchanged.
#[cfg(feature = "alloc")]
pub(crate) fn explain(error: Error, attributes: &[u32]) -> Error {
    if !matches!(error.root(), Error::Assertion { .. } | Error::NotFinite { .. }) || attributes.is_empty() {
        return error;
    }
    let bytes: &[u8] = bytemuck::cast_slice(attributes);
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    error.context(String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])))
}

/// Emits `op`, which checks `x` and has no output. The bytes of `message` are its attribute words.
#[cfg(feature = "alloc")]
pub(crate) fn check(op: &'static Op, message: &str, x: &Tensor) -> Result<()> {
    let words = message.as_bytes().chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
        u32::from_le_bytes(word)
    });
    let attributes: Vec<u32> = words.collect();
    Tensor::emit(op, &attributes, &[x]).map(drop).map_err(|error| match error.root() {
        // The message is sufficient. The error therefore omits the call and its usage.
        failed @ (Error::Assertion { .. } | Error::NotFinite { .. }) => explain(failed.clone(), &attributes),
        _ => error,
    })
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Fails with [`Error::Assertion`] unless every element is true. `message` describes the assertion. In a traced function, the
    /// assertion is checked when the function runs. Like `tf.debugging.Assert`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, -2.0], &[2])?;
    /// let error = x.greater(&x.like(0.0)?)?.assert("x must be positive").unwrap_err();
    /// assert_eq!(error.to_string(), "x must be positive: the assertion fails at position 1 (instruction 0)");
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn assert(&self, message: &str) -> Result<()> {
        check(&OP, message, self)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::device;
    use std::string::ToString;

    fn assert(elements: &[bool], message: &str) -> Result<()> {
        let elements: Vec<Bool> = elements.iter().map(|&element| element.into()).collect();
        Tensor::new(device(), &elements, &[elements.len() as u32]).unwrap().assert(message)
    }

    #[test]
    fn a_false_element_fails_with_the_text() {
        assert_eq!(assert(&[true, true], "fine"), Ok(()));
        assert_eq!(assert(&[], "empty"), Ok(()));
        let error = assert(&[true, false, false], "größer als 0").unwrap_err();
        assert_eq!(error.root(), &Error::Assertion { node: 0, position: 1 });
        assert_eq!(error.to_string(), "größer als 0: the assertion fails at position 1 (instruction 0)");
        assert!(Tensor::scalar(device(), 1.0f32).assert("no truth value").unwrap_err().to_string().starts_with("assert(f32[])"));
    }
}
