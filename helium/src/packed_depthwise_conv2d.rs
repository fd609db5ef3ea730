//! [`packed_depthwise_conv2d`](gradlet_core::ops::packed_depthwise_conv2d), four results of a channel at once.
//!
//! Four lines of x are copied to the op's working memory, interleaved: a word has the four elements of a channel in one column. Three
//! words are then the window of a result, and one instruction adds its products with the nine weights. With stride 1, the weights shifted
//! by a byte are those of the result in the next line: a group is two lines of two results. With stride 2, it is four results of a line.
//! The four sums of a group become the lanes of a vector, which one sequence of instructions converts to results.

use crate::assembly::requantize;
use crate::bytes;
use crate::layout::{Axis, FILTER, LANES, split};
use core::arch::naked_asm;
use gradlet_core::custom_op::Call;
pub use gradlet_core::ops::packed_depthwise_conv2d::{Attributes, DEF};
use gradlet_core::{DType, Error, Kernel, Result};

/// Height and width of the filters.
const KERNEL: usize = 3;
/// Lines of x that are interleaved.
const LINES: usize = 4;

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { window, input_zero_point, range, .. } = call.attributes()?;
    let (x, filters) = (call.input(0)?, call.input(1)?);
    let [n, h, w, c] = [0, 1, 2, 3].map(|axis| x.dim(axis));
    let (x, filters) = (x.slice::<i8>(), filters.slice::<i32>());
    let [height, width] = [1, 2].map(|axis| call.outputs.first().map_or(0, |y| y.dim(axis)));
    let [down, across] = [Axis::new(&window, 0, [h, height, KERNEL]), Axis::new(&window, 1, [w, width, KERNEL])];
    // Lines of the result that are computed at once.
    let together = if down.stride == 1 { 2 } else { 1 };
    let bands = height.div_ceil(together);
    let rows = call.rows(n * bands, c * (width * 7 * together + w + 30) + 500);
    let [y, workspace] = &mut *call.outputs else { return Err(Error::Internal) };
    let (y, workspace) = (y.slice_mut::<i8>(), workspace.slice_mut::<i32>());
    if c == 0 || height == 0 || width == 0 {
        return Ok(());
    }
    // Columns that windows touch, and channels whose columns fit beside a line of padding.
    let columns = (width - 1) * across.stride + KERNEL;
    let room = (size_of_val(workspace)).checked_sub(w * c).ok_or(Error::Internal)?;
    let block = match room / (columns * LINES).max(1) {
        block if block >= c => c,
        block if block >= LANES => block - block % LANES,
        block => block,
    };
    // The assembly relies on these sizes.
    let whole = (x.len(), y.len(), filters.len()) == (n * h * w * c, n * height * width * c, c * FILTER);
    if !whole || block == 0 || !matches!(across.stride, 1 | 2) {
        return Err(Error::Internal);
    }
    let (words, to) = (workspace.as_mut_ptr(), y.as_mut_ptr());
    let outside = words.cast::<i8>().wrapping_add(room);
    // SAFETY: the working memory has `room` bytes before the line of padding.
    unsafe { bytes::fill(outside, w * c, input_zero_point) }
    let place = |row: usize| {
        let (image, band) = split(row, bands);
        (image, band * together)
    };
    let start = |row: usize| {
        let (image, oh) = place(row);
        (image * height + oh) * width * c
    };
    let results = start(rows.start)..start(rows.end);
    let lines = Lines { across, w, c, columns, width, zero: input_zero_point };
    for row in rows {
        let (image, oh) = place(row);
        let image = x.as_ptr().wrapping_add(image * h * w * c);
        let from = [0, 1, 2, 3].map(|line| {
            let line = down.input_at(oh, line);
            if line < h { image.wrapping_add(line * w * c) } else { outside }
        });
        let single = oh + 1 == height;
        let mut first = 0;
        while first < c {
            let filters = filters.get(first * FILTER..c.min(first + block) * FILTER).unwrap_or_default();
            // SAFETY: the lines have `w · c` elements, and the columns of the block fit. The results of the band begin at `start(row)`.
            unsafe { lines.compute(from, first, filters, single, words, to.wrapping_add(start(row))) }
            first += block;
        }
    }
    bytes::limit(y.get_mut(results).unwrap_or_default(), range);
    Ok(())
}

/// Lines of images, and the window that slides along them.
struct Lines {
    across: Axis,
    w: usize,
    c: usize,
    /// Columns of the padded image that windows touch.
    columns: usize,
    /// Results of a line.
    width: usize,
    zero: i32,
}

