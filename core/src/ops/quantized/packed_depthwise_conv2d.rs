//! [`quantized_depthwise_conv2d`](crate::ops::quantized_depthwise_conv2d) of i8 images with constant filters of 3×3, in the form that a
//! microcontroller computes fastest. An exported artifact has it in the place of that op, with the same bits.
//!
//! Two lines of the result are computed at once, for a block of channels. The lines of x that they need are copied to the second output,
//! which is the op's working memory: each element in a word with that for the lower line. A multiplication of 64 bits then adds the
//! products of both lines. The strides are 1 and 1, or 2 and 2.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
pub use crate::ops::packed_conv2d::Attributes;
use crate::ops::packed_conv2d::check_constant;
use crate::ops::quantized_conv2d::{AFTER_WINDOW, dims4};
use crate::ops::shared::packed::{Channel, Column, PAIRS, PIXELS, START, mac, pair};
use crate::ops::shared::quantized::limit;
use crate::ops::shared::window::{Axis, groups, part, part_mut};
#[cfg(feature = "alloc")]
use crate::{
    ops::quantized::packing::{Constants, Conversion, Packed},
    ops::quantized_conv2d::{self, NO_GRADIENT},
    tensor::scope::Op,
};
use core::mem::take;

/// Constants of a channel, and its filter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct Filter {
    channel: Channel,
    /// The weights `[3,3]`, and three bytes that are not used.
    weights: [i8; 12],
}

impl Filter {
    /// Number of words.
    const WORDS: usize = size_of::<Filter>() / size_of::<i32>();
}

