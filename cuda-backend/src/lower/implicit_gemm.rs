//! Convolutions of f32 images and their gradients as products of matrices: see `kernels/implicit_gemm.cu`.

use super::Target;
use super::conv::Convolution;
use super::gemm::{self, End};
use super::linalg::Shapes;
use super::tiles::{NARROW, Plan, SMALL, SQUARE, Size, TALL, Tile};
use super::window::Axis;
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::Code;

/// The tiles of convolutions and of the gradients of images, and those of the gradients of filters.
static TILES: [Tile; 3] = [SQUARE, TALL, NARROW];
static FILTER_GRAD_TILES: [Tile; 2] = [TALL, SMALL];
/// Largest number of kinds of pixels: `Kinds` in the kernels.
const MAX_KINDS: usize = 4;
/// Smallest number of columns, and smallest length of a window, from which a tile is better used than direct kernels use their loads.
const SMALLEST: u32 = 16;
/// The same for plain products, whose loads have no windows.
const SMALLEST_PRODUCT: u32 = 8;
/// Number of pixels from which the sums of a filter's gradient are so long that a tile is better whatever its size.
const MANY: u32 = 1024;
/// Numbers of elements are below this.
const LIMIT: u64 = 1 << 31;

/// The windows of a convolution: `Windows` in the kernels, which explains the fields.
#[derive(Debug, Default, PartialEq)]
struct Windows {
    rows: u32,
    columns: u32,
    /// The start, and the steps for an image, a row and a column.
    offsets: [i32; 4],
    /// The starts of the positions down and across, and their moves.
    positions: [i32; 4],
    taps: [u32; 2],
    channels: u32,
    /// Steps of the offset and moves of the position for a tap down and for one across.
    tap_steps: [i32; 2],
    tap_moves: [i32; 2],
    /// Height and width of the images.
    size: [u32; 2],
    along: bool,
    filter: [i32; 3],
    /// The start, and the steps for an image, a row and a column of the result.
    y: [i32; 4],
    m: u32,
}

impl Windows {
    /// Returns the number of elements of a window.
    fn length(&self) -> u64 {
        u64::from(self.taps[0]) * u64::from(self.taps[1]) * u64::from(self.channels)
    }

    fn words(&self) -> Vec<u32> {
        let signed = |words: &[i32]| words.iter().map(|&word| word as u32).collect::<Vec<u32>>();
        let window = [self.taps[1], self.channels, self.length() as u32];
        let steps = [signed(&self.offsets), signed(&self.positions), window.to_vec(), signed(&self.tap_steps), signed(&self.tap_moves)];
        let ends = [self.size.to_vec(), vec![self.along.into()], signed(&self.filter), signed(&self.y), vec![self.m]];
        [vec![self.rows, self.columns], steps.concat(), ends.concat()].concat()
    }
}

impl Convolution {
    /// Returns the numbers of pixels of the images, and of the result.
    fn pixels(&self) -> [u64; 2] {
        let pixels = |of: fn(&Axis) -> u32| [of(&self.down), of(&self.across)].into_iter().map(u64::from).product::<u64>();
        [pixels(|axis| axis.input), pixels(|axis| axis.output)].map(|pixels| pixels * u64::from(self.images))
    }

    /// True if all numbers of elements fit the kernels.
    fn fits(&self) -> bool {
        let (taps, [input, output]) = (u64::from(self.down.kernel) * u64::from(self.across.kernel), self.pixels());
        let elements = |pixels: u64, channels: u32| pixels.saturating_mul(channels.into());
        let filter = elements(taps.saturating_mul(self.channels.into()), self.filters);
        [elements(input, self.channels), elements(output, self.filters), filter].into_iter().all(|elements| (1..LIMIT).contains(&elements))
    }

