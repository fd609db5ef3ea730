//! [`quantized_dense`](crate::ops::quantized_dense) of i8 tensors with a constant filter, in the form that a microcontroller computes
//! fastest. An exported artifact has it in the place of that op, with the same bits.
//!
//! A word has the weights of four filters for one element of x. A multiplication of 64 bits adds the products of two of them. In each pair,
//! 128 is added to one of the weights, so that it needs no sign; the kernel takes the surplus off again.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::packed_conv2d::{check_constant, check_range};
use crate::ops::shared::packed::Channel;
use crate::ops::shared::quantized::limit;
use crate::ops::shared::window::{groups, part, part_mut};
#[cfg(feature = "alloc")]
use crate::{
    ops::quantized::packing::{Constants, Conversion, Packed},
    ops::quantized_conv2d::{self, NO_GRADIENT},
    ops::quantized_dense,
    ops::shared::{quantized::Output, window::Axis},
    tensor::scope::Op,
};
use core::mem::take;

/// Filters of a word.
const FILTERS: usize = 4;
/// Largest number of products whose sum fits into a lane of 24 bits.
const MOST: usize = 256;
/// Elements of a step of the innermost loop.
const STEP: usize = 32;
/// Largest number of pixels of a convolution that is faster as a dense layer: [`packed_conv2d`](crate::ops::packed_conv2d) computes six
/// pixels in the time of one.
#[cfg(feature = "alloc")]
const PIXELS: u32 = 3;
/// Smallest number of products of such a convolution. For fewer, the gain does not justify the flash of one more kernel.
#[cfg(feature = "alloc")]
const PRODUCTS: u32 = 2048;

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Number of filters.
    pub filters: u32,
    /// Number of roundings: 1 or 2.
    pub roundings: u32,
    /// Smallest and largest element of the result.
    pub range: [i32; 2],
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::packed_dense, name: "packed_dense", inputs: (3, 3), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let ([x, ..], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if x.dtype != DType::I8 {
        return Err(Error::DType { input: 0 });
    }
    if !matches!(attributes.roundings, 1 | 2) {
        return Err(Error::Attribute { index: 1 });
    }
    check_range(attributes.range, 2)?;
    let mut shape = x.shape;
    let last = shape.dims_mut().last_mut().ok_or(Error::Rank { input: 0 })?;
    let words = attributes.filters.div_ceil(FILTERS as u32);
    check_constant(inputs, 1, DType::I32, &[words, *last])?;
    check_constant(inputs, 2, DType::I32, &[words, (FILTERS * Channel::WORDS) as u32])?;
    *last = attributes.filters;
    *output = TensorType::new(DType::I8, Shape::new(shape.dims())?);
    Ok(())
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { filters, roundings, range } = call.attributes()?;
    let (x, filter, channels) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (words, k, n) = (filter.dim(0), filter.dim(1), filters as usize);
    let lines = call.output()?.data.len().checked_div(n).unwrap_or(0);
    let rows = call.rows(lines * words, 5 * k + 150);
    let (x, filter) = (x.slice::<i8>(), filter.slice::<i32>());
    let channels: &[[Channel; FILTERS]] = bytemuck::try_cast_slice(channels.slice::<i32>()).unwrap_or_default();
    let y = call.output()?.slice_mut::<i8>();
    for (line, words) in groups(rows, words) {
        let (x, first) = (part(x, line * k, k), words.start * FILTERS);
        let y = part_mut(y, line * n + first, n.min(words.end * FILTERS) - first);
        let (filter, channels) = (filter.get(words.start * k..).unwrap_or_default(), channels.get(words).unwrap_or_default());
        dense(x, filter, channels, roundings == 1, y);
        limit(y, range);
    }
    Ok(())
}

/// Computes a line of the result, or a part of one.
fn dense(x: &[i8], mut filter: &[i32], channels: &[[Channel; FILTERS]], once: bool, mut y: &mut [i8]) {
    // The weights to which 128 was added add this.
    let surplus = x.iter().fold(0i32, |sum, x| sum.wrapping_add(i32::from(*x))).wrapping_mul(128);
    for channels in channels {
        let Some((weights, rest)) = filter.split_at_checked(x.len()) else { return };
        filter = rest;
        let results = four(x, weights, surplus, channels, once);
        let count = FILTERS.min(y.len());
        let (own, rest) = take(&mut y).split_at_mut_checked(count).unwrap_or_default();
        match own.first_chunk_mut() {
            Some(own) => *own = results,
            None => own.iter_mut().zip(results).for_each(|(y, result)| *y = result),
        }
        y = rest;
    }
}

