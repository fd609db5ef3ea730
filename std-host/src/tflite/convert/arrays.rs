//! Operators that move, choose and reduce elements.

use super::emitter::{Converted, Emitter, integers};
use crate::formats::tflite::ElementType;
use crate::formats::tflite::write::{Field, Options};
use gradlet_core::custom_op::read_attributes;
use gradlet_core::function::graph::Node;
use gradlet_core::ops::{argmax, cumsum, gather};
use gradlet_core::{DType, Shape, TensorType};

/// Reads the attributes of a node.
pub(super) fn attributes<T: bytemuck::AnyBitPattern>(node: &Node) -> Converted<T> {
    read_attributes(&node.attributes).map_err(|error| error.to_string())
}

/// Adds a comparison. The kernels compare small integers as the numbers for which they stand, with 8 bits after the point.
pub(super) fn compare(to: &mut Emitter<'_>, node: &Node, name: &'static str) -> Converted<()> {
    let kind = to.kind(node.inputs[0]);
    let scales = [0, 1].map(|at| to.scale(node.inputs[at]).ok());
    let exact = scales[0] == scales[1] && scales[0].is_some_and(|scale| scale.scale >= 1.0 / 256.0);
    if !matches!(kind.dtype, DType::I8 | DType::U8 | DType::I16) || exact && kind.dtype != DType::I16 {
        return to.same(node, name, None);
    }
    let mut wide = Vec::new();
    for &id in &node.inputs {
        let (x, y) = (to.tensor(id)?, to.temporary(TensorType::new(DType::I32, to.kind(id).shape), None)?);
        to.operator("CAST", &[x], &[y], None);
        wide.push(y);
    }
    let y = to.result(node.outputs[0])?;
    to.operator(name, &wide, &[y], None);
    Ok(())
}

/// Adds a cast. One of floats to 8 bits goes through 32 bits, as in gradlet.
pub(super) fn cast(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (from, into) = (to.kind(node.inputs[0]), to.kind(node.outputs[0]));
    if !from.dtype.is_float() || !matches!(into.dtype, DType::I8 | DType::U8) {
        return to.same(node, "CAST", None);
    }
    let (x, wide) = (to.tensor(node.inputs[0])?, to.temporary(TensorType::new(DType::I32, from.shape), None)?);
    let y = to.result(node.outputs[0])?;
    to.operator("CAST", &[x], &[wide], None);
    to.operator("CAST", &[wide], &[y], None);
    Ok(())
}

/// Adds a division that is rounded down. That of floats is two operators, because FLOOR_DIV refuses a zero.
pub(super) fn floordiv(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let kind = to.kind(node.outputs[0]);
    if kind.dtype != DType::F32 {
        return to.same(node, "FLOOR_DIV", None);
    }
    let (operands, ratio) = (to.operands(node)?, to.temporary(kind, None)?);
    let y = to.result(node.outputs[0])?;
    to.operator("DIV", &operands, &[ratio], Some((29, Vec::new())));
    to.operator("FLOOR", &[ratio], &[y], None);
    Ok(())
}

/// Adds a reduction. The attributes are `[keepdims, axis…]`.
pub(super) fn reduce(to: &mut Emitter<'_>, node: &Node, name: &'static str) -> Converted<()> {
    let (keep, axes) = node.attributes.split_first().ok_or("it has no axes")?;
    let axes = to.shape(axes)?;
    to.with(node, name, &[axes], keeping(*keep == 1))
}

/// Options of a reduction.
pub(super) fn keeping(keep: bool) -> Options {
    Some((27, vec![(0, Field::Bool(keep))]))
}

/// Adds the position of an extreme.
pub(super) fn position(to: &mut Emitter<'_>, node: &Node, name: &'static str, key: u8) -> Converted<()> {
    let argmax::Attributes { axis, .. } = attributes(node)?;
    let dtype = to.kind(node.inputs[0]).dtype;
    if !matches!(dtype, DType::F32 | DType::I32 | DType::I8 | DType::U8) {
        return Err(format!("its operator does not take elements of type {dtype}"));
    }
    let kind = ElementType::from(to.kind(node.outputs[0]).dtype);
    let axis = to.number(axis as i32)?;
    to.with(node, name, &[axis], Some((key, vec![(0, Field::I8(kind.0))])))
}

pub(super) fn cumsum(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let cumsum::Attributes { axis, exclusive, reverse } = attributes(node)?;
    let axis = to.number(axis as i32)?;
    to.with(node, "CUMSUM", &[axis], Some((102, vec![(0, Field::Bool(exclusive == 1)), (1, Field::Bool(reverse == 1))])))
}

