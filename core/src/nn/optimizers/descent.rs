//! Gradient descent with an update rule. All optimizers share this code.

use super::options::Options;
use super::rule::{Rule, Step};
use super::steps::Steps;
use super::{Gradient, LearningRate, Optimizer};
use crate::base::error::{Error, Result};
use crate::base::sync::{Lock, Shared};
use crate::nn::layers::{Later, Module, Visitor};
use crate::nn::type_name;
use crate::tensor::Tensor;
use crate::tensor::replicas::reduction;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use crate::tensor::waiting::Monitor;
use crate::trace::copies;
use crate::trace::node_names::snake;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

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
    /// Taken by the thread that creates the state.
    building: Monitor<Option<()>>,
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
            building: Monitor::new(Some(())),
            steps: Steps::new(own_name::<R>()),
            later: Later::default(),
        }
    }

    fn trained(&self) -> Shared<[Trained]> {
        self.trained.lock().clone()
    }

    /// Returns the state of the optimizer. If there is no state yet, creates it for the variables in `named`. Fails if there is
    /// state, but none for one of these variables.
    fn built(&self, scope: &dyn Scope, named: impl Iterator<Item = (String, Variable)>) -> Result<Shared<[Trained]>> {
        // Replicas may begin at the same time. The first one creates the state of all.
        let turn = self.building.turn(&scope.device());
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
        if created.is_err() {
            *self.trained.lock() = Shared::from(Vec::new());
        }
        drop(turn);
        created.map(|()| trained)
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

    /// Does a step like [`Descent::step`], compiled. Returns false if it does not pay to compile it.
    fn compiled(&self, scope: &dyn Scope, rate: &Tensor, built: &[Trained], trained: &[&Trained], gradients: &[Gradient]) -> Result<bool> {
        let own = scope.device();
        for (trained, gradient) in trained.iter().zip(gradients) {
            let other = gradient.values().device()?;
            // In a group of devices, the compiled step copies its inputs.
            if own != other && own.placement().is_none() {
                let (name, own, other) = (&trained.name, own.name(), other.name());
                return Err(Error::message(format!(
                    "the gradient of variable {name:?} is on {other}, but the step runs on {own}: copy it with `to`"
                )));
            }
        }
        let variables: Vec<&Variable> = trained.iter().map(|trained| &trained.variable).collect();
        let inputs = core::iter::once(rate.clone()).chain(gradients.iter().map(|gradient| gradient.values().clone())).collect();
        self.steps.run(scope, &variables, &inputs, |scope, inputs| {
            let mut inputs = inputs.into_iter();
            let (iterations, learning_rate) = (scope.read(&self.iterations)?, inputs.next().ok_or(Error::Internal)?);
            let step = Step { scope, iterations, learning_rate, assigned: Lock::default() };
            self.step(&step, built, trained, inputs.map(Gradient::from).collect())
        })
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
        let replica = copies::is_replica(&scope.handle());
        let mut trained = Vec::new();
        let mut found = Vec::new();
        for (variable, gradient) in gradients {
            let state = built.iter().find(|trained| trained.variable == *variable);
            let (Some(state), Some(gradient)) = (state, gradient) else { continue };
            let gradient = gradient.fitted(&state.name, variable.tensor_type()?)?;
            found.push(if replica { scope.handle().over_replicas(reduction::SUM, &gradient.dense()?)?.into() } else { gradient });
            trained.push(state);
        }
        if trained.is_empty() {
            let names: Vec<&str> = gradients.iter().map(|(variable, _)| variable.name()).collect();
            return Err(Error::message(format!("no gradient for any variable: the loss depends on none of {}", names.join(", "))));
        }
        let iterations = scope.read(&self.iterations)?;
        let learning_rate = self.rate(scope, &iterations)?;
        // A value that is held could not change in place.
        drop(iterations);
        let whole = found.iter().all(|gradient| !gradient.is_of_rows());
        let compiles = self.rule.is_pure() && whole && scope.handle().recorder.parent().is_none();
        if compiles && self.compiled(scope, &learning_rate, &built, &trained, &found)? {
            return Ok(());
        }
        let step = Step { scope, iterations: scope.read(&self.iterations)?, learning_rate, assigned: Lock::default() };
        self.step(&step, &built, &trained, found).map_err(|error| step.partial(error))
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
