//! Parser of the calls in the logs, and of their arguments.

use gradlet_core::function::{Part, Structure};
use gradlet_core::tensor::{Bool, Element};
use gradlet_core::{DType, Tensor, Variable, ops};
use gradlet_tests::golden::parsed_json::dtype;
use std::collections::HashMap;

/// An argument of a call.
#[derive(Clone, Debug)]
pub enum Arg {
    Tensor(Tensor),
    Variable(Variable),
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<Arg>),
    Tuple(Vec<Arg>),
    None,
    /// Any other text.
    Raw(String),
}

/// A function is traced for the types of tensors, and for the values of all other arguments. As in Python, `1`, `1.0` and `True` are equal.
impl Structure for Arg {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        let mut kind = |kind: u64, value: u64| {
            visit(Part::Host(kind));
            visit(Part::Host(value));
        };
        match self {
            Arg::Tensor(tensor) => tensor.visit(visit),
            Arg::Variable(variable) => variable.visit(visit),
            Arg::Int(value) => kind(1, (*value as f64).to_bits()),
            Arg::Float(value) => kind(1, value.to_bits()),
            Arg::Bool(value) => kind(1, f64::from(u8::from(*value)).to_bits()),
            Arg::Text(text) | Arg::Raw(text) => text.visit(visit),
            Arg::List(args) => {
                kind(2, 0);
                args.visit(visit);
            }
            Arg::Tuple(args) => {
                kind(3, 0);
                args.visit(visit);
            }
            Arg::None => kind(4, 0),
        }
    }

    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Arg {
        match self {
            Arg::Tensor(_) => Arg::Tensor(next()),
            Arg::Variable(variable) => Arg::Variable(variable.with(next)),
            Arg::List(args) => Arg::List(args.with(next)),
            Arg::Tuple(args) => Arg::Tuple(args.with(next)),
            other => other.clone(),
        }
    }
}

impl Arg {
    pub fn number(&self) -> f64 {
        match self {
            Arg::Int(value) => *value as f64,
            Arg::Float(value) => *value,
            Arg::Bool(value) => f64::from(u8::from(*value)),
            other => panic!("{other:?} is not a number"),
        }
    }

    /// Formats a number like Python's `repr`.
    pub fn repr(&self) -> String {
        match self {
            Arg::Int(value) => value.to_string(),
            Arg::Float(value) => format!("{value:?}"),
            Arg::Bool(value) => if *value { "True" } else { "False" }.into(),
            other => panic!("{other:?} is not a number"),
        }
    }

    /// Converts the argument to a tensor, as TensorFlow does.
    pub fn tensor(&self) -> Tensor {
        match self {
            Arg::Tensor(tensor) => tensor.clone(),
            other => constant(other, None),
        }
    }

    fn dims(&self) -> Vec<u32> {
        match self {
            Arg::List(args) | Arg::Tuple(args) => {
                let inner = args.first().map_or(Vec::new(), Arg::dims);
                [args.len() as u32].into_iter().chain(inner).collect()
            }
            _ => Vec::new(),
        }
    }

    fn numbers(&self, all: &mut Vec<Arg>) {
        match self {
            Arg::List(args) | Arg::Tuple(args) => args.iter().for_each(|arg| arg.numbers(all)),
            number => all.push(number.clone()),
        }
    }
}

/// A call: `name(args…)`.
#[derive(Clone, Debug)]
pub struct Call {
    pub text: String,
    pub name: String,
    pub args: Vec<Arg>,
    pub named: HashMap<String, Arg>,
}

impl Call {
    pub fn new(text: &str) -> Call {
        let (name, inner) = text.strip_suffix(')').and_then(|text| text.split_once('(')).unwrap_or((text, ""));
        let mut call = Call { text: text.into(), name: name.into(), args: Vec::new(), named: HashMap::new() };
        for part in split(inner) {
            match part.split_once('=').filter(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_')) {
                Some((name, value)) => drop(call.named.insert(name.into(), eval(value))),
                None => call.args.push(eval(part)),
            }
        }
        call
    }

    /// Returns argument `index` as a tensor.
    pub fn tensor(&self, index: usize) -> Tensor {
        self.args[index].tensor()
    }
}

/// Splits a text at the commas that are not inside brackets or strings.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut quote, mut start, mut parts) = (0, None, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => (),
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => (),
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

