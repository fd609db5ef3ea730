//! The operator of each op.

use super::emitter::{Converted, Emitter};
use super::{arrays, control, quantized, windows};
use crate::formats::tflite::write::{Field, Options};
use gradlet_core::DType;
use gradlet_core::function::graph::Node;

/// Element types that the operator of an op has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elements {
    /// It moves or compares elements, so integers of one quantization are like numbers.
    Any,
    /// It computes with f32, i32 and i64.
    Numbers,
    /// It computes with f32 and i32.
    Words,
    /// It computes with f32.
    Floats,
    /// It has integers that stand for real numbers.
    Quantized,
}
use Elements::{Any, Floats, Numbers, Quantized, Words};

/// An op, the element types of its first operand, and its conversion.
type Row = (&'static str, Elements, for<'e, 'g> fn(&'e mut Emitter<'g>, &'e Node) -> Converted<()>);

/// Options of an operator with a fused activation in slot 0.
fn arithmetic(key: u8) -> Options {
    Some((key, Vec::new()))
}

static TABLE: &[Row] = &[
    ("abs", Words, |to, node| to.same(node, "ABS", None)),
    ("add", Numbers, |to, node| to.same(node, "ADD", arithmetic(11))),
    ("all", Any, |to, node| arrays::reduce(to, node, "REDUCE_ALL")),
    ("any", Any, |to, node| arrays::reduce(to, node, "REDUCE_ANY")),
    ("argmax", Any, |to, node| arrays::position(to, node, "ARG_MAX", 40)),
    ("argmin", Any, |to, node| arrays::position(to, node, "ARG_MIN", 57)),
    ("avg_pool2d", Floats, |to, node| windows::pool(to, node, "AVERAGE_POOL_2D")),
    ("broadcast_to", Any, arrays::broadcast_to),
    ("cast", Any, arrays::cast),
    ("ceil", Floats, |to, node| to.same(node, "CEIL", None)),
    ("concat", Any, arrays::concat),
    ("cond", Any, control::branch),
    ("conv2d", Floats, windows::conv2d),
    ("conv2d_input_grad", Floats, windows::conv2d_transpose),
    ("cos", Floats, |to, node| to.same(node, "COS", None)),
    ("cumsum", Numbers, arrays::cumsum),
    ("dense", Floats, windows::dense),
    ("depthwise_conv2d", Floats, windows::depthwise_conv2d),
    ("dequantize", Quantized, quantized::dequantize),
    ("div", Floats, |to, node| to.same(node, "DIV", arithmetic(29))),
    ("equal", Any, |to, node| arrays::compare(to, node, "EQUAL")),
    ("exp", Floats, |to, node| to.same(node, "EXP", None)),
    ("floor", Floats, |to, node| to.same(node, "FLOOR", None)),
    ("floordiv", Words, arrays::floordiv),
    ("floormod", Numbers, |to, node| to.same(node, "FLOOR_MOD", None)),
    ("gather", Any, arrays::gather),
    ("gather_nd", Any, |to, node| to.same(node, "GATHER_ND", None)),
    ("identity", Any, arrays::reshape),
    ("less", Any, |to, node| arrays::compare(to, node, "LESS")),
    ("less_equal", Any, |to, node| arrays::compare(to, node, "LESS_EQUAL")),
    ("log", Floats, |to, node| to.same(node, "LOG", None)),
    ("log_softmax", Floats, |to, node| arrays::softmax(to, node, "LOG_SOFTMAX", None)),
    ("logical_and", Any, |to, node| to.same(node, "LOGICAL_AND", None)),
    ("logical_not", Any, |to, node| to.same(node, "LOGICAL_NOT", None)),
    ("logical_or", Any, |to, node| to.same(node, "LOGICAL_OR", None)),
    ("logical_xor", Any, |to, node| to.same(node, "NOT_EQUAL", None)),
    ("lookup", Quantized, quantized::lookup),
    ("matmul", Floats, windows::matmul),
    ("max", Any, |to, node| arrays::reduce(to, node, "REDUCE_MAX")),
    ("max_pool2d", Any, |to, node| windows::pool(to, node, "MAX_POOL_2D")),
    ("maximum", Any, |to, node| arrays::extreme(to, node, "MAXIMUM")),
    ("mean", Floats, |to, node| arrays::reduce(to, node, "MEAN")),
    ("min", Any, |to, node| arrays::reduce(to, node, "REDUCE_MIN")),
    ("minimum", Any, |to, node| arrays::extreme(to, node, "MINIMUM")),
    ("mul", Numbers, |to, node| to.same(node, "MUL", arithmetic(21))),
    ("neg", Numbers, |to, node| to.same(node, "NEG", None)),
    ("not_equal", Any, |to, node| arrays::compare(to, node, "NOT_EQUAL")),
    ("pad", Any, arrays::pad),
    ("pow", Floats, |to, node| to.same(node, "POW", None)),
    ("prod", Numbers, |to, node| arrays::reduce(to, node, "REDUCE_PROD")),
    ("quantize", Floats, quantized::quantize),
    ("quantized_add", Quantized, quantized::add),
    ("quantized_avg_pool2d", Quantized, quantized::avg_pool2d),
    ("quantized_conv2d", Quantized, |to, node| quantized::conv2d(to, node, false)),
    ("quantized_dense", Quantized, quantized::dense),
    ("quantized_depthwise_conv2d", Quantized, |to, node| quantized::conv2d(to, node, true)),
    ("quantized_l2_normalize", Quantized, quantized::l2_normalize),
    ("quantized_matmul", Quantized, quantized::matmul),
    ("quantized_mean", Quantized, quantized::mean),
    ("quantized_mul", Quantized, quantized::mul),
    ("quantized_resize_bilinear", Quantized, quantized::resize_bilinear),
    ("quantized_sigmoid", Quantized, quantized::sigmoid),
    ("quantized_softmax", Quantized, quantized::softmax),
    ("quantized_squared_difference", Quantized, quantized::squared_difference),
    ("relu", Floats, |to, node| to.same(node, "RELU", None)),
    ("requantize", Quantized, quantized::requantize),
    ("reshape", Any, arrays::reshape),
    ("round", Floats, |to, node| to.same(node, "ROUND", None)),
    ("rsqrt", Floats, |to, node| to.same(node, "RSQRT", None)),
    ("scatter_nd", Numbers, arrays::scatter_nd),
    ("select", Any, arrays::select),
    ("sigmoid", Floats, |to, node| to.same(node, "LOGISTIC", None)),
    ("sign", Floats, |to, node| to.same(node, "SIGN", None)),
    ("sin", Floats, |to, node| to.same(node, "SIN", None)),
    ("softmax", Floats, |to, node| arrays::softmax(to, node, "SOFTMAX", Some((9, vec![(0, Field::F32(1.0))])))),
    ("sqrt", Floats, |to, node| to.same(node, "SQRT", None)),
    ("strided_slice", Any, arrays::strided_slice),
    ("sub", Numbers, |to, node| to.same(node, "SUB", arithmetic(28))),
    ("sum", Numbers, |to, node| arrays::reduce(to, node, "SUM")),
    ("tanh", Floats, |to, node| to.same(node, "TANH", None)),
    ("tensor_scatter_update", Any, arrays::scatter_update),
    ("top_k", Any, arrays::top_k),
    ("transpose", Any, arrays::transpose),
    ("truncatediv", Words, |to, node| match to.kind(node.inputs[0]).dtype {
        DType::I32 => to.same(node, "DIV", arithmetic(29)),
        _ => Err("it rounds toward zero, but DIV of floats does not round".into()),
    }),
    ("while_loop", Any, control::repeat),
];

