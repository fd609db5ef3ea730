//! [`autograph`]: Rust's own `if`, `while` and `for` with tensors as conditions, and the runtime of the generated code.

mod branch;
mod carry;
mod exit;
mod looping;
mod operators;
mod source;

#[doc(inline)]
pub use gradlet_core::__to_code as to_code;
/// Rewrites a function so that tensors can be conditions in Rust's own control flow, like TensorFlow's AutoGraph.
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
/// If the condition is a plain value or a computed tensor, the code runs as plain Rust and can use any type. If the condition is a
/// traced tensor, [`cond`](crate::trace::control::cond) or [`while_loop`](crate::trace::control::while_loop) is recorded. The types
/// determine at compile time whether a condition is a tensor. A mistake is therefore a compile error that points at its line.
///
/// | written | with tensors |
/// |---|---|
/// | `if`, `else if`, `else` | one branch runs; in a trace both are traced, and the variables that they assign become outputs |
/// | `while` | runs while the tensor is true; in a trace, a loop is recorded |
/// | `for row in &x` | iterates along the first axis of `x` |
/// | `for i in range(n)?` | iterates over the numbers below a tensor, see [`range`] |
/// | `for i in 0..3` | plain Rust: a trace records every iteration |
/// | `break`, `continue`, `return` in an `if` | the rest of the block runs only if the block was not left |
/// | `&&`, <code>&#124;&#124;</code>, `!` | the second operand is computed only if the first one does not decide the result |
/// | `<`, `<=`, `>`, `>=`, `==`, `!=` | element by element, like [`Tensor::less`] |
/// | `+`, `-`, `*`, `/`, `%`, `+=`, … | [`Tensor::add`], …; `/` is [`Tensor::divide`], `%` is [`Tensor::floormod`] |
/// | number with a tensor | the number takes the tensor's element type; a float does not become an integer |
/// | `x = 0` where `x` is a tensor; `if t { y } else { 0.0 }` | the literal becomes a tensor, of i32 or f32 as in TensorFlow |
/// | `assert!` | an op that fails when it runs, see [`Tensor::assert`]; for a bool, Rust's own |
///
/// The function returns a [`Result`], because tensor operations can fail. `?` works everywhere in it. For a free function,
/// [`to_code`] returns the rewritten source.
///
/// A traced loop has gradients if its maximum number of iterations is known. A loop along an axis has a known number. For other
/// loops, write `#[max_iterations(100)]` before `while` or `for`.
///
/// Restrictions:
///
/// - A variable that a branch or loop with a tensor condition assigns must be a [`Structure`](crate::tensor::structure::Structure)
///   and keep its types. Host numbers in it must be equal after both branches. A change by a method, such as `list.push(x)`, is not
///   detected.
/// - `break` and `continue` with a tensor condition leave the innermost `while` or `for`. The following need a bool condition: exits
///   from `loop` and `while let`, exits from outer loops by label, and `break` with a value.
/// - Operators on values that are not tensors clone operands that are variables.
/// - Closures, macros other than `assert!` and `vec!`, and nested functions are not rewritten. A closure with its own `#[autograph]`
///   is rewritten, and returns a `Result` too.
/// - The condition of a `while` is traced at least twice, so it should have no effects.
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

/// Runtime of the code that [`autograph`] generates. Only that code uses it.
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

    /// Traits whose methods the generated code calls.
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

/// Returns the source that [`autograph`](crate::trace::autograph::autograph) generated for the function at this path.
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

/// Leaves a block by its label, out of nested branches. With a bool condition, this leaves the block directly. With a tensor
/// condition, it ends the branch.
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

/// Moves a variable out of a branch, or copies it if both branches run.
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

/// Condition of an `if` or a `while`: a `bool`, or a tensor `bool[]`.
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

/// Value of a condition.
#[doc(hidden)]
pub struct Decision {
    holds: bool,
    tensor: Option<Tensor>,
    /// Scope that traces the tensor, if it is traced.
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

/// Condition that must be a bool.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a tensor cannot be the condition here",
    label = "this must be a bool",
    note = "a tensor can be the condition of `break` and `continue` of the innermost `while` or `for`, and of `return`, \
            if the `if` is a statement of its own"
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

/// Returns a condition that must be a bool.
#[doc(hidden)]
pub fn plain<C: PlainCondition>(condition: C) -> bool {
    condition.holds()
}

/// Argument of `assert!`.
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

/// Returns true if `assert!` must panic. The check of a tensor is an op, which fails when it runs.
#[doc(hidden)]
pub fn fails<C: Assertion>(condition: C, message: impl FnOnce() -> String) -> Result<bool> {
    condition.fails(message)
}
