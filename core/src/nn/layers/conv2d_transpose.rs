//! Transposed convolution: Keras's `Conv2DTranspose`.

use super::affine::{Affine, affine_options, options};
use super::{Layer, Module, Padding, inputs};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::ops::conv2d::Conv2DOptions;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// Transposed convolution of images `[batch, height, width, channels]`, followed by the activation. The strides enlarge the images.
/// The kernel has the shape `[h, w, filters, channels]` and is initialised Glorot uniform. The bias has the shape `[filters]` and
/// is initialised with zeros.
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
    /// Creates a layer with `filters` filters of this height and width, stride 1, no padding and no activation.
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

    /// Adds this many rows and columns to the smallest possible output. By default the strides determine the size of the output, as
    /// in Keras.
    pub fn output_padding(self, output_padding: [u32; 2]) -> Conv2DTranspose {
        Conv2DTranspose { output_padding: Some(output_padding), ..self }
    }

    /// Returns the size of the output along `axis` (0 vertical, 1 horizontal) for an input of `size` rows or columns. Returns
    /// `None` for explicit padding, if the input or the kernel is empty, or if the size overflows.
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
    /// Sets the vertical and horizontal strides (default 1).
    strides: [u32; 2],
    /// Sets the padding: none or [`Padding::Same`] (default none).
    padding: Padding,
    /// Sets the vertical and horizontal dilation, the distance between the taps of the window (default 1).
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
                "conv2d_transpose has no output for {}: expected Valid or Same padding, and images of at least one pixel",
                x.tensor_type()
            )));
        };
        let y = x.conv2d_transpose(&kernel, &options, [height, width])?;
        self.affine.activation.call(&bias.map_or(Ok(y.clone()), |bias| y.add(&bias))?)
    }
}
