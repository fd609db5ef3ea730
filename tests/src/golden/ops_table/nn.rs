//! Ops of matrix products, convolutions, pooling and normalization.

use super::{Call, Row, row};
use gradlet_core::layers::{BatchNormalization, BatchNormalizationWeights};
use gradlet_core::ops::conv1d::{Conv1DOptions, Padding1D};
use gradlet_core::ops::conv2d::Conv2DOptions;
use gradlet_core::ops::resize::Resize;
use gradlet_core::{Error, Result, Tensor};

pub static ROWS: &[Row] = &[
    row("softmax", &["axis"], |call| call.unary(|x| x.softmax(call.axis()))),
    row("log_softmax", &["axis"], |call| call.unary(|x| x.log_softmax(call.axis()))),
    row("bias_add", &[], |call| Ok(vec![call.input("x")?.add(call.input("b")?)?])),
    row("matmul", &["transpose_a", "transpose_b"], matmul),
    row("dense", &["activation"], dense),
    row("conv2d", &["strides", "padding", "explicit_paddings", "dilations", "data_format=NHWC", "activation"], conv2d),
    row("matvec", &["transpose_a"], |call| Ok(vec![call.input("a")?.matvec_with(call.input("x")?, call.flag("transpose_a"))?])),
    row("conv1d", &["stride", "padding", "dilation", "data_format=NWC", "activation"], conv1d),
    row("conv2d_transpose", &["strides", "padding", "dilations", "output_shape", "data_format=NHWC", "activation"], conv2d_transpose),
    row(
        "depthwise_conv2d",
        &["strides", "padding", "explicit_paddings", "dilations", "multiplier", "data_format=NHWC", "activation"],
        depthwise_conv2d,
    ),
    row("max_pool", &["ksize", "strides", "padding", "explicit_paddings", "data_format=NHWC"], max_pool),
    row("avg_pool", &["ksize", "strides", "padding", "data_format=NHWC"], avg_pool),
    row("global_avg_pool", &["keepdims"], |call| call.unary(|x| x.mean(&[1, 2], call.flag("keepdims")))),
    row("global_max_pool", &["keepdims"], |call| call.unary(|x| x.max(&[1, 2], call.flag("keepdims")))),
    row("upsampling2d", &["size", "method", "half_pixel_centers=true"], upsampling2d),
    row("batch_normalization", &["variance_epsilon"], batch_normalization),
    row("fused_batch_norm", &["epsilon", "is_training", "data_format=NHWC"], fused_batch_norm),
    row("keras_batch_norm", &["momentum", "epsilon", "training", "axis", "center", "scale"], keras_batch_norm),
    row("layer_norm", &["axis", "epsilon", "center", "scale"], layer_norm),
    row("group_norm", &["groups", "epsilon", "axis", "center", "scale"], group_norm),
    row("l2_normalize", &["axis", "epsilon"], |call| call.unary(|x| x.l2_normalize(&call.axes(), call.float("epsilon").unwrap_or(1e-12)))),
    row("softmax_xent", &["axis"], |call| call.cross_entropy(|logits, labels| logits.softmax_cross_entropy(labels, call.axis()))),
    row("sigmoid_xent", &[], |call| call.cross_entropy(Tensor::sigmoid_cross_entropy)),
    row("sparse_softmax_xent", &[], |call| call.cross_entropy(Tensor::sparse_softmax_cross_entropy)),
];

fn matmul(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (a, b) = (call.input("a")?, call.input("b")?);
    Ok(vec![a.matmul_with(b, call.flag("transpose_a"), call.flag("transpose_b"))?])
}

fn dense(call: &Call<'_>) -> Result<Vec<Tensor>> {
    call.activated(call.input("x")?.dense(call.input("kernel")?, call.optional("bias")))
}

impl Call<'_> {
    fn cross_entropy(&self, op: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        Ok(vec![op(self.input("logits")?, self.input("labels")?)?])
    }

    fn conv_options(&self) -> Result<Conv2DOptions> {
        Ok(Conv2DOptions::default().strides(self.pair("strides")).dilations(self.pair("dilations")).padding(self.padding()?))
    }
}

