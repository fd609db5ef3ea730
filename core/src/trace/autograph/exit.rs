//! Exits from a block: at its end, or by `break`, `continue` or `return`.

use super::carry::{Named, Ops, Owned, agree, all_tensors, tensors_of};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::ScopeHandle;
use crate::tensor::structure::Structure;
use crate::trace::control::{Open, record};
use alloc::vec::Vec;

/// Number of the exit at the end of the block.
pub(super) const NEXT: u8 = 0;
/// Number of the exit by `continue`.
pub(super) const CONTINUE: u8 = 1;
/// Number of the exit by `break`.
pub(super) const BREAK: u8 = 2;
/// Number of the exit by `return`.
pub(super) const RETURN: u8 = 3;

/// Exit from a block: at its end with a `V`, by `break` or `continue`, or by `return` with an `R`. If a tensor decides the exit,
/// several kinds are possible.
pub struct Exit<V, R> {
    /// One bit for each kind of exit that is possible.
    pub(super) ways: u8,
    /// Number of the actual exit, if several are possible.
    pub(super) code: Option<Tensor>,
    pub(super) value: Option<V>,
    pub(super) returned: Option<R>,
}

impl<V, R> Exit<V, R> {
    fn by(way: u8) -> Exit<V, R> {
        Exit { ways: 1 << way, code: None, value: None, returned: None }
    }

    /// Creates the exit at the end of a block.
    pub fn next(value: V) -> Exit<V, R> {
        Exit { value: Some(value), ..Exit::by(NEXT) }
    }

    /// Creates an exit by `return`.
    pub fn returns(value: R) -> Exit<V, R> {
        Exit { returned: Some(value), ..Exit::by(RETURN) }
    }

    /// Creates an exit by `break`.
    pub fn breaks() -> Exit<V, R> {
        Exit::by(BREAK)
    }

    /// Creates an exit by `continue`.
    pub fn continues() -> Exit<V, R> {
        Exit::by(CONTINUE)
    }

    pub(super) fn may(&self, way: u8) -> bool {
        self.ways & (1 << way) != 0
    }

    /// Returns the kind of exit if only one is possible, otherwise `None`.
    pub(super) fn known(&self) -> Option<u8> {
        self.ways.is_power_of_two().then(|| self.ways.trailing_zeros() as u8)
    }

    /// Returns the number of the exit as a tensor.
    pub(super) fn number(&self, scope: &ScopeHandle) -> Tensor {
        let known = self.known().unwrap_or(NEXT);
        self.code.clone().unwrap_or_else(|| Tensor::scalar(scope.recorder.device(), i32::from(known)))
    }

    /// Returns the same exit for an enclosing block, without the value and without the exit at the end.
    pub fn out<W>(self) -> Exit<W, R> {
        Exit { ways: self.ways & !(1 << NEXT), code: self.code, value: None, returned: self.returned }
    }
}

/// Returns the result of a function that was left by `exit`. Fails if no path of the function returns a value.
pub fn returned<V, R>(exit: Exit<V, R>) -> Result<R> {
    exit.returned.ok_or_else(|| Error::message("the function must return a value on every path"))
}

/// Returns the exit of an `if` or loop inside an expression, as an exit of the enclosing block. Returns `None` if that block
/// continues. Fails if a tensor decides the exit.
pub fn settled<V, W, R>(exit: Exit<V, R>) -> Result<Option<Exit<W, R>>> {
    match exit.known() {
        Some(NEXT) => Ok(None),
        Some(_) => Ok(Some(exit.out())),
        None => Err(Error::message("an `if` or loop that returns under a tensor condition must be a statement of its own")),
    }
}

/// Returns its argument unchanged. The compiler thereby checks that it is a gradlet [`Result`].
pub fn ok<T>(result: Result<T>) -> Result<T> {
    result
}

/// Continuation after a statement that may leave its block.
pub enum After<V, W, R> {
    /// The rest of the block runs, with the statement's value.
    Rest(V, super::branch::Guard<R>),
    /// The block was left.
    Left(Exit<W, R>),
}

/// One of the two traced alternatives of a block.
pub(super) struct Side<V, R> {
    pub(super) open: Open,
    pub(super) variables: Vec<Named>,
    pub(super) exit: Exit<V, R>,
}

/// The [`Ops`] of values and results, if they are structures of tensors.
pub(super) struct Carriers<V, R> {
    pub(super) value: Option<Ops<V>>,
    pub(super) returned: Option<Ops<R>>,
}

fn uncarried<T>(what: &str) -> Error {
    let ty = core::any::type_name::<T>();
    Error::message(alloc::format!("{what} is a {ty}: if the condition is a tensor, it must be a structure of tensors"))
}

