//! The names of a traced graph's nodes: where they were made, and the op, called and numbered as TensorFlow does it.

use crate::base::sync::Shared;
use crate::tensor::facts::Op;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// `SparseCategoricalCrossentropy` as `sparse_categorical_crossentropy`.
pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut before = false;
    for character in name.chars() {
        if character.is_uppercase() && before {
            snake.push('_');
        }
        before = character.is_lowercase();
        snake.extend(character.to_lowercase());
    }
    snake
}

/// Gives names that differ.
#[derive(Default)]
pub(crate) struct Names {
    /// The scopes that are open, each with a `/` after it.
    path: String,
    /// The lengths of the paths around.
    around: Vec<usize>,
    counts: BTreeMap<String, usize>,
    /// The layers of each name, by what tells them apart.
    layers: BTreeMap<String, Vec<Option<usize>>>,
}

impl Names {
    pub(crate) fn enter(&mut self, scope: &str) {
        self.around.push(self.path.len());
        self.path += scope;
        self.path.push('/');
    }

    /// Enters the scope of a layer. Others of its name have scopes of their own, such as `dense_1`.
    pub(crate) fn enter_layer(&mut self, name: &str, id: Option<usize>) {
        let known = self.layers.entry(format!("{}{name}", self.path)).or_default();
        let index = known.iter().position(|other| *other == id).unwrap_or(known.len());
        if index == known.len() {
            known.push(id);
        }
        if index == 0 { self.enter(name) } else { self.enter(&format!("{name}_{index}")) }
    }

    pub(crate) fn leave(&mut self) {
        self.path.truncate(self.around.pop().unwrap_or(0));
    }

    /// A name for a node of this op here: `dense/MatMul`, then `dense/MatMul_1`.
    pub(crate) fn node(&mut self, op: &Op) -> Shared<str> {
        let name = format!("{}{}", self.path, op.type_name());
        let count = self.counts.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { name.into() } else { format!("{name}_{}", *count - 1).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{self, OPS};

    #[test]
    fn every_op_has_a_type_of_its_own() {
        let mut known = BTreeMap::new();
        for op in OPS {
            let name = op.def.name;
            assert_eq!(*known.entry(op.type_name()).or_insert(name), name);
            assert_eq!(ops::type_name(op.def), op.type_name());
            assert_ne!(op.tf_type, Some(crate::tensor::facts::camel(name).as_str()), "{name} need not say so");
        }
    }

    #[test]
    fn types_become_names() {
        assert_eq!(["MeanSquaredError", "RMSprop", "Adam"].map(snake), ["mean_squared_error", "rmsprop", "adam"]);
    }

    #[test]
    fn names_differ_and_say_where() {
        let mut names = Names::default();
        assert_eq!(&*names.node(&ops::add::OP), "AddV2");
        names.enter("model");
        names.enter("dense");
        assert_eq!(&*names.node(&ops::add::OP), "model/dense/AddV2");
        assert_eq!(&*names.node(&ops::add::OP), "model/dense/AddV2_1");
        names.leave();
        assert_eq!(&*names.node(&ops::mul::OP), "model/Mul");
        names.leave();
        assert_eq!(&*names.node(&ops::add::OP), "AddV2_1");
    }

    #[test]
    fn layers_of_one_name_are_told_apart() {
        let mut names = Names::default();
        let named = [Some(7), Some(9), Some(7), None].map(|id| {
            names.enter_layer("dense", id);
            let name = names.node(&ops::matmul::OP);
            names.leave();
            name
        });
        assert_eq!(named.each_ref().map(|name| &**name), ["dense/MatMul", "dense_1/MatMul", "dense/MatMul_1", "dense_2/MatMul"]);
    }
}