/// Height and width of the filters.
const KERNEL: [u32; 2] = [3, 3];
/// Bytes that the columns of a block of channels may have.
const BLOCK: usize = 5120;

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::packed_depthwise_conv2d,
    name: "packed_depthwise_conv2d",
    inputs: (2, 2),
    outputs: 2,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [n, h, w, c] = dims4(inputs, 0)?;
    let ([x, ..], [y, workspace, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if x.dtype != DType::I8 {
        return Err(Error::DType { input: 0 });
    }
    check_constant(inputs, 1, DType::I32, &[c, Filter::WORDS as u32])?;
    let [down, across] = attributes.check([h, w])?;
    if attributes.kernel != KERNEL {
        return Err(Error::Attribute { index: AFTER_WINDOW as u8 + 3 });
    }
    if !matches!(attributes.window.strides, [1, 1] | [2, 2]) {
        return Err(Error::Attribute { index: 1 });
    }
    let sizes = Sizes::new(&across, attributes.window.strides[1] as usize, c as usize).ok_or(Error::TooLarge)?;
    let words = sizes.words().and_then(|words| u32::try_from(words).ok()).ok_or(Error::TooLarge)?;
    *y = TensorType::new(DType::I8, Shape::new(&[n, down.output as u32, across.output as u32, c])?);
    *workspace = TensorType::new(DType::I32, Shape::new(&[words])?);
    Ok(())
}

/// Sizes of the working memory.
struct Sizes {
    /// Columns of the padded image.
    columns: usize,
    /// Channels of a block.
    block: usize,
    /// Bytes of a line of x.
    line: usize,
}

impl Sizes {
    /// Returns the sizes for a window that slides along a line of `across.input` pixels.
    fn new(across: &Axis, stride: usize, c: usize) -> Option<Sizes> {
        let needed = (PAIRS * across.output.div_ceil(PAIRS)).checked_sub(1).map_or(0, |last| last * stride + KERNEL[1] as usize);
        let columns = needed.max(padding(across) + across.input);
        let blocks = c.checked_mul(columns)?.checked_mul(size_of::<Column>())?.div_ceil(BLOCK).max(1);
        Some(Sizes { columns, block: c.div_ceil(blocks), line: across.input.checked_mul(c)? })
    }

    /// Returns the number of words: the columns of a block, a line of padding, and pixels after the end of a line.
    fn words(&self) -> Option<usize> {
        let bytes = self.line.checked_add(PIXELS * self.block)?;
        (self.columns.checked_mul(self.block)?.checked_mul(PAIRS)?).checked_add(bytes.div_ceil(size_of::<i32>()))
    }
}

/// Columns of padding at the left.
fn padding(across: &Axis) -> usize {
    across.input_at(0, 0).wrapping_neg()
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let stride = attributes.window.strides[0] as usize;
    let (x, filters) = (call.input(0)?, call.input(1)?);
    let &[n, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.window.axes([h, w], KERNEL)?;
    let [n, h, w, c] = [n, h, w, c].map(|dim| dim as usize);
    let (pairs, line) = (down.output.div_ceil(2), across.output * c);
    let rows = call.rows(n * pairs, c * (across.output * 55 + w * 14) + 500);
    let lines = Lines {
        down,
        across,
        w,
        c,
        sizes: Sizes::new(&across, stride, c).ok_or(Error::TooLarge)?,
        zero: attributes.input_zero_point as i8,
    };
    let (x, filters) = (x.slice::<i8>(), bytemuck::try_cast_slice(filters.slice::<i32>()).unwrap_or_default());
    let [y, workspace] = call.outputs else { return Err(Error::Internal) };
    let (columns, rest) =
        workspace.slice_mut::<i32>().split_at_mut_checked(lines.sizes.columns * lines.sizes.block * PAIRS).ok_or(Error::Internal)?;
    let (columns, rest) = (columns.as_chunks_mut::<PAIRS>().0, bytemuck::cast_slice_mut::<i32, i8>(rest));
    let (outside, spare) = rest.split_at_mut_checked(lines.sizes.line).ok_or(Error::Internal)?;
    outside.fill(lines.zero);
    for (image, pairs_of_image) in groups(rows, pairs) {
        let (x, y) = (part(x, image * h * w * c, h * w * c), part_mut(y.slice_mut(), image * down.output * line, down.output * line));
        for oh in pairs_of_image.map(|pair| 2 * pair) {
            let y = part_mut(y, oh * line, 2.min(down.output - oh) * line);
            let rows = lines.rows(x, outside, oh);
            lines.compute(rows, filters, stride, columns, spare, y);
            limit(y, attributes.range);
        }
    }
    Ok(())
}

/// The lines of images, and the window that slides over them.
struct Lines {
    down: Axis,
    across: Axis,
    w: usize,
    c: usize,
    sizes: Sizes,
    zero: i8,
}

impl Lines {
    /// Returns the lines of x that the lines `oh` and `oh + 1` of the result need.
    fn rows<'a>(&self, x: &'a [i8], outside: &'a [i8], oh: usize) -> [&'a [i8]; 5] {
        let first = self.down.input_at(oh, 0);
        [0, 1, 2, 3, 4].map(|row| {
            let row = first.wrapping_add(row);
            if row < self.down.input { part(x, row * self.sizes.line, self.sizes.line) } else { outside }
        })
    }

    /// Computes two lines of the result, or the last one.
    fn compute(&self, rows: [&[i8]; 5], filters: &[Filter], stride: usize, columns: &mut [Column], spare: &mut [i8], y: &mut [i8]) {
        let (upper, lower) = y.split_at_mut((self.across.output * self.c).min(y.len()));
        for first in (0..self.c).step_by(self.sizes.block.max(1)) {
            let last = (first + self.sizes.block).min(self.c);
            let Some(filters) = filters.get(first..last) else { return };
            let count = last - first;
            let Some((before, rest)) = columns.split_at_mut_checked(padding(&self.across) * count) else { return };
            let Some((inner, after)) = rest.split_at_mut_checked(self.w * count) else { return };
            before.fill([pair(self.zero, self.zero); PAIRS]);
            after.fill([pair(self.zero, self.zero); PAIRS]);
            match stride {
                1 => copy::<1>(inner, rows, first, count, self.c),
                _ => copy::<2>(inner, rows, first, count, self.c),
            }
            let (mut upper, mut lower, mut columns) = (&mut *upper, &mut *lower, &*columns);
            while !upper.is_empty() {
                let mut spare = &mut *spare;
                let mut next = |row: &mut _| pixel(row, &mut spare, [first, last, self.c]);
                let (a, b, c) = (next(&mut upper), next(&mut upper), next(&mut upper));
                let (d, e, f) = (next(&mut lower), next(&mut lower), next(&mut lower));
                match stride {
                    1 => tile::<1>(columns, filters, [[a, d], [b, e], [c, f]]),
                    _ => tile::<2>(columns, filters, [[a, d], [b, e], [c, f]]),
                }
                columns = columns.get(PAIRS * stride * count..).unwrap_or_default();
            }
        }
    }
}

/// Takes a pixel from a line, and returns its channels from `first` to before `last`. After the end of the line, it is a spare one.
#[inline(always)]
fn pixel<'a: 'b, 'b>(line: &mut &'a mut [i8], spare: &mut &'b mut [i8], [first, last, c]: [usize; 3]) -> &'b mut [i8] {
    if let Some((pixel, rest)) = take(line).split_at_mut_checked(c) {
        *line = rest;
        return pixel.get_mut(first..last).unwrap_or_default();
    }
    let (pixel, rest) = take(spare).split_at_mut_checked(last - first).unwrap_or_default();
    *spare = rest;
    pixel
}

/// Copies `count` channels from `first` on, in pairs.
#[inline(never)]
fn copy<const STRIDE: usize>(columns: &mut [Column], [a, b, c, d, e]: [&[i8]; 5], first: usize, count: usize, channels: usize) {
    // All channels of a line are one run.
    let run = if count == channels { a.len() } else { count };
    for (column, columns) in columns.chunks_exact_mut(run.max(1)).enumerate() {
        let from = column * channels + first;
        let Some(a) = a.get(from..from + run) else { return };
        let (Some(b), Some(c), Some(d), Some(e)) = (b.get(from..), c.get(from..), d.get(from..), e.get(from..)) else { return };
        copy_run::<STRIDE>(columns, a, [b, c, d, e]);
    }
}

#[inline(always)]
fn copy_run<const STRIDE: usize>(columns: &mut [Column], a: &[i8], [b, c, d, e]: [&[i8]; 4]) {
    if STRIDE == 1 {
        for ((((column, a), b), c), d) in columns.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *column = [pair(*a, *b), pair(*b, *c), pair(*c, *d)];
        }
    } else {
        for (((((column, a), b), c), d), e) in columns.iter_mut().zip(a).zip(b).zip(c).zip(d).zip(e) {
            *column = [pair(*a, *c), pair(*b, *d), pair(*c, *e)];
        }
    }
}