    /// True if each pixel of the result is a product of one pixel of the images and the filter.
    fn is_product(&self) -> bool {
        [self.down, self.across].iter().all(|axis| axis.kernel == 1 && axis.stride == 1 && axis.before == 0 && axis.input == axis.output)
    }

    /// Returns the smallest number of columns, and the smallest length of a window, for tiles.
    fn smallest(&self) -> u32 {
        if self.is_product() { SMALLEST_PRODUCT } else { SMALLEST }
    }

    /// Returns the shapes of the product of the images with the filter.
    fn product(&self) -> Shapes {
        Shapes { m: self.pixels()[1] as u32, k: self.channels, n: self.filters, flipped: [false; 2], batch: Vec::new() }
    }

    /// Returns the windows of the images.
    fn windows(&self) -> Windows {
        let (down, across, channels) = (self.down, self.across, self.channels as i32);
        let row = across.input as i32 * channels;
        let before = [down.before as i32, across.before as i32];
        let start = before[0].wrapping_mul(row).wrapping_add(before[1].wrapping_mul(channels)).wrapping_neg();
        let strides = [down.stride as i32, across.stride as i32];
        let dilations = [down.dilation as i32, across.dilation as i32];
        Windows {
            rows: down.output,
            columns: across.output,
            offsets: [start, down.input as i32 * row, strides[0].wrapping_mul(row), strides[1].wrapping_mul(channels)],
            positions: [-before[0], -before[1], strides[0], strides[1]],
            taps: [down.kernel, across.kernel],
            channels: self.channels,
            tap_steps: [dilations[0].wrapping_mul(row), dilations[1].wrapping_mul(channels)],
            tap_moves: dilations,
            size: [down.input, across.input],
            m: self.pixels()[1] as u32,
            ..Windows::default()
        }
    }

    /// Returns the windows of dy for each kind of pixels of the images that meet the same taps. There are none if they are too many.
    fn kinds(&self) -> Vec<Windows> {
        let axes = [self.down, self.across];
        if axes.iter().any(|axis| axis.stride > 1 && axis.dilation > 1) {
            return Vec::new();
        }
        let strides = axes.map(|axis| axis.stride.min(MAX_KINDS as u32 + 1));
        let remainders = (0..strides[0]).flat_map(|down| (0..strides[1]).map(move |across| [down, across]));
        let kinds: Vec<Windows> = remainders.take(MAX_KINDS + 1).filter_map(|remainders| self.kind(remainders)).collect();
        if kinds.len() > MAX_KINDS { Vec::new() } else { kinds }
    }

    /// Returns the windows of dy for the pixels of the images whose taps have these remainders, divided by the strides. Returns `None` if
    /// there are no such pixels.
    fn kind(&self, remainders: [u32; 2]) -> Option<Windows> {
        let along = |axis: Axis, remainder: u32| {
            // The first pixel whose distance from the beginning of the padding has the remainder.
            let first = (remainder + axis.stride - axis.before % axis.stride) % axis.stride;
            let pixels = axis.input.saturating_sub(first).div_ceil(axis.stride);
            let taps = axis.kernel.saturating_sub(remainder).div_ceil(axis.stride);
            let start = (first + axis.before - remainder) / axis.stride;
            let reach = if axis.stride == 1 { axis.dilation } else { 1 };
            (first as i32, pixels, taps, start as i32, -(reach as i32))
        };
        let (first_row, rows, taps_down, down, tap_down) = along(self.down, remainders[0]);
        let (first_column, columns, taps_across, across, tap_across) = along(self.across, remainders[1]);
        let (filters, channels) = (self.filters as i32, self.channels as i32);
        let (row, tap, y_row) = (self.across.output as i32 * filters, filters * channels, self.across.input as i32 * channels);
        let (strides, kernel_row) = ([self.down.stride as i32, self.across.stride as i32], self.across.kernel as i32 * tap);
        let (remainders, start_of_y) = (remainders.map(|remainder| remainder as i32), first_row * y_row + first_column * channels);
        let windows = Windows {
            rows,
            columns,
            offsets: [down.wrapping_mul(row).wrapping_add(across.wrapping_mul(filters)), self.down.output as i32 * row, row, filters],
            positions: [down, across, 1, 1],
            taps: [taps_down, taps_across],
            channels: self.filters,
            tap_steps: [tap_down.wrapping_mul(row), tap_across.wrapping_mul(filters)],
            tap_moves: [tap_down, tap_across],
            size: [self.down.output, self.across.output],
            along: true,
            filter: [remainders[0] * kernel_row + remainders[1] * tap, strides[0].wrapping_mul(kernel_row), strides[1].wrapping_mul(tap)],
            y: [start_of_y, self.down.input as i32 * y_row, strides[0].wrapping_mul(y_row), strides[1].wrapping_mul(channels)],
            m: self.images * rows * columns,
        };
        (windows.m > 0).then_some(windows)
    }

