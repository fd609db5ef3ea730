//! Text form of tensors and variables, identical to TensorFlow's, with the elements in NumPy's format.

use crate::base::dtype::{Bool, DType, Element};
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::variable::Variable;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Largest number of elements of a tensor that is shown completely. A larger tensor is summarized.
const MOST: usize = 1000;
/// Number of elements shown at each end of a dimension in a summarized tensor.
const EDGE: usize = 3;
/// Maximum number of characters in a line.
const WIDTH: usize = 75;
/// Maximum number of digits after the point.
const PRECISION: usize = 8;

/// Writes TensorFlow's text: `tf.Tensor([1. 2.5], shape=(2,), dtype=float32)`. A tensor in a trace is written as `Tensor(shape=(2,),
/// dtype=float32)`. The scales of a quantised tensor follow.
///
/// ```
/// use gradlet_core::{Tensor, ops};
/// let device = ops::portable_cpu();
/// assert_eq!(Tensor::scalar(&device, 1.0f32).to_string(), "tf.Tensor(1.0, shape=(), dtype=float32)");
/// let x = Tensor::new(&device, &[1.0f32, 2.5], &[2])?;
/// assert_eq!(x.to_string(), "tf.Tensor([1.  2.5], shape=(2,), dtype=float32)");
/// # Ok::<(), gradlet_core::Error>(())
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, dtype) = (tuple(self), name(self.dtype()));
        match elements(self, "", " ") {
            Ok(text) => write!(f, "tf.Tensor({}{text}, shape={shape}, dtype={dtype}", broken(&text))?,
            Err(_) => write!(f, "Tensor(shape={shape}, dtype={dtype}")?,
        }
        match self.quantization() {
            Some(quantization) => write!(f, ", {quantization})"),
            None => f.write_str(")"),
        }
    }
}

/// Writes TensorFlow's text: `<tf.Variable 'v:0' shape=() dtype=float32, numpy=2.0>`.
impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(value) = self.value() else { return write!(f, "<tf.Variable '{}:0' unbuilt>", self.name()) };
        let text = elements(&value, "array(", ", ").map_err(|_| fmt::Error)?;
        let dtype = name(value.dtype());
        write!(f, "<tf.Variable '{}:0' shape={} dtype={dtype}, numpy=", self.name(), tuple(&value))?;
        match value.dtype() {
            _ if value.dims().is_empty() => write!(f, "{text}>"),
            // NumPy omits the element type that a Python list of such numbers has by default.
            DType::F64 | DType::I64 | DType::Bool => write!(f, "{}array({text})>", broken(&text)),
            _ => write!(f, "{}array({text}, dtype={dtype})>", broken(&text)),
        }
    }
}

/// Returns TensorFlow's name of an element type.
fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::I8 => "int8",
        DType::U8 => "uint8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::Bool => "bool",
    }
}

/// Returns a line break if `text` has several lines, otherwise an empty string.
fn broken(text: &str) -> &'static str {
    if text.contains('\n') { "\n" } else { "" }
}

