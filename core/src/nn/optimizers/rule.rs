//! The update rules of optimizers, and the step that a rule takes part in.

use super::Gradient;
use crate::base::error::{Error, Result};
use crate::base::sync::{Lock, ThreadSafe};
use crate::tensor::Tensor;
use crate::tensor::scope::{Op, Scope};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Update rule of an optimizer: how a gradient changes its variable. A rule is the only part that differs between optimizers.
///
/// ```
/// use gradlet_core::optimizers::{Descent, Gradient, Optimizer, Rule, Step};
/// use gradlet_core::{Eager, Result, Scope, Tensor, Variable, ops};
///
/// /// Moves each element by the learning rate, regardless of the size of the gradient.
/// struct SignDescent;
/// impl Rule for SignDescent {
///     fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, _: &[Tensor]) -> Result<Vec<Tensor>> {
///         Ok(vec![variable.sub(&gradient.dense()?.sign()?.mul(&step.learning_rate(variable)?)?)?])
///     }
/// }
///
/// let scope = Eager::new(&ops::portable_cpu());
/// let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 1.0f32))?;
/// let gradient = Tensor::scalar(&scope.device(), 20.0f32);
/// Descent::by(SignDescent, 0.25).apply_gradients(&scope, &[(w.clone(), Some(gradient))])?;
/// assert_eq!(scope.read(&w)?.item::<f32>()?, 0.75);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait Rule: ThreadSafe {
    /// Returns the names of the slots of a variable, in groups. A slot is state in the shape of the variable. As in Keras, the
    /// optimizer orders its state by group: first the slots of the first group for every variable, then those of the second group
    /// for every variable, and so on.
    fn slots(&self) -> &'static [&'static [&'static str]] {
        &[]
    }

    /// Returns the initial value of every element of the slots.
    fn initial(&self) -> f64 {
        0.0
    }

    /// Returns the variables that belong to the rule itself, and not to a trained variable. Each comes with the name of its
    /// attribute in Keras.
    fn variables(&self) -> Vec<(&'static str, Variable)> {
        Vec::new()
    }

    /// Checks the rule's constants. Fails if one of them has an invalid value.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Creates the variables of [`Rule::variables`] for an optimizer that trains `variables`.
    fn build(&self, scope: &dyn Scope, variables: &[Variable]) -> Result<()> {
        let _ = (scope, variables);
        Ok(())
    }

    /// Runs once at the start of each step, before the first variable is updated.
    fn begin(&self, step: &Step<'_>) -> Result<()> {
        let _ = step;
        Ok(())
    }

    /// Returns an update by an op that changes the variable and its slots in place. If it returns `None`, the optimizer calls
    /// [`Rule::update`] instead.
    fn in_place(&self, step: &Step<'_>, gradient: &Gradient) -> Result<Option<InPlace>> {
        let _ = (step, gradient);
        Ok(None)
    }

    /// True if the rule depends only on the arguments of its methods, on its constants and on its variables. In eager code, the optimizer
    /// then traces a step once and runs it compiled: variables change in place, and a step for which there is no memory changes none. The
    /// default is false.
    fn is_pure(&self) -> bool {
        false
    }

    /// Returns the new value of `variable`, and then the new value of each slot.
    fn update(&self, step: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>>;
}

/// An update that one op performs in place, by [`Scope::update`].
pub struct InPlace {
    /// The op. Its inputs are the variable, its slots, and then the tensors in `inputs`. Its outputs are the new values of the
    /// variable and its slots.
    pub op: &'static Op,
    /// Attribute words of the op.
    pub attributes: Vec<u32>,
    /// Inputs that the op takes after the variable and its slots.
    pub inputs: Vec<Tensor>,
}

/// The current training step, which the optimizer passes to its rule.
pub struct Step<'a> {
    pub(super) scope: &'a dyn Scope,
    pub(super) iterations: Tensor,
    pub(super) learning_rate: Tensor,
    /// The variables that the step has assigned so far.
    pub(super) assigned: Lock<Vec<Variable>>,
}

impl Step<'_> {
    /// Returns the scope of the step. [`Step::assign`] sets variables.
    pub fn scope(&self) -> &dyn Scope {
        self.scope
    }

    /// Sets a variable to `value`. If the step fails later, its error names the variable.
    pub fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        // The gradients were summed over the replicas already, so their copies get the same value.
        self.scope.handle().recorder.assign(variable, value)?;
        self.assigned.lock().push(variable.clone());
        Ok(())
    }

    /// Changes variables with an op, like [`Scope::update`].
    pub(super) fn update(&self, InPlace { op, attributes, inputs }: &InPlace, variables: &[&Variable]) -> Result<()> {
        self.scope.update(op, attributes, variables, &inputs.iter().collect::<Vec<_>>())?;
        self.assigned.lock().extend(variables.iter().map(|&variable| variable.clone()));
        Ok(())
    }

    /// Adds the names of the variables that the step has assigned to its error.
    pub(super) fn partial(&self, error: Error) -> Error {
        let mut names: Vec<String> = Vec::new();
        for variable in self.assigned.lock().iter() {
            let name = format!("{:?}", variable.name());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { error } else { error.context(format!("the step had already changed {}", names.join(", "))) }
    }

    /// Returns the number of steps before this one, as an i64 scalar.
    pub fn iterations(&self) -> &Tensor {
        &self.iterations
    }

    /// Returns the learning rate, in the element type of `like`.
    pub fn learning_rate(&self, like: &Tensor) -> Result<Tensor> {
        as_type(&self.learning_rate, like)
    }

    /// Returns the number of the step that is `later` steps after this one, in the element type of `like`. The first step has number 1.
    pub fn number(&self, later: i64, like: &Tensor) -> Result<Tensor> {
        as_type(&self.iterations.add(&Tensor::scalar(&self.scope.device(), 1 + later))?, like)
    }
}

fn as_type(x: &Tensor, like: &Tensor) -> Result<Tensor> {
    if x.dtype() == like.dtype() { Ok(x.clone()) } else { x.cast(like.dtype()) }
}