/// Returns the results of four filters.
#[inline(never)]
fn four(mut x: &[i8], mut weights: &[i32], surplus: i32, channels: &[Channel; FILTERS], once: bool) -> [i8; FILTERS] {
    let (mut a, mut b, mut c, mut d) = (surplus.wrapping_neg(), 0i32, surplus.wrapping_neg(), 0i32);
    loop {
        let (chunk, rest) = x.split_at_checked(MOST).unwrap_or((x, &[]));
        let [first, second] = dot(chunk, weights);
        let low = |sums: i64| (sums as i32 & 0xff_ffff) - (1 << 23);
        (a, b) = (a.wrapping_add(low(first)), b.wrapping_add((first >> 24) as i32));
        (c, d) = (c.wrapping_add(low(second)), d.wrapping_add((second >> 24) as i32));
        if rest.is_empty() {
            break;
        }
        (x, weights) = (rest, weights.get(MOST..).unwrap_or_default());
    }
    let result = |channel: &Channel, sum| if once { channel.once(sum) } else { channel.twice(sum) };
    let [p, q, r, s] = channels;
    [result(p, a), result(q, b), result(r, c), result(s, d)]
}

/// Returns the sums of two pairs of filters. They begin with the half of a lane, which makes the lower lane positive.
#[inline(always)]
fn dot(x: &[i8], weights: &[i32]) -> [i64; 2] {
    let mut sums = [1 << 23, 1 << 23];
    let ((x, x_rest), (words, rest)) = (x.as_chunks::<STEP>(), weights.as_chunks::<STEP>());
    let mut words = words.iter();
    for x in x {
        let Some(w) = words.next() else { break };
        sums = add(sums, [x[0], x[1]], [w[0], w[1]]);
        sums = add(sums, [x[2], x[3]], [w[2], w[3]]);
        sums = add(sums, [x[4], x[5]], [w[4], w[5]]);
        sums = add(sums, [x[6], x[7]], [w[6], w[7]]);
        sums = add(sums, [x[8], x[9]], [w[8], w[9]]);
        sums = add(sums, [x[10], x[11]], [w[10], w[11]]);
        sums = add(sums, [x[12], x[13]], [w[12], w[13]]);
        sums = add(sums, [x[14], x[15]], [w[14], w[15]]);
        sums = add(sums, [x[16], x[17]], [w[16], w[17]]);
        sums = add(sums, [x[18], x[19]], [w[18], w[19]]);
        sums = add(sums, [x[20], x[21]], [w[20], w[21]]);
        sums = add(sums, [x[22], x[23]], [w[22], w[23]]);
        sums = add(sums, [x[24], x[25]], [w[24], w[25]]);
        sums = add(sums, [x[26], x[27]], [w[26], w[27]]);
        sums = add(sums, [x[28], x[29]], [w[28], w[29]]);
        sums = add(sums, [x[30], x[31]], [w[30], w[31]]);
    }
    x_rest.iter().zip(rest).fold(sums, |sums, (x, w)| add(sums, [*x, 0], [*w, 0]))
}

/// Adds the products of two elements with four weights each.
#[inline(always)]
fn add([a, b]: [i64; 2], [x, y]: [i8; 2], [v, w]: [i32; 2]) -> [i64; 2] {
    let pair = |w: i32| i64::from(w & 0xff00_00ffu32 as i32);
    let (x, y) = (i64::from(x), i64::from(y));
    let (a, b) = (a.wrapping_add(pair(v) * x), b.wrapping_add(pair(v.rotate_right(16)) * x));
    [a.wrapping_add(pair(w) * y), b.wrapping_add(pair(w.rotate_right(16)) * y)]
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "packed_dense(x[..,k], filter[n/4,k], channels[n/4,16])", NO_GRADIENT);

/// Packs a dense layer. Returns `None` if the packed op would not have its bits.
#[cfg(feature = "alloc")]
pub(crate) fn pack(of: &Constants<'_>) -> Option<Packed> {
    let quantized_dense::Attributes { input_zero_point, roundings, output } = read_attributes(of.attributes).ok()?;
    let &[filters, length] = of.dims[1] else { return None };
    packed(of, [filters, length], input_zero_point, roundings, &output)
}

/// Packs a large convolution of at most [`PIXELS`] pixels, each with its own result, which is a dense layer. A step of a streaming model
/// has such convolutions. Returns `None` if the packed op would not have its bits.
#[cfg(feature = "alloc")]
pub(crate) fn pack_pixels(of: &Constants<'_>) -> Option<Packed> {
    let quantized_conv2d::Attributes { window, input_zero_point, output } = read_attributes(of.attributes).ok()?;
    let (&[n, h, w, c], &[co, 1, 1, ci]) = (of.dims[0], of.dims[1]) else { return None };
    let pixels = n.checked_mul(h)?.checked_mul(w)?;
    let products = pixels.saturating_mul(c).saturating_mul(co);
    if ci != c || pixels > PIXELS || products < PRODUCTS || !window.axes([h, w], [1, 1]).ok()?.iter().zip(window.strides).all(is_each) {
        return None;
    }
    packed(of, [co, c], input_zero_point, 2, &output)
}

