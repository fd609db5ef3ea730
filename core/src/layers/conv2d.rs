//! Convolution: Keras's `Conv2D`.

use super::{Activation, Layer, Module, glorot_uniform, zeros};
use crate::error::{Error, Result};
use crate::ops::conv2d::{Conv2DOptions, Padding};
use crate::scope::Scope;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::variable::Variable;

/// `activation(x * kernel + bias)` on images `[batch, height, width, channels]`; kernel `[h, w, channels, filters]`, Glorot
/// uniform; bias `[filters]`, zeros.
///
/// ```
/// use gradlet_core::layers::{Activation, Conv2D, Layer, Padding};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = Conv2D::new(8, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 5, 5, 2])?)?;
/// assert_eq!(y.dims(), [1, 5, 5, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct Conv2D {
    filters: u32,
    kernel_size: [u32; 2],
    options: Conv2DOptions,
    activation: Activation,
    kernel: Variable,
    bias: Variable,
}

impl Conv2D {
    /// A layer with this many filters of this height and width, stride 1, no padding and no activation.
    pub fn new(filters: u32, kernel_size: [u32; 2]) -> Conv2D {
        Conv2D {
            filters,
            kernel_size,
            options: Conv2DOptions::default(),
            activation: Activation::Linear,
            kernel: Variable::deferred("kernel"),
            bias: Variable::deferred("bias"),
        }
    }

    /// The same with these vertical and horizontal strides.
    pub fn strides(self, strides: [u32; 2]) -> Conv2D {
        Conv2D { options: self.options.strides(strides), ..self }
    }

    /// The same with this padding.
    pub fn padding(self, padding: Padding) -> Conv2D {
        Conv2D { options: self.options.padding(padding), ..self }
    }

    /// The same with `activation`.
    pub fn activation(self, activation: Activation) -> Conv2D {
        Conv2D { activation, ..self }
    }
}

impl Layer for Conv2D {
    fn name(&self) -> &str {
        "conv2d"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let channels = input.back(0).ok_or(Error::Rank { input: 0 })?;
        let [height, width] = self.kernel_size;
        self.kernel.create(scope, &glorot_uniform(scope, &[height, width, channels, self.filters])?)?;
        self.bias.create(scope, &zeros(scope, self.filters)?)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (kernel, bias) = (scope.read(&self.kernel)?, scope.read(&self.bias)?);
        self.activation.call(&x.conv2d(&kernel, Some(&bias), &self.options)?)
    }
}
