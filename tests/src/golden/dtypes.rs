//! The golden f32 cases, repeated in the other float types.
//!
//! In f64, a case must produce the reference's f32 values within its tolerance. In f16 and bf16, its results are compared with the f32
//! results for the same (rounded) inputs:
//!
//! - The outputs have the bits of the f32 outputs, rounded either once at the end or after each op ([`rounded`]). A single op must
//!   therefore have the bits of gradlet's f32 kernel on the widened inputs, rounded once.
//! - The gradients of a single op have the bits of the f32 gradients, rounded once, because the gradient is computed in f32.
//! - Every element is within `ULPS` of the f32 element, except for the ops in `CANCELS`.

use crate::golden::case::{Body, Case, Known, Tolerance, Value, elements};
use crate::golden::rounded::{jittered, round, rounded};
use crate::golden::runtimes::{self, Traced};
use anyhow::Result;
use gradlet_core::{DType, Device, Scope, Tensor, TensorType, ops};
use half::{bf16, f16};
use std::sync::Arc;

/// Tolerance of a 16-bit element, in units in the last place. It allows a rounding in each of a few ops.
const ULPS: f64 = 4.0;

/// Ops in which rounded numbers nearly cancel each other, with the reason. Their tolerance is larger than [`ULPS`]. It is estimated from
/// [`SAMPLES`] runs, which randomly round every intermediate result to one of the two neighbouring 16-bit floats. The tolerance is twice
/// the largest change of the element in these runs.
const CANCELS: [(&str, &str); 15] = [
    ("batch_normalization", MEAN),
    ("clip_by_norm", "the component of the gradient along x is subtracted"),
    ("fused_batch_norm", MEAN),
    ("gelu", "below 0, 1 is added to almost -1"),
    ("gru", STEPS),
    ("gru_cell", STEPS),
    ("lstm", STEPS),
    ("lstm_cell", STEPS),
    ("reduce_logsumexp", "the largest element is added to a logarithm of opposite sign"),
    ("reduce_std", MEAN),
    ("reduce_variance", MEAN),
    ("sigmoid_xent", "a label is subtracted from a probability"),
    ("simple_rnn", STEPS),
    ("simple_rnn_cell", STEPS),
    ("squared_difference", "rounded differences of both signs are summed if an operand was broadcast"),
];
const MEAN: &str = "a rounded mean, or a multiple of it, is subtracted from elements close to it";
const STEPS: &str = "rounded states and gates repeatedly enter sums of both signs";

/// Ops that round some intermediate f32 results to 16 bits and continue with them. The exact bits of their outputs are therefore not known
/// in advance.
const MIXED: [(&str, &str); 1] = [("keras_batch_norm", "the moving statistics are updated in 16 bits from moments in f32")];

/// Number of runs with random rounding.
const SAMPLES: u64 = 16;

/// Returns the variants of the case in the other float types for which it is meaningful. The kernels of `device` compute the expected
/// results.
pub fn variants(device: &Device, case: &Case) -> Result<Vec<Case>> {
    let Some(body) = &case.body else { return Ok(Vec::new()) };
    let floats = case.inputs.iter().any(|input| input.tensor_type.dtype == DType::F32);
    let Some(op) = case.group.strip_prefix("op:") else { return Ok(Vec::new()) };
    // A cast tests specific element types. The rounded ends of a range would change its shape.
    if !floats || ["cast", "range_linspace"].contains(&op) {
        return Ok(Vec::new());
    }
    let mut variants = vec![wide(device, case, body)?];
    // Names of losses start with a capital letter. Keras computes losses in f32, because 16 bits cannot hold their constants.
    if !op.starts_with(char::is_uppercase) {
        variants.extend([narrow(device, case, body, DType::F16)?, narrow(device, case, body, DType::Bf16)?]);
    }
    Ok(variants)
}

fn wide(device: &Device, case: &Case, body: &Body) -> Result<Case> {
    let convert = |values: &[Value]| values.iter().map(|value| cast(value, DType::F64)).collect::<Result<Vec<_>>>();
    let mut wide = variant(case, body, DType::F64, convert(&case.inputs)?, convert(&case.wanted)?, case.tolerance);
    let outputs = runtimes::eager(device, &wide, body)?;
    for (want, got) in wide.wanted.iter_mut().zip(outputs) {
        if want.tensor_type.dtype == DType::F64 && want.bytes.len() == got.len() {
            let elements = want.bytes.chunks_exact_mut(8).zip(got.chunks_exact(8));
            elements.filter(|(want, got)| overflows(want, got)).for_each(|(want, got)| want.copy_from_slice(got));
        }
    }
    Ok(wide)
}

/// True if the reference value `want` is infinite only because it overflowed f32: the f64 result `got` is finite.
fn overflows(want: &[u8], got: &[u8]) -> bool {
    let [want, got] = [want, got].map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    want.is_infinite() && got.is_finite() && got.abs() > f64::from(f32::MAX) && want.signum() == got.signum()
}

