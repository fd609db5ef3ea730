//! Optimizers with Keras's names, arguments, defaults and state. The state is in variables, so a traced training step updates it,
//! and an exported one updates it on the device.
//!
//! Each optimizer is a [`Descent`] with its own [`Rule`], and has the options that every Keras optimizer has. Plain SGD and Adam
//! run one kernel per variable. The other rules are composed of elementwise ops. In eager code, a step runs compiled: it changes variables
//! in place, and changes none if the device has no memory for it.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
mod descent;
mod gradient;
mod loss_scale;
mod nadam;
mod options;
mod rmsprop;
mod rule;
mod sgd;
mod steps;

pub use crate::nn::schedules;
pub use adadelta::Adadelta;
pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use adamax::Adamax;
pub use descent::Descent;
pub use gradient::Gradient;
pub use loss_scale::LossScaleOptimizer;
pub use nadam::Nadam;
pub use rmsprop::RMSprop;
pub use rule::{InPlace, Rule, Step};
pub use sgd::Sgd;

/// The update rules of the optimizers, for [`Descent`].
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
use crate::base::sync::{Shared, ThreadSafe};
use crate::nn::layers::Module;
use crate::nn::schedules::Schedule;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::boxed::Box;

/// An optimizer.
pub trait Optimizer: Module + ThreadSafe {
    /// Creates the state for the trainable variables of `model`. The path of a variable in the model is part of the name of its
    /// state: `dense_kernel_momentum`. Does nothing if all of these variables have state already.
    ///
    /// Fails if the optimizer has state already, but one of the variables has none. Also fails in a trace that is not the first
    /// trace of its function.
    fn build(&self, scope: &dyn Scope, model: &dyn Module) -> Result<()>;

    /// Updates each variable with its gradient. Variables whose gradient is `None` stay unchanged. In a replica, the gradients of all
    /// replicas are summed first.
    ///
    /// If the optimizer has no state yet, creates it for all of these variables. The names of the state then contain the variables'
    /// own names. In a traced function, only the first trace may create state. Fails if no variable has a gradient, if a gradient
    /// has another shape than its variable, or if a variable is not built or has no state. In these cases, no variable changes. If a
    /// step fails later, its error names the variables that have changed. That of a compiled step says only that some may have.
    fn apply(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Gradient>)]) -> Result<()>;

    /// Does the same as [`Optimizer::apply`], with gradients as a tape returns them.
    fn apply_gradients(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Tensor>)]) -> Result<()> {
        self.apply(scope, &gradient::of_tensors(gradients))
    }

    /// Returns the loss to differentiate: the loss times the scale by which [`Optimizer::apply`] divides the gradients. Most optimizers
    /// scale nothing; see [`LossScaleOptimizer`].
    fn scale_loss(&self, scope: &dyn Scope, loss: &Tensor) -> Result<Tensor> {
        let _ = scope;
        Ok(loss.clone())
    }

    /// True if [`Optimizer::scale_loss`] scales the loss.
    fn scales_loss(&self) -> bool {
        false
    }

    /// Returns the learning rate of the next step, as an f32 scalar.
    fn learning_rate(&self, scope: &dyn Scope) -> Result<Tensor>;

    /// Sets the learning rate. Fails if the optimizer has a schedule.
    fn set_learning_rate(&self, scope: &dyn Scope, rate: f32) -> Result<()>;

    /// Sets the variables to their moving averages, if the optimizer keeps any. Keras does this at the end of `fit`.
    fn finalize_variable_values(&self, scope: &dyn Scope) -> Result<()>;
}

macro_rules! transparent {
    ($($pointer:ident),*) => {$(
        // The optimizer inside may override any method, so the pointer must forward all of them.
        #[deny(clippy::missing_trait_methods)]
        impl<O: Optimizer + ?Sized> Optimizer for $pointer<O> {
            fn build(&self, scope: &dyn Scope, model: &dyn Module) -> Result<()> {
                (**self).build(scope, model)
            }
            fn apply(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Gradient>)]) -> Result<()> {
                (**self).apply(scope, gradients)
            }
            fn apply_gradients(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Tensor>)]) -> Result<()> {
                (**self).apply_gradients(scope, gradients)
            }
            fn scale_loss(&self, scope: &dyn Scope, loss: &Tensor) -> Result<Tensor> {
                (**self).scale_loss(scope, loss)
            }
            fn scales_loss(&self) -> bool {
                (**self).scales_loss()
            }
            fn learning_rate(&self, scope: &dyn Scope) -> Result<Tensor> {
                (**self).learning_rate(scope)
            }
            fn set_learning_rate(&self, scope: &dyn Scope, rate: f32) -> Result<()> {
                (**self).set_learning_rate(scope, rate)
            }
            fn finalize_variable_values(&self, scope: &dyn Scope) -> Result<()> {
                (**self).finalize_variable_values(scope)
            }
        }
    )*};
}
transparent!(Box, Shared);

/// Learning rate of an optimizer: a value or a schedule.
pub enum LearningRate {
    /// A constant rate, until the caller changes it with [`Optimizer::set_learning_rate`].
    Value(f32),
    /// A schedule that computes the rate of each step.
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
