//! Structures of tensors: the arguments and results of functions, branches and loops.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Nested structure, as in TensorFlow: tensors, variables, host values, and tuples, arrays, vectors, options and maps of these.
///
/// A function is traced for the types of its tensors and for the values of its host values. Both are parts of the structure, in the
/// order of its fields.
///
/// ```
/// use gradlet_core::function::{Part, Structure};
/// use gradlet_core::{Tensor, ops};
/// let x = Tensor::scalar(&ops::portable_cpu(), 1.0f32);
/// let mut tensors = 0;
/// (x.clone(), 3i32, vec![x.clone(), x]).visit(&mut |part| tensors += u32::from(matches!(part, Part::Tensor(_))));
/// assert_eq!(tensors, 3);
/// ```
#[diagnostic::on_unimplemented(
    message = "a `{Self}` cannot be carried through a function, branch or loop of tensors",
    label = "not a structure of tensors",
    note = "tensors, numbers, and tuples, arrays, vectors and options of these can be carried"
)]
pub trait Structure: Sized {
    /// Calls `visit` with each tensor, variable and host value.
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>));
    /// Returns the same structure with tensors from `next` in place of its own. `next` is called once for each tensor, in the order of
    /// `visit`.
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Self;

    /// Converts the structure to a form that can be the state of a traced loop or the result of a branch. The parts of that form do
    /// not change during the computation. Properties that are not known yet, such as the shape of an empty array's elements, are
    /// copied from `like` if it is given.
    fn carried(self, scope: &dyn Scope, like: Option<&Self>) -> Result<Self> {
        let _ = (scope, like);
        Ok(self)
    }

    /// Calls `visit` with each tensor.
    fn tensors(&self, visit: &mut dyn FnMut(&Tensor)) {
        self.visit(&mut |part| {
            if let Part::Tensor(tensor) = part {
                visit(tensor);
            }
        });
    }
}

/// Part of a structure.
pub enum Part<'a> {
    /// Tensor.
    Tensor(&'a Tensor),
    /// Host value, as a number that identifies it: its bits or its hash.
    Host(u64),
    /// Variable, passed by reference.
    Variable(&'a Variable),
}

impl Structure for Tensor {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        visit(Part::Tensor(self));
    }
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Tensor {
        next()
    }
}

impl Structure for Variable {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        visit(Part::Variable(self));
    }
    fn with(&self, _: &mut dyn FnMut() -> Tensor) -> Variable {
        self.as_argument(true)
    }
}

/// The presence of the value is a host value.
impl<S: Structure> Structure for Option<S> {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        visit(Part::Host(self.is_some().into()));
        if let Some(structure) = self {
            structure.visit(visit);
        }
    }
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Option<S> {
        self.as_ref().map(|structure| structure.with(next))
    }
    fn carried(self, scope: &dyn Scope, like: Option<&Self>) -> Result<Option<S>> {
        self.map(|structure| structure.carried(scope, like.and_then(Option::as_ref))).transpose()
    }
}

/// The length is a host value.
impl<S: Structure> Structure for Vec<S> {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        visit(Part::Host(self.len() as u64));
        self.iter().for_each(|structure| structure.visit(visit));
    }
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Vec<S> {
        self.iter().map(|structure| structure.with(next)).collect()
    }
    fn carried(self, scope: &dyn Scope, like: Option<&Self>) -> Result<Vec<S>> {
        let one = |(index, structure): (usize, S)| structure.carried(scope, like.and_then(|like| like.get(index)));
        self.into_iter().enumerate().map(one).collect()
    }
}

impl<S: Structure, const N: usize> Structure for [S; N] {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        self.iter().for_each(|structure| structure.visit(visit));
    }
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> [S; N] {
        self.each_ref().map(|structure| structure.with(next))
    }
    fn carried(self, scope: &dyn Scope, like: Option<&Self>) -> Result<[S; N]> {
        let one = |(index, structure): (usize, S)| structure.carried(scope, like.map(|like| &like[index]));
        let carried = self.into_iter().enumerate().map(one).collect::<Result<Vec<S>>>()?;
        carried.try_into().map_err(|_| Error::Internal)
    }
}

/// The keys are host values.
impl<K: Structure + Ord + Clone, S: Structure> Structure for BTreeMap<K, S> {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        visit(Part::Host(self.len() as u64));
        for (name, structure) in self {
            name.visit(visit);
            structure.visit(visit);
        }
    }
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> BTreeMap<K, S> {
        self.iter().map(|(name, structure)| (name.clone(), structure.with(next))).collect()
    }
}

/// Returns a 64-bit FNV-1a hash, which identifies a text among host values.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

macro_rules! texts {
    ($($ty:ty),*) => {$(
        impl Structure for $ty {
            fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
                visit(Part::Host(hash(self)));
            }
            fn with(&self, _: &mut dyn FnMut() -> Tensor) -> $ty {
                self.clone()
            }
        }
    )*};
}
texts!(&'static str, String);

macro_rules! host_values {
    ($($ty:ty: $value:ident => $key:expr),* $(,)?) => {$(
        impl Structure for $ty {
            fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
                let $value = *self;
                visit(Part::Host($key));
            }
            fn with(&self, _: &mut dyn FnMut() -> Tensor) -> $ty {
                *self
            }
        }
    )*};
}
host_values!(
    f32: v => v.to_bits().into(), f64: v => v.to_bits(), bool: v => v.into(),
    i8: v => v as u64, i32: v => v as u64, i64: v => v as u64, u8: v => v.into(), u32: v => v.into(), u64: v => v, usize: v => v as u64,
    char: v => u64::from(u32::from(v)),
);

macro_rules! tuples {
    ($(($($name:ident $index:tt),*);)*) => {$(
        #[allow(non_snake_case, unused_variables)]
        impl<$($name: Structure),*> Structure for ($($name,)*) {
            fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
                let ($($name,)*) = self;
                $($name.visit(visit);)*
            }
            #[allow(clippy::unused_unit)]
            fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
                let ($($name,)*) = self;
                ($($name.with(next),)*)
            }
            fn carried(self, scope: &dyn Scope, like: Option<&Self>) -> Result<Self> {
                let ($($name,)*) = self;
                Ok(($($name.carried(scope, like.map(|like| &like.$index))?,)*))
            }
        }
    )*};
}
tuples! {
    ();
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
}
