//! Operators that move elements.

use super::node::{Activation, Emit, Imported, Node, many, one};
use super::resize;
use crate::formats::tflite::{
    ConcatenationOptions, DepthToSpaceOptions, GatherOptions, MirrorPadOptions, OneHotOptions, PackOptions, ReshapeOptions,
    ResizeBilinearOptions, ResizeNearestNeighborOptions, SpaceToDepthOptions, SqueezeOptions, StridedSliceOptions, UnpackOptions,
};
use gradlet_core::ops::pad::PadMode;
use gradlet_core::ops::quantized_resize_bilinear::Centres;
use gradlet_core::ops::slicing::Index;
use gradlet_core::{DType, Error, Result, Tensor};

/// Imports a reshape. The shape is a constant or an option. The option `[0]` stands for a scalar.
pub(super) fn reshape<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let option = node.options::<ReshapeOptions<'_>>()?.new_shape();
    let option =
        option.map(|list| list.iter().map(i64::from).collect::<Vec<i64>>()).map(|dims| if dims == [0] { Vec::new() } else { dims });
    let dims = match (node.optional(1).map(|_| node.integers(1)), option) {
        (Some(Ok(dims)), _) | (None | Some(Err(_)), Some(dims)) => dims,
        (Some(Err(reason)), None) => return Err(reason),
        (None, None) => return Err("it has no shape".into()),
    };
    one(move |inputs| inputs.get(0)?.reshape_open(&dims))
}

pub(super) fn transpose<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let order = node.numbers::<u32>(1)?;
    one(move |inputs| match order.as_slice() {
        [] => inputs.get(0),
        order => inputs.get(0)?.transpose(order),
    })
}

pub(super) fn concat<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<ConcatenationOptions<'_>>()?;
    let (axis, activation) = (options.axis(), Activation::new(options.fused_activation_function())?);
    one(move |inputs| activation.apply(Tensor::concat(&inputs.all()?, axis)?))
}

pub(super) fn pack<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let axis = node.options::<PackOptions<'_>>()?.axis();
    one(move |inputs| Tensor::stack(&inputs.all()?, axis))
}

pub(super) fn unpack<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let axis = node.options::<UnpackOptions<'_>>()?.axis();
    let count = node.operator.outputs.len();
    many(move |inputs| {
        let x = inputs.get(0)?;
        let at = if axis < 0 { i64::from(axis) + x.dims().len() as i64 } else { axis.into() };
        let dim = usize::try_from(at).ok().and_then(|at| x.dims().get(at));
        match dim {
            Some(&dim) if dim as usize != count => {
                Err(Error::message(format!("it has {count} outputs, but axis {axis} has {dim} elements")))
            }
            _ => x.unstack(axis),
        }
    })
}

/// Imports a split into equal parts. Input 0 is the axis.
pub(super) fn split<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (axis, count) = (node.number(0)?, node.operator.outputs.len() as u32);
    many(move |inputs| inputs.get(1)?.split(count, axis))
}

pub(super) fn split_v<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (sizes, axis) = (node.integers(1)?, node.number(2)?);
    many(move |inputs| inputs.get(0)?.split_sizes(&sizes, axis))
}

pub(super) fn strided_slice<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<StridedSliceOptions<'_>>()?;
    let (begins, ends, steps) = (node.integers(1)?, node.integers(2)?, node.integers(3)?);
    if begins.len() != ends.len() || begins.len() != steps.len() {
        return Err(format!("it has {} begins, {} ends and {} strides", begins.len(), ends.len(), steps.len()));
    }
    let indices = begins.iter().zip(&ends).zip(&steps).enumerate().map(|(at, ((&begin, &end), &step))| {
        let marked = |mask: i32| at < 32 && mask as u32 >> at & 1 == 1;
        if marked(options.ellipsis_mask()) {
            return Index::Ellipsis;
        }
        if marked(options.new_axis_mask()) {
            return Index::NewAxis;
        }
        if marked(options.shrink_axis_mask()) {
            return Index::At(if marked(options.begin_mask()) { 0 } else { begin });
        }
        let end = if options.offset() { begin.saturating_add(end) } else { end };
        Index::Slice { start: (!marked(options.begin_mask())).then_some(begin), end: (!marked(options.end_mask())).then_some(end), step }
    });
    let indices: Vec<Index> = indices.collect();
    one(move |inputs| inputs.get(0)?.index(indices.as_slice()))
}

pub(super) fn slice<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (begin, size) = (node.numbers::<u32>(1)?, node.integers(2)?);
    one(move |inputs| inputs.get(0)?.slice(&begin, &size))
}

