//! Text form of values, identical to the output of TensorFlow's `tf.print`. It needs no heap, so firmware can print too.

use crate::base::dtype::{Bool, DType};
use crate::base::shape::MAX_RANK;
use crate::base::view::TensorView;
use core::fmt::{self, Write};

/// Number of elements that `tf.print` shows at each end of a dimension.
pub const SUMMARIZE: u32 = 3;

/// Elements of a tensor in nested brackets, one line per row: `[[0 1 2 ... 7 8 9]]`.
///
/// If a dimension is longer than twice `edges`, only `edges` elements are shown at each end. A float has 6 significant digits (f64:
/// 15) if they identify it among all values of its type. Otherwise it has 9 (f64: 17). True is `1`.
///
/// ```
/// use gradlet_core::runtime::format::{SUMMARIZE, Values};
/// use gradlet_core::{DType, Shape, TensorType};
/// use gradlet_core::tensor::TensorView;
/// let tensor_type = TensorType::new(DType::F32, Shape::new(&[4])?);
/// let tensor = TensorView { tensor_type: &tensor_type, data: Some(bytemuck::cast_slice(&[1.0f32, 0.1, 1e6, -0.0])) };
/// assert_eq!(Values { tensor, edges: SUMMARIZE }.to_string(), "[1 0.1 1e+06 -0]");
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// The tensor.
    pub tensor: TensorView<'a>,
    /// Number of elements to show at each end of a dimension, or `u32::MAX` for all.
    pub edges: u32,
}

impl fmt::Display for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = self.tensor.dims();
        // For a tensor without elements, TensorFlow shows no edges. For booleans it then omits the brackets too.
        let edges = u64::from(self.edges).min(self.tensor.elements() as u64) as u32;
        if edges == 0 && self.tensor.dtype() == DType::Bool {
            return Ok(());
        }
        let Some(last) = dims.len().checked_sub(1) else {
            return if edges > 0 { element(f, &self.tensor, 0) } else { f.write_str("...") };
        };
        let mut position = [0u32; MAX_RANK];
        let mut depth = 0;
        f.write_char('[')?;
        loop {
            let (Some(&dim), Some(&at)) = (dims.get(depth), position.get(depth)) else { return Ok(()) };
            let mut next = at.saturating_add(1);
            if at >= dim {
                f.write_char(']')?;
                let Some(above) = depth.checked_sub(1) else { return Ok(()) };
                depth = above;
                next = position.get(depth).map_or(0, |at| at + 1);
            } else {
                let elided = at == edges && dim > edges.saturating_mul(2);
                if at > 0 || elided {
                    space(f, depth, last)?;
                }
                if elided {
                    f.write_str("...")?;
                    next = dim - edges;
                } else if depth < last {
                    f.write_char('[')?;
                    depth += 1;
                    next = 0;
                } else {
                    element(f, &self.tensor, dims.iter().zip(&position).fold(0, |index, (&dim, &at)| index * dim as usize + at as usize))?;
                }
            }
            if let Some(at) = position.get_mut(depth) {
                *at = next;
            }
        }
    }
}

/// Value that an op without outputs writes as its answer if it has a text to print. The answer of a branch or loop is the number of the
/// next block instead.
pub(crate) const PRINT: u32 = u32::MAX - 1;

/// Value that an op without outputs writes as its answer if it has a summary value to report.
pub(crate) const SUMMARY: u32 = u32::MAX - 2;

/// Message that a running program sends to its caller: a text or a summary value.
#[derive(Clone, Copy)]
pub enum Said<'a> {
    /// Text to print.
    Print(Printed<'a>),
    /// Value to report as a summary.
    Summary(Summary<'a>),
}

impl<'a> Said<'a> {
    /// Creates the message of an op without outputs. `word` is the op's answer: [`PRINT`], [`SUMMARY`], or any other value if the op
    /// has no message. Returns `None` if there is no message or the attribute words of a summary are malformed.
    pub(crate) fn new(word: u32, attributes: &'a [u32], inputs: &'a [TensorView<'a>]) -> Option<Said<'a>> {
        match word {
            PRINT => Some(Said::Print(Printed { attributes, inputs })),
            SUMMARY => Summary::new(attributes, inputs).map(Said::Summary),
            _ => None,
        }
    }
}

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Print(printed) => printed.fmt(f),
            Said::Summary(summary) => writeln!(f, "{summary}"),
        }
    }
}

