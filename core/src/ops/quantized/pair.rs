//! Ops on two quantised tensors: the check of their attribute words, and the scales that become these words.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
#[cfg(feature = "alloc")]
use crate::base::quantization::{Quantization, limits};
use crate::base::shape::TensorType;
use crate::ops::shared::fixed_point::Multiplier;
use crate::ops::shared::quantized::{Output, check_zero_point};

/// Checks the first attribute words of an op on two tensors of type i8 or i16: the zero points of both, the words of the result, and
/// `multipliers`.
pub(in crate::ops) fn check(inputs: &[TensorType], zero_points: [i32; 2], output: &Output, multipliers: &[Multiplier]) -> Result<()> {
    let dtype = inputs.first().map_or(DType::F32, |x| x.dtype);
    if !matches!(dtype, DType::I8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    check_zero_point(zero_points[0], dtype, 0)?;
    check_zero_point(zero_points[1], dtype, 1)?;
    output.check(dtype, 2)?;
    match multipliers.iter().position(|multiplier| !multiplier.is_valid()) {
        Some(index) => Err(Error::Attribute { index: 5 + 2 * index as u8 }),
        None => Ok(()),
    }
}

/// Scales of an op on two tensors, and the range of its results.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug)]
pub struct PairQuantization {
    /// Scale and zero point of the left operand.
    pub left: Quantization,
    /// Scale and zero point of the right operand.
    pub right: Quantization,
    /// Scale and zero point of the result.
    pub output: Quantization,
    /// Smallest and largest element that an activation leaves. `None` for all elements of the type.
    pub range: Option<(i32, i32)>,
}

#[cfg(feature = "alloc")]
impl PairQuantization {
    /// Returns the zero points of the operands and the words of the result, for tensors of type `dtype`.
    pub(in crate::ops) fn words(&self, dtype: DType) -> Result<([i32; 2], Output)> {
        for quantization in [self.left, self.right, self.output] {
            quantization.check(dtype)?;
        }
        let (least, greatest) = self.range.or(limits(dtype)).ok_or(Error::Internal)?;
        let output = Output { zero_point: self.output.zero_point, least, greatest };
        Ok(([self.left.zero_point, self.right.zero_point], output))
    }
}

#[cfg(all(test, feature = "alloc"))]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::base::op::Kernel;
    use crate::ops::shared::quantized::Quantized;
    use crate::ops::shared::testing::{SHAPES, Value, numbers, run, run_every_way};
    use std::vec::Vec;

    /// Range of the real results without an activation.
    pub(in crate::ops) const ANY: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

    /// Returns the scaling of an op on elements of type `T`, with these pairs of scale and zero point, whose activation leaves the real
    /// numbers of the range `reals`.
    pub(in crate::ops) fn scaling<T: Quantized>(scales: [(f32, i32); 3], reals: (f32, f32)) -> PairQuantization {
        let [left, right, output] = scales.map(|(scale, zero_point)| Quantization { scale, zero_point });
        let [least, greatest] = [reals.0, reals.1].map(|real| output.nearest(real).max(T::LEAST).min(T::GREATEST));
        PairQuantization { left, right, output, range: Some((least, greatest)) }
    }

    /// Asserts that the kernel for i8 computes `want` of many pairs of elements, whichever of the operands is repeated or in place.
    pub(in crate::ops) fn check_each(kernel: &Kernel, attributes: &[u32], want: impl Fn(i32, i32) -> i8) {
        let elements: Vec<i8> = (0..=51).map(|i| (5 * i - 128) as i8).collect();
        let (row, column) = (Value::new(&elements, &[52]), Value::new(&elements, &[52, 1]));
        let whole = |of: &dyn Fn(i32, i32) -> i8| {
            let pairs = elements.iter().flat_map(|&i| elements.iter().map(move |&j| (i.into(), j.into())));
            Value::new(&pairs.map(|(i, j)| of(i, j)).collect::<Vec<i8>>(), &[52, 52])
        };
        let (rows, columns) = (whole(&|i, _| i as i8), whole(&|_, j| j as i8));
        for (a, b) in [(&column, &row), (&rows, &row), (&column, &columns), (&rows, &columns)] {
            assert!(run_every_way(kernel, attributes, &[a, b])[0] == whole(&|i, j| want(i, j)), "{attributes:?}");
            assert!(run_every_way(kernel, attributes, &[b, a])[0] == whole(&|i, j| want(j, i)), "{attributes:?}");
        }
        let y = run_every_way(kernel, attributes, &[&row, &row]);
        assert_eq!(y[0].elements::<i8>(), elements.iter().map(|&x| want(x.into(), x.into())).collect::<Vec<_>>());
    }

    /// Asserts that the results of the kernel are within one unit of the exact ones, which `exact` computes, for pairs of shapes that
    /// broadcast.
    pub(in crate::ops) fn check_nearest<T: Quantized>(
        kernel: &Kernel,
        attributes: impl Fn(&PairQuantization) -> Vec<u32>,
        exact: impl Fn(f64, f64) -> f64,
    ) {
        let unit = if T::GREATEST == 127 { 1.0 } else { 256.0 };
        let elements = |dims, seed| numbers(dims, seed).iter().map(|&x| T::of((x * 32.0 * unit) as i32)).collect::<Vec<T>>();
        for (a_scale, b_scale, y_scale) in [(0.05, 0.1, 0.07), (0.002, 0.3, 0.4), (1.5, 0.01, 1.0)] {
            let of = |scale: f64, zero_point| ((scale / unit) as f32, if unit == 1.0 { zero_point } else { 0 });
            let scales = [of(a_scale, -30), of(b_scale, 100), of(y_scale, 7)];
            let attributes = attributes(&scaling::<T>(scales, (-5.0, 8.0)));
            for (a_dims, b_dims) in SHAPES {
                let (a, b) = (elements(a_dims, 1), elements(b_dims, 2));
                let y = run_every_way(kernel, &attributes, &[&Value::new(&a, a_dims), &Value::new(&b, b_dims)]);
                let real = |x: T, (scale, zero_point): (f32, i32)| f64::from(scale) * f64::from(x.number() - zero_point);
                let spread = |x: &[T], dims: &[u32], scale| {
                    let reals: Vec<f32> = x.iter().map(|&x| real(x, scale) as f32).collect();
                    let zeros = Value::new(&std::vec![0.0f32; y[0].elements::<T>().len()], y[0].dims());
                    run(&crate::ops::add::F32, &[], &[&zeros, &Value::new(&reals, dims)], &[]).1[0].elements::<f32>()
                };
                let pairs = spread(&a, a_dims, scales[0]).into_iter().zip(spread(&b, b_dims, scales[1]));
                for ((a, b), y) in pairs.zip(y[0].elements::<T>()) {
                    let want = exact(a.into(), b.into()).clamp(-5.0, 8.0) / f64::from(scales[2].0) + f64::from(scales[2].1);
                    let want = want.clamp(T::LEAST.into(), T::GREATEST.into());
                    assert!((f64::from(y.number()) - want).abs() <= 1.01, "{a} {b}: {y:?}, not {want}");
                }
            }
        }
    }
}
