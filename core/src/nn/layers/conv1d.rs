//! Convolution of sequences: Keras's `Conv1D`.

use super::affine::{Affine, affine_options, options};
use super::{Layer, Module, Padding1D, inputs};
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::ops::conv1d::Conv1DOptions;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// Convolution of sequences `[batch, steps, channels]`: `activation(x * kernel + bias)`. The kernel has the shape
/// `[size, channels, filters]` and is initialised Glorot uniform. The bias has the shape `[filters]` and is initialised with zeros.
///
/// ```
/// use gradlet_core::layers::{Conv1D, Layer, Padding1D};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = Conv1D::new(8, 3).padding(Padding1D::Causal).dilation_rate(2);
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 10, 2])?)?;
/// assert_eq!(y.dims(), [1, 10, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct Conv1D {
    filters: u32,
    kernel_size: u32,
    strides: u32,
    padding: Padding1D,
    dilation_rate: u32,
    #[module(name = "")]
    affine: Affine,
}

impl Conv1D {
    /// Creates a layer with `filters` filters of size `kernel_size`, stride 1, no padding and no activation.
    pub fn new(filters: u32, kernel_size: u32) -> Conv1D {
        Conv1D { filters, kernel_size, strides: 1, padding: Padding1D::Valid, dilation_rate: 1, affine: Affine::new() }
    }
}

affine_options!(Conv1D, kernel_initializer);
options! { Conv1D {
    /// Sets the stride (default 1).
    strides: u32,
    /// Sets the padding (default none).
    padding: Padding1D,
    /// Sets the dilation, the distance between the taps of the window (default 1).
    dilation_rate: u32,
}}

impl Layer for Conv1D {
    fn name(&self) -> &str {
        "conv1d"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let [_, _, channels] = inputs::dims(self.name(), inputs::SEQUENCES, input.dims())?;
        self.affine.build(scope, &[self.kernel_size, channels, self.filters], self.filters)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (kernel, bias) = self.affine.read(scope)?;
        inputs::sequences(self.name(), x)?;
        inputs::features(self.name(), kernel.dims()[1], x)?;
        let options = Conv1DOptions::default().stride(self.strides).dilation(self.dilation_rate).padding(self.padding);
        self.affine.activation.call(&x.conv1d(&kernel, bias.as_ref(), &options)?)
    }
}
