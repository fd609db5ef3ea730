//! [`autograph`]: Rust's own `if`, `while` and `for` where tensors decide; and what its code is made of.

mod branch;
mod carry;
mod exit;
mod looping;
mod operators;
mod source;

#[doc(inline)]
pub use gradlet_core::__to_code as to_code;
/// Rewrites a function, so that tensors can decide in Rust's own control flow: TensorFlow's AutoGraph.
///
/// ```
/// use gradlet_core::autograph::{autograph, to_code};
/// use gradlet_core::{Eager, Function, Result, Scope, Tensor, ops};
///
/// #[autograph]
/// fn collatz(mut n: Tensor) -> Result<Tensor> {
///     let mut steps = n.like(0.0)?;
///     while n != 1 {
///         n = if n % 2 == 0 { n.floordiv(&n.like(2.0)?)? } else { n * 3 + 1 };
///         steps += 1;
///     }
///     Ok(steps)
/// }
///
/// let device = ops::portable_cpu();
/// assert_eq!(collatz(Tensor::scalar(&device, 6))?.item::<i32>()?, 8);
/// let traced = Function::new(|_: &dyn Scope, n: Tensor| collatz(n));
/// assert_eq!(traced.call(&Eager::new(&device), Tensor::scalar(&device, 27))?.item::<i32>()?, 111);
/// assert!(to_code!(collatz).contains("let mut looping = ag::looping"));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Where a plain value decides, the code runs as Rust runs it, and carries whatever Rust does; where a tensor decides that has a value,
/// too; where a tensor decides in a trace, [`cond`](crate::trace::control::cond) and [`while_loop`](crate::trace::control::while_loop)
/// are recorded. Which it is, the types say when the function is compiled, so an error is one of compilation, at the line that is wrong.
///
/// | written | with tensors |
/// |---|---|
/// | `if`, `else if`, `else` | one branch runs; in a trace both are traced, and variables that either assigns are carried out of them |
/// | `while` | runs while the tensor is true; in a trace, condition and body are traced once |
/// | `for row in &x` | over the first axis of `x` |
/// | `for i in range(n)?` | over numbers below a tensor, see [`range`] |
/// | `for i in 0..3` | as Rust: a trace has each iteration |
/// | `break`, `continue`, `return` in an `if` | the rest runs where the block was not left |
/// | `&&`, <code>&#124;&#124;</code>, `!` | the second operand is computed where the first one does not decide |
/// | `<`, `<=`, `>`, `>=`, `==`, `!=` | element by element, as [`Tensor::less`] and the like |
/// | `+`, `-`, `*`, `/`, `%`, `+=`, … | [`Tensor::add`], …; `/` is [`Tensor::divide`], `%` [`Tensor::floormod`] |
/// | numbers beside a tensor | get its element type; a float does not become an integer |
/// | `x = 0` where `x` is a tensor; `if t { y } else { 0.0 }` | the literal becomes a tensor, of i32 or f32 as in TensorFlow |
/// | `assert!` | an op that fails where it runs, see [`Tensor::assert`]; of a bool, Rust's own |
///
/// The function returns a [`Result`], because what tensors do can fail; `?` works everywhere in it. The rewritten source is a
/// constant of a free function's name: see [`to_code`].
///
/// A traced loop has gradients if it is known how long it can get: one over rows is, and others say it with
/// `#[max_iterations(100)]` before `while` or `for`.
///
/// What is to be known:
///
/// - What a tensor's branch or loop assigns must be a [`Structure`](crate::tensor::structure::Structure), and keep its types; host
///   numbers in it must come out the same from both branches. What is changed by a method, such as `list.push(x)`, is not seen.
/// - `break` and `continue` that a tensor decides leave the innermost `while` or `for`; `loop`, `while let`, labels of other loops and
///   `break` with a value take a bool.
/// - Operators on values that are no tensors clone their operands, if these are variables.
/// - Closures, macros other than `assert!` and `vec!`, and functions in the function stay as they are; a closure with `#[autograph]` of its
///   own, which returns a `Result` too, is rewritten.
/// - A `while`'s condition is traced twice: it should have no effects.
#[doc(inline)]
pub use gradlet_derive::autograph_in_core as autograph;
pub use source::{Iterable, Limit, Limits, Range, range};

use crate::base::dtype::Bool;
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::tensor::Tensor;
use crate::tensor::scope::ScopeHandle;
use alloc::format;
use alloc::string::String;

/// What the code that [`autograph`] makes is made of. Only that code names it.
#[doc(hidden)]
pub mod code {
    pub use super::branch::{Branch, Guard, Ran, Rest, after, branch};
    pub use super::carry::*;
    pub use super::exit::{After, Exit, NoReturns, NoValues, Returns, Values, ok, returned, settled};
    pub use super::looping::{Each, Looping, each, looping};
    pub use super::operators::*;
    pub use super::source::{Items, LoopItems, Rows};
    pub use super::{Condition, Decision, fails, plain};
    pub use alloc::format;
    pub use gradlet_core::{__leave as leave, __own as own};

    /// The traits whose methods the code calls.
    pub mod traits {
        pub use super::super::carry::{Again as _, Unstructured as _};
        pub use super::super::exit::{NoReturns as _, NoValues as _};
        pub use super::super::operators::{
            OtherAdd as _, OtherDiv as _, OtherMul as _, OtherNeg as _, OtherNot as _, OtherRem as _, OtherSub as _, PlainAddAssign as _,
            PlainDivAssign as _, PlainEqual as _, PlainGreater as _, PlainGreaterEqual as _, PlainLess as _, PlainLessEqual as _,
            PlainMulAssign as _, PlainNotEqual as _, PlainRemAssign as _, PlainSet as _, PlainSubAssign as _, SameAdd as _, SameDiv as _,
            SameMul as _, SameNeg as _, SameNot as _, SameRem as _, SameSub as _,
        };
    }
}

