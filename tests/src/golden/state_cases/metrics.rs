//! Cases of metrics: `metrics.json`.

use super::{Given, floats, read_file, value};
use crate::golden::case::{Body, Case};
use crate::golden::fixtures::{Folder, members, text};
use anyhow::{Context, Result};
use gradlet_core::layers::{Module, Visitor};
use gradlet_core::losses;
use gradlet_core::metrics::*;
use gradlet_core::{Error, Result as CoreResult, Scope, Tensor};
use serde_json::Value as Json;
use std::sync::Arc;

/// Reads the cases of `metrics.json`.
pub fn read(folder: &mut Folder) -> Result<Vec<Case>> {
    read_file(folder, "metrics.json", |folder, json, case| {
        let (name, attributes) = (text(json, "metric")?, &json["attrs"]);
        case.group = format!("metric:{name}");
        match metric(name, attributes) {
            Err(unknown) => case.group = format!("metric:{unknown}"),
            Ok(_) => read_batches(folder, json, case, (name.into(), attributes.clone()))?,
        }
        Ok(())
    })
}

/// A wrapper for `Mean` and `Sum`, which are metrics of values without labels. The predictions are the values, and the labels are ignored.
struct Values<M>(M);

impl<M: Module> Module for Values<M> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.0.visit(visitor);
    }
}

macro_rules! metrics_of_values {
    ($($name:ident)*) => {$(
        impl Metric for Values<$name> {
            fn update_weighted(&self, scope: &dyn Scope, _: &Tensor, values: &Tensor, weights: Option<&Tensor>) -> CoreResult<()> {
                self.0.update_state(scope, values, weights)
            }

            fn result(&self, scope: &dyn Scope) -> gradlet_core::Result<Tensor> {
                self.0.result(scope)
            }
        }
    )*};
}
metrics_of_values!(Mean Sum);

/// Creates a metric with the given arguments. The error is the name of an unknown metric or option.
fn metric(name: &str, attributes: &Json) -> Result<Box<dyn Metric>, String> {
    let given = &Given(attributes);
    let known = |options: &[&str]| given.check(options).map_err(|option| format!("{name}.{option}"));
    let axis = given.number("axis").unwrap_or(-1.0) as i32;
    let (from_logits, smoothing) = (given.flag("from_logits"), given.number("label_smoothing").unwrap_or(0.0));
    let thresholds = given.numbers("thresholds");
    macro_rules! default {
        ($name:ident) => {{
            known(&[])?;
            Box::new($name::default())
        }};
    }
    macro_rules! count {
        ($name:ident) => {{
            known(&["thresholds"])?;
            Box::new(thresholds.map_or_else($name::default, |thresholds| $name::thresholds(&thresholds)))
        }};
    }
    macro_rules! share {
        ($name:ident) => {{
            known(&["thresholds", "top_k", "class_id"])?;
            let mut share = $name::default();
            if let Some(thresholds) = thresholds {
                share = share.thresholds(&thresholds);
            }
            if let Some(k) = given.number("top_k") {
                share = share.top_k(k as u32);
            }
            if let Some(class) = given.number("class_id") {
                share = share.class_id(class as u32);
            }
            Box::new(share)
        }};
    }
    macro_rules! top_k {
        ($name:ident) => {{
            known(&["k"])?;
            Box::new($name::k(given.number("k").unwrap_or(5.0) as u32))
        }};
    }
    Ok(match name {
        "Mean" => Box::new(Values(Mean::default())),
        "Sum" => Box::new(Values(Sum::default())),
        "Accuracy" => default!(Accuracy),
        "BinaryAccuracy" => {
            known(&["threshold"])?;
            Box::new(BinaryAccuracy::threshold(given.number("threshold").unwrap_or(0.5)))
        }
        "CategoricalAccuracy" => default!(CategoricalAccuracy),
        "SparseCategoricalAccuracy" => default!(SparseCategoricalAccuracy),
        "TopKCategoricalAccuracy" => top_k!(TopKCategoricalAccuracy),
        "SparseTopKCategoricalAccuracy" => top_k!(SparseTopKCategoricalAccuracy),
        "TruePositives" => count!(TruePositives),
        "FalsePositives" => count!(FalsePositives),
        "TrueNegatives" => count!(TrueNegatives),
        "FalseNegatives" => count!(FalseNegatives),
        "Precision" => share!(Precision),
        "Recall" => share!(Recall),
        "AUC" => Box::new(auc(given).map_err(|option| format!("{name}.{option}"))?),
        "MeanSquaredError" => default!(MeanSquaredError),
        "RootMeanSquaredError" => default!(RootMeanSquaredError),
        "MeanAbsoluteError" => default!(MeanAbsoluteError),
        "MeanAbsolutePercentageError" => default!(MeanAbsolutePercentageError),
        "MeanSquaredLogarithmicError" => default!(MeanSquaredLogarithmicError),
        "CosineSimilarity" => {
            known(&["axis"])?;
            Box::new(CosineSimilarity::axis(axis))
        }
        "LogCoshError" => default!(LogCoshError),
        "Hinge" => default!(Hinge),
        "SquaredHinge" => default!(SquaredHinge),
        "CategoricalHinge" => default!(CategoricalHinge),
        "KLDivergence" => default!(KLDivergence),
        "Poisson" => default!(Poisson),
        "BinaryCrossentropy" => {
            known(&["from_logits", "label_smoothing"])?;
            Box::new(MeanOf::new(losses::BinaryCrossentropy::default().from_logits(from_logits).label_smoothing(smoothing)))
        }
        "CategoricalCrossentropy" => {
            known(&["from_logits", "label_smoothing", "axis"])?;
            let loss = losses::CategoricalCrossentropy::default().from_logits(from_logits);
            Box::new(MeanOf::new(loss.label_smoothing(smoothing).axis(axis)))
        }
        "SparseCategoricalCrossentropy" => {
            known(&["from_logits"])?;
            Box::new(MeanOf::new(losses::SparseCategoricalCrossentropy::default().from_logits(from_logits)))
        }
        _ => return Err(name.into()),
    })
}

