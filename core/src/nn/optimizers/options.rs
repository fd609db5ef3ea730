//! Options of every optimizer: weight decay, gradient clipping, and moving averages of the variables.

use super::Gradient;
use super::descent::Descent;
use super::rule::{Rule, Step};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Options of [`Descent`], with Keras's defaults.
#[derive(Default)]
pub(super) struct Options {
    weight_decay: Option<f64>,
    undecayed: Vec<String>,
    clipnorm: Option<f64>,
    global_clipnorm: Option<f64>,
    clipvalue: Option<f64>,
    use_ema: bool,
    ema_momentum: Option<f64>,
    ema_overwrite_frequency: Option<u32>,
}

impl<R: Rule> Descent<R> {
    /// Sets the weight decay (none by default). Before each step, the optimizer subtracts `weight_decay · learning_rate · w` from each
    /// variable `w`.
    pub fn weight_decay(mut self, weight_decay: f64) -> Descent<R> {
        self.options.weight_decay = Some(weight_decay);
        self
    }

    /// Excludes variables from the weight decay if their name contains one of `names`, for example `["bias", "gamma"]`.
    pub fn exclude_from_weight_decay(mut self, names: &[&str]) -> Descent<R> {
        self.options.undecayed = names.iter().map(|&name| name.into()).collect();
        self
    }

    /// Scales each gradient separately, so that its own norm is at most `norm`.
    pub fn clipnorm(mut self, norm: f64) -> Descent<R> {
        self.options.clipnorm = Some(norm);
        self
    }

    /// Scales all gradients by one factor so that their joint norm is at most `norm`.
    pub fn global_clipnorm(mut self, norm: f64) -> Descent<R> {
        self.options.global_clipnorm = Some(norm);
        self
    }

    /// Clips each element of the gradients to the range from `-value` to `value`.
    pub fn clipvalue(mut self, value: f64) -> Descent<R> {
        self.options.clipvalue = Some(value);
        self
    }

    /// Sets whether the optimizer keeps a moving average of each variable (default false).
    pub fn use_ema(mut self, use_ema: bool) -> Descent<R> {
        self.options.use_ema = use_ema;
        self
    }

    /// Sets the fraction of a moving average that each step keeps (default 0.99).
    pub fn ema_momentum(mut self, momentum: f64) -> Descent<R> {
        self.options.ema_momentum = Some(momentum);
        self
    }

    /// Sets the variables to their moving averages every `steps` steps.
    pub fn ema_overwrite_frequency(mut self, steps: u32) -> Descent<R> {
        self.options.ema_overwrite_frequency = Some(steps);
        self
    }
}

impl Options {
    /// Checks the options. Fails if one has a value that Keras does not allow.
    pub(super) fn check(&self) -> Result<()> {
        if [self.clipnorm, self.global_clipnorm, self.clipvalue].iter().flatten().count() > 1 {
            return Err(Error::message("only one of clipnorm, global_clipnorm and clipvalue can be set"));
        }
        if !(0.0..=1.0).contains(&self.momentum()) {
            return Err(Error::message(format!("ema_momentum must be between 0 and 1, not {}", self.momentum())));
        }
        if self.ema_overwrite_frequency == Some(0) {
            return Err(Error::message("ema_overwrite_frequency must be at least 1, not 0"));
        }
        Ok(())
    }

    pub(super) fn averages(&self) -> bool {
        self.use_ema
    }

    fn momentum(&self) -> f64 {
        self.ema_momentum.unwrap_or(0.99)
    }

    /// Returns the gradients, clipped as the options require. Without clipping options, returns them unchanged.
    pub(super) fn clip(&self, gradients: Vec<Gradient>) -> Result<Vec<Gradient>> {
        let positive = |limit: Option<f64>| limit.filter(|&limit| limit > 0.0);
        let values = || gradients.iter().map(Gradient::values);
        let clipped: Result<Vec<Tensor>> = if let Some(norm) = positive(self.clipnorm) {
            values().map(|values| values.clip_by_norm(norm, &[])).collect()
        } else if let Some(norm) = positive(self.global_clipnorm) {
            Tensor::clip_by_global_norm(&values().collect::<Vec<_>>(), norm).map(|(clipped, _)| clipped)
        } else if let Some(value) = positive(self.clipvalue) {
            values().map(|values| values.clip_by_value(-value, value)).collect()
        } else {
            return Ok(gradients);
        };
        Ok(gradients.iter().zip(clipped?).map(|(gradient, values)| gradient.with_values(values)).collect())
    }

    /// Applies the weight decay to `variable`, unless its name is excluded.
    pub(super) fn decay(&self, variable: &Variable, step: &Step<'_>) -> Result<()> {
        match self.weight_decay {
            Some(decay) if !self.undecayed.iter().any(|name| variable.name().contains(name.as_str())) => {
                let value = step.scope().read(variable)?;
                let decayed = value.sub(&value.mul_scalar(decay)?.mul(&step.learning_rate(&value)?)?)?;
                step.assign(variable, &decayed)
            }
            _ => Ok(()),
        }
    }

    /// Moves the moving average `average` towards the new value of `variable`. In the first step, sets it to that value. Every
    /// `ema_overwrite_frequency` steps, also sets `variable` to the average.
    pub(super) fn average(&self, step: &Step<'_>, variable: &Variable, average: &Variable) -> Result<()> {
        let (scope, value) = (step.scope(), step.scope().read(variable)?);
        let number = step.number(0, &Tensor::scalar(&scope.device(), 0i64))?;
        let later = number.greater(&number.like(1.0)?)?.cast(value.dtype())?;
        let momentum = later.mul_scalar(self.momentum())?;
        let kept = momentum.mul(&scope.read(average)?)?;
        let moved = kept.add(&value.like(1.0)?.sub(&momentum)?.mul(&value)?)?;
        step.assign(average, &moved)?;
        let Some(frequency) = self.ema_overwrite_frequency else { return Ok(()) };
        let left = number.floormod(&number.like(frequency.into())?)?;
        step.assign(variable, &left.equal(&left.like(0.0)?)?.select(&moved, &value)?)
    }
}
