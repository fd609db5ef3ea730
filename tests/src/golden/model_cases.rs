//! Cases of TensorFlow Lite's models, in a folder with `models.json`, or with models in `cases.json`. Each case is a call of a model, with
//! the outputs of TensorFlow's interpreter or of TensorFlow Lite Micro's. Where the folder has the results of all operators, a further case
//! returns these too, so no runtime can fuse operators in it.

use crate::golden::Counts;
use crate::golden::case::{Body, Case, Known, Tolerance, Value, elements};
use crate::golden::checks::Checks;
use crate::golden::fixtures::{Folder, text};
use anyhow::{Context, Result, ensure};
use gradlet::tflite::{Model, Rounding};
use gradlet_core::{Eager, Error, Scope, Tensor, ops};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Kernels of the interpreter whose results are wanted, the best ones first. A model may have an operator without a reference kernel.
const KERNELS: [&str; 5] = ["ref", "opt", "default", "tflm", "tflm_f32_scales"];
/// Greatest error of a float, as a fraction of the greatest one of its tensor, or of 1.
const ERROR: f64 = 4e-6;
/// File of a folder that lists models by their names.
const LIST: &str = "models.json";

/// Reads the cases of a folder.
pub fn read(folder: &mut Folder) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let list = folder.json(LIST)?;
    for (file, facts) in list.as_object().into_iter().flatten() {
        let optimized = facts["max_abs_diff_vs_reference"]["tflite_optimized"].as_f64().unwrap_or(0.0);
        let vectors = format!("vectors/{}", Path::new(file).with_extension("safetensors").display());
        for run in 0.. {
            let mut list =
                |prefix: &str| (0..).map_while(|at| array(folder, &vectors, &format!("{prefix}{run}_{at}")).transpose()).collect();
            let (inputs, wanted): (Result<Vec<Value>>, Result<Vec<Value>>) = (list("in"), list("out"));
            let inputs = inputs?;
            if inputs.is_empty() {
                break;
            }
            let call = Call { inputs, wanted: wanted?, results: Vec::new(), rounding: Rounding::TensorFlow };
            cases.push(call.case(folder, file, file, &format!("run{run}"), optimized));
        }
    }
    for case in folder.cases("cases.json")? {
        let Some(file) = case["file"].as_str().filter(|file| file.ends_with(".tflite")) else { continue };
        let (id, vectors) = (text(&case, "id")?, text(&case, "vectors")?);
        for (index, run) in case["runs"].as_array().context("no runs")?.iter().enumerate() {
            let kernels = KERNELS.iter().find(|kernels| run["outputs"].get(**kernels).is_some()).context("no outputs")?;
            let optimized = run["max_abs_diff"]["opt"].as_f64().unwrap_or(0.0);
            let mut list = |keys: &Json| -> Result<Vec<Value>> {
                let keys = keys.as_array().context("no list of keys")?.iter().map(|key| key.as_str().context("the key is not a text"));
                keys.map(|key| array(folder, vectors, key?)?.context("a tensor is missing")).collect()
            };
            let (inputs, wanted) = (list(&run["inputs"])?, list(&run["outputs"][kernels])?);
            let rounding = match *kernels {
                "tflm" => Rounding::Tflm,
                "tflm_f32_scales" => Rounding::TflmF32Scales,
                _ => Rounding::TensorFlow,
            };
            let call = Call { inputs, wanted, results: Vec::new(), rounding };
            let results = if index == 0 { results(folder, &case, vectors, text_at(&run["inputs"][0]))? } else { Vec::new() };
            if !results.is_empty() {
                let call = Call { results, ..call.clone() };
                cases.push(call.case(folder, file, id, "tensors", optimized));
            }
            cases.push(call.case(folder, file, id, &format!("run{index}"), optimized));
        }
    }
    Ok(cases)
}

fn text_at(key: &Json) -> &str {
    key.as_str().unwrap_or_default()
}

/// Returns an array of a file with the name of its key, or `None` if there is none.
fn array(folder: &mut Folder, file: &str, key: &str) -> Result<Option<Value>> {
    if folder.has(file, key)? { folder.value(file, key, key) } else { Ok(None) }
}

/// Returns the results of the operators of the main subgraph for the first call, whose first input has the key `first`.
fn results(folder: &mut Folder, case: &Json, vectors: &str, first: &str) -> Result<Vec<(usize, Value)>> {
    let variant = first.split_once("/in/").map_or("", |(variant, _)| variant);
    let mut results = Vec::new();
    let outputs = case["operators"].as_array().into_iter().flatten().filter_map(|operator| operator["outputs"].as_array()).flatten();
    for index in outputs.filter_map(Json::as_u64) {
        let value = array(folder, vectors, &format!("{variant}/tensors/{index}"))?;
        results.extend(value.map(|value| (index as usize, value)));
    }
    Ok(results)
}

