//! Transposed convolution: Keras's `Conv2DTranspose`.

use super::affine::{Affine, affine_options, options};
use super::{Layer, Module, Padding, inputs};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::ops::conv2d::Conv2DOptions;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// The transposed convolution of images `[batch, height, width, channels]`, which makes them larger by the strides; kernel
/// `[h, w, filters, channels]`, Glorot uniform; bias `[filters]`, zeros; then the activation.
///
/// ```
/// use gradlet_core::layers::{Conv2DTranspose, Layer, Padding};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = Conv2DTranspose::new(8, [3, 3]).strides([2, 2]).padding(Padding::Same);
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 5, 6, 4])?)?;
/// assert_eq!(y.dims(), [1, 10, 12, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct Conv2DTranspose {
    filters: u32,
    kernel_size: [u32; 2],
    strides: [u32; 2],
    padding: Padding,
    output_padding: Option<[u32; 2]>,
    dilation_rate: [u32; 2],
    #[module(name = "")]
    affine: Affine,
}

impl Conv2DTranspose {
    /// A layer with this many filters of this height and width, stride 1, no padding and no activation.
    pub fn new(filters: u32, kernel_size: [u32; 2]) -> Conv2DTranspose {
        let (strides, padding, dilation_rate) = ([1, 1], Padding::Valid, [1, 1]);
        Conv2DTranspose {
            filters,
            kernel_size,
            strides,
            padding,
            output_padding: None,
            dilation_rate,
            affine: Affine::new().tracked("kernel"),
        }
    }

    /// The same with so many rows and columns more than the least; at first as many as the strides give, as in Keras.
    pub fn output_padding(self, output_padding: [u32; 2]) -> Conv2DTranspose {
        Conv2DTranspose { output_padding: Some(output_padding), ..self }
    }

    /// The size of the output along axis 0 or 1 of the window, for an input of this size.
    fn output(&self, axis: usize, size: u32) -> Option<u32> {
        let kernel = self.kernel_size[axis].checked_sub(1)?.checked_mul(self.dilation_rate[axis])?.checked_add(1)?;
        let (stride, more) = (self.strides[axis], self.output_padding.map(|more| more[axis]));
        let steps = size.checked_sub(1)?.checked_mul(stride)?;
        match (self.padding, more) {
            (Padding::Valid, more) => steps.checked_add(kernel)?.checked_add(more.unwrap_or(stride.saturating_sub(kernel))),
            (Padding::Same, None) => size.checked_mul(stride),
            (Padding::Same, Some(more)) => steps.checked_add(kernel % 2)?.checked_add(more),
            (Padding::Explicit { .. }, _) => None,
        }
    }
}

affine_options!(Conv2DTranspose, kernel_initializer);
options! { Conv2DTranspose {
    /// The same with these vertical and horizontal strides; at first 1.
    strides: [u32; 2],
    /// The same with this padding, none or [`Padding::Same`]; at first none.
    padding: Padding,
    /// The same with the taps of the window this far apart; at first 1.
    dilation_rate: [u32; 2],
}}

impl Layer for Conv2DTranspose {
    fn name(&self) -> &str {
        "conv2d_transpose"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let [_, _, _, channels] = inputs::dims(self.name(), inputs::IMAGES, input.dims())?;
        let [height, width] = self.kernel_size;
        self.affine.build(scope, &[height, width, self.filters, channels], self.filters)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (kernel, bias) = self.affine.read(scope)?;
        let [_, height, width, _] = inputs::images(self.name(), x)?;
        inputs::features(self.name(), kernel.dims()[3], x)?;
        let options = Conv2DOptions::default().strides(self.strides).dilations(self.dilation_rate).padding(self.padding);
        let (Some(height), Some(width)) = (self.output(0, height), self.output(1, width)) else {
            return Err(Error::message(alloc::format!(
                "conv2d_transpose has no output for {}: it takes a padding of none or Same, and images of at least one pixel",
                x.tensor_type()
            )));
        };
        let y = x.conv2d_transpose(&kernel, &options, [height, width])?;
        self.affine.activation.call(&bias.map_or(Ok(y.clone()), |bias| y.add(&bias))?)
    }
}
