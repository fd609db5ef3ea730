//! Resizing of quantised images `x[n,h,w,c]` to `y[n,oh,ow,c]`. Each element is a mean of the four nearest ones, weighted by distance. The
//! scale and the zero point of y are those of x. Element types: i8 and i16.
//!
//! Bits: positions have 10 bits after the point, so weights have 20, as in RESIZE_BILINEAR of TensorFlow Lite's reference kernels. The mean
//! is rounded to the nearest integer, and ties go away from zero. Unlike there, no position is beyond the last pixel.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::quantized_conv2d::dims4;
use crate::ops::shared::elementwise::set;
use crate::ops::shared::quantized::Quantized;
#[cfg(feature = "alloc")]
use crate::{ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Height and width of y, from 1 to 65536.
    pub size: [u32; 2],
    /// Positions of pixels: the number of a [`Centres`].
    pub centres: u32,
}

/// Positions of the centres of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centres {
    /// Centres at whole numbers.
    Whole,
    /// Centres at half numbers, as in TensorFlow 2: `half_pixel_centers`.
    Half,
    /// The centres of the outermost pixels have the same position in both images: `align_corners`.
    Corners,
}

/// Largest side of a result.
const MAX_SIDE: u32 = 1 << 16;
/// Distance between two pixels.
const ONE: i64 = 1 << 10;

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::quantized_resize_bilinear,
    name: "quantized_resize_bilinear",
    inputs: (1, 1),
    outputs: 1,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { size, centres } = read_attributes(attributes)?;
    let ([n, h, w, c], dtype) = (dims4(inputs, 0)?, inputs.first().map_or(DType::F32, |x| x.dtype));
    if !matches!(dtype, DType::I8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    for (axis, side) in [(1, h), (2, w)] {
        if side == 0 {
            return Err(Error::Dimension { input: 0, axis, want: 1, got: 0 });
        }
    }
    if let Some(index) = size.iter().position(|side| !(1..=MAX_SIDE).contains(side)) {
        return Err(Error::Attribute { index: index as u8 });
    }
    if centres > Centres::Corners as u32 {
        return Err(Error::Attribute { index: 2 });
    }
    set(outputs, TensorType::new(dtype, Shape::new(&[n, size[0], size[1], c])?))
}

/// One side of an image.
struct Side {
    /// Number of pixels of x.
    from: usize,
    /// Distance between neighbouring pixels of y.
    scale: i64,
    /// Position of the first pixel of y.
    start: i64,
}

impl Side {
    fn new(from: u32, to: u32, centres: u32) -> Side {
        let is_aligned = centres == Centres::Corners as u32 && to > 1;
        let [length, count] = [from, to].map(|side| i64::from(side) - i64::from(is_aligned));
        let scale = (ONE * length + count / 2) / count.max(1);
        let start = if centres == Centres::Half as u32 { scale / 2 - ONE / 2 } else { 0 };
        Side { from: from as usize, scale, start }
    }

