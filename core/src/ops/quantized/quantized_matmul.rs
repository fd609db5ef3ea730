//! Product of quantised matrices: `y[..,m,n] = clamp(y₀ + s · Σ (a[..,m,k] − a₀) · (b[..,k,n] − b₀))`, where `s` is
//! `scale of a · scale of b / scale of y`. Either operand can be passed transposed. Leading dimensions are batches and broadcast. Element
//! types: i8, and i16 with a sum of 64 bits.
//!
//! Bits: those of BATCH_MATMUL of TensorFlow Lite's reference kernels. The product with `s` is rounded twice for i8.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::matmul::product;
use crate::ops::quantized::pair;
use crate::ops::shared::elementwise::{position, set};
use crate::ops::shared::fixed_point::Multiplier;
use crate::ops::shared::quantized::{Output, Quantized, Sum};
#[cfg(feature = "alloc")]
use crate::{ops::quantized::PairQuantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Zero points of a and b.
    pub zero_points: [i32; 2],
    /// Zero point and range of the result.
    pub output: Output,
    /// Multiplier of the sum.
    pub multiplier: Multiplier,
    /// 1 for an operand that is transposed, else 0.
    pub transposed: [u32; 2],
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_matmul, name: "quantized_matmul", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { zero_points, output, multiplier, transposed } = read_attributes(attributes)?;
    pair::check(inputs, zero_points, &output, &[multiplier])?;
    if let Some(at) = transposed.iter().position(|&flag| flag > 1) {
        return Err(Error::Attribute { index: 7 + at as u8 });
    }
    let [a, b] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if b.dtype != a.dtype {
        return Err(Error::DType { input: 1 });
    }
    set(outputs, TensorType::new(a.dtype, product(a, b, transposed)?))
}

/// Number of columns whose sums are computed together.
const COLUMNS: usize = 8;

