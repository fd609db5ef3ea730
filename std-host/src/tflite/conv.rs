//! Convolutions and pooling.

use super::node::{Activation, Emit, Imported, Node, one, padding, positive};
use crate::formats::tflite::{Conv2DOptions as Conv, DepthwiseConv2DOptions, Pool2DOptions, TransposeConvOptions};
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::{Error, Result, Tensor};

/// Order of the axes of a filter `[co,kh,kw,c]` as `[kh,kw,c,co]`.
pub(super) const HEIGHT_FIRST: &[usize] = &[1, 2, 3, 0];
/// Order of the axes of a transposed convolution's filter `[co,kh,kw,c]` as `[kh,kw,co,c]`.
pub(super) const TRANSPOSED: &[usize] = &[1, 2, 0, 3];

/// Returns the options of a convolution.
pub(super) fn options(node: &Node<'_>) -> Imported<(Conv2DOptions, Activation)> {
    let options = node.options::<Conv<'_>>()?;
    let conv = Conv2DOptions::default()
        .padding(padding(options.padding())?)
        .strides(positive("strides", [options.stride_h(), options.stride_w()])?)
        .dilations(positive("dilations", [options.dilation_h_factor(), options.dilation_w_factor()])?);
    Ok((conv, Activation::new(options.fused_activation_function())?))
}

/// Returns the options of a depthwise convolution.
pub(super) fn depthwise_options(node: &Node<'_>) -> Imported<(Conv2DOptions, Activation)> {
    let options = node.options::<DepthwiseConv2DOptions<'_>>()?;
    let conv = Conv2DOptions::default()
        .padding(padding(options.padding())?)
        .strides(positive("strides", [options.stride_h(), options.stride_w()])?)
        .dilations(positive("dilations", [options.dilation_h_factor(), options.dilation_w_factor()])?);
    Ok((conv, Activation::new(options.fused_activation_function())?))
}

/// Returns the options of a transposed convolution, and the height and width of its result.
pub(super) fn transpose_options(node: &Node<'_>) -> Imported<(Conv2DOptions, Activation, [u32; 2])> {
    let options = node.options::<TransposeConvOptions<'_>>()?;
    let conv = Conv2DOptions::default()
        .padding(padding(options.padding())?)
        .strides(positive("strides", [options.stride_h(), options.stride_w()])?);
    let shape = node.numbers::<u32>(0)?;
    let &[_, height, width, _] = shape.as_slice() else { return Err(format!("its shape is {shape:?}")) };
    Ok((conv, Activation::new(options.fused_activation_function())?, [height, width]))
}

/// Returns the activation of a pooling, its padding, its strides and the sides of its window.
pub(super) fn pool_options(node: &Node<'_>) -> Imported<(Activation, Padding, [u32; 2], [u32; 2])> {
    let options = node.options::<Pool2DOptions<'_>>()?;
    let strides = positive("strides", [options.stride_h(), options.stride_w()])?;
    let size = positive("window's sides", [options.filter_height(), options.filter_width()])?;
    Ok((Activation::new(options.fused_activation_function())?, padding(options.padding())?, strides, size))
}

/// Imports a convolution. If the filter has a fraction of the images' channels, each group of channels has its own filters.
pub(super) fn conv2d<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (conv, activation) = options(node)?;
    one(move |inputs| {
        let (x, filter, bias) = (inputs.get(0)?, inputs.transposed(1, HEIGHT_FIRST)?, inputs.optional(2)?);
        activation.apply(grouped(&x, &filter, bias.as_ref(), &conv)?)
    })
}

fn grouped(x: &Tensor, filter: &Tensor, bias: Option<&Tensor>, conv: &Conv2DOptions) -> Result<Tensor> {
    let (&[.., channels], &[_, _, of_filter, _]) = (x.dims(), filter.dims()) else { return Err(Error::Rank { input: 0 }) };
    if channels == of_filter || of_filter == 0 || !channels.is_multiple_of(of_filter) {
        return x.conv2d(filter, bias, conv);
    }
    let groups = channels / of_filter;
    let parts = x.split(groups, -1)?.into_iter().zip(filter.split(groups, -1)?);
    let parts = parts.map(|(x, filter)| x.conv2d(&filter, None, conv)).collect::<Result<Vec<Tensor>>>()?;
    let y = Tensor::concat(&parts, -1)?;
    bias.map_or(Ok(y.clone()), |bias| y.add(bias))
}

/// Imports a depthwise convolution. Its filter `[1,kh,kw,c·m]` has the order of `[kh,kw,c,m]`.
pub(super) fn depthwise_conv2d<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (conv, activation) = depthwise_options(node)?;
    one(move |inputs| {
        let (x, filter, bias) = (inputs.get(0)?, inputs.get(1)?, inputs.optional(2)?);
        let channels = x.dims().last().copied().unwrap_or(0);
        let dims = depthwise_filter(&inputs.dims(1)?, channels).ok_or(Error::Rank { input: 1 })?;
        // A variable has these dimensions already.
        let filter = if filter.dims() == dims { filter } else { filter.reshape(&dims)? };
        activation.apply(x.depthwise_conv2d(&filter, bias.as_ref(), &conv)?)
    })
}

/// Returns the dimensions `[kh,kw,c,m]` of a depthwise filter `[1,kh,kw,c·m]`.
pub(super) fn depthwise_filter(dims: &[u32], channels: u32) -> Option<[u32; 4]> {
    let &[_, height, width, of_filter] = dims else { return None };
    Some([height, width, channels, of_filter.checked_div(channels).unwrap_or(1)])
}

/// Imports a transposed convolution. Input 0 is the shape of its result.
pub(super) fn transpose_conv<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (conv, activation, [height, width]) = transpose_options(node)?;
    one(move |inputs| {
        let (filter, x, bias) = (inputs.transposed(1, TRANSPOSED)?, inputs.get(2)?, inputs.optional(3)?);
        let y = x.conv2d_transpose(&filter, &conv, [height, width])?;
        activation.apply(bias.map_or(Ok(y.clone()), |bias| y.add(&bias))?)
    })
}

/// Imports a pooling.
pub(super) fn pool<'m>(node: &Node<'m>, pool: fn(&Tensor, [u32; 2], [u32; 2], Padding) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let (activation, padding, strides, size) = pool_options(node)?;
    one(move |inputs| activation.apply(pool(&inputs.get(0)?, size, strides, padding)?))
}

/// Returns the square roots of the mean squares of windows.
pub(super) fn l2_pool(x: &Tensor, size: [u32; 2], strides: [u32; 2], padding: Padding) -> Result<Tensor> {
    x.square()?.avg_pool2d(size, strides, padding)?.sqrt()
}