    /// Returns the launches of a convolution, or `None` if a direct kernel is better.
    pub(super) fn forward(&self, bias: Option<usize>, target: &Target) -> Option<Vec<KernelCall>> {
        let windows = self.windows();
        let smallest = self.smallest();
        if !self.fits() || windows.length() < smallest.into() || self.filters < smallest {
            return None;
        }
        let end = End::stored(bias, Argument::Output(0));
        if self.is_product() {
            return Some(gemm::lower(target, &self.product(), [0, 1], end));
        }
        Some(convolve(&[windows], self.filters, [0, 1], end, target))
    }

    /// Returns the launches of the images' gradient, or `None` if a direct kernel is better.
    pub(super) fn input_grad(&self, target: &Target) -> Option<Vec<KernelCall>> {
        let kinds = self.kinds();
        let smallest = self.smallest();
        if !self.fits() || kinds.is_empty() || self.channels < smallest || self.filters < smallest {
            return None;
        }
        let end = End::stored(None, Argument::Output(0));
        if self.is_product() {
            let shapes = Shapes { k: self.filters, n: self.channels, flipped: [false, true], ..self.product() };
            return Some(gemm::lower(target, &shapes, [1, 0], end));
        }
        Some(convolve(&kinds, self.channels, [1, 0], end, target))
    }

    /// Returns the launches of the filter's gradient, or `None` if a direct kernel is better.
    pub(super) fn filter_grad(&self, target: &Target) -> Option<Vec<KernelCall>> {
        let windows = self.windows();
        let is_small = windows.length() < SMALLEST.into() || self.filters < SMALLEST;
        if !self.fits() || is_small && windows.m < MANY {
            return None;
        }
        let end = End::stored(None, Argument::Output(0));
        if self.is_product() {
            let [m, k] = [self.channels, windows.m];
            let shapes = Shapes { m, k, n: self.filters, flipped: [true, false], batch: Vec::new() };
            return Some(gemm::lower(target, &shapes, [0, 1], end));
        }
        let size = Size { m: windows.length() as u32, n: self.filters, k: windows.m.into(), products: 1 };
        let plan = size.plan(&FILTER_GRAD_TILES, false, target);
        let launch = |end: &End| {
            let operands = [Argument::Input(0), Argument::Input(1), end.output(), Argument::Words(windows.words())];
            call("filter_grad", &size, &plan, operands.to_vec(), size.elements())
        };
        Some(gemm::in_parts(plan.parts, size.elements(), self.filters, end, launch))
    }
}

