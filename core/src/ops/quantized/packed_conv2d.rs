//! [`quantized_conv2d`](crate::ops::quantized_conv2d) of i8 images with a constant filter, in the form that a microcontroller computes
//! fastest. An exported artifact has it in the place of that op, with the same bits.
//!
//! Six neighbouring pixels of the result form a tile. Their windows are copied, in pairs, to the second output, which is the op's working
//! memory. A multiplication of 64 bits then adds the products of two pixels at once. Each filter is padded with zeros to a multiple of 8
//! weights. Windows are not dilated, and filters are not grouped.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d;
use crate::ops::quantized_conv2d::{AFTER_WINDOW, dims4};
use crate::ops::shared::packed::{Channel, Column, PAIRS, PIXELS, START, mac, pair};
use crate::ops::shared::quantized::{check_zero_point, limit};
use crate::ops::shared::window::{Axis, groups, part, part_mut, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::quantized::packing::{Constants, Conversion, Packed},
    ops::quantized_conv2d::{self, NO_GRADIENT},
    tensor::scope::Op,
};
use core::mem::take;
use core::slice::Iter;

/// Weights of a step of the innermost loop.
const STEP: usize = 8;

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// The window.
    pub window: conv2d::Attributes,
    /// Zero point of x.
    pub input_zero_point: i32,
    /// Smallest and largest element of the result.
    pub range: [i32; 2],
    /// Height and width of the filter.
    pub kernel: [u32; 2],
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::packed_conv2d, name: "packed_conv2d", inputs: (3, 3), outputs: 2, infer, in_place: &[] };

impl Attributes {
    /// Checks the words, and returns the geometry of the window.
    pub(in crate::ops) fn check(&self, image: [u32; 2]) -> Result<[Axis; 2]> {
        check_zero_point(self.input_zero_point, DType::I8, AFTER_WINDOW)?;
        check_range(self.range, AFTER_WINDOW + 1)?;
        if self.kernel.contains(&0) {
            return Err(Error::Attribute { index: AFTER_WINDOW as u8 + 3 });
        }
        if self.window.dilations != [1, 1] {
            return Err(Error::Attribute { index: 2 });
        }
        self.window.axes(image, self.kernel)
    }
}

/// Checks that `range`, the attribute words from `index` on, is a range of i8.
pub(in crate::ops) fn check_range(range: [i32; 2], index: usize) -> Result<()> {
    check_zero_point(range[0], DType::I8, index)?;
    check_zero_point(range[1], DType::I8, index + 1)?;
    if range[0] > range[1] { Err(Error::Attribute { index: index as u8 + 1 }) } else { Ok(()) }
}