pub(super) fn gather<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<GatherOptions<'_>>()?;
    let axis = options.axis();
    let batch = u32::try_from(options.batch_dims()).map_err(|_| format!("it has {} batch dimensions", options.batch_dims()))?;
    one(move |inputs| inputs.get(0)?.gather_batched(&inputs.get(1)?, axis, batch))
}

pub(super) fn scatter_nd<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let dims = node.numbers::<u32>(2)?;
    one(move |inputs| inputs.growing(1)?.scatter_nd(&inputs.get(0)?, &dims))
}

/// Imports the replacement of a slice, which has one element along the first axes and all along the others. Input 2 is its position, which
/// is moved into the tensor.
pub(super) fn update_slice<'m>() -> Imported<Emit<'m>> {
    one(|inputs| {
        let (x, update, begin) = (inputs.get(0)?, inputs.get(1)?, inputs.get(2)?);
        let (dims, slice) = (x.dims(), update.dims());
        let whole = slice.iter().zip(dims).rev().take_while(|(own, dim)| own == dim).count();
        let first = dims.len() - whole;
        if slice.len() != dims.len() || slice.iter().take(first).any(|&dim| dim != 1) {
            return Err(Error::message(format!("its slice {slice:?} of {dims:?} is not one element of the first axes")));
        }
        if first == 0 {
            return Ok(update);
        }
        let last: Vec<i64> = dims.iter().take(first).map(|&dim| i64::from(dim) - 1).collect();
        let last = Tensor::new(inputs.device(), &last, &[first as u32])?.cast(begin.dtype())?;
        let index = begin.slice(&[0], &[first as i64])?.minimum(&last)?;
        let index = index.maximum(&index.zeros_like()?)?.reshape(&[1, first as u32])?;
        let rows: Vec<u32> = [1].into_iter().chain(slice.iter().skip(first).copied()).collect();
        x.tensor_scatter_update(&index, &update.reshape(&rows)?)
    })
}

pub(super) fn squeeze<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let axes: Vec<i32> = node.options::<SqueezeOptions<'_>>()?.squeeze_dims().map_or(Vec::new(), |list| list.iter().collect());
    one(move |inputs| inputs.get(0)?.squeeze(&axes))
}

pub(super) fn expand_dims<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let axis = node.number(1)?;
    one(move |inputs| inputs.get(0)?.expand_dims(axis))
}

pub(super) fn tile<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let multiples = node.numbers::<u32>(1)?;
    one(move |inputs| inputs.growing(0)?.tile(&multiples))
}

pub(super) fn broadcast_to<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let dims = node.numbers::<u32>(1)?;
    one(move |inputs| inputs.growing(0)?.broadcast_to(&dims))
}

/// Imports a tensor with one value. Input 0 is its shape.
pub(super) fn fill<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let dims = node.numbers::<u32>(0)?;
    one(move |inputs| inputs.growing(1)?.broadcast_to(&dims))
}

pub(super) fn reverse<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let axes = node.numbers::<i32>(1)?;
    one(move |inputs| inputs.get(0)?.reverse(&axes))
}

/// Returns the paddings in input `at`, which is a constant of shape `[n,2]`.
fn paddings(node: &Node<'_>, at: usize) -> Imported<Vec<(u32, u32)>> {
    let numbers = node.numbers::<u32>(at)?;
    match numbers.as_chunks() {
        (pairs, []) => Ok(pairs.iter().map(|&[before, after]| (before, after)).collect()),
        _ => Err(format!("its paddings are {numbers:?}")),
    }
}

/// Returns the element of the result that stands for 0.
fn zero(node: &Node<'_>) -> Imported<f64> {
    let quantization = node.output(0)?.quantization.as_ref();
    let zero_point = quantization.filter(|_| node.output_dtype(0).is_ok_and(|dtype| !dtype.is_float()));
    Ok(zero_point.and_then(|quantization| quantization.zero_points.first()).map_or(0.0, |&zero| zero as f64))
}

pub(super) fn pad<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (paddings, zero) = (paddings(node, 1)?, zero(node)?);
    one(move |inputs| inputs.growing(0)?.pad(&paddings, PadMode::Constant(zero)))
}

pub(super) fn pad_v2<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let paddings = paddings(node, 1)?;
    match node.real(2) {
        Ok(value) => one(move |inputs| inputs.growing(0)?.pad(&paddings, PadMode::Constant(value))),
        // A quantized model computes the value from a constant.
        Err(_) => one(move |inputs| {
            let x = inputs.growing(0)?;
            // No element is less than itself. In a trace, this mask is computed, so the artifact does not contain it.
            let outside = x.less(&x)?.pad(&paddings, PadMode::Constant(1.0))?;
            outside.select(&inputs.get(2)?, &x.pad(&paddings, PadMode::Constant(0.0))?)
        }),
    }
}

