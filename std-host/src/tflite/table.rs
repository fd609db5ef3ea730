//! The table of operators.

use super::node::{Emit, Imported, Node};
use super::{array, control, conv, elementwise as each, linear, quantized, recurrent, reduce, variables};
use crate::formats::tflite::{Code, ConcatenationOptions, ElementType, Pool2DOptions, Tensor as Described};
use gradlet_core::{DType, Tensor};
use std::ops::RangeInclusive;

/// Effect of an operator on quantized elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elements {
    /// It moves elements, or chooses or adds them as they are, so it treats those of one quantization like numbers.
    Moves,
    /// It computes with elements, so it needs the numbers that they stand for.
    Computes,
}
use Elements::{Computes, Moves};

/// An operator: its name, its numbers of inputs, its effect, and its importer. The least number of inputs is required, and those after it
/// may be missing.
type Row = (&'static str, RangeInclusive<usize>, Elements, for<'n, 'm> fn(&'n Node<'m>) -> Imported<Emit<'m>>);

/// Any number of inputs from one on.
const ANY: RangeInclusive<usize> = 1..=usize::MAX;

static TABLE: &[Row] = &[
    ("ABS", 1..=1, Computes, |_| each::unary(Tensor::abs)),
    ("ADD", 2..=2, Computes, |node| each::add(node)),
    ("ADD_N", ANY, Computes, |_| each::add_n()),
    ("ARG_MAX", 2..=2, Moves, |node| reduce::position(node, Tensor::argmax)),
    ("ARG_MIN", 2..=2, Moves, |node| reduce::position(node, Tensor::argmin)),
    ("ASSIGN_VARIABLE", 2..=2, Moves, |node| variables::assign(node)),
    ("AVERAGE_POOL_2D", 1..=1, Computes, |node| conv::pool(node, Tensor::avg_pool2d)),
    ("BATCH_MATMUL", 2..=2, Computes, |node| linear::batch_matmul(node)),
    ("BATCH_TO_SPACE_ND", 3..=3, Moves, |node| array::batch_to_space(node)),
    ("BROADCAST_TO", 2..=2, Moves, |node| array::broadcast_to(node)),
    ("CALL_ONCE", 0..=0, Moves, |node| variables::call_once(node)),
    ("CAST", 1..=1, Moves, |node| each::cast(node)),
    ("CEIL", 1..=1, Computes, |_| each::unary(Tensor::ceil)),
    ("CONCATENATION", ANY, Moves, |node| array::concat(node)),
    ("CONV_2D", 2..=3, Computes, |node| conv::conv2d(node)),
    ("COS", 1..=1, Computes, |_| each::unary(Tensor::cos)),
    ("CUMSUM", 2..=2, Computes, |node| reduce::cumsum(node)),
    ("DEPTHWISE_CONV_2D", 2..=3, Computes, |node| conv::depthwise_conv2d(node)),
    ("DEPTH_TO_SPACE", 1..=1, Moves, |node| array::depth_to_space(node)),
    ("DEQUANTIZE", 1..=1, Computes, |node| each::dequantize(node)),
    ("DIV", 2..=2, Computes, |node| each::div(node)),
    ("DYNAMIC_UPDATE_SLICE", 3..=3, Moves, |_| array::update_slice()),
    ("ELU", 1..=1, Computes, |_| each::unary(|x| x.elu(1.0))),
    ("EMBEDDING_LOOKUP", 2..=2, Moves, |_| each::binary(|ids, table| table.gather(ids, 0))),
    ("EQUAL", 2..=2, Computes, |_| each::binary(Tensor::equal)),
    ("EXP", 1..=1, Computes, |_| each::unary(Tensor::exp)),
    ("EXPAND_DIMS", 2..=2, Moves, |node| array::expand_dims(node)),
    ("FILL", 2..=2, Moves, |node| array::fill(node)),
    ("FLOOR", 1..=1, Computes, |_| each::unary(Tensor::floor)),
    ("FLOOR_DIV", 2..=2, Computes, |_| each::binary(Tensor::floordiv)),
    ("FLOOR_MOD", 2..=2, Computes, |_| each::binary(Tensor::floormod)),
    ("FULLY_CONNECTED", 2..=3, Computes, |node| linear::fully_connected(node)),
    ("GATHER", 2..=2, Moves, |node| array::gather(node)),
    ("GATHER_ND", 2..=2, Moves, |_| each::binary(Tensor::gather_nd)),
    ("GELU", 1..=1, Computes, |node| each::gelu(node)),
    ("GREATER", 2..=2, Computes, |_| each::binary(Tensor::greater)),
    ("GREATER_EQUAL", 2..=2, Computes, |_| each::binary(Tensor::greater_equal)),
    ("HARD_SWISH", 1..=1, Computes, |_| each::unary(Tensor::hard_silu)),
    ("IF", ANY, Moves, |node| control::branch(node)),
    ("L2_NORMALIZATION", 1..=1, Computes, |_| each::unary(reduce::l2_normalization)),
    ("L2_POOL_2D", 1..=1, Computes, |node| conv::pool(node, conv::l2_pool)),
    ("LEAKY_RELU", 1..=1, Computes, |node| each::leaky_relu(node)),
    ("LESS", 2..=2, Computes, |_| each::binary(Tensor::less)),
    ("LESS_EQUAL", 2..=2, Computes, |_| each::binary(Tensor::less_equal)),
    ("LOG", 1..=1, Computes, |_| each::unary(Tensor::log)),
    ("LOGICAL_AND", 2..=2, Computes, |_| each::binary(Tensor::logical_and)),
    ("LOGICAL_NOT", 1..=1, Computes, |_| each::unary(Tensor::logical_not)),
    ("LOGICAL_OR", 2..=2, Computes, |_| each::binary(Tensor::logical_or)),
    ("LOGISTIC", 1..=1, Computes, |_| each::unary(Tensor::sigmoid)),
    ("LOG_SOFTMAX", 1..=1, Computes, |_| each::unary(|x| x.log_softmax(-1))),
    ("MAXIMUM", 2..=2, Moves, |_| each::binary(Tensor::maximum)),
    ("MAX_POOL_2D", 1..=1, Moves, |node| conv::pool(node, Tensor::max_pool2d)),
    ("MEAN", 2..=2, Computes, |node| reduce::reduce(node, Tensor::mean)),
    ("MINIMUM", 2..=2, Moves, |_| each::binary(Tensor::minimum)),
    ("MIRROR_PAD", 2..=2, Moves, |node| array::mirror_pad(node)),
    ("MUL", 2..=2, Computes, |node| each::mul(node)),
    ("NEG", 1..=1, Computes, |_| each::unary(Tensor::neg)),
    ("NOT_EQUAL", 2..=2, Computes, |_| each::binary(Tensor::not_equal)),
    ("ONE_HOT", 4..=4, Moves, |node| array::one_hot(node)),
    ("PACK", ANY, Moves, |node| array::pack(node)),
    ("PAD", 2..=2, Moves, |node| array::pad(node)),
    ("PADV2", 3..=3, Moves, |node| array::pad_v2(node)),
    ("POW", 2..=2, Computes, |_| each::binary(Tensor::pow)),
    ("PRELU", 2..=2, Computes, |_| each::prelu()),
    ("RANGE", 3..=3, Moves, |node| array::range(node)),
    ("RANK", 1..=1, Moves, |node| array::rank(node)),
    ("READ_VARIABLE", 1..=1, Moves, |node| variables::read(node)),
    ("REDUCE_ALL", 2..=2, Moves, |node| reduce::reduce(node, Tensor::all)),
    ("REDUCE_ANY", 2..=2, Moves, |node| reduce::reduce(node, Tensor::any)),
    ("REDUCE_MAX", 2..=2, Moves, |node| reduce::reduce(node, Tensor::max)),
    ("REDUCE_MIN", 2..=2, Moves, |node| reduce::reduce(node, Tensor::min)),
    ("REDUCE_PROD", 2..=2, Computes, |node| reduce::reduce(node, Tensor::prod)),
    ("RELU", 1..=1, Computes, |_| each::unary(Tensor::relu)),
    ("RELU6", 1..=1, Computes, |_| each::unary(Tensor::relu6)),
    ("RELU_0_TO_1", 1..=1, Computes, |_| each::unary(|x| x.clip_by_value(0.0, 1.0))),
    ("RELU_N1_TO_1", 1..=1, Computes, |_| each::unary(|x| x.clip_by_value(-1.0, 1.0))),
    ("RESHAPE", 1..=2, Moves, |node| array::reshape(node)),
    ("RESIZE_BILINEAR", 2..=2, Computes, |node| array::resize_bilinear(node)),
    ("RESIZE_NEAREST_NEIGHBOR", 2..=2, Moves, |node| array::resize_nearest(node)),
    ("REVERSE_V2", 2..=2, Moves, |node| array::reverse(node)),
    ("ROUND", 1..=1, Computes, |_| each::unary(Tensor::round)),
    ("RSQRT", 1..=1, Computes, |_| each::unary(Tensor::rsqrt)),
    ("SCATTER_ND", 3..=3, Moves, |node| array::scatter_nd(node)),
    ("SELECT", 3..=3, Moves, |_| each::select()),
    ("SELECT_V2", 3..=3, Moves, |_| each::select_v2()),
    ("SHAPE", 1..=1, Moves, |node| array::shape(node)),
    ("SIGN", 1..=1, Computes, |_| each::unary(Tensor::sign)),
    ("SIN", 1..=1, Computes, |_| each::unary(Tensor::sin)),
    ("SLICE", 3..=3, Moves, |node| array::slice(node)),
    ("SOFTMAX", 1..=1, Computes, |node| reduce::softmax(node)),
    ("SPACE_TO_BATCH_ND", 3..=3, Moves, |node| array::space_to_batch(node)),
    ("SPACE_TO_DEPTH", 1..=1, Moves, |node| array::space_to_depth(node)),
    ("SPLIT", 2..=2, Moves, |node| array::split(node)),
    ("SPLIT_V", 3..=3, Moves, |node| array::split_v(node)),
    ("SQRT", 1..=1, Computes, |_| each::unary(Tensor::sqrt)),
    ("SQUARE", 1..=1, Computes, |_| each::unary(Tensor::square)),
    ("SQUARED_DIFFERENCE", 2..=2, Computes, |_| each::binary(Tensor::squared_difference)),
    ("SQUEEZE", 1..=1, Moves, |node| array::squeeze(node)),
    ("STRIDED_SLICE", 4..=4, Moves, |node| array::strided_slice(node)),
    ("SUB", 2..=2, Computes, |node| each::sub(node)),
    ("SUM", 2..=2, Computes, |node| reduce::reduce(node, Tensor::sum)),
    ("SVDF", 3..=5, Computes, |node| recurrent::svdf(node)),
    ("TANH", 1..=1, Computes, |_| each::unary(Tensor::tanh)),
    ("TILE", 2..=2, Moves, |node| array::tile(node)),
    ("TOPK_V2", 2..=2, Moves, |node| reduce::top_k(node)),
    ("TRANSPOSE", 2..=2, Moves, |node| array::transpose(node)),
    ("TRANSPOSE_CONV", 3..=4, Computes, |node| conv::transpose_conv(node)),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", 1..=24, Computes, |node| recurrent::lstm(node)),
    ("UNIDIRECTIONAL_SEQUENCE_RNN", 5..=5, Computes, |node| recurrent::rnn(node)),
    ("UNPACK", 1..=1, Moves, |node| array::unpack(node)),
    ("VAR_HANDLE", 0..=0, Moves, |node| variables::handle(node)),
    ("WHILE", ANY, Moves, |node| control::repeat(node)),
    ("ZEROS_LIKE", 1..=1, Computes, |_| each::unary(Tensor::zeros_like)),
];

