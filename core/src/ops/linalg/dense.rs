//! Dense layer, `y[..,n] = x[..,k] · kernel[k,n] + bias[n]`. The bias is optional. Element types: f32 and f64. Like
//! `tf.keras.layers.Dense` without its activation.
//!
//! Bits: each element is summed from +0 over ascending k. The bias is added last.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::contraction::{Rows, add_dots, add_rows, clear, cost_of_dot, cost_of_row};
use crate::ops::shared::elementwise::add_to_rows;
#[cfg(feature = "alloc")]
use crate::{
    base::shape::merged,
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Attribute words of the op.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// 1 if the kernel has the shape `[n,k]`, and 0 if it has the shape `[k,n]`. With this attribute, the same op computes the
    /// gradient of `x`.
    pub transpose: u32,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::dense, name: "dense", inputs: (2, 3), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let ([x, kernel, bias @ ..], [output, ..]) = (inputs, outputs) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    let Attributes { transpose } = read_attributes(attributes)?;
    if transpose > 1 {
        return Err(Error::Attribute { index: 0 });
    }
    crate::ops::shared::elementwise::float(0, inputs)?;
    let &[rows, columns] = kernel.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    let (k, n) = if transpose == 0 { (rows, columns) } else { (columns, rows) };
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
    crate::ops::shared::contraction::check_bias(bias, x.dtype, n)?;
    *output = TensorType::new(x.dtype, shape);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let (x, kernel) = (call.input(0)?, call.input(1)?);
    let bias = call.inputs.get(2).map_or(&[][..], |bias| bias.slice::<T>());
    let transpose = call.attributes::<Attributes>()?.transpose != 0;
    let (count, stride) = (kernel.dim(0), kernel.dim(1));
    // A row of the work is a row of the kernel: for one line of x, it adds to all outputs, or computes one.
    let of_line = count.max(1);
    let n = if transpose { count } else { stride };
    let lines = (call.output()?.data.len() / size_of::<T>()).checked_div(n).unwrap_or(0);
    let rows = call.rows(lines * of_line, if transpose { cost_of_dot(stride) } else { cost_of_row(stride) });
    let (x, y, matrix) = (x.slice::<T>(), call.output()?.slice_mut::<T>(), Rows::new(kernel.slice(), stride));
    let mut at = rows.start;
    while at < rows.end {
        let line = at / of_line;
        let from = at - line * of_line;
        let end = rows.end.min(at - from + of_line);
        let whole = line * stride..(line + 1) * stride;
        let part = at..end;
        let (x, y) = if transpose { (x.get(whole), y.get_mut(part)) } else { (x.get(part), y.get_mut(whole)) };
        let (x, y, matrix) = (x.unwrap_or_default(), y.unwrap_or_default(), matrix.skip(from));
        if transpose {
            clear(y);
            add_dots(y, x, matrix);
            add_to_rows(y, bias.get(from..from + y.len()).unwrap_or_default());
        } else {
            if from == 0 {
                clear(y);
            }
            add_rows(y, x, matrix);
            if end - at + from == of_line {
                add_to_rows(y, bias);
            }
        }
        at = end;
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dx = dy · kernelᵀ`, `dkernel = xᵀ · dy`, and for the bias `dy` summed over all rows.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("_FusedMatMul"),
    ..Op::total(&DEF, "dense(x[..,k], kernel[k,n], optional bias[n]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let ([x, kernel, bias @ ..], dy) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let Attributes { transpose } = read_attributes(of.attributes)?;
    let dx = of.if_wanted(0, || Tensor::emit1(&OP, &[1 - transpose], &[dy, kernel]))?;
    let dkernel = of.if_wanted(1, || {
        let (rows, columns) = if transpose == 0 { (x, dy) } else { (dy, x) };
        matrix(rows)?.matmul_with(&matrix(columns)?, true, false)
    })?;
    let dbias = of.if_wanted(2, || matrix(dy)?.sum(&[0], false))?;
    Ok([dx, dkernel].into_iter().chain(bias.iter().map(|_| dbias.clone())).collect())
}

/// Reshapes `tensor` to a matrix: its last dimension becomes the columns, and the product of all other dimensions the rows.
#[cfg(feature = "alloc")]
fn matrix(tensor: &Tensor) -> Result<Tensor> {
    let [rows @ .., columns] = tensor.dims() else { return Err(Error::Rank { input: 0 }) };
    if rows.len() == 1 { Ok(tensor.clone()) } else { tensor.reshape(&[merged(rows)?, *columns]) }
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self · kernel + bias` over the last dimension. The shapes are `[..,k]`, `kernel[k,n]` and `bias[n]`, and the
    /// result is `[..,n]`. Like `tf.keras.layers.Dense` without its activation.
    ///
    /// Fails on integers, or if `k`, `n` or the element types do not match.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 2.0], &[1, 2])?;
    /// let kernel = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let bias = Tensor::new(&device, &[0.5f32, -0.5], &[2])?;
    /// assert_eq!(x.dense(&kernel, Some(&bias))?.to_vec::<f32>()?, [7.5, 9.5]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn dense(&self, kernel: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let inputs: heapless::Vec<&Tensor, 3> = [self, kernel].into_iter().chain(bias).collect();
        Tensor::emit1(&OP, &[0], &inputs)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, floats, run_every_way};
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        for (rows, k, n) in [(&[1][..], 5, 10), (&[], 3, 4), (&[3, 2], 9, 13), (&[2], 0, 3), (&[0], 2, 3), (&[2], 3, 0), (&[7], 31, 1)] {
            let (x_dims, y_dims) = ([rows, &[k]].concat(), [rows, &[n]].concat());
            let (x, kernel, bias) = (floats(&x_dims, 1), floats(&[k, n], 2), floats(&[n], 3));
            let (left, right, added) = (x.elements::<f32>(), kernel.elements::<f32>(), bias.elements::<f32>());
            let (k, n) = (k as usize, n as usize);
            let count: u32 = rows.iter().product();
            let sums: Vec<f32> =
                (0..count as usize * n).map(|at| (0..k).fold(0.0, |sum, p| sum + left[at / n * k + p] * right[p * n + at % n])).collect();
            assert!(run_every_way(&F32, &[0], &[&x, &kernel])[0] == Value::new(&sums, &y_dims));
            let biased: Vec<f32> = sums.iter().zip(added.iter().cycle()).map(|(sum, bias)| sum + bias).collect();
            assert!(run_every_way(&F32, &[0], &[&x, &kernel, &bias])[0] == Value::new(&biased, &y_dims));
            let turned: Vec<f32> = (0..n * k).map(|at| right[at % k * n + at / k]).collect();
            let turned = Value::new(&turned, &[n as u32, k as u32]);
            assert!(run_every_way(&F32, &[1], &[&x, &turned, &bias])[0] == Value::new(&biased, &y_dims));
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for dims in [&[2, 3][..], &[3], &[2, 2, 3]] {
            check_gradient(&OP, &[0], &[tensor(dims, 1), tensor(&[3, 4], 2), tensor(&[4], 3)]);
            check_gradient(&OP, &[0], &[tensor(dims, 1), tensor(&[3, 4], 2)]);
            check_gradient(&OP, &[1], &[tensor(dims, 1), tensor(&[4, 3], 2), tensor(&[4], 3)]);
        }
    }
}
