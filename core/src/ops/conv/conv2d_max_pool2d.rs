//! Convolution, an optional relu, and max pooling in one op: `y = max_pool2d(relu(conv2d(x, filter, bias)))`. The convolution runs row by
//! row, so its full-size result never exists. The inputs are those of `conv2d`. Element types: f32 and f64, and u8 for the positions.
//!
//! The results are y, the positions of the winners, and the last row of the convolution, which is the op's working memory. A winner is the
//! maximum of a window. Its position counts the pixels of the window in row-major order. It is 255 if relu follows and y is not above 0,
//! because no gradient passes then.
//!
//! y has the bits of `conv2d`, `relu` and `max_pool2d`. The pooling windows do not overlap, are not padded, and have at most 255
//! positions. The convolution is not dilated horizontally.

use crate::base::dtype::{DType, Float};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d;
use crate::ops::conv2d::{Convolution, check_dim, dims4, filter4};
use crate::ops::shared::contraction::check_bias;
use crate::ops::shared::pooling::beats;
use crate::ops::shared::window::{clear, groups, split};
use crate::ops::shared::winners::{CUT, Pools};
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Attributes of the convolution.
    pub conv: conv2d::Attributes,
    /// Height and width of the pooling window.
    pub ksize: [u32; 2],
    /// 1 if relu follows the convolution, otherwise 0.
    pub relu: u32,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::conv2d_max_pool2d, name: "conv2d_max_pool2d", inputs: (2, 3), outputs: 3, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let x = dims4(inputs, 0)?;
    let [kh, kw, ci, co] = filter4(inputs, 1)?;
    let [n, _, _, c] = x;
    check_dim(1, 2, c, ci)?;
    let ([first, _, bias @ ..], [y, winners, row]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    check_bias(bias, first.dtype, co)?;
    let pools = Pools::new(&attributes.conv, x, [kh, kw], attributes.ksize, 9)?;
    if attributes.relu > 1 {
        return Err(Error::Attribute { index: 11 });
    }
    let [height, width] = pools.output();
    let pooled = Shape::new(&[n, height as u32, width as u32, co])?;
    (*y, *winners) = (TensorType::new(first.dtype, pooled), TensorType::new(DType::U8, pooled));
    *row = TensorType::new(first.dtype, Shape::new(&[pools.across() as u32, co])?);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let convolution = Convolution::<T>::of(call, &attributes.conv)?;
    let &[n, height, width, co] = call.output()?.dims() else { return Err(Error::Internal) };
    let ([tall, wide], co) = (attributes.ksize.map(|size| size as usize), co as usize);
    let (height, width) = (height as usize * tall, width as usize * wide);
    let pixels = convolution.rows(call, n as usize * height, width, 16 * co + 60);
    let [y, winners, row] = call.outputs else { return Err(Error::Internal) };
    let (y, winners, row) = (y.slice_mut::<T>(), winners.slice_mut::<u8>(), row.slice_mut::<T>());
    if pixels.start == 0 {
        clear(row);
    }
    for (line, columns) in groups(pixels, width) {
        let ((image, oh), (above, down)) = (split(line, height), split(line, tall));
        let row = row.get_mut(columns.start * co..columns.end * co).unwrap_or(&mut []);
        convolution.pixels(row, image, oh, columns.clone());
        for (pixel, column) in row.chunks_exact(co.max(1)).zip(columns) {
            let (window, across) = split(above * width + column, wide);
            let window = window * co..window * co + co;
            let (Some(y), Some(winners)) = (y.get_mut(window.clone()), winners.get_mut(window)) else { continue };
            let position = down * wide + across;
            compete(y, winners, pixel, position);
            if attributes.relu == 1 && position + 1 == tall * wide {
                cut(y, winners);
            }
        }
    }
    Ok(())
}

/// Compares a pixel of the convolution's result with the greatest elements of its window so far. A greater one takes the place in `y`, and
/// its position in the window the place in `winners`. The first pixel takes all places.
fn compete<T: Float>(y: &mut [T], winners: &mut [u8], pixel: &[T], position: usize) {
    for ((y, winner), &x) in y.iter_mut().zip(winners).zip(pixel) {
        if position == 0 || beats(x, *y) {
            (*y, *winner) = (x, position as u8);
        }
    }
}

