//! Elementwise ops.

use super::{Call, Row, row};
use crate::golden::fixtures::number;
use gradlet_core::{Result, Tensor};

pub static ROWS: &[Row] = &[
    row("add", &[], |call| call.binary(Tensor::add)),
    row("sub", &[], |call| call.binary(Tensor::sub)),
    row("mul", &[], |call| call.binary(Tensor::mul)),
    row("div", &[], |call| call.binary(Tensor::div)),
    row("equal", &[], |call| call.binary(Tensor::equal)),
    row("neg", &[], |call| call.unary(Tensor::neg)),
    row("relu", &[], |call| call.unary(Tensor::relu)),
    row("cast", &["dtype"], |call| call.unary(|x| x.cast(call.dtype("dtype")?))),
    row("exp", &[], |call| call.unary(Tensor::exp)),
    row("log", &[], |call| call.unary(Tensor::log)),
    row("sqrt", &[], |call| call.unary(Tensor::sqrt)),
    row("rsqrt", &[], |call| call.unary(Tensor::rsqrt)),
    row("abs", &[], |call| call.unary(Tensor::abs)),
    row("sign", &[], |call| call.unary(Tensor::sign)),
    row("tanh", &[], |call| call.unary(Tensor::tanh)),
    row("sigmoid", &[], |call| call.unary(Tensor::sigmoid)),
    row("expm1", &[], |call| call.unary(Tensor::expm1)),
    row("log1p", &[], |call| call.unary(Tensor::log1p)),
    row("softplus", &[], |call| call.unary(Tensor::softplus)),
    row("square", &[], |call| call.unary(Tensor::square)),
    row("reciprocal", &[], |call| call.unary(Tensor::reciprocal)),
    row("logical_not", &[], |call| call.unary(Tensor::logical_not)),
    row("maximum", &[], |call| call.binary(Tensor::maximum)),
    row("minimum", &[], |call| call.binary(Tensor::minimum)),
    row("pow", &[], |call| call.binary(Tensor::pow)),
    row("squared_difference", &[], |call| call.binary(Tensor::squared_difference)),
    row("not_equal", &[], |call| call.binary(Tensor::not_equal)),
    row("less", &[], |call| call.binary(Tensor::less)),
    row("less_equal", &[], |call| call.binary(Tensor::less_equal)),
    row("greater", &[], |call| call.binary(Tensor::greater)),
    row("greater_equal", &[], |call| call.binary(Tensor::greater_equal)),
    row("logical_and", &[], |call| call.binary(Tensor::logical_and)),
    row("logical_or", &[], |call| call.binary(Tensor::logical_or)),
    row("logical_xor", &[], |call| call.binary(Tensor::logical_xor)),
    row("floor", &[], |call| call.unary(Tensor::floor)),
    row("ceil", &[], |call| call.unary(Tensor::ceil)),
    row("round", &[], |call| call.unary(Tensor::round)),
    row("sin", &[], |call| call.unary(Tensor::sin)),
    row("cos", &[], |call| call.unary(Tensor::cos)),
    row("erf", &[], |call| call.unary(Tensor::erf)),
    row("is_nan", &[], |call| call.unary(Tensor::is_nan)),
    row("is_inf", &[], |call| call.unary(Tensor::is_inf)),
    row("is_finite", &[], |call| call.unary(Tensor::is_finite)),
    row("floordiv", &[], |call| call.binary(Tensor::floordiv)),
    row("floormod", &[], |call| call.binary(Tensor::floormod)),
    row("truncatediv", &[], |call| call.binary(Tensor::truncatediv)),
    row("truncatemod", &[], |call| call.binary(Tensor::truncatemod)),
    row("divide", &[], |call| call.binary(Tensor::divide)),
    row("divide_no_nan", &[], |call| call.binary(Tensor::divide_no_nan)),
    row("relu6", &[], |call| call.unary(Tensor::relu6)),
    row("elu", &["alpha"], |call| call.unary(|x| x.elu(call.real("alpha", 1.0)))),
    row("elu_alpha", &["alpha"], |call| call.unary(|x| x.elu(call.real("alpha", 1.0)))),
    row("selu", &[], |call| call.unary(Tensor::selu)),
    row("softsign", &[], |call| call.unary(Tensor::softsign)),
    row("swish", &[], |call| call.unary(Tensor::silu)),
    row("hard_sigmoid", &[], |call| call.unary(Tensor::hard_sigmoid)),
    row("hard_swish", &[], |call| call.unary(Tensor::hard_silu)),
    row("log_sigmoid", &[], |call| call.unary(Tensor::log_sigmoid)),
    row("leaky_relu", &["alpha"], |call| call.unary(|x| x.leaky_relu(call.real("alpha", 0.2)))),
    row("gelu", &["approximate"], |call| call.unary(|x| x.gelu(call.flag("approximate")))),
    row("clip_by_value", &["min", "max"], |call| {
        call.unary(|x| x.clip_by_value(call.real("min", f64::NEG_INFINITY), call.real("max", f64::INFINITY)))
    }),
    row("clip_by_norm", &["clip_norm", "axes"], |call| {
        let axes: Vec<i32> = call.numbers("axes").unwrap_or_default().into_iter().map(|axis| axis as i32).collect();
        call.unary(|x| x.clip_by_norm(call.real("clip_norm", 1.0), &axes))
    }),
    row("clip_by_global_norm", &["clip_norm"], clip_by_global_norm),
    row("where", &[], choose),
];

/// Computes `where(c, x, y)`. With x as the only input, computes `where(x > 0, sqrt(x), x)`, in which the gradient of the square root must
/// not affect the elements that are not positive.
fn choose(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input("x")?;
    let chosen = match call.optional("c") {
        Some(condition) => condition.select(x, call.input("y")?),
        None => x.greater(&x.like(0.0)?)?.select(&x.sqrt()?, x),
    };
    Ok(vec![chosen?])
}

/// Returns the clipped tensors and the norm. For a single tensor, returns no norm.
fn clip_by_global_norm(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let tensors: Vec<&Tensor> = call.tensors.iter().collect();
    let (mut clipped, norm) = Tensor::clip_by_global_norm(&tensors, call.real("clip_norm", 1.0))?;
    clipped.extend((tensors.len() > 1).then_some(norm));
    Ok(clipped)
}

impl Call<'_> {
    fn real(&self, name: &str, default: f64) -> f64 {
        number(&self.attributes[name]).unwrap_or(default)
    }
}
