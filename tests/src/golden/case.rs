//! A golden case: a function of tensors, with inputs and with the outputs that a reference computed. Also the comparison of outputs.

use gradlet_core::{DType, Device, Result, Scope, Tensor, TensorType};
use serde_json::Value as Json;
use std::sync::Arc;

/// A named tensor as bytes.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name of the tensor in the case.
    pub name: String,
    /// Element type and shape.
    pub tensor_type: TensorType,
    /// Elements in row-major order, little-endian.
    pub bytes: Vec<u8>,
}

impl Value {
    /// Creates an f32 scalar.
    pub fn scalar(name: String, value: f32) -> Value {
        let tensor_type = TensorType::new(DType::F32, gradlet_core::Shape::SCALAR);
        Value { name, tensor_type, bytes: value.to_le_bytes().to_vec() }
    }

    /// Creates a tensor with this value on `device`.
    pub fn tensor(&self, device: &Device) -> Result<Tensor> {
        Tensor::from_bytes(device, self.tensor_type, &self.bytes)
    }
}

/// Tolerance of a float: `|got - want| <= atol + rtol * |want| + ulps * ulp(want)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// Absolute tolerance.
    pub atol: f64,
    /// Relative tolerance, as a fraction of the expected element.
    pub rtol: f64,
    /// Tolerance in units in the last place of the expected element.
    pub ulps: f64,
}

impl Tolerance {
    /// Reads the field `tolerance` of a case. Missing fields are zero.
    pub fn read(case: &Json) -> Tolerance {
        let part = |name| case.get("tolerance").and_then(|tolerance| tolerance.get(name)).and_then(Json::as_f64).unwrap_or(0.0);
        Tolerance { atol: part("atol"), rtol: part("rtol"), ulps: 0.0 }
    }
}

/// Function of a case. It works with the tensors of any scope, so that every runtime can run it.
pub type Body = Arc<dyn Fn(&dyn Scope, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;

/// A golden case: a function with inputs and expected outputs.
#[derive(Clone)]
pub struct Case {
    /// Name of the case, unique in its folder.
    pub id: String,
    /// Group of the case in the list of skips and in the summary, such as `op:matmul` or `optimizer:Adam`.
    pub group: String,
    /// Tolerance of the outputs.
    pub tolerance: Tolerance,
    /// Arguments of the body.
    pub inputs: Vec<Value>,
    /// Expected results of the body.
    pub wanted: Vec<Value>,
    /// Number of gradients, which are the last values of `wanted`.
    pub gradients: usize,
    /// Further constraints on the outputs: one for each output, or empty.
    pub known: Vec<Known>,
    /// Function of the case, or `None` if the suite does not support it yet.
    pub body: Option<Body>,
}

/// Further knowledge about an output, beside its expected value: its exact bits, or a larger tolerance.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Alternatives for the exact bytes of the output. If empty, any bytes are allowed.
    pub bits: Vec<Vec<u8>>,
    /// Error that is allowed for each element, in addition to the tolerance. If empty, no additional error is allowed.
    pub slack: Vec<f64>,
}

impl Known {
    /// Compares the output `name` with [`Known::bits`]. Returns `None` if it equals one of these alternatives, or if there are none.
    /// Otherwise, returns a description of the difference.
    pub fn differs(&self, name: &str, dtype: DType, got: &[u8]) -> Option<String> {
        let right = |bits: &Vec<u8>| others(dtype, bits, got).next().is_none() && bits.len() == got.len();
        let nearest = self.bits.iter().min_by_key(|bits| others(dtype, bits, got).count())?;
        if self.bits.iter().any(right) {
            return None;
        }
        let first = others(dtype, nearest, got).next();
        let first = first.map_or(String::new(), |(index, right, got)| format!(": [{index}] is {got} instead of {right}"));
        Some(format!("{name}: {} elements differ from the rounded f32 elements{first}", others(dtype, nearest, got).count()))
    }
}

