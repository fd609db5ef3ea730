//! Adamax.

use super::adam::towards;
use super::descent::Descent;
use super::rule::{Rule, Step};
use super::{Gradient, LearningRate};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::vec::Vec;

/// Keras's `Adamax` (Kingma and Ba, arXiv:1412.6980). In step `n`, `w` is a variable, `g` its gradient, `a` the learning rate, and
/// `m` and `u` are slots:
///
/// ```text
/// m' = m + (g - m)·(1 - β₁)     u' = max(β₂·u, |g|)     w' = w - a·m' / ((1 - β₁ⁿ)·(u' + ε))
/// ```
pub type Adamax = Descent<AdamaxRule>;

/// Update rule of [`Adamax`].
#[derive(Clone, Debug)]
pub struct AdamaxRule {
    beta_1: f64,
    beta_2: f64,
    epsilon: f64,
}

impl Adamax {
    /// Creates an optimizer with this learning rate or schedule. Defaults: β₁ 0.9, β₂ 0.999, ε 1e-7.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Adamax {
        Descent::by(AdamaxRule { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7 }, learning_rate)
    }

    /// Sets β₁, the fraction of the first moment that each step keeps.
    pub fn beta_1(mut self, beta_1: f64) -> Adamax {
        self.rule.beta_1 = beta_1;
        self
    }

    /// Sets β₂, the fraction of the norm that each step keeps.
    pub fn beta_2(mut self, beta_2: f64) -> Adamax {
        self.rule.beta_2 = beta_2;
        self
    }

    /// Sets ε, which is added to the norm.
    pub fn epsilon(mut self, epsilon: f64) -> Adamax {
        self.rule.epsilon = epsilon;
        self
    }
}

impl Default for Adamax {
    /// Returns the optimizer with Keras's learning rate, 0.001.
    fn default() -> Adamax {
        Adamax::new(0.001)
    }
}

impl Rule for AdamaxRule {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        &[&["momentum", "norm"]]
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let [moment, norm] = slots else { return Err(Error::Internal) };
        let moment = towards(moment, &gradient.dense()?, &moment.like(1.0 - self.beta_1)?)?;
        let norm = norm.mul_scalar(self.beta_2)?.maximum(&gradient.map(Tensor::abs)?)?;
        let left = variable.like(1.0)?.sub(&variable.like(self.beta_1)?.pow(&step.number(0, variable)?)?)?;
        let divisor = norm.add_scalar(self.epsilon)?.mul(&left)?;
        let way = moment.mul(&step.learning_rate(variable)?)?.div(&divisor)?;
        Ok([variable.sub(&way)?, moment, norm].into())
    }
}
