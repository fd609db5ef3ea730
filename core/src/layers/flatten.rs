//! Flatten: Keras's `Flatten`.

use super::{Layer, Module};
use crate::error::{Error, Result};
use crate::scope::Scope;
use crate::tensor::Tensor;
use crate::variable::Variable;

/// `[batch, …]` → `[batch, product of the rest]`.
#[derive(Default)]
pub struct Flatten;

impl Module for Flatten {
    fn visit(&self, _: &mut dyn FnMut(&str, &Variable)) {}
}

impl Layer for Flatten {
    fn name(&self) -> &str {
        "flatten"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (&batch, rest) = x.dims().split_first().ok_or(Error::Rank { input: 0 })?;
        x.reshape(&[batch, rest.iter().product()])
    }
}
