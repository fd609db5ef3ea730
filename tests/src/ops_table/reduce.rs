//! Reductions, and what runs along an axis.

use super::{Row, row};

pub static ROWS: &[Row] = &[
    row("reduce_sum", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.sum(axes, call.flag("keepdims")))),
    row("reduce_mean", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.mean(axes, call.flag("keepdims")))),
    row("argmax", &["axis", "output_type"], |call| call.unary(|x| x.argmax(call.axis(), call.dtype("output_type")?))),
];