/// Message of the op `summary`: a value with a tag and a step.
///
/// The attribute words are the kind, its parameter, the length of the tag in bytes, and the tag in UTF-8. Zeros pad the tag to whole
/// words.
#[derive(Clone, Copy)]
pub struct Summary<'a> {
    /// Form in which the value is shown.
    pub kind: SummaryKind,
    /// Number of buckets of a histogram, or maximum number of images. Not used for a scalar.
    pub parameter: u32,
    /// Tag, which names the value.
    pub tag: &'a str,
    /// Step, or `None` for the writer's default step.
    pub step: Option<i64>,
    /// The value.
    pub value: TensorView<'a>,
}

/// Form in which a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryKind {
    /// Number, plotted over the steps.
    Scalar = 0,
    /// Distribution of the elements.
    Histogram = 1,
    /// Images.
    Image = 2,
}

impl<'a> Summary<'a> {
    fn new(attributes: &'a [u32], inputs: &[TensorView<'a>]) -> Option<Summary<'a>> {
        let (kind, parameter, tag) = Summary::words(attributes)?;
        let (&value, step) = inputs.split_first()?;
        Some(Summary { kind, parameter, tag, step: step.first().map(TensorView::scalar), value })
    }

    /// Parses the attribute words into kind, parameter and tag. Returns `None` if they are malformed.
    pub(crate) fn words(attributes: &'a [u32]) -> Option<(SummaryKind, u32, &'a str)> {
        let [kind, parameter, tag @ ..] = attributes else { return None };
        let kinds = [SummaryKind::Scalar, SummaryKind::Histogram, SummaryKind::Image];
        Some((*kinds.get(*kind as usize)?, *parameter, text(tag)?))
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag)?;
        if let Some(step) = self.step {
            write!(f, " at step {step}")?;
        }
        write!(f, ": {}", Values { tensor: self.value, edges: SUMMARIZE })
    }
}

/// Parses a text from `words`: its length in bytes, then UTF-8 padded with zeros to whole words. Returns `None` if the words do not
/// have this form.
fn text(words: &[u32]) -> Option<&str> {
    let (&length, words) = words.split_first()?;
    let length = length as usize;
    let fits = words.len() == length.div_ceil(size_of::<u32>());
    core::str::from_utf8(bytemuck::cast_slice(words).get(..length)?).ok().filter(|_| fits)
}

/// Message of the op `print`: a text with values in place of its `{}`.
///
/// The attribute words are the number of elements shown at each end of a dimension, the length of the text in bytes, and the text in
/// UTF-8. Zeros pad the text to whole words. `{{` and `}}` are escaped braces.
#[derive(Clone, Copy)]
pub struct Printed<'a> {
    /// The attribute words.
    pub attributes: &'a [u32],
    /// The values that replace the `{}` of the text.
    pub inputs: &'a [TensorView<'a>],
}

impl<'a> Printed<'a> {
    /// Returns the text, or `None` if the attribute words are malformed.
    pub fn text(&self) -> Option<&'a str> {
        text(self.attributes.get(1..)?)
    }
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edges = self.attributes.first().copied().unwrap_or(SUMMARIZE);
        let mut inputs = self.inputs.iter();
        pieces(self.text().unwrap_or_default()).try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Value => inputs.next().map_or(Ok(()), |&tensor| Values { tensor, edges }.fmt(f)),
        })
    }
}

/// Piece of a text to print: literal text, or a `{}` that a value replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Value,
}

/// Splits `text` into pieces. `{}` becomes a value, `{{` and `}}` become one brace, and any other brace is literal text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let at = rest.find(['{', '}']).unwrap_or(rest.len());
        let (end, piece) = match rest.get(at..) {
            _ if at > 0 => (at, Piece::Text(rest.get(..at)?)),
            Some(braces) if braces.starts_with("{}") => (2, Piece::Value),
            Some(braces) if braces.starts_with("{{") || braces.starts_with("}}") => (2, Piece::Text(braces.get(..1)?)),
            other => (1, Piece::Text(other?.get(..1)?)),
        };
        rest = rest.get(end..)?;
        Some(piece)
    })
}

