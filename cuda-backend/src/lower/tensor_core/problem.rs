//! Products and convolutions as the kernels on tensor cores see them: `Problem` in `kernels/tensor_core.cuh`.

use crate::lower::Job;
use crate::lower::conv::Convolution;
use crate::lower::linalg::Shapes;
use crate::lower::window::Axis;
use gradlet_core::custom_op::read_attributes;
use gradlet_core::ops::{code, conv2d_filter_grad, conv2d_input_grad};
use gradlet_core::tensor::MAX_RANK;
use gradlet_core::{Error, Result};

/// Bytes of a chunk, which the kernels copy at once.
const CHUNK: u32 = 16;
/// Bytes of each line that a stage of the pipeline has.
const DEPTH: u32 = 64;
/// Bounds for the kernels for aligned operands: rows and columns of images, and bytes of an operand.
const SMALL: (u64, usize) = (1 << 14, 1 << 34);
/// Number of rows and of columns of the smallest tiles.
const SMALLEST: u32 = 64;
/// Bound of the numbers of lines, elements of a sum and blocks.
const MOST: u64 = 1 << 30;

/// How a window slides along one axis of the images. The fields are those of `Slide` in the kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slide {
    input: u32,
    stride: u32,
    dilation: i32,
    origin: i32,
    /// Numbers of taps and of positions.
    taps: u32,
    positions: u32,
}

impl Slide {
    /// A window of one tap on an image of one pixel.
    const POINT: Slide = Slide { input: 1, stride: 1, dilation: 1, origin: 0, taps: 1, positions: 1 };

    fn new(axis: &Axis) -> Slide {
        let (dilation, origin) = (axis.dilation as i32, -(axis.before as i32));
        Slide { input: axis.input, stride: axis.stride, dilation, origin, taps: axis.kernel, positions: axis.output }
    }

    /// Returns the window that slides over the gradient of the result, for the gradient of the images. It has the largest number of taps of
    /// a phase. The kernels find out the origin of each phase, which is smaller than this one.
    fn backward(axis: &Axis) -> Slide {
        let common = greatest_divisor(axis.stride, axis.dilation);
        let (taps, positions) = (axis.kernel.div_ceil(axis.stride / common), axis.input.div_ceil(axis.stride));
        let (dilation, origin) = (-((axis.dilation / common) as i32), axis.before as i32 + 1);
        Slide { input: axis.output, stride: 1, dilation, origin, taps, positions }
    }

    /// True if all rows or columns that the window reaches, also outside the image, have small numbers.
    fn is_small(&self) -> bool {
        let reach = u64::from(self.taps) * u64::from(self.dilation.unsigned_abs()) + u64::from(self.positions) * u64::from(self.stride);
        reach + u64::from(self.input) + u64::from(self.origin.unsigned_abs()) < SMALL.0
    }
}

/// How plain operands are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A[m,k] and B[k,n].
    Plain,
    /// A[m,k] and B[n,k].
    FlippedB,
    /// A[k,m] and B[k,n].
    FlippedA,
}

/// The product of an image matrix and a plain matrix.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
    pub m: u32,
    pub n: u32,
    /// Number of elements of the sums, with the zeros of the image matrix.
    pub k: u32,
    /// Number of products, or of phases of an input gradient.
    pub products: u32,
    /// Number of elements of all results.
    pub results: u64,
    /// Elements of the matrices of A and of B.
    sizes: [u64; 2],
    /// `PRODUCT`, `INPUT_GRADIENT` or `FILTER_GRADIENT`.
    result: u32,
    /// True for an operand whose lines are columns in memory.
    pub across: [bool; 2],
    /// Number of batch dimensions, the bits of those that the operands have, and the dimensions.
    batch: [u32; 3 + MAX_RANK],
    down: Slide,
    right: Slide,
    /// Channels of the images, and of a tap in B.
    depths: [u32; 2],
    /// Elements from one line of B to the next, and from one tap to the next.
    b_line: u32,
    b_tap: u64,
    /// `stride`, `step`, `dilation`, `before`, `kernel`, `output` along both axes, for an input gradient.
    phases: [[u32; 6]; 2],
    /// Bytes of an element.
    bytes: u32,
    /// True if 32 bits suffice to count the chunks of the operands, and 16 for the rows and columns of images.
    is_small: bool,
}

