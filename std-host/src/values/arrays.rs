//! Conversion between tensors and arrays of the `ndarray` crate.

use gradlet_core::tensor::Element;
use gradlet_core::{Device, Error, Result, Tensor};
use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

/// Creates a tensor on `device` with the shape and elements of `array`. The array may have any memory order.
///
/// Fails if a dimension does not fit into 32 bits, or if there are more than 8 dimensions.
///
/// ```
/// use ndarray::array;
/// let x = gradlet::tensor::from_ndarray(&gradlet::cpu(), &array![[1.0f32, 2.0], [3.0, 4.0]].t())?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
/// assert_eq!(gradlet::tensor::to_ndarray::<f32>(&x)?, array![[1.0f32, 3.0], [2.0, 4.0]].into_dyn());
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn from_ndarray<T: Element, S: Data<Elem = T>, D: Dimension>(device: &Device, array: &ArrayBase<S, D>) -> Result<Tensor> {
    let dims: Vec<u32> = array.shape().iter().map(|&dim| u32::try_from(dim).map_err(|_| Error::TooLarge)).collect::<Result<_>>()?;
    match array.as_slice() {
        Some(elements) => Tensor::new(device, elements, &dims),
        None => Tensor::new(device, &array.iter().copied().collect::<Vec<T>>(), &dims),
    }
}

/// Returns the value of a tensor as an array. Fails in the same cases as [`Tensor::to_vec`].
pub fn to_ndarray<T: Element>(tensor: &Tensor) -> Result<ArrayD<T>> {
    let dims: Vec<usize> = tensor.dims().iter().map(|&dim| dim as usize).collect();
    ArrayD::from_shape_vec(IxDyn(&dims), tensor.to_vec()?).map_err(|error| Error::message(error.to_string()))
}