/// Returns the launches that multiply each kind of windows of one operand with the filter, the other operand.
fn convolve(kinds: &[Windows], n: u32, [images, filter]: [usize; 2], end: End, target: &Target) -> Vec<KernelCall> {
    let [m, k] = [kinds.iter().map(|kind| kind.m.into()).max(), kinds.iter().map(Windows::length).max()].map(Option::unwrap_or_default);
    let size = Size { m: m as u32, n, k, products: kinds.len() as u64 };
    let plan = size.plan(&TILES, false, target);
    let elements = kinds.iter().map(|kind| u64::from(kind.m) * u64::from(n)).sum();
    let launch = |end: &End| {
        let mut words = kinds.iter().flat_map(Windows::words).collect::<Vec<u32>>();
        words.resize(words.len() / kinds.len() * MAX_KINDS, 0);
        let operands = [Argument::Input(images), Argument::Input(filter), end.bias(), end.output(), Argument::Words(words)];
        call("convolve", &size, &plan, operands.to_vec(), elements)
    };
    gemm::in_parts(plan.parts, elements, n, end, launch)
}

/// Returns the launch of a kernel with these operands.
fn call(name: &str, size: &Size, plan: &Plan, operands: Vec<Argument>, elements: u64) -> KernelCall {
    let code = Code::stored("implicit_gemm", format!("{name}_{}_f32", plan.tile.name()));
    let arguments = [operands, vec![Argument::Words(vec![size.n]), Argument::Wide(elements)]].concat();
    let grid = [size.tiles(plan.tile) as u32, size.products as u32, plan.parts];
    KernelCall { code, grid, block: [plan.tile.threads, 1, 1], shared: 0, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolution(input: u32, kernel: u32, stride: u32, dilation: u32) -> Convolution {
        let axis = Axis { input, output: input.div_ceil(stride), kernel, stride, dilation, before: 0 }.padded(1);
        Convolution { down: axis, across: axis, images: 2, channels: 32, filters: 64 }
    }

    #[test]
    fn each_kind_of_pixels_meets_its_own_taps() {
        let taps = |input, kernel, stride| convolution(input, kernel, stride, 1).kinds().iter().map(|kind| kind.taps).collect::<Vec<_>>();
        assert_eq!(taps(8, 3, 1), [[3, 3]]);
        assert_eq!(taps(8, 3, 2), [[2, 2], [2, 1], [1, 2], [1, 1]]);
        assert_eq!(taps(8, 1, 2), [[1, 1], [1, 0], [0, 1], [0, 0]]);
        assert_eq!(taps(1, 3, 2).len(), 1);
        assert_eq!(convolution(8, 3, 3, 1).kinds(), []);
        assert_eq!(convolution(8, 3, 2, 2).kinds(), []);
        assert_eq!(convolution(8, 3, 1, 2).kinds().len(), 1);
    }

    #[test]
    fn the_kinds_have_all_pixels() {
        for (input, kernel, stride) in [(8, 3, 2), (7, 3, 2), (7, 2, 2), (1, 5, 2), (5, 1, 1), (6, 5, 2)] {
            let convolution = convolution(input, kernel, stride, 1);
            let pixels: u64 = convolution.kinds().iter().map(|kind| u64::from(kind.m)).sum();
            assert_eq!(pixels, convolution.pixels()[0], "{input} {kernel} {stride}");
        }
    }

    #[test]
    fn small_convolutions_have_direct_kernels() {
        let few = |channels, filters| Convolution { channels, filters, ..convolution(8, 3, 1, 1) };
        let target = &Target::ORIN;
        assert!(few(3, 32).forward(None, target).is_some() && few(1, 32).forward(None, target).is_none());
        assert!(few(32, 8).forward(None, target).is_none() && few(3, 32).input_grad(target).is_none());
        let product = Convolution { channels: 8, filters: 8, ..convolution(8, 1, 1, 1) };
        assert!(product.forward(None, target).is_some() && product.input_grad(target).is_some());
        // A filter with few elements has a long sum for each of them, or not.
        let gradient = |input, filters| Convolution { filters, ..convolution(input, 3, 1, 1) }.filter_grad(target).is_some();
        assert_eq!([(8, 64), (8, 8), (32, 8)].map(|(input, filters)| gradient(input, filters)), [true, false, true]);
    }
}
