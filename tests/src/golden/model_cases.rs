//! Golden vectors of TensorFlow Lite's models, in a folder with `models.json`, or with models in `cases.json`. A case names a file, and
//! tensors with inputs and with the outputs of TensorFlow's interpreter, perhaps also with the results of all operators.

use crate::golden::case::{Tolerance, Value, compare};
use crate::golden::checks::{Checks, json};
use crate::golden::fixtures::{tensors, text};
use anyhow::{Context, Result, bail, ensure};
use gradlet::tflite::{Model, TensorInfo};
use gradlet::{DType, Device, Eager, Tensor, ops};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::Path;

/// Kernels of the interpreter whose results are wanted, the best ones first. A model may have an operator without a reference kernel.
const KERNELS: [&str; 3] = ["ref", "opt", "default"];
/// Greatest error of a float, as a fraction of the greatest one of its tensor, or of 1.
const ERROR: f64 = 4e-6;

/// Tensors of a file by name.
type Arrays = HashMap<String, Tensor>;

/// True if the folder has cases of models.
pub fn are_in(folder: &Path) -> bool {
    folder.join("models.json").exists() || listed(folder).is_ok_and(|cases| !cases.is_empty())
}

/// Returns the cases of `cases.json` that name a model.
fn listed(folder: &Path) -> Result<Vec<Json>> {
    let index = json(folder, "cases.json")?;
    let cases = index["cases"].as_array().cloned().unwrap_or_default();
    Ok(cases.into_iter().filter(|case| case["file"].as_str().is_some_and(|file| file.ends_with(".tflite"))).collect())
}

/// Runs all cases of a folder.
pub fn run(folder: &Path, checks: &mut Checks) -> Result<()> {
    if folder.join("models.json").exists() {
        let index = json(folder, "models.json")?;
        for (file, _) in index.as_object().context("models.json is not an object")? {
            let stem = Path::new(file).with_extension("safetensors");
            let arrays = tensors(&folder.join("vectors").join(stem))?;
            check(checks, file, &folder.join(file), || numbered_runs(&arrays));
        }
        return Ok(());
    }
    for case in listed(folder)? {
        let arrays = tensors(&folder.join(text(&case, "vectors")?))?;
        check(checks, text(&case, "id")?, &folder.join(text(&case, "file")?), || listed_runs(&case, &arrays));
    }
    Ok(())
}

/// A call of a model: the inputs, the wanted outputs, and the wanted results of operators by the number of the tensor.
struct Call<'a> {
    inputs: Vec<&'a Tensor>,
    outputs: Vec<&'a Tensor>,
    results: HashMap<usize, &'a Tensor>,
}

/// Returns the calls of tensors named `in0_1` and `out0_1`: the numbers of the call and of the input or output.
fn numbered_runs(arrays: &Arrays) -> Result<Vec<Call<'_>>> {
    let list = |prefix: String| (0..).map_while(|index| arrays.get(&format!("{prefix}_{index}"))).collect::<Vec<_>>();
    let call = |run: usize| Call { inputs: list(format!("in{run}")), outputs: list(format!("out{run}")), results: HashMap::new() };
    Ok((0..).map(call).take_while(|call| !call.inputs.is_empty()).collect())
}

/// Returns the calls of a case of `cases.json`.
fn listed_runs<'a>(case: &Json, arrays: &'a Arrays) -> Result<Vec<Call<'a>>> {
    let array = |key: &Json| {
        let key = key.as_str().context("the key of a tensor is not a text")?;
        arrays.get(key).with_context(|| format!("there is no tensor {key:?}"))
    };
    let list = |keys: &Json| keys.as_array().context("no list of keys")?.iter().map(array).collect::<Result<Vec<_>>>();
    let call = |(index, run): (usize, &Json)| {
        let best = KERNELS.iter().find_map(|kernels| run["outputs"].get(kernels)).context("no outputs")?;
        let first = run["inputs"][0].as_str().unwrap_or_default();
        let variant = first.split_once("/in/").map_or("", |(variant, _)| variant);
        let prefix = format!("{variant}/tensors/");
        let result = |(key, tensor): (&String, &'a Tensor)| Some((key.strip_prefix(&prefix)?.parse().ok()?, tensor));
        let results = if index == 0 { arrays.iter().filter_map(result).collect() } else { HashMap::new() };
        Ok(Call { inputs: list(&run["inputs"])?, outputs: list(best)?, results })
    };
    case["runs"].as_array().context("no runs")?.iter().enumerate().map(call).collect()
}