/// Adds the operators of a node. The error is the reason why there are none.
pub(super) fn emit(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let Some((_, elements, convert)) = TABLE.iter().find(|(op, ..)| *op == node.op.def.name) else {
        return Err(match node.op.def.name {
            name if name.starts_with("packed_") => {
                "its filter is packed for a microcontroller: convert the function before it becomes an artifact".into()
            }
            _ => "the converter has no operator for it".into(),
        });
    };
    if let Some(&x) = node.inputs.first() {
        let dtype = to.kind(x).dtype;
        let fits = match elements {
            // Few operators have other floats.
            Any => !matches!(dtype, DType::F64 | DType::F16 | DType::Bf16) || matches!(node.op.def.name, "cast" | "reshape" | "identity"),
            Words => matches!(dtype, DType::F32 | DType::I32),
            Numbers => matches!(dtype, DType::F32 | DType::I32 | DType::I64),
            Floats => dtype == DType::F32,
            Quantized => matches!(dtype, DType::I8 | DType::U8 | DType::I16),
        };
        if !fits {
            return Err(format!("its operator does not take elements of type {dtype}"));
        }
    }
    let rank = node.outputs.iter().map(|&id| to.kind(id).shape.rank()).max().unwrap_or(0);
    let repeats = node.inputs.iter().any(|&id| to.kind(id).shape != to.kind(node.inputs[0]).shape);
    match RANKS.iter().find(|(op, ..)| *op == node.op.def.name) {
        Some(&(_, most, repeating)) if rank > most && (repeats || !repeating) => {
            let when = if repeating { " for operands of different shapes" } else { "" };
            Err(format!("its result has {rank} axes, but its operator takes at most {most}{when}"))
        }
        _ => convert(to, node),
    }
}

/// Greatest numbers of axes that the kernels of TensorFlow Lite have, and whether they apply only if an operand is repeated.
const RANKS: &[(&str, usize, bool)] = &[
    ("add", 6, true),
    ("div", 5, true),
    ("equal", 4, true),
    ("floordiv", 4, true),
    ("floormod", 4, true),
    ("less", 4, true),
    ("less_equal", 4, true),
    ("logical_and", 4, true),
    ("logical_or", 4, true),
    ("logical_xor", 4, true),
    ("matmul", 5, false),
    ("maximum", 5, true),
    ("minimum", 5, true),
    ("mul", 6, true),
    ("not_equal", 4, true),
    ("pad", 5, false),
    ("pow", 4, true),
    ("quantized_add", 6, true),
    ("quantized_matmul", 5, false),
    ("quantized_mul", 6, true),
    ("quantized_squared_difference", 4, true),
    ("select", 5, true),
    ("strided_slice", 5, false),
    ("sub", 6, true),
    ("transpose", 6, false),
    ("truncatediv", 5, true),
];