pub(super) fn mirror_pad<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let paddings = paddings(node, 1)?;
    let mode = match node.options::<MirrorPadOptions<'_>>()?.mode() {
        0 => PadMode::Reflect,
        1 => PadMode::Symmetric,
        other => return Err(format!("its mode has the number {other}")),
    };
    one(move |inputs| inputs.growing(0)?.pad(&paddings, mode))
}

pub(super) fn one_hot<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (axis, depth) = (node.options::<OneHotOptions<'_>>()?.axis(), node.number(1)?);
    one(move |inputs| inputs.growing(0)?.one_hot_of(depth, axis, &inputs.get(2)?, &inputs.get(3)?))
}

/// Imports the dimensions of a tensor, which are known when the operator is emitted.
pub(super) fn shape<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let dtype = node.output_dtype(0)?;
    one(move |inputs| {
        let dims: Vec<i64> = inputs.get(0)?.dims().iter().map(|&dim| dim.into()).collect();
        Tensor::new(inputs.device(), &dims, &[dims.len() as u32])?.cast(dtype)
    })
}

pub(super) fn rank<'m>(_: &Node<'m>) -> Imported<Emit<'m>> {
    one(|inputs| Ok(Tensor::scalar(inputs.device(), inputs.get(0)?.dims().len() as i32)))
}

/// Bound of the integers that an f64 has exactly.
const EXACT: f64 = 9e15;
/// Greatest number of elements of a range.
const MAX_RANGE: f64 = 1e6;

pub(super) fn range<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (start, end, step) = (node.real(0)?, node.real(1)?, node.real(2)?);
    let exact = [start, end, step].iter().all(|number| number.abs() < EXACT);
    if step == 0.0 || !exact || (end - start) / step > MAX_RANGE {
        return Err(format!("it is a range from {start} to {end} in steps of {step}"));
    }
    let dtype = node.output_dtype(0)?;
    match dtype {
        DType::I32 | DType::I64 => one(move |inputs| {
            let [start, end, step] = [start, end, step].map(|number| number as i64);
            let count = if step > 0 { (end - start + step - 1) / step } else { (start - end - step - 1) / -step };
            let numbers: Vec<i64> = (0..count).map(|at| start + at * step).collect();
            Tensor::new(inputs.device(), &numbers, &[numbers.len() as u32])?.cast(dtype)
        }),
        DType::F32 => one(move |inputs| {
            let count = ((end - start) / step).ceil().max(0.0) as usize;
            let numbers: Vec<f32> = (0..count).map(|at| start as f32 + at as f32 * step as f32).collect();
            Tensor::new(inputs.device(), &numbers, &[numbers.len() as u32])
        }),
        other => Err(format!("it is a range of {other}")),
    }
}

fn block(size: i32) -> Imported<u32> {
    u32::try_from(size).ok().filter(|&size| size > 0).ok_or_else(|| format!("its block has the size {size}"))
}

/// Splits the axes of images into parts, transposes these, and merges them again.
fn moved(x: &Tensor, apart: &[u32], order: &[u32], merged: &[u32]) -> Result<Tensor> {
    x.reshape(apart)?.transpose(order)?.reshape(merged)
}

