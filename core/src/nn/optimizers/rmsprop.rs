//! RMSprop.

use super::descent::Descent;
use super::rule::{Rule, Step};
use super::{Gradient, LearningRate};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::vec::Vec;

/// Keras's `RMSprop` (Hinton, 2012), optionally with momentum or centred. `w` is a variable, `g` its gradient, `a` the learning
/// rate, and `v`, `h` and `m` are slots:
///
/// ```text
/// v' = ρ·v + (1 - ρ)·g²     i = a·g / √(v' + ε), centered a·g / √(v' - h'² + ε), where h' = ρ·h + (1 - ρ)·g
/// w' = w - i, with momentum w - m', where m' = μ·m + i
/// ```
pub type RMSprop = Descent<RMSpropRule>;

/// Update rule of [`RMSprop`].
#[derive(Clone, Debug)]
pub struct RMSpropRule {
    rho: f64,
    momentum: f64,
    epsilon: f64,
    centered: bool,
}

impl RMSprop {
    /// Creates an optimizer with this learning rate or schedule. Defaults: ρ 0.9, no momentum, ε 1e-7, not centred.
    pub fn new(learning_rate: impl Into<LearningRate>) -> RMSprop {
        Descent::by(RMSpropRule { rho: 0.9, momentum: 0.0, epsilon: 1e-7, centered: false }, learning_rate)
    }

    /// Sets ρ, the fraction of the mean squared gradient that each step keeps.
    pub fn rho(mut self, rho: f64) -> RMSprop {
        self.rule.rho = rho;
        self
    }

    /// Sets the momentum μ, the fraction of the previous step that each step repeats (default: no momentum).
    pub fn momentum(mut self, momentum: f64) -> RMSprop {
        self.rule.momentum = momentum;
        self
    }

    /// Sets ε, which is added under the square root.
    pub fn epsilon(mut self, epsilon: f64) -> RMSprop {
        self.rule.epsilon = epsilon;
        self
    }

    /// Sets whether to divide by the estimated standard deviation of the gradients instead of their root mean square.
    pub fn centered(mut self, centered: bool) -> RMSprop {
        self.rule.centered = centered;
        self
    }
}

impl Default for RMSprop {
    /// Returns the optimizer with Keras's learning rate, 0.001.
    fn default() -> RMSprop {
        RMSprop::new(0.001)
    }
}

impl RMSpropRule {
    /// Returns the new running mean, `ρ·old + (1 - ρ)·new`.
    fn mean(&self, old: &Tensor, new: &Tensor) -> Result<Tensor> {
        old.mul_scalar(self.rho)?.add(&new.mul_scalar(1.0 - self.rho)?)
    }
}

impl Rule for RMSpropRule {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => &[&["velocity"]],
            (true, false) => &[&["velocity"], &["momentum"]],
            (false, true) => &[&["velocity"], &["average_gradient"]],
            (true, true) => &[&["velocity"], &["momentum"], &["average_gradient"]],
        }
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let (squares, gradient) = (gradient.map(Tensor::square)?, &gradient.dense()?);
        let mut slots = slots.iter();
        let mut slot = || slots.next().ok_or(Error::Internal);
        let velocity = self.mean(slot()?, &squares)?;
        let momentum = if self.momentum > 0.0 { Some(slot()?) } else { None };
        let mut spread = velocity.clone();
        let mut updated = Vec::from([velocity]);
        let average = if self.centered { Some(self.mean(slot()?, gradient)?) } else { None };
        if let Some(average) = &average {
            spread = spread.sub(&average.square()?)?;
        }
        let root = spread.add_scalar(self.epsilon)?.sqrt()?;
        let mut way = gradient.mul(&step.learning_rate(variable)?)?.div(&root)?;
        if let Some(momentum) = momentum {
            way = momentum.mul_scalar(self.momentum)?.add(&way)?;
            updated.push(way.clone());
        }
        updated.extend(average);
        updated.insert(0, variable.sub(&way)?);
        Ok(updated)
    }
}