fn conv2d(call: &Call<'_>) -> Result<Vec<Tensor>> {
    call.activated(call.input("x")?.conv2d(call.input("w")?, call.optional("b"), &call.conv_options()?))
}

fn depthwise_conv2d(call: &Call<'_>) -> Result<Vec<Tensor>> {
    call.activated(call.input("x")?.depthwise_conv2d(call.input("w")?, call.optional("b"), &call.conv_options()?))
}

fn max_pool(call: &Call<'_>) -> Result<Vec<Tensor>> {
    call.unary(|x| x.max_pool2d(call.pair("ksize"), call.pair("strides"), call.padding()?))
}

fn avg_pool(call: &Call<'_>) -> Result<Vec<Tensor>> {
    call.unary(|x| x.avg_pool2d(call.pair("ksize"), call.pair("strides"), call.padding()?))
}

fn conv1d(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let padding = match call.text("padding") {
        "CAUSAL" => Padding1D::Causal,
        "SAME" => Padding1D::Same,
        _ => Padding1D::Valid,
    };
    let options = Conv1DOptions::default().stride(call.pair("stride")[0]).dilation(call.pair("dilation")[0]).padding(padding);
    call.activated(call.input("x")?.conv1d(call.input("w")?, call.optional("b"), &options))
}

fn conv2d_transpose(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let &[_, height, width, _] = call.dims("output_shape").as_slice() else { return Err(Error::message("no output_shape")) };
    let y = call.input("x")?.conv2d_transpose(call.input("w")?, &call.conv_options()?, [height, width])?;
    call.activated(call.optional("b").map_or(Ok(y.clone()), |bias| y.add(bias)))
}

fn upsampling2d(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let method = match call.text("method") {
        "nearest" => Resize::Nearest,
        "bilinear" => Resize::Bilinear,
        other => return Err(Error::message(format!("no method {other}"))),
    };
    call.unary(|x| x.resize(call.pair("size"), method))
}

fn batch_normalization(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (mean, variance) = (call.input("mean")?, call.input("variance")?);
    let epsilon = call.float("variance_epsilon").unwrap_or(0.001);
    call.unary(|x| x.batch_normalization(mean, variance, call.optional("offset"), call.optional("scale"), epsilon))
}

fn fused_batch_norm(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (x, scale, offset) = (call.input("x")?, call.input("scale")?, call.input("offset")?);
    let epsilon = call.float("epsilon").unwrap_or(0.001);
    if call.flag("is_training") {
        return Ok(x.fused_batch_norm(scale, offset, epsilon)?.into());
    }
    Ok(vec![x.batch_normalization(call.input("mean")?, call.input("variance")?, Some(offset), Some(scale), epsilon)?])
}

fn keras_batch_norm(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let layer = BatchNormalization::default().axis(call.axis());
    let layer = layer.momentum(call.float("momentum").unwrap_or(0.99)).epsilon(call.float("epsilon").unwrap_or(0.001));
    let weights = BatchNormalizationWeights {
        gamma: call.optional("gamma").cloned(),
        beta: call.optional("beta").cloned(),
        moving_mean: call.input("moving_mean")?.clone(),
        moving_variance: call.input("moving_variance")?.clone(),
    };
    Ok(layer.normalize(call.input("x")?, &weights, call.flag("training"))?.into())
}

fn layer_norm(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let epsilon = call.float("epsilon").unwrap_or(0.001);
    call.unary(|x| x.layer_norm(&call.axes(), call.optional("gamma"), call.optional("beta"), epsilon))
}

fn group_norm(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (groups, epsilon) = (call.float("groups").unwrap_or(32.0) as u32, call.float("epsilon").unwrap_or(0.001));
    call.unary(|x| x.group_norm(groups, call.axis(), call.optional("gamma"), call.optional("beta"), epsilon))
}
