//! Operators on tensors. For other values, they return the results of Rust's operators.

use super::source::traced;
use crate::base::dtype::{Bool, DType};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::trace::control::cond;
use alloc::format;
use alloc::string::String;
use core::ops;

/// Number that an operator combines with a tensor.
#[derive(Clone, Copy)]
pub enum Number {
    /// Integer, for tensors of any numeric type.
    Integer(i64),
    /// Float, for float tensors.
    Float(f64),
    /// Bool, for bool tensors.
    Truth(bool),
}

/// Rust number or bool, which takes the element type of the tensor that it is combined with.
pub trait Host: Copy {
    #[doc(hidden)]
    fn number(self) -> Number;

    /// Returns a scalar of `tensor`'s element type. Fails for a float with an integer tensor, and if exactly one of the two is bool.
    #[doc(hidden)]
    fn constant(self, tensor: &Tensor) -> Result<Tensor> {
        let dtype = tensor.dtype();
        let wrong =
            |what: &str| Error::message(format!("{what} cannot be combined with a tensor {}: cast one of them", tensor.tensor_type()));
        match self.number() {
            Number::Integer(value) if dtype == DType::I64 => Ok(Tensor::scalar(&tensor.device()?, value)),
            Number::Integer(value) if dtype != DType::Bool => tensor.like(value as f64),
            Number::Float(value) if dtype.is_float() => tensor.like(value),
            Number::Truth(value) if dtype == DType::Bool => tensor.like(u8::from(value).into()),
            Number::Integer(_) => Err(wrong("an integer")),
            Number::Float(_) => Err(wrong("a float")),
            Number::Truth(_) => Err(wrong("a bool")),
        }
    }
}

macro_rules! hosts {
    ($($kind:ident as $as:ty: $($ty:ty),*;)*) => {$($(
        impl Host for $ty {
            fn number(self) -> Number {
                Number::$kind(self as $as)
            }
        }
        impl Literal<$ty> for $ty {
            fn literal(value: $ty, _: &Device) -> $ty {
                value
            }
        }
    )*)*};
}
hosts! { Integer as i64: i8, u8, i16, u16, i32, u32, i64, u64, isize, usize; Float as f64: f32, f64; Truth as bool: bool; }

/// Type of a variable to which a literal of type `L` can be assigned.
#[diagnostic::on_unimplemented(
    message = "a literal `{L}` cannot be assigned to `{Self}` if the condition is a tensor",
    label = "neither a tensor nor a number of that type"
)]
pub trait Literal<L>: Sized {
    #[doc(hidden)]
    fn literal(value: L, device: &Device) -> Self;
}

/// Element types as in TensorFlow: integers become i32, floats become f32.
impl<L: Host> Literal<L> for Tensor {
    fn literal(value: L, device: &Device) -> Tensor {
        match value.number() {
            Number::Integer(value) => Tensor::scalar(device, value as i32),
            Number::Float(value) => Tensor::scalar(device, value as f32),
            Number::Truth(value) => Tensor::scalar(device, Bool::from(value)),
        }
    }
}

/// Operand that an operator can combine with a tensor.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be combined with a tensor by an operator",
    label = "neither a tensor nor a number"
)]
pub trait Operand {
    #[doc(hidden)]
    fn beside(&self, tensor: &Tensor) -> Result<Tensor>;
}

impl<H: Host> Operand for H {
    fn beside(&self, tensor: &Tensor) -> Result<Tensor> {
        self.constant(tensor)
    }
}

impl Operand for Tensor {
    fn beside(&self, _: &Tensor) -> Result<Tensor> {
        Ok(self.clone())
    }
}

impl Operand for &Tensor {
    fn beside(&self, _: &Tensor) -> Result<Tensor> {
        Ok((*self).clone())
    }
}

/// Operands of a binary operator.
pub struct Pair<'a, A: ?Sized, B: ?Sized>(pub &'a A, pub &'a B);

