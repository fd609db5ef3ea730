//! Host description of an op: its definition, its gradient, and properties for the tracer, the optimizer pass and the planner.
//!
//! The description is a static in the op's file. None of it reaches a device.

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::op::OpDef;
use crate::tensor::scope::{Backward, InputGradients};
use alloc::string::String;

/// Op that user code emits: its definition, its gradient, and its properties.
///
/// The static of an op takes its properties from [`Op::new`], which assumes nothing, from [`Op::total`] or from [`Op::elementwise`].
/// It overrides those that differ.
///
/// ```
/// use gradlet_core::ops::relu;
/// use gradlet_core::custom_op::{Gradient, Op};
/// static OP: Op = Op { tf_type: Some("Relu6"), ..Op::elementwise(&relu::DEF, "relu6(x)", Gradient::Missing("nobody asked")) };
/// assert_eq!(OP.type_name(), "Relu6");
/// ```
pub struct Op {
    /// Definition, with number, shape rule and arity.
    pub def: &'static OpDef,
    /// Arguments and result for error texts: `matmul(a[..,m,k], b[..,k,n]) -> [..,m,n]`.
    pub usage: &'static str,
    /// Gradient.
    pub grad: Gradient,
    /// TensorFlow's name of the op, if it differs from the op's own name in camel case. See [`Op::type_name`].
    pub tf_type: Option<&'static str>,
    /// Data that the kernels may reject.
    pub refusal: Refusal,
    /// True if each output element depends only on the input elements at the same position. Inputs broadcast: an operand may apply to
    /// all elements or to the trailing axes. Compiled functions run such ops block by block.
    pub elementwise: bool,
    /// Condition under which output 0 has the bytes of input 0.
    pub keeps: Keeps,
    /// Neutral element: if all elements of input 1 have this value, the op returns input 0, bit for bit. An example is 1 for `mul`.
    pub neutral: Option<f32>,
    /// For an optimizer's step: the index of the gradient input, and the fused op that replaces the step if the gradient is a product
    /// `xᵀ · dy`. The fused op takes `x` and `dy` instead of the gradient.
    pub with_product: Option<(usize, &'static Op)>,
    /// True if the op exchanges data with other replicas. Every run then computes it, in the order of the trace.
    pub exchanges: bool,
}

/// Gradient of an op.
pub enum Gradient {
    /// Rule that emits forward ops. It therefore works under tapes and in traces, and is itself differentiable.
    Rule(fn(&Backward<'_>) -> Result<InputGradients>),
    /// No gradient, with the reason: the op is constant almost everywhere, or its result is not a float.
    None(&'static str),
    /// Gradient that exists but is not implemented, with the reason. Asking for it is an error.
    Missing(&'static str),
}

/// Data that the kernels of an op may reject with an error. `tests/tests/suite/refusals.rs` checks this for the whole catalogue. The
/// planner places an op that may reject its data before every write of a variable. Such an op never works in a variable's own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernels accept all data.
    Never,
    /// Some integers: a zero divisor, a negative exponent.
    Integers,
    /// Some data of any type: an index out of range, a false assertion.
    Any,
}

/// Condition under which output 0 of an op has the bytes of input 0. The graph optimizer then removes the op.
#[derive(Clone, Copy)]
pub enum Keeps {
    /// Never, as far as is known.
    Nothing,
    /// If input 0 and output 0 have the same type.
    SameType,
    /// If input 0 and output 0 agree in element type and element count, and the function returns true for the attribute words and the
    /// dimensions of input 0.
    Where(fn(&[u32], &[u32]) -> bool),
    /// Always: the op is a view of its input with another shape.
    Always,
}

impl Op {
    /// Creates an op with no assumptions: its kernels may reject any data, and the graph optimizer does not change it.
    pub const fn new(def: &'static OpDef, usage: &'static str, grad: Gradient) -> Op {
        let (refusal, keeps) = (Refusal::Any, Keeps::Nothing);
        Op { def, usage, grad, tf_type: None, refusal, elementwise: false, keeps, neutral: None, with_product: None, exchanges: false }
    }

    /// Creates an op whose kernels accept all data.
    pub const fn total(def: &'static OpDef, usage: &'static str, grad: Gradient) -> Op {
        Op { refusal: Refusal::Never, ..Op::new(def, usage, grad) }
    }

    /// Creates an op that computes element by element and accepts all data.
    pub const fn elementwise(def: &'static OpDef, usage: &'static str, grad: Gradient) -> Op {
        Op { elementwise: true, ..Op::total(def, usage, grad) }
    }

    /// Returns TensorFlow's type name of the op. If there is none, returns the op's name in camel case: `relu_grad` is `ReluGrad`.
    ///
    /// ```
    /// use gradlet_core::ops;
    /// let types = [&ops::matmul::OP, &ops::add::OP, &ops::relu_grad::OP].map(|op| op.type_name());
    /// assert_eq!(types, ["MatMul", "AddV2", "ReluGrad"]);
    /// ```
    pub fn type_name(&self) -> String {
        self.tf_type.map_or_else(|| camel(self.def.name), String::from)
    }

    /// True if the kernel for inputs of `dtype` may reject its data.
    pub fn may_refuse(&self, dtype: DType) -> bool {
        match self.refusal {
            Refusal::Never => false,
            Refusal::Integers => !dtype.is_float(),
            Refusal::Any => true,
        }
    }

    /// True if the op returns the bytes of its input with another shape.
    pub(crate) fn is_view(&self) -> bool {
        matches!(self.keeps, Keeps::Always)
    }
}

/// Converts a name to camel case: `relu_grad` to `ReluGrad`.
pub(crate) fn camel(name: &str) -> String {
    let mut camel = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel += letters.as_str();
    }
    camel
}
