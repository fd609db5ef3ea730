//! Layers that only move elements: Keras's `Flatten`, `Reshape`, `Permute` and `ZeroPadding2D`.

use super::{Layer, Module, inputs};
use crate::base::error::{Error, Result};
use crate::base::shape::merged;
use crate::ops::pad::PadMode;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use alloc::format;
use alloc::vec::Vec;

/// Flattening of each sample: `[batch, …]` → `[batch, product of all other dimensions]`.
#[derive(Clone, Copy, Debug, Default, Module)]
pub struct Flatten;

impl Layer for Flatten {
    fn name(&self) -> &str {
        "flatten"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (&batch, rest) =
            x.dims().split_first().ok_or_else(|| Error::message("flatten takes inputs of shape [batch, …], not a scalar"))?;
        x.reshape(&[batch, merged(rest)?])
    }
}

/// Reshaping of each sample: `[batch, …]` → `[batch, target shape]`.
///
/// ```
/// use gradlet_core::layers::{Layer, Reshape};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let y = Reshape::new(&[-1, 2]).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[3, 8])?)?;
/// assert_eq!(y.dims(), [3, 4, 2]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Reshape {
    target_shape: Vec<i64>,
}

impl Reshape {
    /// Creates a layer with these dimensions after the batch. One of them may be -1, which is then computed from the others.
    pub fn new(target_shape: &[i64]) -> Reshape {
        Reshape { target_shape: target_shape.to_vec() }
    }
}

impl Layer for Reshape {
    fn name(&self) -> &str {
        "reshape"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let &batch = x.dims().first().ok_or_else(|| Error::message("reshape takes inputs of shape [batch, …], not a scalar"))?;
        let dims: Vec<i64> = core::iter::once(batch.into()).chain(self.target_shape.iter().copied()).collect();
        x.reshape_open(&dims)
    }
}

/// Permutation of the axes after the batch.
///
/// ```
/// use gradlet_core::layers::{Layer, Permute};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let y = Permute::new(&[2, 1]).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[3, 8, 5])?)?;
/// assert_eq!(y.dims(), [3, 5, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Permute {
    dims: Vec<u32>,
}

impl Permute {
    /// Creates a layer whose output has the input's axis `dims[i − 1]` as axis `i`. The batch, axis 0, is not listed.
    pub fn new(dims: &[u32]) -> Permute {
        Permute { dims: dims.to_vec() }
    }
}

impl Layer for Permute {
    fn name(&self) -> &str {
        "permute"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let order: Vec<u32> = core::iter::once(0).chain(self.dims.iter().copied()).collect();
        x.transpose(&order).map_err(|error| error.context(format!("permute by {:?}", self.dims)))
    }
}

/// Zero padding of images `[batch, height, width, channels]`: by default one row and one column on each side.
///
/// ```
/// use gradlet_core::layers::{Layer, ZeroPadding2D};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let y = ZeroPadding2D::new([[0, 1], [2, 3]]).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 4, 4, 2])?)?;
/// assert_eq!(y.dims(), [1, 5, 9, 2]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Module)]
pub struct ZeroPadding2D {
    padding: [[u32; 2]; 2],
}

impl Default for ZeroPadding2D {
    fn default() -> ZeroPadding2D {
        ZeroPadding2D::new([[1, 1], [1, 1]])
    }
}

impl ZeroPadding2D {
    /// Creates a layer that adds `[[above, below], [left, right]]` rows and columns.
    pub fn new(padding: [[u32; 2]; 2]) -> ZeroPadding2D {
        ZeroPadding2D { padding }
    }
}

impl Layer for ZeroPadding2D {
    fn name(&self) -> &str {
        "zero_padding2d"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        inputs::images(self.name(), x)?;
        let [[top, bottom], [left, right]] = self.padding;
        x.pad(&[(0, 0), (top, bottom), (left, right), (0, 0)], PadMode::Constant(0.0))
    }
}