/// Checks the calls of a model, unless it has quantized tensors, which are not supported yet.
fn check<'a>(checks: &mut Checks, name: &str, file: &Path, calls: impl FnOnce() -> Result<Vec<Call<'a>>>) {
    let unsupported = Model::open(file).map(|model| model.unsupported()).unwrap_or_default();
    if !unsupported.is_empty() && unsupported.iter().all(|one| one.reason.ends_with("for quantized tensors")) {
        checks.counts.skipped += 1;
        return;
    }
    checks.check(name, || {
        let (model, calls) = (Model::open(file)?, calls()?);
        ensure!(!calls.is_empty(), "there are no calls");
        calls.iter().enumerate().try_for_each(|(run, call)| problems(&model, call).with_context(|| format!("run {run}")))
    });
}

/// Runs a call eagerly and compiled, with portable and with fast kernels.
fn problems(model: &Model, call: &Call<'_>) -> Result<()> {
    for (info, tensor) in model.inputs().iter().zip(&call.inputs).chain(model.outputs().iter().zip(&call.outputs)) {
        ensure!(fits(info, tensor), "{info:?} is not {}", tensor.tensor_type());
    }
    let portable = ops::portable_cpu();
    let mut lines = Vec::new();
    let bits = eager(model, call, &portable, &mut lines)?;
    let again = compiled(model, call, &portable)?;
    if bits != again {
        lines.push("compiled: the bits differ from those of eager execution".into());
    }
    lines.extend(compare_all(&call.outputs, &compiled(model, call, &gradlet::cpu())?, "with fast kernels"));
    if lines.is_empty() { Ok(()) } else { bail!(lines.join("\n  ")) }
}

fn fits(info: &TensorInfo, tensor: &Tensor) -> bool {
    let same = info.dims.iter().zip(tensor.dims()).all(|(dim, got)| dim.is_none_or(|dim| dim == *got));
    info.dtype == Some(tensor.dtype()) && info.dims.len() == tensor.dims().len() && same
}

fn on(device: &Device, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    inputs.iter().map(|input| Ok(Tensor::from_bytes(device, input.tensor_type(), &input.bytes()?)?)).collect()
}

/// Returns the bytes of the outputs. Adds a line for each wrong tensor to `lines`.
fn eager(model: &Model, call: &Call<'_>, device: &Device, lines: &mut Vec<String>) -> Result<Vec<Vec<u8>>> {
    let inputs = on(device, &call.inputs)?;
    let mut seen = HashMap::new();
    let observe = |subgraph: usize, index: usize, tensor: &Tensor| {
        if subgraph == 0 {
            seen.insert(index, tensor.clone());
        }
    };
    let outputs = model.call_observed(&Eager::new(device), &inputs.iter().collect::<Vec<_>>(), observe)?;
    let mut results: Vec<(&usize, &&Tensor)> = call.results.iter().collect();
    results.sort_by_key(|(index, _)| **index);
    for (index, want) in results {
        match seen.get(index) {
            Some(got) if got.tensor_type() == want.tensor_type() => {
                lines.extend(compare_all(&[want], &[got.bytes()?.to_vec()], &format!("tensor {index}")));
            }
            Some(got) => lines.push(format!("tensor {index}: {}, not {}", got.tensor_type(), want.tensor_type())),
            None => (),
        }
    }
    let bytes = outputs.iter().map(|output| Ok(output.bytes()?.to_vec())).collect::<Result<Vec<_>>>()?;
    let types = outputs.iter().zip(&call.outputs).enumerate().filter(|(_, (got, want))| got.tensor_type() != want.tensor_type());
    lines.extend(types.map(|(at, (got, want))| format!("output {at}: {}, not {}", got.tensor_type(), want.tensor_type())));
    lines.extend(compare_all(&call.outputs, &bytes, "op by op"));
    Ok(bytes)
}

fn compiled(model: &Model, call: &Call<'_>, device: &Device) -> Result<Vec<Vec<u8>>> {
    let outputs = model.function()?.call(&Eager::new(device), on(device, &call.inputs)?)?;
    outputs.iter().map(|output| Ok(output.bytes()?.to_vec())).collect()
}

/// Compares tensors with the wanted ones. Returns a line for each that is wrong.
fn compare_all(wanted: &[&Tensor], got: &[Vec<u8>], how: &str) -> Vec<String> {
    if wanted.len() != got.len() {
        return vec![format!("{how}: {} outputs, not {}", got.len(), wanted.len())];
    }
    let line = |(at, (want, got)): (usize, (&&Tensor, &Vec<u8>))| {
        let bytes = want.bytes().ok()?.to_vec();
        let greatest =
            if want.dtype() == DType::F32 { want.to_vec::<f32>().ok()?.into_iter().fold(1.0, |a: f32, b| a.max(b.abs())) } else { 1.0 };
        let tolerance = Tolerance { atol: ERROR * f64::from(greatest), ..Tolerance::default() };
        let want = Value { name: format!("{how}: output {at}"), tensor_type: want.tensor_type(), bytes };
        compare(&[want], std::slice::from_ref(got), tolerance).pop()
    };
    wanted.iter().zip(got).enumerate().filter_map(line).collect()
}
