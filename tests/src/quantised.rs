//! Random functions on quantised tensors, with all ops that such tensors have.

use crate::random::Random;
use anyhow::Result;
use gradlet_core::device::{AlignedBytes, Device};
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::ops::quantized_resize_bilinear::Centres;
use gradlet_core::ops::{PairQuantization, Requantization, SvdfQuantization};
use gradlet_core::{Artifact, DType, Eager, Function, Quantization, Scope, Shape, Tensor, TensorType, ops};
use std::ops::Range;

/// Number of channels of the input.
const CHANNELS: u32 = 4;

/// Creates an artifact with two functions for each seed: `i8_SEED` and `i16_SEED`, of an input of this type.
pub fn artifact(seeds: Range<u64>) -> Result<AlignedBytes> {
    let scope = Eager::new(&ops::portable_cpu());
    let mut artifact = Artifact::new();
    for (seed, dtype) in seeds.flat_map(|seed| [(seed, DType::I8), (seed, DType::I16)]) {
        let x = Tensor::zeros(&scope.device(), TensorType::new(dtype, Shape::new(&[2, 7, 6, CHANNELS])?))?;
        let function = Function::new(move |_: &dyn Scope, x: Tensor| Sampler { random: Random::new(seed), x }.results());
        artifact.signature(&format!("{dtype}_{seed}"), &*function.concrete(&scope, &x)?, &["x"], &["y"])?;
    }
    Ok(artifact.to_bytes()?)
}

/// Applies ops with random operands, scales and options to `x`.
struct Sampler {
    random: Random,
    x: Tensor,
}

impl Sampler {
    /// Returns the elements of all results, one after another.
    fn results(mut self) -> gradlet_core::Result<Tensor> {
        let from = self.quantization();
        let x = self.x.with_quantization(from)?;
        let results = [
            self.conv2d(&x, from)?,
            self.depthwise(&x, from)?,
            self.dense(&x, from, false)?,
            self.dense(&x, from, true)?,
            self.pair(&x, from)?,
            self.average(&x)?,
            self.mean(&x, from)?,
        ];
        let more = [x.quantized_softmax(from, 0.5 + self.random.below(4) as f32)?, self.sigmoid(&x, from)?, self.conversions(&x, from)?];
        let rest = [self.product(&x, from)?, self.square(&x, from)?, self.resized(&x)?, self.normalized(&x, from)?, self.svdf(&x, from)?];
        let joined = |results: &[Tensor]| {
            let flat = results.iter().map(|y| y.reshape(&[y.dims().iter().product()]));
            Tensor::concat(&flat.collect::<gradlet_core::Result<Vec<Tensor>>>()?, 0)
        };
        Tensor::concat(&[joined(&results)?, joined(&more)?, joined(&rest)?], 0)
    }

    fn device(&self) -> gradlet_core::Result<Device> {
        self.x.device()
    }

    /// Returns a random number from 2^low to 2^(high + 1).
    fn power(&mut self, low: i32, high: i32) -> f32 {
        let exponent = low + self.random.below((high - low) as usize + 1) as i32;
        (1.0 + self.random.below(1 << 20) as f32 / (1 << 20) as f32) * 2f32.powi(exponent)
    }

    /// Returns a ratio of scales. It is usually one that leaves most results within their range.
    fn ratio(&mut self) -> f32 {
        if self.random.below(6) == 0 { self.power(-34, 28) } else { self.power(-12, -7) }
    }

    /// Returns a random element of the type of `x`.
    fn element(&mut self) -> i32 {
        let bits = self.random.bits();
        if self.x.dtype() == DType::I8 { (bits as i8).into() } else { (bits as i16).into() }
    }

    fn quantization(&mut self) -> Quantization {
        Quantization { scale: self.power(-9, 1), zero_point: if self.random.coin() { 0 } else { self.element() } }
    }

    /// Returns the limits of an activation.
    fn range(&mut self) -> Option<(i32, i32)> {
        let (a, b) = (self.element(), self.element());
        (self.random.below(3) == 0).then_some((a.min(b), a.max(b)))
    }

    /// Returns random elements of the type of `x`.
    fn elements(&mut self, dims: &[u32]) -> gradlet_core::Result<Tensor> {
        let elements: Vec<i32> = (0..dims.iter().product()).map(|_| self.element()).collect();
        Tensor::new(&self.device()?, &elements, dims)?.cast(self.x.dtype())
    }

