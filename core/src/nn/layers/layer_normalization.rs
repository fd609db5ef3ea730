//! Layer normalisation: Keras's `LayerNormalization`.

use super::affine::options;
use super::scaled::{Scaled, scaled_options};
use super::{Layer, Module, inputs};
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use alloc::vec::Vec;

/// `gamma · (x − mean) / √(variance + ε) + beta`, with mean and variance of each sample over some axes, the last one at first. Gamma and
/// beta have the dimensions of those axes.
///
/// ```
/// use gradlet_core::layers::{Layer, LayerNormalization};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::full(&scope.device(), 5.0f32, &[2, 3])?;
/// assert_eq!(LayerNormalization::default().apply(&scope, &x)?.to_vec::<f32>()?, [0.0; 6]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct LayerNormalization {
    axis: Vec<i32>,
    epsilon: f64,
    #[module(name = "")]
    scaled: Scaled,
}

impl Default for LayerNormalization {
    fn default() -> LayerNormalization {
        LayerNormalization { axis: alloc::vec![-1], epsilon: 1e-3, scaled: Scaled::new() }
    }
}

impl LayerNormalization {
    /// The same over these axes, which count from the end where they are negative; at first the last one.
    pub fn axis(self, axis: &[i32]) -> LayerNormalization {
        LayerNormalization { axis: axis.to_vec(), ..self }
    }
}

scaled_options!(LayerNormalization);
options! { LayerNormalization {
    /// The same with this under the root, beside the variance; at first 0.001.
    epsilon: f64,
}}

impl Layer for LayerNormalization {
    fn name(&self) -> &str {
        "layer_normalization"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let mut axis = self.axis.clone();
        axis.sort_by_key(|&axis| if axis < 0 { axis + input.rank() as i32 } else { axis });
        let dims: Vec<u32> = axis.iter().map(|&axis| inputs::dim(self.name(), axis, input)).collect::<Result<_>>()?;
        self.scaled.build(scope, &dims)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let [gamma, beta] = self.scaled.read(scope)?;
        x.layer_norm(&self.axis, gamma.as_ref(), beta.as_ref(), self.epsilon)
    }
}
