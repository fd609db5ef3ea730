//! Dynamic loss scaling: Keras's `LossScaleOptimizer`.

use super::{Gradient, Optimizer};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::sync::Lock;
use crate::nn::layers::{Module, Visitor};
use crate::tensor::Tensor;
use crate::tensor::replicas::reduction;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use crate::trace::control::cond;
use crate::trace::copies;
use alloc::vec::Vec;

/// An optimizer that trains with a scaled loss, for [`DTypePolicy::MixedFloat16`](crate::DTypePolicy::MixedFloat16): Keras's
/// `LossScaleOptimizer`. In f16, numbers below 6e-8 are 0. [`Optimizer::scale_loss`] multiplies the loss by a scale, which keeps the
/// gradients above that. [`Optimizer::apply`] divides the gradients by the scale again, and passes them to the inner optimizer.
///
/// The scale adapts. If a gradient is infinite or NaN, the step changes no variable of the model and of the inner optimizer, and the scale
/// is halved. After `dynamic_growth_steps` steps in a row with finite gradients, it is doubled. In a traced function, this is a branch. In
/// a replica, the gradients of all replicas must be finite.
///
/// `Model::compile` of the crate `gradlet` wraps the optimizer of a model with the policy `MixedFloat16`. A training loop of one's own
/// scales the loss:
///
/// ```
/// use gradlet_core::optimizers::{LossScaleOptimizer, Optimizer, Sgd};
/// use gradlet_core::{Differentiate, Eager, Scope, Tensor, Variable, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 3.0f32))?;
/// let optimizer = LossScaleOptimizer::new(Sgd::new(0.5));
///
/// let tape = scope.tape();
/// let loss = tape.read(&w)?.square()?;
/// let gradients = tape.gradient(&optimizer.scale_loss(&scope, &loss)?, &vec![w.clone()])?;
/// assert_eq!(gradients[0].1.as_ref().unwrap().item::<f32>()?, 6.0 * 32768.0);
/// optimizer.apply_gradients(&scope, &gradients)?;
/// assert_eq!(scope.read(&w)?.item::<f32>()?, 0.0);
///
/// let infinite = Tensor::scalar(&scope.device(), f32::INFINITY);
/// optimizer.apply_gradients(&scope, &[(w.clone(), Some(infinite))])?;
/// assert_eq!(scope.read(&w)?.item::<f32>()?, 0.0);
/// assert_eq!(optimizer.dynamic_scale(&scope)?.item::<f32>()?, 16384.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[doc(alias = "keras.mixed_precision.LossScaleOptimizer")]
pub struct LossScaleOptimizer<O> {
    inner: O,
    initial_scale: f32,
    dynamic_growth_steps: u32,
    step_counter: Variable,
    dynamic_scale: Variable,
    /// Variables that every optimizer of Keras has, and this one does not use.
    iterations: Variable,
    rate: Variable,
    /// The variables of the model, for checkpoints.
    trained: Lock<Vec<Variable>>,
}

impl<O: Optimizer> LossScaleOptimizer<O> {
    /// Creates an optimizer around `inner` with Keras's defaults: an initial scale of 2¹⁵, which doubles after 2000 steps.
    pub fn new(inner: O) -> LossScaleOptimizer<O> {
        LossScaleOptimizer {
            inner,
            initial_scale: 32768.0,
            dynamic_growth_steps: 2000,
            step_counter: Variable::untrained("step_counter"),
            dynamic_scale: Variable::untrained("dynamic_scale"),
            iterations: Variable::untrained("iteration"),
            rate: Variable::untrained("learning_rate"),
            trained: Lock::default(),
        }
    }

    /// Sets the scale of the first step (default 2¹⁵). A scale that is too high is halved in every step until the gradients are finite.
    pub fn initial_scale(self, initial_scale: f32) -> LossScaleOptimizer<O> {
        LossScaleOptimizer { initial_scale, ..self }
    }

    /// Sets the number of steps in a row with finite gradients after which the scale is doubled (default 2000).
    pub fn dynamic_growth_steps(self, steps: u32) -> LossScaleOptimizer<O> {
        LossScaleOptimizer { dynamic_growth_steps: steps, ..self }
    }

    /// Returns the optimizer inside.
    pub fn inner_optimizer(&self) -> &O {
        &self.inner
    }

    /// Returns the scale of the next step, as an f32 scalar.
    pub fn dynamic_scale(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.create(scope)?;
        scope.read(&self.dynamic_scale)
    }

