//! One-dimensional convolution, computed as a two-dimensional convolution of images with one row. It needs no kernel of its own.

use crate::base::error::{Error, Result};
use crate::ops::conv2d::Conv2DOptions;
use crate::ops::shared::window::Padding;
use crate::tensor::Tensor;

/// Padding of a sequence while a window slides over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding1D {
    /// No padding. The window stays inside the sequence.
    #[default]
    Valid,
    /// Enough padding for an output of `ceil(input / stride)` positions. If the amount of padding is odd, the larger part is at the end.
    Same,
    /// Padding at the beginning only, so that no output depends on later elements.
    Causal,
}

/// Options of a one-dimensional convolution: stride, dilation and padding. By default, stride and dilation are 1, and there is no
/// padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conv1DOptions {
    /// Distance from one window to the next.
    pub stride: u32,
    /// Distance from one tap of the window to the next.
    pub dilation: u32,
    /// Padding around the sequence.
    pub padding: Padding1D,
}

impl Default for Conv1DOptions {
    fn default() -> Conv1DOptions {
        Conv1DOptions { stride: 1, dilation: 1, padding: Padding1D::Valid }
    }
}

impl Conv1DOptions {
    /// Sets the stride.
    pub fn stride(self, stride: u32) -> Conv1DOptions {
        Conv1DOptions { stride, ..self }
    }

    /// Sets the dilation.
    pub fn dilation(self, dilation: u32) -> Conv1DOptions {
        Conv1DOptions { dilation, ..self }
    }

    /// Sets the padding.
    pub fn padding(self, padding: Padding1D) -> Conv1DOptions {
        Conv1DOptions { padding, ..self }
    }

    /// Returns the equivalent options for images of one row and windows of `kernel` taps.
    fn in_rows(&self, kernel: u32) -> Result<Conv2DOptions> {
        let padding = match self.padding {
            Padding1D::Valid => Padding::Valid,
            Padding1D::Same => Padding::Same,
            Padding1D::Causal => {
                let left = kernel.saturating_sub(1).checked_mul(self.dilation).ok_or(Error::TooLarge)?;
                Padding::Explicit { top: 0, bottom: 0, left, right: 0 }
            }
        };
        Ok(Conv2DOptions::default().strides([1, self.stride]).dilations([1, self.dilation]).padding(padding))
    }
}

impl Tensor {
    /// Returns the convolution of sequences `[n,w,c]` with `filter[k,c,co]`, plus `bias[co]`: `[n,ow,co]`. Like `tf.nn.conv1d`,
    /// and with [`Padding1D::Causal`] like Keras's `Conv1D`.
    ///
    /// Fails if ranks, channels or element types do not match, or if the element type is not a float. Fails if the window is
    /// larger than the padded sequence, or if the stride or the dilation is 0.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::conv1d::{Conv1DOptions, Padding1D};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0], &[1, 3, 1])?;
    /// let filter = Tensor::full(&device, 1.0f32, &[2, 1, 1])?;
    /// let y = x.conv1d(&filter, None, &Conv1DOptions::default().padding(Padding1D::Causal))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0, 5.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn conv1d(&self, filter: &Tensor, bias: Option<&Tensor>, options: &Conv1DOptions) -> Result<Tensor> {
        let (&[n, w, c], &[k, ci, co]) = (self.dims(), filter.dims()) else {
            let (x, filter) = (self.tensor_type(), filter.tensor_type());
            return Err(Error::message(alloc::format!("conv1d expected x[n,w,c] and filter[k,c,co], but got {x} and {filter}")));
        };
        let y = self.reshape(&[n, 1, w, c])?.conv2d(&filter.reshape(&[1, k, ci, co])?, bias, &options.in_rows(k)?)?;
        let &[n, _, w, co] = y.dims() else { return Err(Error::Rank { input: 0 }) };
        y.reshape(&[n, w, co])
    }
}
