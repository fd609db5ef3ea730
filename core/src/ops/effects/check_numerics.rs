//! Check for infinities and NaN: fails unless every element is finite. For floats. TensorFlow's `CheckNumerics`, without its output.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::finite::first_not_finite;
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::{
    ops::assert,
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op, which has no outputs. The attribute words are the bytes of a message that describes the tensor, padded with
/// zeros. Kernels ignore them.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::check_numerics, name: "check_numerics", inputs: (1, 1), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], _: &[u32], _: &mut [TensorType]) -> Result<()> {
    if inputs.iter().all(|input| input.dtype.is_float()) { Ok(()) } else { Err(Error::DType { input: 0 }) }
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let input = call.input(0)?;
    match first_not_finite(input.dtype(), input.bytes()) {
        Some(position) => Err(Error::NotFinite { node: 0, position }),
        None => Ok(()),
    }
}

/// Portable kernel for f32.
pub static F32: Kernel = Kernel { def: &DEF, dtype: DType::F32, run };
/// Portable kernel for f64.
pub static F64: Kernel = Kernel { def: &DEF, dtype: DType::F64, run };
/// Portable kernel for f16.
pub static F16: Kernel = Kernel { def: &DEF, dtype: DType::F16, run };
/// Portable kernel for bf16.
pub static BF16: Kernel = Kernel { def: &DEF, dtype: DType::Bf16, run };

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(&DEF, "check_numerics(x), where x is a float", Gradient::None("it has no output that anything depends on"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Fails with [`Error::NotFinite`] if an element is infinite or NaN. `message` names the tensor. In a traced function, the tensor is
    /// checked when the function runs. Like `tf.debugging.check_numerics`, but returns nothing.
    ///
    /// An exported signature that assigns variables has this check on its inputs and results already
    /// ([`Artifact::finite_steps`](crate::Artifact::finite_steps)).
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, f32::NAN], &[2])?;
    /// let error = x.check_numerics("x").unwrap_err();
    /// assert_eq!(error.to_string(), "x: the element at position 1 is infinite or NaN, but must be finite (instruction 0)");
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    #[doc(alias = "tf.debugging.check_numerics")]
    pub fn check_numerics(&self, message: &str) -> Result<()> {
        assert::check(&OP, message, self)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::device;
    use std::string::ToString;

    #[test]
    fn an_odd_element_fails_with_its_position() {
        let check = |elements: &[f32]| Tensor::new(device(), elements, &[elements.len() as u32]).unwrap().check_numerics("loss");
        assert_eq!(check(&[1.0, -0.0, f32::MAX, f32::MAX]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = check(&[1.0, 2.0, odd, odd]).unwrap_err();
            assert_eq!(error.root(), &Error::NotFinite { node: 0, position: 2 });
            assert!(error.to_string().starts_with("loss: "), "{error}");
        }
        assert!(Tensor::scalar(device(), 1i32).check_numerics("no float").unwrap_err().to_string().starts_with("check_numerics(i32[])"));
    }
}