/// Computes six pixels of each channel of a block: three of both lines.
#[inline(never)]
fn tile<const STRIDE: usize>(columns: &[Column], filters: &[Filter], [[a, b], [c, d], [e, f]]: [[&mut [i8]; 2]; PAIRS]) {
    let results = a.iter_mut().zip(b).zip(c.iter_mut().zip(d)).zip(e.iter_mut().zip(f));
    let column = |column: usize| columns.get(column * filters.len()..).unwrap_or_default();
    let columns = column(0).iter().zip(column(1)).zip(column(2).iter().zip(column(3))).zip(column(4));
    if STRIDE == 1 {
        for (((((p, q), (r, s)), t), Filter { channel, weights: w }), results) in columns.zip(filters).zip(results) {
            let (((a, b), (c, d)), (e, f)) = results;
            let mut sums = [START; PAIRS];
            sums = row(sums, [p[0], q[0], r[0], s[0], t[0]], [w[0], w[1], w[2]]);
            sums = row(sums, [p[1], q[1], r[1], s[1], t[1]], [w[3], w[4], w[5]]);
            sums = row(sums, [p[2], q[2], r[2], s[2], t[2]], [w[6], w[7], w[8]]);
            [[*a, *b], [*c, *d], [*e, *f]] = channel.all(sums);
        }
    } else {
        let more = column(5).iter().zip(column(6));
        for ((((((p, q), (r, s)), t), (u, v)), Filter { channel, weights: w }), results) in columns.zip(more).zip(filters).zip(results) {
            let (((a, b), (c, d)), (e, f)) = results;
            let mut sums = [START; PAIRS];
            sums = row2(sums, [p[0], q[0], r[0], s[0], t[0], u[0], v[0]], [w[0], w[1], w[2]]);
            sums = row2(sums, [p[1], q[1], r[1], s[1], t[1], u[1], v[1]], [w[3], w[4], w[5]]);
            sums = row2(sums, [p[2], q[2], r[2], s[2], t[2], u[2], v[2]], [w[6], w[7], w[8]]);
            [[*a, *b], [*c, *d], [*e, *f]] = channel.all(sums);
        }
    }
}