fn run<T: Quantized, S: Sum>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points: [a_zero_point, b_zero_point], output, multiplier, transposed: [a_flag, b_flag] } = call.attributes()?;
    let (a, b, y) = (call.input(0)?, call.input(1)?, call.output()?);
    let ([a_batch @ .., rows, columns], [b_batch @ .., _, _], [batch @ .., m, n]) = (a.dims(), b.dims(), y.dims()) else {
        return Err(Error::Rank { input: 0 });
    };
    let (m, n, k) = (*m as usize, *n as usize, *if a_flag == 0 { columns } else { rows } as usize);
    let elements = y.data.len() / size_of::<T>();
    let elements = call.rows(elements, 6 * k + 60);
    let (a, b, mut at) = (a.slice::<T>(), b.slice::<T>(), elements.start);
    let results = call.output()?.slice_mut::<T>();
    while at < elements.end {
        let (line, j) = (at / n.max(1), at % n.max(1));
        let (index, i) = (line / m.max(1), line % m.max(1));
        let count = COLUMNS.min(n - j).min(elements.end - at);
        let a = a.get(position(index, batch, a_batch) * m * k..).unwrap_or_default();
        let b = b.get(position(index, batch, b_batch) * k * n..).unwrap_or_default();
        let (first, step) = if a_flag == 0 { (i * k, 1) } else { (i, m.max(1)) };
        let terms = || a.get(first..).unwrap_or_default().iter().step_by(step).take(k).map(|a| a.number() - a_zero_point);
        let mut sums = [S::ZERO; COLUMNS];
        if b_flag == 0 {
            for (term, row) in terms().zip(b.chunks_exact(n.max(1))) {
                let row = row.get(j..j + count).unwrap_or_default();
                sums.iter_mut().zip(row).for_each(|(sum, b)| *sum = sum.add_product(term, b.number() - b_zero_point));
            }
        } else {
            for (sum, line) in sums.iter_mut().take(count).zip(b.chunks_exact(k.max(1)).skip(j)) {
                *sum = terms().zip(line).fold(S::ZERO, |sum, (term, b)| sum.add_product(term, b.number() - b_zero_point));
            }
        }
        let results = results.get_mut(at..at + count).unwrap_or_default();
        results.iter_mut().zip(sums).for_each(|(y, sum)| *y = output.element(sum.scaled(multiplier)));
        at += count;
    }
    Ok(())
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run: run::<i8, i32> };
/// Portable kernel for i16.
pub const I16: Kernel = Kernel { def: &DEF, dtype: DType::I16, run: run::<i16, i64> };

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_matmul(a[..,m,k], b[..,k,n]), each optionally transposed, both i8 or both i16", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the product of quantised matrices, `self[..,m,k] · other[..,k,n]`, of shape `[..,m,n]`. Leading dimensions are batches and
    /// broadcast. With `transpose_a`, `self` has the shape `[..,k,m]`. With `transpose_b`, `other` has the shape `[..,n,k]`. It has the
    /// bits of TensorFlow Lite's reference kernel of BATCH_MATMUL.
    ///
    /// Fails unless both are i8 or both i16, the shapes fit, the scales are positive and finite, and the zero points are elements.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let half = gradlet_core::Quantization { scale: 0.5, zero_point: 0 };
    /// let one = gradlet_core::Quantization { scale: 1.0, zero_point: 10 };
    /// let scaling = ops::PairQuantization { left: half, right: half, output: one, range: None };
    /// let a = Tensor::new(&device, &[4i8, 8], &[1, 2])?;
    /// let b = Tensor::new(&device, &[3i8, 1, 2, 0], &[2, 2])?;
    /// assert_eq!(a.quantized_matmul(&b, false, false, &scaling)?.to_vec::<i8>()?, [17, 11]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_matmul(&self, other: &Tensor, transpose_a: bool, transpose_b: bool, scaling: &PairQuantization) -> Result<Tensor> {
        let (zero_points, output) = scaling.words(self.dtype())?;
        let [left, right, result] = [scaling.left, scaling.right, scaling.output].map(|quantization| quantization.scale);
        let multiplier = Multiplier::new(f64::from(left * right) / f64::from(result));
        let attributes = Attributes { zero_points, output, multiplier, transposed: [transpose_a.into(), transpose_b.into()] };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[self, other])?.with_quantization(scaling.output)
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

    const OUTPUT: Output = Output { zero_point: 4, least: -100, greatest: 120 };

    /// Returns the matrix with rows and columns exchanged.
    fn flipped(matrix: &[i32], rows: usize) -> Vec<i32> {
        let columns = matrix.len() / rows.max(1);
        (0..matrix.len()).map(|at| matrix[at % rows * columns + at / rows]).collect()
    }

    fn check<T: Quantized, S: Sum>(kernel: &Kernel, scaled: impl Fn(Multiplier, i64) -> i32) {
        let value = |of: &[i32], dims: &[u32]| Value::new(&of.iter().map(|&x| T::of(x)).collect::<Vec<T>>(), dims);
        for (m, k, n) in [(1, 1, 1), (3, 7, 5), (2, 40, 19), (4, 5, 8), (0, 3, 2), (2, 0, 3), (1, 3, 0)] {
            let [left, right] = [integers(&[m, k], 1, 31.0), integers(&[k, n], 2, 31.0)];
            let multiplier = Multiplier { value: 1_500_000_000, exponent: -5 };
            let [rows, terms, columns] = [m, k, n].map(|dim| dim as usize);
            let sum = |i: usize, j: usize| (0..terms).map(|p| i64::from((left[i * terms + p] - 9) * (right[p * columns + j] + 5))).sum();
            let want: Vec<i32> = (0..rows * columns)
                .map(|at| (scaled(multiplier, sum(at / columns, at % columns)) + OUTPUT.zero_point).clamp(OUTPUT.least, OUTPUT.greatest))
                .collect();
            for transposed in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                let a = if transposed[0] == 0 { value(&left, &[m, k]) } else { value(&flipped(&left, rows), &[k, m]) };
                let b = if transposed[1] == 0 { value(&right, &[k, n]) } else { value(&flipped(&right, terms), &[n, k]) };
                let attributes = words(Attributes { zero_points: [9, -5], output: OUTPUT, multiplier, transposed });
                let y = run_every_way(kernel, &attributes, &[&a, &b]);
                assert!(y[0] == value(&want, &[m, n]), "{m} {k} {n} {transposed:?}");
            }
        }
    }

    #[test]
    fn agrees_with_the_formula() {
        check::<i8, i32>(&I8, |multiplier, sum| multiplier.twice(sum as i32));
        check::<i16, i64>(&I16, |multiplier, sum| multiplier.wide(sum));
    }

    #[test]
    fn products_of_wide_numbers_do_not_wrap() {
        let attributes = Attributes {
            zero_points: [32767, 32767],
            output: Output { zero_point: 0, least: -32768, greatest: 32767 },
            multiplier: Multiplier { value: 1 << 30, exponent: -19 },
            transposed: [0, 0],
        };
        let (a, b) = (Value::new(&[i16::MIN], &[1, 1]), Value::new(&[i16::MIN, 32766], &[1, 2]));
        let y = run_every_way(&I16, &words(attributes), &[&a, &b]);
        assert_eq!(y[0].elements::<i16>(), [4096, 0]);
    }

    #[test]
    fn batches_broadcast() {
        let attributes = Attributes {
            zero_points: [0, 0],
            output: Output { zero_point: 0, least: -128, greatest: 127 },
            multiplier: Multiplier { value: 1 << 30, exponent: 1 },
            transposed: [0, 0],
        };
        let (a, b) = (Value::new(&[1i8, 2, 3, 4], &[2, 1, 1, 2]), Value::new(&[1i8, 0, 2, 5, 3, -1], &[3, 2, 1]));
        let y = run_every_way(&I8, &words(attributes), &[&a, &b]);
        assert_eq!((y[0].dims(), y[0].elements::<i8>()), (&[2, 3, 1, 1][..], std::vec![1, 12, 1, 3, 26, 5]));
        let refused = |attributes: Attributes, b: &Value| run(&I8, &words(attributes), &[&a, b], &[]).0.unwrap_err();
        assert_eq!(refused(Attributes { transposed: [0, 2], ..attributes }, &b), Error::Attribute { index: 8 });
        assert_eq!(refused(attributes, &Value::new(&[1i16, 2], &[2, 1])), Error::DType { input: 1 });
        assert_eq!(refused(attributes, &a), Error::Dimension { input: 1, axis: 2, want: 2, got: 1 });
    }
}
