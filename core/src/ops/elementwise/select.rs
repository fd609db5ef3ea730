//! Selection: `y` is `x` where the condition is true, and `z` elsewhere, broadcast. x and z have the same element type, and every
//! type is allowed. The condition is boolean. Like `tf.where` with three arguments.
//!
//! The condition is the last input, because a kernel is chosen by the element type of the first.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::base::view::TensorView;
use crate::ops::shared::{broadcast, elementwise, runs};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};
use bytemuck::Pod;

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::select, name: "select", inputs: (3, 3), outputs: 1, infer, in_place: &[(0, 0), (1, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x, z, condition] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if condition.dtype != DType::Bool {
        return Err(Error::DType { input: 2 });
    }
    elementwise::broadcast(&[*x, *z], attributes, outputs)?;
    for output in outputs.iter_mut().take(1) {
        output.shape = output.shape.broadcast(&condition.shape)?;
    }
    Ok(())
}

fn run<'d, T: Pod>(call: &mut Call<'_, 'd>) -> Result<()> {
    let (x, z, condition) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let dims = call.output()?.dims();
    let (length, [p, q, r]) = broadcast::runs(dims, [x.dims(), z.dims(), condition.dims()]);
    let elements = |view: TensorView<'d>, start| {
        let elements = runs::elements::<T>(view.bytes());
        elements.get(broadcast::position(start, dims, view.dims())..).unwrap_or(&[])
    };
    let (first, output) = elementwise::part::<T>(call, 20 + broadcast::run_cost(length));
    broadcast::each_run(output, first, length, |start, run| {
        let (x, z) = (elements(x, start), elements(z, start));
        let condition = condition.bytes().get(broadcast::position(start, dims, condition.dims())..).unwrap_or(&[]);
        for (k, slot) in run.iter_mut().enumerate() {
            // An input that shares the output's memory has no slice of its own. Its element is then in `slot`.
            let chosen = if condition.get(k & r).is_some_and(|&byte| byte != 0) { x.get(k & p) } else { z.get(k & q) };
            *slot = chosen.copied().unwrap_or(*slot);
        }
    });
    Ok(())
}

crate::ops::moving_kernels!(sized run);

/// The op with its gradient: the selected operand gets the upstream gradient, and the other gets 0. Each is summed over the axes
/// along which the operand was broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("SelectV2"),
    ..Op::elementwise(
        &DEF,
        "select(x, z, condition), broadcast, where x and z have the same element type, and condition is bool",
        Gradient::Rule(grad),
    )
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (x, z, condition) = (&of.inputs[0], &of.inputs[1], &of.inputs[2]);
    let (dy, zero) = (of.dy()?, of.dy()?.like(0.0)?);
    let dx = of.if_wanted(0, || elementwise::unbroadcast(&condition.select(dy, &zero)?, x))?;
    let dz = of.if_wanted(1, || elementwise::unbroadcast(&condition.select(&zero, dy)?, z))?;
    Ok([dx, dz, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `x` where `self` is true, and `otherwise` where it is false, broadcast. Like `tf.where` with three arguments.
    ///
    /// Fails if `self` is not boolean, if the shapes do not broadcast, or if the element types of `x` and `otherwise` differ.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, -2.0, 3.0], &[3])?;
    /// let zero = x.like(0.0)?;
    /// assert_eq!(x.greater(&zero)?.select(&x, &zero)?.to_vec::<f32>()?, [1.0, 0.0, 3.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn select(&self, x: &Tensor, otherwise: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[x, otherwise, self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{Error, F32};
    use crate::base::dtype::Bool;
    use crate::ops::shared::testing::{Value, floats, indices, numbers, position, run, run_every_way};
    use std::vec::Vec;

    fn condition(dims: &[u32]) -> Value {
        Value::new(&numbers(dims, 3).iter().map(|&x| Bool::from(x > 0.0)).collect::<Vec<_>>(), dims)
    }

    #[test]
    fn broadcast_in_place_and_apart() {
        let all: [&[u32]; 6] = [&[], &[3], &[2, 1], &[2, 3], &[4, 1, 3], &[0, 2, 1]];
        for triple in indices(&[6, 6, 6]) {
            let [x, z, c] = [0, 1, 2].map(|place| all[triple[place] as usize]);
            let values = [floats(x, 1), floats(z, 2), condition(c)];
            let (result, y) = run(&F32, &[], &[&values[0], &values[1], &values[2]], &[]);
            if result.is_err() {
                continue;
            }
            let dims = y[0].dims().to_vec();
            let at = |dims: &[u32], index: &[u32]| {
                let own: Vec<u32> = index[index.len() - dims.len()..].iter().zip(dims).map(|(&index, &dim)| index.min(dim - 1)).collect();
                position(dims, &own)
            };
            let (left, right, mask) = (values[0].elements::<f32>(), values[1].elements::<f32>(), values[2].elements::<Bool>());
            let naive = |index: Vec<u32>| if mask[at(c, &index)].get() { left[at(x, &index)] } else { right[at(z, &index)] };
            assert_eq!(y[0].elements::<f32>(), indices(&dims).into_iter().map(naive).collect::<Vec<f32>>(), "{x:?} {z:?} {c:?}");
            run_every_way(&F32, &[], &[&values[0], &values[1], &values[2]]);
        }
    }

    #[test]
    fn wrong_types_are_refused() {
        let (x, c) = (floats(&[2], 1), condition(&[2]));
        let refused = |inputs: &[&Value]| run(&F32, &[], inputs, &[]).0;
        assert_eq!(refused(&[&x, &x, &x]), Err(Error::DType { input: 2 }));
        assert_eq!(refused(&[&x, &c, &c]), Err(Error::DType { input: 1 }));
    }
}
