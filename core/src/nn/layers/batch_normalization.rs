//! Batch normalisation: Keras's `BatchNormalization`.

use super::affine::options;
use super::scaled::{Scaled, scaled_options};
use super::{Initializer, Layer, Module, inputs};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::replicas::{VariableAggregation, VariableSynchronization};
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::format;

/// Batch normalisation: `gamma · (x − mean) / √(variance + ε) + beta`, separately for each index along one axis, by default the
/// last.
///
/// In training, mean and variance are those of the batch. Training also updates the moving mean and variance: `moving · momentum +
/// batch · (1 − momentum)`. No optimizer trains these moving statistics. In inference, mean and variance are the moving ones. A
/// [frozen](Module::set_trainable) layer works as in inference, also in training. As in Keras 3, the variance is that of the batch
/// itself, not an unbiased estimate.
///
/// ```
/// use gradlet_core::layers::{BatchNormalization, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = BatchNormalization::default().momentum(0.9);
/// let x = Tensor::new(&scope.device(), &[1.0f32, 3.0], &[2, 1])?;
/// let y = layer.apply(&scope.with_training(true), &x)?.to_vec::<f32>()?;
/// assert!((y[1] - 1.0).abs() < 1e-3 && (y[0] + 1.0).abs() < 1e-3);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct BatchNormalization {
    axis: i32,
    momentum: f64,
    epsilon: f64,
    moving_mean_initializer: Initializer,
    moving_variance_initializer: Initializer,
    #[module(name = "")]
    scaled: Scaled,
    moving_mean: Variable,
    moving_variance: Variable,
}

/// Values of the variables of a [`BatchNormalization`] layer.
#[derive(Clone, Debug)]
pub struct BatchNormalizationWeights {
    /// Scale gamma, if the layer has one.
    pub gamma: Option<Tensor>,
    /// Offset beta, if the layer has one.
    pub beta: Option<Tensor>,
    /// Moving mean.
    pub moving_mean: Tensor,
    /// Moving variance.
    pub moving_variance: Tensor,
}

impl Default for BatchNormalization {
    fn default() -> BatchNormalization {
        BatchNormalization {
            axis: -1,
            momentum: 0.99,
            epsilon: 1e-3,
            moving_mean_initializer: Initializer::zeros(),
            moving_variance_initializer: Initializer::ones(),
            scaled: Scaled::new(),
            moving_mean: moving("moving_mean"),
            moving_variance: moving("moving_variance"),
        }
    }
}

scaled_options!(BatchNormalization);
options! { BatchNormalization {
    /// Sets the axis of the channels (default: the last). A negative axis counts from the end.
    axis: i32,
    /// Sets the momentum, the fraction of the moving statistics that each update keeps (default 0.99).
    momentum: f64,
    /// Sets ε, which is added to the variance under the square root (default 0.001).
    epsilon: f64,
    /// Sets the initializer of the moving mean (default zeros).
    moving_mean_initializer: Initializer,
    /// Sets the initializer of the moving variance (default ones).
    moving_variance_initializer: Initializer,
}}

/// Declares a moving average. Each replica averages over its own batches; outside of them, the value is their mean.
fn moving(name: &str) -> Variable {
    Variable::untrained(name).synchronized(VariableSynchronization::OnRead).aggregated(VariableAggregation::Mean)
}

impl BatchNormalization {
    /// Returns the output for `x`, the new moving mean and the new moving variance. Without `training`, both moving statistics are
    /// returned unchanged.
    ///
    /// Fails if `x` lacks the axis of the channels, or if the dimension of that axis differs from the size of the weights.
    pub fn normalize(&self, x: &Tensor, weights: &BatchNormalizationWeights, training: bool) -> Result<[Tensor; 3]> {
        let BatchNormalizationWeights { gamma, beta, moving_mean, moving_variance } = weights;
        let wide = x.in_32_bits()?;
        let [gamma, beta] = [gamma, beta].map(|weight| weight.as_ref().map(Tensor::in_32_bits).transpose());
        let (gamma, beta) = (gamma?, beta?);
        if !training {
            let moments = [&moving_mean.in_32_bits()?, &moving_variance.in_32_bits()?];
            let y = wide.batch_normalization_along(self.axis, moments, beta.as_ref(), gamma.as_ref(), self.epsilon)?;
            return Ok([y.cast(x.dtype())?, moving_mean.clone(), moving_variance.clone()]);
        }
        let [y, mean, variance] = wide.batch_norm(self.axis, beta.as_ref(), gamma.as_ref(), self.epsilon)?;
        let moved = |moving: &Tensor, batch: &Tensor| {
            moving.mul_scalar(self.momentum)?.add(&batch.cast(moving.dtype())?.mul_scalar(1.0 - self.momentum)?)
        };
        Ok([y.cast(x.dtype())?, moved(moving_mean, &mean)?, moved(moving_variance, &variance)?])
    }
}

impl Layer for BatchNormalization {
    fn name(&self) -> &str {
        "batch_normalization"
    }

    /// Returns false: only the input is cast. The layer computes in f32, with the variables as they are.
    fn autocast(&self) -> bool {
        false
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let dims = [inputs::dim(self.name(), self.axis, input)?];
        self.scaled.build(scope, &dims)?;
        self.moving_mean.create(scope, &self.moving_mean_initializer.call(scope, &dims)?)?;
        self.moving_variance.create(scope, &self.moving_variance_initializer.call(scope, &dims)?)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let x = &x.cast(scope.dtype_policy().compute_dtype())?;
        let [gamma, beta] = self.scaled.read(scope, x)?;
        let (moving_mean, moving_variance) = (scope.read(&self.moving_mean)?, scope.read(&self.moving_variance)?);
        let (built, got) = (moving_mean.dims()[0], inputs::dim(self.name(), self.axis, x.shape())?);
        if got != built {
            let text = format!("batch_normalization was built for size {built} along axis {}, not for {}", self.axis, x.tensor_type());
            return Err(Error::message(text));
        }
        let weights = BatchNormalizationWeights { gamma, beta, moving_mean, moving_variance };
        let training = scope.training() && self.trainable();
        let [y, mean, variance] = self.normalize(x, &weights, training)?;
        if training {
            scope.assign(&self.moving_mean, &mean)?;
            scope.assign(&self.moving_variance, &variance)?;
        }
        Ok(y)
    }
}
