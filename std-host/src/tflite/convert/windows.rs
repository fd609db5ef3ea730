//! Convolutions, pooling, and products of matrices.

use super::arrays::{attributes, padding};
use super::emitter::{Converted, Emitter};
use crate::formats::tflite::write::{Field, Options};
use gradlet_core::function::graph::{Node, ValueId};
use gradlet_core::ops::conv2d::Attributes;
use gradlet_core::ops::{avg_pool2d, conv2d_input_grad};
use gradlet_core::{DType, Shape, Tensor, TensorType};

/// Number of a kind of padding in the format. That of gradlet is 0 for valid and 1 for same.
fn numbered(padding: u32) -> i8 {
    i8::from(padding != 1)
}

/// Returns the options of a convolution. `after` is the slot after the strides.
fn options(key: u8, window: &Attributes, after: u16) -> Options {
    let ([down, across], [below, beside]) = (window.strides, window.dilations);
    let sides = [(1, across), (2, down), (after + 1, beside), (after + 2, below)];
    let sides = sides.map(|(slot, number)| (slot, Field::I32(number as i32)));
    Some((key, [vec![(0, Field::I8(numbered(window.padding)))], sides.to_vec()].concat()))
}

/// Options of a convolution.
pub(super) fn convolution(window: &Attributes) -> Options {
    options(1, window, 3)
}

/// Options of a depthwise convolution with `multiplier` filters for each channel.
pub(super) fn depthwise(window: &Attributes, multiplier: u32) -> Options {
    options(2, window, 4).map(|(key, fields)| (key, [fields, vec![(3, Field::I32(multiplier as i32))]].concat()))
}

/// Returns the images of a convolution, in the middle of their explicit padding.
pub(super) fn padded(to: &mut Emitter<'_>, id: ValueId, window: &Attributes) -> Converted<i32> {
    let x = to.tensor(id)?;
    let [top, bottom, left, right] = window.pads;
    if window.padding != 2 {
        return Ok(x);
    }
    let kind = to.kind(id);
    let &[n, h, w, c] = kind.shape.dims() else { return Err("its images do not have four dimensions".into()) };
    let around = Shape::new(&[n, h.saturating_add(top).saturating_add(bottom), w.saturating_add(left).saturating_add(right), c])
        .map_err(|error| error.to_string())?;
    let scale = to.scale(id).ok().map(Into::into);
    let (padding, y) = (padding(to, &[0, 0, top, bottom, left, right, 0, 0])?, to.temporary(TensorType::new(kind.dtype, around), scale)?);
    to.operator("PAD", &[x, padding], &[y], None);
    Ok(y)
}

/// Returns an operand in another order of its axes: a constant, or the result of an operator.
fn turned(to: &mut Emitter<'_>, id: ValueId, order: &[u32]) -> Converted<i32> {
    let wrong = |error: gradlet_core::Error| error.to_string();
    if let Some(constant) = to.source.constant(id) {
        let constant = constant.transpose(order).map_err(wrong)?;
        return to.constant(&constant, None);
    }
    let kind = to.kind(id);
    let dims: Vec<u32> = order.iter().map(|&axis| kind.shape.dims()[axis as usize]).collect();
    let turned = TensorType::new(kind.dtype, Shape::new(&dims).map_err(wrong)?);
    let (x, order, y) = (to.tensor(id)?, to.shape(order)?, to.temporary(turned, None)?);
    to.operator("TRANSPOSE", &[x, order], &[y], None);
    Ok(y)
}

/// Returns the bias of a node, operand 2, or zeros for `channels` channels.
fn bias(to: &mut Emitter<'_>, node: &Node, channels: u32) -> Converted<i32> {
    match node.inputs.get(2) {
        Some(&bias) => to.tensor(bias),
        None => {
            let zeros = Tensor::full(&gradlet_core::ops::portable_cpu(), 0.0f32, &[channels]);
            to.constant(&zeros.map_err(|error| error.to_string())?, None)
        }
    }
}

/// Adds a convolution. The filter of gradlet is `[kh,kw,ci,co]`, that of the format `[co,kh,kw,ci]`.
pub(super) fn conv2d(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let window: Attributes = attributes(node)?;
    let channels = to.dims(node.outputs[0]).last().copied().unwrap_or(0);
    let (x, filter, bias) = (padded(to, node.inputs[0], &window)?, turned(to, node.inputs[1], &[3, 0, 1, 2])?, bias(to, node, channels)?);
    let y = to.result(node.outputs[0])?;
    to.operator("CONV_2D", &[x, filter, bias], &[y], convolution(&window));
    Ok(())
}

