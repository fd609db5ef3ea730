//! Stochastic gradient descent.

use super::descent::Descent;
use super::rule::{InPlace, Rule, Step};
use super::{Gradient, LearningRate};
use crate::base::error::{Error, Result};
use crate::ops::sgd_step;
use crate::tensor::Tensor;
use alloc::format;
use alloc::vec::Vec;

/// Keras's `SGD`, optionally with momentum or Nesterov momentum. `w` is a variable, `g` its gradient, `a` the learning rate and `m`
/// the momentum slot:
///
/// ```text
/// without:  w' = w - a·g
/// with:     m' = μ·m - a·g     w' = w + m', with Nesterov's w + μ·m' - a·g
/// ```
///
/// ```
/// use gradlet_core::optimizers::{Optimizer, Sgd};
/// use gradlet_core::{Differentiate, Eager, Scope, Tensor, Variable, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 3.0f32))?;
/// let tape = scope.tape();
/// let x = tape.read(&w)?;
/// let gradients = tape.gradient(&x.square()?, &vec![w.clone()])?;
/// Sgd::new(0.5).apply_gradients(&scope, &gradients)?;
/// assert_eq!(scope.read(&w)?.item::<f32>()?, 0.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub type Sgd = Descent<SgdRule>;

/// Update rule of [`Sgd`].
#[derive(Clone, Debug, Default)]
pub struct SgdRule {
    momentum: f64,
    nesterov: bool,
}

impl Sgd {
    /// Creates an optimizer with this learning rate or schedule, without momentum.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Sgd {
        Descent::by(SgdRule::default(), learning_rate)
    }

    /// Sets the momentum μ, the fraction of the previous step that each step repeats: from 0 to 1 (default 0).
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.rule.momentum = momentum;
        self
    }

    /// Sets whether to use Nesterov momentum (default false).
    pub fn nesterov(mut self, nesterov: bool) -> Sgd {
        self.rule.nesterov = nesterov;
        self
    }
}

impl Default for Sgd {
    /// Returns the optimizer with Keras's learning rate, 0.01.
    fn default() -> Sgd {
        Sgd::new(0.01)
    }
}

impl Rule for SgdRule {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        if self.momentum == 0.0 { &[] } else { &[&["momentum"]] }
    }

    fn check(&self) -> Result<()> {
        match self.momentum {
            0.0..=1.0 => Ok(()),
            momentum => Err(Error::message(format!("momentum must be between 0 and 1, not {momentum}"))),
        }
    }

    fn in_place(&self, step: &Step<'_>, gradient: &Gradient) -> Result<Option<InPlace>> {
        if self.momentum != 0.0 {
            return Ok(None);
        }
        let gradient = gradient.dense()?;
        let rate = step.learning_rate(&gradient)?;
        Ok(Some(InPlace { op: &sgd_step::OP, attributes: Vec::new(), inputs: [gradient, rate].into() }))
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let rate = step.learning_rate(variable)?;
        let [velocity] = slots else { return Err(Error::Internal) };
        let (momentum, pull) = (variable.like(self.momentum)?, gradient.dense()?.mul(&rate)?);
        let velocity = velocity.mul(&momentum)?.sub(&pull)?;
        let way = if self.nesterov { velocity.mul(&momentum)?.sub(&pull)? } else { velocity.clone() };
        Ok([variable.add(&way)?, velocity].into())
    }
}