/// Returns the parts of the value `name` on both sides. If it is missing on one side, zeros take its place there, because the
/// program never reads it.
fn parts<T>(name: &str, values: [&Option<T>; 2], ops: Option<Ops<T>>, places: [&str; 2]) -> Result<[Vec<Owned>; 2]> {
    let parts = |value: &Option<T>| match value {
        Some(value) => Ok(Some(ops.ok_or_else(|| uncarried::<T>(name))?.parts(value))),
        None => Ok(None),
    };
    let [one, other] = values;
    Ok(match (parts(one)?, parts(other)?) {
        (None, None) => [Vec::new(), Vec::new()],
        (Some(one), None) => [one.clone(), zeros(&one)?],
        (None, Some(other)) => [zeros(&other)?, other],
        (Some(one), Some(other)) => {
            agree(name, &one, &other, places)?;
            [one, other]
        }
    })
}

/// Returns zeros with the types of `parts`, for values that the program never reads.
pub(super) fn zeros(parts: &[Owned]) -> Result<Vec<Owned>> {
    let zero = |part: &Owned| {
        Ok(match part {
            Owned::Tensor(tensor) => Owned::Tensor(Tensor::zeros(&tensor.device()?, tensor.tensor_type())?),
            host => host.clone(),
        })
    };
    parts.iter().map(zero).collect()
}

/// Merges both sides into one branch node with condition `predicate`. Returns the variables' values and the merged exit.
pub(super) fn merge<V, R>(
    scope: &ScopeHandle,
    predicate: &Tensor,
    sides: [Side<V, R>; 2],
    carriers: &Carriers<V, R>,
    places: [&str; 2],
) -> Result<(Vec<Tensor>, Exit<V, R>)> {
    let [one, other] = sides;
    for (one, other) in one.variables.iter().zip(&other.variables) {
        agree(one.name, &one.parts, &other.parts, places)?;
    }
    let values = parts("its value", [&one.exit.value, &other.exit.value], carriers.value, places)?;
    let returned = parts("what is returned", [&one.exit.returned, &other.exit.returned], carriers.returned, places)?;
    let ways = one.exit.ways | other.exit.ways;
    let several = !ways.is_power_of_two();
    let mut bodies = Vec::new();
    let mut exits = Vec::new();
    let mut results = Vec::new();
    for ((side, values), returned) in [one, other].into_iter().zip(&values).zip(&returned) {
        results = all_tensors(&side.variables);
        results.extend(several.then(|| side.exit.number(scope)));
        results.extend(tensors_of(values).into_iter().chain(tensors_of(returned)));
        bodies.push(side.open.close(&results)?);
        exits.push((side.exit, all_tensors(&side.variables).len()));
    }
    let mut merged = record(scope, predicate, bodies, &results)?.into_iter();
    let (other, count) = exits.pop().ok_or(Error::Internal)?;
    let (one, _) = exits.pop().ok_or(Error::Internal)?;
    let variables = merged.by_ref().take(count).collect();
    let code = if several { merged.next() } else { None };
    let value = with(one.value.or(other.value), carriers.value, &mut merged)?;
    let returned = with(one.returned.or(other.returned), carriers.returned, &mut merged)?;
    Ok((variables, Exit { ways, code, value, returned }))
}

pub(super) fn with<T>(value: Option<T>, ops: Option<Ops<T>>, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<Option<T>> {
    match (value, ops) {
        (Some(value), Some(ops)) => ops.with(&value, tensors).map(Some),
        (value, _) => Ok(value),
    }
}

/// Helper that returns the [`Ops`] of an exit's value, if it is a structure of tensors.
pub struct Values<'a, V, R>(pub &'a Exit<V, R>);

/// Helper that returns the [`Ops`] of an exit's returned value, if it is a structure of tensors.
pub struct Returns<'a, V, R>(pub &'a Exit<V, R>);

macro_rules! carriers {
    ($($name:ident $none:ident $ty:ident),*) => {$(
        impl<V, R> $name<'_, V, R>
        where
            $ty: Structure,
        {
            /// Returns the [`Ops`] of the type, always as `Some`.
            pub fn ops(self) -> Option<Ops<$ty>> {
                Some(Ops::OF)
            }
        }

        /// Fallback for types that are not structures of tensors.
        pub trait $none<T> {
            /// Returns `None`, because the type is not a structure of tensors.
            fn ops(self) -> Option<Ops<T>>;
        }

        impl<V, R> $none<$ty> for $name<'_, V, R> {
            fn ops(self) -> Option<Ops<$ty>> {
                None
            }
        }
    )*};
}
carriers!(Values NoValues V, Returns NoReturns R);
