//! Convolutions, dense layers and products of matrices.

use super::super::conv::{depthwise_options, options, transpose_options};
use super::super::node::{Activation, Emit, Imported, Node, one};
use super::super::plan::Inputs;
use super::elementwise::scaling;
use super::{dtype_of, range, supported, whole};
use crate::formats::tflite::{BatchMatMulOptions, ElementType, FullyConnectedOptions};
use crate::tflite::Rounding;
use gradlet_core::ops::Requantization;
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::ops::pad::PadMode;
use gradlet_core::{DType, Error, Quantization, Result, Tensor};

/// Scales of an operator with weights, and the positions of its operands.
struct Weighted {
    input: Quantization,
    filter: Vec<f32>,
    output: Quantization,
    range: Option<(i32, i32)>,
    /// Element type of a bias of zeros, if there is none.
    bias: DType,
}

impl Weighted {
    /// Reads the scales of an operator whose input `x` meets the weights, input 1.
    fn new(node: &Node<'_>, x: usize, activation: Activation) -> Imported<Weighted> {
        let (x, weights, y) = (node.input(x)?, node.input(1)?, node.output(0)?);
        if dtype_of(weights)? != DType::I8 {
            return Err(format!("its weights are {}, not int8", weights.kind));
        }
        if dtype_of(x)? != dtype_of(y)? {
            return Err(format!("its input is {}, but its output {}", x.kind, y.kind));
        }
        let quantization = weights.quantization.as_ref().ok_or("its weights have no scale")?;
        if let Some(other) = quantization.zero_points.iter().find(|&&zero_point| zero_point != 0) {
            return Err(format!("its weights have the zero point {other}, not 0"));
        }
        let bias = if dtype_of(x)? == DType::I16 { DType::I64 } else { DType::I32 };
        let (input, output, filter) = (whole(x)?, whole(y)?, quantization.scales.clone());
        Ok(Weighted { input, filter, output, range: range(activation, y)?, bias })
    }

    fn scaling(&self) -> Requantization<'_> {
        Requantization { input: self.input, filter: &self.filter, output: self.output, range: self.range }
    }

    /// Returns the bias, input `at`, or zeros for `channels` channels.
    fn bias(&self, inputs: &Inputs<'_, '_, '_>, at: usize, channels: u32) -> Result<Tensor> {
        match (inputs.optional(at)?, self.bias) {
            (Some(bias), _) => Ok(bias),
            (None, DType::I64) => Tensor::full(inputs.device(), 0i64, &[channels]),
            (None, _) => Tensor::full(inputs.device(), 0i32, &[channels]),
        }
    }
}

pub(super) fn conv2d<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (conv, activation) = options(node)?;
    let scales = Weighted::new(node, 0, activation)?;
    one(move |inputs| {
        let (x, filter) = (inputs.get(0)?, inputs.get(1)?);
        let bias = scales.bias(inputs, 2, filter.dims().first().copied().unwrap_or(0))?;
        x.quantized_conv2d(&filter, &bias, &conv, &scales.scaling())
    })
}

pub(super) fn depthwise_conv2d<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (conv, activation) = depthwise_options(node)?;
    let scales = Weighted::new(node, 0, activation)?;
    one(move |inputs| {
        let (x, filter) = (inputs.get(0)?, inputs.get(1)?);
        let bias = scales.bias(inputs, 2, filter.dims().last().copied().unwrap_or(0))?;
        x.quantized_depthwise_conv2d(&filter, &bias, &conv, &scales.scaling())
    })
}

/// Imports a dense layer. Without `keep_num_dims`, the result is a matrix.
pub(super) fn fully_connected<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<FullyConnectedOptions<'_>>()?;
    let mut scales = Weighted::new(node, 0, Activation::new(options.fused_activation_function())?)?;
    if let Some(dtype @ DType::I32) = ElementType(options.quantized_bias_type()).dtype() {
        scales.bias = dtype;
    }
    let keep = options.keep_num_dims();
    if options.weights_format() != 0 {
        return Err("its weights are shuffled".into());
    }
    one(move |inputs| {
        let (x, filter) = (inputs.get(0)?, inputs.get(1)?);
        let &[channels, columns] = filter.dims() else { return Err(Error::Rank { input: 1 }) };
        let matrix = x.dims().len() == 2 && x.shape().back(0) == Some(columns);
        let x = if keep || matrix { x } else { x.reshape_open(&[-1, columns.into()])? };
        let (mut scaling, rounding) = (scales.scaling(), inputs.rounding());
        if let (Rounding::TflmF32Scales, &[scale]) = (rounding, scaling.filter) {
            (scaling.input.scale, scaling.filter) = (scaling.input.scale * scale, &[1.0]);
        }
        x.quantized_dense(&filter, &scales.bias(inputs, 2, channels)?, &scaling, rounding != Rounding::TensorFlow)
    })
}

