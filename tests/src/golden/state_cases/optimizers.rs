//! Cases of optimizers: `optimizers.json`.

use super::schedules::schedule;
use super::{Given, read_file, value};
use crate::golden::case::{Body, Case, Value};
use crate::golden::fixtures::{Folder, members, text};
use anyhow::{Context, Result};
use gradlet_core::optimizers::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Descent, Gradient, LearningRate, Nadam, Optimizer, RMSprop, Rule, Sgd, rules::AdamRule,
};
use gradlet_core::{Error, Scope, Tensor, Variable};
use serde_json::Value as Json;
use std::sync::Arc;

/// Reads the cases of `optimizers.json`.
pub fn read(folder: &mut Folder) -> Result<Vec<Case>> {
    read_file(folder, "optimizers.json", |folder, json, case| {
        let (name, given) = (text(json, "optimizer")?, &json["attrs"]["given"]);
        case.group = format!("optimizer:{name}");
        match optimizer(name, given) {
            Err(unknown) => case.group = format!("optimizer:{unknown}"),
            Ok(_) => read_steps(folder, json, case, (name.into(), given.clone()))?,
        }
        Ok(())
    })
}

/// Options that every optimizer has.
const COMMON: &[&str] =
    &["learning_rate", "weight_decay", "clipnorm", "global_clipnorm", "clipvalue", "use_ema", "ema_momentum", "ema_overwrite_frequency"];

/// Creates an optimizer with the given options. The error is the name of an unknown optimizer or option.
fn optimizer(name: &str, given: &Json) -> Result<Box<dyn Optimizer>, String> {
    let given = &Given(given);
    let known = |options: &[&str]| given.check(&[COMMON, options].concat()).map_err(|option| format!("{name}.{option}"));
    let option = |option: &str, default: f64| given.number(option).unwrap_or(default);
    let rate = |default: f64| match given.get("learning_rate") {
        Some(json) if json.is_object() => {
            let attributes = json.as_object().into_iter().flatten().filter(|(field, _)| *field != "schedule");
            let attributes = attributes.map(|(field, value)| (field.clone(), value.clone())).collect();
            schedule(json["schedule"].as_str().unwrap_or_default(), &Json::Object(attributes)).map(LearningRate::Schedule)
        }
        _ => Ok(option("learning_rate", default).into()),
    };
    let epsilon = option("epsilon", 1e-7);
    Ok(match name {
        "SGD" => {
            known(&["momentum", "nesterov"])?;
            common(given, Sgd::new(rate(0.01)?).momentum(option("momentum", 0.0)).nesterov(given.flag("nesterov")))
        }
        "RMSprop" => {
            known(&["rho", "momentum", "epsilon", "centered"])?;
            let rms = RMSprop::new(rate(0.001)?).rho(option("rho", 0.9)).momentum(option("momentum", 0.0));
            common(given, rms.epsilon(epsilon).centered(given.flag("centered")))
        }
        "Adagrad" => {
            known(&["initial_accumulator_value", "epsilon"])?;
            let initial = option("initial_accumulator_value", 0.1);
            common(given, Adagrad::new(rate(0.001)?).initial_accumulator_value(initial).epsilon(epsilon))
        }
        "Adadelta" => {
            known(&["rho", "epsilon"])?;
            common(given, Adadelta::new(rate(0.001)?).rho(option("rho", 0.95)).epsilon(epsilon))
        }
        "Adam" => {
            known(&["beta_1", "beta_2", "epsilon", "amsgrad"])?;
            common(given, adam(given, Adam::new(rate(0.001)?)))
        }
        "AdamW" => {
            known(&["beta_1", "beta_2", "epsilon", "amsgrad"])?;
            common(given, adam(given, AdamW::new(rate(0.001)?)))
        }
        "Adamax" => {
            known(&["beta_1", "beta_2", "epsilon"])?;
            let adamax = Adamax::new(rate(0.001)?).beta_1(option("beta_1", 0.9)).beta_2(option("beta_2", 0.999));
            common(given, adamax.epsilon(epsilon))
        }
        "Nadam" => {
            known(&["beta_1", "beta_2", "epsilon"])?;
            let nadam = Nadam::new(rate(0.001)?).beta_1(option("beta_1", 0.9)).beta_2(option("beta_2", 0.999));
            common(given, nadam.epsilon(epsilon))
        }
        _ => return Err(name.into()),
    })
}