pub fn eval(text: &str) -> Arg {
    let text = text.trim();
    if let Some((list, times)) = text.rsplit_once("] * ") {
        let (Arg::List(args), Ok(times)) = (eval(&format!("{list}]")), times.parse::<usize>()) else { return Arg::Raw(text.into()) };
        return Arg::List(std::iter::repeat_n(args, times).flatten().collect());
    }
    let inside = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
    if let Some(inner) = inside('[', ']') {
        return Arg::List(split(inner).into_iter().map(eval).collect());
    }
    if let Some(inner) = inside('(', ')') {
        return Arg::Tuple(split(inner).into_iter().map(eval).collect());
    }
    if let Some(inner) = inside('\'', '\'') {
        return Arg::Text(inner.into());
    }
    match text {
        "True" => return Arg::Bool(true),
        "False" => return Arg::Bool(false),
        "None" => return Arg::None,
        "float('nan')" => return Arg::Float(f64::NAN),
        "float('inf')" => return Arg::Float(f64::INFINITY),
        _ => (),
    }
    if let Ok(value) = text.parse() {
        return Arg::Int(value);
    }
    let quotient = text.split_once('/').and_then(|(a, b)| Some(a.parse::<f64>().ok()? / b.parse::<f64>().ok()?));
    if let Some(value) = text.parse().ok().or(quotient) {
        return Arg::Float(value);
    }
    if !text.ends_with(')') || !text.starts_with("tf.") && !text.starts_with("np.") {
        return Arg::Raw(text.into());
    }
    made(&Call::new(text)).map_or(Arg::Raw(text.into()), Arg::Tensor)
}

/// Returns the tensor that a call creates, or `None` if it is not a known call that creates a tensor.
fn made(call: &Call) -> Option<Tensor> {
    let dtype = |index: usize| match call.named.get("dtype").or(call.args.get(index)) {
        Some(Arg::Raw(name)) => dtype(name.rsplit_once('.')?.1).ok(),
        _ => None,
    };
    let filled = |value: f64, default: DType| {
        let dims: Vec<u32> = match call.args.first()? {
            Arg::Int(dim) => vec![*dim as u32],
            dims => {
                let mut all = Vec::new();
                dims.numbers(&mut all);
                all.iter().map(|dim| dim.number() as u32).collect()
            }
        };
        Tensor::full(&ops::portable_cpu(), value as f32, &dims).ok()?.cast(dtype(1).unwrap_or(default)).ok()
    };
    match (call.name.as_str(), call.args.first()?) {
        ("tf.constant" | "np.array", Arg::Tensor(tensor)) => Some(tensor.clone()),
        (_, Arg::Text(_) | Arg::Raw(_)) => None,
        ("tf.constant" | "np.array", value) => {
            let mut all = Vec::new();
            value.numbers(&mut all);
            let numbers = all.iter().all(|arg| matches!(arg, Arg::Int(_) | Arg::Float(_) | Arg::Bool(_)));
            numbers.then(|| constant(value, dtype(1)))
        }
        ("tf.ones", _) => filled(1.0, DType::F32),
        ("tf.zeros", _) => filled(0.0, DType::F32),
        ("np.ones", _) => filled(1.0, DType::F64),
        ("tf.range", stop) => Some(range(stop.number() as i32)),
        ("tf.reshape", Arg::Tensor(tensor)) => {
            let mut dims = Vec::new();
            call.args.get(1)?.numbers(&mut dims);
            tensor.reshape(&dims.iter().map(|dim| dim.number() as u32).collect::<Vec<_>>()).ok()
        }
        _ => None,
    }
}

pub fn range(stop: i32) -> Tensor {
    vector(&(0..stop).collect::<Vec<_>>())
}

pub fn vector<T: Element>(values: &[T]) -> Tensor {
    Tensor::new(&ops::portable_cpu(), values, &[values.len() as u32]).unwrap()
}

pub fn scalar<T: Element>(value: T) -> Tensor {
    Tensor::scalar(&ops::portable_cpu(), value)
}

fn constant(value: &Arg, dtype: Option<DType>) -> Tensor {
    let (dims, mut all) = (value.dims(), Vec::new());
    value.numbers(&mut all);
    let device = ops::portable_cpu();
    let found = match all.iter().map(|arg| matches!(arg, Arg::Float(_))).reduce(|one, other| one || other) {
        _ if matches!(all.first(), Some(Arg::Bool(_))) => DType::Bool,
        Some(false) => DType::I32,
        _ => DType::F32,
    };
    let numbers: Vec<f64> = all.iter().map(Arg::number).collect();
    match dtype.unwrap_or(found) {
        DType::F32 => Tensor::new(&device, &numbers.iter().map(|&v| v as f32).collect::<Vec<_>>(), &dims),
        DType::F64 => Tensor::new(&device, &numbers, &dims),
        DType::I32 => Tensor::new(&device, &numbers.iter().map(|&v| v as i32).collect::<Vec<_>>(), &dims),
        DType::Bool => Tensor::new(&device, &numbers.iter().map(|&v| Bool::from(v != 0.0)).collect::<Vec<_>>(), &dims),
        other => Tensor::new(&device, &numbers, &dims).and_then(|tensor| tensor.cast(other)),
    }
    .unwrap()
}

/// Formats a tuple like Python: `(2,)`.
pub fn tuple(dims: &[u32]) -> String {
    match dims {
        [dim] => format!("({dim},)"),
        dims => format!("({})", dims.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