impl Problem {
    /// Returns the problem of an op, or fails with [`Error::TooLarge`] if the kernels cannot count its elements.
    pub(super) fn new(job: &Job<'_>) -> Result<Problem> {
        let ([a, b, ..], [output]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
        let bytes = job.dtype().size() as u32;
        let problem = match job.op.code {
            code::matmul | code::dense => Problem::product(&Shapes::of(job)?, bytes),
            code::conv2d => Problem::forward(&Convolution::new(read_attributes(job.attributes)?, [a, b, output])?, bytes),
            code::conv2d_input_grad => {
                let conv2d_input_grad::Attributes { conv, .. } = read_attributes(job.attributes)?;
                Problem::input_gradient(&Convolution::new(conv, [output, a, b])?, bytes)
            }
            code::conv2d_filter_grad => {
                let conv2d_filter_grad::Attributes { conv, .. } = read_attributes(job.attributes)?;
                Problem::filter_gradient(&Convolution::new(conv, [a, output, b])?, bytes)
            }
            _ => Err(Error::Internal),
        }?;
        let slides = problem.down.is_small() && problem.right.is_small();
        let is_small = slides && [a, b].into_iter().all(|operand| operand.bytes().is_some_and(|bytes| bytes < SMALL.1));
        Ok(Problem { is_small, ..problem })
    }

    /// A plain matrix is the image matrix of images of one pixel. If A is transposed, its columns are the images.
    fn product(shapes: &Shapes, bytes: u32) -> Result<Problem> {
        let Shapes { m, k, n, flipped: [a_across, b_rows], .. } = *shapes;
        let words = shapes.words();
        let batch = words[5..].try_into().map_err(|_| Error::Internal)?;
        let (depth, k) = if a_across { (m, k) } else { (k, padded(k, bytes)?) };
        let products = number(shapes.products())?;
        let of = |lines: u32| u64::from(lines) * u64::from(shapes.k);
        let problem = Problem {
            m,
            n,
            k,
            products,
            results: (u64::from(m) * u64::from(n)).checked_mul(products.into()).ok_or(Error::TooLarge)?,
            sizes: [of(m), of(n)],
            result: 0,
            across: [a_across, !b_rows],
            batch,
            down: Slide::POINT,
            right: Slide::POINT,
            depths: [depth, shapes.k],
            b_line: shapes.k,
            b_tap: 0,
            phases: [[0; 6]; 2],
            bytes,
            is_small: true,
        };
        problem.checked()
    }

    /// y = conv2d(x, filter): the pixels of y are the lines of A.
    fn forward(conv: &Convolution, bytes: u32) -> Result<Problem> {
        let Convolution { down, across, images, channels, filters } = conv;
        let pixels = u64::from(*images) * u64::from(down.output) * u64::from(across.output);
        let k = u64::from(down.kernel) * u64::from(across.kernel) * u64::from(padded(*channels, bytes)?);
        let problem = Problem {
            m: number(pixels)?,
            n: *filters,
            k: number(k)?,
            products: 1,
            results: pixels * u64::from(*filters),
            sizes: [0; 2],
            result: 0,
            across: [false, true],
            batch: [0; 3 + MAX_RANK],
            down: Slide::new(down),
            right: Slide::new(across),
            depths: [*channels; 2],
            b_line: 0,
            b_tap: 0,
            phases: [[0; 6]; 2],
            bytes,
            is_small: true,
        };
        problem.checked()
    }

    /// The gradient of x: for each phase, its pixels are the lines of A, the image matrix of dy.
    fn input_gradient(conv: &Convolution, bytes: u32) -> Result<Problem> {
        let Convolution { down, across, images, channels, filters } = conv;
        let slides = [down, across].map(Slide::backward);
        let [rows, columns] = slides.map(|slide| u64::from(slide.positions));
        let [above, left] = slides.map(|slide| u64::from(slide.taps));
        let phases = [down, across].map(|axis| {
            let step = axis.stride / greatest_divisor(axis.stride, axis.dilation);
            [axis.stride, step, axis.dilation, axis.before, axis.kernel, axis.input]
        });
        let problem = Problem {
            m: number(u64::from(*images) * rows * columns)?,
            n: *channels,
            k: number(above * left * u64::from(padded(*filters, bytes)?))?,
            products: number(u64::from(down.stride) * u64::from(across.stride))?,
            results: u64::from(*images) * u64::from(down.input) * u64::from(across.input) * u64::from(*channels),
            sizes: [0; 2],
            result: 1,
            across: [false; 2],
            batch: [0; 3 + MAX_RANK],
            down: slides[0],
            right: slides[1],
            depths: [*filters; 2],
            b_line: *filters,
            b_tap: u64::from(*channels) * u64::from(*filters),
            phases,
            bytes,
            is_small: true,
        };
        problem.checked()
    }

    /// The gradient of the filter: the transposed image matrix of x, times dy. The pixels of dy are summed.
    fn filter_gradient(conv: &Convolution, bytes: u32) -> Result<Problem> {
        let Convolution { down, across, channels, filters, .. } = conv;
        let of_images = Problem::forward(conv, bytes)?;
        let taps = u64::from(down.kernel) * u64::from(across.kernel);
        let (m, k) = (of_images.k, of_images.m);
        let results = taps * u64::from(*channels) * u64::from(*filters);
        Problem { m, k, results, result: 2, across: [true; 2], depths: [*channels, k], ..of_images }.checked()
    }

    /// Returns the problem if the kernels can count its elements.
    fn checked(self) -> Result<Problem> {
        let numbers = [self.m, self.n, self.k, self.depths[0], self.depths[1]].map(u64::from);
        let tiles = u64::from(self.m.div_ceil(SMALLEST)) * u64::from(self.n.div_ceil(SMALLEST));
        let counts = tiles.saturating_mul(self.products.into()) < MOST && numbers.into_iter().all(|number| number < MOST);
        if counts { Ok(self) } else { Err(Error::TooLarge) }
    }

    /// Returns the number of elements of a chunk.
    fn chunk(&self) -> u32 {
        CHUNK / self.bytes
    }

    /// Returns the lengths of the rows of A and B in memory, in which the chunks stand.
    fn rows(&self) -> [u32; 2] {
        [self.depths[0], if self.across[1] { self.n } else { self.b_line }]
    }

    /// True if all chunks are at multiples of their size, and small numbers suffice to count them.
    pub(super) fn is_aligned(&self) -> bool {
        self.is_small && self.rows().into_iter().all(|row| row.is_multiple_of(self.chunk()))
    }

    /// Returns how the operands are stored, if neither is gathered from images or taps, and kernels for warpgroups know the combination.
    pub(super) fn kind(&self) -> Option<Kind> {
        let is_point = |slide: &Slide| slide.taps == 1 && slide.stride == 1 && slide.origin == 0 && slide.input == slide.positions;
        let kind = match self.across {
            [false, true] => Kind::Plain,
            [false, false] => Kind::FlippedB,
            [true, true] => Kind::FlippedA,
            [true, false] => return None,
        };
        (self.result != 1 && self.bytes == 2 && self.is_aligned() && is_point(&self.down) && is_point(&self.right)).then_some(kind)
    }

    /// Returns the words of the kernels' structure, for tiles with these numbers of rows and columns, and sums in `parts` parts. `bfloat`
    /// is 1 for elements of bf16.
    pub(super) fn words(&self, [rows, columns]: [u32; 2], parts: u32, bfloat: u32) -> Vec<u32> {
        let wide = |number: u64| [number as u32, (number >> 32) as u32];
        let wides = [self.sizes[0], self.sizes[1], self.results, self.b_tap].map(wide);
        let grain = self.rows().map(|row| 1 << (row.wrapping_mul(self.bytes) | CHUNK).trailing_zeros());
        let [a_across, b_across] = self.across.map(u32::from);
        // A part is a multiple of a stage, also of the kernels for warpgroups.
        let part = self.k.div_ceil(parts).max(1).next_multiple_of(2 * DEPTH / self.bytes);
        let mut words = wides.as_flattened().to_vec();
        words.extend([self.m, self.n, self.k, self.m.div_ceil(rows), self.n.div_ceil(columns), parts, part, self.result]);
        words.extend([a_across, b_across, grain[0], grain[1], u32::from(self.n.is_multiple_of(8))]);
        words.extend(self.batch);
        for slide in [&self.down, &self.right] {
            words.extend([slide.input, slide.stride, slide.dilation as u32, slide.origin as u32]);
        }
        let [a_channels, b_channels] = self.depths.map(|depth| division(depth.max(1).next_multiple_of(self.chunk())));
        words.push(self.depths[0]);
        words.extend(a_channels);
        words.extend([self.right.taps, self.right.positions, self.down.positions].map(division).as_flattened());
        words.extend([self.b_line, self.depths[1]]);
        words.extend(b_channels);
        words.extend(self.phases.as_flattened());
        words.push(bfloat);
        words
    }
}

/// Returns the words of `Division`, for numbers below 2^31: the divisor, a factor and a shift.
fn division(by: u32) -> [u32; 3] {
    let by = by.max(1);
    let shift = 31 + by.next_power_of_two().ilog2();
    [by, (1u64 << shift).div_ceil(by.into()) as u32, shift]
}

/// Returns `channels`, rounded up to whole chunks.
fn padded(channels: u32, bytes: u32) -> Result<u32> {
    channels.checked_next_multiple_of(CHUNK / bytes).ok_or(Error::TooLarge)
}

fn number(wide: u64) -> Result<u32> {
    if wide < MOST { Ok(wide as u32) } else { Err(Error::TooLarge) }
}

fn greatest_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_are_products() {
        for by in [1, 2, 3, 5, 7, 8, 9, 64, 1000, 65535, 65537, (1 << 30) - 1, 1 << 30] {
            let [_, factor, shift] = division(by);
            for value in [0, 1, by - 1, by, by + 1, 2 * by - 1, 123_456_789, (1 << 31) - 1] {
                assert_eq!((u64::from(value) * u64::from(factor)) >> shift, u64::from(value / by), "{value} / {by}");
            }
        }
    }

    #[test]
    fn the_window_of_an_input_gradient_has_the_taps_of_a_phase() {
        let axis = Axis { input: 9, output: 5, kernel: 3, stride: 2, dilation: 1, before: 1 };
        let slide = Slide { input: 5, stride: 1, dilation: -1, origin: 2, taps: 2, positions: 5 };
        assert_eq!(Slide::backward(&axis), slide);
        assert_eq!(Slide::backward(&Axis { dilation: 2, ..axis }), Slide { taps: 3, ..slide });
        assert_eq!(Slide::backward(&Axis { dilation: 4, stride: 6, ..axis }), Slide { taps: 1, dilation: -2, positions: 2, ..slide });
    }
}