/// Checks that input `input` has this type.
pub(in crate::ops) fn check_constant(inputs: &[TensorType], input: u8, dtype: DType, dims: &[u32]) -> Result<()> {
    let operand = inputs.get(usize::from(input)).ok_or(Error::Arity { got: inputs.len() as u8 })?;
    if operand.dtype != dtype {
        return Err(Error::DType { input });
    }
    crate::ops::shared::elementwise::same_dims(input, dims, operand.shape.dims())
}

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [n, h, w, c] = dims4(inputs, 0)?;
    let ([x, filter, ..], [y, workspace, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if x.dtype != DType::I8 {
        return Err(Error::DType { input: 0 });
    }
    let &[co, _] = filter.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    let axes = attributes.check([h, w])?;
    let ([kh, kw], [down, across]) = (attributes.kernel, axes);
    let weights = kh.checked_mul(kw).and_then(|taps| taps.checked_mul(c)).and_then(|weights| weights.checked_next_multiple_of(STEP as u32));
    let weights = weights.filter(|&weights| weights <= i32::MAX as u32 / size_of::<Column>() as u32).ok_or(Error::TooLarge)?;
    check_constant(inputs, 1, DType::I8, &[co, weights])?;
    check_constant(inputs, 2, DType::I32, &[co, Channel::WORDS as u32])?;
    let lines = lines(&axes, &attributes, c, co).ok_or(Error::TooLarge)?.div_ceil(size_of::<i32>() as u32);
    let words = (weights * PAIRS as u32).checked_add(lines).ok_or(Error::TooLarge)?;
    *y = TensorType::new(DType::I8, Shape::new(&[n, down.output as u32, across.output as u32, co])?);
    *workspace = TensorType::new(DType::I32, Shape::new(&[words])?);
    Ok(())
}

/// True if each window is one pixel, and there is a window for each pixel.
fn is_pointwise([down, across]: &[Axis; 2], attributes: &Attributes) -> bool {
    let same = |axis: &Axis, index: usize| axis.input == axis.output && attributes.window.strides[index] == 1;
    attributes.kernel == [1, 1] && same(down, 0) && same(across, 1) && down.input_at(0, 0) == 0 && across.input_at(0, 0) == 0
}

/// Bytes for the lines of padded windows, or for a tile of which only a part is written.
fn lines(axes: &[Axis; 2], attributes: &Attributes, c: u32, co: u32) -> Option<u32> {
    let windows = if is_pointwise(axes, attributes) { 0 } else { attributes.kernel[1].checked_mul(c)? };
    let cut = if axes[0].output.checked_mul(axes[1].output)?.is_multiple_of(PIXELS) { 0 } else { co };
    windows.max(cut).checked_mul(PIXELS as u32)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, filter, channels) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (&[n, h, w, c], &[co, length]) = (x.dims(), filter.dims()) else { return Err(Error::Rank { input: 0 }) };
    let axes = attributes.window.axes([h, w], attributes.kernel)?;
    let [w, c, co, length, kw] = [w, c, co, length, attributes.kernel[1]].map(|dim| dim as usize);
    let images = Images { axes, kernel: [attributes.kernel[0] as usize, kw], w, c, zero: attributes.input_zero_point as i8 };
    let pixels = axes[0].output * axes[1].output;
    let rows = call.rows(n as usize * pixels.div_ceil(PIXELS), co * (5 * length + 150) + 20 * length + 600);
    let (x, channels) = (x.slice::<i8>(), bytemuck::try_cast_slice(channels.slice::<i32>()).unwrap_or_default());
    let (filter, pointwise) = (filter.slice::<i8>().as_chunks::<STEP>().0, is_pointwise(&axes, &attributes));
    let [y, workspace] = call.outputs else { return Err(Error::Internal) };
    let (columns, lines) = workspace.slice_mut::<i32>().split_at_mut_checked(length * PAIRS).ok_or(Error::Internal)?;
    let (columns, lines) = (columns.as_chunks_mut::<PAIRS>().0, bytemuck::cast_slice_mut::<i32, i8>(lines));
    for (image, tiles) in groups(rows, pixels.div_ceil(PIXELS)) {
        let (x, y) = (part(x, image * h as usize * w * c, h as usize * w * c), part_mut(y.slice_mut(), image * pixels * co, pixels * co));
        for first in tiles.map(|tile| tile * PIXELS) {
            let y = part_mut(y, first * co, PIXELS.min(pixels - first) * co);
            if pointwise {
                copy_pixels(c, x.get(first * c..).unwrap_or_default(), columns);
            } else {
                images.copy_windows(x, first, lines, columns);
            }
            let columns = columns.as_chunks::<STEP>().0;
            if y.len() == PIXELS * co {
                tile(filter, channels, columns, y);
            } else if let Some(whole) = lines.get_mut(..PIXELS * co) {
                tile(filter, channels, columns, whole);
                y.iter_mut().zip(whole).for_each(|(y, whole)| *y = *whole);
            }
            limit(y, attributes.range);
        }
    }
    Ok(())
}

/// Copies six pixels in pairs. Those after the end repeat the last one.
fn copy_pixels(c: usize, x: &[i8], columns: &mut [Column]) {
    let mut last: &[i8] = &[];
    let mut pixels = x.chunks_exact(c.max(1));
    let runs = [0; PIXELS].map(|_| {
        last = pixels.next().unwrap_or(last);
        last
    });
    copy(columns, runs);
}

/// Copies six runs of elements in pairs.
#[inline(never)]
fn copy(columns: &mut [Column], runs: [&[i8]; PIXELS]) {
    let [a, b, c, d, e, f] = runs;
    for ((((((column, a), b), c), d), e), f) in columns.iter_mut().zip(a).zip(b).zip(c).zip(d).zip(e).zip(f) {
        *column = [pair(*a, *b), pair(*c, *d), pair(*e, *f)];
    }
}

/// Images, and the window that slides over them.
struct Images {
    axes: [Axis; 2],
    kernel: [usize; 2],
    w: usize,
    c: usize,
    zero: i8,
}

/// The first element of a window's line.
#[derive(Clone, Copy)]
struct Place {
    /// Row of the first line. It wraps if it is above the image.
    row: usize,
    /// Column. It wraps if it is left of the image.
    left: usize,
    /// Index of the element, or one that is too large if the line leaves the image.
    start: usize,
}

impl Images {
    /// Copies the windows of the results from pixel `first` on, in pairs.
    fn copy_windows(&self, x: &[i8], first: usize, lines: &mut [i8], columns: &mut [Column]) {
        let [mut a, mut b, mut c, mut d, mut e, mut f] = self.places(first);
        let [kh, kw] = self.kernel;
        for (line, columns) in columns.chunks_exact_mut((kw * self.c).max(1)).take(kh).enumerate() {
            let mut buffers = &mut *lines;
            let mut run = |place: &mut Place| self.line(x, place, line, &mut buffers);
            copy(columns, [run(&mut a), run(&mut b), run(&mut c), run(&mut d), run(&mut e), run(&mut f)]);
        }
    }

