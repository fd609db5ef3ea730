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
use crate::ops::shared::broadcast::position;
use crate::ops::shared::elementwise::set;
use crate::ops::shared::fixed_point::{Multiplier, SmallMultiplier};
use crate::ops::shared::packed::{START, lanes, mac};
use crate::ops::shared::quantized::{Output, Quantized, Sum, limit};
use crate::ops::shared::window::{groups, part, part_mut};
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

/// Rows and columns of a tile.
const TILE: [usize; 2] = [2, 8];
/// Number of products that a lane adds. A lane has room for 128 products of a difference of two bytes and a byte. Fewer take less stack.
const MOST: usize = 64;

/// Two rows of a, and a matrix b.
struct Operands<'a> {
    rows: [&'a [i8]; TILE[0]],
    /// Zero point of a.
    zero_point: i32,
    b: &'a [i8],
    /// Dimensions of b. If it is transposed, `n` is the first.
    k: usize,
    n: usize,
    transposed: bool,
}

impl Operands<'_> {
    /// Returns the sums of each row with the columns of b from column `first` on. Sums after the last column have no meaning. `pairs` is
    /// working memory for pairs of elements of both rows. If `paired` is true, it holds the first pairs already.
    #[inline(never)]
    fn tile(&self, first: usize, pairs: &mut [i32; MOST], paired: bool) -> [[i32; TILE[1]]; TILE[0]] {
        let (mut sums, [x, y]) = ([[0i32; TILE[1]]; TILE[0]], self.rows);
        for (index, (x, y)) in x.chunks(MOST).zip(y.chunks(MOST)).enumerate() {
            if index > 0 || !paired {
                for ((pair, x), y) in pairs.iter_mut().zip(x).zip(y) {
                    *pair = (i32::from(*x) - self.zero_point) + ((i32::from(*y) - self.zero_point) << 23);
                }
            }
            let (pairs, start) = (pairs.get(..x.len()).unwrap_or_default(), index * MOST);
            let mut pair_sums = [START; TILE[1]];
            if self.transposed {
                for (at, lanes) in pair_sums.as_chunks_mut().0.iter_mut().enumerate() {
                    let column = |at: usize| part(self.b, (first + at).min(self.n - 1) * self.k + start, x.len());
                    *lanes = two(pairs, [column(2 * at), column(2 * at + 1)]);
                }
            } else {
                for (at, lanes) in pair_sums.as_chunks_mut().0.iter_mut().enumerate() {
                    *lanes = self.four(pairs, start, first + 4 * at);
                }
            }
            let [low, high] = &mut sums;
            for ((low, high), sums) in low.iter_mut().zip(high).zip(pair_sums) {
                let [first, second] = lanes(sums);
                (*low, *high) = (low.wrapping_add(first), high.wrapping_add(second));
            }
        }
        sums
    }

    /// Returns the sums of four columns of b, from its row `start` on.
    #[inline(never)]
    fn four(&self, pairs: &[i32], start: usize, first: usize) -> [i64; 4] {
        let mut sums = [START; 4];
        let rows = self.b.get(start * self.n..).unwrap_or_default().chunks_exact(self.n.max(1));
        if first + 4 > self.n {
            for (pair, row) in pairs.iter().zip(rows) {
                sums.iter_mut().zip(row.iter().skip(first)).for_each(|(sum, b)| *sum = mac(*sum, *pair, *b));
            }
            return sums;
        }
        let [mut a, mut b, mut c, mut d] = sums;
        for (pair, row) in pairs.iter().zip(rows) {
            let Some((_, row)) = row.split_at_checked(first) else { break };
            let Some(&[p, q, r, s]) = row.first_chunk() else { break };
            (a, b, c, d) = (mac(a, *pair, p), mac(b, *pair, q), mac(c, *pair, r), mac(d, *pair, s));
        }
        [a, b, c, d]
    }
}

/// Returns the sums of two columns.
#[inline(never)]
fn two(pairs: &[i32], [p, q]: [&[i8]; 2]) -> [i64; 2] {
    let mut sums = [START; 2];
    let ((pairs, rest), (p, p_rest), (q, q_rest)) = (pairs.as_chunks::<4>(), p.as_chunks::<4>(), q.as_chunks::<4>());
    for ((pair, p), q) in pairs.iter().zip(p).zip(q) {
        sums = [mac(sums[0], pair[0], p[0]), mac(sums[1], pair[0], q[0])];
        sums = [mac(sums[0], pair[1], p[1]), mac(sums[1], pair[1], q[1])];
        sums = [mac(sums[0], pair[2], p[2]), mac(sums[1], pair[2], q[2])];
        sums = [mac(sums[0], pair[3], p[3]), mac(sums[1], pair[3], q[3])];
    }
    for ((pair, p), q) in rest.iter().zip(p_rest).zip(q_rest) {
        sums = [mac(sums[0], *pair, *p), mac(sums[1], *pair, *q)];
    }
    sums
}