fn adam<const DECOUPLED: bool>(given: &Given<'_>, adam: Descent<AdamRule<DECOUPLED>>) -> Descent<AdamRule<DECOUPLED>> {
    let option = |option: &str, default: f64| given.number(option).unwrap_or(default);
    let adam = adam.beta_1(option("beta_1", 0.9)).beta_2(option("beta_2", 0.999));
    adam.epsilon(option("epsilon", 1e-7)).amsgrad(given.flag("amsgrad"))
}

fn common<R: Rule + 'static>(given: &Given<'_>, mut optimizer: Descent<R>) -> Box<dyn Optimizer> {
    type Set<R> = fn(Descent<R>, f64) -> Descent<R>;
    let options: [(&str, Set<R>); 6] = [
        ("weight_decay", Descent::weight_decay),
        ("clipnorm", Descent::clipnorm),
        ("global_clipnorm", Descent::global_clipnorm),
        ("clipvalue", Descent::clipvalue),
        ("ema_momentum", Descent::ema_momentum),
        ("ema_overwrite_frequency", |optimizer, steps| optimizer.ema_overwrite_frequency(steps as u32)),
    ];
    for (name, set) in options {
        if let Some(value) = given.number(name) {
            optimizer = set(optimizer, value);
        }
    }
    Box::new(optimizer.use_ema(given.flag("use_ema")))
}

/// Indices of a weight's gradient in the inputs of a step. The gradient is complete, or consists of the indices and the values of some rows
/// (TensorFlow's `IndexedSlices`).
#[derive(Clone, Copy)]
enum Place {
    Whole(usize),
    Rows(usize, usize),
}

fn read_steps(folder: &mut Folder, json: &Json, case: &mut Case, optimizer: (String, Json)) -> Result<()> {
    let mut initial = Vec::new();
    for (name, key) in members(json, "init") {
        initial.push(value(folder, json, key, name.clone())?);
    }
    let (mut places, mut states) = (Vec::new(), Vec::new());
    for (index, step) in json["steps"].as_array().context("no steps")?.iter().enumerate() {
        for weight in &initial {
            let entry = &step["grads"][&weight.name];
            let mut input = |key: &Json, part: &str| -> Result<usize> {
                case.inputs.push(value(folder, json, key, format!("gradient {}{part} of step {index}", weight.name))?);
                Ok(case.inputs.len() - 1)
            };
            places.push(match entry.is_object() {
                true => Place::Rows(input(&entry["indices"], " rows")?, input(&entry["values"], " of rows")?),
                false => Place::Whole(input(entry, "")?),
            });
        }
        for (name, key) in members(step, "weights").chain(members(step, "slots")) {
            case.wanted.push(value(folder, json, key, format!("{name} after step {index}"))?);
            states.extend((index == 0).then(|| name.clone()));
        }
    }
    case.body = Some(steps_body(initial, places, states, optimizer));
    Ok(())
}

/// Creates a body that applies the optimizer to each step's gradients. Its outputs are the complete state after each step.
fn steps_body(initial: Vec<Value>, places: Vec<Place>, states: Vec<String>, (name, given): (String, Json)) -> Body {
    Arc::new(move |scope: &dyn Scope, inputs: &[Tensor]| {
        let optimizer = optimizer(&name, &given).map_err(Error::message)?;
        let weight = |value: &Value| Variable::new(scope, &value.name, &value.tensor(&scope.device())?);
        let weights = initial.iter().map(weight).collect::<gradlet_core::Result<Vec<_>>>()?;
        let gradient = |place: &Place| match *place {
            Place::Whole(index) => inputs[index].clone().into(),
            Place::Rows(indices, values) => Gradient::of_rows(inputs[indices].clone(), inputs[values].clone()),
        };
        let mut results = Vec::new();
        for places in places.chunks(weights.len()) {
            let pairs: Vec<_> = weights.iter().cloned().zip(places.iter().map(gradient).map(Some)).collect();
            optimizer.apply(scope, &pairs)?;
            let mut variables = weights.clone();
            variables.extend(optimizer.variables());
            for state in &states {
                let variable = variables.iter().find(|variable| variable.name() == state);
                let variable = variable.ok_or_else(|| Error::message(format!("the optimizer has no variable {state:?}")))?;
                results.push(scope.read(variable)?);
            }
        }
        Ok(results)
    })
}