pub(super) fn space_to_depth<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let b = block(node.options::<SpaceToDepthOptions<'_>>()?.block_size())?;
    one(move |inputs| {
        let x = inputs.get(0)?;
        let &[n, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
        let depth = c.checked_mul(b).and_then(|depth| depth.checked_mul(b)).ok_or(Error::TooLarge)?;
        moved(&x, &[n, h / b, b, w / b, b, c], &[0, 1, 3, 2, 4, 5], &[n, h / b, w / b, depth])
    })
}

pub(super) fn depth_to_space<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let b = block(node.options::<DepthToSpaceOptions<'_>>()?.block_size())?;
    one(move |inputs| {
        let x = inputs.get(0)?;
        let &[n, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
        let (height, width) = h.checked_mul(b).zip(w.checked_mul(b)).ok_or(Error::TooLarge)?;
        let rest = c / b / b;
        moved(&x, &[n, h, w, b, b, rest], &[0, 1, 3, 2, 4, 5], &[n, height, width, rest])
    })
}

/// Imports the division of images into blocks, whose pixels become images of their own. Padding comes first.
pub(super) fn space_to_batch<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (blocks, around, zero) = (node.numbers::<u32>(1)?, paddings(node, 2)?, zero(node)?);
    one(move |inputs| {
        let x = inputs.growing(0)?;
        let ends = |count: usize| std::iter::repeat_n((0, 0), count);
        let after = x.dims().len().saturating_sub(1 + around.len());
        let paddings: Vec<(u32, u32)> = ends(1).chain(around.iter().copied()).chain(ends(after)).collect();
        let x = x.pad(&paddings, PadMode::Constant(zero))?;
        let (n, spatial, rest) = divided(&x, &blocks)?;
        let m = blocks.len() as u32;
        let small: Vec<u32> = spatial.iter().zip(&blocks).map(|(&dim, &block)| dim.checked_div(block).unwrap_or(0)).collect();
        let pairs = small.iter().zip(&blocks).flat_map(|(&dim, &block)| [dim, block]);
        let apart: Vec<u32> = [n].into_iter().chain(pairs).chain(rest.iter().copied()).collect();
        let outer = (0..m).map(|axis| 2 + 2 * axis).chain([0]);
        let order: Vec<u32> =
            outer.chain((0..m).map(|axis| 1 + 2 * axis)).chain((0..rest.len() as u32).map(|axis| 1 + 2 * m + axis)).collect();
        let batch = blocks.iter().try_fold(n, |batch, &block| batch.checked_mul(block)).ok_or(Error::TooLarge)?;
        moved(&x, &apart, &order, &[&[batch], small.as_slice(), rest].concat())
    })
}

/// Imports the inverse of [`space_to_batch`]. Cropping comes last.
pub(super) fn batch_to_space<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (blocks, crops) = (node.numbers::<u32>(1)?, paddings(node, 2)?);
    one(move |inputs| {
        let x = inputs.get(0)?;
        let (batch, spatial, rest) = divided(&x, &blocks)?;
        let m = blocks.len() as u32;
        let n = blocks.iter().try_fold(batch, |n, &block| n.checked_div(block)).ok_or(Error::TooLarge)?;
        let apart = [blocks.as_slice(), &[n], spatial, rest].concat();
        let pairs = (0..m).flat_map(|axis| [m + 1 + axis, axis]);
        let order: Vec<u32> = [m].into_iter().chain(pairs).chain((0..rest.len() as u32).map(|axis| 2 * m + 1 + axis)).collect();
        let large = spatial.iter().zip(&blocks).map(|(&dim, &block)| dim.checked_mul(block)).collect::<Option<Vec<u32>>>();
        let large = large.ok_or(Error::TooLarge)?;
        let y = moved(&x, &apart, &order, &[&[n], large.as_slice(), rest].concat())?;
        let kept = large.iter().zip(&crops).map(|(&dim, &(before, after))| i64::from(dim) - i64::from(before) - i64::from(after));
        let begin: Vec<u32> = [0].into_iter().chain(crops.iter().map(|crop| crop.0)).chain(rest.iter().map(|_| 0)).collect();
        let size: Vec<i64> = [-1].into_iter().chain(kept).chain(rest.iter().map(|_| -1)).collect();
        y.slice(&begin, &size)
    })
}

/// Returns the dimensions of images: the first, as many as there are blocks, and the others.
fn divided<'x>(x: &'x Tensor, blocks: &[u32]) -> Result<(u32, &'x [u32], &'x [u32])> {
    let (&n, dims) = x.dims().split_first().ok_or(Error::Rank { input: 0 })?;
    let (spatial, rest) = dims.split_at_checked(blocks.len()).ok_or(Error::Rank { input: 0 })?;
    Ok((n, spatial, rest))
}

/// Reads the size of a resized image, and the positions of its pixels.
pub(super) fn bilinear_options(node: &Node<'_>) -> Imported<([u32; 2], Centres)> {
    let options = node.options::<ResizeBilinearOptions<'_>>()?;
    if options.align_corners() && options.half_pixel_centers() {
        return Err("it aligns the corners, but has the centres of pixels at half numbers".into());
    }
    Ok((size(node)?, resize::centres(options.align_corners(), options.half_pixel_centers())))
}

pub(super) fn resize_bilinear<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (size, centres) = bilinear_options(node)?;
    one(move |inputs| resize::bilinear(&inputs.growing(0)?, size, centres))
}

pub(super) fn resize_nearest<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<ResizeNearestNeighborOptions<'_>>()?;
    let centres = resize::centres(options.align_corners(), options.half_pixel_centers());
    let size = size(node)?;
    one(move |inputs| resize::nearest(&inputs.growing(0)?, size, centres))
}

/// Greatest side of a resized image.
const MAX_SIDE: u32 = 1 << 16;

fn size(node: &Node<'_>) -> Imported<[u32; 2]> {
    let size = node.numbers::<u32>(1)?;
    match size.as_slice() {
        &[height, width] if height.max(width) <= MAX_SIDE => Ok([height, width]),
        _ => Err(format!("its size is {size:?}")),
    }
}
