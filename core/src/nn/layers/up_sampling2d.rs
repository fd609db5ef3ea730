//! Enlargement of images: Keras's `UpSampling2D`.

use super::affine::options;
use super::{Layer, Module, inputs};
use crate::base::error::{Error, Result};
use crate::ops::resize::Resize;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// Enlargement of images `[batch, height, width, channels]` by whole factors (default 2).
///
/// ```
/// use gradlet_core::layers::{Layer, UpSampling2D};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let y = UpSampling2D::new([2, 3]).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 4, 4, 2])?)?;
/// assert_eq!(y.dims(), [1, 8, 12, 2]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Module)]
pub struct UpSampling2D {
    size: [u32; 2],
    interpolation: Resize,
}

impl Default for UpSampling2D {
    fn default() -> UpSampling2D {
        UpSampling2D::new([2, 2])
    }
}

impl UpSampling2D {
    /// Creates a layer with these vertical and horizontal factors. Each output pixel is the nearest input pixel.
    pub fn new(size: [u32; 2]) -> UpSampling2D {
        UpSampling2D { size, interpolation: Resize::Nearest }
    }
}

options! { UpSampling2D {
    /// Sets the interpolation (default [`Resize::Nearest`]).
    interpolation: Resize,
}}

impl Layer for UpSampling2D {
    fn name(&self) -> &str {
        "up_sampling2d"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let [_, height, width, _] = inputs::images(self.name(), x)?;
        let larger = |dim: u32, factor: u32| dim.checked_mul(factor).ok_or(Error::TooLarge);
        x.resize([larger(height, self.size[0])?, larger(width, self.size[1])?], self.interpolation)
    }
}