/// Adds a depthwise convolution. The filter of gradlet is `[kh,kw,c,m]`, that of the format `[1,kh,kw,c·m]`.
pub(super) fn depthwise_conv2d(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let window: Attributes = attributes(node)?;
    let &[kh, kw, c, m] = to.dims(node.inputs[1]).as_slice() else { return Err("its filter does not have four dimensions".into()) };
    let (x, bias) = (padded(to, node.inputs[0], &window)?, bias(to, node, c * m)?);
    let dims = [1, kh, kw, c * m];
    let wrong = |error: gradlet_core::Error| error.to_string();
    let filter = match to.source.constant(node.inputs[1]) {
        Some(filter) => to.constant(&filter.reshape(&dims).map_err(wrong)?, None)?,
        None => {
            let (own, filter) = (to.tensor(node.inputs[1])?, TensorType::new(DType::F32, Shape::new(&dims).map_err(wrong)?));
            let filter = to.temporary(filter, None)?;
            to.reshape(own, filter)?;
            filter
        }
    };
    let y = to.result(node.outputs[0])?;
    to.operator("DEPTHWISE_CONV_2D", &[x, filter, bias], &[y], depthwise(&window, m));
    Ok(())
}

/// Adds a transposed convolution. The filter of gradlet is `[kh,kw,co,ci]`, that of the format `[co,kh,kw,ci]`.
pub(super) fn conv2d_transpose(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let conv2d_input_grad::Attributes { conv, .. } = attributes(node)?;
    if conv.padding == 2 || conv.dilations != [1, 1] {
        return Err("it has dilations or an explicit padding, which TRANSPOSE_CONV does not have".into());
    }
    let dims = to.dims(node.outputs[0]);
    let (shape, filter, x) = (to.shape(&dims)?, turned(to, node.inputs[0], &[2, 0, 1, 3])?, to.tensor(node.inputs[1])?);
    let y = to.result(node.outputs[0])?;
    let [down, across] = conv.strides.map(|stride| Field::I32(stride as i32));
    let fields = vec![(0, Field::I8(numbered(conv.padding))), (1, across), (2, down)];
    to.operator("TRANSPOSE_CONV", &[shape, filter, x], &[y], Some((49, fields)));
    Ok(())
}

/// Returns the options of a pooling.
pub(super) fn pooling(window: &avg_pool2d::Attributes) -> Vec<(u16, Field)> {
    let ([down, across], [high, wide]) = (window.strides, window.ksize);
    let sides = [(1, across), (2, down), (3, wide), (4, high)].map(|(slot, number)| (slot, Field::I32(number as i32)));
    [vec![(0, Field::I8(numbered(window.padding)))], sides.to_vec()].concat()
}

pub(super) fn pool(to: &mut Emitter<'_>, node: &Node, name: &'static str) -> Converted<()> {
    to.same(node, name, Some((5, pooling(&attributes(node)?))))
}

/// Adds a dense layer. The kernel of the format is `[n,k]`.
pub(super) fn dense(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let dims = to.dims(node.outputs[0]);
    let kernel = match node.attributes.first() {
        Some(1) => to.tensor(node.inputs[1])?,
        _ => turned(to, node.inputs[1], &[1, 0])?,
    };
    let (x, bias) = (to.tensor(node.inputs[0])?, bias(to, node, dims.last().copied().unwrap_or(0))?);
    let y = to.result(node.outputs[0])?;
    to.operator("FULLY_CONNECTED", &[x, kernel, bias], &[y], fully_connected(dims.len()));
    Ok(())
}

/// Options of a dense layer whose result has `rank` axes.
pub(super) fn fully_connected(rank: usize) -> Options {
    Some((8, if rank == 2 { Vec::new() } else { vec![(2, Field::Bool(true))] }))
}

pub(super) fn matmul(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let &[left, right] = node.attributes.as_slice() else { return Err("it has no attributes".into()) };
    to.same(node, "BATCH_MATMUL", products([left, right]))
}

/// Options of a product of matrices, whose operands can be transposed.
pub(super) fn products(transposed: [u32; 2]) -> Options {
    let [left, right] = transposed.map(|transposed| Field::Bool(transposed == 1));
    Some((101, vec![(0, left), (1, right)]))
}
