//! Layers with several inputs: Keras's `Add` and `Concatenate`.

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::sync::ThreadSafe;
use crate::nn::type_name;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// A layer that merges several tensors into one.
pub trait Merge: Module + ThreadSafe {
    /// Returns the kind of the layer, such as `add` or `concatenate`.
    fn name(&self) -> &str;

    /// Returns the name of the type for display, such as `Add`.
    fn kind(&self) -> &str {
        type_name::<Self>()
    }

    /// Computes the output from the inputs.
    fn call(&self, scope: &dyn Scope, inputs: &[&Tensor]) -> Result<Tensor>;
}

/// Sum of the inputs, with broadcasting.
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

/// Concatenation of the inputs along an axis, by default the last.
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
    /// Creates a layer that concatenates along this axis. A negative axis counts from the end.
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