/// Writes the separator between two neighbours along dimension `depth`. In the innermost dimension `last`, it is a space. In an outer
/// dimension, line breaks and indentation precede the space.
fn space(f: &mut fmt::Formatter<'_>, depth: usize, last: usize) -> fmt::Result {
    if depth < last {
        (depth..last).try_for_each(|_| f.write_char('\n'))?;
        (0..depth).try_for_each(|_| f.write_char(' '))?;
    }
    f.write_char(' ')
}

/// Writes element `index` in row-major order.
fn element(f: &mut fmt::Formatter<'_>, tensor: &TensorView<'_>, index: usize) -> fmt::Result {
    macro_rules! get {
        ($ty:ty) => {
            match tensor.slice::<$ty>().get(index) {
                Some(value) => *value,
                None => return Ok(()),
            }
        };
    }
    match tensor.dtype() {
        DType::F32 => float(f, get!(f32)),
        DType::F64 => double(f, get!(f64)),
        DType::F16 => float(f, get!(half::f16).to_f32()),
        DType::Bf16 => float(f, get!(half::bf16).to_f32()),
        DType::I8 => write!(f, "{}", get!(i8)),
        DType::U8 => write!(f, "{}", get!(u8)),
        DType::I16 => write!(f, "{}", get!(i16)),
        DType::I32 => write!(f, "{}", get!(i32)),
        DType::I64 => write!(f, "{}", get!(i64)),
        DType::Bool => write!(f, "{}", u8::from(get!(Bool).get())),
    }
}

/// Writes `value` like C's `%.6g` if that identifies it among all f32 values, otherwise like `%.9g`.
pub fn float(f: &mut dyn Write, value: f32) -> fmt::Result {
    if value.is_finite() { general(f, &value, [6, 9]) } else { odd(f, value.into()) }
}

/// Writes `value` like C's `%.15g` if that identifies it among all f64 values, otherwise like `%.17g`.
pub fn double(f: &mut dyn Write, value: f64) -> fmt::Result {
    if value.is_finite() { general(f, &value, [15, 17]) } else { odd(f, value) }
}

fn odd(f: &mut dyn Write, value: f64) -> fmt::Result {
    f.write_str(if value.is_nan() {
        "nan"
    } else if value > 0.0 {
        "inf"
    } else {
        "-inf"
    })
}

/// Number in scientific notation, such as `-1.5e-7`, that can be split into digits and exponent.
struct Scientific {
    text: heapless::String<32>,
}

impl Scientific {
    fn new(text: fmt::Arguments<'_>) -> Result<Scientific, fmt::Error> {
        let mut own = Scientific { text: heapless::String::new() };
        own.text.write_fmt(text)?;
        Ok(own)
    }

    /// Returns the digits before the point without a sign, the digits after it without trailing zeros, and the power of ten.
    fn parts(&self) -> (&str, &str, i32) {
        let (digits, power) = self.text.trim_start_matches('-').split_once('e').unwrap_or(("0", "0"));
        let (first, rest) = digits.split_once('.').unwrap_or((digits, ""));
        (first, rest.trim_end_matches('0'), power.parse().unwrap_or(0))
    }
}

/// Writes a value like `%g`: with `few` digits if its shortest unambiguous decimal has at most that many, otherwise with `many` digits.
fn general(f: &mut dyn Write, value: &dyn fmt::LowerExp, [few, many]: [usize; 2]) -> fmt::Result {
    let shortest = Scientific::new(format_args!("{value:e}"))?;
    let digits = if shortest.parts().1.len() < few { few } else { many };
    let rounded = Scientific::new(format_args!("{value:.*e}", digits - 1))?;
    let (first, rest, power) = rounded.parts();
    if rounded.text.starts_with('-') {
        f.write_char('-')?;
    }
    if power < -4 || power >= digits as i32 {
        f.write_str(first)?;
        point(f, rest)?;
        let sign = if power < 0 { '-' } else { '+' };
        return write!(f, "e{sign}{:02}", power.unsigned_abs());
    }
    if power < 0 {
        f.write_str("0.")?;
        (power..-1).try_for_each(|_| f.write_char('0'))?;
        f.write_str(first)?;
        return f.write_str(rest);
    }
    let power = power as usize;
    f.write_str(first)?;
    let (whole, fraction) = rest.split_at_checked(power).unwrap_or((rest, ""));
    f.write_str(whole)?;
    (whole.len()..power).try_for_each(|_| f.write_char('0'))?;
    point(f, fraction)
}

