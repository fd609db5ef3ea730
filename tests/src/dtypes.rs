//! The golden cases of f32 once more in the other float types.
//!
//! In f64 a case must give the reference's f32 values within its tolerance. In f16 and bf16 it must give what f32 gives
//! for the same (rounded) inputs, but for a rounding at every op on the way.

use crate::case::{Body, Case, Tolerance, Value};
use crate::runtimes;
use anyhow::Result;
use gradlet_core::{DType, Tensor, TensorType, ops};
use half::{bf16, f16};

/// How many units of the narrow type's precision a result may be off, relative to the largest element beside it: one for
/// each rounding on the way, and more where a small difference of large numbers is scaled up again.
const ROUNDINGS: f64 = 32.0;

/// The case in every other float type that it makes sense in.
pub fn variants(case: &Case) -> Result<Vec<Case>> {
    let Some(body) = &case.body else { return Ok(Vec::new()) };
    let floats = case.inputs.iter().any(|input| input.tensor_type.dtype == DType::F32);
    let Some(op) = case.group.strip_prefix("op:") else { return Ok(Vec::new()) };
    // The element types of a cast are what it is about; of a range, rounded ends change the shape.
    if !floats || ["cast", "range_linspace"].contains(&op) {
        return Ok(Vec::new());
    }
    let mut variants = vec![wide(case, body)?];
    // Losses have capital letters, and constants that 16 bits cannot hold: Keras computes them in f32.
    if !op.starts_with(char::is_uppercase) {
        variants.extend([narrow(case, body, DType::F16)?, narrow(case, body, DType::Bf16)?]);
    }
    Ok(variants)
}

fn wide(case: &Case, body: &Body) -> Result<Case> {
    let convert = |values: &[Value]| values.iter().map(|value| cast(value, DType::F64)).collect::<Result<Vec<_>>>();
    let mut wide = variant(case, body, DType::F64, convert(&case.inputs)?, convert(&case.wanted)?, case.tolerance);
    let outputs = runtimes::eager(&wide, body)?;
    for (want, got) in wide.wanted.iter_mut().zip(outputs) {
        if want.tensor_type.dtype == DType::F64 && want.bytes.len() == got.len() {
            let elements = want.bytes.chunks_exact_mut(8).zip(got.chunks_exact(8));
            elements.filter(|(want, got)| overflows(want, got)).for_each(|(want, got)| want.copy_from_slice(got));
        }
    }
    Ok(wide)
}

/// True if the reference's infinity is a number that f32 has none for.
fn overflows(want: &[u8], got: &[u8]) -> bool {
    let [want, got] = [want, got].map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    want.is_infinite() && got.is_finite() && got.abs() > f64::from(f32::MAX) && want.signum() == got.signum()
}

fn narrow(case: &Case, body: &Body, dtype: DType) -> Result<Case> {
    let convert = |values: &[Value], dtype| values.iter().map(|value| cast(value, dtype)).collect::<Result<Vec<_>>>();
    let inputs = convert(&case.inputs, dtype)?;
    let rounded = variant(case, body, DType::F32, back(&inputs, &case.inputs)?, Vec::new(), Tolerance::default());
    let mut wanted = case.wanted.clone();
    for (value, bytes) in wanted.iter_mut().zip(runtimes::eager(&rounded, body)?) {
        value.bytes = bytes;
    }
    let precision = f64::from(if dtype == DType::F16 { f16::EPSILON.to_f32() } else { bf16::EPSILON.to_f32() });
    let wanted = convert(&wanted, dtype)?;
    let largest = wanted.iter().flat_map(finite).fold(1.0, f64::max);
    let tolerance = Tolerance { rtol: precision * ROUNDINGS, atol: precision * ROUNDINGS * largest };
    Ok(variant(case, body, dtype, inputs, wanted, tolerance))
}

fn variant(case: &Case, body: &Body, dtype: DType, inputs: Vec<Value>, wanted: Vec<Value>, tolerance: Tolerance) -> Case {
    let (id, group, body) = (format!("{}@{dtype}", case.id), format!("{}@{dtype}", case.group), Some(body.clone()));
    Case { id, group, tolerance, inputs, wanted, body }
}

/// `values` in the types that `originals` have.
fn back(values: &[Value], originals: &[Value]) -> Result<Vec<Value>> {
    values.iter().zip(originals).map(|(value, original)| cast(value, original.tensor_type.dtype)).collect()
}

/// A float value as `dtype`; anything else as it is.
fn cast(value: &Value, dtype: DType) -> Result<Value> {
    if !value.tensor_type.dtype.is_float() {
        return Ok(value.clone());
    }
    let tensor: Tensor = value.tensor(&ops::portable_cpu())?.cast(dtype)?;
    let tensor_type = TensorType::new(dtype, *tensor.shape());
    Ok(Value { name: value.name.clone(), tensor_type, bytes: runtimes::tensor_bytes(&tensor)? })
}

fn finite(value: &Value) -> Vec<f64> {
    let wide = cast(value, DType::F64).map(|value| value.bytes).unwrap_or_default();
    let numbers = wide.chunks_exact(8).filter_map(|bytes| Some(f64::from_le_bytes(bytes.try_into().ok()?).abs()));
    if value.tensor_type.dtype.is_float() { numbers.filter(|number| number.is_finite()).collect() } else { Vec::new() }
}