    /// Returns the places of six windows. Those after the last one repeat it.
    #[inline(never)]
    fn places(&self, first: usize) -> [Place; PIXELS] {
        let [down, across] = &self.axes;
        let (mut oh, mut ow) = split(first, across.output);
        [0; PIXELS].map(|_| {
            let (row, left) = (down.input_at(oh, 0), across.input_at(ow, 0));
            (oh, ow) = match ow + 1 {
                next if next < across.output => (oh, next),
                _ if oh + 1 < down.output => (oh + 1, 0),
                _ => (oh, ow),
            };
            let inside = self.w.checked_sub(self.kernel[1]).is_some_and(|most| left <= most);
            let start = row.wrapping_mul(self.w).wrapping_add(left).wrapping_mul(self.c);
            Place { row, left, start: if inside { start } else { usize::MAX / 2 } }
        })
    }

    /// Returns a line of a window, and moves the place to the next line. A line that leaves the image is copied to a buffer.
    #[inline(always)]
    fn line<'a: 'b, 'b>(&self, x: &'a [i8], place: &mut Place, line: usize, buffers: &mut &'b mut [i8]) -> &'b [i8] {
        let start = place.start;
        place.start = start.wrapping_add(self.w * self.c);
        match x.get(start..start.wrapping_add(self.kernel[1] * self.c)) {
            Some(run) => run,
            None => self.padded(x, place.row.wrapping_add(line), place.left, buffers),
        }
    }

    /// Copies a line of a window that leaves the image to a buffer, and returns it.
    #[inline(never)]
    fn padded<'a>(&self, x: &[i8], row: usize, left: usize, buffers: &mut &'a mut [i8]) -> &'a [i8] {
        let (line, rest) = take(buffers).split_at_mut_checked(self.kernel[1] * self.c).unwrap_or_default();
        *buffers = rest;
        for (tap, pixel) in line.chunks_exact_mut(self.c.max(1)).enumerate() {
            let column = left.wrapping_add(tap);
            let inside = row < self.axes[0].input && column < self.w;
            match x.get((row.wrapping_mul(self.w).wrapping_add(column)).wrapping_mul(self.c)..).and_then(|x| x.get(..self.c)) {
                Some(of_image) if inside => pixel.iter_mut().zip(of_image).for_each(|(to, from)| *to = *from),
                _ => pixel.fill(self.zero),
            }
        }
        line
    }
}

/// Computes all channels of six pixels.
#[inline(never)]
fn tile(filter: &[[i8; STEP]], channels: &[Channel], columns: &[[Column; STEP]], y: &mut [i8]) {
    let mut pixels = y.chunks_exact_mut(channels.len().max(1));
    let mut next = || pixels.next().unwrap_or_default().iter_mut();
    let results = next().zip(next()).zip(next().zip(next())).zip(next().zip(next()));
    let mut weights = filter.iter();
    for (channel, (((a, b), (c, d)), (e, f))) in channels.iter().zip(results) {
        let [first, second, third] = dot(columns, &mut weights);
        [*a, *b] = channel.results(first);
        [*c, *d] = channel.results(second);
        [*e, *f] = channel.results(third);
    }
}

/// Returns the sums of six pixels for one filter.
#[inline(always)]
fn dot(columns: &[[Column; STEP]], weights: &mut Iter<'_, [i8; STEP]>) -> [i64; PAIRS] {
    let mut sums = [START; PAIRS];
    for [a, b, c, d, e, f, g, h] in columns {
        let Some(w) = weights.next() else { break };
        sums = add(sums, a, w[0]);
        sums = add(sums, b, w[1]);
        sums = add(sums, c, w[2]);
        sums = add(sums, d, w[3]);
        sums = add(sums, e, w[4]);
        sums = add(sums, f, w[5]);
        sums = add(sums, g, w[6]);
        sums = add(sums, h, w[7]);
    }
    sums
}

/// Adds the products of a weight.
#[inline(always)]
fn add([a, b, c]: [i64; PAIRS], column: &Column, weight: i8) -> [i64; PAIRS] {
    [mac(a, column[0], weight), mac(b, column[1], weight), mac(c, column[2], weight)]
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "packed_conv2d(x[n,h,w,c], filter[co,kh*kw*c, padded], channels[co,4])", NO_GRADIENT);

