//! [`packed_conv2d`](gradlet_core::ops::packed_conv2d), four pixels of the result at once.
//!
//! A tile is four neighbouring pixels. Their windows are copied to the op's working memory, unless a window is one pixel of x. One
//! instruction then adds 16 products of a pixel and a filter. The four sums of a filter become the lanes of a vector, which one sequence
//! of instructions converts to results.

use crate::assembly::requantize;
use crate::bytes::{self, Lines};
use crate::layout::{Axis, CHANNEL, LANES, split};
use core::arch::naked_asm;
use gradlet_core::custom_op::Call;
pub use gradlet_core::ops::packed_conv2d::{Attributes, DEF};
use gradlet_core::{DType, Error, Kernel, Result};

/// Pixels of a tile.
const PIXELS: usize = 4;

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { window, input_zero_point, range, kernel } = call.attributes()?;
    let (x, filter, channels) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let ([n, h, w, c], [co, length]) = ([0, 1, 2, 3].map(|axis| x.dim(axis)), [0, 1].map(|axis| filter.dim(axis)));
    let (x, filter, channels) = (x.slice::<i8>(), filter.slice::<i8>(), channels.slice::<i32>());
    let [height, width] = [1, 2].map(|axis| call.outputs.first().map_or(0, |y| y.dim(axis)));
    let [kh, kw] = kernel.map(|dim| dim as usize);
    let axes = [Axis::new(&window, 0, [h, height, kh]), Axis::new(&window, 1, [w, width, kw])];
    let pointwise = (kh, kw) == (1, 1) && axes.iter().all(|axis| axis.stride == 1 && axis.before == 0) && (h, w) == (height, width);
    let images = Images { axes, pointwise, width, c, line: w * c, size: kh * kw * c, zero: input_zero_point };
    let (pixels, blocks) = (height * width, images.size.div_ceil(LANES).max(1));
    let tiles = pixels.div_ceil(PIXELS);
    let rows = call.rows(n * tiles, co * (24 + 10 * blocks) + 500);
    let [y, workspace] = &mut *call.outputs else { return Err(Error::Internal) };
    let (y, workspace) = (y.slice_mut::<i8>(), workspace.slice_mut::<i32>());
    // The assembly relies on these sizes.
    let whole = (x.len(), y.len()) == (n * h * w * c, n * pixels * co)
        && (filter.len(), channels.len()) == (co * length, co * CHANNEL)
        && size_of_val(workspace) >= PIXELS * images.size
        && length >= images.size;
    if !whole {
        return Err(Error::Internal);
    }
    if co == 0 {
        return Ok(());
    }
    let place = |row: usize| {
        let (image, tile) = split(row, tiles);
        (image, tile * PIXELS)
    };
    let start = |row: usize| {
        let (image, first) = place(row);
        (image * pixels + first) * co
    };
    let (results, to, buffers) = (start(rows.start)..start(rows.end), y.as_mut_ptr(), workspace.as_mut_ptr().cast::<i8>());
    for row in rows {
        let (image, first) = place(row);
        let pixel = |lane: usize| (pixels - 1 - first).min(lane);
        let (x, mut lane) = (x.as_ptr().wrapping_add(image * h * images.line), 0);
        // The lanes after the last pixel repeat it.
        let windows = [0; PIXELS].map(|_| {
            let at = first + pixel(lane);
            let buffer = buffers.wrapping_add(lane * images.size);
            lane += 1;
            // SAFETY: `x` is the beginning of an image, and the working memory has four windows.
            unsafe { images.window(x, at, buffer) }
        });
        let operands = Tile {
            windows,
            end: channels.as_ptr_range().end,
            skip: length as isize - (LANES * blocks) as isize,
            weights: filter.as_ptr(),
            length: images.size,
            channels: channels.as_ptr(),
            y: to.wrapping_add(start(row)),
            offsets: [0, 1, 2, 3].map(|lane| pixel(lane) * co),
        };
        // SAFETY: a window has `length` elements. Filter, channels and each pixel have `co` items, and `co` is above 0.
        unsafe { tile(&operands) }
    }
    bytes::limit(y.get_mut(results).unwrap_or_default(), range);
    Ok(())
}

