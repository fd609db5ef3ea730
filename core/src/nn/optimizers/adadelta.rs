//! Adadelta.

use super::descent::Descent;
use super::rule::{Rule, Step};
use super::{Gradient, LearningRate};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::vec::Vec;

/// Keras's `Adadelta` (Zeiler, arXiv:1212.5701). `w` is a variable, `g` its gradient, `a` the learning rate, and `s` and `t` are
/// slots:
///
/// ```text
/// s' = ρ·s + (1 - ρ)·g²     d = √(t + ε)·g / √(s' + ε)
/// t' = ρ·t + (1 - ρ)·d²     w' = w - a·d
/// ```
pub type Adadelta = Descent<AdadeltaRule>;

/// Update rule of [`Adadelta`].
#[derive(Clone, Debug)]
pub struct AdadeltaRule {
    rho: f64,
    epsilon: f64,
}

impl Adadelta {
    /// Creates an optimizer with this learning rate or schedule. The paper uses a rate of 1. Defaults: ρ 0.95, ε 1e-7.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Adadelta {
        Descent::by(AdadeltaRule { rho: 0.95, epsilon: 1e-7 }, learning_rate)
    }

    /// Sets ρ, the fraction of the running means that each step keeps.
    pub fn rho(mut self, rho: f64) -> Adadelta {
        self.rule.rho = rho;
        self
    }

    /// Sets ε, which is added under the square roots.
    pub fn epsilon(mut self, epsilon: f64) -> Adadelta {
        self.rule.epsilon = epsilon;
        self
    }
}

impl Default for Adadelta {
    /// Returns the optimizer with Keras's learning rate, 0.001.
    fn default() -> Adadelta {
        Adadelta::new(0.001)
    }
}

impl AdadeltaRule {
    /// Returns the new running mean, `ρ·mean + (1 - ρ)·x`.
    fn mean(&self, mean: &Tensor, x: &Tensor) -> Result<Tensor> {
        mean.mul_scalar(self.rho)?.add(&x.mul_scalar(1.0 - self.rho)?)
    }

    fn root(&self, mean: &Tensor) -> Result<Tensor> {
        mean.add_scalar(self.epsilon)?.sqrt()
    }
}

impl Rule for AdadeltaRule {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        &[&["accumulated_grad", "accumulated_delta_var"]]
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let [squares, ways] = slots else { return Err(Error::Internal) };
        let squares = self.mean(squares, &gradient.map(Tensor::square)?)?;
        let way = self.root(ways)?.mul(&gradient.dense()?)?.div(&self.root(&squares)?)?;
        let ways = self.mean(ways, &way.square()?)?;
        let variable = variable.sub(&way.mul(&step.learning_rate(variable)?)?)?;
        Ok([variable, squares, ways].into())
    }
}
