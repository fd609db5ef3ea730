//! Convolution: Keras's `Conv2D`.

use super::affine::{Affine, affine_options, options};
use super::{Layer, Module, Padding, inputs};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::ops::conv2d::Conv2DOptions;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use alloc::format;
use alloc::vec::Vec;

/// Convolution of images `[batch, height, width, channels]`: `activation(x * kernel + bias)`. The kernel has the shape
/// `[h, w, channels / groups, filters]` and is initialised Glorot uniform. The bias has the shape `[filters]` and is initialised
/// with zeros.
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
    strides: [u32; 2],
    padding: Padding,
    dilation_rate: [u32; 2],
    groups: u32,
    #[module(name = "")]
    affine: Affine,
}

impl Conv2D {
    /// Creates a layer with `filters` filters of this height and width, stride 1, no padding and no activation.
    pub fn new(filters: u32, kernel_size: [u32; 2]) -> Conv2D {
        let (strides, padding, dilation_rate) = ([1, 1], Padding::Valid, [1, 1]);
        Conv2D { filters, kernel_size, strides, padding, dilation_rate, groups: 1, affine: Affine::new() }
    }
}

affine_options!(Conv2D, kernel_initializer);
options! { Conv2D {
    /// Sets the vertical and horizontal strides (default 1).
    strides: [u32; 2],
    /// Sets the padding (default none).
    padding: Padding,
    /// Sets the vertical and horizontal dilation, the distance between the taps of the window (default 1).
    dilation_rate: [u32; 2],
    /// Sets the number of groups (default 1). Channels and filters are divided into groups, and the filters of a group see only the
    /// channels of that group.
    groups: u32,
}}

impl Layer for Conv2D {
    fn name(&self) -> &str {
        "conv2d"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let [_, _, _, channels] = inputs::dims(self.name(), inputs::IMAGES, input.dims())?;
        let (filters, groups, [height, width]) = (self.filters, self.groups, self.kernel_size);
        if groups == 0 || !channels.is_multiple_of(groups) || !filters.is_multiple_of(groups) {
            return Err(Error::message(format!(
                "conv2d: {channels} channels and {filters} filters cannot be divided into {groups} groups"
            )));
        }
        self.affine.build(scope, &[height, width, channels / groups, filters], filters)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (kernel, bias) = self.affine.read(scope)?;
        inputs::images(self.name(), x)?;
        inputs::features(self.name(), kernel.dims()[2] * self.groups, x)?;
        let options = Conv2DOptions::default().strides(self.strides).dilations(self.dilation_rate).padding(self.padding);
        if self.groups == 1 {
            return self.affine.activation.call(&x.conv2d(&kernel, bias.as_ref(), &options)?);
        }
        let parts = x.split(self.groups, -1)?.into_iter().zip(kernel.split(self.groups, -1)?);
        let parts: Vec<Tensor> = parts.map(|(x, kernel)| x.conv2d(&kernel, None, &options)).collect::<Result<_>>()?;
        let y = Tensor::concat(&parts, -1)?;
        self.affine.activation.call(&bias.map_or(Ok(y.clone()), |bias| y.add(&bias))?)
    }
}