/// Images, and the window that slides over them.
struct Images {
    axes: [Axis; 2],
    /// True if pixel i of the result has pixel i of x as its window.
    pointwise: bool,
    /// Width of the result.
    width: usize,
    c: usize,
    /// Elements of a line.
    line: usize,
    /// Elements of a window.
    size: usize,
    zero: i32,
}

impl Images {
    /// Returns the elements of the window of pixel `at` of the result. They are in `buffer` unless they are one pixel of the image.
    ///
    /// # Safety
    ///
    /// `image` must be valid for an image, `buffer` for a window, and the pixel must be one of the result.
    unsafe fn window(&self, image: *const i8, at: usize, buffer: *mut i8) -> *const i8 {
        if self.pointwise {
            return image.wrapping_add(at * self.c);
        }
        let ([down, across], (oh, ow)) = (&self.axes, split(at, self.width));
        let (rows, columns) = (down.taps(oh), across.taps(ow));
        if rows.len() < down.kernel || columns.len() < across.kernel {
            // SAFETY: a window has this size.
            unsafe { bytes::fill(buffer, self.size, self.zero) }
        }
        let bytes = columns.len() * self.c;
        if rows.is_empty() || bytes == 0 {
            return buffer;
        }
        let from = image.wrapping_add(down.input_at(oh, rows.start) * self.line + across.input_at(ow, columns.start) * self.c);
        if down.kernel == 1 && across.kernel == 1 {
            return from;
        }
        let destination = across.kernel * self.c;
        let lines = Lines { bytes, count: rows.len(), source: self.line, destination };
        // SAFETY: the taps are inside the image and inside the window.
        unsafe { bytes::copy(&lines, from, buffer.wrapping_add(rows.start * destination + columns.start * self.c)) }
        buffer
    }
}

/// Operands of a tile.
#[repr(C)]
struct Tile {
    /// The elements of each window.
    windows: [*const i8; PIXELS],
    /// The end of the channels.
    end: *const i32,
    /// Bytes from the last block of a filter's weights to the next filter.
    skip: isize,
    weights: *const i8,
    /// Elements of a window.
    length: usize,
    channels: *const i32,
    y: *mut i8,
    /// Distance of each pixel in y from the first.
    offsets: [usize; PIXELS],
}

/// Computes all channels of four pixels.
///
/// # Safety
///
/// The operands must have the sizes that [`Tile`] states, for at least one channel.
#[unsafe(naked)]
unsafe extern "C" fn tile(operands: &Tile) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}",
        "ldm r0!, {{r1, r2, r3, r4, r5}}",
        "push {{r1, r2, r3, r4, r5}}",
        "ldm r0!, {{r8, r9, r10, r11, r12}}",
        "vldrw.u32 q3, [r0]",
        // For each filter: the sums of the pixels begin with its bias.
        "1:",
        "ldr r0, [r11]",
        "ldrd r1, r3, [sp]",
        "ldrd r5, r7, [sp, #8]",
        "asrs r0, r0, #1",
        "mov r2, r0",
        "mov r4, r0",
        "mov r6, r0",
        "dlstp.8 lr, r10",
        "2:",
        "vldrb.u8 q0, [r9], #16",
        "vldrb.u8 q1, [r1], #16",
        "vmladava.s8 r0, q0, q1",
        "vldrb.u8 q1, [r3], #16",
        "vmladava.s8 r2, q0, q1",
        "vldrb.u8 q1, [r5], #16",
        "vmladava.s8 r4, q0, q1",
        "vldrb.u8 q1, [r7], #16",
        "vmladava.s8 r6, q0, q1",
        "letp lr, 2b",
        "add r9, r8",
        "vmov q0[2], q0[0], r0, r4",
        "vmov q0[3], q0[1], r2, r6",
        // Bias, multiplier, offset and shift.
        "ldm r11!, {{r0, r2, r4, r6}}",
        "rsbs r6, r6, #0",
        requantize!("r2", "r4", "r6"),
        "vstrb.32 q0, [r12, q3]",
        "add r12, r12, #1",
        "ldr r0, [sp, #16]",
        "cmp r0, r11",
        "bne 1b",
        "add sp, sp, #20",
        "pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}",
    )
}
