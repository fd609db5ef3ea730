//! Cases of what has state: optimizers and metrics, over several steps; and learning-rate schedules.
//!
//! All steps of a case are one function: its inputs are the gradients or batches of every step, its outputs what the
//! reference had after each.

use crate::case::{Body, Case, Tolerance, Value};
use crate::fixtures::{Folder, members, number, text};
use anyhow::{Context, Result};
use gradlet_core::layers::Module;
use gradlet_core::metrics::{Metric, SparseCategoricalAccuracy};
use gradlet_core::optimizers::{Adam, Optimizer, Sgd};
use gradlet_core::{Error, Scope, Tensor, Variable};
use serde_json::Value as Json;
use std::sync::Arc;

/// The cases of `optimizers.json`.
pub fn optimizers(folder: &mut Folder) -> Result<Vec<Case>> {
    read(folder, "optimizers.json", |folder, json, case| {
        let name = text(json, "optimizer")?;
        let given = json["attrs"]["given"].clone();
        let sparse = json["steps"][0]["grads"].as_object().is_some_and(|grads| grads.values().any(Json::is_object));
        case.group = format!("optimizer:{name}");
        match optimizer(name, &given) {
            Err(option) => case.group = format!("optimizer:{option}"),
            Ok(_) if sparse => case.group.push_str(".sparse"),
            Ok(make) => return read_steps(folder, json, case, make),
        }
        Ok(())
    })
}

/// The cases of `metrics.json`.
pub fn metrics(folder: &mut Folder) -> Result<Vec<Case>> {
    read(folder, "metrics.json", |folder, json, case| {
        let name = text(json, "metric")?;
        let weighted = json["batches"][0]["inputs"].get("sample_weight").is_some();
        let option = json["attrs"].as_object().and_then(|options| options.keys().next().cloned());
        case.group = format!("metric:{name}");
        match (name, option) {
            ("SparseCategoricalAccuracy", None) if !weighted => return read_batches(folder, json, case),
            ("SparseCategoricalAccuracy", option) => case.group = format!("metric:{name}.{}", option.as_deref().unwrap_or("sample_weight")),
            _ => (),
        }
        Ok(())
    })
}

/// The cases of `schedules.json`; none is known yet.
pub fn schedules(folder: &mut Folder) -> Result<Vec<Case>> {
    read(folder, "schedules.json", |_, json, case| {
        case.group = format!("schedule:{}", text(json, "schedule")?);
        Ok(())
    })
}

fn read(folder: &mut Folder, file: &str, fill: impl Fn(&mut Folder, &Json, &mut Case) -> Result<()>) -> Result<Vec<Case>> {
    let kind = file.trim_end_matches(".json");
    let cases = folder.cases(file)?;
    let read = |json: &Json| {
        let id = format!("{kind}/{}", text(json, "id")?);
        let mut case =
            Case { id, group: String::new(), tolerance: Tolerance::read(json), inputs: Vec::new(), wanted: Vec::new(), body: None };
        fill(folder, json, &mut case).with_context(|| format!("case {}", case.id))?;
        Ok(case)
    };
    cases.iter().map(read).collect()
}

type Make = Box<dyn Fn() -> Box<dyn Optimizer> + Send + Sync>;

/// An optimizer with its given options, or the name of what is not known.
fn optimizer(name: &str, given: &Json) -> Result<Make, String> {
    let known: &[&str] = match name {
        "SGD" => &["learning_rate"],
        "Adam" => &["learning_rate", "beta_1", "beta_2", "epsilon"],
        _ => return Err(name.into()),
    };
    if let Some((option, _)) =
        given.as_object().into_iter().flatten().find(|(option, value)| !known.contains(&option.as_str()) || number(value).is_none())
    {
        return Err(format!("{name}.{option}"));
    }
    let option = |name: &str, default: f64| given.get(name).and_then(number).unwrap_or(default);
    let (sgd, adam) = (option("learning_rate", 0.01) as f32, option("learning_rate", 0.001) as f32);
    let (beta_1, beta_2, epsilon) = (option("beta_1", 0.9), option("beta_2", 0.999), option("epsilon", 1e-7));
    Ok(match name {
        "SGD" => Box::new(move || Box::new(Sgd::new(sgd))),
        _ => Box::new(move || Box::new(Adam::with(adam, beta_1, beta_2, epsilon))),
    })
}

