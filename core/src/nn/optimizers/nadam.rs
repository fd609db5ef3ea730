//! Nadam.

use super::adam::towards;
use super::descent::Descent;
use super::rule::{Rule, Step};
use super::{Gradient, LearningRate};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// Keras's `Nadam` (Dozat, 2015). In step `n`, `w` is a variable, `g` its gradient, `a` the learning rate, and `m` and `v` are
/// slots. `uₙ = β₁·(1 - 0.96ⁿ / 2)`, and `p` is the product of `u₁` to `uₙ`:
///
/// ```text
/// m' = m + (g - m)·(1 - β₁)     w' = w - a·(uₙ₊₁·m' / (1 - p·uₙ₊₁) + (1 - uₙ)·g / (1 - p)) / (√(v' / (1 - β₂ⁿ)) + ε)
/// v' = v + (g² - v)·(1 - β₂)
/// ```
pub type Nadam = Descent<NadamRule>;

/// Update rule of [`Nadam`].
#[derive(Debug)]
pub struct NadamRule {
    beta_1: f64,
    beta_2: f64,
    epsilon: f64,
    product: Variable,
}

impl Nadam {
    /// Creates an optimizer with this learning rate or schedule. Defaults: β₁ 0.9, β₂ 0.999, ε 1e-7.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Nadam {
        // Keras does not name this variable, so it has Keras's default name.
        let product = Variable::untrained("variable");
        Descent::by(NadamRule { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, product }, learning_rate)
    }

    /// Sets β₁, the fraction of the first moment that each step keeps.
    pub fn beta_1(mut self, beta_1: f64) -> Nadam {
        self.rule.beta_1 = beta_1;
        self
    }

    /// Sets β₂, the fraction of the second moment that each step keeps.
    pub fn beta_2(mut self, beta_2: f64) -> Nadam {
        self.rule.beta_2 = beta_2;
        self
    }

    /// Sets ε, which is added to the square root of the second moment.
    pub fn epsilon(mut self, epsilon: f64) -> Nadam {
        self.rule.epsilon = epsilon;
        self
    }
}

impl Default for Nadam {
    /// Returns the optimizer with Keras's learning rate, 0.001.
    fn default() -> Nadam {
        Nadam::new(0.001)
    }
}

impl NadamRule {
    /// Returns `uₙ`, the momentum of the step with the number `n`.
    fn momentum(&self, n: &Tensor) -> Result<Tensor> {
        let half = n.like(0.96)?.pow(n)?.mul_scalar(0.5)?;
        n.like(1.0)?.sub(&half)?.mul_scalar(self.beta_1)
    }
}

impl Rule for NadamRule {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        &[&["momentum", "velocity"]]
    }

    fn variables(&self) -> Vec<(&'static str, Variable)> {
        Vec::from([("_u_product", self.product.clone())])
    }

    fn build(&self, scope: &dyn Scope, variables: &[Variable]) -> Result<()> {
        let first = variables.first().ok_or(Error::Unbuilt)?.tensor_type()?;
        self.product.create(scope, &Tensor::scalar(&scope.device(), 1.0f32).cast(first.dtype)?)
    }

    fn begin(&self, step: &Step<'_>) -> Result<()> {
        let product = step.scope().read(&self.product)?;
        let next = product.mul(&self.momentum(&step.number(0, &product)?)?)?;
        step.assign(&self.product, &next)
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let [m, v] = slots else { return Err(Error::Internal) };
        let (one, number) = (variable.like(1.0)?, step.number(0, variable)?);
        let (now, next) = (self.momentum(&number)?, self.momentum(&step.number(1, variable)?)?);
        let product = step.scope().read(&self.product)?.cast(variable.dtype())?;
        // Unlike Adam, this rule computes 1 - β from the β that was rounded to the variable's element type.
        let (beta_1, beta_2) = (variable.like(self.beta_1)?, variable.like(self.beta_2)?);
        let (gradient, squares) = (gradient.dense()?, gradient.map(Tensor::square)?);
        let m = towards(m, &gradient, &one.sub(&beta_1)?)?;
        let v = towards(v, &squares, &one.sub(&beta_2)?)?;
        let ahead = m.mul(&next.div(&one.sub(&product.mul(&next)?)?)?)?;
        let here = gradient.mul(&one.sub(&now)?.div(&one.sub(&product)?)?)?;
        let left = one.sub(&beta_2.pow(&number)?)?;
        let root = v.div(&left)?.sqrt()?;
        let way = ahead.add(&here)?.mul(&step.learning_rate(variable)?)?.div(&root.add_scalar(self.epsilon)?)?;
        Ok([variable.sub(&way)?, m, v].into())
    }
}
