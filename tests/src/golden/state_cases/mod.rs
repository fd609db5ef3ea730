//! Cases of optimizers and metrics, which have state, over several steps. Also cases of learning-rate schedules.
//!
//! All steps of a case are one function. Its inputs are the gradients, batches or numbers of every step. Its outputs are the results and
//! the state after each step.

mod metrics;
mod optimizers;
mod schedules;

pub use metrics::read as metrics;
pub use optimizers::read as optimizers;
pub use schedules::read as schedules;

use crate::golden::case::{Case, Tolerance, Value};
use crate::golden::fixtures::{Folder, number, text};
use anyhow::{Context, Result};
use gradlet_core::{DType, Shape, TensorType};
use serde_json::Value as Json;

/// Reads the cases of a file. `fill` sets the group of each case and, if the suite supports it, its inputs, outputs and body.
fn read_file(folder: &mut Folder, file: &str, fill: impl Fn(&mut Folder, &Json, &mut Case) -> Result<()>) -> Result<Vec<Case>> {
    let kind = file.trim_end_matches(".json");
    let cases = folder.cases(file)?;
    let read = |json: &Json| {
        let id = format!("{kind}/{}", text(json, "id")?);
        let (inputs, wanted, tolerance) = (Vec::new(), Vec::new(), Tolerance::read(json));
        let (gradients, known) = (0, Vec::new());
        let mut case = Case { id, group: String::new(), tolerance, inputs, wanted, gradients, known, body: None };
        fill(folder, json, &mut case).with_context(|| format!("case {}", case.id))?;
        Ok(case)
    };
    cases.iter().map(read).collect()
}

/// Reads a value. Fails if gradlet does not support its element type.
fn value(folder: &mut Folder, json: &Json, key: &Json, name: String) -> Result<Value> {
    let key = key.as_str().context("the key of a tensor is not a text")?;
    folder.value(text(json, "file")?, key, &name)?.with_context(|| format!("gradlet does not support the element type of {key}"))
}

/// Reads a number, or a list of numbers, as f32.
fn floats(name: String, json: &Json) -> Result<Value> {
    let (numbers, dims) = match json.as_array() {
        Some(list) => (list.iter().map(number).collect(), vec![list.len() as u32]),
        None => (number(json).map(|number| vec![number]), Vec::new()),
    };
    let numbers: Vec<f64> = numbers.with_context(|| format!("{name} is neither a number nor a list of numbers"))?;
    let bytes = numbers.iter().flat_map(|&number| (number as f32).to_le_bytes()).collect();
    Ok(Value { name, tensor_type: TensorType::new(DType::F32, Shape::new(&dims)?), bytes })
}

/// Options of a case. An option that is null counts as missing.
struct Given<'a>(&'a Json);

impl Given<'_> {
    fn get(&self, option: &str) -> Option<&Json> {
        self.0.get(option).filter(|value| !value.is_null())
    }

    fn number(&self, option: &str) -> Option<f64> {
        self.get(option).and_then(number)
    }

    fn flag(&self, option: &str) -> bool {
        self.get(option).and_then(Json::as_bool).unwrap_or(false)
    }

    /// Returns a list of numbers. A single number is a list of one.
    fn numbers(&self, option: &str) -> Option<Vec<f64>> {
        let value = self.get(option)?;
        value.as_array().map_or_else(|| number(value).map(|number| vec![number]), |list| list.iter().map(number).collect())
    }

    /// Fails with the name of the first option that is not in `known`.
    fn check(&self, known: &[&str]) -> Result<(), String> {
        let given = self.0.as_object().into_iter().flatten();
        let unknown = given.filter(|(_, value)| !value.is_null()).find(|(option, _)| !known.contains(&option.as_str()));
        unknown.map_or(Ok(()), |(option, _)| Err(option.clone()))
    }
}