/// Imports a transposed convolution: a convolution of images with zero points between and around their pixels, by the filter turned by
/// half a turn. Input 0 is the shape of its result.
pub(super) fn transpose_conv<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (conv, activation, [height, width]) = transpose_options(node)?;
    let scales = Weighted::new(node, 2, activation)?;
    one(move |inputs| {
        let (filter, x) = (inputs.get(1)?, inputs.get(2)?);
        let &[channels, kh, kw, _] = filter.dims() else { return Err(Error::Rank { input: 1 }) };
        let x = spread(&x, [height, width], [kh, kw], &conv, scales.input.zero_point)?;
        let filter = filter.reverse(&[1, 2])?;
        x.quantized_conv2d(&filter, &scales.bias(inputs, 3, channels)?, &Conv2DOptions::default(), &scales.scaling())
    })
}

/// Returns images whose convolution with a filter of `kernel` is the transposed convolution of `x`: pixels at the distance of a stride, and
/// elements of `zero` around them.
pub(super) fn spread(x: &Tensor, output: [u32; 2], kernel: [u32; 2], conv: &Conv2DOptions, zero: i32) -> Result<Tensor> {
    let &[n, h, w, c] = x.dims() else { return Err(Error::Rank { input: 2 }) };
    let [down, across] = conv.strides;
    let rows = apart(x, [n, h, 1, w.checked_mul(c).ok_or(Error::TooLarge)?], down, zero)?;
    let tall = h.checked_mul(down).ok_or(Error::TooLarge)?;
    let wide = w.checked_mul(across).ok_or(Error::TooLarge)?;
    let pixels = apart(&rows, [n.checked_mul(tall).ok_or(Error::TooLarge)?, w, 1, c], across, zero)?.reshape(&[n, tall, wide, c])?;
    let around = |axis: usize, dim: u32| -> Result<(u32, i64, i64)> {
        let (stride, kernel, output) = (i64::from(conv.strides[axis]), i64::from(kernel[axis]), i64::from(output[axis]));
        let dim = i64::from(dim);
        let total = if conv.padding == Padding::Same { ((dim - 1) * stride + kernel - output).max(0) } else { 0 };
        // The position of the first pixel, and the number of elements of which all windows see one.
        let before = kernel - 1 - total / 2;
        u32::try_from(dim).map(|dim| (dim, before, output + kernel - 1)).map_err(|_| Error::TooLarge)
    };
    let [vertical, horizontal] = [around(0, h)?, around(1, w)?];
    let vertical = placed(&pixels, 1, vertical, zero)?;
    placed(&vertical, 2, horizontal, zero)
}

/// Puts `stride − 1` elements of `zero` after each element of axis 1, with `dims` as the dimensions of x and an axis of 1 after it.
fn apart(x: &Tensor, dims: [u32; 4], stride: u32, zero: i32) -> Result<Tensor> {
    x.reshape(&dims)?.pad(&[(0, 0), (0, 0), (0, stride.saturating_sub(1)), (0, 0)], PadMode::Constant(zero.into()))
}

/// Pads or crops an axis so that its first element comes to position `before` of `length`.
fn placed(x: &Tensor, axis: usize, (_, before, length): (u32, i64, i64), zero: i32) -> Result<Tensor> {
    let dim = i64::from(x.dims().get(axis).copied().unwrap_or(0));
    let (cut_front, cut_back) = ((-before).max(0), (dim + before - length).max(0));
    let kept = (dim - cut_front - cut_back).max(0);
    let begin: Vec<u32> = (0..4).map(|at| if at == axis { cut_front as u32 } else { 0 }).collect();
    let size: Vec<i64> = (0..4).map(|at| if at == axis { kept } else { -1 }).collect();
    let cropped = if cut_front > 0 || cut_back > 0 { x.slice(&begin, &size)? } else { x.clone() };
    let front = u32::try_from(before.max(0)).map_err(|_| Error::TooLarge)?;
    let back = u32::try_from((length - before - dim).max(0)).map_err(|_| Error::TooLarge)?;
    let paddings: Vec<(u32, u32)> = (0..4).map(|at| if at == axis { (front, back) } else { (0, 0) }).collect();
    cropped.pad(&paddings, PadMode::Constant(zero.into()))
}

/// Imports a product of two matrices that are computed.
pub(super) fn batch_matmul<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<BatchMatMulOptions<'_>>()?;
    let (adj_x, adj_y) = (options.adj_x(), options.adj_y());
    supported(node, &[DType::I8, DType::I16])?;
    let (left, right) = (node.input(0)?, node.input(1)?);
    let (dtype, other) = (dtype_of(left)?, dtype_of(right)?);
    if other != dtype && (dtype, other) != (DType::I16, DType::I8) {
        return Err(format!("its matrices are {} and {}", left.kind, right.kind));
    }
    let scaling = scaling(node, 0)?;
    if dtype == DType::I16 && [scaling.left, scaling.right, scaling.output].iter().any(|quantization| quantization.zero_point != 0) {
        return Err("a zero point is not 0".into());
    }
    one(move |inputs| inputs.get(0)?.quantized_matmul(&inputs.get(1)?.cast(dtype)?, adj_x, adj_y, &scaling))
}
