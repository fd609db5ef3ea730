//! Layers of several inputs: Keras's `Add` and `Concatenate`.

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::sync::ThreadSafe;
use crate::nn::type_name;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// A layer that makes one tensor of several.
pub trait Merge: Module + ThreadSafe {
    /// What kind of layer it is: `add`, `concatenate`.
    fn name(&self) -> &str;

    /// The type's name, for people: `Add`.
    fn kind(&self) -> &str {
        type_name::<Self>()
    }

    /// Computes the output.
    fn call(&self, scope: &dyn Scope, inputs: &[&Tensor]) -> Result<Tensor>;
}

/// The sum of its inputs, broadcast.
///
/// ```
/// use gradlet_core::layers::{Add, Merge};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[1, 2])?;
/// assert_eq!(Add.call(&scope, &[&x, &x, &x])?.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Module)]
pub struct Add;

impl Merge for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn call(&self, _: &dyn Scope, inputs: &[&Tensor]) -> Result<Tensor> {
        let [first, others @ ..] = inputs else { return Err(Error::message("add takes at least one input, not none")) };
        others.iter().try_fold((*first).clone(), |sum, other| sum.add(other))
    }
}

/// Its inputs one after the other along an axis, the last one at first.
///
/// ```
/// use gradlet_core::layers::{Concatenate, Merge};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[1, 2])?;
/// assert_eq!(Concatenate::default().call(&scope, &[&x, &x])?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Module)]
pub struct Concatenate {
    axis: i32,
}

impl Default for Concatenate {
    fn default() -> Concatenate {
        Concatenate::new(-1)
    }
}

impl Concatenate {
    /// Along this axis, which counts from the end where it is negative.
    pub fn new(axis: i32) -> Concatenate {
        Concatenate { axis }
    }
}

impl Merge for Concatenate {
    fn name(&self) -> &str {
        "concatenate"
    }

    fn call(&self, _: &dyn Scope, inputs: &[&Tensor]) -> Result<Tensor> {
        Tensor::concat(inputs, self.axis)
    }
}