/// A value of a known element type, or the case cannot be run.
fn value(folder: &mut Folder, json: &Json, key: &Json, name: String) -> Result<Value> {
    let key = key.as_str().context("a tensor key is not text")?;
    folder.value(text(json, "file")?, key, &name)?.with_context(|| format!("the element type of {key} is not known"))
}

fn read_steps(folder: &mut Folder, json: &Json, case: &mut Case, make: Make) -> Result<()> {
    let mut initial = Vec::new();
    for (name, key) in members(json, "init") {
        initial.push(value(folder, json, key, name.clone())?);
    }
    let steps = json["steps"].as_array().context("no steps")?;
    let mut states = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        for weight in &initial {
            case.inputs.push(value(folder, json, &step["grads"][&weight.name], format!("gradient {} of step {index}", weight.name))?);
        }
        for (name, key) in members(step, "weights").chain(members(step, "slots")) {
            case.wanted.push(value(folder, json, key, format!("{name} after step {index}"))?);
            states.extend((index == 0).then(|| name.clone()));
        }
    }
    case.body = Some(steps_body(initial, states, make));
    Ok(())
}

/// Applies the optimizer with each step's gradients, and gives all of its state after each.
fn steps_body(initial: Vec<Value>, states: Vec<String>, make: Make) -> Body {
    Arc::new(move |scope: &dyn Scope, gradients: &[Tensor]| {
        let optimizer = make();
        let weight = |value: &Value| Variable::new(scope, &value.name, &value.tensor(&scope.device())?);
        let weights = initial.iter().map(weight).collect::<gradlet_core::Result<Vec<_>>>()?;
        let mut results = Vec::new();
        for gradients in gradients.chunks(weights.len()) {
            let pairs: Vec<_> = weights.iter().cloned().zip(gradients.iter().cloned().map(Some)).collect();
            optimizer.apply_gradients(scope, &pairs)?;
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

fn read_batches(folder: &mut Folder, json: &Json, case: &mut Case) -> Result<()> {
    let batches = json["batches"].as_array().context("no batches")?;
    let mut want = |name: String, value: &Json| -> Result<()> {
        let number = number(value).with_context(|| format!("{name} is not a number"))?;
        case.wanted.push(Value::scalar(name, number as f32));
        Ok(())
    };
    want("result at first".into(), &json["result_before_update"])?;
    for (index, batch) in batches.iter().enumerate() {
        for (name, key) in members(batch, "inputs") {
            case.inputs.push(value(folder, json, key, format!("{name} of batch {index}"))?);
        }
        want(format!("result after batch {index}"), &batch["result"])?;
        for (name, number) in members(batch, "state") {
            want(format!("{name} after batch {index}"), number)?;
        }
    }
    want("result after reset".into(), &json["result_after_reset"])?;
    case.body = Some(batches_body());
    Ok(())
}

/// Updates the metric with each batch (`y_true`, `y_pred`); gives its result and state each time.
fn batches_body() -> Body {
    Arc::new(|scope: &dyn Scope, tensors: &[Tensor]| {
        let metric = SparseCategoricalAccuracy::default();
        let mut results = vec![metric.result(scope)?];
        for batch in tensors.chunks(2) {
            metric.update_state(scope, &batch[0], &batch[1])?;
            results.push(metric.result(scope)?);
            for variable in metric.variables() {
                results.push(scope.read(&variable)?);
            }
        }
        metric.reset_state(scope)?;
        results.push(metric.result(scope)?);
        Ok(results)
    })
}