/// Computes tiles of the result. A multiplication of 64 bits adds two products: those of an element of b, and of one of each row of a.
fn run_i8(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, multiplier, transposed } = call.attributes()?;
    if transposed[0] != 0 {
        return run::<i8, i32>(call);
    }
    let (a, b, y) = (call.input(0)?, call.input(1)?, call.output()?);
    let ([a_batch @ .., _, k], [b_batch @ .., _, _], [batch @ .., m, n]) = (a.dims(), b.dims(), y.dims()) else {
        return Err(Error::Rank { input: 0 });
    };
    let (m, n, k) = (*m as usize, *n as usize, *k as usize);
    let (down, across) = (m.div_ceil(TILE[0]), n.div_ceil(TILE[1]));
    let scaled = SmallMultiplier::new(multiplier, 0, 30).plus(output.zero_point);
    // Each product has at most 16 bits.
    let exact = scaled.is_exact() && k < 1 << 14;
    let products = y.data.len().checked_div(m.wrapping_mul(n)).unwrap_or(0);
    let tiles = call.rows(products * down * across, k.saturating_mul(9 * TILE[1]).saturating_add(130 * TILE[1]));
    let (a, b, y) = (a.slice::<i8>(), b.slice::<i8>(), call.output()?.slice_mut::<i8>());
    let mut pairs = [0; MOST];
    for (line, columns) in groups(tiles, across) {
        let (index, i) = (line / down.max(1), line % down.max(1) * TILE[0]);
        let count = TILE[0].min(m - i);
        let a = part(a, (position(index, batch, a_batch) * m + i) * k, count * k);
        // The last row, if it is alone, is in both places.
        let rows = [part(a, 0, k), part(a, (count - 1) * k, k)];
        let starts = rows.map(|row| {
            let sum = row.iter().fold(0i32, |sum, x| sum.wrapping_add(i32::from(*x) - zero_points[0]));
            sum.wrapping_mul(-zero_points[1])
        });
        let b = part(b, position(index, batch, b_batch) * k * n, k * n);
        let operands = Operands { rows, zero_point: zero_points[0], b, k, n, transposed: transposed[1] != 0 };
        let (y, next) = part_mut(y, (index * m + i) * n, count * n).split_at_mut_checked(n).unwrap_or_default();
        let range = columns.start * TILE[1]..n.min(columns.end * TILE[1]);
        for (index, first) in columns.map(|tile| tile * TILE[1]).enumerate() {
            let sums = operands.tile(first, &mut pairs, index > 0 && k <= MOST);
            for ((sums, start), row) in sums.iter().zip(starts).zip([&mut *y, &mut *next]) {
                let row = row.get_mut(first..).unwrap_or_default();
                for (y, sum) in row.iter_mut().zip(sums) {
                    let sum = start.wrapping_add(*sum);
                    *y = i8::saturated(if exact { scaled.of(sum) } else { multiplier.twice(sum).wrapping_add(output.zero_point) });
                }
            }
        }
        for y in [y, next] {
            limit(y.get_mut(range.clone()).unwrap_or_default(), [output.least, output.greatest]);
        }
    }
    Ok(())
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run: run_i8 };
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
        for (m, k, n) in [(1, 1, 1), (3, 7, 5), (2, 40, 19), (4, 5, 8), (5, 129, 18), (2, 64, 9), (0, 3, 2), (2, 0, 3), (1, 3, 0)] {
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
    fn extreme_elements_have_exact_sums() {
        let output = Output { zero_point: 0, least: -128, greatest: 127 };
        for (zero_point, element) in [(127, -128i8), (-128, 127)] {
            for (b_zero_point, other) in [(127, -128i8), (-128, 127), (0, -128), (-128, -128)] {
                for k in [63u32, 64, 65, 300, 20_000] {
                    let multiplier = Multiplier { value: 1 << 30, exponent: -24 };
                    let attributes = Attributes { zero_points: [zero_point, b_zero_point], output, multiplier, transposed: [0, 1] };
                    let (a, b) = (std::vec![element; 3 * k as usize], std::vec![other; 5 * k as usize]);
                    let y = run_every_way(&I8, &words(attributes), &[&Value::new(&a, &[3, k]), &Value::new(&b, &[5, k])]);
                    let sum = (i64::from(element) - i64::from(zero_point)) * (i64::from(other) - i64::from(b_zero_point)) * i64::from(k);
                    let want = output.element::<i8>(multiplier.twice(sum as i32));
                    assert_eq!(y[0].elements::<i8>(), std::vec![want; 15], "{zero_point} {b_zero_point} {k}");
                }
            }
        }
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