    /// Returns the pixels before and after pixel `at` of y, and their weights.
    fn pixels(&self, at: usize) -> [(usize, i64); 2] {
        let position = at as i64 * self.scale + self.start;
        let last = self.from as i64 - 1;
        let [before, after] = [position / ONE, (position + ONE - 1) / ONE].map(|pixel| pixel.clamp(0, last));
        let part = position - ONE * before;
        [(before as usize, ONE - part), (after as usize, part)]
    }
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { size: [oh, ow], centres } = call.attributes()?;
    let x = call.input(0)?;
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = [Side::new(h, oh, centres), Side::new(w, ow, centres)];
    let (x, [h, w, c, oh, ow]) = (x.slice::<T>(), [h, w, c, oh, ow].map(|dim| dim as usize));
    let pixels = (call.output()?.data.len() / size_of::<T>()).checked_div(c).unwrap_or(0);
    let pixels = call.rows(pixels, 20 * c + 100);
    let y = call.output()?.slice_mut::<T>().get_mut(pixels.start * c..pixels.end * c).unwrap_or_default();
    for (at, y) in pixels.zip(y.chunks_exact_mut(c.max(1))) {
        let [top, bottom] = down.pixels(at / ow % oh);
        let [left, right] = across.pixels(at % ow);
        let corner = |(row, vertical): (usize, i64), (column, horizontal): (usize, i64)| {
            let start = ((at / ow / oh * h + row) * w + column) * c;
            (x.get(start..start + c).unwrap_or_default(), vertical * horizontal)
        };
        let [(a, a_weight), (b, b_weight)] = [corner(top, left), corner(bottom, left)];
        let [(d, d_weight), (e, e_weight)] = [corner(top, right), corner(bottom, right)];
        for (y, (((a, b), d), e)) in y.iter_mut().zip(a.iter().zip(b).zip(d).zip(e)) {
            let [a, b, d, e] = [a, b, d, e].map(|x| i64::from(x.number()));
            let sum = a * a_weight + b * b_weight + d * d_weight + e * e_weight;
            let half = if sum > 0 { ONE * ONE / 2 } else { -(ONE * ONE / 2) };
            *y = T::of(((sum + half) / (ONE * ONE)) as i32);
        }
    }
    Ok(())
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_resize_bilinear(x[n,h,w,c]), where x is i8 or i16, and h and w are not 0", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Resizes quantised images `[n,h,w,c]` to `[n,height,width,c]`, with the scale and the zero point of the images. Each element is a
    /// mean of the four nearest ones. It has the bits of TensorFlow Lite's reference kernel of RESIZE_BILINEAR.
    ///
    /// Fails unless the images are i8 or i16 of rank 4, no side is 0, and the new sides are at most 65536.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::quantized_resize_bilinear::Centres;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[0i8, 40], &[1, 1, 2, 1])?;
    /// assert_eq!(x.quantized_resize_bilinear([1, 4], Centres::Half)?.to_vec::<i8>()?, [0, 10, 30, 40]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_resize_bilinear(&self, size: [u32; 2], centres: Centres) -> Result<Tensor> {
        let y = Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes { size, centres: centres as u32 }]), &[self])?;
        self.quantization().cloned().map_or(Ok(y.clone()), |quantization| y.with_quantization(quantization))
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

    /// Returns the real result: positions and weights without rounding.
    fn exact(x: &[i32], [h, w, c]: [usize; 3], [oh, ow]: [usize; 2], centres: u32, at: usize) -> f64 {
        let place = |at: usize, from: usize, to: usize| {
            let (at, from, to) = (at as f64, from as f64, to as f64);
            let position = match centres {
                0 => at * from / to,
                1 => (at + 0.5) * from / to - 0.5,
                _ => at * (from - 1.0) / (to - 1.0).max(1.0),
            };
            position.clamp(0.0, from - 1.0)
        };
        let (image, y, column, channel) = (at / c / ow / oh, at / c / ow % oh, at / c % ow, at % c);
        let (y, column) = (place(y, h, oh), place(column, w, ow));
        let pixel = |row: f64, column: f64| f64::from(x[((image * h + row as usize) * w + column as usize) * c + channel]);
        let line = |row: f64| {
            let part = column - column.floor();
            pixel(row, column.floor()) * (1.0 - part) + pixel(row, column.ceil()) * part
        };
        let part = y - y.floor();
        line(y.floor()) * (1.0 - part) + line(y.ceil()) * part
    }

    #[test]
    fn near_the_real_mean() {
        for ([n, h, w, c], size) in [([2, 3, 4, 3], [7, 5]), ([1, 5, 6, 1], [2, 6]), ([1, 1, 1, 2], [3, 1]), ([1, 8, 7, 2], [1, 1])] {
            let x = integers(&[n, h, w, c], 1, 30.0);
            let (narrow, wide) = (x.iter().map(|&x| x as i8).collect::<Vec<_>>(), x.iter().map(|&x| 256 * (x as i16)).collect::<Vec<_>>());
            for centres in 0..=2 {
                let attributes = words(Attributes { size, centres });
                let y = run_every_way(&I8, &attributes, &[&Value::new(&narrow, &[n, h, w, c])]);
                let z = run_every_way(&I16, &attributes, &[&Value::new(&wide, &[n, h, w, c])]);
                for (at, (y, z)) in y[0].elements::<i8>().into_iter().zip(z[0].elements::<i16>()).enumerate() {
                    let want = exact(&x, [h, w, c].map(|dim| dim as usize), size.map(|side| side as usize), centres, at);
                    assert!((f64::from(y) - want).abs() < 1.0, "{at}: {y}, not {want}");
                    assert!((f64::from(z) / 256.0 - want).abs() < 0.5, "{at}: {z}, not {want}");
                }
            }
        }
    }

    #[test]
    fn large_results_and_absurd_attributes() {
        // The rounded distance puts the last pixels beyond the end of x.
        let x = Value::new(&(0..8).collect::<Vec<i8>>(), &[1, 8, 1, 1]);
        let y = run_every_way(&I8, &[950, 1, 0], &[&x]);
        assert_eq!(y[0].elements::<i8>()[949], 7);
        for (attributes, index) in [([0, 1, 0], 0), ([1, 65537, 0], 1), ([1, 1, 3], 2)] {
            assert_eq!(run(&I8, &attributes, &[&x], &[]).0, Err(Error::Attribute { index }));
        }
        let empty = Value::new::<i8>(&[], &[1, 2, 0, 1]);
        assert_eq!(run(&I8, &[1, 1, 0], &[&empty], &[]).0, Err(Error::Dimension { input: 0, axis: 2, want: 1, got: 0 }));
        assert_eq!(run_every_way(&I8, &[2, 2, 0], &[&Value::new::<i8>(&[], &[1, 2, 2, 0])])[0].dims(), [1, 2, 2, 0]);
    }
}