/// Returns each element whose bits differ: its index, its correct value, and its actual value. Two NaNs are equal.
fn others<'b>(dtype: DType, right: &'b [u8], got: &'b [u8]) -> impl Iterator<Item = (usize, f64, f64)> + 'b {
    let pairs = elements(dtype, right).zip(elements(dtype, got)).enumerate();
    pairs.filter(|(_, (a, b))| a.1 != b.1 && !(a.0.is_nan() && b.0.is_nan())).map(|(index, (a, b))| (index, a.0, b.0))
}

/// Compares outputs with the reference's. Returns a line for each tensor that is wrong, and no lines if all are correct.
pub fn compare(wanted: &[Value], got: &[Vec<u8>], tolerance: Tolerance) -> Vec<String> {
    compare_known(wanted, &[], got, tolerance)
}

/// Like [`compare`], with the additional slack in `known`.
pub fn compare_known(wanted: &[Value], known: &[Known], got: &[Vec<u8>], tolerance: Tolerance) -> Vec<String> {
    if wanted.len() != got.len() {
        return vec![format!("{} outputs, not {}", got.len(), wanted.len())];
    }
    let slack = |index: usize| known.get(index).map_or(&[][..], |known| &known.slack);
    wanted.iter().zip(got).enumerate().filter_map(|(index, (want, got))| differs(want, got, tolerance, slack(index))).collect()
}

/// Compares outputs bit for bit with those of eager execution. Returns a line for each tensor that differs. Any two NaNs are equal.
pub fn compare_bits(wanted: &[Value], eager: &[Vec<u8>], got: &[Vec<u8>]) -> Vec<String> {
    let different = |(want, (eager, got)): (&Value, (&Vec<u8>, &Vec<u8>))| {
        let count = others(want.tensor_type.dtype, eager, got).count();
        (count > 0 || eager.len() != got.len()).then(|| format!("{}: {count} elements do not have the bits of eager execution", want.name))
    };
    wanted.iter().zip(eager.iter().zip(got)).filter_map(different).collect()
}

fn differs(want: &Value, got: &[u8], tolerance: Tolerance, slack: &[f64]) -> Option<String> {
    if want.bytes.len() != got.len() {
        return Some(format!("{}: {} bytes, not the {} of {}", want.name, got.len(), want.bytes.len(), want.tensor_type));
    }
    let dtype = want.tensor_type.dtype;
    let allowed = |index: usize, want: f64| allowed(dtype, tolerance, want) + slack.get(index).copied().unwrap_or(0.0);
    let worst = elements(dtype, &want.bytes)
        .zip(elements(dtype, got))
        .enumerate()
        .filter(|(index, (want, got))| error(want.0, got.0) > allowed(*index, want.0) || !dtype.is_float() && want.1 != got.1)
        .max_by(|(_, a), (_, b)| error(a.0.0, a.1.0).total_cmp(&error(b.0.0, b.1.0)));
    worst.map(|(index, (want_at, got_at))| {
        let (error, allowed) = (error(want_at.0, got_at.0), allowed(index, want_at.0));
        format!("{}[{index}]: {} instead of {}: off by {error:.3e}, allowed {allowed:.3e}", want.name, got_at.0, want_at.0)
    })
}

/// Returns the absolute difference of two values. It is 0 for equal values, including two NaNs or equal infinities, and infinite if only
/// one value is finite.
fn error(want: f64, got: f64) -> f64 {
    if want == got || want.is_nan() && got.is_nan() {
        0.0
    } else if want.is_finite() && got.is_finite() {
        (got - want).abs()
    } else {
        f64::INFINITY
    }
}

fn allowed(dtype: DType, tolerance: Tolerance, want: f64) -> f64 {
    if !dtype.is_float() || !want.is_finite() {
        return 0.0;
    }
    tolerance.atol + tolerance.rtol * want.abs() + tolerance.ulps * ulp(dtype, want)
}

