//! Depthwise convolution: Keras's `DepthwiseConv2D`.

use super::affine::{Affine, affine_options, options};
use super::{Layer, Module, Padding, inputs};
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::ops::conv2d::Conv2DOptions;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// Convolution of each channel of images `[batch, height, width, channels]` by itself: `activation(x * kernel + bias)`. The kernel
/// has the shape `[h, w, channels, depth_multiplier]` and is initialised Glorot uniform. The bias has the shape
/// `[channels · depth_multiplier]` and is initialised with zeros.
///
/// ```
/// use gradlet_core::layers::{DepthwiseConv2D, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = DepthwiseConv2D::new([3, 3]).depth_multiplier(2);
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 5, 5, 4])?)?;
/// assert_eq!(y.dims(), [1, 3, 3, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct DepthwiseConv2D {
    kernel_size: [u32; 2],
    strides: [u32; 2],
    padding: Padding,
    depth_multiplier: u32,
    dilation_rate: [u32; 2],
    #[module(name = "")]
    affine: Affine,
}

impl DepthwiseConv2D {
    /// Creates a layer with one filter of this height and width for each channel, stride 1, no padding and no activation.
    pub fn new(kernel_size: [u32; 2]) -> DepthwiseConv2D {
        let (strides, padding, dilation_rate) = ([1, 1], Padding::Valid, [1, 1]);
        DepthwiseConv2D { kernel_size, strides, padding, depth_multiplier: 1, dilation_rate, affine: Affine::new().tracked("kernel") }
    }
}

affine_options!(DepthwiseConv2D, depthwise_initializer);
options! { DepthwiseConv2D {
    /// Sets the vertical and horizontal strides (default 1).
    strides: [u32; 2],
    /// Sets the padding (default none).
    padding: Padding,
    /// Sets the number of filters for each channel (default 1).
    depth_multiplier: u32,
    /// Sets the vertical and horizontal dilation, the distance between the taps of the window (default 1).
    dilation_rate: [u32; 2],
}}

impl Layer for DepthwiseConv2D {
    fn name(&self) -> &str {
        "depthwise_conv2d"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let [_, _, _, channels] = inputs::dims(self.name(), inputs::IMAGES, input.dims())?;
        let [height, width] = self.kernel_size;
        self.affine.build(scope, &[height, width, channels, self.depth_multiplier], channels * self.depth_multiplier)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (kernel, bias) = self.affine.read(scope)?;
        inputs::images(self.name(), x)?;
        inputs::features(self.name(), kernel.dims()[2], x)?;
        let options = Conv2DOptions::default().strides(self.strides).dilations(self.dilation_rate).padding(self.padding);
        self.affine.activation.call(&x.depthwise_conv2d(&kernel, bias.as_ref(), &options)?)
    }
}
