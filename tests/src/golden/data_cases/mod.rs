//! Pipelines, with the results of TensorFlow's `tf.data`.

mod expression;
mod files;
mod functions;
mod others;
mod pipeline;
mod random;
mod value;

use crate::golden::checks::{Checks, json};
use anyhow::{Context, Result, bail, ensure};
use functions::Functions;
use gradlet::Dataset;
use gradlet::data::{Cardinality, Position};
use pipeline::DoesNotCompile;
use serde_json::Value as Json;
use std::path::Path;
use value::Value;

pub use others::others;

/// Runs `cases.json`, which has pipelines with all elements of their datasets, and `random.json`.
pub fn pipelines(folder: &Path, checks: &mut Checks) -> Result<()> {
    let cases = json(folder, "cases.json")?;
    let functions = Functions::read(&cases)?;
    for case in cases["cases"].as_array().context("no cases")? {
        checks.check(case["id"].as_str().unwrap_or("?"), || {
            run(case, &functions)?;
            resume(case, &functions)
        });
    }
    random::random(folder, checks)
}

/// Errors whose texts differ: a part of TensorFlow's text, and the corresponding part of gradlet's.
const WORDS: [(&str, &str); 5] = [
    ("Integer division by zero", "integer division by zero"),
    ("Cannot add tensor to the batch", "Cannot batch tensors with different shapes"),
    ("Cannot batch tensors with different shapes", "Cannot batch tensors with different shapes"),
    ("elements must have length < max(bucket_boundaries)", "elements must have length < max(bucket_boundaries)"),
    ("The padded shape", "The padded shape"),
];

/// Errors in which TensorFlow names Python types or its own ops: a part of TensorFlow's text, and the corresponding part of gradlet's.
const TYPES: [(&str, &str); 3] = [
    ("Invalid `padding_values`. `padding_values` values type", "Invalid `padding_values`. `padding_values` values type"),
    ("Incompatible dataset elements", "Incompatible dataset elements"),
    ("Op<name=ZipDataset", "should not be empty"),
];

/// Fails if the text of an error does not correspond to TensorFlow's.
fn same_words(text: &str, error: &Json) -> Result<()> {
    let wanted = ["core", "message", "message_first_line"].iter().find_map(|name| error[*name].as_str()).context("no message")?;
    let known = WORDS.iter().chain(&TYPES).find(|(theirs, _)| wanted.contains(theirs));
    let words = known.map_or_else(|| translated(wanted), |(_, ours)| ours.to_string());
    ensure!(text.contains(&words), "{text:?} does not contain {words:?}");
    Ok(())
}

/// Converts TensorFlow's error text to gradlet's. The path, the shapes or the assertion message come from TensorFlow's text.
fn translated(wanted: &str) -> String {
    let checked = wanted.lines().find(|line| line.contains(" : Tensor had "));
    match (wanted.strip_suffix("; No such file or directory"), shapes(wanted).as_slice(), checked) {
        (Some(path), ..) => format!("{path}: No such file or directory"),
        (_, [got, expected], _) => format!("an element of f32{got:?} where an element of f32{expected:?} was expected").replace(", ", ","),
        (.., Some(line)) => {
            let (before, kinds) = line.rsplit_once(" : ").unwrap_or_default();
            format!("{} : {kinds}", before.rsplit(": ").next().unwrap_or_default())
        }
        _ => wanted.into(),
    }
}

/// Returns the shapes in a text, such as `of shape (2, 3)`.
fn shapes(text: &str) -> Vec<Vec<u32>> {
    let inside = text.split("of shape (").skip(1).filter_map(|rest| rest.split(')').next());
    inside.map(|dims| dims.split(',').filter_map(|dim| dim.trim().parse().ok()).collect()).collect()
}