/// The source that [`autograph`](crate::trace::autograph::autograph) made of a function, which is named by its path.
///
/// ```
/// use gradlet_core::autograph::{autograph, to_code};
/// use gradlet_core::{Result, Tensor};
///
/// #[autograph]
/// fn double(x: &Tensor) -> Result<Tensor> {
///     Ok(x * 2)
/// }
/// let code = "fn double(x: &Tensor) -> Result<Tensor> {\n    Ok(ag::Pair(&x, &2).mul()?)\n}\n";
/// assert_eq!(to_code!(double), code);
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __to_code {
    ($function:path) => {
        <$function>::CODE
    };
}

/// Leaves a block by its label, from branches in it. What a bool decides leaves it at once; what a tensor decides ends the branch.
#[doc(hidden)]
#[macro_export]
macro_rules! __leave {
    ($exit:expr, $label:lifetime) => {
        break $label $exit
    };
    ($exit:expr, $branch:ident $own:lifetime, $($rest:tt)+) => {{
        let exit = $exit;
        match $branch.moves() {
            ::core::result::Result::Ok(moves) => {
                moves.go();
                $crate::autograph::code::leave!(exit.out(), $($rest)+)
            }
            ::core::result::Result::Err(copies) => {
                copies.go();
                break $own exit
            }
        }
    }};
}

/// Moves a variable out of a branch; copies it, where both branches run.
#[doc(hidden)]
#[macro_export]
macro_rules! __own {
    ($value:expr, $branch:ident) => {
        match $branch.moves() {
            ::core::result::Result::Ok(moves) => {
                moves.go();
                $value
            }
            ::core::result::Result::Err(copies) => {
                let copy = copies.copy(&$value);
                copy
            }
        }
    };
    ($value:expr, $branch:ident, $($rest:ident),+) => {
        match $branch.moves() {
            ::core::result::Result::Ok(moves) => {
                moves.go();
                $crate::autograph::code::own!($value, $($rest),+)
            }
            ::core::result::Result::Err(copies) => {
                let copy = copies.copy(&$value);
                copy
            }
        }
    };
}

/// What an `if` or a `while` decides by: a `bool`, or a tensor `bool[]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a condition",
    label = "neither a bool nor a tensor",
    note = "a tensor becomes a condition by a comparison, such as `x > 0.0`"
)]
pub trait Condition {
    #[doc(hidden)]
    type Kind: carry::Kind;
    #[doc(hidden)]
    fn decide(self) -> Result<Decision>;
}

/// What a condition says.
#[doc(hidden)]
pub struct Decision {
    holds: bool,
    tensor: Option<Tensor>,
    /// Where the tensor is traced.
    scope: Option<ScopeHandle>,
}

impl Condition for bool {
    type Kind = carry::Plain;
    fn decide(self) -> Result<Decision> {
        Ok(Decision { holds: self, tensor: None, scope: None })
    }
}

impl Condition for Tensor {
    type Kind = carry::Dynamic;
    fn decide(self) -> Result<Decision> {
        if self.tensor_type() != TensorType::BOOL {
            return Err(Error::message(format!("a condition must be bool[], not {}", self.tensor_type())));
        }
        let scope = source::traced(&self)?;
        let holds = scope.is_none() && self.item::<Bool>()?.get();
        Ok(Decision { holds, tensor: Some(self), scope })
    }
}

impl Condition for &Tensor {
    type Kind = carry::Dynamic;
    fn decide(self) -> Result<Decision> {
        self.clone().decide()
    }
}

/// A condition that must be a bool.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a tensor cannot decide here",
    label = "this must be a bool",
    note = "a tensor can decide over `break` and `continue` of the innermost `while` or `for`, and over `return`, \
            where the `if` is a statement of its own"
)]
pub trait PlainCondition {
    #[doc(hidden)]
    fn holds(self) -> bool;
}

impl PlainCondition for bool {
    fn holds(self) -> bool {
        self
    }
}

/// A condition that must be a bool.
#[doc(hidden)]
pub fn plain<C: PlainCondition>(condition: C) -> bool {
    condition.holds()
}

/// What `assert!` takes.
#[doc(hidden)]
#[diagnostic::on_unimplemented(message = "`{Self}` cannot be asserted", label = "neither a bool nor a tensor")]
pub trait Assertion {
    #[doc(hidden)]
    fn fails(self, message: impl FnOnce() -> String) -> Result<bool>;
}

impl Assertion for bool {
    fn fails(self, _: impl FnOnce() -> String) -> Result<bool> {
        Ok(!self)
    }
}

impl Assertion for &Tensor {
    fn fails(self, message: impl FnOnce() -> String) -> Result<bool> {
        self.assert(&message()).map(|()| false)
    }
}

impl Assertion for Tensor {
    fn fails(self, message: impl FnOnce() -> String) -> Result<bool> {
        (&self).fails(message)
    }
}

/// Whether `assert!` panics. A tensor's check is an op: it gives an error where it runs.
#[doc(hidden)]
pub fn fails<C: Assertion>(condition: C, message: impl FnOnce() -> String) -> Result<bool> {
    condition.fails(message)
}