fn narrow(device: &Device, case: &Case, body: &Body, dtype: DType) -> Result<Case> {
    let op = case.group.trim_start_matches("op:");
    let inputs = case.inputs.iter().map(|value| cast(value, dtype)).collect::<Result<Vec<_>>>()?;
    let plain = variant(case, body, DType::F32, back(&inputs, &case.inputs)?, case.wanted.clone(), Tolerance::default());
    let on = |device: &Device| -> Result<Vec<Value>> {
        let outputs = runtimes::eager(device, &plain, body)?;
        Ok(plain.wanted.iter().zip(outputs).map(|(value, bytes)| Value { bytes, ..value.clone() }).collect())
    };
    let narrow = |values: &[Value]| values.iter().map(|value| narrowed(value, dtype)).collect::<Vec<_>>();
    let exact = on(device)?;
    let (wanted, op_by_op) = (narrow(&exact), narrow(&on(&rounded(device, dtype))?));
    let outputs = wanted.len() - case.gradients;
    let alone = case.gradients > 0 && computes_one_op(device, &plain, body, outputs)?;
    let bits = |index: usize| match MIXED.iter().any(|(mixed, _)| *mixed == op) {
        true => Vec::new(),
        false if index < outputs => vec![wanted[index].bytes.clone(), op_by_op[index].bytes.clone()],
        false => alone.then(|| wanted[index].bytes.clone()).into_iter().collect(),
    };
    let mut known: Vec<Known> = (0..wanted.len()).map(|index| Known { bits: bits(index), slack: Vec::new() }).collect();
    if CANCELS.iter().any(|(cancels, _)| *cancels == op) {
        for seed in 0..SAMPLES {
            let moved = on(&jittered(device, dtype, seed))?;
            known.iter_mut().zip(exact.iter().zip(&moved)).for_each(|(known, (exact, moved))| widen(&mut known.slack, exact, moved));
        }
    }
    let tolerance = Tolerance { ulps: ULPS, ..Tolerance::default() };
    Ok(Case { known, ..variant(case, body, dtype, inputs, wanted, tolerance) })
}

/// True if a single op computes the first `outputs` results of `body`, which are the outputs. The results after them are gradients, and do
/// not count. Reshapes do not count as ops.
fn computes_one_op(device: &Device, plain: &Case, body: &Body, outputs: usize) -> Result<bool> {
    let whole = body.clone();
    let forward: Body = Arc::new(move |scope: &dyn Scope, tensors: &[Tensor]| {
        let mut results = whole(scope, tensors)?;
        results.truncate(outputs);
        Ok(results)
    });
    // A body that cannot be traced is not a single op.
    let Ok(traced) = Traced::on(device, plain, &forward) else { return Ok(false) };
    let mut nodes = traced.graph().nodes.iter().filter(|node| node.op.def.code != ops::code::reshape);
    Ok(nodes.next().is_some_and(|node| node.bodies.is_empty()) && nodes.next().is_none())
}

/// Increases the slack of each element to at least twice its change from `exact` to `moved`.
fn widen(slack: &mut Vec<f64>, exact: &Value, moved: &Value) {
    let dtype = exact.tensor_type.dtype;
    let far = elements(dtype, &exact.bytes).zip(elements(dtype, &moved.bytes)).map(|(exact, moved)| (moved.0 - exact.0).abs());
    slack.resize(exact.bytes.len() / dtype.size(), 0.0);
    slack.iter_mut().zip(far).filter(|(_, far)| far.is_finite()).for_each(|(slack, far)| *slack = slack.max(2.0 * far));
}

/// Rounds an f32 value to a 16-bit type. Returns any other value unchanged.
fn narrowed(value: &Value, dtype: DType) -> Value {
    if value.tensor_type.dtype != DType::F32 {
        return value.clone();
    }
    let numbers = value.bytes.chunks_exact(4).map(|bytes| round(dtype, f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])));
    let bits = |x: f32| if dtype == DType::F16 { f16::from_f32(x).to_bits() } else { bf16::from_f32(x).to_bits() };
    let bytes = numbers.flat_map(|x| bits(x).to_le_bytes()).collect();
    Value { name: value.name.clone(), tensor_type: TensorType::new(dtype, value.tensor_type.shape), bytes }
}

fn variant(case: &Case, body: &Body, dtype: DType, inputs: Vec<Value>, wanted: Vec<Value>, tolerance: Tolerance) -> Case {
    let (id, group, body) = (format!("{}@{dtype}", case.id), format!("{}@{dtype}", case.group), Some(body.clone()));
    Case { id, group, tolerance, inputs, wanted, gradients: case.gradients, known: Vec::new(), body }
}

/// Casts `values` to the element types of `originals`.
fn back(values: &[Value], originals: &[Value]) -> Result<Vec<Value>> {
    values.iter().zip(originals).map(|(value, original)| cast(value, original.tensor_type.dtype)).collect()
}

/// Casts a float value to `dtype`. Returns any other value unchanged.
fn cast(value: &Value, dtype: DType) -> Result<Value> {
    if !value.tensor_type.dtype.is_float() {
        return Ok(value.clone());
    }
    let tensor: Tensor = value.tensor(&ops::portable_cpu())?.cast(dtype)?;
    let tensor_type = TensorType::new(dtype, *tensor.shape());
    Ok(Value { name: value.name.clone(), tensor_type, bytes: runtimes::tensor_bytes(&tensor)? })
}