impl Lines {
    /// Computes a band of the channels that have these filters, from channel `first` on.
    ///
    /// # Safety
    ///
    /// Each pointer of `from` must be valid for a line of x, `words` for the columns of the channels, and `y` for the line of the result,
    /// and for the next line unless `single` is true or the stride is 2. There is at least one filter.
    unsafe fn compute(&self, from: [*const i8; LINES], first: usize, filters: &[i32], single: bool, words: *mut i32, y: *mut i8) {
        let (c, count) = (self.c, filters.len() / FILTER);
        let (left, inside) = (self.across.before, self.w.min(self.columns.saturating_sub(self.across.before)));
        let column = |index: usize| words.wrapping_add(index * count);
        let padding = |from: usize, to: usize| {
            // SAFETY: the columns of padding are in the working memory.
            unsafe { bytes::fill(column(from).cast(), (to - from) * count * LINES, self.zero) }
        };
        padding(0, left.min(self.columns));
        padding((left + inside).min(self.columns), self.columns);
        // All channels of a line are one run.
        let (runs, run) = if count == c { (1, inside * c) } else { (inside, count) };
        for index in 0..runs {
            let from = from.map(|line| line.wrapping_add(index * c + first));
            // SAFETY: the columns inside are in the lines and in the working memory.
            unsafe { interleave(column(left + index), &from, run) }
        }
        let line = if single { 0 } else { self.width * c };
        let (group, kernel) = if self.across.stride == 1 { (2, band1 as Band) } else { (4, band2 as Band) };
        let offsets = if self.across.stride == 1 { [0, line, c, line + c] } else { [0, c, 2 * c, 3 * c] };
        let operands = Operands {
            words,
            y: y.wrapping_add(first),
            groups: self.width / group,
            rest: self.width % group,
            end: filters.as_ptr_range().end,
            lower: if single { 0 } else { 8 },
            lanes: 4 / group,
            pixel: c,
            step: self.across.stride * count * LINES,
            results: group * c,
            filters: filters.as_ptr(),
            columns: [0, 1, 2, 2].map(|column| column * count * LINES),
            offsets,
            weights: [0, 3, 6, 0, 1, 4, 7, 0, 2, 5, 8, 0, 0, 0, 0, 0],
        };
        // SAFETY: the sizes are those of the operands.
        unsafe { kernel(&operands) }
    }
}

/// Interleaves four lines of `count` bytes.
///
/// # Safety
///
/// The lines must be valid for `count` bytes, and `to` for `count` words.
#[unsafe(naked)]
unsafe extern "C" fn interleave(to: *mut i32, lines: &[*const i8; LINES], count: usize) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, lr}}",
        "ldm r1, {{r3, r4, r5, r6}}",
        "lsrs r1, r2, #4",
        "wls lr, r1, 2f",
        "1:",
        "vldrb.u8 q0, [r3], #16",
        "vldrb.u8 q1, [r4], #16",
        "vldrb.u8 q2, [r5], #16",
        "vldrb.u8 q3, [r6], #16",
        "vst40.8 {{q0, q1, q2, q3}}, [r0]",
        "vst41.8 {{q0, q1, q2, q3}}, [r0]",
        "vst42.8 {{q0, q1, q2, q3}}, [r0]",
        "vst43.8 {{q0, q1, q2, q3}}, [r0]!",
        "le lr, 1b",
        "2:",
        "ands r2, r2, #15",
        "beq 4f",
        // The rest, of fewer bytes than a vector.
        "mov r12, #0",
        "vidup.u8 q1, r12, #4",
        "dlstp.8 lr, r2",
        "3:",
        "vldrb.u8 q0, [r3]",
        "vstrb.8 q0, [r0, q1]",
        "adds r0, #1",
        "vldrb.u8 q0, [r4]",
        "vstrb.8 q0, [r0, q1]",
        "adds r0, #1",
        "vldrb.u8 q0, [r5]",
        "vstrb.8 q0, [r0, q1]",
        "adds r0, #1",
        "vldrb.u8 q0, [r6]",
        "vstrb.8 q0, [r0, q1]",
        "letp lr, 3b",
        "4:",
        "pop {{r4, r5, r6, pc}}",
    )
}