macro_rules! arithmetic {
    ($($name:ident $same:ident $other:ident $op:ident $symbol:tt $method:ident;)*) => {
        arithmetic!(@tensor [Tensor] $($name $method)*);
        arithmetic!(@tensor [&Tensor] $($name $method)*);
        impl<A: Host> Pair<'_, A, Tensor> {
            $(
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                pub fn $name(self) -> Result<Tensor> {
                    self.0.constant(self.1)?.$method(self.1)
                }
            )*
        }
        impl<A: Host> Pair<'_, A, &Tensor> {
            $(
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                pub fn $name(self) -> Result<Tensor> {
                    self.0.constant(self.1)?.$method(self.1)
                }
            )*
        }
        $(
            #[doc = concat!("`a ", stringify!($symbol), " b` of values of one type.")]
            pub trait $same<A> {
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                fn $name(self) -> Result<A>;
            }
            impl<A: ops::$op<Output = A> + Clone> $same<A> for Pair<'_, A, A> {
                fn $name(self) -> Result<A> {
                    Ok(self.0.clone() $symbol self.1.clone())
                }
            }
            #[doc = concat!("`a ", stringify!($symbol), " b` of values of other types.")]
            pub trait $other<A, B> {
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                fn $name(&self) -> Result<A::Output>
                where
                    A: ops::$op<B> + Clone,
                    B: Clone;
            }
            impl<A, B> $other<A, B> for Pair<'_, A, B> {
                fn $name(&self) -> Result<A::Output>
                where
                    A: ops::$op<B> + Clone,
                    B: Clone,
                {
                    Ok(self.0.clone() $symbol self.1.clone())
                }
            }
        )*
    };
    (@tensor [$tensor:ty] $($name:ident $method:ident)*) => {
        impl<B> Pair<'_, $tensor, B> {
            $(
                #[doc = concat!("[`Tensor::", stringify!($method), "`]")]
                pub fn $name(self) -> Result<Tensor>
                where
                    B: Operand,
                {
                    self.0.$method(&self.1.beside(self.0)?)
                }
            )*
        }
    };
}
arithmetic! {
    add SameAdd OtherAdd Add + add;
    sub SameSub OtherSub Sub - sub;
    mul SameMul OtherMul Mul * mul;
    div SameDiv OtherDiv Div / divide;
    rem SameRem OtherRem Rem % floormod;
}

macro_rules! comparisons {
    ($($name:ident $plain:ident $order:ident $symbol:tt;)*) => {
        comparisons!(@tensor [Tensor] $($name)*);
        comparisons!(@tensor [&Tensor] $($name)*);
        impl<A: Host> Pair<'_, A, Tensor> {
            $(
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                pub fn $name(self) -> Result<Tensor> {
                    self.0.constant(self.1)?.$name(self.1)
                }
            )*
        }
        impl<A: Host> Pair<'_, A, &Tensor> {
            $(
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                pub fn $name(self) -> Result<Tensor> {
                    self.0.constant(self.1)?.$name(self.1)
                }
            )*
        }
        $(
            #[doc = concat!("`a ", stringify!($symbol), " b` of plain values.")]
            pub trait $plain<A: ?Sized, B: ?Sized> {
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                fn $name(&self) -> Result<bool>
                where
                    A: $order<B>;
            }
            impl<A: ?Sized, B: ?Sized> $plain<A, B> for Pair<'_, A, B> {
                fn $name(&self) -> Result<bool>
                where
                    A: $order<B>,
                {
                    Ok(self.0 $symbol self.1)
                }
            }
        )*
    };
    (@tensor [$tensor:ty] $($name:ident)*) => {
        impl<B> Pair<'_, $tensor, B> {
            $(
                #[doc = concat!("[`Tensor::", stringify!($name), "`]")]
                pub fn $name(self) -> Result<Tensor>
                where
                    B: Operand,
                {
                    self.0.$name(&self.1.beside(self.0)?)
                }
            )*
        }
    };
}
comparisons! {
    less PlainLess PartialOrd <;
    less_equal PlainLessEqual PartialOrd <=;
    greater PlainGreater PartialOrd >;
    greater_equal PlainGreaterEqual PartialOrd >=;
    equal PlainEqual PartialEq ==;
    not_equal PlainNotEqual PartialEq !=;
}

/// Operand of a unary operator.
pub struct Single<'a, A>(pub &'a A);

