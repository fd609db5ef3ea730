//! The names of a traced graph's nodes: where they were made, and the op, numbered as TensorFlow does it.

use crate::sync::Shared;
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
}

impl Names {
    pub(crate) fn enter(&mut self, scope: &str) {
        self.around.push(self.path.len());
        self.path += scope;
        self.path.push('/');
    }

    pub(crate) fn leave(&mut self) {
        self.path.truncate(self.around.pop().unwrap_or(0));
    }

    /// A name for a node of this op here: `dense/matmul`, then `dense/matmul_1`.
    pub(crate) fn node(&mut self, op: &str) -> Shared<str> {
        let name = format!("{}{op}", self.path);
        let count = self.counts.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { name.into() } else { format!("{name}_{}", *count - 1).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_become_names() {
        assert_eq!(["MeanSquaredError", "RMSprop", "Adam"].map(snake), ["mean_squared_error", "rmsprop", "adam"]);
    }

    #[test]
    fn names_differ_and_say_where() {
        let mut names = Names::default();
        assert_eq!(&*names.node("add"), "add");
        names.enter("model");
        names.enter("dense");
        assert_eq!(&*names.node("add"), "model/dense/add");
        assert_eq!(&*names.node("add"), "model/dense/add_1");
        names.leave();
        assert_eq!(&*names.node("mul"), "model/mul");
        names.leave();
        assert_eq!(&*names.node("add"), "add_1");
    }
}
