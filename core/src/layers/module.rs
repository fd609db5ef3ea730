//! What has variables.

use super::{Activation, Initializer, Padding, Padding1D, Resize};
use crate::dtype::DType;
use crate::losses::Reduction;
use crate::ops::conv1d::Conv1DOptions;
use crate::ops::conv2d::Conv2DOptions;
use crate::shape::{Shape, TensorType};
use crate::sync::Shared;
use crate::tensor::Tensor;
use crate::variable::Variable;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What has variables, and knows their names.
///
/// `#[derive(Module)]` writes it for a struct (or an enum) whose fields are modules. A field gives its variables under its own
/// name; a `Vec`, an array, a tuple or a `BTreeMap` gives those of its elements under their indices or keys; an `Option`, a `Box`, an
/// `Arc`, and a struct with one unnamed field say nothing of their own. Numbers, strings, tensors, shapes and the like have no variables.
///
/// ```
/// use gradlet_core::Variable;
/// use gradlet_core::layers::{Activation, Dense, Module};
///
/// #[derive(Module)]
/// struct Gated {
///     towers: Vec<Dense>,
///     #[module(name = "gate")]
///     scale: Variable,
///     activation: Activation,
///     #[module(skip)]
///     created: core::time::Duration,
/// }
///
/// let towers = vec![Dense::new(4), Dense::new(4)];
/// let scale = Variable::deferred("scale");
/// let gated = Gated { towers, scale, activation: Activation::Relu, created: core::time::Duration::ZERO };
/// let names: Vec<String> = gated.named_variables().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["towers/0/kernel", "towers/0/bias", "towers/1/kernel", "towers/1/bias", "gate"]);
/// ```
///
/// A field that is no module must be left out by `#[module(skip)]`:
///
/// ```compile_fail,E0277
/// #[derive(gradlet_core::layers::Module)]
/// struct Gated { created: core::time::Duration }
/// ```
///
/// And a misspelt attribute is an error:
///
/// ```compile_fail
/// #[derive(gradlet_core::layers::Module)]
/// struct Gated { #[module(skipped)] created: core::time::Duration }
/// ```
///
/// In a crate that knows gradlet under another name, `#[module(crate = name)]` stands before the struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `Module`: gradlet does not know which variables it has",
    label = "this has to be a `Module`",
    note = "derive `Module` for `{Self}`, or leave the field out with `#[module(skip)]`"
)]
pub trait Module {
    /// Calls `visit` with each variable and its path, such as `dense_1/kernel`.
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable));

    /// Calls `visit` with each variable and its path below `name`.
    fn visit_under(&self, name: &str, visit: &mut dyn FnMut(&str, &Variable)) {
        self.visit(&mut |path, variable| match (name, path) {
            ("", path) | (path, "") => visit(path, variable),
            (name, path) => visit(&format!("{name}/{path}"), variable),
        });
    }

    /// Every variable with its path, in the order of the fields. One that is shared stands there once, under its first path.
    fn named_variables(&self) -> Vec<(String, Variable)> {
        let mut named: Vec<(String, Variable)> = Vec::new();
        self.visit(&mut |path, variable| {
            if named.iter().all(|(_, known)| known != variable) {
                named.push((path.into(), variable.clone()));
            }
        });
        named
    }

    /// Every variable.
    fn variables(&self) -> Vec<Variable> {
        self.named_variables().into_iter().map(|(_, variable)| variable).collect()
    }

    /// The variables that optimizers train.
    fn trainable_variables(&self) -> Vec<Variable> {
        self.variables().into_iter().filter(Variable::trainable).collect()
    }

    /// Whether every variable has a value.
    fn is_built(&self) -> bool {
        let mut built = true;
        self.visit(&mut |_, variable| built &= variable.is_built());
        built
    }
}

impl Module for Variable {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        visit("", self);
    }
}

macro_rules! transparent {
    ($([$($generics:tt)*] $ty:ty),*) => {$(
        impl<$($generics)*> Module for $ty {
            fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
                (**self).visit(visit);
            }
        }
    )*};
}
transparent!([M: Module + ?Sized] &M, [M: Module + ?Sized] Box<M>, [M: Module + ?Sized] Shared<M>, [M: Module] Vec<M>);

impl<M: Module> Module for [M] {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        self.iter().enumerate().for_each(|(index, module)| module.visit_under(&format!("{index}"), visit));
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        self.as_slice().visit(visit);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        self.iter().for_each(|module| module.visit(visit));
    }
}

impl<M: Module> Module for BTreeMap<String, M> {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        self.iter().for_each(|(name, module)| module.visit_under(name, visit));
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*);)*) => {$(
        impl<$($name: Module),*> Module for ($($name,)*) {
            fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
                $(self.$index.visit_under(stringify!($index), visit);)*
            }
        }
    )*};
}
tuples! { (A 0); (A 0, B 1); (A 0, B 1, C 2); (A 0, B 1, C 2, D 3); (A 0, B 1, C 2, D 3, E 4); (A 0, B 1, C 2, D 3, E 4, F 5); }

macro_rules! no_variables {
    ($($ty:ty),* $(,)?) => {$(
        impl Module for $ty {
            fn visit(&self, _: &mut dyn FnMut(&str, &Variable)) {}
        }
    )*};
}
no_variables!(
    (),
    bool,
    char,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    isize,
    u8,
    u16,
    u32,
    u64,
    usize,
    str,
    String,
    Activation,
    Conv1DOptions,
    Conv2DOptions,
    DType,
    Initializer,
    Padding,
    Padding1D,
    Reduction,
    Resize,
    Shape,
    Tensor,
    TensorType,
);

impl<T: ?Sized> Module for core::marker::PhantomData<T> {
    fn visit(&self, _: &mut dyn FnMut(&str, &Variable)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use gradlet_derive::Module;

    #[derive(Module)]
    struct Leaf(Variable);

    #[derive(Module)]
    enum Choice<L> {
        One { layer: L, width: u32 },
        Both(L, L),
        Wrapped(L),
        Nothing,
    }

    #[derive(Module)]
    struct Tree<'a, const N: usize> {
        choices: [Choice<Leaf>; N],
        pair: (Leaf, Option<Leaf>),
        boxed: Option<Box<dyn Module + 'a>>,
        map: BTreeMap<String, Leaf>,
        #[module(name = "")]
        inner: (Variable, &'a str),
        again: Variable,
    }

    fn leaf() -> Leaf {
        Leaf(Variable::deferred("leaf"))
    }

    #[test]
    fn paths_follow_the_fields() {
        let shared = Variable::deferred("shared");
        let choices = [Choice::One { layer: leaf(), width: 3 }, Choice::Both(leaf(), leaf()), Choice::Wrapped(leaf()), Choice::Nothing];
        let tree = Tree {
            choices,
            pair: (leaf(), None),
            boxed: Some(Box::new(vec![leaf()])),
            map: [("key".to_string(), leaf())].into(),
            inner: (shared.clone(), "text"),
            again: shared,
        };
        let paths: Vec<String> = tree.named_variables().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["choices/0/layer", "choices/1/0", "choices/1/1", "choices/2", "pair/0", "boxed/0", "map/key", "0"]);
        assert!(!tree.is_built());
    }
}
