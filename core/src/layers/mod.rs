//! Layers: what models are made of. They have Keras's names, defaults and weight layouts.

mod activation;
mod conv2d;
mod dense;
mod flatten;
mod max_pool2d;
mod module;
mod sequential;

pub use activation::Activation;
pub use conv2d::Conv2D;
pub use dense::Dense;
pub use flatten::Flatten;
pub use gradlet_derive::Module;
pub use max_pool2d::MaxPool2D;
pub use module::Module;
pub use sequential::Sequential;

pub use crate::ops::conv2d::Padding;

use crate::error::Result;
use crate::scope::Scope;
use crate::shape::Shape;
use crate::sync::ThreadSafe;
use crate::tensor::Tensor;
use alloc::vec::Vec;

/// A layer: from a tensor to a tensor, with variables that are created when the input shape is known.
///
/// ```
/// use gradlet_core::layers::{Layer, Module};
/// use gradlet_core::{Eager, Result, Scope, Shape, Tensor, Variable, ops};
///
/// #[derive(Module)]
/// struct Scale { factor: Variable }
///
/// impl Layer for Scale {
///     fn name(&self) -> &str { "scale" }
///     fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
///         let channels = input.back(0).unwrap_or(1);
///         self.factor.create(scope, &Tensor::full(&scope.device(), 1.0f32, &[channels])?)
///     }
///     fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
///         x.mul(&scope.read(&self.factor)?)
///     }
/// }
///
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = Scale { factor: Variable::deferred("factor") };
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 2.0f32, &[4, 3])?)?;
/// assert_eq!(y.dims(), [4, 3]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait Layer: Module + ThreadSafe {
    /// What kind of layer it is: `dense`, `conv2d`. A model numbers those of the same name.
    fn name(&self) -> &str;

    /// Creates the variables for inputs of this shape. A layer without variables needs none.
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let _ = (scope, input);
        Ok(())
    }

    /// Computes the output. The variables exist.
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor>;

    /// Builds the layer if it is not built yet, then calls it: what Keras does when a layer is called.
    fn apply(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        if !self.is_built() {
            self.build(scope, x.shape())?;
        }
        self.call(scope, x)
    }
}

/// Keras's `GlorotUniform`: uniform between ±√(6 / (fan_in + fan_out)), in f32.
fn glorot_uniform(scope: &dyn Scope, dims: &[u32]) -> Result<Tensor> {
    let (receptive, channels) = dims.split_at(dims.len().saturating_sub(2));
    let field: u32 = receptive.iter().product();
    let fans: u32 = channels.iter().map(|&dim| dim * field).sum();
    let limit = libm::sqrtf(6.0 / fans.max(1) as f32);
    let count = Shape::new(dims)?.elements().unwrap_or(0) as usize;
    let elements: Vec<f32> = scope.next_stream()?.uniform(count).iter().map(|x| (2.0 * x - 1.0) * limit).collect();
    Tensor::new(&scope.device(), &elements, dims)
}

fn zeros(scope: &dyn Scope, count: u32) -> Result<Tensor> {
    Tensor::full(&scope.device(), 0.0f32, &[count])
}