fn run(case: &Json, functions: &Functions) -> Result<()> {
    let (error, while_building) = (&case["error"], case["raised_while"] == "building");
    let built = pipeline::build(&case["pipeline"], functions).and_then(|dataset| Ok(dataset.check().map(|()| dataset)?));
    let dataset = match built {
        Ok(dataset) => dataset,
        Err(_) if error.is_null() => return built.map(|_| ()),
        Err(got) if while_building => {
            // A compile error of rustc cannot be compared with TensorFlow's error.
            return if got.root_cause().is::<DoesNotCompile>() { Ok(()) } else { same_words(&format!("{:#}", got.root_cause()), error) };
        }
        Err(got) => return Err(got),
    };
    ensure!(!while_building, "the pipeline was built without an error, wanted {error}");
    about(&dataset, case)?;
    elements(&dataset, case)
}

/// Compares the dataset's cardinality, length and element type with those in the case.
fn about(dataset: &Dataset<Value>, case: &Json) -> Result<()> {
    let cardinality = match dataset.cardinality() {
        Cardinality::Finite(count) => count as i64,
        Cardinality::Infinite => -1,
        Cardinality::Unknown => -2,
    };
    ensure!(case["cardinality"] == cardinality, "cardinality {cardinality}, wanted {}", case["cardinality"]);
    match (dataset.len(), &case["len"]) {
        (Ok(length), wanted) => ensure!(*wanted == length, "len {length}, wanted {wanted}"),
        (Err(error), wanted) => ensure!(wanted["message"] == error.to_string(), "len: {error}, wanted {wanted}"),
    }
    let spec = value::spec_from_json(&case["element_spec"])?;
    ensure!(dataset.element_spec() == spec.as_ref(), "elements {:?}, wanted {spec:?}", dataset.element_spec());
    Ok(())
}

fn elements(dataset: &Dataset<Value>, case: &Json) -> Result<()> {
    let wanted = case["elements"].as_array().context("no elements")?;
    let mut iterator = dataset.iter();
    for (index, wanted) in wanted.iter().enumerate() {
        let element = iterator.next().with_context(|| format!("only {index} elements"))?;
        element.with_context(|| format!("element {index}"))?.compare(wanted).with_context(|| format!("element {index}"))?;
    }
    if !case["stopped_after"].is_null() {
        return Ok(());
    }
    match (iterator.next(), &case["error"]) {
        (None, Json::Null) => Ok(()),
        (Some(Err(got)), wanted) if !wanted.is_null() => same_words(&got.to_string(), wanted),
        (got, wanted) => bail!("after {} elements {got:?}, wanted {wanted}", case["elements"].as_array().map_or(0, Vec::len)),
    }
}

/// Checks that a second dataset of the same pipeline can resume at each position of the first, and then returns the same remaining
/// elements.
fn resume(case: &Json, functions: &Functions) -> Result<()> {
    if !case["raised_while"].is_null() {
        return Ok(());
    }
    let build = || pipeline::build(&case["pipeline"], functions);
    let (dataset, other) = (build()?, build()?);
    let limit = case["elements"].as_array().map_or(0, Vec::len);
    for delivered in 0..=limit {
        let mut iterator = dataset.iter();
        iterator.by_ref().take(delivered).try_for_each(|element| element.map(|_| ()))?;
        let saved = iterator.position().to_tensor(&gradlet::cpu())?;
        let resumed = other.iter_from(&Position::from_tensor(&saved)?)?;
        let rest = |elements: gradlet::data::Iter<Value>| -> Result<Vec<String>> {
            elements.take(limit - delivered).map(|element| Ok(text(&element?)?)).collect()
        };
        let (wanted, got) = (rest(iterator)?, rest(resumed)?);
        ensure!(got == wanted, "after {delivered} elements it continues with {got:?} instead of {wanted:?}");
    }
    Ok(())
}

/// Returns an element as text, with all its contents.
fn text(value: &Value) -> gradlet::Result<String> {
    Ok(match value {
        Value::Tensor(tensor) => format!("{} {:?}", tensor.tensor_type(), tensor.bytes()?),
        Value::Dataset(dataset) => format!("{:?}", dataset.iter().map(|element| text(&element?)).collect::<gradlet::Result<Vec<_>>>()?),
        Value::Tuple(parts) => format!("{:?}", parts.iter().map(text).collect::<gradlet::Result<Vec<_>>>()?),
        other => format!("{other:?}"),
    })
}
