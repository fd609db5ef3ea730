//! Max pooling: Keras's `MaxPooling2D`.

use super::{Layer, Module};
use crate::error::Result;
use crate::ops::conv2d::Padding;
use crate::scope::Scope;
use crate::tensor::Tensor;

/// The maxima of windows over images `[batch, height, width, channels]`.
///
/// ```
/// use gradlet_core::layers::{Layer, MaxPool2D};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let y = MaxPool2D::new([2, 2]).apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 7, 6, 3])?)?;
/// assert_eq!(y.dims(), [1, 3, 3, 3]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct MaxPool2D {
    pool_size: [u32; 2],
    strides: [u32; 2],
    padding: Padding,
}

impl MaxPool2D {
    /// Windows of this height and width, side by side, without padding.
    pub fn new(pool_size: [u32; 2]) -> MaxPool2D {
        MaxPool2D { pool_size, strides: pool_size, padding: Padding::Valid }
    }

    /// The same with these vertical and horizontal strides.
    pub fn strides(self, strides: [u32; 2]) -> MaxPool2D {
        MaxPool2D { strides, ..self }
    }

    /// The same with this padding.
    pub fn padding(self, padding: Padding) -> MaxPool2D {
        MaxPool2D { padding, ..self }
    }
}

impl Layer for MaxPool2D {
    fn name(&self) -> &str {
        "max_pooling2d"
    }

    fn kind(&self) -> &str {
        "MaxPooling2D"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        x.max_pool2d(self.pool_size, self.strides, self.padding)
    }
}