fn tuple(tensor: &Tensor) -> String {
    match tensor.dims() {
        [dim] => format!("({dim},)"),
        dims => format!("({})", dims.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the elements in nested brackets and aligned columns, with `separator` between neighbours. Later lines are indented by the
/// width of `prefix`.
fn elements(tensor: &Tensor, prefix: &str, separator: &str) -> Result<String> {
    let dims: Vec<usize> = tensor.dims().iter().map(|&dim| dim as usize).collect();
    let elements: usize = dims.iter().product();
    if elements == 0 {
        tensor.buffer()?;
        return Ok("[]".into());
    }
    let summarized = elements > MOST;
    let shown = |dim: usize| if summarized && dim > 2 * EDGE { (0..EDGE).chain(dim - EDGE..dim) } else { (0..dim).chain(0..0) };
    let indices = dims.iter().fold(alloc::vec![0], |indices: Vec<usize>, &dim| {
        indices.iter().flat_map(|index| shown(dim).map(move |at| index * dim + at)).collect()
    });
    let mut words = words(tensor, &indices)?.into_iter();
    let layout = Layout { dims: &dims, summarized, indent: prefix.len(), separator };
    Ok(layout.nested(0, WIDTH - prefix.len(), &mut words))
}

/// Returns the elements at these indices as texts of equal width.
fn words(tensor: &Tensor, indices: &[usize]) -> Result<Vec<String>> {
    let scalar = tensor.dims().is_empty();
    // Scalars from this limit on have an exponent.
    let limit = match tensor.dtype() {
        DType::F16 | DType::Bf16 => 1e3,
        DType::F32 => 1e6,
        _ => 1e16,
    };
    let shown = |values: Vec<Real>| if scalar { values.iter().map(|value| alone(value, limit)).collect() } else { floats(&values) };
    Ok(match tensor.dtype() {
        DType::Bool => {
            let truth = |value: Bool| format!("{:>width$}", if value.get() { "True" } else { "False" }, width = if scalar { 0 } else { 5 });
            picked(tensor, indices, truth)?
        }
        DType::I8 => aligned(picked(tensor, indices, |value: i8| value.to_string())?),
        DType::U8 => aligned(picked(tensor, indices, |value: u8| value.to_string())?),
        DType::I16 => aligned(picked(tensor, indices, |value: i16| value.to_string())?),
        DType::I32 => aligned(picked(tensor, indices, |value: i32| value.to_string())?),
        DType::I64 => aligned(picked(tensor, indices, |value: i64| value.to_string())?),
        DType::F32 => shown(picked(tensor, indices, |value: f32| Real::new(value.into(), |near| near as f32 == value))?),
        DType::F64 => shown(picked(tensor, indices, |value: f64| Real::new(value, |near| near == value))?),
        DType::F16 => {
            shown(picked(tensor, indices, |value: half::f16| Real::new(value.into(), |near| half::f16::from_f64(near) == value))?)
        }
        DType::Bf16 => {
            shown(picked(tensor, indices, |value: half::bf16| Real::new(value.into(), |near| half::bf16::from_f64(near) == value))?)
        }
    })
}

fn picked<T: Element, R>(tensor: &Tensor, indices: &[usize], make: impl Fn(T) -> R) -> Result<Vec<R>> {
    let bytes = tensor.bytes()?;
    let all: &[T] = bytemuck::cast_slice(&bytes);
    Ok(indices.iter().map(|&index| make(all[index])).collect())
}

fn aligned(words: Vec<String>) -> Vec<String> {
    let width = words.iter().map(String::len).max().unwrap_or(0);
    words.into_iter().map(|word| format!("{word:>width$}")).collect()
}

/// Number as its exact value, and as the shortest decimal that identifies it among the numbers of its type.
struct Real {
    exact: f64,
    short: f64,
}

impl Real {
    fn new(exact: f64, is_same: impl Fn(f64) -> bool) -> Real {
        let near = |digits: usize| format!("{exact:.digits$e}").parse().unwrap_or(exact);
        let short = if exact.is_finite() { (0..17).map(near).find(|&near| is_same(near)).unwrap_or(exact) } else { exact };
        Real { exact, short }
    }

    /// Returns the digits of the number before the point and after it, such as `1` and `5` for 1.5. There are at most 8 digits after
    /// the point.
    fn positional(&self) -> (String, String) {
        let fraction = |text: &str| text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let short = self.short.to_string();
        let text = if fraction(&short) > PRECISION { format!("{:.PRECISION$}", self.exact) } else { short };
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        (whole.into(), fraction.trim_end_matches('0').into())
    }

    /// Returns the digits and the power of the number in scientific notation, such as `1.5` and −7 for 1.5e-07. The digits have at
    /// most `most` after the point.
    fn scientific(&self, most: usize) -> (String, i32) {
        let short = taken_apart(&format!("{:e}", self.short));
        if short.0.split_once('.').is_none_or(|(_, fraction)| fraction.len() <= most) {
            return short;
        }
        let (digits, power) = taken_apart(&format!("{:.most$e}", self.exact));
        (digits.trim_end_matches('0').into(), power)
    }
}

/// Splits the text of a number at its `e` into digits and power. Without an `e`, the power is 0.
fn taken_apart(text: &str) -> (String, i32) {
    let (digits, power) = text.split_once('e').unwrap_or((text, "0"));
    (digits.into(), power.parse().unwrap_or(0))
}

/// Returns `power` as an exponent such as `e-07`, with at least `digits` digits.
fn exponent(power: i32, digits: usize) -> String {
    format!("e{}{:0>digits$}", if power < 0 { '-' } else { '+' }, power.unsigned_abs())
}

fn floats(values: &[Real]) -> Vec<String> {
    let finite = || values.iter().filter(|value| value.exact.is_finite());
    let sizes = || finite().map(|value| value.exact.abs()).filter(|&size| size > 0.0);
    let (most, least) = (sizes().fold(0.0, f64::max), sizes().fold(f64::INFINITY, f64::min));
    let fraction = |digits: &str| digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let shown: Box<dyn Fn(&Real) -> String> = if most >= 1e8 || least < 1e-4 || most / least > 1000.0 {
        let parts: Vec<(String, i32)> = finite().map(|value| value.scientific(PRECISION)).collect();
        let right = parts.iter().map(|(digits, _)| fraction(digits)).max().unwrap_or(0);
        let power = parts.iter().map(|(_, power)| power.unsigned_abs().to_string().len()).max().unwrap_or(0).max(2);
        Box::new(move |value| {
            // All values have as many digits as the one that needs the most.
            let (digits, own) = taken_apart(&format!("{:.right$e}", value.exact));
            let point = if right == 0 { "." } else { "" };
            format!("{digits}{point}{}", exponent(own, power))
        })
    } else {
        let right = finite().map(|value| value.positional().1.len()).max().unwrap_or(0);
        Box::new(move |value| {
            let (whole, fraction) = value.positional();
            format!("{whole}.{fraction:right$}")
        })
    };
    aligned(values.iter().map(|value| if value.exact.is_finite() { shown(value) } else { odd(value.exact) }).collect())
}

fn odd(value: f64) -> String {
    if value.is_nan() { "nan".into() } else { value.to_string() }
}

/// Formats a scalar. Values other than 0 whose magnitude is below 1e-4, or at least `limit`, are written with an exponent.
fn alone(value: &Real, limit: f64) -> String {
    if !value.exact.is_finite() {
        return odd(value.exact);
    }
    let size = value.exact.abs();
    if size == 0.0 || (1e-4..limit).contains(&size) {
        let text = value.short.to_string();
        return if text.contains('.') { text } else { text + ".0" };
    }
    let (digits, power) = value.scientific(17);
    digits + &exponent(power, 2)
}

struct Layout<'a> {
    dims: &'a [usize],
    summarized: bool,
    indent: usize,
    separator: &'a str,
}

impl Layout<'_> {
    /// Formats the elements of dimension `depth` and the dimensions inside it, in lines of at most `width` characters. `words`
    /// yields the texts of the elements.
    fn nested(&self, depth: usize, width: usize, words: &mut dyn Iterator<Item = String>) -> String {
        let Some(&dim) = self.dims.get(depth) else { return words.next().unwrap_or_default() };
        let elided = self.summarized && dim > 2 * EDGE;
        let count = if elided { 2 * EDGE } else { dim };
        let last = depth + 1 == self.dims.len();
        let indent: String = core::iter::repeat_n(' ', self.indent + depth + 1).collect();
        let rows: String = core::iter::repeat_n('\n', self.dims.len() - depth - 1).collect();
        let (mut text, mut line) = (String::new(), String::new());
        for at in 0..count {
            let nested = self.nested(depth + 1, width - 1, words);
            for part in (elided && at == EDGE).then(|| "...".into()).into_iter().chain([nested]) {
                let first = text.is_empty() && line.is_empty();
                if !last {
                    text += &if first { part } else { format!("{}{rows}{indent}{part}", self.separator.trim_end()) };
                    continue;
                }
                if !first {
                    line += self.separator;
                }
                if depth + 1 + line.len() + part.len() > width - 1 && !first {
                    text += &format!("{}\n{indent}", line.trim_end());
                    line.clear();
                }
                line += &part;
            }
        }
        format!("[{text}{line}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::portable_cpu;

    fn shown<T: Element>(elements: &[T], dims: &[u32]) -> String {
        Tensor::new(&portable_cpu(), elements, dims).unwrap().to_string()
    }

    #[test]
    fn a_tensor_is_shown_as_tensorflow_shows_it() {
        assert_eq!(shown(&[1i32, 2], &[2]), "tf.Tensor([1 2], shape=(2,), dtype=int32)");
        assert_eq!(shown(&[1.5f32], &[1, 1]), "tf.Tensor([[1.5]], shape=(1, 1), dtype=float32)");
        assert_eq!(shown(&[Bool(1)], &[]), "tf.Tensor(True, shape=(), dtype=bool)");
        assert_eq!(shown::<f32>(&[], &[0]), "tf.Tensor([], shape=(0,), dtype=float32)");
        assert_eq!(shown(&[-1i32, 20, 3], &[3]), "tf.Tensor([-1 20  3], shape=(3,), dtype=int32)");
        let table = "tf.Tensor(\n[[1.0e+00 2.5e+00]\n [1.0e-05 1.0e+02]], shape=(2, 2), dtype=float32)";
        assert_eq!(shown(&[1.0f32, 2.5, 1e-5, 100.0], &[2, 2]), table);
        assert_eq!(shown(&[Bool(1), Bool(0)], &[2, 1]), "tf.Tensor(\n[[ True]\n [False]], shape=(2, 1), dtype=bool)");
        let odd = "tf.Tensor([1.0000000e+00           nan          -inf 1.2345678e+07], shape=(4,), dtype=float32)";
        assert_eq!(shown(&[1.0f32, f32::NAN, f32::NEG_INFINITY, 12345678.0], &[4]), odd);
        let cube: Vec<i32> = (0..8).collect();
        assert_eq!(shown(&cube, &[2, 2, 2]), "tf.Tensor(\n[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]], shape=(2, 2, 2), dtype=int32)");
        assert_eq!(shown(&[half::f16::from_f32(0.1)], &[]), "tf.Tensor(0.1, shape=(), dtype=float16)");
        for (value, wanted) in [
            (1e20f32, "1e+20"),
            (1e16, "1e+16"),
            (123_456.79, "123456.79"),
            (1e-5, "1e-05"),
            (1.5e-5, "1.5e-05"),
            (4.291914e6, "4.291914e+06"),
        ] {
            assert_eq!(shown(&[value], &[]), format!("tf.Tensor({wanted}, shape=(), dtype=float32)"));
        }
        let powers = "tf.Tensor([1.0000000e+02 6.0000002e-01 1.2345679e-02], shape=(3,), dtype=float32)";
        assert_eq!(shown(&[100.0f32, 0.6, 0.012345679], &[3]), powers);
        assert_eq!(shown(&[1e-5f32, 1e-6, -3e-7], &[3]), "tf.Tensor([ 1.e-05  1.e-06 -3.e-07], shape=(3,), dtype=float32)");
    }

    #[test]
    fn much_is_cut_and_long_lines_are_broken() {
        let range: Vec<i32> = (0..3000).collect();
        assert_eq!(shown(&range[..2000], &[2000]), "tf.Tensor([   0    1    2 ... 1997 1998 1999], shape=(2000,), dtype=int32)");
        let rows = "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]\n [2000 2001 2002 ... 2997 2998 2999]]";
        assert_eq!(shown(&range, &[3, 1000]), format!("tf.Tensor(\n{rows}, shape=(3, 1000), dtype=int32)"));
        let line = "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n 24 25 26 27 28 29]";
        assert_eq!(shown(&range[..30], &[30]), format!("tf.Tensor(\n{line}, shape=(30,), dtype=int32)"));
    }

    #[test]
    fn a_variable_is_shown_with_its_name() {
        let scope = crate::trace::eager::Eager::new(&portable_cpu());
        let v = Variable::new(&scope, "v", &Tensor::scalar(&portable_cpu(), 2.0f32)).unwrap();
        assert_eq!(v.to_string(), "<tf.Variable 'v:0' shape=() dtype=float32, numpy=2.0>");
        let w = Variable::new(&scope, "w", &Tensor::new(&portable_cpu(), &[1.0f32, 2.5, 3.0, 4.0], &[2, 2]).unwrap()).unwrap();
        let rows = "array([[1. , 2.5],\n       [3. , 4. ]], dtype=float32)";
        assert_eq!(w.to_string(), format!("<tf.Variable 'w:0' shape=(2, 2) dtype=float32, numpy=\n{rows}>"));
    }
}