fn auc(given: &Given<'_>) -> Result<Auc, String> {
    given.check(&["num_thresholds", "curve", "summation_method", "thresholds", "from_logits"])?;
    let text = |option: &str| given.get(option).and_then(Json::as_str).unwrap_or_default().to_lowercase();
    let curve = match text("curve").as_str() {
        "" | "roc" => Curve::Roc,
        "pr" => Curve::Pr,
        _ => return Err("curve".into()),
    };
    let method = match text("summation_method").as_str() {
        "" | "interpolation" => SummationMethod::Interpolation,
        "majoring" => SummationMethod::Majoring,
        "minoring" => SummationMethod::Minoring,
        _ => return Err("summation_method".into()),
    };
    let auc = Auc::default().curve(curve).summation_method(method).from_logits(given.flag("from_logits"));
    Ok(match (given.numbers("thresholds"), given.number("num_thresholds")) {
        (Some(thresholds), _) => auc.thresholds(&thresholds),
        (None, Some(count)) => auc.num_thresholds(count as u32),
        (None, None) => auc,
    })
}

/// Indices of a batch's labels, predictions and weights in the inputs of the case.
struct Batch {
    y_true: usize,
    y_pred: usize,
    sample_weight: Option<usize>,
}

fn read_batches(folder: &mut Folder, json: &Json, case: &mut Case, metric: (String, Json)) -> Result<()> {
    let batches = json["batches"].as_array().context("no batches")?;
    let mut shapes = Vec::new();
    let states: Vec<String> = members(&batches[0], "state").map(|(name, _)| name.clone()).collect();
    case.wanted.push(floats("result at first".into(), &json["result_before_update"])?);
    for (index, batch) in batches.iter().enumerate() {
        let mut places = std::collections::HashMap::new();
        for (name, key) in members(batch, "inputs") {
            places.insert(name.as_str(), case.inputs.len());
            case.inputs.push(value(folder, json, key, format!("{name} of batch {index}"))?);
        }
        let place = |name: &str| places.get(name).or(places.get("values")).copied().with_context(|| format!("no {name}"));
        let (y_true, y_pred) = (place("y_true")?, place("y_pred")?);
        shapes.push(Batch { y_true, y_pred, sample_weight: places.get("sample_weight").copied() });
        case.wanted.push(floats(format!("result after batch {index}"), &batch["result"])?);
        for (name, numbers) in members(batch, "state") {
            case.wanted.push(floats(format!("{name} after batch {index}"), numbers)?);
        }
    }
    case.wanted.push(floats("result after reset".into(), &json["result_after_reset"])?);
    case.body = Some(batches_body(shapes, states, metric));
    Ok(())
}

/// Creates a body that updates the metric with each batch. Its outputs are the metric's initial result, then its result and state after
/// each batch.
fn batches_body(batches: Vec<Batch>, states: Vec<String>, (name, attributes): (String, Json)) -> Body {
    Arc::new(move |scope: &dyn Scope, tensors: &[Tensor]| {
        let metric = metric(&name, &attributes).map_err(Error::message)?;
        let mut results = vec![metric.result(scope)?];
        for batch in &batches {
            let weight = batch.sample_weight.map(|index| &tensors[index]);
            metric.update_weighted(scope, &tensors[batch.y_true], &tensors[batch.y_pred], weight)?;
            results.push(metric.result(scope)?);
            for state in &states {
                let variable = metric.variables().into_iter().find(|variable| variable.name() == state);
                let variable = variable.ok_or_else(|| Error::message(format!("the metric has no variable {state:?}")))?;
                results.push(scope.read(&variable)?);
            }
        }
        metric.reset_state(scope)?;
        results.push(metric.result(scope)?);
        Ok(results)
    })
}
