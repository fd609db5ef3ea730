//! Checks of layer inputs, and their error messages.

use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use alloc::format;

/// Converts `dims`, the dimensions of a layer's input, to an array. Fails unless the input has `N` axes.
///
/// `takes` describes the input that the layer expects, such as `images of shape [batch, height, width, channels]`. The error
/// contains this text and the dimensions of the actual input.
pub(super) fn dims<const N: usize>(layer: &str, takes: &str, dims: &[u32]) -> Result<[u32; N]> {
    dims.try_into().map_err(|_| Error::message(format!("{layer} takes {takes}, not {dims:?}")))
}

/// Fails unless the last axis of `x` has the size `built`, for which `layer` was built.
pub(super) fn features(layer: &str, built: u32, x: &Tensor) -> Result<()> {
    match x.shape().back(0) {
        Some(got) if got == built => Ok(()),
        _ => Err(Error::message(format!("{layer} was built for inputs of shape […, {built}], not {}", x.tensor_type()))),
    }
}

/// Description of the input of image layers.
pub(super) const IMAGES: &str = "images of shape [batch, height, width, channels]";
/// Description of the input of sequence layers.
pub(super) const SEQUENCES: &str = "sequences of shape [batch, steps, features]";

/// Returns the dimensions of `x`, the images that a layer takes. Fails unless the rank is 4.
pub(super) fn images(layer: &str, x: &Tensor) -> Result<[u32; 4]> {
    dims(layer, IMAGES, x.dims())
}

/// Returns the dimensions of `x`, the sequences that a layer takes. Fails unless the rank is 3.
pub(super) fn sequences(layer: &str, x: &Tensor) -> Result<[u32; 3]> {
    dims(layer, SEQUENCES, x.dims())
}

/// Returns the dimension of an input along `axis`. A negative axis counts from the end. Fails if the input has no such axis.
pub(super) fn dim(layer: &str, axis: i32, input: &Shape) -> Result<u32> {
    let counted = if axis < 0 { axis + input.rank() as i32 } else { axis };
    let dim = usize::try_from(counted).ok().and_then(|axis| input.dims().get(axis).copied());
    dim.ok_or_else(|| Error::message(format!("{layer} works along axis {axis}, which inputs of shape {input} do not have")))
}