macro_rules! unary {
    ($($name:ident $same:ident $other:ident $op:ident $symbol:tt $method:ident;)*) => {
        impl Single<'_, Tensor> {
            $(
                #[doc = concat!("[`Tensor::", stringify!($method), "`]")]
                pub fn $name(self) -> Result<Tensor> {
                    self.0.$method()
                }
            )*
        }
        impl Single<'_, &Tensor> {
            $(
                #[doc = concat!("[`Tensor::", stringify!($method), "`]")]
                pub fn $name(self) -> Result<Tensor> {
                    self.0.$method()
                }
            )*
        }
        $(
            #[doc = concat!("`", stringify!($symbol), "a`, of the type of `a`.")]
            pub trait $same<A> {
                #[doc = concat!("`", stringify!($symbol), "a`")]
                fn $name(self) -> Result<A>;
            }
            impl<A: ops::$op<Output = A> + Clone> $same<A> for Single<'_, A> {
                fn $name(self) -> Result<A> {
                    Ok($symbol self.0.clone())
                }
            }
            #[doc = concat!("`", stringify!($symbol), "a`, of another type than `a`.")]
            pub trait $other<A> {
                #[doc = concat!("`", stringify!($symbol), "a`")]
                fn $name(&self) -> Result<A::Output>
                where
                    A: ops::$op + Clone;
            }
            impl<A> $other<A> for Single<'_, A> {
                fn $name(&self) -> Result<A::Output>
                where
                    A: ops::$op + Clone,
                {
                    Ok($symbol self.0.clone())
                }
            }
        )*
    };
}
unary! {
    minus SameNeg OtherNeg Neg - neg;
    invert SameNot OtherNot Not ! logical_not;
}

/// Left operand of an operator such as `+=`, with its right operand.
pub struct Assign<'a, A, B>(pub &'a mut A, pub B);

/// Number to which a tensor can be added in place. No type implements this trait.
#[diagnostic::on_unimplemented(
    message = "a tensor cannot change a number of type `{Self}` in place",
    label = "this number would have to become a tensor",
    note = "begin with a tensor, as in `let mut sum = x.like(0.0)?;`"
)]
pub trait Becomes {}

macro_rules! assigning {
    ($($name:ident $plain:ident $op:ident $symbol:tt $method:ident;)*) => {
        impl<B> Assign<'_, Tensor, B> {
            $(
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                pub fn $name(self) -> Result<()>
                where
                    B: Operand,
                {
                    *self.0 = self.0.$method(&self.1.beside(self.0)?)?;
                    Ok(())
                }
            )*
        }
        assigning!(@number [Tensor] $($name $symbol)*);
        assigning!(@number [&Tensor] $($name $symbol)*);
        $(
            #[doc = concat!("`a ", stringify!($symbol), " b` of plain values.")]
            pub trait $plain<A, B> {
                #[doc = concat!("`a ", stringify!($symbol), " b`")]
                fn $name(self) -> Result<()>
                where
                    A: ops::$op<B>;
            }
            impl<A, B> $plain<A, B> for Assign<'_, A, B> {
                fn $name(self) -> Result<()>
                where
                    A: ops::$op<B>,
                {
                    *self.0 $symbol self.1;
                    Ok(())
                }
            }
        )*
    };
    (@number [$tensor:ty] $($name:ident $symbol:tt)*) => {
        impl<A: Host> Assign<'_, A, $tensor> {
            $(
                #[doc = concat!("`a ", stringify!($symbol), " b`: always fails, because a number cannot become a tensor.")]
                pub fn $name(self) -> Result<()>
                where
                    A: Becomes,
                {
                    Err(Error::Internal)
                }
            )*
        }
    };
}
assigning! {
    add PlainAddAssign AddAssign += add;
    sub PlainSubAssign SubAssign -= sub;
    mul PlainMulAssign MulAssign *= mul;
    div PlainDivAssign DivAssign /= divide;
    rem PlainRemAssign RemAssign %= floormod;
}

/// Variable to which a literal is assigned.
pub struct Set<'a, T>(pub &'a mut T);

impl Set<'_, Tensor> {
    /// Assigns the literal as a tensor.
    pub fn literal<L: Host>(self, value: L) -> Result<()> {
        *self.0 = Tensor::literal(value, &self.0.device()?);
        Ok(())
    }
}

/// Assignment of a literal to a plain value: see [`Set`].
pub trait PlainSet<T> {
    /// Assigns the literal.
    fn literal(self, value: T) -> Result<()>;
}

impl<T> PlainSet<T> for Set<'_, T> {
    fn literal(self, value: T) -> Result<()> {
        *self.0 = value;
        Ok(())
    }
}

// Rust coerces `&String` to `&str` in `String + &String`, but has no implementation of `Add<&String>`.

