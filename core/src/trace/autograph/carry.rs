//! Variables and values that branches and loops carry, as structures of tensors.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::structure::{Part, Structure};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

type Visit<T> = fn(&T, &mut dyn FnMut(Part<'_>));

/// Functions that find and replace the tensors of a `T`.
pub struct Ops<T> {
    visit: Visit<T>,
    with: fn(&T, &mut dyn FnMut() -> Tensor) -> T,
    carried: fn(T, &dyn Scope, Option<&T>) -> Result<T>,
}

impl<T> Clone for Ops<T> {
    fn clone(&self) -> Ops<T> {
        *self
    }
}

impl<T> Copy for Ops<T> {}

impl<T: Structure> Ops<T> {
    pub(super) const OF: Ops<T> = Ops { visit: T::visit, with: T::with, carried: T::carried };
}

impl<T> Ops<T> {
    pub(super) fn parts(&self, value: &T) -> Vec<Owned> {
        let mut parts = Vec::new();
        (self.visit)(value, &mut |part| {
            parts.push(match part {
                Part::Tensor(tensor) => Owned::Tensor(tensor.clone()),
                Part::Host(value) => Owned::Host(value),
                Part::Variable(variable) => Owned::Variable(variable.clone()),
            });
        });
        parts
    }

    /// Returns a copy of `value` with the next tensors of `tensors` in place of its own.
    pub(super) fn with(&self, value: &T, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<T> {
        let own = tensors_of(&self.parts(value));
        let mut missing = false;
        let mut own = own.into_iter();
        let value = (self.with)(value, &mut || {
            let (own, next) = (own.next(), tensors.next());
            missing |= next.is_none();
            // A structure requests exactly as many tensors as it has.
            next.or(own).unwrap_or_else(|| Tensor::scalar(&crate::ops::portable_cpu(), 0.0f32))
        });
        if missing { Err(Error::message("`Structure::with` requests more tensors than `visit` reports")) } else { Ok(value) }
    }

    fn copy(&self, value: &T) -> Result<T> {
        self.with(value, &mut tensors_of(&self.parts(value)).into_iter())
    }
}

/// Owned part of a structure.
#[derive(Clone)]
pub(super) enum Owned {
    Tensor(Tensor),
    Host(u64),
    Variable(Variable),
}

pub(super) fn tensors_of(parts: &[Owned]) -> Vec<Tensor> {
    let tensor = |part: &Owned| match part {
        Owned::Tensor(tensor) => Some(tensor.clone()),
        Owned::Host(_) | Owned::Variable(_) => None,
    };
    parts.iter().filter_map(tensor).collect()
}

/// Checks that `one` and `other`, the parts of the value `name` in two places, differ only in the values of tensors. The error
/// describes the places by `places`.
pub(super) fn agree(name: &str, one: &[Owned], other: &[Owned], places: [&str; 2]) -> Result<()> {
    let [first, second] = places;
    for index in 0..one.len().max(other.len()) {
        match (one.get(index), other.get(index)) {
            (Some(Owned::Host(own)), Some(Owned::Host(other))) if own == other => (),
            (Some(Owned::Variable(own)), Some(Owned::Variable(other))) if own == other => (),
            (Some(Owned::Tensor(own)), Some(Owned::Tensor(other))) if own.tensor_type() == other.tensor_type() => (),
            (Some(Owned::Tensor(own)), Some(Owned::Tensor(other))) => {
                let (own, other) = (own.tensor_type(), other.tensor_type());
                return Err(Error::message(format!("'{name}' is {own} {first}, but {other} {second}")));
            }
            _ => {
                return Err(Error::message(format!(
                    "'{name}' has different host values {first} and {second}: if the condition is a tensor, only tensors can differ"
                )));
            }
        }
    }
    Ok(())
}

/// Kind of a condition: plain or a tensor. It determines which values the branches and loops can carry.
pub trait Kind {
    /// Proof that both branches run. Uninhabited if only one branch runs.
    type Again: Again;
    /// Permission to move variables out of a branch. Uninhabited if both branches run.
    type Moves;
    /// Permission to copy variables out of a branch. Uninhabited if only one branch runs.
    type Copies;
    /// Returns the proof that both branches run, or `None` if only one branch runs.
    fn again() -> Option<Self::Again>;
    /// Returns the permission to move variables out of a branch, or the permission to copy them.
    fn moves() -> core::result::Result<Self::Moves, Self::Copies>;
}

/// Kind of a condition under which a `T` can be carried.
pub trait Carries<T>: Kind {
    /// Returns the [`Ops`] of a `T`, or `None` if the kind does not need them.
    fn ops() -> Option<Ops<T>>;
}

/// Kind of a `bool` condition. Nothing is carried, because the branch is plain Rust.
pub enum Plain {}

/// Kind of a tensor condition.
pub enum Dynamic {}

/// Proof that both branches run.
pub trait Again {
    /// Does nothing. For an uninhabited type, this diverges.
    fn go(self) -> Self;
}

/// Uninhabited type.
pub enum Never {}

impl Again for Never {
    fn go(self) -> Never {
        match self {}
    }
}

impl Again for () {
    fn go(self) {}
}

impl Never {
    /// Diverges, because no value of this type exists.
    pub fn go(self) -> Never {
        match self {}
    }

    /// Copies a value: see [`Copies::copy`].
    pub fn copy<T>(&self, _: &T) -> T {
        match *self {}
    }
}

/// Permission to move variables out of a branch.
pub struct Moves;

impl Moves {
    /// Does nothing.
    pub fn go(self) {}
}

/// Permission to copy variables out of a branch.
pub struct Copies;

impl Copies {
    /// Does nothing.
    pub fn go(&self) {}

    /// Returns a copy.
    pub fn copy<T: Clone>(&self, value: &T) -> T {
        value.clone()
    }
}

impl Kind for Plain {
    type Again = Never;
    type Moves = Moves;
    type Copies = Never;
    fn again() -> Option<Never> {
        None
    }
    fn moves() -> core::result::Result<Moves, Never> {
        Ok(Moves)
    }
}

impl Kind for Dynamic {
    type Again = ();
    type Moves = Never;
    type Copies = Copies;
    fn again() -> Option<()> {
        Some(())
    }
    fn moves() -> core::result::Result<Never, Copies> {
        Err(Copies)
    }
}

impl<T> Carries<T> for Plain {
    fn ops() -> Option<Ops<T>> {
        None
    }
}

impl<T: Structure> Carries<T> for Dynamic {
    fn ops() -> Option<Ops<T>> {
        Some(Ops::OF)
    }
}

/// Variable that a branch or loop assigns.
pub struct Slot<'a, T> {
    pub(super) name: &'static str,
    pub(super) value: &'a mut T,
    pub(super) ops: Option<Ops<T>>,
}

impl<T> Slot<'_, T> {
    fn ops(&self) -> Result<Ops<T>> {
        let (name, ty) = (self.name, core::any::type_name::<T>());
        self.ops.ok_or_else(|| {
            Error::message(format!("'{name}' is a {ty}: if the condition is a tensor, only structures of tensors can be assigned"))
        })
    }
}

/// Variables that a branch or loop assigns.
pub trait Slots {
    /// Type of their saved values.
    type Saved;
    #[doc(hidden)]
    fn save(&self) -> Result<Self::Saved>;
    #[doc(hidden)]
    fn restore(&mut self, saved: &Self::Saved) -> Result<()>;
    /// Converts the variables to the form in which they are carried, like [`Structure::carried`].
    #[doc(hidden)]
    fn settle(&mut self, scope: &dyn Scope, like: Option<&Self::Saved>) -> Result<()>;
    #[doc(hidden)]
    fn parts(&self, parts: &mut Vec<Named>) -> Result<()>;
    #[doc(hidden)]
    fn fill(&mut self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<()>;
}

/// Name of a variable, and the parts of its value.
#[derive(Clone)]
pub struct Named {
    pub(super) name: &'static str,
    pub(super) parts: Vec<Owned>,
}

/// Returns the tensors in `named`.
pub(super) fn all_tensors(named: &[Named]) -> Vec<Tensor> {
    named.iter().flat_map(|named| tensors_of(&named.parts)).collect()
}

impl<T> Slots for Slot<'_, T> {
    type Saved = T;
    fn save(&self) -> Result<T> {
        self.ops()?.copy(self.value)
    }
    fn restore(&mut self, saved: &T) -> Result<()> {
        *self.value = self.ops()?.copy(saved)?;
        Ok(())
    }
    fn settle(&mut self, scope: &dyn Scope, like: Option<&T>) -> Result<()> {
        let ops = self.ops()?;
        *self.value = (ops.carried)(ops.copy(self.value)?, scope, like)?;
        Ok(())
    }
    fn parts(&self, parts: &mut Vec<Named>) -> Result<()> {
        parts.push(Named { name: self.name, parts: self.ops()?.parts(self.value) });
        Ok(())
    }
    fn fill(&mut self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
        *self.value = self.ops()?.with(self.value, tensors)?;
        Ok(())
    }
}

impl<S: Slots> Slots for &mut S {
    type Saved = S::Saved;
    fn save(&self) -> Result<S::Saved> {
        (**self).save()
    }
    fn restore(&mut self, saved: &S::Saved) -> Result<()> {
        (**self).restore(saved)
    }
    fn settle(&mut self, scope: &dyn Scope, like: Option<&S::Saved>) -> Result<()> {
        (**self).settle(scope, like)
    }
    fn parts(&self, parts: &mut Vec<Named>) -> Result<()> {
        (**self).parts(parts)
    }
    fn fill(&mut self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
        (**self).fill(tensors)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*);)*) => {$(
        #[allow(unused_variables)]
        impl<$($name: Slots),*> Slots for ($($name,)*) {
            type Saved = ($($name::Saved,)*);
            fn save(&self) -> Result<Self::Saved> {
                Ok(($(self.$index.save()?,)*))
            }
            fn restore(&mut self, saved: &Self::Saved) -> Result<()> {
                $(self.$index.restore(&saved.$index)?;)*
                Ok(())
            }
            fn settle(&mut self, scope: &dyn Scope, like: Option<&Self::Saved>) -> Result<()> {
                $(self.$index.settle(scope, like.map(|like| &like.$index))?;)*
                Ok(())
            }
            fn parts(&self, parts: &mut Vec<Named>) -> Result<()> {
                $(self.$index.parts(parts)?;)*
                Ok(())
            }
            fn fill(&mut self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
                $(self.$index.fill(tensors)?;)*
                Ok(())
            }
        }
    )*};
}
tuples! {
    (); (A 0); (A 0, B 1); (A 0, B 1, C 2); (A 0, B 1, C 2, D 3); (A 0, B 1, C 2, D 3, E 4); (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6); (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
}

/// Helper that finds the [`Ops`] of a `T` if `T` is a structure of tensors. The helper needs no trait bound on `T`.
pub struct Probe<'a, T>(pub &'a mut T);

impl<'a, T: Structure> Probe<'a, T> {
    /// Declares the variable as one that a branch or loop assigns.
    pub fn slot(self, name: &'static str) -> Slot<'a, T> {
        Slot { name, value: self.0, ops: Some(Ops::OF) }
    }

    /// Returns the [`Ops`] of the type, always as `Some`.
    pub fn ops(self) -> Option<Ops<T>> {
        Some(Ops::OF)
    }
}

/// Fallback of [`Probe`] for types that are not structures of tensors.
pub trait Unstructured<'a, T> {
    /// Declares the variable as one that a branch or loop assigns.
    fn slot(self, name: &'static str) -> Slot<'a, T>;
    /// Returns `None`, because the type is not a structure of tensors.
    fn ops(self) -> Option<Ops<T>>;
}

impl<'a, T> Unstructured<'a, T> for Probe<'a, T> {
    fn slot(self, name: &'static str) -> Slot<'a, T> {
        Slot { name, value: self.0, ops: None }
    }
    fn ops(self) -> Option<Ops<T>> {
        None
    }
}
