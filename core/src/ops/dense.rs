//! A dense layer, `y[..,n] = x[..,k] · kernel[k,n] + bias[n]`; the bias can be left out. f32 and f64.
//! As `tf.keras.layers.Dense` without its activation.
//!
//! Bits: each element is summed from +0 over ascending k; the bias is added last.

use super::contraction::{Rows, add_rows};
use crate::dtype::Float;
use crate::error::{Error, Result};
use crate::op::{Call, Kernel, OpDef};
use crate::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::{
    scope::{Backward, Gradient, InputGradients, Op},
    tensor::Tensor,
};

/// The op.
pub static DEF: OpDef = OpDef { code: super::code::dense, name: "dense", inputs: (2, 3), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let ([x, kernel, bias @ ..], [output, ..]) = (inputs, outputs) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    super::elementwise::float(0, inputs)?;
    let &[k, n] = kernel.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    if kernel.dtype != x.dtype {
        return Err(Error::DType { input: 1 });
    }
    let mut shape = x.shape;
    let axis = shape.rank().wrapping_sub(1) as u8;
    let Some(last) = shape.dims_mut().last_mut() else { return Err(Error::Rank { input: 0 }) };
    if *last != k {
        return Err(Error::Dimension { input: 0, axis, want: k, got: *last });
    }
    *last = n;
    super::contraction::check_bias(bias, x.dtype, n)?;
    *output = TensorType::new(x.dtype, shape);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let (x, kernel) = (call.input(0)?, call.input(1)?);
    let bias = call.inputs.get(2).map_or(&[][..], |bias| bias.slice::<T>());
    let (k, n) = (kernel.dim(0), kernel.dim(1));
    let rows = Rows::new(kernel.slice::<T>(), n);
    for (i, y) in call.output()?.slice_mut::<T>().chunks_mut(n.max(1)).enumerate() {
        y.fill(T::ZERO);
        add_rows(y, Rows::new(x.slice().get(i * k..(i + 1) * k).unwrap_or(&[]), 1), rows);
        y.iter_mut().zip(bias).for_each(|(y, &bias)| *y = y.add(bias));
    }
    Ok(())
}

super::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op { def: &DEF, usage: "dense(x[..,k], kernel[k,n], bias[n])", grad: Gradient::Rule(grad) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (x, kernel, dy) = (&of.inputs[0], &of.inputs[1], of.dy()?);
    let flat = |t: &Tensor| {
        let n = t.shape().back(0).unwrap_or(1);
        t.reshape(&[t.dims().iter().rev().skip(1).product(), n])
    };
    let dx = of.if_wanted(0, || dy.matmul_with(kernel, false, true))?;
    let dkernel = of.if_wanted(1, || flat(x)?.matmul_with(&flat(dy)?, true, false))?;
    let dbias = of.if_wanted(2, || flat(dy)?.sum(&[0], false))?;
    Ok([dx, dkernel, dbias].into_iter().take(of.inputs.len()).collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Dense.
    pub fn dense(&self, kernel: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let inputs: heapless::Vec<&Tensor, 3> = [self, kernel].into_iter().chain(bias).collect();
        Tensor::emit1(&OP, &[], &inputs)
    }
}