impl Pair<'_, String, &String> {
    /// `a + b`
    pub fn add(self) -> Result<String> {
        Ok(self.0.clone() + self.1)
    }
}

impl Assign<'_, String, &String> {
    /// `a += b`
    pub fn add(self) -> Result<()> {
        *self.0 += self.1;
        Ok(())
    }
}

/// Returns a copy of an operand.
pub fn copy<T: Clone>(value: &T) -> T {
    value.clone()
}

/// Right operand of `&&` and `||`.
#[diagnostic::on_unimplemented(message = "`{Self}` is neither a bool nor a tensor", label = "an operand of `&&` or `||`")]
pub trait Truth: Sized {
    #[doc(hidden)]
    fn after(first: bool, decides: bool, other: impl FnOnce() -> Result<Self>) -> Result<Self>;
    #[doc(hidden)]
    fn tensor(self, like: &Tensor) -> Result<Tensor>;
}

impl Truth for bool {
    fn after(first: bool, decides: bool, other: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if first == decides { Ok(first) } else { other() }
    }
    fn tensor(self, like: &Tensor) -> Result<Tensor> {
        self.constant(like)
    }
}

impl Truth for Tensor {
    fn after(first: bool, decides: bool, other: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        let other = other()?;
        match (first == decides, first) {
            (false, _) => Ok(other),
            (true, false) => other.zeros_like(),
            (true, true) => other.ones_like(),
        }
    }
    fn tensor(self, _: &Tensor) -> Result<Tensor> {
        Ok(self)
    }
}

impl Truth for &Tensor {
    fn after(_: bool, _: bool, other: impl FnOnce() -> Result<Self>) -> Result<Self> {
        other()
    }
    fn tensor(self, _: &Tensor) -> Result<Tensor> {
        Ok(self.clone())
    }
}

/// Left operand of `&&` and `||`.
#[diagnostic::on_unimplemented(message = "`{Self}` is neither a bool nor a tensor", label = "an operand of `&&` or `||`")]
pub trait Logic<B> {
    /// Type of the result.
    type Result;
    #[doc(hidden)]
    fn and(self, other: impl FnOnce() -> Result<B>) -> Result<Self::Result>;
    #[doc(hidden)]
    fn or(self, other: impl FnOnce() -> Result<B>) -> Result<Self::Result>;
}

impl<B: Truth> Logic<B> for bool {
    type Result = B;
    fn and(self, other: impl FnOnce() -> Result<B>) -> Result<B> {
        B::after(self, false, other)
    }
    fn or(self, other: impl FnOnce() -> Result<B>) -> Result<B> {
        B::after(self, true, other)
    }
}

impl<B: Truth> Logic<B> for &Tensor {
    type Result = Tensor;
    fn and(self, other: impl FnOnce() -> Result<B>) -> Result<Tensor> {
        let other = || other()?.tensor(self);
        match (self.dims(), traced(self)?) {
            ([], Some(scope)) => cond(&scope, self, other, || Ok(self.clone())),
            ([], None) if self.item::<Bool>()?.get() => other(),
            ([], None) => Ok(self.clone()),
            _ => self.logical_and(&other()?),
        }
    }
    fn or(self, other: impl FnOnce() -> Result<B>) -> Result<Tensor> {
        let other = || other()?.tensor(self);
        match (self.dims(), traced(self)?) {
            ([], Some(scope)) => cond(&scope, self, || Ok(self.clone()), other),
            ([], None) if self.item::<Bool>()?.get() => Ok(self.clone()),
            ([], None) => other(),
            _ => self.logical_or(&other()?),
        }
    }
}

impl<B: Truth> Logic<B> for Tensor {
    type Result = Tensor;
    fn and(self, other: impl FnOnce() -> Result<B>) -> Result<Tensor> {
        Logic::and(&self, other)
    }
    fn or(self, other: impl FnOnce() -> Result<B>) -> Result<Tensor> {
        Logic::or(&self, other)
    }
}

/// Computes `a && b`. Evaluates `b` only if `a` does not decide the result.
pub fn and<A: Logic<B>, B>(a: A, b: impl FnOnce() -> Result<B>) -> Result<A::Result> {
    a.and(b)
}

/// Computes `a || b`. Evaluates `b` only if `a` does not decide the result.
pub fn or<A: Logic<B>, B>(a: A, b: impl FnOnce() -> Result<B>) -> Result<A::Result> {
    a.or(b)
}
