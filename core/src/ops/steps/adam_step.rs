//! One step of Adam on a variable `w` with its moments `m` and `v`. `g` is the gradient, `a` the learning rate, and `n` the
//! number of earlier steps. Element types: f32 and f64. Like `keras.optimizers.Adam` (Kingma and Ba, arXiv:1412.6980):
//!
//! ```text
//! m' = m + (g - m) · (1 - β₁)          α = a · √(1 - β₂ⁿ⁺¹) / (1 - β₁ⁿ⁺¹)
//! v' = v + (g² - v) · (1 - β₂)         w' = w - m' · α / (√v' + ε)
//! ```
//!
//! `1 - β` is an attribute of its own, because the nearest f32 to it is not 1 minus the nearest f32 to β. For 0.999 the relative
//! difference is 5 · 10⁻⁵.

use crate::base::dtype::{DType, Float};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};
use bytemuck::{Pod, Zeroable};
use core::ops::Range;

/// Attribute words of the op.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// Decay rate β₁ of the first moment, at least 0 and less than 1.
    pub beta_1: f32,
    /// Decay rate β₂ of the second moment, at least 0 and less than 1.
    pub beta_2: f32,
    /// Constant ε that is added to the root of the second moment, at least 0.
    pub epsilon: f32,
    /// 1 - β₁, rounded once.
    pub rate_1: f32,
    /// 1 - β₂, rounded once.
    pub rate_2: f32,
}

#[cfg(feature = "alloc")]
impl Attributes {
    /// Creates the attribute words for these β₁, β₂ and ε.
    pub(crate) fn new([beta_1, beta_2]: [f64; 2], epsilon: f64) -> Attributes {
        let [beta_1, beta_2, epsilon, rate_1, rate_2] = [beta_1, beta_2, epsilon, 1.0 - beta_1, 1.0 - beta_2].map(|value| value as f32);
        Attributes { beta_1, beta_2, epsilon, rate_1, rate_2 }
    }
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::adam_step, name: "adam_step", inputs: (6, 6), outputs: 3, infer, in_place: &[(0, 0), (1, 1), (2, 2)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    elementwise::like_first(3, inputs)?;
    infer_step(inputs, 4, attributes, outputs)
}

/// Shape rule of a step. Inputs 0, 1 and 2 are the variable and its moments. Input `scalars` is the learning rate, and the next
/// input is the number of earlier steps.
pub(in crate::ops) fn infer_step(inputs: &[TensorType], scalars: u8, attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let (Some(variable), [_, .., learning_rate, iterations]) = (inputs.first(), inputs) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    let Attributes { beta_1, beta_2, epsilon, rate_1, rate_2 } = read_attributes(attributes)?;
    let allowed = [
        (0.0..1.0).contains(&beta_1),
        (0.0..1.0).contains(&beta_2),
        epsilon >= 0.0 && epsilon.is_finite(),
        (0.0..=1.0).contains(&rate_1),
        (0.0..=1.0).contains(&rate_2),
    ];
    if let Some(index) = allowed.iter().position(|allowed| !allowed) {
        return Err(Error::Attribute { index: index as u8 });
    }
    elementwise::float(0, inputs)?;
    elementwise::like_first(1, inputs)?;
    elementwise::like_first(2, inputs)?;
    if learning_rate.dtype != variable.dtype {
        return Err(Error::DType { input: scalars });
    }
    if iterations.dtype != DType::I64 {
        return Err(Error::DType { input: scalars + 1 });
    }
    elementwise::same_dims(scalars, &[], learning_rate.shape.dims())?;
    elementwise::same_dims(scalars + 1, &[], iterations.shape.dims())?;
    outputs.iter_mut().take(3).for_each(|output| *output = *variable);
    Ok(())
}

/// Cost of one element in instructions of a Cortex-M4. Most of it is the square root.
pub(in crate::ops) const COST: usize = 110;

/// Constants of one step, from which [`Rule::steps`] updates each element.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Rule<T> {
    rate_1: T,
    rate_2: T,
    epsilon: T,
    alpha: T,
}

impl<T: Float> Rule<T> {
    /// Creates the rule from the attributes and inputs of `call`. Input `scalars` is the learning rate, and the next input is the
    /// number of earlier steps.
    pub(in crate::ops) fn new(call: &Call<'_, '_>, scalars: usize) -> Result<Rule<T>> {
        let attributes: Attributes = call.attributes()?;
        let [beta_1, beta_2, epsilon, rate_1, rate_2] =
            [attributes.beta_1, attributes.beta_2, attributes.epsilon, attributes.rate_1, attributes.rate_2].map(|x| T::from_f64(x.into()));
        let learning_rate = call.input(scalars)?.scalar::<T>();
        let step = call.input(scalars + 1)?.scalar::<i64>().saturating_add(1);
        let step = T::from_count(u32::try_from(step).unwrap_or(u32::MAX) as usize);
        let correction = T::ONE.sub(beta_2.pow(step)).sqrt().div(T::ONE.sub(beta_1.pow(step)));
        Ok(Rule { rate_1, rate_2, epsilon, alpha: learning_rate.mul(correction) })
    }

    /// Updates the elements of the variable and its moments for their gradients. Returns `sum` plus the new elements.
    #[inline(always)]
    pub(in crate::ops) fn steps(&self, [w, m, v]: [&mut [T]; 3], gradient: &[T], mut sum: T) -> T {
        for ((w, (m, v)), &g) in w.iter_mut().zip(m.iter_mut().zip(v)).zip(gradient) {
            *m = m.add(g.sub(*m).mul(self.rate_1));
            *v = v.add(g.mul(g).sub(*v).mul(self.rate_2));
            *w = w.sub(m.mul(self.alpha).div(v.sqrt().add(self.epsilon)));
            sum = sum.add(w.add(*m).add(*v));
        }
        sum
    }
}