/// Adds the products of a line of the filter for three neighbouring pixels.
#[inline(always)]
fn row([a, b, c]: [i64; PAIRS], x: [i32; 5], w: [i8; 3]) -> [i64; PAIRS] {
    let a = mac(a, x[0], w[0]);
    let (a, b) = (mac(a, x[1], w[1]), mac(b, x[1], w[0]));
    let (a, b, c) = (mac(a, x[2], w[2]), mac(b, x[2], w[1]), mac(c, x[2], w[0]));
    let (b, c) = (mac(b, x[3], w[2]), mac(c, x[3], w[1]));
    [a, b, mac(c, x[4], w[2])]
}

/// Version of [`row`] for stride 2.
#[inline(always)]
fn row2([a, b, c]: [i64; PAIRS], x: [i32; 7], w: [i8; 3]) -> [i64; PAIRS] {
    let a = mac(mac(a, x[0], w[0]), x[1], w[1]);
    let (a, b) = (mac(a, x[2], w[2]), mac(b, x[2], w[0]));
    let b = mac(b, x[3], w[1]);
    let (b, c) = (mac(b, x[4], w[2]), mac(c, x[4], w[0]));
    let c = mac(c, x[5], w[1]);
    [a, b, mac(c, x[6], w[2])]
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "packed_depthwise_conv2d(x[n,h,w,c], filters[c,7])", NO_GRADIENT);

/// Packs a depthwise convolution. Returns `None` if the packed op would not have its bits.
#[cfg(feature = "alloc")]
pub(crate) fn pack(of: &Constants<'_>) -> Option<Packed> {
    let quantized_conv2d::Attributes { window, input_zero_point, output } = read_attributes(of.attributes).ok()?;
    let (&[_, _, _, c], &[1, kh, kw, co]) = (of.dims[0], of.dims[1]) else { return None };
    if c != co || [kh, kw] != KERNEL {
        return None;
    }
    let conversion = Conversion { zero_points: [input_zero_point, output.zero_point], roundings: 2, most: START / 128 };
    let filter = |channel: usize| {
        let mut filter = Filter::default();
        let of_channel = || of.filter.iter().skip(channel).step_by(c as usize).copied();
        filter.weights.iter_mut().zip(of_channel()).for_each(|(weight, of)| *weight = of);
        filter.channel = of.channel(channel, of_channel(), &conversion)?;
        Some(filter)
    };
    let filters = (0..c as usize).map(filter).collect::<Option<alloc::vec::Vec<Filter>>>()?;
    let attributes = Attributes { window, input_zero_point, range: [output.least, output.greatest], kernel: KERNEL };
    let constants = alloc::vec![of.words(&filters, &[filters.len(), Filter::WORDS]).ok()?];
    Some(Packed { attributes: bytemuck::cast_slice(&[attributes]).to_vec(), constants })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv2d::tests::{cases, output};
    use crate::ops::quantized::packing::tests::same_bits;
    use crate::ops::quantized_depthwise_conv2d;
    use crate::ops::shared::quantized::Output;

    #[test]
    fn has_the_bits_of_quantized_depthwise_conv2d() {
        let mut seen = 0;
        let images = [[1, 5, 5, 1], [2, 8, 7, 5], [1, 3, 20, 40], [1, 9, 3, 130], [1, 1, 1, 4], [3, 4, 4, 8], [0, 4, 4, 2]];
        for (x, (.., window)) in images.into_iter().flat_map(|x| cases().into_iter().map(move |case| (x, case))) {
            let c = x[3];
            if output(x, [3, 3, c, c], &window).is_none() || window.dilations != [1, 1] || !matches!(window.strides, [1, 1] | [2, 2]) {
                continue;
            }
            for (input_zero_point, least, greatest) in [(-128, -128, 127), (5, -120, 99)] {
                let attributes =
                    quantized_conv2d::Attributes { window, input_zero_point, output: Output { zero_point: 9, least, greatest } };
                let kernels = [&quantized_depthwise_conv2d::I8, &I8];
                seen += u32::from(same_bits(kernels, pack, attributes, [&x, &[1, 3, 3, c]], c, 127.0));
            }
        }
        assert!(seen > 300, "{seen}");
    }
}
