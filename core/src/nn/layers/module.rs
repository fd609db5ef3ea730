//! Modules: types that have variables.

use super::{Activation, Initializer, Later, Padding, Padding1D, Resize, State, WithPolicy};
use crate::base::dtype::DType;
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::Shared;
use crate::nn::losses::Reduction;
use crate::ops::conv1d::Conv1DOptions;
use crate::ops::conv2d::Conv2DOptions;
use crate::tensor::Tensor;
use crate::tensor::variable::Variable;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A collection of variables with names: a layer, a model, an optimizer.
///
/// `#[derive(Module)]` implements the trait for a struct or an enum whose fields are modules. The name of a field becomes part of
/// the paths of its variables. A `Vec`, an array, a tuple or a `BTreeMap` adds the index or key of each element. An `Option`, a
/// `Box`, an `Arc`, and a struct with one unnamed field add nothing to the path.
///
/// Numbers, strings, tensors, shapes and similar types have no variables. Numbers in a [`Cell`](core::cell::Cell) and atomic
/// numbers have no variables either, but checkpoints keep them. If TensorFlow's object has another name for a field,
/// `#[module(tracked = "_kernel")]` sets the name in checkpoints.
///
/// A module may override a provided method such as [`Module::trainable_variables`]. The modules around it then use that method: the
/// result for a module consists of the results for the modules inside it.
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
/// A field that is not a module must be left out with `#[module(skip)]`:
///
/// ```compile_fail,E0277
/// #[derive(gradlet_core::layers::Module)]
/// struct Gated { created: core::time::Duration }
/// ```
///
/// A misspelt attribute is an error:
///
/// ```compile_fail
/// #[derive(gradlet_core::layers::Module)]
/// struct Gated { #[module(skipped)] created: core::time::Duration }
/// ```
///
/// If a crate imports gradlet under another name, write `#[module(crate = name)]` before the struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement `Module`, so gradlet cannot find its variables",
    label = "this must implement `Module`",
    note = "derive `Module` for `{Self}`, or leave the field out with `#[module(skip)]`"
)]
pub trait Module {
    /// Passes each variable and each inner module of this module to `visitor`.
    fn visit(&self, visitor: &mut dyn Visitor);

    /// Returns every variable with its path, in the order of the fields. A shared variable occurs once, under its first path.
    fn named_variables(&self) -> Vec<(String, Variable)> {
        let mut paths = Paths::default();
        self.visit(&mut paths);
        paths.0
    }

    /// Returns every variable.
    fn variables(&self) -> Vec<Variable> {
        gather(self, |variable| Some(variable.clone()), |module| module.variables())
    }

    /// Returns the variables that optimizers train: those that are [trainable](Variable::trainable).
    fn trainable_variables(&self) -> Vec<Variable> {
        gather(self, |variable| variable.trainable().then(|| variable.clone()), |module| module.trainable_variables())
    }

    /// Returns the variables that no optimizer trains: frozen variables, and statistics such as a moving mean.
    fn non_trainable_variables(&self) -> Vec<Variable> {
        gather(self, |variable| (!variable.trainable()).then(|| variable.clone()), |module| module.non_trainable_variables())
    }

    /// Freezes every variable of this module and of the modules inside it if `trainable` is false, and unfreezes them if it is true:
    /// Keras's `layer.trainable = False`. This also works before the module is built.
    ///
    /// - A training step leaves frozen variables unchanged, bit for bit. No gradient is computed for them.
    /// - An optimizer that is built afterwards has no state for them.
    /// - A frozen [`BatchNormalization`](super::BatchNormalization) normalises by its moving statistics, also in training.
    /// - In an artifact, a variable that is frozen in all exported signatures stays in flash.
    ///
    /// The flags belong to the variables, so each variable follows the last call that concerned it. In Keras, a layer that is
    /// unfrozen inside a frozen model stays untrained until the model is unfrozen, too.
    ///
    /// ```
    /// use gradlet_core::layers::{Dense, Layer, Module, Sequential};
    /// use gradlet_core::{Eager, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let model = Sequential::new().with(Dense::new(4)).with(Dense::new(2));
    /// model.set_trainable(false);
    /// model.layers().last().unwrap().1.set_trainable(true);
    /// let summary = model.summary(&scope, &[3])?;
    /// assert_eq!((summary.trainable.count, summary.non_trainable.count), (10, 16));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    fn set_trainable(&self, trainable: bool) {
        self.visit(&mut Freezes { trainable });
    }

    /// True unless all variables of this module are frozen: Keras's `layer.trainable`.
    fn trainable(&self) -> bool {
        let variables = self.variables();
        variables.is_empty() || variables.iter().any(|variable| !variable.is_frozen())
    }

    /// True if every variable has a value.
    fn is_built(&self) -> bool {
        let mut built = Built(true);
        self.visit(&mut built);
        built.0
    }
}

/// A visitor of modules. [`Module::visit`] passes the content of a module to it.
pub trait Visitor {
    /// Receives a variable.
    fn variable(&mut self, variable: &Variable);

    /// Receives an inner module and its name. A module with the name "" adds nothing to the path: its content belongs to the module
    /// around it.
    fn module(&mut self, name: &str, module: &dyn Module);

    /// Receives state that is not a variable, but is kept in checkpoints together with the variables.
    fn state(&mut self, state: &dyn State) {
        let _ = state;
    }

