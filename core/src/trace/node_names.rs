//! Names of a traced graph's nodes: the name scopes, then the op, with TensorFlow's op names and numbering.

use crate::base::sync::Shared;
use crate::tensor::facts::Op;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Converts a name to snake case: `SparseCategoricalCrossentropy` to `sparse_categorical_crossentropy`.
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

/// Generator of unique names.
#[derive(Default)]
pub(crate) struct Names {
    /// Open name scopes, each followed by a `/`.
    path: String,
    /// Length of `path` before each open scope was entered.
    around: Vec<usize>,
    counts: BTreeMap<String, usize>,
    /// Identifiers of the layers that share a path and name, which are the key. The position of a layer is its number.
    layers: BTreeMap<String, Vec<Option<usize>>>,
}

impl Names {
    pub(crate) fn enter(&mut self, scope: &str) {
        self.around.push(self.path.len());
        self.path += scope;
        self.path.push('/');
    }

    /// Enters the name scope of a layer. Further layers with the same path and name get numbered scopes, such as `dense_1`. The
    /// same layer always gets the same scope.
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

    /// Returns a unique name for a node of this op in the current scope: `dense/MatMul`, then `dense/MatMul_1`.
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
