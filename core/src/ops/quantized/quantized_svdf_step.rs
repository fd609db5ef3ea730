//! Step of a singular value decomposition filter on quantised tensors: a dense layer over the last `m` inputs, whose weights are a sum of
//! products of a filter over features and one over time. x and y are i8, the filters over time and the state are i16.
//!
//! - The state has the last `m` products of each filter over features. It moves by one, and its newest number is
//!   `clamp(s · Σ features · (x − x₀))`.
//! - Each output has the same number of filters: `y = clamp(y₀ + h · (bias + Σ time · state))`, with the sum over these and over time.
//!
//! `s` and `h` are multipliers, whose products are rounded twice. The bits are those of SVDF of TensorFlow Lite's reference kernels.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::same_dims;
use crate::ops::shared::fixed_point::Multiplier;
use crate::ops::shared::quantized::{Output, check_zero_point, dot};
use crate::ops::shared::window::part;
#[cfg(feature = "alloc")]
use crate::{base::quantization::Quantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Zero point of x.
    pub input_zero_point: i32,
    /// Zero point of y.
    pub output_zero_point: i32,
    /// Multiplier `s`.
    pub features: Multiplier,
    /// Multiplier `h`.
    pub time: Multiplier,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::quantized_svdf_step,
    name: "quantized_svdf_step",
    inputs: (5, 5),
    outputs: 2,
    infer,
    in_place: &[(4, 1)],
};

const DTYPES: [DType; 5] = [DType::I8, DType::I8, DType::I16, DType::I32, DType::I16];

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let ([x, features, time, bias, state], [y, next, ..]) = (inputs, outputs) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    if let Some(input) = inputs.iter().zip(DTYPES).position(|(input, dtype)| input.dtype != dtype) {
        return Err(Error::DType { input: input as u8 });
    }
    let attributes: Attributes = read_attributes(attributes)?;
    check_zero_point(attributes.input_zero_point, DType::I8, 0)?;
    check_zero_point(attributes.output_zero_point, DType::I8, 1)?;
    for (index, multiplier) in [(2, attributes.features), (4, attributes.time)] {
        if !multiplier.is_valid() {
            return Err(Error::Attribute { index });
        }
    }
    let &[batch, width] = x.shape.dims() else { return Err(Error::Rank { input: 0 }) };
    let &[filters, _] = features.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    let &[_, steps] = time.shape.dims() else { return Err(Error::Rank { input: 2 }) };
    let &[units] = bias.shape.dims() else { return Err(Error::Rank { input: 3 }) };
    same_dims(1, &[filters, width], features.shape.dims())?;
    same_dims(2, &[filters, steps], time.shape.dims())?;
    same_dims(4, &[batch, filters, steps], state.shape.dims())?;
    if steps == 0 {
        return Err(Error::Dimension { input: 2, axis: 1, want: 1, got: 0 });
    }
    if filters.checked_rem(units) != Some(0) {
        return Err(Error::Dimension { input: 3, axis: 0, want: filters, got: units });
    }
    let mut shape = x.shape;
    shape.dims_mut().iter_mut().skip(1).for_each(|columns| *columns = units);
    (*y, *next) = (TensorType::new(DType::I8, shape), *state);
    Ok(())
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { input_zero_point, output_zero_point, features: feature_scale, time: time_scale } = call.attributes()?;
    let (x, features, time, bias, state) = (call.input(0)?, call.input(1)?, call.input(2)?, call.input(3)?, call.input(4)?);
    let (width, filters, steps, units) = (features.dim(1), features.dim(0), time.dim(1), bias.dim(0));
    let rank = filters.checked_div(units).unwrap_or(0);
    let output = Output { zero_point: output_zero_point, least: i8::MIN.into(), greatest: i8::MAX.into() };
    let (x, features, time, bias) = (x.slice::<i8>(), features.slice::<i8>(), time.slice::<i16>(), bias.slice::<i32>());
    let results = call.output()?.data.len();
    let results = call.rows(results, rank * (5 * width + 9 * steps + 60) + 40);
    let [y, next, ..] = &mut *call.outputs else { return Err(Error::Internal) };
    let (y, next) = (y.slice_mut::<i8>(), next.slice_mut::<i16>());
    for (at, y) in y.iter_mut().enumerate().take(results.end).skip(results.start) {
        let (line, unit) = (at / units.max(1), at % units.max(1));
        let mut sum = bias.get(unit).copied().unwrap_or(0);
        for filter in unit * rank..(unit + 1) * rank {
            let first = (line * filters + filter) * steps;
            let row = next.get_mut(first..first + steps).unwrap_or_default();
            match state.in_place() {
                true => row.copy_within(row.len().min(1).., 0),
                false => row.iter_mut().zip(part(state.slice::<i16>(), first + 1, steps - 1)).for_each(|(next, &last)| *next = last),
            }
            let newest = dot(0i32, part(x, line * width, width), part(features, filter * width, width), input_zero_point);
            if let Some(last) = row.last_mut() {
                *last = feature_scale.twice(newest).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
            }
            let products = row.iter().zip(part(time, filter * steps, steps)).map(|(&state, &time)| i32::from(state) * i32::from(time));
            sum = products.fold(sum, i32::wrapping_add);
        }
        *y = output.element(time_scale.twice(sum));
    }
    Ok(())
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(
    &DEF,
    "quantized_svdf_step(x[b,k], features[f,k], time[f,m], bias[u], state[b,f,m]), where x and features are i8, time and state i16",
    NO_GRADIENT,
);

