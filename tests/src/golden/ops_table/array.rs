//! Ops that move elements without computing.

use super::{Call, Row, row};
use crate::golden::fixtures::number;
use gradlet_core::ops::pad::PadMode;
use gradlet_core::ops::slicing::Index;
use gradlet_core::{DType, Error, Result, Tensor};

pub static ROWS: &[Row] = &[
    row("transpose", &["perm"], |call| call.unary(|x| x.transpose(&call.dims("perm")))),
    row("reshape", &["shape"], |call| call.unary(|x| x.reshape_open(&call.numbers("shape").unwrap_or_default()))),
    row("broadcast_to", &["shape"], |call| call.unary(|x| x.broadcast_to(&call.dims("shape")))),
    row("expand_dims", &["axis"], |call| call.unary(|x| x.expand_dims(call.axis()))),
    row("squeeze", &["axis"], |call| call.unary(|x| x.squeeze(&call.axes()))),
    row("tile", &["multiples"], |call| call.unary(|x| x.tile(&call.dims("multiples")))),
    row("concat", &["axis"], |call| Ok(vec![Tensor::concat(call.tensors, call.axis())?])),
    row("stack", &["axis"], |call| Ok(vec![Tensor::stack(call.tensors, call.axis_or(0))?])),
    row("split", &["num_or_size_splits", "axis"], split),
    row("unstack", &["axis"], |call| call.input("x")?.unstack(call.axis_or(0))),
    row("slice", &["begin", "size"], |call| call.unary(|x| x.slice(&call.dims("begin"), &call.numbers("size").unwrap_or_default()))),
    row("strided_slice", &["python_index"], |call| call.unary(|x| x.index(&python_index(call.text("python_index"))?[..]))),
    row("pad", &["paddings", "mode", "constant_values"], pad),
    row("reverse", &["axis"], |call| call.unary(|x| x.reverse(&call.axes()))),
    row("roll", &["shift", "axis"], |call| call.unary(|x| x.roll(&call.numbers("shift").unwrap_or_default(), &call.axes()))),
    row("gather", &["axis", "batch_dims"], |call| {
        let batch_dims = call.axis_of("batch_dims").unwrap_or(0);
        let axis = call.axis_of("axis").unwrap_or(batch_dims);
        Ok(vec![call.input("x")?.gather_batched(call.input("i")?, axis, batch_dims as u32)?])
    }),
    row("embedding_lookup", &[], |call| Ok(vec![call.input("params")?.embedding_lookup(call.input("ids")?)?])),
    row("unsorted_segment_sum", &["num_segments"], |call| {
        call.unary(|x| x.unsorted_segment_sum(call.input("i")?, call.dims("num_segments")[0]))
    }),
    row("one_hot", &["depth", "axis", "on_value", "off_value", "dtype"], one_hot),
    row("sequence_mask", &["maxlen", "dtype"], |call| {
        let mask = call.input("lengths")?.sequence_mask(call.dims("maxlen")[0])?;
        Ok(vec![mask.cast(call.dtype("dtype").unwrap_or(DType::Bool))?])
    }),
    row("gather_nd", &["batch_dims"], |call| {
        let batch_dims = call.axis_of("batch_dims").unwrap_or(0) as u32;
        call.unary(|x| x.gather_nd_batched(call.input("i")?, batch_dims))
    }),
    row("scatter_nd", &["shape"], |call| Ok(vec![call.input("u")?.scatter_nd(call.input("i")?, &call.dims("shape"))?])),
    row("tensor_scatter_add", &[], |call| call.unary(|x| x.tensor_scatter_add(call.input("i")?, call.input("u")?))),
    row("tensor_scatter_update", &[], |call| call.unary(|x| x.tensor_scatter_update(call.input("i")?, call.input("u")?))),
    row("where_index", &[], |call| Ok(vec![call.input("c")?.where_index()?])),
    row("boolean_mask", &["axis"], |call| call.unary(|x| x.boolean_mask(call.input("m")?, call.axis_or(0)))),
    row("range_linspace", &["delta", "num"], range_linspace),
];

impl Call<'_> {
    pub(super) fn float(&self, name: &str) -> Option<f64> {
        number(&self.attributes[name])
    }

    pub(super) fn axes(&self) -> Vec<i32> {
        self.numbers("axis").unwrap_or_default().into_iter().map(|axis| axis as i32).collect()
    }
}

fn split(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (x, axis) = (call.input("x")?, call.axis_or(0));
    match call.attributes["num_or_size_splits"].as_u64() {
        Some(count) => x.split(count as u32, axis),
        None => x.split_sizes(&call.numbers("num_or_size_splits").unwrap_or_default(), axis),
    }
}

fn one_hot(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (index, depth) = (call.input("i")?, call.dims("depth")[0]);
    let scalar = |name: &str, other: f64| {
        let value = Tensor::scalar(&index.device()?, call.float(name).unwrap_or(other));
        value.cast(call.dtype("dtype").unwrap_or(DType::F32))
    };
    Ok(vec![index.one_hot_of(depth, call.axis(), &scalar("on_value", 1.0)?, &scalar("off_value", 0.0)?)?])
}

fn pad(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let amount = |pair: &serde_json::Value, end: usize| pair[end].as_u64().unwrap_or(0) as u32;
    let pairs = call.attributes["paddings"].as_array().map_or(&[][..], Vec::as_slice);
    let paddings: Vec<(u32, u32)> = pairs.iter().map(|pair| (amount(pair, 0), amount(pair, 1))).collect();
    let mode = match call.text("mode") {
        "REFLECT" => PadMode::Reflect,
        "SYMMETRIC" => PadMode::Symmetric,
        _ => PadMode::Constant(call.float("constant_values").unwrap_or(0.0)),
    };
    call.unary(|x| x.pad(&paddings, mode))
}

/// Computes a range. As in TensorFlow, its ends are tensors, so its shape depends on their values.
fn range_linspace(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (a, b, step) = (call.input("a")?, call.input("b")?, call.float("delta").unwrap_or(1.0));
    let range = if a.dtype() == DType::F64 {
        Tensor::range(&a.device()?, a.item()?, b.item()?, step)?
    } else {
        let end = |tensor: &Tensor| tensor.cast(DType::F32)?.item::<f32>();
        Tensor::range(&a.device()?, end(a)?, end(b)?, step as f32)?
    };
    Ok(vec![range.cast(a.dtype())?, a.linspace(b, call.dims("num")[0], 0)?])
}

/// Parses an index in Python's syntax, such as `1:4:2, ..., newaxis, -1`.
fn python_index(text: &str) -> Result<Vec<Index>> {
    let wrong = || Error::message(format!("no index {text:?}"));
    let whole = |text: &str| text.trim().parse::<i64>().map_err(|_| wrong());
    let optional = |text: &str| if text.trim().is_empty() { Ok(None) } else { whole(text).map(Some) };
    let one = |part: &str| match (part.trim(), part.split(':').collect::<Vec<_>>().as_slice()) {
        ("...", _) => Ok(Index::Ellipsis),
        ("newaxis" | "None" | "tf.newaxis", _) => Ok(Index::NewAxis),
        (at, [_]) => Ok(Index::At(whole(at)?)),
        (_, [start, end]) => Ok(Index::Slice { start: optional(start)?, end: optional(end)?, step: 1 }),
        (_, [start, end, step]) => Ok(Index::Slice { start: optional(start)?, end: optional(end)?, step: optional(step)?.unwrap_or(1) }),
        _ => Err(wrong()),
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(one).collect()
}