/// Returns elements `range` of the variable and its moments, in the outputs. An output that has memory of its own gets them from its input.
pub(in crate::ops) fn parts<'a, T: Float>(
    inputs: &[TensorView<'_>],
    outputs: &'a mut [TensorViewMut<'_>],
    range: Range<usize>,
) -> Result<[&'a mut [T]; 3]> {
    let [variable, first, second] = outputs else { return Err(Error::Arity { got: outputs.len() as u8 }) };
    let mut parts = [variable, first, second].map(|output| output.slice_mut::<T>().get_mut(range.clone()).unwrap_or_default());
    for (part, input) in parts.iter_mut().zip(inputs) {
        let old = input.slice::<T>().get(range.clone()).unwrap_or_default();
        part.iter_mut().zip(old).for_each(|(slot, &old)| *slot = old);
    }
    Ok(parts)
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let rule = Rule::<T>::new(call, 4)?;
    let gradient = call.input(3)?.slice::<T>();
    let rows = call.rows(gradient.len(), COST);
    let gradient = gradient.get(rows.clone()).unwrap_or_default();
    let parts = parts(call.inputs, call.outputs, rows)?;
    call.slice.finite = super::finite(rule.steps(parts, gradient, T::ZERO));
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("ResourceApplyAdam"),
    with_product: Some((3, &crate::ops::matmul_adam::OP)),
    ..Op::elementwise(
        &DEF,
        "adam_step(variable, m, v, gradient, learning_rate[], iterations[]), iterations i64, the others all f32 or all f64",
        Gradient::Missing("an optimizer's step is the end of a training step"),
    )
};

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the variable `self` and its moments `m` and `v` after a step of Adam, as `[variable, m, v]`. `iterations` is the
    /// number of earlier steps.
    ///
    /// Fails unless `self` is f32 or f64, and `m`, `v` and `gradient` have its type. `learning_rate` must be a scalar of the same
    /// element type, and `iterations` an i64 scalar. Fails if β₁ or β₂ is not at least 0 and less than 1, or if ε is negative or
    /// not finite.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let variable = Tensor::new(&device, &[1.0f32, 1.0], &[2])?;
    /// let gradient = Tensor::new(&device, &[3.0f32, -0.2], &[2])?;
    /// let zeros = Tensor::zeros(&device, variable.tensor_type())?;
    /// let (learning_rate, iterations) = (Tensor::scalar(&device, 0.5f32), Tensor::scalar(&device, 0i64));
    /// let [stepped, ..] = variable.adam_step([&zeros, &zeros], &gradient, &learning_rate, &iterations, [0.9, 0.999], 1e-7)?;
    /// let stepped = stepped.to_vec::<f32>()?;
    /// assert!((stepped[0] - 0.5).abs() < 1e-4 && (stepped[1] - 1.5).abs() < 1e-4);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn adam_step(
        &self,
        [m, v]: [&Tensor; 2],
        gradient: &Tensor,
        learning_rate: &Tensor,
        iterations: &Tensor,
        betas: [f64; 2],
        epsilon: f64,
    ) -> Result<[Tensor; 3]> {
        let attributes = Attributes::new(betas, epsilon);
        let outputs = Tensor::emit(&OP, bytemuck::cast_slice(&[attributes]), &[self, m, v, gradient, learning_rate, iterations])?;
        outputs.into_array().map_err(|outputs| Error::Arity { got: outputs.len() as u8 })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, floats, run, run_every_way};

    const ATTRIBUTES: [f32; 5] = [0.9, 0.999, 1e-7, 0.1, 0.001];

    #[test]
    fn in_place_and_apart() {
        let positive = Value::new(&floats(&[5], 3).elements::<f32>().iter().map(|x| x * x).collect::<std::vec::Vec<_>>(), &[5]);
        let (rate, iterations) = (Value::new(&[0.1f32], &[]), Value::new(&[6i64], &[]));
        let inputs = [&floats(&[5], 1), &floats(&[5], 2), &positive, &floats(&[5], 4), &rate, &iterations];
        run_every_way(&F32, &ATTRIBUTES.map(f32::to_bits), &inputs);
    }

    #[test]
    fn attributes_are_checked() {
        let (rate, iterations) = (Value::new(&[0.1f32], &[]), Value::new(&[0i64], &[]));
        let x = floats(&[2], 1);
        for (index, wrong) in [(0, 1.0), (1, -0.1), (2, f32::NAN), (2, f32::INFINITY), (3, 1.5), (4, f32::NAN)] {
            let mut attributes = ATTRIBUTES;
            attributes[index] = wrong;
            let (result, _) = run(&F32, &attributes.map(f32::to_bits), &[&x, &x, &x, &x, &rate, &iterations], &[]);
            assert_eq!(result, Err(Error::Attribute { index: index as u8 }));
        }
        let attributes = ATTRIBUTES.map(f32::to_bits);
        assert_eq!(run(&F32, &attributes[..4], &[&x, &x, &x, &x, &rate, &iterations], &[]).0, Err(Error::Attribute { index: 0 }));
        assert_eq!(run(&F32, &attributes, &[&x, &x, &x, &x, &rate, &rate], &[]).0, Err(Error::DType { input: 5 }));
    }
}
