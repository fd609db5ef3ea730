//! Gradient of [`avg_pool2d`](crate::ops::avg_pool2d). Each dy is divided equally among the positions of its window inside x:
//! `dx[n,ih,iw,c] = Σ dy[n,oh,ow,c] · (1 / count)`. Element types: f32 and f64. Like `tf.raw_ops.AvgPoolGrad` in NHWC.
//!
//! Bits: each element is summed from +0 over its windows in row-major order. dy is multiplied by the rounded reciprocal.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d::dims4;
use crate::ops::shared::elementwise::{same_dims, set};
use crate::ops::shared::pooling;
use crate::ops::shared::pooling::{clear_ahead, windows};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Attributes of the pooling whose gradient is computed.
    pub pooling: pooling::Attributes,
    /// Height and width of the input images of the pooling.
    pub input: [u32; 2],
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::avg_pool2d_grad, name: "avg_pool2d_grad", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { pooling, input: [h, w] } = read_attributes(attributes)?;
    let dy = dims4(inputs, 0)?;
    let ([n, _, _, c], [down, across]) = (dy, pooling.axes([h, w])?);
    same_dims(0, &[n, down.output as u32, across.output as u32, c], &dy)?;
    let [dy] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    set(outputs, TensorType::new(dy.dtype, Shape::new(&[n, h, w, c])?))
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { pooling, input } = call.attributes()?;
    let dy = call.input(0)?;
    let (axes, c, dy) = (pooling.axes(input)?, dy.dim(3), dy.slice::<T>());
    let elements = call.rows(dy.len(), pooling.cost(c, 9));
    let dx = call.output()?.slice_mut::<T>();
    clear_ahead(dx, axes, c, &elements);
    windows(axes, c, elements, |window| {
        let dy = dy.get(window.result.clone()).unwrap_or(&[]);
        let part = T::ONE.div(T::from_count(window.count()));
        window.each_mut(dx, |pixel| pixel.iter_mut().zip(dy).for_each(|(dx, &dy)| *dx = dx.add(dy.mul(part))));
    });
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. It is linear in dy, so its gradient is `avg_pool2d` of the upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { tf_type: Some("AvgPoolGrad"), ..Op::total(&DEF, "avg_pool2d_grad(dy[n,oh,ow,c]), where dy is f32 or f64", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let Attributes { pooling, .. } = read_attributes(of.attributes)?;
    let ddy = || Tensor::emit1(&crate::ops::avg_pool2d::OP, bytemuck::cast_slice(&[pooling]), &[of.dy()?]);
    Ok([of.if_wanted(0, ddy)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the gradient of an average pooling with respect to its input images. `input` is the height and width of these
    /// images, and `self` is the gradient of the pooling's result.
    pub(in crate::ops) fn avg_pool2d_grad(&self, pooling: pooling::Attributes, input: [u32; 2]) -> Result<Tensor> {
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes { pooling, input }]), &[self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::pooling::tests::{cases, positions};
    use crate::ops::shared::testing::{Value, floats, indices, run_every_way};

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, pooling, y_dims) in cases() {
            let dy = floats(&y_dims, 2);
            let mut want = std::vec![0.0f32; indices(&x_dims).len()];
            for (window, dy) in positions(x_dims, &pooling, y_dims).into_iter().zip(dy.elements::<f32>()) {
                window.iter().for_each(|&at| want[at] += dy * (1.0 / window.len() as f32));
            }
            let attributes = Attributes { pooling, input: [x_dims[1], x_dims[2]] };
            let got = run_every_way(&F32, &words(attributes), &[&dy]);
            assert!(got[0] == Value::new(&want, &x_dims), "{x_dims:?} {attributes:?}");
        }
    }

    #[test]
    fn another_size_is_refused() {
        let pooling = pooling::Attributes { ksize: [2, 2], strides: [2, 2], padding: 0 };
        let dy = TensorType::new(crate::base::dtype::DType::F32, Shape::new(&[1, 2, 3, 1]).unwrap());
        let types = |input| DEF.output_types(&[dy], &words(Attributes { pooling, input })).map(|_| ());
        assert_eq!(types([5, 6]), Ok(()));
        assert_eq!(types([6, 6]), Err(Error::Dimension { input: 0, axis: 1, want: 3, got: 2 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, pooling, y) in cases().into_iter().step_by(5) {
            check_gradient(&OP, &words(Attributes { pooling, input: [x[1], x[2]] }), &[tensor(&y, 2)]);
        }
    }
}
