//! An op as the host knows it: its definition, its gradient, and the facts that the tracer, the optimiser and the planner ask for.
//!
//! The facts stand on the op's own static, in the op's own file. None of them reaches a device.

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::op::OpDef;
use crate::tensor::scope::{Backward, InputGradients};
use alloc::string::String;

/// An op as user code emits it: its definition, how gradients go through it, and what is known of it.
///
/// [`Op::new`] supposes nothing of an op; a static states over it, or over [`Op::total`] or [`Op::elementwise`], what is special.
///
/// ```
/// use gradlet_core::ops::relu;
/// use gradlet_core::custom_op::{Gradient, Op};
/// static OP: Op = Op { tf_type: Some("Relu6"), ..Op::elementwise(&relu::DEF, "relu6(x)", Gradient::Missing("nobody asked")) };
/// assert_eq!(OP.type_name(), "Relu6");
/// ```
pub struct Op {
    /// What it computes.
    pub def: &'static OpDef,
    /// What it takes and gives, for error texts: `matmul(a[..,m,k], b[..,k,n]) -> [..,m,n]`.
    pub usage: &'static str,
    /// Its gradient.
    pub grad: Gradient,
    /// TensorFlow's name of the op, where that is not the op's own name in TensorFlow's spelling; see [`Op::type_name`].
    pub tf_type: Option<&'static str>,
    /// Which data its kernels may refuse.
    pub refusal: Refusal,
    /// Whether it computes each element of its outputs from those at the same position of its inputs, broadcast: with an operand for
    /// all elements, or for the trailing axes. Compiled functions run such ops block by block.
    pub elementwise: bool,
    /// Where output 0 has the bytes of input 0.
    pub keeps: Keeps,
    /// The element of input 1 that gives input 0 again, bit for bit.
    pub neutral: Option<f32>,
    /// Of an optimizer's step: the number of the input that is the gradient, and the op that takes `x` and `dy` in its place, where it
    /// is the product `xᵀ · dy`.
    pub with_product: Option<(usize, &'static Op)>,
}

/// How gradients go through an op.
pub enum Gradient {
    /// A rule that emits forward ops; so it serves tapes and traces, and has gradients itself.
    Rule(fn(&Backward<'_>) -> Result<InputGradients>),
    /// None flows: the op is constant almost everywhere, or its result is not a float. With the reason.
    None(&'static str),
    /// There would be one, but the op does not have it, for this reason: asking for it is an error.
    Missing(&'static str),
}

/// Which data the kernels of an op may refuse with an error; `tests/tests/suite/refusals.rs` holds the catalogue to it. An op that may
/// refuse its data is planned before any variable is written, and never works in a variable's own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// None.
    Never,
    /// Integers: a division by zero, a negative exponent.
    Integers,
    /// Any: an index out of range, an assertion that fails.
    Any,
}

/// Where output 0 of an op has the bytes of input 0, so that the optimiser can do without the op.
#[derive(Clone, Copy)]
pub enum Keeps {
    /// Nowhere, as far as is known.
    Nothing,
    /// Where they have the same type.
    SameType,
    /// Where they have one element type and as many elements, and this holds of the attribute words and the dimensions of input 0.
    Where(fn(&[u32], &[u32]) -> bool),
    /// Everywhere: the op is a view of its input under another shape.
    Always,
}

impl Op {
    /// An op of which nothing else is known: its kernels may refuse any data, and the optimiser leaves it as it is.
    pub const fn new(def: &'static OpDef, usage: &'static str, grad: Gradient) -> Op {
        let (refusal, keeps) = (Refusal::Any, Keeps::Nothing);
        Op { def, usage, grad, tf_type: None, refusal, elementwise: false, keeps, neutral: None, with_product: None }
    }

    /// An op whose kernels take whatever data they are given.
    pub const fn total(def: &'static OpDef, usage: &'static str, grad: Gradient) -> Op {
        Op { refusal: Refusal::Never, ..Op::new(def, usage, grad) }
    }

    /// A total op that computes element by element.
    pub const fn elementwise(def: &'static OpDef, usage: &'static str, grad: Gradient) -> Op {
        Op { elementwise: true, ..Op::total(def, usage, grad) }
    }

    /// The type that TensorFlow gives the op; where it has none, the name in its spelling: `relu_grad` is `ReluGrad`.
    ///
    /// ```
    /// use gradlet_core::ops;
    /// let types = [&ops::matmul::OP, &ops::add::OP, &ops::relu_grad::OP].map(|op| op.type_name());
    /// assert_eq!(types, ["MatMul", "AddV2", "ReluGrad"]);
    /// ```
    pub fn type_name(&self) -> String {
        self.tf_type.map_or_else(|| camel(self.def.name), String::from)
    }

    /// True if the kernel for inputs of `dtype` may refuse its data.
    pub fn may_refuse(&self, dtype: DType) -> bool {
        match self.refusal {
            Refusal::Never => false,
            Refusal::Integers => !dtype.is_float(),
            Refusal::Any => true,
        }
    }

    /// True if the op gives the bytes of its input under another shape.
    pub(crate) fn is_view(&self) -> bool {
        matches!(self.keeps, Keeps::Always)
    }
}

/// `relu_grad` as `ReluGrad`.
pub(crate) fn camel(name: &str) -> String {
    let mut camel = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel += letters.as_str();
    }
    camel
}
