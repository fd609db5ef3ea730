//! Contractions, windows, normalisation.

use super::{Call, Row, row};
use gradlet_core::ops::conv2d::Conv2DOptions;
use gradlet_core::{Error, Result, Tensor};

pub static ROWS: &[Row] = &[
    row("softmax", &["axis"], |call| call.unary(|x| x.softmax(call.axis()))),
    row("log_softmax", &["axis"], |call| call.unary(|x| x.log_softmax(call.axis()))),
    row("bias_add", &[], |call| Ok(vec![call.input("x")?.add(call.input("b")?)?])),
    row("matmul", &["transpose_a", "transpose_b"], matmul),
    row("dense", &["activation"], dense),
    row("conv2d", &["strides", "padding", "explicit_paddings", "dilations", "data_format=NHWC"], conv2d),
    row("depthwise_conv2d", &["strides", "padding", "explicit_paddings", "dilations", "multiplier", "data_format=NHWC"], depthwise_conv2d),
    row("max_pool", &["ksize", "strides", "padding"], max_pool),
    row("avg_pool", &["ksize", "strides", "padding"], avg_pool),
    row("sparse_softmax_xent", &[], |call| Ok(vec![call.input("logits")?.sparse_softmax_cross_entropy(call.input("labels")?)?])),
];

fn matmul(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (a, b) = (call.input("a")?, call.input("b")?);
    Ok(vec![a.matmul_with(b, call.flag("transpose_a"), call.flag("transpose_b"))?])
}

fn dense(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let y = call.input("x")?.dense(call.input("kernel")?, call.optional("bias"))?;
    match call.text("activation") {
        "" | "linear" => Ok(vec![y]),
        "relu" => Ok(vec![y.relu()?]),
        other => Err(Error::message(format!("no activation {other}"))),
    }
}

impl Call<'_> {
    fn conv_options(&self) -> Result<Conv2DOptions> {
        Ok(Conv2DOptions::default().strides(self.pair("strides")).dilations(self.pair("dilations")).padding(self.padding()?))
    }
}

fn conv2d(call: &Call<'_>) -> Result<Vec<Tensor>> {
    Ok(vec![call.input("x")?.conv2d(call.input("w")?, call.optional("b"), &call.conv_options()?)?])
}

fn depthwise_conv2d(call: &Call<'_>) -> Result<Vec<Tensor>> {
    Ok(vec![call.input("x")?.depthwise_conv2d(call.input("w")?, call.optional("b"), &call.conv_options()?)?])
}

fn max_pool(call: &Call<'_>) -> Result<Vec<Tensor>> {
    call.unary(|x| x.max_pool2d(call.pair("ksize"), call.pair("strides"), call.padding()?))
}

fn avg_pool(call: &Call<'_>) -> Result<Vec<Tensor>> {
    call.unary(|x| x.avg_pool2d(call.pair("ksize"), call.pair("strides"), call.padding()?))
}
