//! Mean over some axes: `y = Σ x / n`. Element types: f32 and f64. Without elements, the result is NaN. Like `tf.reduce_mean`.
//!
//! The attribute words and the order of the sum are those of [`sum`](crate::ops::sum). The division comes last.

#[cfg(feature = "alloc")]
use crate::base::dtype::DType;
use crate::base::dtype::Float;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::{elementwise, reduce};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::mean, name: "mean", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    elementwise::float(0, inputs)?;
    reduce::infer(inputs, attributes, outputs)
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let summed = reduce::sum::<T>(call, true)?;
    let x = call.input(0)?;
    let count = T::from_count(reduce::count(x.dims(), call.attributes));
    let means = call.output()?.slice_mut::<T>().get_mut(summed).unwrap_or_default();
    means.iter_mut().for_each(|y| *y = y.div(count));
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: the upstream gradient divided by the count, broadcast over the reduced axes.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "mean(x), over distinct axes of x", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let x = &of.inputs[0];
    let dx = || {
        let count = x.like(reduce::count(x.dims(), of.attributes) as f64)?;
        of.dy()?.div(&count)?.reshape(reduce::kept_dims(of.attributes, x)?.dims())?.broadcast_to(x.dims())
    };
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the mean over `axes`. Negative axes count from the end. An empty `axes` reduces all axes. With `keepdims`, the
    /// reduced axes stay in the shape with dimension 1.
    ///
    /// Integers are added as i64, and the mean is truncated toward zero. Without elements, the result is NaN for floats and 0 for
    /// integers.
    ///
    /// Fails on booleans, or if an axis is out of range or listed twice. Like `tf.reduce_mean`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// assert_eq!(x.mean(&[1], false)?.to_vec::<f32>()?, [2.0, 5.0]);
    /// assert_eq!(x.mean(&[], false)?.item::<f32>()?, 3.5);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn mean(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        if !matches!(self.dtype(), DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::I64) {
            return reduce::emit(&OP, self, axes, keepdims);
        }
        let sum = self.cast(DType::I64)?.sum(axes, keepdims)?;
        let count = reduce::count(self.dims(), &reduce::attributes(self, axes, keepdims)?).max(1);
        sum.truncatediv(&sum.like(count as f64)?)?.cast(self.dtype())
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for attributes in [&[0u32, 0, 1][..], &[0, 0], &[0, 1], &[1, 1], &[0], &[1, 0, 1]] {
            check_gradient(&super::OP, attributes, &[tensor(&[2, 3], 1)]);
        }
    }

    #[test]
    fn of_nothing() {
        use crate::ops::shared::testing::{Value, run};
        let (_, nothing) = run(&super::F32, &[0, 1], &[&Value::new::<f32>(&[], &[2, 0])], &[]);
        assert!(nothing[0].elements::<f32>().iter().all(|y| y.is_nan()));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn of_integers() {
        use crate::ops::shared::testing::device;
        use crate::tensor::{Bool, Tensor};
        let mean = |x: Tensor, axes: &[i32]| x.mean(axes, false).unwrap();
        let x = Tensor::new(device(), &[-3, -4, 3, 4, i32::MAX, i32::MAX], &[3, 2]).unwrap();
        assert_eq!(mean(x, &[1]).to_vec::<i32>().unwrap(), [-3, 3, i32::MAX]);
        assert_eq!(mean(Tensor::new(device(), &[200u8, 255], &[2]).unwrap(), &[]).item::<u8>().unwrap(), 227);
        assert_eq!(mean(Tensor::new::<i32>(device(), &[], &[2, 0]).unwrap(), &[1]).to_vec::<i32>().unwrap(), [0, 0]);
        assert!(Tensor::scalar(device(), Bool(1)).mean(&[], false).is_err());
    }
}