/// Returns the unit in the last place of `want` for a float type: the distance to the next float.
pub fn ulp(dtype: DType, want: f64) -> f64 {
    // Bits of the fraction, and smallest exponent.
    let (digits, least) = match dtype {
        DType::F16 => (10, -14),
        DType::Bf16 => (7, -126),
        DType::F32 => (23, -126),
        _ => (52, -1022),
    };
    let exponent = if want == 0.0 { least } else { (want.abs().log2().floor() as i32).max(least) };
    f64::powi(2.0, exponent - digits)
}

/// Returns each element of a tensor as an f64, and as its bits.
pub fn elements(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = (f64, u64)> + '_ {
    bytes.chunks_exact(dtype.size()).map(move |element| {
        let mut wide = [0; 8];
        wide[..element.len()].copy_from_slice(element);
        let bits = u64::from_le_bytes(wide);
        (value(dtype, bits), bits)
    })
}

fn value(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F32 => f32::from_bits(bits as u32).into(),
        DType::F64 => f64::from_bits(bits),
        DType::F16 => half::f16::from_bits(bits as u16).into(),
        DType::Bf16 => half::bf16::from_bits(bits as u16).into(),
        DType::I8 => f64::from(bits as i8),
        DType::U8 | DType::Bool => f64::from(bits as u8),
        DType::I16 => f64::from(bits as i16),
        DType::I32 => f64::from(bits as i32),
        DType::I64 => bits as i64 as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::Shape;

    fn floats(values: &[f32]) -> Value {
        let tensor_type = TensorType::new(DType::F32, Shape::new(&[values.len() as u32]).unwrap());
        Value { name: "y".into(), tensor_type, bytes: bytemuck::cast_slice(values).to_vec() }
    }

    #[test]
    fn tolerance_is_absolute_and_relative() {
        let tolerance = Tolerance { atol: 0.5, rtol: 0.25, ulps: 0.0 };
        let wrong = |want: f32, got: f32| !compare(&[floats(&[want])], &[floats(&[got]).bytes], tolerance).is_empty();
        assert!(!wrong(2.0, 3.0) && wrong(2.0, 3.001) && !wrong(-2.0, -3.0));
        assert!(!wrong(f32::NAN, f32::NAN) && wrong(0.0, f32::NAN) && wrong(f32::NAN, 0.0));
        assert!(!wrong(f32::INFINITY, f32::INFINITY) && wrong(f32::INFINITY, f32::NEG_INFINITY) && wrong(f32::INFINITY, 1e30));
    }

    #[test]
    fn a_unit_in_the_last_place_is_the_element_s_own() {
        use half::{bf16, f16};
        let next = |x: f16| f16::from_bits(x.to_bits() + 1).to_f64() - x.to_f64();
        for x in [0.0, 1e-7, 1e-4, 0.999, 1.0, 1.5, 1000.0].map(f16::from_f64) {
            assert_eq!(ulp(DType::F16, x.to_f64()), next(x), "{x}");
            assert_eq!(ulp(DType::F16, -x.to_f64()), next(x), "{x}");
        }
        let next = |x: bf16| bf16::from_bits(x.to_bits() + 1).to_f64() - x.to_f64();
        for x in [0.0, 1e-39, 1e-4, 0.999, 1.0, 1.5, 1e30].map(bf16::from_f64) {
            assert_eq!(ulp(DType::Bf16, x.to_f64()), next(x), "{x}");
        }
    }

    #[test]
    fn the_worst_element_is_named() {
        let problems = compare(&[floats(&[1.0, 1.0, 1.0])], &[floats(&[1.0, 3.0, 2.0]).bytes], Tolerance::default());
        assert_eq!(problems, ["y[1]: 3 instead of 1: off by 2.000e0, allowed 0.000e0"]);
    }

    #[test]
    fn bits_differ_where_values_do_not() {
        let differ = |a: f32, b: f32| !compare_bits(&[floats(&[a])], &[floats(&[a]).bytes], &[floats(&[b]).bytes]).is_empty();
        assert!(differ(0.0, -0.0) && !differ(1.0, 1.0));
        assert!(!differ(f32::NAN, -f32::NAN));
    }
}
