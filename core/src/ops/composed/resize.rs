//! Resizing of images, composed of other ops. Like `tf.image.resize`, with the centres of pixels at half-integer positions.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::vec::Vec;

/// Interpolation method for resized images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resize {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// The four nearest pixels, weighted by distance.
    Bilinear,
}

impl Tensor {
    /// Resizes images `[n,h,w,c]` to `[n,height,width,c]`. `Bilinear` computes 16-bit floats in f32, like Keras's `UpSampling2D`.
    ///
    /// Fails if the tensor is not of rank 4, if a side is 0, or for `Bilinear` on integers.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::resize::Resize;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[0.0f32, 4.0], &[1, 1, 2, 1])?;
    /// assert_eq!(x.resize([1, 4], Resize::Nearest)?.to_vec::<f32>()?, [0.0, 0.0, 4.0, 4.0]);
    /// assert_eq!(x.resize([1, 4], Resize::Bilinear)?.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn resize(&self, [height, width]: [u32; 2], method: Resize) -> Result<Tensor> {
        let &[_, h, w, _] = self.dims() else {
            return Err(Error::message(alloc::format!("resize expected images [n,h,w,c], but got {}", self.tensor_type())));
        };
        if [h, w, height, width].contains(&0) {
            return Err(Error::message(alloc::format!("{} cannot be resized to [{height},{width}]: a side is 0", self.tensor_type())));
        }
        let resized = |x: &Tensor| x.resize_axis(2, width, method)?.resize_axis(1, height, method);
        match method {
            Resize::Nearest => resized(self),
            Resize::Bilinear => resized(&self.in_32_bits()?)?.cast(self.dtype()),
        }
    }

    fn resize_axis(&self, axis: usize, size: u32, method: Resize) -> Result<Tensor> {
        let from = self.dims()[axis];
        match method {
            _ if size == from => Ok(self.clone()),
            Resize::Nearest if size.is_multiple_of(from) => self.repeat(axis, size / from),
            Resize::Nearest => self.pick(axis, (0..size).map(|at| below(position(at, from, size), from))),
            Resize::Bilinear => {
                let positions = || (0..size).map(|at| position(at, from, size) - 0.5);
                let lower = self.pick(axis, positions().map(|at| below(at, from)))?;
                let upper = self.pick(axis, positions().map(|at| below(libm::ceilf(at), from)))?;
                let mut shape = [1; 4];
                shape[axis] = size;
                let parts: Vec<f32> = positions().map(|at| at - libm::floorf(at)).collect();
                let part = Tensor::new(&self.device()?, &parts, &shape)?.cast(self.dtype())?;
                lower.add(&upper.sub(&lower)?.mul(&part)?)
            }
        }
    }

    /// Repeats each element `times` times along `axis`.
    fn repeat(&self, axis: usize, times: u32) -> Result<Tensor> {
        let mut dims = self.dims().to_vec();
        dims.insert(axis + 1, 1);
        let apart = self.reshape(&dims)?;
        dims[axis + 1] = times;
        let spread = apart.broadcast_to(&dims)?;
        dims.remove(axis + 1);
        dims[axis] *= times;
        spread.reshape(&dims)
    }

    fn pick(&self, axis: usize, indices: impl Iterator<Item = i32>) -> Result<Tensor> {
        let indices: Vec<i32> = indices.collect();
        self.gather(&Tensor::new(&self.device()?, &indices, &[indices.len() as u32])?, axis as i32)
    }
}

/// Returns the position of the centre of output pixel `at`, in input pixels, along an axis that is resized from `from` to `size`
/// pixels. The first input pixel extends from 0 to 1.
fn position(at: u32, from: u32, size: u32) -> f32 {
    (at as f32 + 0.5) * (from as f32 / size as f32)
}

/// Returns the number of the pixel that contains `position`, out of `count` pixels. Positions outside the image belong to the
/// nearest pixel.
fn below(position: f32, count: u32) -> i32 {
    (libm::floorf(position) as i32).clamp(0, count as i32 - 1)
}