/// Adds a softmax. That of the format is along the last axis.
pub(super) fn softmax(to: &mut Emitter<'_>, node: &Node, name: &'static str, options: Options) -> Converted<()> {
    let (axis, rank) = (node.attributes.first().map_or(0, |&axis| axis as usize), to.dims(node.inputs[0]).len());
    if axis + 1 == rank {
        return to.same(node, name, options);
    }
    let mut order: Vec<u32> = (0..rank as u32).collect();
    order.swap(axis, rank - 1);
    let kind = to.kind(node.inputs[0]);
    let dims: Vec<u32> = order.iter().map(|&axis| kind.shape.dims()[axis as usize]).collect();
    let turned = TensorType::new(kind.dtype, Shape::new(&dims).map_err(|error| error.to_string())?);
    let (x, order, [before, after]) =
        (to.tensor(node.inputs[0])?, to.shape(&order)?, [to.temporary(turned, None)?, to.temporary(turned, None)?]);
    let y = to.result(node.outputs[0])?;
    to.operator("TRANSPOSE", &[x, order], &[before], None);
    to.operator(name, &[before], &[after], options);
    to.operator("TRANSPOSE", &[after, order], &[y], None);
    Ok(())
}

pub(super) fn reshape(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (x, y) = (to.tensor(node.inputs[0])?, to.result(node.outputs[0])?);
    to.reshape(x, y)
}

pub(super) fn transpose(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let order = to.shape(&node.attributes)?;
    to.with(node, "TRANSPOSE", &[order], None)
}

pub(super) fn broadcast_to(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let dims = to.shape(&node.attributes)?;
    to.with(node, "BROADCAST_TO", &[dims], None)
}

/// Returns the tensors of a node's first `count` operands. If they are quantized, they must have the scale of the result.
fn alike(to: &mut Emitter<'_>, node: &Node, count: usize) -> Converted<Vec<i32>> {
    let scale = to.scale(node.outputs[0]).ok();
    node.inputs.iter().take(count).map(|&id| to.tensor_with(id, scale)).collect()
}

pub(super) fn concat(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (parts, y) = (alike(to, node, node.inputs.len())?, to.result(node.outputs[0])?);
    let axis = node.attributes.first().map_or(0, |&axis| axis as i32);
    to.operator("CONCATENATION", &parts, &[y], Some((10, vec![(0, Field::I32(axis))])));
    Ok(())
}

pub(super) fn extreme(to: &mut Emitter<'_>, node: &Node, name: &'static str) -> Converted<()> {
    let (operands, y) = (alike(to, node, 2)?, to.result(node.outputs[0])?);
    to.operator(name, &operands, &[y], None);
    Ok(())
}

/// Adds a selection. gradlet has the condition last, the format first.
pub(super) fn select(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (chosen, condition) = (alike(to, node, 2)?, node.inputs.get(2).ok_or("it has no condition")?);
    let &[x, otherwise] = chosen.as_slice() else { return Err("it has no choice".into()) };
    let condition = to.tensor(*condition)?;
    let y = to.result(node.outputs[0])?;
    to.operator("SELECT_V2", &[condition, x, otherwise], &[y], None);
    Ok(())
}

pub(super) fn gather(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let gather::Attributes { axis, batch_dims, negative } = attributes(node)?;
    if negative != 0 {
        return Err("it gives zeros for negative indices, but GATHER does not".into());
    }
    to.same(node, "GATHER", Some((23, vec![(0, Field::I32(axis as i32)), (1, Field::I32(batch_dims as i32))])))
}

pub(super) fn scatter_nd(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let operands = to.operands(node)?;
    let &[updates, mut indices] = operands.as_slice() else { return Err("it has no indices".into()) };
    let kind = to.kind(node.inputs[1]);
    if kind.dtype != DType::I32 {
        let narrow = to.temporary(TensorType::new(DType::I32, kind.shape), None)?;
        to.operator("CAST", &[indices], &[narrow], None);
        indices = narrow;
    }
    let (dims, y) = (to.shape(&node.attributes)?, to.result(node.outputs[0])?);
    to.operator("SCATTER_ND", &[indices, updates, dims], &[y], None);
    Ok(())
}

