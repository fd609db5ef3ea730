//! Flatten: Keras's `Flatten`.

use super::{Layer, Module};
use crate::error::{Error, Result};
use crate::scope::Scope;
use crate::tensor::Tensor;

/// `[batch, …]` → `[batch, product of the rest]`.
#[derive(Default, Module)]
pub struct Flatten;

impl Layer for Flatten {
    fn name(&self) -> &str {
        "flatten"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (&batch, rest) = x.dims().split_first().ok_or(Error::Rank { input: 0 })?;
        x.reshape(&[batch, rest.iter().product()])
    }
}
