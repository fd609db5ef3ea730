//! What moves elements and computes nothing.

use super::{Row, row};

pub static ROWS: &[Row] = &[
    row("transpose", &["perm"], |call| call.unary(|x| x.transpose(&call.dims("perm")))),
    row("reshape", &["shape"], |call| call.unary(|x| x.reshape_open(&call.numbers("shape").unwrap_or_default()))),
    row("broadcast_to", &["shape"], |call| call.unary(|x| x.broadcast_to(&call.dims("shape")))),
];