/// Adds the replacement of one slice. The operands are a tensor, the slice, and a matrix of one row that selects its
/// position.
pub(super) fn scatter_update(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let wrong = |error: gradlet_core::Error| error.to_string();
    let &[x, update, index] = node.inputs.as_slice() else { return Err("it has no indices".into()) };
    let (dims, chosen) = (to.dims(x), to.kind(index));
    let (components, slices) = match chosen.shape.dims() {
        [rows @ .., components] => (*components as usize, rows.iter().product::<u32>()),
        [] => return Err("its indices are a scalar, but must be a matrix of one row".into()),
    };
    if slices != 1 {
        return Err(format!("it replaces {slices} slices, but DYNAMIC_UPDATE_SLICE replaces one"));
    }
    let (operand, index) = (to.tensor(x)?, to.tensor(index)?);
    let list = |dtype: DType, count: usize| Shape::new(&[count as u32]).map(|shape| TensorType::new(dtype, shape)).map_err(wrong);
    let mut begin = to.temporary(list(chosen.dtype, components)?, None)?;
    to.reshape(index, begin)?;
    if chosen.dtype != DType::I32 {
        let narrow = to.temporary(list(DType::I32, components)?, None)?;
        to.operator("CAST", &[begin], &[narrow], None);
        begin = narrow;
    }
    if components < dims.len() {
        let (zeros, whole) = (to.list(&vec![0; dims.len() - components])?, to.temporary(list(DType::I32, dims.len())?, None)?);
        to.operator("CONCATENATION", &[begin, zeros], &[whole], Some((10, vec![(0, Field::I32(0))])));
        begin = whole;
    }
    let slice: Vec<u32> = dims.iter().enumerate().map(|(axis, &dim)| if axis < components { 1 } else { dim }).collect();
    let slice = TensorType::new(to.kind(update).dtype, Shape::new(&slice).map_err(wrong)?);
    let (own, update) = (to.tensor(update)?, to.temporary(slice, None)?);
    to.reshape(own, update)?;
    let y = to.result(node.outputs[0])?;
    to.operator("DYNAMIC_UPDATE_SLICE", &[operand, update, begin], &[y], None);
    Ok(())
}

pub(super) fn top_k(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (x, k) = (to.tensor(node.inputs[0])?, to.number(node.attributes.first().map_or(0, |&k| k as i32))?);
    let outputs = node.outputs.iter().map(|&id| to.result(id)).collect::<Converted<Vec<i32>>>()?;
    to.operator("TOPK_V2", &[x, k], &outputs, None);
    Ok(())
}

/// Adds a slice. The attributes of each axis are its begin, its step and its number of elements.
pub(super) fn strided_slice(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (mut begins, mut ends, mut steps, mut open) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (axis, &[begin, step, count]) in node.attributes.as_chunks::<3>().0.iter().enumerate() {
        let (begin, step) = (i64::from(begin), i64::from(step as i32));
        let end = begin + step * i64::from(count);
        // An end before the first element would count from the last one.
        if end < 0 {
            open |= 1 << axis;
        }
        begins.push(begin as i32);
        ends.push(end.clamp(0, i32::MAX.into()) as i32);
        steps.push(step as i32);
    }
    let lists = [to.list(&begins)?, to.list(&ends)?, to.list(&steps)?];
    to.with(node, "STRIDED_SLICE", &lists, Some((32, vec![(1, Field::I32(open))])))
}

/// Adds a padding. The attributes of each axis are the position of the first element, the step to the next, and the dimension.
pub(super) fn pad(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let [x, value] = [node.inputs[0], node.inputs[1]];
    let mut paddings = Vec::new();
    for (&[begin, step, dim], own) in node.attributes.as_chunks::<3>().0.iter().zip(to.dims(x)) {
        let after = i64::from(dim) - i64::from(begin) - i64::from(own);
        match u32::try_from(after) {
            Ok(after) if step == 1 || own <= 1 => paddings.extend([begin, after]),
            _ => return Err("it puts elements between those of its operand or removes some, but PAD only adds some around them".into()),
        }
    }
    let padding = padding(to, &paddings)?;
    let constant = to.known(node, 1)?.bytes().map_err(|error| error.to_string())?;
    let scale = to.scale(node.outputs[0]).ok();
    if scale != to.scale(x).ok() {
        return Err("its operand and its result have different scales".into());
    }
    // The bytes of the integer that stands for 0.
    let zero = scale.map_or(0, |scale| scale.zero_point).to_le_bytes();
    let zeros = constant.iter().enumerate().all(|(at, &byte)| byte == if at < 4 { zero[at] } else { 0 });
    if zeros {
        return to.with(node, "PAD", &[padding], None);
    }
    let value = to.tensor_with(value, scale)?;
    to.with(node, "PADV2", &[padding, value], None)
}

/// Adds a matrix of paddings, with the elements before and after those of each axis.
pub(super) fn padding(to: &mut Emitter<'_>, paddings: &[u32]) -> Converted<i32> {
    let tensor = gradlet_core::Tensor::new(&gradlet_core::ops::portable_cpu(), &integers(paddings)?, &[paddings.len() as u32 / 2, 2]);
    to.constant(&tensor.map_err(|error| error.to_string())?, None)
}