/// A call of a model: the inputs, the wanted outputs, and the wanted results of operators by the number of the tensor.
#[derive(Clone)]
struct Call {
    inputs: Vec<Value>,
    wanted: Vec<Value>,
    results: Vec<(usize, Value)>,
    rounding: Rounding,
}

impl Call {
    /// Returns the case `name` of a model. `optimized` is the error of the interpreter's own fast kernels.
    fn case(self, folder: &Folder, file: &str, model: &str, name: &str, optimized: f64) -> Case {
        let Call { inputs, mut wanted, results, rounding } = self;
        let indices: Vec<usize> = results.iter().map(|(index, _)| *index).collect();
        wanted.extend(results.into_iter().map(|(_, value)| value));
        let slack = |value: &Value| {
            let greatest = elements(value.tensor_type.dtype, &value.bytes).map(|(x, _)| x.abs()).fold(1.0, f64::max);
            let dtype = value.tensor_type.dtype;
            let slack = if dtype.is_float() { (ERROR * greatest).max(optimized) } else { 0.0 };
            Known { bits: Vec::new(), slack: vec![slack; value.bytes.len() / dtype.size()] }
        };
        let known = wanted.iter().map(slack).collect();
        let opened = Model::open(folder.path().join(file)).map_err(|error| error.to_string());
        let model_of_file = opened.and_then(|model| model.with_rounding(rounding).map_err(|error| error.to_string()));
        let body: Body = Arc::new(move |scope: &dyn Scope, inputs: &[Tensor]| {
            let model = model_of_file.as_ref().map_err(|error| Error::message(error.clone()))?;
            called(model, scope, &inputs.iter().collect::<Vec<_>>(), &indices)
        });
        let (id, group) = (format!("{model}/{name}"), format!("model:{model}"));
        Case { id, group, tolerance: Tolerance::default(), inputs, wanted, gradients: 0, known, body: Some(body) }
    }
}

/// Calls a model, and returns its outputs and the results with these numbers.
fn called(model: &Model, scope: &dyn Scope, inputs: &[&Tensor], indices: &[usize]) -> gradlet_core::Result<Vec<Tensor>> {
    let mut seen = HashMap::new();
    let mut outputs = model.call_observed(scope, inputs, |subgraph, index, tensor| {
        if subgraph == 0 {
            seen.insert(index, tensor.clone());
        }
    })?;
    for index in indices {
        outputs.push(seen.get(index).cloned().ok_or_else(|| Error::message(format!("tensor {index} is not computed")))?);
    }
    Ok(outputs)
}

/// Compares the checksums of the results of all operators with those of a folder, eagerly. Returns `None` if it has none.
pub fn checksums(path: &Path) -> Result<Option<Counts>> {
    let mut folder = Folder::open(path)?;
    let mut checks = Checks::default();
    let list = folder.json(LIST)?;
    for (file, facts) in list.as_object().into_iter().flatten() {
        let float = facts["inputs"][0]["dtype"] == "float32";
        for (run, sums) in facts["op_crc"].as_array().into_iter().flatten().enumerate().filter(|_| !float) {
            let vectors = format!("vectors/{}", Path::new(file).with_extension("safetensors").display());
            let mut inputs = Vec::new();
            while let Some(value) = array(&mut folder, &vectors, &format!("in{run}_{}", inputs.len()))? {
                inputs.push(value);
            }
            checks.check(&format!("{file}/run{run}/checksums"), || {
                let sums: Vec<u64> = sums.as_array().into_iter().flatten().filter_map(Json::as_u64).collect();
                let got = computed(&path.join(file), &inputs)?;
                ensure!(got.len() == sums.len(), "{} results, not {}", got.len(), sums.len());
                let wrong = sums.iter().zip(&got).position(|(want, got)| *want != u64::from(*got));
                ensure!(wrong.is_none(), "the result of operator {} is wrong", wrong.unwrap_or(0));
                Ok(())
            });
        }
    }
    Ok((checks.counts != Counts::default()).then_some(checks.counts))
}

/// Returns the CRC-32 of each operator's result.
fn computed(file: &Path, inputs: &[Value]) -> Result<Vec<u32>> {
    let device = ops::portable_cpu();
    let inputs = inputs.iter().map(|value| value.tensor(&device)).collect::<gradlet_core::Result<Vec<Tensor>>>()?;
    let sums = Mutex::new(Vec::new());
    Model::open(file)?.call_observed(&Eager::new(&device), &inputs.iter().collect::<Vec<_>>(), |_, _, tensor| {
        let bytes = tensor.bytes().map(|bytes| bytes.to_vec()).unwrap_or_default();
        sums.lock().unwrap_or_else(PoisonError::into_inner).push(crc32fast::hash(&bytes));
    })?;
    Ok(sums.into_inner().unwrap_or_else(PoisonError::into_inner))
}
