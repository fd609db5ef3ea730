//! Adam and AdamW.

use super::descent::Descent;
use super::rule::{InPlace, Rule, Step};
use super::{Gradient, LearningRate};
use crate::base::error::{Error, Result};
use crate::ops::adam_step;
use crate::tensor::Tensor;
use alloc::vec::Vec;

/// Keras's `Adam` (Kingma and Ba, arXiv:1412.6980). The formula is at [`adam_step`](crate::ops::adam_step).
///
/// ```
/// use gradlet_core::optimizers::{Adam, Optimizer};
/// use gradlet_core::optimizers::schedules::ExponentialDecay;
/// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 3.0f32))?;
/// let adam = Adam::new(ExponentialDecay::new(0.5, 100, 0.9)).amsgrad(true).clipnorm(1.0);
/// adam.apply_gradients(&scope, &[(w.clone(), Some(Tensor::scalar(&scope.device(), 7.0f32)))])?;
/// assert!((scope.read(&w)?.item::<f32>()? - 2.5).abs() < 1e-4);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub type Adam = Descent<AdamRule<false>>;

/// Keras's `AdamW` (Loshchilov and Hutter, arXiv:1711.05101): [`Adam`] with weight decay (default 0.004).
pub type AdamW = Descent<AdamRule<true>>;

/// Update rule of [`Adam`], and with `DECOUPLED` of [`AdamW`]. The two differ only in their default options.
#[derive(Clone, Debug)]
pub struct AdamRule<const DECOUPLED: bool> {
    beta_1: f64,
    beta_2: f64,
    epsilon: f64,
    amsgrad: bool,
}

impl Adam {
    /// Creates an optimizer with this learning rate or schedule. Defaults: β₁ 0.9, β₂ 0.999, ε 1e-7.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Adam {
        Descent::by(AdamRule::default(), learning_rate)
    }
}

impl AdamW {
    /// Creates an optimizer with this learning rate or schedule. Defaults: weight decay 0.004, β₁ 0.9, β₂ 0.999, ε 1e-7.
    pub fn new(learning_rate: impl Into<LearningRate>) -> AdamW {
        Descent::by(AdamRule::default(), learning_rate).weight_decay(0.004)
    }
}

impl<const DECOUPLED: bool> Descent<AdamRule<DECOUPLED>> {
    /// Sets β₁, the fraction of the first moment that each step keeps.
    pub fn beta_1(mut self, beta_1: f64) -> Self {
        self.rule.beta_1 = beta_1;
        self
    }

    /// Sets β₂, the fraction of the second moment that each step keeps.
    pub fn beta_2(mut self, beta_2: f64) -> Self {
        self.rule.beta_2 = beta_2;
        self
    }

    /// Sets ε, which is added to the square root of the second moment.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.rule.epsilon = epsilon;
        self
    }

    /// Sets whether to divide by the largest second moment so far (default false; Reddi, Kale and Kumar, 2018).
    pub fn amsgrad(mut self, amsgrad: bool) -> Self {
        self.rule.amsgrad = amsgrad;
        self
    }
}

impl Default for Adam {
    /// Returns the optimizer with Keras's learning rate, 0.001.
    fn default() -> Adam {
        Adam::new(0.001)
    }
}

impl Default for AdamW {
    /// Returns the optimizer with Keras's learning rate, 0.001.
    fn default() -> AdamW {
        AdamW::new(0.001)
    }
}

impl<const DECOUPLED: bool> Default for AdamRule<DECOUPLED> {
    fn default() -> Self {
        AdamRule { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, amsgrad: false }
    }
}

impl<const DECOUPLED: bool> Rule for AdamRule<DECOUPLED> {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        if self.amsgrad { &[&["momentum", "velocity"], &["velocity_hat"]] } else { &[&["momentum", "velocity"]] }
    }

    fn in_place(&self, step: &Step<'_>, gradient: &Gradient) -> Result<Option<InPlace>> {
        if self.amsgrad || gradient.is_of_rows() {
            return Ok(None);
        }
        let gradient = gradient.dense()?;
        let inputs = [gradient.clone(), step.learning_rate(&gradient)?, step.iterations().clone()].into();
        let attributes = adam_step::Attributes::new([self.beta_1, self.beta_2], self.epsilon);
        Ok(Some(InPlace { op: &adam_step::OP, attributes: bytemuck::cast_slice(&[attributes]).to_vec(), inputs }))
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let rate = step.learning_rate(variable)?;
        let [m, v, largest @ ..] = slots else { return Err(Error::Internal) };
        let (one, number) = (variable.like(1.0)?, step.number(0, variable)?);
        let left = |beta: f64| one.sub(&variable.like(beta)?.pow(&number)?);
        let alpha = rate.mul(&left(self.beta_2)?.sqrt()?)?.div(&left(self.beta_1)?)?;
        let m = towards(m, &gradient.dense()?, &m.like(1.0 - self.beta_1)?)?;
        let v = towards(v, &gradient.map(Tensor::square)?, &v.like(1.0 - self.beta_2)?)?;
        let largest = largest.first().map(|largest| largest.maximum(&v)).transpose()?;
        let divisor = largest.as_ref().unwrap_or(&v).sqrt()?.add_scalar(self.epsilon)?;
        let variable = variable.sub(&m.mul(&alpha)?.div(&divisor)?)?;
        Ok([variable, m, v].into_iter().chain(largest).collect())
    }
}

/// Returns the moment `old`, moved towards `new` by the fraction `rate`.
pub(super) fn towards(old: &Tensor, new: &Tensor, rate: &Tensor) -> Result<Tensor> {
    old.add(&new.sub(old)?.mul(rate)?)
}