    /// Receives the hook of a module that creates more variables later.
    fn later(&mut self, later: &Later) {
        let _ = later;
    }

    /// True if the visitor needs the names in TensorFlow's checkpoints, which are the attribute names of Keras's objects. Some of
    /// them differ from the names of the fields.
    fn tracks(&self) -> bool {
        false
    }
}

/// Visitor that collects every variable once, with its path.
#[derive(Default)]
struct Paths(Vec<(String, Variable)>);

impl Paths {
    fn add(&mut self, path: String, variable: Variable) {
        if self.0.iter().all(|(_, known)| *known != variable) {
            self.0.push((path, variable));
        }
    }
}

impl Visitor for Paths {
    fn variable(&mut self, variable: &Variable) {
        self.add(String::new(), variable.clone());
    }

    fn module(&mut self, name: &str, module: &dyn Module) {
        for (path, variable) in module.named_variables() {
            let between = if name.is_empty() || path.is_empty() { "" } else { "/" };
            self.add(format!("{name}{between}{path}"), variable);
        }
    }
}

/// Visitor that collects variables, each once. `own` maps each of the module's own variables to the variable to collect, or to
/// `None`. `inner` returns the variables to collect from an inner module.
struct Gathered<O, I> {
    found: Vec<Variable>,
    own: O,
    inner: I,
}

fn gather(
    module: &(impl Module + ?Sized),
    own: impl Fn(&Variable) -> Option<Variable>,
    inner: impl Fn(&dyn Module) -> Vec<Variable>,
) -> Vec<Variable> {
    let mut gathered = Gathered { found: Vec::new(), own, inner };
    module.visit(&mut gathered);
    gathered.found
}

impl<O, I> Gathered<O, I> {
    fn add(&mut self, variables: impl IntoIterator<Item = Variable>) {
        for variable in variables {
            if !self.found.contains(&variable) {
                self.found.push(variable);
            }
        }
    }
}

impl<O: Fn(&Variable) -> Option<Variable>, I: Fn(&dyn Module) -> Vec<Variable>> Visitor for Gathered<O, I> {
    fn variable(&mut self, variable: &Variable) {
        self.add((self.own)(variable));
    }

    fn module(&mut self, _: &str, module: &dyn Module) {
        self.add((self.inner)(module));
    }
}

/// Visitor whose value is true if every visited variable is built.
struct Built(bool);

impl Visitor for Built {
    fn variable(&mut self, variable: &Variable) {
        self.0 &= variable.is_built();
    }

    fn module(&mut self, _: &str, module: &dyn Module) {
        self.0 = self.0 && module.is_built();
    }
}

/// Visitor that freezes or unfreezes every visited variable.
struct Freezes {
    trainable: bool,
}

impl Visitor for Freezes {
    fn variable(&mut self, variable: &Variable) {
        variable.set_trainable(self.trainable);
    }

    fn module(&mut self, _: &str, module: &dyn Module) {
        module.set_trainable(self.trainable);
    }
}

impl Module for Variable {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.variable(self);
    }
}

macro_rules! transparent {
    ($([$($generics:tt)*] $ty:ty),*) => {$(
        // The wrapped type may override any method, so the wrapper must forward all of them.
        #[deny(clippy::missing_trait_methods)]
        impl<$($generics)*> Module for $ty {
            fn visit(&self, visitor: &mut dyn Visitor) {
                (**self).visit(visitor);
            }
            fn named_variables(&self) -> Vec<(String, Variable)> {
                (**self).named_variables()
            }
            fn variables(&self) -> Vec<Variable> {
                (**self).variables()
            }
            fn trainable_variables(&self) -> Vec<Variable> {
                (**self).trainable_variables()
            }
            fn non_trainable_variables(&self) -> Vec<Variable> {
                (**self).non_trainable_variables()
            }
            fn set_trainable(&self, trainable: bool) {
                (**self).set_trainable(trainable);
            }
            fn trainable(&self) -> bool {
                (**self).trainable()
            }
            fn is_built(&self) -> bool {
                (**self).is_built()
            }
        }
    )*};
}
transparent!(
    [M: Module + ?Sized] &M,
    [M: Module + ?Sized] Box<M>,
    [M: Module + ?Sized] Shared<M>,
    [M: Module] Vec<M>,
    [M: Module] WithPolicy<M>
);

impl<M: Module> Module for [M] {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.iter().enumerate().for_each(|(index, module)| visitor.module(&format!("{index}"), module));
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.as_slice().visit(visitor);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.iter().for_each(|module| visitor.module("", module));
    }
}

impl<M: Module> Module for BTreeMap<String, M> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.iter().for_each(|(name, module)| visitor.module(name, module));
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*);)*) => {$(
        impl<$($name: Module),*> Module for ($($name,)*) {
            fn visit(&self, visitor: &mut dyn Visitor) {
                $(visitor.module(stringify!($index), &self.$index);)*
            }
        }
    )*};
}
tuples! { (A 0); (A 0, B 1); (A 0, B 1, C 2); (A 0, B 1, C 2, D 3); (A 0, B 1, C 2, D 3, E 4); (A 0, B 1, C 2, D 3, E 4, F 5); }

macro_rules! no_variables {
    ($($ty:ty),* $(,)?) => {$(
        impl Module for $ty {
            fn visit(&self, _: &mut dyn Visitor) {}
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
    fn visit(&self, _: &mut dyn Visitor) {}
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