/// Imports an operator. The error is the reason why it cannot be imported.
pub(super) fn import<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let Code::Builtin(name) = node.operator.code else { return Err("only TensorFlow Lite's own operators are supported".into()) };
    let handles = matches!(name, "VAR_HANDLE" | "READ_VARIABLE" | "ASSIGN_VARIABLE");
    let foreign = |tensor: &Described<'_>| tensor.kind.dtype().is_none() && !(handles && tensor.kind == ElementType::RESOURCE);
    if let Some(tensor) = node.tensors().find(|tensor| foreign(tensor)) {
        return Err(format!("its tensor {:?} is {}, which gradlet does not have", tensor.name, tensor.kind));
    }
    let row = TABLE.iter().find(|row| row.0 == name);
    let calls = matches!(name, "IF" | "WHILE");
    if !calls && node.tensors().any(is_quantized) && !row.is_some_and(|row| row.2 == Moves && same_quantization(node)) {
        return quantized::import(node);
    }
    let (_, inputs, _, import) = row.ok_or("it is not supported")?;
    let count = node.operator.inputs.len();
    if !inputs.contains(&count) {
        return Err(format!("it has {count} inputs"));
    }
    (0..*inputs.start()).try_for_each(|at| node.input(at).map(drop))?;
    import(node)
}

/// True for a tensor of small integers that stand for other numbers.
pub(super) fn is_quantized(tensor: &Described<'_>) -> bool {
    matches!(tensor.kind.dtype(), Some(DType::I8 | DType::U8 | DType::I16)) && tensor.quantization.is_some()
}

/// True if all quantized tensors of an operator have the same type and quantization, with one scale, and if it has no activation.
fn same_quantization(node: &Node<'_>) -> bool {
    let concat = node.operator.options::<ConcatenationOptions<'_>>().map(|options| options.fused_activation_function());
    let pool = node.operator.options::<Pool2DOptions<'_>>().map(|options| options.fused_activation_function());
    if concat.or(pool).is_some_and(|activation| activation != 0) {
        return false;
    }
    let mut quantized = node.tensors().filter(|tensor| is_quantized(tensor));
    let Some(first) = quantized.next() else { return true };
    let one = |tensor: &Described<'_>| tensor.quantization.as_ref().is_some_and(|quantization| quantization.scales.len() == 1);
    one(first) && quantized.all(|tensor| tensor.kind == first.kind && tensor.quantization == first.quantization)
}