    /// Returns a filter of these dimensions, and a bias for its channels.
    fn filter(&mut self, dims: &[u32], channels: u32) -> gradlet_core::Result<[Tensor; 2]> {
        let filter: Vec<i8> = (0..dims.iter().product()).map(|_| self.random.bits() as i8).collect();
        let bias: Vec<i64> = (0..channels).map(|_| self.random.below(1 << 16) as i64 - (1 << 15)).collect();
        let wide = self.x.dtype() == DType::I16 && self.random.coin();
        let bias = Tensor::new(&self.device()?, &bias, &[channels])?;
        let bias = if wide { bias } else { bias.cast(DType::I32)? };
        Ok([Tensor::new(&self.device()?, &filter, dims)?, bias])
    }

    /// Returns the scales of a filter and of a result: one for each channel, or one for all.
    fn scales(&mut self, from: Quantization, channels: u32) -> (Vec<f32>, Quantization) {
        let output = self.quantization();
        let count = if self.random.coin() { channels } else { 1 };
        ((0..count).map(|_| self.ratio() * output.scale / from.scale).collect(), output)
    }

    fn sides(&mut self, greatest: u32) -> [u32; 2] {
        [(); 2].map(|()| self.random.range(1, greatest))
    }

    fn window(&mut self) -> Conv2DOptions {
        let pads = [(); 4].map(|()| self.random.range(0, 2));
        let explicit = Padding::Explicit { top: pads[0], bottom: pads[1], left: pads[2], right: pads[3] };
        let padding = self.random.pick(&[Padding::Valid, Padding::Same, explicit]);
        Conv2DOptions::default().strides(self.sides(2)).dilations(self.sides(2)).padding(padding)
    }

    fn conv2d(&mut self, x: &Tensor, input: Quantization) -> gradlet_core::Result<Tensor> {
        let (groups, [kh, kw]) = (self.random.pick(&[1, 2, CHANNELS]), self.sides(3));
        let channels = groups * self.random.range(1, 3);
        let [filter, bias] = self.filter(&[channels, kh, kw, CHANNELS / groups], channels)?;
        let (scales, output) = self.scales(input, channels);
        let scaling = Requantization { input, filter: &scales, output, range: self.range() };
        x.quantized_conv2d(&filter, &bias, &self.window(), &scaling)
    }

    fn depthwise(&mut self, x: &Tensor, input: Quantization) -> gradlet_core::Result<Tensor> {
        let (channels, [kh, kw]) = (CHANNELS * self.random.range(1, 3), self.sides(3));
        let [filter, bias] = self.filter(&[1, kh, kw, channels], channels)?;
        let (scales, output) = self.scales(input, channels);
        let scaling = Requantization { input, filter: &scales, output, range: self.range() };
        x.quantized_depthwise_conv2d(&filter, &bias, &self.window(), &scaling)
    }

    fn dense(&mut self, x: &Tensor, input: Quantization, round_twice: bool) -> gradlet_core::Result<Tensor> {
        let channels = self.random.range(1, 5);
        let [filter, bias] = self.filter(&[channels, CHANNELS], channels)?;
        let (scales, output) = self.scales(input, channels);
        let scaling = Requantization { input, filter: &scales, output, range: self.range() };
        x.quantized_dense(&filter, &bias, &scaling, round_twice)
    }

    /// Returns a sum, minus a product.
    fn pair(&mut self, x: &Tensor, left: Quantization) -> gradlet_core::Result<Tensor> {
        let dims: &[u32] = self.random.pick(&[&[CHANNELS], &[6, 1], &[2, 7, 6, CHANNELS]]);
        let (other, right, mut output) = (self.elements(dims)?, self.quantization(), self.quantization());
        let sum = x.quantized_add(&other, &PairQuantization { left, right, output, range: self.range() })?;
        let sum_quantization = output;
        output.scale = left.scale * right.scale / self.ratio();
        let product = x.quantized_mul(&other, &PairQuantization { left, right, output, range: self.range() })?;
        let scales = PairQuantization { left: sum_quantization, right: output, output: self.quantization(), range: None };
        sum.quantized_sub(&product, &scales)
    }

    fn average(&mut self, x: &Tensor) -> gradlet_core::Result<Tensor> {
        let padding = self.random.pick(&[Padding::Valid, Padding::Same]);
        x.quantized_avg_pool2d(self.sides(3), self.sides(3), padding, self.range())
    }

    fn mean(&mut self, x: &Tensor, from: Quantization) -> gradlet_core::Result<Tensor> {
        let axes: &[i32] = self.random.pick(&[&[1, 2], &[3], &[0, 2], &[]]);
        let mean = x.quantized_mean(axes, true, from, self.quantization())?;
        let sum = x.quantized_sum(axes, true, from, self.quantization())?;
        Tensor::concat(&[mean, sum], 0)
    }