/// Scales of a singular value decomposition filter. Weights and the state have the zero point 0.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug)]
pub struct SvdfQuantization {
    /// Scale and zero point of x.
    pub input: Quantization,
    /// Scale of the filters over features.
    pub features: f32,
    /// Scale of the filters over time.
    pub time: f32,
    /// Scale of the state.
    pub state: f32,
    /// Scale and zero point of the result.
    pub output: Quantization,
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the output `[b,u]` and the next state `[b,f,m]` of a singular value decomposition filter: a step of SVDF of TensorFlow
    /// Lite, with the bits of its reference kernel. `weights` are the filters over features `[f,k]`, those over time `[f,m]`, and the bias
    /// `[u]`. `f` is a multiple of `u`.
    ///
    /// Fails if ranks, dimensions or element types do not match, a scale is not positive and finite, or a zero point is not an element.
    ///
    /// ```
    /// # use gradlet_core::{Quantization, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let one = Quantization { scale: 1.0, zero_point: 0 };
    /// let scaling = ops::SvdfQuantization { input: one, features: 1.0, time: 1.0, state: 1.0, output: one };
    /// let x = Tensor::new(&device, &[3i8], &[1, 1])?;
    /// let features = Tensor::new(&device, &[2i8], &[1, 1])?;
    /// let time = Tensor::new(&device, &[1i16, 10], &[1, 2])?;
    /// let (bias, state) = (Tensor::new(&device, &[5], &[1])?, Tensor::new(&device, &[7i16, 8], &[1, 1, 2])?);
    /// let (y, next) = x.quantized_svdf_step(&state, [&features, &time, &bias], &scaling)?;
    /// assert_eq!(next.to_vec::<i16>()?, [8, 6]);
    /// assert_eq!(y.to_vec::<i8>()?, [73]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_svdf_step(&self, state: &Tensor, weights: [&Tensor; 3], scaling: &SvdfQuantization) -> Result<(Tensor, Tensor)> {
        let SvdfQuantization { input, features, time, state: scale, output } = *scaling;
        input.check(DType::I8)?;
        output.check(DType::I8)?;
        for scale in [features, time, scale] {
            Quantization { scale, zero_point: 0 }.check(DType::I16)?;
        }
        let attributes = Attributes {
            input_zero_point: input.zero_point,
            output_zero_point: output.zero_point,
            features: Multiplier::new((input.scale * features / scale).into()),
            time: Multiplier::new((scale * time / output.scale).into()),
        };
        let [features, time, bias] = weights;
        let mut results = Tensor::emit(&OP, bytemuck::cast_slice(&[attributes]), &[self, features, time, bias, state])?.into_iter();
        let (Some(y), Some(next)) = (results.next(), results.next()) else { return Err(Error::Internal) };
        Ok((y.with_quantization(output)?, next.with_quantization(Quantization { scale, zero_point: 0 })?))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::quantized_conv2d::tests::integers;
    use crate::ops::shared::testing::{Value, run, run_every_way};
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        for (batch, width, units, rank, steps) in [(1u32, 1u32, 1u32, 1u32, 1u32), (2, 5, 3, 2, 4), (1, 40, 4, 1, 10), (0, 3, 2, 2, 3)] {
            let filters = units * rank;
            let narrow = |x: Vec<i32>| x.into_iter().map(|x| x as i8).collect::<Vec<_>>();
            let wide = |x: Vec<i32>| x.into_iter().map(|x| x as i16).collect::<Vec<_>>();
            let (x, features) = (narrow(integers(&[batch, width], 1, 30.0)), narrow(integers(&[filters, width], 2, 30.0)));
            let (time, state) = (wide(integers(&[filters, steps], 3, 900.0)), wide(integers(&[batch, filters, steps], 4, 9000.0)));
            let bias = integers(&[units], 5, 90_000.0);
            let features_scale = Multiplier { value: 1_500_000_000, exponent: 2 };
            let time_scale = Multiplier { value: 1_200_000_000, exponent: -18 };
            let attributes = Attributes { input_zero_point: 9, output_zero_point: -4, features: features_scale, time: time_scale };
            let (mut y, mut next) = (Vec::new(), state.clone());
            for at in 0..(batch * units) as usize {
                let (line, unit) = (at / units as usize, at % units as usize);
                let mut sum = bias[unit];
                for filter in unit * rank as usize..(unit + 1) * rank as usize {
                    let product: i32 = (0..width as usize)
                        .map(|k| (i32::from(x[line * width as usize + k]) - 9) * i32::from(features[filter * width as usize + k]))
                        .sum();
                    let row = &mut next[(line * filters as usize + filter) * steps as usize..][..steps as usize];
                    row.rotate_left(1);
                    row[steps as usize - 1] = features_scale.twice(product).clamp(-32768, 32767) as i16;
                    sum += (0..steps as usize).map(|m| i32::from(row[m]) * i32::from(time[filter * steps as usize + m])).sum::<i32>();
                }
                y.push((time_scale.twice(sum) - 4).clamp(-128, 127) as i8);
            }
            let operands = [
                &Value::new(&x, &[batch, width]),
                &Value::new(&features, &[filters, width]),
                &Value::new(&time, &[filters, steps]),
                &Value::new(&bias, &[units]),
                &Value::new(&state, &[batch, filters, steps]),
            ];
            let got = run_every_way(&I8, &words(attributes), &operands);
            assert!(got[0] == Value::new(&y, &[batch, units]) && got[1] == Value::new(&next, &[batch, filters, steps]), "{units} {steps}");
        }
    }

    #[test]
    fn what_it_refuses() {
        let one = Multiplier { value: 1 << 30, exponent: 1 };
        let good = Attributes { input_zero_point: 0, output_zero_point: 0, features: one, time: one };
        let [x, features, time] = [Value::new(&[1i8; 2], &[1, 2]), Value::new(&[1i8; 6], &[3, 2]), Value::new(&[1i16; 3], &[3, 1])];
        let refused = |attributes: Attributes, bias: &[i32], steps: u32| {
            let (bias, state) = (Value::new(bias, &[bias.len() as u32]), Value::new(&std::vec![1i16; 3 * steps as usize], &[1, 3, steps]));
            run(&I8, &words(attributes), &[&x, &features, &time, &bias, &state], &[]).0.unwrap_err()
        };
        assert_eq!(refused(Attributes { output_zero_point: 128, ..good }, &[0], 1), Error::Attribute { index: 1 });
        assert_eq!(refused(Attributes { time: Multiplier { value: -1, exponent: 0 }, ..good }, &[0], 1), Error::Attribute { index: 4 });
        assert_eq!(refused(good, &[0, 0], 1), Error::Dimension { input: 3, axis: 0, want: 3, got: 2 });
        assert_eq!(refused(good, &[], 1), Error::Dimension { input: 3, axis: 0, want: 3, got: 0 });
        assert_eq!(refused(good, &[0], 2), Error::Dimension { input: 4, axis: 2, want: 1, got: 2 });
    }
}
