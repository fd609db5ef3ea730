//! Gradient descent with an update rule. All optimizers share this code.

use super::options::Options;
use super::steps::Steps;
use super::{Gradient, LearningRate, Optimizer};
use crate::base::error::{Error, Result};
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::nn::layers::{Later, Module, Visitor};
use crate::nn::type_name;
use crate::tensor::Tensor;
use crate::tensor::scope::{Op, Scope};
use crate::tensor::variable::Variable;
use crate::trace::node_names::snake;
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
    /// then traces a step once and runs it compiled: variables change in place, and a step that fails changes none. The default is false.
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
    scope: &'a dyn Scope,
    iterations: Tensor,
    learning_rate: Tensor,
    /// The variables that the step has assigned so far.
    assigned: Lock<Vec<Variable>>,
}

impl Step<'_> {
    /// Returns the scope of the step.
    pub fn scope(&self) -> &dyn Scope {
        self.scope
    }

    /// Sets a variable to `value`. If the step fails later, its error names the variable.
    pub fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.scope.assign(variable, value)?;
        self.assigned.lock().push(variable.clone());
        Ok(())
    }

    /// Changes variables with an op, like [`Scope::update`].
    fn update(&self, InPlace { op, attributes, inputs }: &InPlace, variables: &[&Variable]) -> Result<()> {
        self.scope.update(op, attributes, variables, &inputs.iter().collect::<Vec<_>>())?;
        self.assigned.lock().extend(variables.iter().map(|&variable| variable.clone()));
        Ok(())
    }

    /// Adds the names of the variables that the step has assigned to its error.
    fn partial(&self, error: Error) -> Error {
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

/// Gradient descent with an update rule and the options of every Keras optimizer. Options are set before the first step:
/// `Adam::new(0.001).amsgrad(true).clipnorm(1.0)`.
///
/// Its variables are, in Keras's order: `iteration`, `learning_rate` (unless there is a schedule), the moving averages, the slots,
/// and the rule's own variables.
pub struct Descent<R> {
    pub(super) rule: R,
    pub(super) options: Options,
    learning_rate: LearningRate,
    rate: Variable,
    iterations: Variable,
    trained: Lock<Shared<[Trained]>>,
    steps: Steps,
    later: Later,
}

/// A variable and the optimizer's state for it.
struct Trained {
    variable: Variable,
    /// Name of the trained variable within the names of its slots and its moving average.
    name: String,
    slots: Vec<Variable>,
    average: Option<Variable>,
}

impl<R: Rule> Descent<R> {
    /// Creates an optimizer from `rule` and a learning rate or a schedule.
    pub fn by(rule: R, learning_rate: impl Into<LearningRate>) -> Descent<R> {
        Descent {
            rule,
            options: Options::default(),
            learning_rate: learning_rate.into(),
            rate: Variable::untrained("learning_rate"),
            iterations: Variable::untrained("iteration"),
            trained: Lock::new(Shared::from(Vec::new())),
            steps: Steps::default(),
            later: Later::default(),
        }
    }

    fn trained(&self) -> Shared<[Trained]> {
        self.trained.lock().clone()
    }

    /// Returns the state of the optimizer. If there is no state yet, creates it for the variables in `named`. Fails if there is
    /// state, but none for one of these variables.
    fn built(&self, scope: &dyn Scope, named: impl Iterator<Item = (String, Variable)>) -> Result<Shared<[Trained]>> {
        let known = self.trained();
        let named: Vec<_> = named.collect();
        if !known.is_empty() {
            return match named.iter().find(|(_, variable)| !known.iter().any(|trained| trained.variable == *variable)) {
                Some((name, _)) => Err(Error::message(format!(
                    "variable {name:?} is not among those that the optimizer was built for: build it for the whole model first, and after \
                     unfreezing layers create a new optimizer"
                ))),
                None => Ok(known),
            };
        }
        self.options.check()?;
        self.rule.check()?;
        let device = scope.device();
        self.iterations.create(scope, &Tensor::scalar(&device, 0i64))?;
        if let LearningRate::Value(rate) = self.learning_rate {
            self.rate.create(scope, &Tensor::scalar(&device, rate))?;
        }
        let variables: Vec<Variable> = named.iter().map(|(_, variable)| variable.clone()).collect();
        let trained: Shared<[Trained]> = named.into_iter().map(|(name, variable)| self.state_of(name, variable)).collect();
        *self.trained.lock() = trained.clone();
        let created = self.later.created(self).and_then(|()| {
            trained.iter().try_for_each(|trained| trained.create(scope, self.rule.initial()))?;
            self.rule.build(scope, &variables)
        });
        match created {
            Ok(()) => Ok(trained),
            Err(error) => {
                *self.trained.lock() = Shared::from(Vec::new());
                Err(error)
            }
        }
    }

    /// Returns the slots and the moving average for a variable. They are unbuilt.
    fn state_of(&self, name: String, variable: Variable) -> Trained {
        let slot = |kind: &str| Variable::untrained(&format!("{name}_{kind}"));
        let slots = self.rule.slots().iter().copied().flatten().map(|kind| slot(kind)).collect();
        let average = self.options.averages().then(|| slot("average"));
        Trained { variable, slots, average, name }
    }

    /// Returns all variables of the optimizer, in Keras's order.
    fn state(&self) -> Vec<Variable> {
        let trained = self.trained();
        let mut state = Vec::from([self.iterations.clone()]);
        if let LearningRate::Value(_) = self.learning_rate {
            state.push(self.rate.clone());
        }
        state.extend(trained.iter().filter_map(|trained| trained.average.clone()));
        let mut first = 0;
        for group in self.rule.slots() {
            state.extend(trained.iter().flat_map(|trained| trained.slots.iter().skip(first).take(group.len()).cloned()));
            first += group.len();
        }
        state.extend(self.rule.variables().into_iter().map(|(_, variable)| variable));
        state
    }

    /// Updates the variables in `trained` with their gradients, and the moving averages of all variables in `built`.
    fn step(&self, step: &Step<'_>, built: &[Trained], trained: &[&Trained], gradients: Vec<Gradient>) -> Result<()> {
        let _named = step.scope.name_scope(&own_name::<R>());
        let gradients = self.options.clip(gradients)?;
        self.rule.begin(step)?;
        for (trained, gradient) in trained.iter().zip(&gradients) {
            trained.update(&self.rule, &self.options, step, gradient)?;
        }
        for trained in built {
            if let Some(average) = &trained.average {
                self.options.average(step, &trained.variable, average)?;
            }
        }
        step.assign(&self.iterations, &step.iterations.add(&Tensor::scalar(&step.scope.device(), 1i64))?)
    }

    fn rate(&self, scope: &dyn Scope, iterations: &Tensor) -> Result<Tensor> {
        match &self.learning_rate {
            LearningRate::Value(rate) if !self.rate.is_built() => Ok(Tensor::scalar(&scope.device(), *rate)),
            LearningRate::Value(_) => scope.read(&self.rate),
            LearningRate::Schedule(schedule) => schedule.rate(iterations).map_err(|error| error.context("the learning rate")),
        }
    }
}

impl Trained {
    /// Gives the variables their initial values: zeros for the moving average, and `initial` for every element of the slots.
    fn create(&self, scope: &dyn Scope, initial: f64) -> Result<()> {
        let tensor_type = self.variable.tensor_type().map_err(|error| error.context(format!("variable {:?}", self.name)))?;
        let filled = |value: f64| Tensor::full(&scope.device(), value as f32, tensor_type.shape.dims())?.cast(tensor_type.dtype);
        self.average.iter().try_for_each(|average| average.create(scope, &filled(0.0)?))?;
        self.slots.iter().try_for_each(|slot| slot.create(scope, &filled(initial)?))
    }

    /// Updates the variable and its slots by one step of `rule`, after the weight decay.
    fn update<R: Rule>(&self, rule: &R, options: &Options, step: &Step<'_>, gradient: &Gradient) -> Result<()> {
        options.decay(&self.variable, step)?;
        let variables: Vec<&Variable> = core::iter::once(&self.variable).chain(&self.slots).collect();
        if let Some(in_place) = rule.in_place(step, gradient)? {
            return step.update(&in_place, &variables);
        }
        let value = step.scope.read(&self.variable)?;
        let slots = self.slots.iter().map(|slot| step.scope.read(slot)).collect::<Result<Vec<_>>>()?;
        let updated = rule.update(step, &value, gradient, &slots)?;
        variables.iter().zip(&updated).try_for_each(|(variable, value)| step.assign(variable, value))
    }
}

/// Returns the name of the optimizer with this rule, as its ops have it.
fn own_name<R>() -> String {
    snake(type_name::<R>().trim_end_matches("Rule"))
}

/// Returns the variables of `gradients` with their own names, for variables that have no path in a model. If an earlier variable
/// has the same name, a number is appended to it.
fn numbered(gradients: &[(Variable, Option<Gradient>)]) -> impl Iterator<Item = (String, Variable)> {
    gradients.iter().enumerate().map(|(index, (variable, _))| {
        let name = variable.name();
        match gradients.iter().take(index).filter(|(other, _)| other.name() == name).count() {
            0 => (name.into(), variable.clone()),
            number => (format!("{name}_{number}"), variable.clone()),
        }
    })
}

impl<R: Rule> Module for Descent<R> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        let state = self.state();
        if !visitor.tracks() {
            return state.iter().for_each(|variable| visitor.module(variable.name(), variable));
        }
        visitor.module("_variables", &state);
        visitor.module("_trainable_variables", &self.trained().iter().map(|trained| trained.variable.clone()).collect::<Vec<_>>());
        visitor.module("_iterations", &self.iterations);
        if let LearningRate::Value(_) = self.learning_rate {
            visitor.module("_learning_rate", &self.rate);
        }
        self.rule.variables().iter().for_each(|(attribute, variable)| visitor.module(attribute, variable));
        visitor.later(&self.later);
    }
}

