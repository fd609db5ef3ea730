//! Element by element.

use super::{Row, row};
use gradlet_core::Tensor;

pub static ROWS: &[Row] = &[
    row("add", &[], |call| call.binary(Tensor::add)),
    row("sub", &[], |call| call.binary(Tensor::sub)),
    row("mul", &[], |call| call.binary(Tensor::mul)),
    row("div", &[], |call| call.binary(Tensor::div)),
    row("equal", &[], |call| call.binary(Tensor::equal)),
    row("neg", &[], |call| call.unary(Tensor::neg)),
    row("relu", &[], |call| call.unary(Tensor::relu)),
    row("cast", &["dtype"], |call| call.unary(|x| x.cast(call.dtype("dtype")?))),
];
