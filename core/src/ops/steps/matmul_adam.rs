//! One step of Adam on the kernel of a dense layer, in place: `adam_step` with the gradient `xᵀ · dy`.
//!
//! The gradient of the kernel is never stored. The result has the bits of `matmul` of x transposed with dy, followed by
//! `adam_step`. The inputs are `variable[k,n]` and its two moments, `x[m,k]`, `dy[m,n]`, a scalar learning rate, and the number
//! of earlier steps. Element types: f32 and f64.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::adam_step::{COST, Rule, infer_step, parts};
use crate::ops::shared::contraction::each_gradient;
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

pub use crate::ops::adam_step::Attributes;

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::matmul_adam,
    name: "matmul_adam",
    inputs: (7, 7),
    outputs: 3,
    infer,
    in_place: &[(0, 0), (1, 1), (2, 2)],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [variable, _, _, x, dy, _, _] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    infer_step(inputs, 5, attributes, outputs)?;
    for (input, operand) in [(3, x), (4, dy)] {
        if operand.dtype != variable.dtype {
            return Err(Error::DType { input });
        }
    }
    let &[k, n] = variable.shape.dims() else { return Err(Error::Rank { input: 0 }) };
    let &[m, x_k] = x.shape.dims() else { return Err(Error::Rank { input: 3 }) };
    let &[dy_m, dy_n] = dy.shape.dims() else { return Err(Error::Rank { input: 4 }) };
    for (input, axis, want, got) in [(3, 1, k, x_k), (4, 0, m, dy_m), (4, 1, n, dy_n)] {
        if got != want {
            return Err(Error::Dimension { input, axis, want, got });
        }
    }
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let rule = Rule::<T>::new(call, 5)?;
    let (x, dy) = (call.input(3)?, call.input(4)?);
    let (k, n) = (x.dim(1), dy.dim(1));
    let rows = call.rows(k, n * (COST + 16 + 5 * x.dim(0)) + 80);
    let [w, m, v] = parts::<T>(call.inputs, call.outputs, rows.start * n..rows.end * n)?;
    let mut sum = T::ZERO;
    each_gradient(x.slice(), dy.slice(), [k, n], rows, |part, gradient| {
        let (Some(w), Some(m), Some(v)) = (w.get_mut(part.clone()), m.get_mut(part.clone()), v.get_mut(part)) else { return };
        sum = rule.steps([w, m, v], gradient, sum);
    });
    call.slice.finite = super::finite(sum);
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("MatMulAdam"),
    ..Op::total(
        &DEF,
        "matmul_adam(variable[k,n], m[k,n], v[k,n], x[m,k], dy[m,n], learning_rate[], iterations[]), iterations i64, the others all f32 \
            or all f64",
        Gradient::Missing("a step of an optimizer is not differentiated"),
    )
};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, floats, run, run_every_way};
    use crate::ops::{adam_step, matmul};

    const ATTRIBUTES: [f32; 5] = [0.9, 0.999, 1e-7, 0.1, 0.001];

    #[test]
    fn has_the_bits_of_matmul_and_adam_step() {
        let words = ATTRIBUTES.map(f32::to_bits);
        for (m, k, n) in [(1, 5, 10), (1, 3, 8), (1, 1, 1), (2, 3, 17), (8, 4, 9), (0, 3, 4), (2, 0, 3), (1, 3, 0)] {
            let (w, first, x, dy) = (floats(&[k, n], 1), floats(&[k, n], 2), floats(&[m, k], 3), floats(&[m, n], 4));
            let second = Value::new(&first.elements::<f32>().iter().map(|x| x * x).collect::<std::vec::Vec<_>>(), &[k, n]);
            let (rate, iterations) = (Value::new(&[0.1f32], &[]), Value::new(&[6i64], &[]));
            let gradient = run_every_way(&matmul::F32, &[1, 0], &[&x, &dy]).remove(0);
            let want = run_every_way(&adam_step::F32, &words, &[&w, &first, &second, &gradient, &rate, &iterations]);
            let got = run_every_way(&F32, &words, &[&w, &first, &second, &x, &dy, &rate, &iterations]);
            assert!(got == want, "{m} {k} {n}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let words = ATTRIBUTES.map(f32::to_bits);
        let (w, rate, iterations) = (floats(&[2, 3], 1), Value::new(&[0.1f32], &[]), Value::new(&[0i64], &[]));
        let refused = |x: &[u32], dy: &[u32], rate: &Value| {
            run(&F32, &words, &[&w, &w, &w, &floats(x, 1), &floats(dy, 2), rate, &iterations], &[]).0.unwrap_err()
        };
        assert_eq!(refused(&[4, 3], &[4, 3], &rate), Error::Dimension { input: 3, axis: 1, want: 2, got: 3 });
        assert_eq!(refused(&[4, 2], &[5, 3], &rate), Error::Dimension { input: 4, axis: 0, want: 4, got: 5 });
        assert_eq!(refused(&[4, 2], &[3], &rate), Error::Rank { input: 4 });
        assert_eq!(refused(&[4, 2], &[4, 3], &iterations), Error::DType { input: 5 });
    }
}