impl<R: Rule> Optimizer for Descent<R> {
    fn build(&self, scope: &dyn Scope, model: &dyn Module) -> Result<()> {
        let trainable = model.trainable_variables();
        let named = model.named_variables().into_iter().filter(|(_, variable)| trainable.contains(variable));
        self.built(scope, named.map(|(path, variable)| (path.replace('/', "_"), variable))).map(drop)
    }

    fn apply(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Gradient>)]) -> Result<()> {
        if gradients.is_empty() {
            return Ok(());
        }
        let built = self.built(scope, numbered(gradients))?;
        let mut trained = Vec::new();
        let mut found = Vec::new();
        for (variable, gradient) in gradients {
            let state = built.iter().find(|trained| trained.variable == *variable);
            let (Some(state), Some(gradient)) = (state, gradient) else { continue };
            found.push(gradient.fitted(&state.name, variable.tensor_type()?)?);
            trained.push(state);
        }
        if trained.is_empty() {
            let names: Vec<&str> = gradients.iter().map(|(variable, _)| variable.name()).collect();
            return Err(Error::message(format!("no gradient for any variable: the loss depends on none of {}", names.join(", "))));
        }
        let iterations = scope.read(&self.iterations)?;
        let learning_rate = self.rate(scope, &iterations)?;
        let whole = found.iter().all(|gradient| !gradient.is_of_rows());
        if !(self.rule.is_pure() && whole && scope.handle().recorder.parent().is_none()) {
            let step = Step { scope, iterations, learning_rate, assigned: Lock::default() };
            return self.step(&step, &built, &trained, found).map_err(|error| step.partial(error));
        }
        let variables: Vec<&Variable> = trained.iter().map(|trained| &trained.variable).collect();
        let gradients = found.iter().map(|gradient| gradient.values().clone());
        let inputs = core::iter::once(learning_rate).chain(gradients).collect();
        // A value that is held could not change in place.
        drop(iterations);
        self.steps.run(scope, &own_name::<R>(), &variables, &inputs, |scope, inputs| {
            let mut inputs = inputs.into_iter();
            let (iterations, learning_rate) = (scope.read(&self.iterations)?, inputs.next().ok_or(Error::Internal)?);
            let step = Step { scope, iterations, learning_rate, assigned: Lock::default() };
            self.step(&step, &built, &trained, inputs.map(Gradient::from).collect())
        })
    }

    fn learning_rate(&self, scope: &dyn Scope) -> Result<Tensor> {
        let iterations = if self.iterations.is_built() { scope.read(&self.iterations)? } else { Tensor::scalar(&scope.device(), 0i64) };
        self.rate(scope, &iterations)
    }

    fn set_learning_rate(&self, scope: &dyn Scope, rate: f32) -> Result<()> {
        if let LearningRate::Schedule(_) = self.learning_rate {
            return Err(Error::message("the optimizer has a schedule, so its learning rate cannot be set"));
        }
        let rate = Tensor::scalar(&scope.device(), rate);
        self.rate.create(scope, &rate)?;
        scope.assign(&self.rate, &rate)
    }

    fn finalize_variable_values(&self, scope: &dyn Scope) -> Result<()> {
        let averaged = |trained: &Trained| match &trained.average {
            Some(average) => scope.assign(&trained.variable, &scope.read(average)?),
            None => Ok(()),
        };
        self.trained().iter().try_for_each(averaged)
    }
}