fn point(f: &mut dyn Write, fraction: &str) -> fmt::Result {
    if fraction.is_empty() { Ok(()) } else { write!(f, ".{fraction}") }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::dtype::Element;
    use crate::base::shape::{Shape, TensorType};
    use std::string::{String, ToString};

    fn values<T: Element>(elements: &[T], dims: &[u32], edges: u32) -> String {
        let tensor_type = TensorType::new(T::DTYPE, Shape::new(dims).unwrap());
        let tensor = TensorView { tensor_type: &tensor_type, data: Some(bytemuck::cast_slice(elements)) };
        Values { tensor, edges }.to_string()
    }

    #[test]
    fn brackets_nest_and_ends_are_shown() {
        let range: std::vec::Vec<i32> = (0..64).collect();
        assert_eq!(values(&range[..7], &[7], 3), "[0 1 2 ... 4 5 6]");
        assert_eq!(values(&range[..6], &[6], 3), "[0 1 2 3 4 5]");
        assert_eq!(values(&range[..10], &[10], 2), "[0 1 ... 8 9]");
        assert_eq!(values(&range[..10], &[10], u32::MAX), "[0 1 2 3 4 5 6 7 8 9]");
        assert_eq!(values(&range[..10], &[10], 0), "[ ...]");
        assert_eq!(values(&range[..8], &[2, 2, 2], 3), "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
        let table = values(&range, &[8, 8], 3);
        assert!(table.starts_with("[[0 1 2 ... 5 6 7]\n [8 9 10 ... 13 14 15]\n [16 17 18 ... 21 22 23]\n ...\n [40"), "{table}");
        assert_eq!(values::<f32>(&[], &[0], 3), "[]");
        assert_eq!(values::<f32>(&[], &[2, 0], 3), "[\n ...]");
        assert_eq!(values(&[Bool(1), Bool(0)], &[2], 3), "[1 0]");
        assert_eq!(
            (values::<Bool>(&[], &[2, 0], 3), values(&[Bool(1)], &[], 0), values(&[1i32], &[], 0)),
            ("".into(), "".into(), "...".into())
        );
        assert_eq!(values(&[half::f16::from_f32(1.5)], &[], 3), "1.5");
    }

    #[test]
    fn texts_are_taken_apart() {
        let parts: std::vec::Vec<_> = pieces("a {} {{b}} ä{}{").collect();
        let text = Piece::Text;
        let wanted = [text("a "), Piece::Value, text(" "), text("{"), text("b"), text("}"), text(" ä"), Piece::Value, text("{")];
        assert_eq!(parts, wanted);
        assert_eq!(pieces("").next(), None);
    }

    #[test]
    fn floats_have_as_many_digits_as_they_need() {
        let pairs = [
            (1.0f32, "1"),
            (0.1, "0.1"),
            (1e-10, "1e-10"),
            (1e20, "1e+20"),
            (123_456.79, "123456.789"),
            (1234567.0, "1234567"),
            (100000.0, "100000"),
            (1e6, "1e+06"),
            (16777216.0, "16777216"),
            (-0.0, "-0"),
            (f32::NAN, "nan"),
            (f32::INFINITY, "inf"),
            (-f32::INFINITY, "-inf"),
            (0.0001, "0.0001"),
            (0.00001234, "1.234e-05"),
            (-2.5, "-2.5"),
            (1.0 / 3.0, "0.333333343"),
            (1e-45, "1.4013e-45"),
            (f32::MAX, "3.40282347e+38"),
            (999999.9, "999999.875"),
            (123456789.0, "123456792"),
        ];
        for (value, wanted) in pairs {
            assert_eq!(values(&[value], &[], 3), wanted);
        }
        assert_eq!(values(&[1.0f64 / 3.0], &[], 3), "0.33333333333333331");
        assert_eq!(values(&[0.1f64], &[], 3), "0.1");
        assert_eq!(values(&[1e300f64], &[], 3), "1e+300");
    }
}
