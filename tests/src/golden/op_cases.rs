//! Cases of ops, layers and losses: `cases.json`.
//!
//! The inputs of a case are the op's inputs, then a cotangent for each output. Its outputs are the op's outputs, then the gradients.
//! Forward and backward are one function.

use crate::golden::case::{Body, Case, Tolerance, Value};
use crate::golden::dropout_case;
use crate::golden::fixtures::{Folder, members, text};
use crate::golden::ops_table::{self, Call, Row};
use anyhow::{Context, Result};
use gradlet_core::{Differentiate, Scope, Tensor};
use serde_json::Value as Json;
use std::sync::Arc;

/// Reads the cases of `cases.json`.
pub fn read(folder: &mut Folder) -> Result<Vec<Case>> {
    let mut cases = folder.cases("cases.json")?;
    // The others are calls of models.
    cases.retain(|case| !case["file"].as_str().is_some_and(|file| file.ends_with(".tflite")));
    cases.iter().map(|json| read_case(folder, json).with_context(|| format!("case {}", json["id"]))).collect()
}

fn read_case(folder: &mut Folder, json: &Json) -> Result<Case> {
    let (file, op) = (text(json, "file")?, text(json, "op")?);
    let mut case = Case {
        id: text(json, "id")?.into(),
        group: format!("op:{op}"),
        tolerance: Tolerance::read(json),
        inputs: Vec::new(),
        wanted: Vec::new(),
        gradients: 0,
        known: Vec::new(),
        body: None,
    };
    if op == "dropout" {
        dropout_case::read(folder, json, &mut case)?;
        return Ok(case);
    }
    let mut values = |list: &str| -> Result<Option<Vec<Value>>> {
        // `{"none": true}` stands for a gradient that is `None` in TensorFlow.
        let given = members(json, list).filter(|(_, entry)| entry.get("none").is_none());
        given.map(|(name, entry)| folder.value(file, text(entry, "key")?, name)).collect()
    };
    let (inputs, outputs) = (values("inputs")?, values("outputs")?);
    let (cotangents, gradients) = (values("cotangents")?, values("grads")?);
    let (Some(inputs), Some(outputs), Some(cotangents), Some(gradients)) = (inputs, outputs, cotangents, gradients) else {
        case.group = format!("dtype:{op}");
        return Ok(case);
    };
    match ops_table::find(op, &json["attrs"]) {
        Ok(row) => case.body = Some(body(row, json["attrs"].clone(), &inputs, &outputs, &cotangents, &gradients)),
        Err(group) => case.group = format!("op:{group}"),
    }
    let renamed = |kind: &str, values: Vec<Value>| -> Vec<Value> {
        values.into_iter().map(|value| Value { name: format!("{kind} {}", value.name), ..value }).collect()
    };
    case.gradients = gradients.len();
    case.inputs = [inputs, renamed("cotangent", cotangents)].concat();
    case.wanted = [renamed("output", outputs), renamed("gradient", gradients)].concat();
    Ok(case)
}

/// Creates the body of a case: the forward function of a row, with a tape around it if there are gradients.
fn body(row: &'static Row, attributes: Json, inputs: &[Value], outputs: &[Value], cotangents: &[Value], gradients: &[Value]) -> Body {
    let names = |values: &[Value]| -> Vec<String> { values.iter().map(|value| value.name.clone()).collect() };
    let inputs = names(inputs);
    // Index of the output of each cotangent, and of the input of each gradient.
    let place = |names: &[String], name: &String| names.iter().position(|other| other == name).unwrap_or(0);
    let outputs = names(outputs);
    let seeded: Vec<usize> = names(cotangents).iter().map(|name| place(&outputs, name)).collect();
    let watched: Vec<usize> = names(gradients).iter().map(|name| place(&inputs, name)).collect();
    Arc::new(move |scope: &dyn Scope, tensors: &[Tensor]| {
        let (given, seeds) = tensors.split_at(inputs.len());
        let mut given = given.to_vec();
        let call = |given: &[Tensor]| (row.forward)(&Call { names: &inputs, tensors: given, attributes: &attributes });
        if watched.is_empty() {
            return call(&given);
        }
        let tape = scope.tape();
        for &index in &watched {
            given[index] = tape.watch(&given[index])?;
        }
        let mut results = call(&given)?;
        let targets: Vec<_> = seeded.iter().zip(seeds).filter_map(|(&index, seed)| Some((results.get(index)?, Some(seed)))).collect();
        let sources: Vec<Tensor> = watched.iter().map(|&index| given[index].clone()).collect();
        let found = tape.gradient_of(&targets, sources.as_slice())?;
        for (source, gradient) in sources.iter().zip(found) {
            results.push(gradient.map_or_else(|| Tensor::zeros(&scope.device(), source.tensor_type()), Ok)?);
        }
        Ok(results)
    })
}
