//! Operators on quantized tensors.

mod compare;
mod elementwise;
mod functions;
mod hybrid;
mod products;
mod recurrent;
mod reduce;

use super::node::{Activation, Emit, Imported, Node};
use crate::formats::tflite::Tensor as Described;
use gradlet_core::{DType, Quantization, Tensor};

/// An operator: its name and its importer.
type Row = (&'static str, for<'n, 'm> fn(&'n Node<'m>) -> Imported<Emit<'m>>);

static TABLE: &[Row] = &[
    ("ABS", |node| functions::abs(node)),
    ("ADD", |node| elementwise::add(node)),
    ("AVERAGE_POOL_2D", |node| reduce::average_pool(node)),
    ("BATCH_MATMUL", |node| products::batch_matmul(node)),
    ("CONCATENATION", |node| elementwise::concat(node)),
    ("CONV_2D", |node| products::conv2d(node)),
    ("DEPTHWISE_CONV_2D", |node| products::depthwise_conv2d(node)),
    ("DEQUANTIZE", |node| elementwise::dequantize(node)),
    ("ELU", |node| functions::elu(node)),
    ("EQUAL", |node| compare::equality(node, Tensor::equal)),
    ("EXP", |node| functions::exp(node)),
    ("FULLY_CONNECTED", |node| products::fully_connected(node)),
    ("GELU", |node| functions::gelu(node)),
    ("GREATER", |node| compare::order(node, Tensor::greater)),
    ("GREATER_EQUAL", |node| compare::order(node, Tensor::greater_equal)),
    ("HARD_SWISH", |node| functions::hard_swish(node)),
    ("L2_NORMALIZATION", |node| reduce::l2_normalization(node)),
    ("LEAKY_RELU", |node| functions::leaky_relu(node)),
    ("LESS", |node| compare::order(node, Tensor::less)),
    ("LESS_EQUAL", |node| compare::order(node, Tensor::less_equal)),
    ("LOG", |node| functions::log(node)),
    ("LOGISTIC", |node| functions::logistic(node)),
    ("MAX_POOL_2D", |node| reduce::max_pool(node)),
    ("MEAN", |node| reduce::mean(node)),
    ("MUL", |node| elementwise::mul(node)),
    ("NOT_EQUAL", |node| compare::equality(node, Tensor::not_equal)),
    ("PRELU", |node| functions::prelu(node)),
    ("QUANTIZE", |node| elementwise::quantize(node)),
    ("RELU", |node| elementwise::relu(node, Activation::Relu)),
    ("RELU6", |node| elementwise::relu(node, Activation::Relu6)),
    ("RELU_0_TO_1", |node| elementwise::relu(node, Activation::Relu0To1)),
    ("RELU_N1_TO_1", |node| elementwise::relu(node, Activation::ReluN1To1)),
    // It moves bytes, whatever the scales.
    ("RESHAPE", |node| super::array::reshape(node)),
    ("RESIZE_BILINEAR", |node| reduce::resize_bilinear(node)),
    ("RSQRT", |node| functions::rsqrt(node)),
    ("SOFTMAX", |node| reduce::softmax(node)),
    ("SQRT", |node| functions::sqrt(node)),
    ("SQUARED_DIFFERENCE", |node| elementwise::squared_difference(node)),
    ("SUB", |node| elementwise::sub(node)),
    ("SUM", |node| reduce::sum(node)),
    ("SVDF", |node| recurrent::svdf(node)),
    ("TANH", |node| functions::tanh(node)),
    ("TRANSPOSE_CONV", |node| products::transpose_conv(node)),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", |node| recurrent::lstm(node)),
];

/// Importers of operators with weights of 8 bits and other operands of 32-bit floats.
static HYBRID: &[Row] = &[
    ("CONV_2D", |node| hybrid::conv2d(node)),
    ("DEPTHWISE_CONV_2D", |node| hybrid::depthwise_conv2d(node)),
    ("FULLY_CONNECTED", |node| hybrid::fully_connected(node)),
    ("TRANSPOSE_CONV", |node| hybrid::transpose_conv(node)),
];

/// Imports an operator with a quantized tensor among its operands, results or weights.
pub(super) fn import<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let name = node.operator.code.to_string();
    let float = |tensor: Imported<&Described<'_>>| tensor.is_ok_and(|tensor| tensor.kind.dtype() == Some(DType::F32));
    let table = if float(node.output(0)) && name != "DEQUANTIZE" { HYBRID } else { TABLE };
    let (_, import) = table.iter().find(|(other, _)| *other == name).ok_or("it is not supported for quantized tensors")?;
    import(node)
}

/// Returns the scale and zero point of a tensor that must have one of each.
fn whole(tensor: &Described<'_>) -> Imported<Quantization> {
    let quantization = tensor.quantization.as_ref().ok_or_else(|| format!("its tensor {:?} has no scale", tensor.name))?;
    match (&quantization.scales[..], &quantization.zero_points[..]) {
        (&[scale], &[zero_point]) => {
            let zero_point =
                i32::try_from(zero_point).map_err(|_| format!("its tensor {:?} has the zero point {zero_point}", tensor.name))?;
            Ok(Quantization { scale, zero_point })
        }
        _ => Err(format!("its tensor {:?} has {} scales", tensor.name, quantization.scales.len())),
    }
}

/// Returns the element type of a quantized tensor.
fn dtype_of(tensor: &Described<'_>) -> Imported<DType> {
    tensor.kind.dtype().ok_or_else(|| format!("its tensor {:?} is {}", tensor.name, tensor.kind))
}

/// Fails unless the first input and the output have the same element type, one of `dtypes`.
fn supported(node: &Node<'_>, dtypes: &[DType]) -> Imported<()> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let dtype = dtype_of(x)?;
    if dtype == dtype_of(y)? && dtypes.contains(&dtype) {
        return Ok(());
    }
    Err(format!("it is not supported for an input of {} and an output of {}", x.kind, y.kind))
}

/// Returns the smallest and the largest element of a tensor that an activation leaves.
fn range(activation: Activation, tensor: &Described<'_>) -> Imported<Option<(i32, i32)>> {
    let (least, greatest) = match dtype_of(tensor)? {
        DType::U8 => (0, u8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        _ => (i8::MIN.into(), i8::MAX.into()),
    };
    let quantization = whole(tensor)?;
    let nearest = |real: f32| quantization.nearest(real).clamp(least, greatest);
    Ok(match activation {
        Activation::None => None,
        Activation::Relu => Some((nearest(0.0), greatest)),
        Activation::Relu6 => Some((nearest(0.0), nearest(6.0))),
        Activation::Relu0To1 => Some((nearest(0.0), nearest(1.0))),
        Activation::ReluN1To1 => Some((nearest(-1.0), nearest(1.0))),
        Activation::Tanh => return Err("its activation TANH is not supported for quantized tensors".into()),
    })
}
