//! Adagrad.

use super::descent::Descent;
use super::rule::{Rule, Step};
use super::{Gradient, LearningRate};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::vec::Vec;

/// Keras's `Adagrad` (Duchi, Hazan and Singer, 2011): `s' = s + g²`, `w' = w - a·g / √(s' + ε)`. `w` is a variable, `g` its
/// gradient, `a` the learning rate and `s` the accumulator.
pub type Adagrad = Descent<AdagradRule>;

/// Update rule of [`Adagrad`].
#[derive(Clone, Debug)]
pub struct AdagradRule {
    initial_accumulator_value: f64,
    epsilon: f64,
}

impl Adagrad {
    /// Creates an optimizer with this learning rate or schedule. Defaults: accumulators start at 0.1, ε 1e-7.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Adagrad {
        Descent::by(AdagradRule { initial_accumulator_value: 0.1, epsilon: 1e-7 }, learning_rate)
    }

    /// Sets the initial value of the accumulators.
    pub fn initial_accumulator_value(mut self, value: f64) -> Adagrad {
        self.rule.initial_accumulator_value = value;
        self
    }

    /// Sets ε, which is added under the square root.
    pub fn epsilon(mut self, epsilon: f64) -> Adagrad {
        self.rule.epsilon = epsilon;
        self
    }
}

impl Default for Adagrad {
    /// Returns the optimizer with Keras's learning rate, 0.001.
    fn default() -> Adagrad {
        Adagrad::new(0.001)
    }
}

impl Rule for AdagradRule {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        &[&["accumulator"]]
    }

    fn initial(&self) -> f64 {
        self.initial_accumulator_value
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let [accumulator] = slots else { return Err(Error::Internal) };
        let accumulator = accumulator.add(&gradient.map(Tensor::square)?)?;
        let root = accumulator.add_scalar(self.epsilon)?.sqrt()?;
        let way = gradient.dense()?.mul(&step.learning_rate(variable)?)?.div(&root)?;
        Ok([variable.sub(&way)?, accumulator].into())
    }
}