/// Packs a convolution. A depthwise convolution of one channel is also a convolution. Returns `None` if the packed op would not have its
/// bits.
#[cfg(feature = "alloc")]
pub(crate) fn pack(of: &Constants<'_>) -> Option<Packed> {
    let attributes: quantized_conv2d::Attributes = read_attributes(of.attributes).ok()?;
    let (&[_, _, _, c], &[co, kh, kw, ci]) = (of.dims[0], of.dims[1]) else { return None };
    let (length, count) = ((kh * kw * ci) as usize, co as usize);
    if ci != c || length == 0 || of.filter.len() != length * count {
        return None;
    }
    let filters: alloc::vec::Vec<_> = of.filter.chunks_exact(length).map(|filter| filter.to_vec()).collect();
    packed(of, &attributes, [kh, kw], filters)
}

/// Packs a depthwise convolution of one channel, which is a convolution.
#[cfg(feature = "alloc")]
pub(crate) fn pack_depthwise(of: &Constants<'_>) -> Option<Packed> {
    let attributes: quantized_conv2d::Attributes = read_attributes(of.attributes).ok()?;
    let (&[_, _, _, 1], &[1, kh, kw, co]) = (of.dims[0], of.dims[1]) else { return None };
    let filter = |channel: usize| of.filter.iter().skip(channel).step_by(co as usize).copied().collect();
    packed(of, &attributes, [kh, kw], (0..co as usize).map(filter).collect())
}

/// Packs filters, each with its weights in the order of a window.
#[cfg(feature = "alloc")]
fn packed(
    of: &Constants<'_>,
    attributes: &quantized_conv2d::Attributes,
    kernel: [u32; 2],
    filters: alloc::vec::Vec<alloc::vec::Vec<i8>>,
) -> Option<Packed> {
    use alloc::vec::Vec;
    let quantized_conv2d::Attributes { window, input_zero_point, output } = *attributes;
    let conversion = Conversion { zero_points: [input_zero_point, output.zero_point], roundings: 2, most: START / 128 };
    let channel = |(index, filter): (usize, &Vec<i8>)| of.channel(index, filter.iter().copied(), &conversion);
    let channels: Vec<Channel> = filters.iter().enumerate().map(channel).collect::<Option<_>>()?;
    let length = filters.first()?.len().next_multiple_of(STEP);
    let weights: Vec<i8> = filters.iter().flat_map(|filter| filter.iter().copied().chain(core::iter::repeat(0)).take(length)).collect();
    let attributes = Attributes { window, input_zero_point, range: [output.least, output.greatest], kernel };
    let filter = crate::tensor::Tensor::new(of.device, &weights, &[filters.len() as u32, length as u32]).ok()?;
    let channels = of.words(&channels, &[channels.len(), Channel::WORDS]).ok()?;
    Some(Packed { attributes: bytemuck::cast_slice(&[attributes]).to_vec(), constants: alloc::vec![filter, channels] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv2d::tests::{cases, output};
    use crate::ops::quantized::packing::tests::same_bits;
    use crate::ops::shared::quantized::Output;
    use crate::ops::{quantized_conv2d, quantized_depthwise_conv2d};

    #[test]
    fn has_the_bits_of_quantized_conv2d() {
        let mut seen = 0;
        let large = [([1, 9, 9, 16], [1, 1, 16, 3]), ([2, 7, 8, 3], [3, 3, 3, 9]), ([1, 1, 2, 64], [1, 1, 64, 5])];
        let large = large.map(|(x, filter)| (x, filter, cases()[1].2));
        for (x, [kh, kw, c, co], window) in cases().into_iter().chain(large) {
            if output(x, [kh, kw, c, co], &window).is_none() || window.dilations != [1, 1] {
                continue;
            }
            for (input_zero_point, least, greatest) in [(-128, -128, 127), (5, -120, 99)] {
                let attributes =
                    quantized_conv2d::Attributes { window, input_zero_point, output: Output { zero_point: -7, least, greatest } };
                let kernels = [&quantized_conv2d::I8, &I8];
                seen += u32::from(same_bits(kernels, pack, attributes, [&x, &[co, kh, kw, c]], co, 127.0));
                if c == 1 {
                    let kernels = [&quantized_depthwise_conv2d::I8, &I8];
                    seen += u32::from(same_bits(kernels, pack_depthwise, attributes, [&x, &[1, kh, kw, co]], co, 127.0));
                }
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn lanes_hold_the_largest_sums() {
        let window = cases()[0].2;
        let attributes =
            quantized_conv2d::Attributes { window, input_zero_point: 127, output: Output { zero_point: 0, least: -128, greatest: 127 } };
        let kernels = [&quantized_conv2d::I8, &I8];
        assert!(same_bits(kernels, pack, attributes, [&[1, 2, 4, 500], &[2, 1, 1, 500]], 2, 127.0));
        assert!(!same_bits(kernels, pack, attributes, [&[1, 2, 4, 900], &[2, 1, 1, 900]], 2, 127.0));
    }
}