/// Applies relu to the maxima. Only those above 0 pass a gradient on.
#[inline(always)]
fn cut<T: Float>(y: &mut [T], winners: &mut [u8]) {
    for (y, winner) in y.iter_mut().zip(winners) {
        *winner = if *y > T::ZERO { *winner } else { CUT };
        *y = if *y <= T::ZERO { T::ZERO } else { *y };
    }
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op. It has no gradient of its own, because it is made of ops whose gradients are part of the graph already.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("Conv2DMaxPool"),
    ..Op::total(
        &DEF,
        "conv2d_max_pool2d(x[n,h,w,c], filter[kh,kw,c,co], optional bias[co]), all f32 or all f64",
        Gradient::Missing("only plans for devices contain it, and they are not differentiated"),
    )
};

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::{cases as convolutions, output, words};
    use crate::ops::shared::pooling;
    use crate::ops::shared::testing::{Value, floats, run_every_way};
    use crate::ops::{max_pool2d, relu};
    use std::vec::Vec;

    /// The dimensions of images, filter and pooled result, and the attributes.
    type Case = ([u32; 4], [u32; 4], [u32; 4], Attributes);

    /// Returns test cases with all kinds of convolutions and windows.
    pub(in crate::ops) fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for (index, (x, filter, conv)) in convolutions().into_iter().enumerate() {
            let Some([n, h, w, co]) = output(x, filter, &conv) else { continue };
            let ksize = [[2, 2], [1, 3], [3, 1], [3, 2], [1, 1]][index % 5];
            if conv.dilations[1] == 1 {
                cases.push((x, filter, [n, h / ksize[0], w / ksize[1], co], Attributes { conv, ksize, relu: index as u32 % 2 }));
            }
        }
        assert!(cases.len() > 200);
        cases
    }

    /// Returns the attributes of the pooling.
    pub(in crate::ops) fn pooling(ksize: [u32; 2]) -> Vec<u32> {
        words(pooling::Attributes { ksize, strides: ksize, padding: 0 })
    }

    /// Returns a value whose elements are integers, so that there are ties.
    pub(in crate::ops) fn ties(dims: &[u32], seed: u32) -> Value {
        Value::new(&floats(dims, seed).elements::<f32>().iter().map(|x| x.round()).collect::<Vec<_>>(), dims)
    }

    /// Returns the result of the convolution, after relu if there is one.
    pub(in crate::ops) fn full_size(inputs: &[&Value], attributes: &Attributes) -> Value {
        let full = run_every_way(&conv2d::F32, &words(attributes.conv), inputs).remove(0);
        if attributes.relu == 1 { run_every_way(&relu::F32, &[], &[&full]).remove(0) } else { full }
    }

    #[test]
    fn has_the_bits_of_the_three_ops() {
        for (x_dims, filter_dims, _, attributes) in cases() {
            let (x, filter, bias) = (ties(&x_dims, 1), ties(&filter_dims, 2), ties(&filter_dims[3..], 3));
            for inputs in [&[&x, &filter, &bias][..], &[&x, &filter]] {
                let want = run_every_way(&max_pool2d::F32, &pooling(attributes.ksize), &[&full_size(inputs, &attributes)]).remove(0);
                assert!(run_every_way(&F32, &words(attributes), inputs)[0] == want, "{x_dims:?} {filter_dims:?} {attributes:?}");
            }
        }
    }

    #[test]
    fn winners_and_row() {
        let one = Value::new(&[1.0f32], &[1, 1, 1, 1]);
        let x = [1.0, 3.0, -1.0, -2.0, 5.0, f32::NAN, 0.0, 9.0, 3.0, 2.0, -3.0, 0.0, 0.0, 5.0, 6.0, 9.0, 8.0, 8.0];
        let x = Value::new(&x, &[1, 2, 9, 1]);
        for (relu, winners) in [(0, [1u8, 2, 1, 1]), (1, [1, CUT, CUT, 1])] {
            let conv = conv2d::Attributes { strides: [1, 1], dilations: [1, 1], padding: 0, pads: [0; 4] };
            let got = run_every_way(&F32, &words(Attributes { conv, ksize: [2, 2], relu }), &[&x, &one]);
            assert_eq!(got[1], Value::new(&winners, &[1, 1, 4, 1]), "relu {relu}");
            // No window covers the last pixel.
            let row = [&x.elements::<f32>()[9..17], &[0.0]].concat();
            assert_eq!(got[2], Value::new(&row, &[9, 1]));
        }
    }

    #[test]
    fn absurd_attributes_are_refused() {
        let types = [[1, 4, 4, 1], [2, 2, 1, 1]].map(|dims| TensorType::new(crate::DType::F32, Shape::new(&dims).unwrap()));
        let refuse = |dilations, ksize, relu| {
            let conv = conv2d::Attributes { strides: [1, 1], dilations, padding: 0, pads: [0; 4] };
            DEF.output_types(&types, &words(Attributes { conv, ksize, relu })).map(|_| ()).unwrap_err()
        };
        assert_eq!(refuse([1, 2], [2, 2], 0), Error::Attribute { index: 3 });
        assert_eq!(refuse([1, 1], [0, 2], 0), Error::Attribute { index: 9 });
        assert_eq!(refuse([1, 1], [2, 0], 0), Error::Attribute { index: 10 });
        assert_eq!(refuse([1, 1], [16, 16], 0), Error::Attribute { index: 9 });
        assert_eq!(refuse([1, 1], [u32::MAX, u32::MAX], 0), Error::Attribute { index: 9 });
        assert_eq!(refuse([1, 1], [2, 2], 2), Error::Attribute { index: 11 });
        let conv = conv2d::Attributes { strides: [1, 1], dilations: [1, 1], padding: 0, pads: [0; 4] };
        assert!(DEF.output_types(&types, &words(Attributes { conv, ksize: [15, 17], relu: 1 })).is_ok());
    }
}