/// Operands of a band: one or two lines of the result.
#[repr(C)]
struct Operands {
    /// The interleaved columns.
    words: *const i32,
    y: *mut i8,
    /// Whole groups of a line, and columns of results after them.
    groups: usize,
    rest: usize,
    /// The end of the filters.
    end: *const i32,
    /// Bits by which the weights are shifted for the lower line: 8, or 0 if there is none.
    lower: usize,
    /// Results of a column.
    lanes: usize,
    /// Distances of a result from the one to the left in y, of a window from the one to the left, and of a group in y.
    pixel: usize,
    step: usize,
    results: usize,
    filters: *const i32,
    /// Distance of each column of a window from its beginning. The last lane has no weights.
    columns: [usize; 4],
    /// Distance of each result of a group from the first.
    offsets: [usize; 4],
    /// Index of the weight for each byte of a window: column by column, four bytes each.
    weights: [u8; LANES],
}

type Band = unsafe extern "C" fn(&Operands);

/// Defines a function that computes a band. `$group` leaves the sums of a group in r0, r2, r4 and r6, `$column` those of a column in r0
/// and r2. r1 has the address of the window and r9 the distance of the next one, q6 the weights, and q3 those of the lower line.
macro_rules! band {
    ($(#[$doc:meta])* $name:ident, $group:expr, $column:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The operands must have the sizes that [`Operands`] states, for at least one filter.
        #[unsafe(naked)]
        unsafe extern "C" fn $name(operands: &Operands) {
            naked_asm!(
                ".cpu cortex-m55",
                "push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}",
                "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
                "ldm r0!, {{r1, r2, r3, r4, r5, r6, r7, r8}}",
                "push {{r1, r2, r3, r4, r5, r6, r7, r8}}",
                "ldm r0!, {{r9, r10, r11}}",
                "vldrw.u32 q7, [r0]",
                "vldrw.u32 q4, [r0, #16]",
                "vldrb.u8 q5, [r0, #32]",
                // For each filter: bias, multiplier, offset and shift, then the weights. Bytes without a weight become 0.
                "1:",
                "ldm r11!, {{r3, r5, r7, r8}}",
                "movw r0, #0x777",
                "vmsr p0, r0",
                "vpst",
                "vldrbt.u8 q6, [r11, q5]",
                "add r11, r11, #12",
                "ldr r0, [sp, #20]",
                "vmov q3, q6",
                "vshl.u32 q3, r0",
                "asrs r3, r3, #1",
                "rsb r8, r8, #0",
                // The next filter has the next word of each column, and the next byte of each result.
                "ldrd r1, r12, [sp]",
                "adds r0, r1, #4",
                "add r2, r12, #1",
                "strd r0, r2, [sp]",
                "ldr r0, [sp, #8]",
                "wls lr, r0, 3f",
                "2:",
                $group,
                "vmov q0[2], q0[0], r0, r4",
                "vmov q0[3], q0[1], r2, r6",
                "vadd.i32 q0, q0, r3",
                requantize!("r5", "r7", "r8"),
                "vstrb.32 q0, [r12, q4]",
                "add r12, r12, r10",
                "le lr, 2b",
                "3:",
                "ldr r0, [sp, #12]",
                "wls lr, r0, 5f",
                "ldrd r4, r6, [sp, #24]",
                "vctp.32 r4",
                "4:",
                $column,
                "vmov q0[2], q0[0], r0, r0",
                "vmov q0[3], q0[1], r2, r2",
                "vadd.i32 q0, q0, r3",
                requantize!("r5", "r7", "r8"),
                "vpst",
                "vstrbt.32 q0, [r12, q4]",
                "add r12, r12, r6",
                "le lr, 4b",
                "5:",
                "ldr r0, [sp, #16]",
                "cmp r0, r11",
                "bne 1b",
                "add sp, sp, #32",
                "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}",
            )
        }
    };
}

band!(
    /// Computes a band with stride 1. A group is two columns of two results.
    band1,
    "vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r0, q0, q6
     vmladav.s8 r2, q0, q3
     vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r4, q0, q6
     vmladav.s8 r6, q0, q3",
    "vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r0, q0, q6
     vmladav.s8 r2, q0, q3"
);

band!(
    /// Computes a band with stride 2. A group is four results of a line.
    band2,
    "vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r0, q0, q6
     vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r2, q0, q6
     vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r4, q0, q6
     vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r6, q0, q6",
    "vldrw.u32 q0, [r1, q7]
     add r1, r9
     vmladav.s8 r0, q0, q6
     mov r2, r0"
);