    /// Creates the optimizer's own variables.
    fn create(&self, scope: &dyn Scope) -> Result<()> {
        let device = scope.device();
        for counter in [&self.iterations, &self.step_counter] {
            counter.create(scope, &Tensor::scalar(&device, 0i64))?;
        }
        self.rate.create(scope, &Tensor::scalar(&device, 0.0f32))?;
        self.dynamic_scale.create(scope, &Tensor::scalar(&device, self.initial_scale))
    }

    /// Trains the model with finite gradients, and counts the step.
    fn train(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Gradient>)]) -> Result<()> {
        let (scale, steps) = (scope.read(&self.dynamic_scale)?, scope.read(&self.step_counter)?);
        let unscaled = |gradient: &Gradient| {
            let values = gradient.values().in_32_bits()?;
            Ok(gradient.with_values(values.div(&scale.cast(values.dtype())?)?))
        };
        let unscaled = gradients.iter().map(|(variable, gradient)| Ok((variable.clone(), gradient.as_ref().map(unscaled).transpose()?)));
        self.inner.apply(scope, &unscaled.collect::<Result<Vec<_>>>()?)?;
        let last = steps.equal(&steps.like(f64::from(self.dynamic_growth_steps) - 1.0)?)?;
        scope.assign(&self.step_counter, &last.select(&steps.like(0.0)?, &steps.add(&steps.like(1.0)?)?)?)?;
        scope.assign(&self.dynamic_scale, &last.select(&scale.mul_scalar(2.0)?, &scale)?)
    }

    /// Halves the scale.
    fn skip(&self, scope: &dyn Scope) -> Result<()> {
        scope.assign(&self.step_counter, &Tensor::scalar(&scope.device(), 0i64))?;
        scope.assign(&self.dynamic_scale, &scope.read(&self.dynamic_scale)?.mul_scalar(0.5)?)
    }
}

/// Returns a bool scalar: true if all elements of all gradients are finite, in all replicas. Returns `None` if there are no gradients.
fn finite(scope: &dyn Scope, gradients: &[(Variable, Option<Gradient>)]) -> Result<Option<Tensor>> {
    let mut all: Option<Tensor> = None;
    for gradient in gradients.iter().filter_map(|(_, gradient)| gradient.as_ref()) {
        let one = gradient.values().is_finite()?.all(&[], false)?;
        all = Some(match all {
            Some(others) => others.logical_and(&one)?,
            None => one,
        });
    }
    let scope = scope.handle();
    match all {
        Some(own) if copies::is_replica(&scope) => {
            let others = scope.over_replicas(reduction::SUM, &own.logical_not()?.cast(DType::F32)?)?;
            others.equal(&others.like(0.0)?).map(Some)
        }
        all => Ok(all),
    }
}

impl<O: Optimizer> Module for LossScaleOptimizer<O> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        let own = [&self.iterations, &self.rate, &self.step_counter, &self.dynamic_scale];
        if visitor.tracks() {
            visitor.module("_variables", &own);
            visitor.module("_trainable_variables", &*self.trained.lock());
            visitor.module("_iterations", &self.iterations);
            visitor.module("_learning_rate", &self.rate);
            visitor.module("step_counter", &self.step_counter);
            visitor.module("dynamic_scale", &self.dynamic_scale);
        } else {
            own.iter().for_each(|variable| visitor.module(variable.name(), variable));
        }
        visitor.module("inner_optimizer", &self.inner);
    }
}

impl<O: Optimizer> Optimizer for LossScaleOptimizer<O> {
    fn build(&self, scope: &dyn Scope, model: &dyn Module) -> Result<()> {
        self.create(scope)?;
        *self.trained.lock() = model.trainable_variables();
        self.inner.build(scope, model)
    }

    fn apply(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Gradient>)]) -> Result<()> {
        let Some(finite) = finite(scope, gradients)? else { return self.inner.apply(scope, gradients) };
        self.create(scope)?;
        cond(scope, &finite, || self.train(scope, gradients), || self.skip(scope))
    }

    fn scales_loss(&self) -> bool {
        true
    }

    fn scale_loss(&self, scope: &dyn Scope, loss: &Tensor) -> Result<Tensor> {
        let loss = loss.in_32_bits()?;
        loss.mul(&self.dynamic_scale(scope)?.cast(loss.dtype())?)
    }

    fn learning_rate(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.inner.learning_rate(scope)
    }

    fn set_learning_rate(&self, scope: &dyn Scope, rate: f32) -> Result<()> {
        self.inner.set_learning_rate(scope, rate)
    }

    fn finalize_variable_values(&self, scope: &dyn Scope) -> Result<()> {
        self.inner.finalize_variable_values(scope)
    }
}