/// True if a window of one pixel meets each pixel of an axis.
#[cfg(feature = "alloc")]
fn is_each((axis, stride): (&Axis, u32)) -> bool {
    axis.input == axis.output && stride == 1 && axis.input_at(0, 0) == 0
}

/// Packs `filters` filters of `length` weights.
#[cfg(feature = "alloc")]
fn packed(of: &Constants<'_>, dims: [u32; 2], input_zero_point: i32, roundings: u32, output: &Output) -> Option<Packed> {
    use alloc::vec::Vec;
    let [filters, length] = dims.map(|dim| dim as usize);
    let row = |filter: usize| part(of.filter, filter * length, length);
    // Each lane adds at most `MOST` products.
    let conversion = Conversion { zero_points: [input_zero_point, output.zero_point], roundings, most: i64::MAX };
    let channel = |filter: usize| of.channel(filter, row(filter).iter().copied(), &conversion);
    let mut channels = (0..filters).map(channel).collect::<Option<Vec<Channel>>>()?;
    channels.resize(filters.next_multiple_of(FILTERS), Channel { shift: 1, ..Channel::default() });
    let weight = |filter: usize, at: usize| row(filter).get(at).map_or(0, |weight| *weight as u8);
    let word = |first: usize, at: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|filter| weight(first + filter, at));
        i32::from_le_bytes([a ^ 128, d, c ^ 128, b])
    };
    let words: Vec<i32> = (0..filters).step_by(FILTERS).flat_map(|first| (0..length).map(move |at| word(first, at))).collect();
    let attributes = Attributes { filters: dims[0], roundings, range: [output.least, output.greatest] };
    let groups = filters.div_ceil(FILTERS);
    let constants = alloc::vec![of.words(&words, &[groups, length]).ok()?, of.words(&channels, &[groups, FILTERS * Channel::WORDS]).ok()?];
    Some(Packed { attributes: bytemuck::cast_slice(&[attributes]).to_vec(), constants })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv2d::tests::cases;
    use crate::ops::quantized::packing::tests::same_bits;

    #[test]
    fn has_the_bits_of_quantized_dense() {
        for (lines, k, n) in [(1, 1, 1), (3, 7, 5), (2, 40, 9), (1, 640, 6), (2, 256, 4), (1, 257, 8), (0, 3, 2), (2, 0, 3), (1, 3, 0)] {
            for (roundings, least, greatest) in [(1, -128, 127), (2, -128, 127), (1, -3, 90)] {
                let output = Output { zero_point: 4, least, greatest };
                let attributes = quantized_dense::Attributes { input_zero_point: -128, roundings, output };
                let packed = same_bits([&quantized_dense::I8, &I8], pack, attributes, [&[lines, k], &[n, k]], n, 128.0);
                assert!(packed, "{lines} {k} {n}");
            }
        }
    }

    #[test]
    fn has_the_bits_of_quantized_conv2d() {
        let window = cases()[1].2;
        let output = Output { zero_point: -7, least: -100, greatest: 127 };
        let attributes = quantized_conv2d::Attributes { window, input_zero_point: -128, output };
        let kernels = [&quantized_conv2d::I8, &I8];
        for (x, co) in [([1, 1, 1, 40], 53), ([1, 3, 1, 7], 98), ([1, 1, 2, 300], 5), ([3, 1, 1, 1], 683)] {
            assert!(same_bits(kernels, pack_pixels, attributes, [&x, &[co, 1, 1, x[3]]], co, 128.0), "{x:?}");
        }
        for (x, filter) in [([1, 2, 2, 8], [99, 1, 1, 8]), ([1, 1, 2, 8], [999, 1, 2, 8]), ([1, 1, 1, 512], [2, 1, 1, 512])] {
            assert!(!same_bits(kernels, pack_pixels, attributes, [&x, &filter], filter[0], 128.0), "{x:?}");
        }
        let window = crate::ops::conv2d::Attributes { strides: [1, 2], ..window };
        let attributes = quantized_conv2d::Attributes { window, ..attributes };
        assert!(!same_bits(kernels, pack_pixels, attributes, [&[1, 1, 3, 8], &[99, 1, 1, 8]], 99, 128.0));
    }
}
