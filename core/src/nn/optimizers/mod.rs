//! Optimizers: Keras's, with its arguments, defaults and state. The state is in variables, so a traced step updates it, and
//! an exported one does on the device.
//!
//! All of them are [`Descent`] by some [`Rule`], with the options that Keras gives every optimizer. Plain SGD and Adam are
//! one kernel for each variable; the others are composed of elementwise ops.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
mod descent;
mod gradient;
mod nadam;
mod options;
mod rmsprop;
mod sgd;

pub use adadelta::Adadelta;
pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use adamax::Adamax;
pub use descent::{Descent, InPlace, Rule, Step};
pub use gradient::Gradient;
pub use nadam::Nadam;
pub use rmsprop::RMSprop;
pub use sgd::Sgd;

/// The rules of the optimizers, which [`Descent`] goes by.
pub mod rules {
    pub use super::adadelta::AdadeltaRule;
    pub use super::adagrad::AdagradRule;
    pub use super::adam::AdamRule;
    pub use super::adamax::AdamaxRule;
    pub use super::nadam::NadamRule;
    pub use super::rmsprop::RMSpropRule;
    pub use super::sgd::SgdRule;
}

use crate::base::error::Result;
use crate::base::sync::ThreadSafe;
use crate::nn::layers::Module;
use crate::nn::schedules::Schedule;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::boxed::Box;

/// An optimizer.
pub trait Optimizer: Module + ThreadSafe {
    /// Creates the state for the trainable variables of `model`, named by their paths there: `dense_kernel_momentum`. Does
    /// nothing if there is state for these already.
    ///
    /// Fails if there is state, but not for one of these; and in a trace that is not its function's first.
    fn build(&self, scope: &dyn Scope, model: &dyn Module) -> Result<()>;

    /// Changes each variable by its gradient; those whose gradient is `None` stay as they are.
    ///
    /// If there is no state yet, creates it for all of these variables, named by their names; in a traced function that must
    /// be in its first trace. Fails, before any variable is changed, where a gradient has another shape than its variable, a
    /// variable is unbuilt or has no state, and if no gradient is there at all.
    fn apply(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Gradient>)]) -> Result<()>;

    /// [`Optimizer::apply`] with gradients as a tape gives them.
    fn apply_gradients(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Tensor>)]) -> Result<()> {
        self.apply(scope, &gradient::of_tensors(gradients))
    }

    /// The learning rate of the next step: a scalar of f32.
    fn learning_rate(&self, scope: &dyn Scope) -> Result<Tensor>;

    /// Sets the learning rate. Fails if the optimizer has a schedule.
    fn set_learning_rate(&self, scope: &dyn Scope, rate: f32) -> Result<()>;

    /// Sets the variables to their moving averages, if the optimizer keeps such: what Keras does at the end of `fit`.
    fn finalize_variable_values(&self, scope: &dyn Scope) -> Result<()>;
}

/// The learning rate that an optimizer is made with.
pub enum LearningRate {
    /// A first value, which can be set anew at any time.
    Value(f32),
    /// A rate for each step.
    Schedule(Box<dyn Schedule>),
}

impl From<f32> for LearningRate {
    fn from(rate: f32) -> LearningRate {
        LearningRate::Value(rate)
    }
}

impl From<f64> for LearningRate {
    fn from(rate: f64) -> LearningRate {
        LearningRate::Value(rate as f32)
    }
}

impl<S: Schedule + 'static> From<S> for LearningRate {
    fn from(schedule: S) -> LearningRate {
        LearningRate::Schedule(Box::new(schedule))
    }
}
