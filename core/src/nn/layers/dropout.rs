//! Dropout: Keras's `Dropout`.

use super::{Layer, Module};
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use alloc::vec::Vec;

/// Dropout. In training, sets each element to 0 with probability `rate`, and divides the remaining elements by `1 − rate`. In
/// inference, returns the input unchanged.
///
/// ```
/// use gradlet_core::layers::{Dropout, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::full(&scope.device(), 1.0f32, &[100])?;
/// let layer = Dropout::new(0.5);
/// assert_eq!(layer.call(&scope, &x)?.to_vec::<f32>()?, [1.0; 100]);
/// let y = layer.call(&scope.with_training(true), &x)?.to_vec::<f32>()?;
/// assert!(y.contains(&0.0) && y.contains(&2.0) && y.iter().all(|&y| y == 0.0 || y == 2.0));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Dropout {
    rate: f64,
    noise_shape: Option<Vec<Option<u32>>>,
}

impl Dropout {
    /// Creates a layer that drops this fraction of the elements, from 0 to 1.
    pub fn new(rate: f64) -> Dropout {
        Dropout { rate, noise_shape: None }
    }

    /// Sets the shape of the random decisions, with one entry for each axis of the input. With `Some(1)`, all elements along the
    /// axis share one decision. `None` stands for the dimension of the input, so each element along the axis has its own decision.
    pub fn noise_shape(self, noise_shape: &[Option<u32>]) -> Dropout {
        Dropout { noise_shape: Some(noise_shape.to_vec()), ..self }
    }
}

impl Layer for Dropout {
    fn name(&self) -> &str {
        "dropout"
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        if !scope.training() || self.rate == 0.0 {
            return Ok(x.clone());
        }
        match &self.noise_shape {
            None => x.dropout(scope, self.rate, x.dims()),
            Some(noise) => {
                let given = x.dims().iter().map(|&dim| Some(dim)).chain(core::iter::repeat(None));
                let dims: Vec<u32> = noise.iter().zip(given).map(|(noise, dim)| noise.or(dim).unwrap_or(1)).collect();
                x.dropout(scope, self.rate, &dims)
            }
        }
    }
}