    fn sigmoid(&mut self, x: &Tensor, from: Quantization) -> gradlet_core::Result<Tensor> {
        let from = Quantization { zero_point: 0, scale: from.scale / 256.0 };
        Tensor::concat(&[x.quantized_sigmoid(from)?, x.quantized_tanh(from)?], 0)
    }

    /// Returns `x` after a conversion to u8, by a table to i8, to f32, and back.
    fn conversions(&mut self, x: &Tensor, from: Quantization) -> gradlet_core::Result<Tensor> {
        let bytes = Quantization { scale: from.scale * self.power(-2, 9), zero_point: self.random.below(256) as i32 };
        let table: Vec<i8> = (0..256).map(|_| self.random.bits() as i8).collect();
        let entries = x.requantize(from, DType::U8, bytes)?.lookup(&Tensor::new(&self.device()?, &table, &[256])?)?;
        let real = entries.dequantize(Quantization { zero_point: -3, ..bytes })?;
        real.quantize(x.dtype(), self.quantization())
    }

    /// Returns the product of `x`, transposed or not, and a random matrix.
    fn product(&mut self, x: &Tensor, left: Quantization) -> gradlet_core::Result<Tensor> {
        let (transpose_a, transpose_b, n) = (self.random.coin(), self.random.coin(), self.random.range(1, 10));
        let k = if transpose_a { 6 } else { CHANNELS };
        let dims = if transpose_b { [n, k] } else { [k, n] };
        let (other, right, mut output) = (self.elements(&dims)?, self.quantization(), self.quantization());
        // A sum of products of 16 bits is longer.
        let longer = if x.dtype() == DType::I16 { 2f32.powi(12) } else { 1.0 };
        output.scale = left.scale * right.scale / self.ratio() * longer;
        let scaling = PairQuantization { left, right, output, range: self.range() };
        x.quantized_matmul(&other, transpose_a, transpose_b, &scaling)
    }

    /// Returns the square of a difference, which only i8 has.
    fn square(&mut self, x: &Tensor, left: Quantization) -> gradlet_core::Result<Tensor> {
        if x.dtype() != DType::I8 {
            return Ok(x.clone());
        }
        let (other, right, mut output) = (self.elements(&[6, 1])?, self.quantization(), self.quantization());
        output.scale = left.scale.max(right.scale).powi(2) / self.ratio();
        x.quantized_squared_difference(&other, &PairQuantization { left, right, output, range: self.range() })
    }

    fn resized(&mut self, x: &Tensor) -> gradlet_core::Result<Tensor> {
        let centres = self.random.pick(&[Centres::Whole, Centres::Half, Centres::Corners]);
        x.quantized_resize_bilinear(self.sides(12), centres)
    }

    /// Returns vectors of the length 1, or for i16 a function with a random table.
    fn normalized(&mut self, x: &Tensor, from: Quantization) -> gradlet_core::Result<Tensor> {
        if x.dtype() == DType::I8 { x.quantized_l2_normalize(from) } else { x.lookup(&self.elements(&[513])?) }
    }

    /// Returns the output of a filter over time and its state, which only i8 has.
    fn svdf(&mut self, x: &Tensor, input: Quantization) -> gradlet_core::Result<Tensor> {
        if x.dtype() != DType::I8 {
            return Ok(x.clone());
        }
        let (units, rank, steps, output) = (self.random.range(1, 3), self.random.range(1, 2), self.random.range(1, 5), self.quantization());
        let ([features, bias], x) = (self.filter(&[units * rank, CHANNELS], units)?, x.reshape(&[84, CHANNELS])?);
        let shorts: Vec<i16> = (0..units * rank * steps).map(|_| self.random.bits() as i16).collect();
        let time = Tensor::new(&self.device()?, &shorts, &[units * rank, steps])?;
        let state = time.broadcast_to(&[84, units * rank, steps])?;
        let (feature_scale, state_scale) = (self.power(-9, -5), input.scale);
        let scaling = SvdfQuantization {
            input,
            features: feature_scale,
            time: self.ratio() / 4096.0 * output.scale / state_scale,
            state: state_scale,
            output,
        };
        let (y, next) = x.quantized_svdf_step(&state, [&features, &time, &bias], &scaling)?;
        let low = next.cast(DType::I8)?.reshape(&[84 * units * rank * steps])?;
        Tensor::concat(&[y.reshape(&[84 * units])?, low], 0)
    }
}
