//! Activations as separate layers: Keras's `Activation`, `ReLU`, `LeakyReLU` and `Softmax`.

use super::affine::options;
use super::{Activation, Layer, Module};
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

impl Layer for Activation {
    fn name(&self) -> &str {
        "activation"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        (*self).call(x)
    }
}

/// Keras's `ReLU`: `min(x, max_value)` where `x` is above `threshold`, and `negative_slope · (x − threshold)` elsewhere.
///
/// ```
/// use gradlet_core::layers::{Layer, ReLU};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::new(&scope.device(), &[-1.0f32, 3.0, 8.0], &[3])?;
/// let layer = ReLU::default().max_value(6.0).negative_slope(0.5);
/// assert_eq!(layer.call(&scope, &x)?.to_vec::<f32>()?, [-0.5, 3.0, 6.0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Module)]
pub struct ReLU {
    max_value: Option<f32>,
    negative_slope: f32,
    threshold: f32,
}

impl ReLU {
    /// Sets the maximum of the output (default none).
    pub fn max_value(self, max_value: f32) -> ReLU {
        ReLU { max_value: Some(max_value), ..self }
    }
}

options! { ReLU {
    /// Sets the slope below the threshold (default 0).
    negative_slope: f32,
    /// Sets the threshold (default 0).
    threshold: f32,
}}

impl Layer for ReLU {
    fn name(&self) -> &str {
        "re_lu"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (slope, threshold) = (f64::from(self.negative_slope), f64::from(self.threshold));
        let above = match (threshold, self.max_value) {
            (0.0, Some(6.0)) => x.relu6()?,
            (0.0, None) => x.relu()?,
            (threshold, most) => {
                let above = if threshold == 0.0 { x.relu()? } else { x.threshold(threshold, 0.0)? };
                most.map_or(Ok(above.clone()), |most| above.clip_by_value(0.0, most.into()))?
            }
        };
        if slope == 0.0 { Ok(above) } else { above.sub(&x.like(threshold)?.sub(x)?.relu()?.mul_scalar(slope)?) }
    }
}

/// Keras's `LeakyReLU`: `x` where it is above 0, and `negative_slope · x` elsewhere.
#[derive(Clone, Copy, Debug, Module)]
pub struct LeakyReLU {
    negative_slope: f32,
}

impl Default for LeakyReLU {
    fn default() -> LeakyReLU {
        LeakyReLU { negative_slope: 0.3 }
    }
}

options! { LeakyReLU {
    /// Sets the slope below 0 (default 0.3).
    negative_slope: f32,
}}

impl Layer for LeakyReLU {
    fn name(&self) -> &str {
        "leaky_re_lu"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        x.leaky_relu(self.negative_slope.into())
    }
}

/// Keras's `Softmax`: [`Tensor::softmax`] over an axis, by default the last.
#[derive(Clone, Copy, Debug, Module)]
pub struct Softmax {
    axis: i32,
}

impl Default for Softmax {
    fn default() -> Softmax {
        Softmax { axis: -1 }
    }
}

options! { Softmax {
    /// Sets the axis (default: the last). A negative axis counts from the end.
    axis: i32,
}}

impl Layer for Softmax {
    fn name(&self) -> &str {
        "softmax"
    }

    fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        x.softmax(self.axis)
    }
}
