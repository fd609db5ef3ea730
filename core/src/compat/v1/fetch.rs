//! Tensors, variables and operations that a session can fetch.

use super::graph::Operation;
use crate::tensor::Tensor;
use crate::tensor::graph::ValueId;
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// One item to fetch from a graph.
#[derive(Clone, Copy)]
pub enum Fetched<'a> {
    /// A tensor of the graph.
    Tensor(&'a Tensor),
    /// A variable. Its value is read after everything else has run.
    Variable(&'a Variable),
    /// An operation, which returns nothing.
    Operation(&'a Operation),
}

/// A fetched item, by index.
#[derive(Clone, PartialEq)]
pub(super) enum Target {
    Value(ValueId),
    Variable(Variable),
    Operation(Operation),
}

/// A structure that a session can fetch: tensors, variables, operations, and tuples, arrays and vectors of these.
pub trait Fetch {
    /// The result of fetching, in the same structure: a tensor for a tensor or a variable, and `()` for an operation.
    type Values;
    /// Calls `visit` with each item.
    fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>));
    /// Builds the result, with a tensor from `next` for each tensor and variable.
    fn values(&self, next: &mut dyn FnMut() -> Tensor) -> Self::Values;
}

macro_rules! values {
    ($($ty:ident),*) => {$(
        impl Fetch for $ty {
            type Values = Tensor;
            fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>)) {
                visit(Fetched::$ty(self));
            }
            fn values(&self, next: &mut dyn FnMut() -> Tensor) -> Tensor {
                next()
            }
        }
    )*};
}
values!(Tensor, Variable);

impl Fetch for Operation {
    type Values = ();
    fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>)) {
        visit(Fetched::Operation(self));
    }
    fn values(&self, _: &mut dyn FnMut() -> Tensor) {}
}

impl<F: Fetch + ?Sized> Fetch for &F {
    type Values = F::Values;
    fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>)) {
        (**self).visit(visit);
    }
    fn values(&self, next: &mut dyn FnMut() -> Tensor) -> F::Values {
        (**self).values(next)
    }
}

impl<F: Fetch> Fetch for [F] {
    type Values = Vec<F::Values>;
    fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>)) {
        self.iter().for_each(|one| one.visit(visit));
    }
    fn values(&self, next: &mut dyn FnMut() -> Tensor) -> Vec<F::Values> {
        self.iter().map(|one| one.values(next)).collect()
    }
}

impl<F: Fetch> Fetch for Vec<F> {
    type Values = Vec<F::Values>;
    fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>)) {
        self.as_slice().visit(visit);
    }
    fn values(&self, next: &mut dyn FnMut() -> Tensor) -> Vec<F::Values> {
        self.as_slice().values(next)
    }
}

impl<F: Fetch, const N: usize> Fetch for [F; N] {
    type Values = [F::Values; N];
    fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>)) {
        self.iter().for_each(|one| one.visit(visit));
    }
    fn values(&self, next: &mut dyn FnMut() -> Tensor) -> [F::Values; N] {
        self.each_ref().map(|one| one.values(next))
    }
}

macro_rules! tuples {
    ($(($($name:ident),+);)*) => {$(
        #[allow(non_snake_case)]
        impl<$($name: Fetch),+> Fetch for ($($name,)+) {
            type Values = ($($name::Values,)+);
            fn visit(&self, visit: &mut dyn FnMut(Fetched<'_>)) {
                let ($($name,)+) = self;
                $($name.visit(visit);)+
            }
            fn values(&self, next: &mut dyn FnMut() -> Tensor) -> Self::Values {
                let ($($name,)+) = self;
                ($($name.values(next),)+)
            }
        }
    )*};
}
tuples! { (A); (A, B); (A, B, C); (A, B, C, D); (A, B, C, D, E); (A, B, C, D, E, F); }
