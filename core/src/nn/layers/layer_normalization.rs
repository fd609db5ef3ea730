//! Layer normalisation: Keras's `LayerNormalization`.

use super::affine::options;
use super::scaled::{Scaled, scaled_options};
use super::{Layer, Module, inputs};
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use alloc::vec::Vec;

/// Layer normalisation: `gamma · (x − mean) / √(variance + ε) + beta`. Mean and variance are computed for each sample over some
/// axes, by default the last. Gamma and beta have the dimensions of those axes.
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
    /// Sets the axes of mean and variance (default: the last). Negative axes count from the end.
    pub fn axis(self, axis: &[i32]) -> LayerNormalization {
        LayerNormalization { axis: axis.to_vec(), ..self }
    }
}

scaled_options!(LayerNormalization);
options! { LayerNormalization {
    /// Sets ε, which is added to the variance under the square root (default 0.001).
    epsilon: f64,
}}

impl Layer for LayerNormalization {
    fn name(&self) -> &str {
        "layer_normalization"
    }

    /// Returns false: the layer computes in f32, with the whole input and all variables, and casts the result.
    fn autocast(&self) -> bool {
        false
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let mut axis = self.axis.clone();
        axis.sort_by_key(|&axis| if axis < 0 { axis + input.rank() as i32 } else { axis });
        let dims: Vec<u32> = axis.iter().map(|&axis| inputs::dim(self.name(), axis, input)).collect::<Result<_>>()?;
        self.scaled.build(scope, &dims)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let [gamma, beta] = self.scaled.read(scope, x)?;
        x.layer_norm(&self.axis, gamma.as_ref(), beta.as_ref(), self.epsilon)?.cast(scope.dtype_policy().compute_dtype())
    }
}
