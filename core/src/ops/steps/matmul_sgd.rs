//! One step of gradient descent on the kernel of a dense layer, in place: `variable' = variable − learning_rate · (xᵀ · dy)`.
//!
//! The gradient of the kernel is never stored. The result has the bits of `matmul` of x transposed with dy, followed by
//! `sgd_step`. The inputs are `variable[k,n]`, `x[m,k]`, `dy[m,n]` and a scalar learning rate. Element types: f32 and f64. Like
//! `tf.raw_ops.ResourceApplyGradientDescent` of a product.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::contraction::{each_gradient, outer, rolled};
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::matmul_sgd, name: "matmul_sgd", inputs: (4, 4), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let ([variable, x, dy, learning_rate], [output, ..]) = (inputs, outputs) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    crate::ops::shared::elementwise::float(0, inputs)?;
    for (input, operand) in (1..).zip([x, dy, learning_rate]) {
        if operand.dtype != variable.dtype {
            return Err(Error::DType { input });
        }
    }
    let &[k, n] = variable.shape.dims() else { return Err(Error::Rank { input: 0 }) };
    let &[m, x_k] = x.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    let &[dy_m, dy_n] = dy.shape.dims() else { return Err(Error::Rank { input: 2 }) };
    if learning_rate.shape.rank() != 0 {
        return Err(Error::Rank { input: 3 });
    }
    for (input, axis, want, got) in [(1, 1, k, x_k), (2, 0, m, dy_m), (2, 1, n, dy_n)] {
        if got != want {
            return Err(Error::Dimension { input, axis, want, got });
        }
    }
    *output = *variable;
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let (variable, x, dy) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let rate: T = call.input(3)?.scalar();
    let (k, n) = (x.dim(1), dy.dim(1));
    let (m, x, dy) = (x.dim(0), x.slice::<T>(), dy.slice::<T>());
    let rows = call.rows(k, if m == 1 { 7 * n + 4 * (n % 8) + 24 } else { n * (5 * m + 16) + 80 });
    let output = call.output()?.slice_mut::<T>().get_mut(rows.start * n..rows.end * n).unwrap_or_default();
    if !variable.in_place() {
        output.iter_mut().zip(variable.slice().iter().skip(rows.start * n)).for_each(|(w, &old)| *w = old);
    }
    call.slice.finite = if m == 1 {
        let x = x.get(rows).unwrap_or_default();
        outer(output, x, dy, |w, x, dy| w.sub(rate.mul(T::ZERO.add(x.mul(dy)))));
        // Steps below 1e30 leave a finite number finite: they are less than half of the distance between the two largest ones.
        rate.mul(size(x).mul(size(dy))).abs() < T::from_f64(1e30)
    } else {
        let mut sum = T::ZERO;
        each_gradient(x, dy, [k, n], rows, |part, gradient| {
            let part = output.get_mut(part).unwrap_or_default();
            for (w, &gradient) in part.iter_mut().zip(gradient) {
                *w = w.sub(rate.mul(gradient));
                sum = sum.add(*w);
            }
        });
        super::finite(sum)
    };
    Ok(())
}

/// Returns the sum of the absolute values.
#[inline(never)]
fn size<T: Float>(elements: &[T]) -> T {
    elements.iter().fold(T::ZERO, |sum, element| {
        rolled();
        sum.add(element.abs())
    })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("MatMulSgd"),
    ..Op::total(
        &DEF,
        "matmul_sgd(variable[k,n], x[m,k], dy[m,n], learning_rate[]), all f32 or all f64",
        Gradient::Missing("a step of an optimizer is not differentiated"),
    )
};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, floats, run_every_way};
    use crate::ops::{matmul, sgd_step};

    #[test]
    fn has_the_bits_of_matmul_and_sgd_step() {
        for (m, k, n) in [(1, 5, 10), (1, 3, 8), (1, 1, 1), (2, 3, 17), (8, 4, 9), (0, 3, 4), (2, 0, 3), (1, 3, 0)] {
            let (w, x, dy) = (floats(&[k, n], 1), floats(&[m, k], 2), floats(&[m, n], 3));
            // A product of -0 must not turn a weight of -0 into +0.
            let signed = |value: &Value, every: usize, zero: f32| {
                let elements = value.elements::<f32>();
                let zeroed = elements.iter().enumerate().map(|(i, &e)| if i % every == 0 { zero } else { e });
                Value::new(&zeroed.collect::<std::vec::Vec<_>>(), value.dims())
            };
            for (w, x, dy) in [(w.clone(), x.clone(), dy.clone()), (signed(&w, 2, -0.0), signed(&x, 1, 0.0), signed(&dy, 3, -0.0))] {
                let rate = Value::new(&[0.1f32], &[]);
                let gradient = run_every_way(&matmul::F32, &[1, 0], &[&x, &dy]).remove(0);
                let want = run_every_way(&sgd_step::F32, &[], &[&w, &gradient, &rate]);
                let got = run_every_way(&F32, &[], &[&w, &x, &dy, &rate]);
                assert!(got == want, "{m} {k} {n}");
            }
        }
    }
}
