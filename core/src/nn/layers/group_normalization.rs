//! Group normalisation: Keras's `GroupNormalization`.

use super::affine::options;
use super::scaled::{Scaled, scaled_options};
use super::{Layer, Module, inputs};
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// Group normalisation: `gamma · (x − mean) / √(variance + ε) + beta`. The layer divides the channels, by default the last axis,
/// into groups of adjacent channels. It computes mean and variance for each sample and group, over the channels of the group and
/// all other axes. Gamma and beta have the dimension of the channel axis.
///
/// ```
/// use gradlet_core::layers::{GroupNormalization, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::full(&scope.device(), 5.0f32, &[2, 3, 4])?;
/// assert_eq!(GroupNormalization::new(2).apply(&scope, &x)?.to_vec::<f32>()?, [0.0; 24]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct GroupNormalization {
    groups: Option<u32>,
    axis: i32,
    epsilon: f64,
    #[module(name = "")]
    scaled: Scaled,
}

impl GroupNormalization {
    /// Creates a layer with this number of groups. Keras's default is 32.
    pub fn new(groups: u32) -> GroupNormalization {
        GroupNormalization { groups: Some(groups), axis: -1, epsilon: 1e-3, scaled: Scaled::new() }
    }

    /// Creates a layer with one group for each channel, which is instance normalisation: Keras's `groups=-1`.
    pub fn instance() -> GroupNormalization {
        GroupNormalization { groups: None, ..GroupNormalization::new(1) }
    }
}

scaled_options!(GroupNormalization);
options! { GroupNormalization {
    /// Sets the axis of the channels (default: the last). A negative axis counts from the end.
    axis: i32,
    /// Sets ε, which is added to the variance under the square root (default 0.001).
    epsilon: f64,
}}

impl Layer for GroupNormalization {
    fn name(&self) -> &str {
        "group_normalization"
    }

    /// Returns false: the layer computes in f32, with the whole input and all variables, and casts the result.
    fn autocast(&self) -> bool {
        false
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        self.scaled.build(scope, &[inputs::dim(self.name(), self.axis, input)?])
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let [gamma, beta] = self.scaled.read(scope, x)?;
        let groups = self.groups.map_or_else(|| inputs::dim(self.name(), self.axis, x.shape()), Ok)?;
        x.group_norm(groups, self.axis, gamma.as_ref(), beta.as_ref(), self.epsilon)?.cast(scope.dtype_policy().compute_dtype())
    }
}
