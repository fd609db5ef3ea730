//! Evaluation of the cases' functions, and the types of their results.

use super::expression::{Expression, Function};
use super::value::Value;
use crate::golden::parsed_json::dtype;
use anyhow::{Context, Result, bail, ensure};
use gradlet::data::ElementSpec;
use gradlet::tensor::Strings;
use gradlet::{DType, Dataset, Error, Tensor, TensorSpec};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Functions of a file of cases, by name.
pub struct Functions(BTreeMap<String, Arc<Function>>);

impl Functions {
    /// Parses the functions of a file of cases. Fails if the syntax of one is unknown.
    pub fn read(cases: &Json) -> Result<Functions> {
        let texts = cases["functions"].as_object().context("no functions")?;
        let parse = |(name, text): (&String, &Json)| {
            let text = text.as_str().with_context(|| format!("the function {name:?} has no text"))?;
            Ok((name.clone(), Arc::new(Function::parse(text)?)))
        };
        Ok(Functions(texts.iter().map(parse).collect::<Result<_>>()?))
    }

    /// Returns the function with this name.
    pub fn named(&self, name: &str) -> Result<Arc<Function>> {
        self.0.get(name).cloned().with_context(|| format!("the file of cases has no function {name:?}"))
    }
}

/// Values of the parameters of a function, by name.
type Names<'n, T> = BTreeMap<&'n str, T>;

fn wrong(text: impl Into<String>) -> Error {
    Error::message(text.into())
}

impl Function {
    /// Applies the function to an element. If the function has several parameters, its arguments are the components of the element, which
    /// is a tuple.
    pub fn call(&self, element: Value) -> gradlet::Result<Value> {
        match element {
            Value::Tuple(parts) if self.parameters.len() > 1 => self.call_with(parts),
            element => self.call_with(vec![element]),
        }
    }

    /// Applies the function to these values.
    pub fn call_with(&self, values: Vec<Value>) -> gradlet::Result<Value> {
        if values.len() != self.parameters.len() {
            return Err(wrong(format!("the function has {} parameters, but got {} arguments", self.parameters.len(), values.len())));
        }
        value(&self.body, &self.parameters.iter().map(String::as_str).zip(values).collect())
    }

    /// Applies the function, a predicate, to an element. Returns true if its result is not 0.
    pub fn holds(&self, element: &Value) -> gradlet::Result<bool> {
        Ok(self.call(element.clone())?.integer()? != 0)
    }

    /// Applies the function to an element, and returns the resulting dataset.
    pub fn dataset(&self, element: Value) -> gradlet::Result<Dataset<Value>> {
        dataset(self.call(element)?)
    }

    /// Returns the type of the function's result for elements of a type. Fails if a Rust program with such a function would not compile.
    pub fn spec(&self, element: &ElementSpec) -> Result<ElementSpec> {
        match element {
            ElementSpec::Tuple(parts) if self.parameters.len() > 1 => self.spec_with(parts),
            element => self.spec_with(std::slice::from_ref(element)),
        }
    }

    /// Returns the type of the function's result for values of these types. Fails like [`Function::spec`].
    pub fn spec_with(&self, values: &[ElementSpec]) -> Result<ElementSpec> {
        ensure!(
            values.len() == self.parameters.len(),
            "the function has {} parameters, but got {} arguments",
            self.parameters.len(),
            values.len()
        );
        spec(&self.body, &self.parameters.iter().map(String::as_str).zip(values).collect())
    }

    /// Returns the type of the elements of the datasets that the function returns. Fails like [`Function::spec`], or if the function
    /// returns no dataset.
    pub fn inner_spec(&self, values: &[ElementSpec]) -> Result<ElementSpec> {
        match self.spec_with(values)? {
            ElementSpec::Dataset(inner) => Ok(*inner),
            other => bail!("{other} is not a dataset"),
        }
    }
}

fn dataset(value: Value) -> gradlet::Result<Dataset<Value>> {
    if let Value::Dataset(dataset) = value { Ok(dataset) } else { Err(wrong(format!("expected a dataset, but got {value:?}"))) }
}

/// Converts a range to a dataset of [`Value`]s.
pub fn numbers(range: Dataset<i64>) -> Dataset<Value> {
    let spec = scalar(DType::I64);
    range.map(|x| Ok(Value::Tensor(Tensor::scalar(&gradlet::cpu(), x)))).with_spec(spec)
}

/// Returns the value of a numeric literal, or `None` for any other expression. As an operand, a literal takes the type of the other
/// operand.
fn literal(expression: &Expression) -> Option<f64> {
    match expression {
        Expression::Integer(number) => Some(*number as f64),
        Expression::Float(number) => Some(*number),
        _ => None,
    }
}

fn value(expression: &Expression, names: &Names<'_, Value>) -> gradlet::Result<Value> {
    let tensor = |expression: &Expression| value(expression, names)?.tensor();
    let cpu = gradlet::cpu();
    Ok(match expression {
        Expression::Name(name) => names.get(name.as_str()).cloned().ok_or_else(|| wrong(format!("unknown name {name:?}")))?,
        Expression::Integer(number) => Value::Tensor(Tensor::scalar(&cpu, *number)),
        Expression::Float(number) => Value::Tensor(Tensor::scalar(&cpu, *number as f32)),
        Expression::Bool(flag) => Value::Tensor(Tensor::scalar(&cpu, i64::from(*flag)).cast(DType::Bool)?),
        Expression::Binary(operator, parts) => {
            let [left, right] = &**parts;
            let like = |x: &Tensor, number: f64| Tensor::scalar(&cpu, number).cast(x.dtype());
            let (left, right) = match (literal(left), literal(right)) {
                (Some(number), None) => {
                    let right = tensor(right)?;
                    (like(&right, number)?, right)
                }
                (None, Some(number)) => {
                    let left = tensor(left)?;
                    let right = like(&left, number)?;
                    (left, right)
                }
                _ => (tensor(left)?, tensor(right)?),
            };
            Value::Tensor(computed(operator, &left, &right)?)
        }
        Expression::Tuple(parts) => Value::Tuple(parts.iter().map(|part| value(part, names)).collect::<Result<_, _>>()?),
        Expression::Dict(parts) => {
            let parts = parts.iter().map(|(name, part)| Ok((name.clone(), value(part, names)?)));
            Value::Dict(parts.collect::<gradlet::Result<_>>()?)
        }
        Expression::Index(of, name) => match value(of, names)? {
            Value::Dict(mut parts) => parts.remove(name).ok_or_else(|| wrong(format!("the map has no key {name:?}")))?,
            other => return Err(wrong(format!("expected a map, but got {other:?}"))),
        },
        Expression::Call(name, arguments) => called(name, arguments, names)?,
        Expression::Text(_) | Expression::List(_) => return Err(wrong(format!("{expression:?} is not a value"))),
    })
}

fn computed(operator: &str, left: &Tensor, right: &Tensor) -> gradlet::Result<Tensor> {
    match operator {
        "+" => left.add(right),
        "-" => left.sub(right),
        "*" => left.mul(right),
        "/" => left.div(right),
        "//" => left.floordiv(right),
        "%" => left.floormod(right),
        "<" => left.less(right),
        ">" => left.greater(right),
        "<=" => left.less_equal(right),
        ">=" => left.greater_equal(right),
        "==" => left.equal(right),
        "!=" => left.not_equal(right),
        _ => Err(wrong(format!("unknown operator {operator:?}"))),
    }
}

fn called(name: &str, arguments: &[Expression], names: &Names<'_, Value>) -> gradlet::Result<Value> {
    use Expression::{List, Name, Text};
    let of = |expression: &Expression| value(expression, names);
    let tensor = |expression: &Expression| of(expression)?.tensor();
    let integer = |expression: &Expression| of(expression)?.integer();
    let type_of = |name: &str| dtype(name).map_err(|error| wrong(error.to_string()));
    Ok(match (name, arguments) {
        ("cast", [x, Name(name)]) => Value::Tensor(tensor(x)?.cast(type_of(name)?)?),
        ("fill", [List(dims), x]) => {
            let dims = dims.iter().map(|dim| Ok(integer(dim)? as u32)).collect::<gradlet::Result<Vec<_>>>()?;
            Value::Tensor(Tensor::full(&gradlet::cpu(), integer(x)?, &dims)?.cast(tensor(x)?.dtype())?)
        }
        ("as_string", [x]) => Value::Strings(Strings::scalar(integer(x)?.to_string())),
        ("length", [x]) => {
            let rows = tensor(x)?.dims().first().copied().ok_or_else(|| wrong("a scalar has no length"))?;
            Value::Tensor(Tensor::scalar(&gradlet::cpu(), i64::from(rows)))
        }
        ("reduce_sum", [x]) => Value::Tensor(tensor(x)?.sum(&[], false)?),
        ("check_numerics", [x, Text(text)]) => {
            let x = tensor(x)?;
            let all = x.cast(DType::F64)?.to_vec::<f64>()?;
            match (all.iter().any(|x| x.is_infinite()), all.iter().any(|x| x.is_nan())) {
                (false, false) => Value::Tensor(x),
                (infinite, nan) => {
                    let kinds = [(infinite, "Inf"), (nan, "NaN")].into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind);
                    return Err(wrong(format!("{text} : Tensor had {} values", kinds.collect::<Vec<_>>().join(" and "))));
                }
            }
        }
        ("range", [Name(_), x]) => Value::Dataset(numbers(Dataset::range(0..integer(x)?))),
        ("from_tensors", [Name(_), x]) => Value::Dataset(Dataset::from_tensors(of(x)?)),
        ("from_tensor_slices", [Name(_), x]) => Value::Dataset(Dataset::from_tensor_slices(of(x)?)),
        ("repeat", [elements, times]) => Value::Dataset(dataset(of(elements)?)?.repeat_times(integer(times)?.max(0) as u64)),
        ("batch", [elements, size]) => Value::Dataset(dataset(of(elements)?)?.batch(integer(size)? as usize)),
        (name, [x]) => Value::Tensor(tensor(x)?.cast(type_of(name)?)?),
        _ => return Err(wrong(format!("unknown function {name:?}"))),
    })
}

fn scalar(dtype: DType) -> ElementSpec {
    TensorSpec::new(dtype, &[]).into()
}

fn spec(expression: &Expression, names: &Names<'_, &ElementSpec>) -> Result<ElementSpec> {
    let of = |expression: &Expression| spec(expression, names);
    Ok(match expression {
        Expression::Name(name) => (*names.get(name.as_str()).with_context(|| format!("unknown name {name:?}"))?).clone(),
        Expression::Integer(_) => scalar(DType::I64),
        Expression::Float(_) => scalar(DType::F32),
        Expression::Bool(_) => scalar(DType::Bool),
        Expression::Binary(operator, parts) => {
            let tensors = parts.iter().filter(|part| literal(part).is_none()).map(|part| tensor_spec(of(part)?));
            let tensors = tensors.collect::<Result<Vec<_>>>()?;
            let first = tensors.first().context("both operands are literals")?;
            ensure!(tensors.iter().all(|other| other.dtype() == first.dtype()), "{tensors:?} have different element types");
            let compares = operator.contains(['<', '>', '=']);
            typed(first, if compares { DType::Bool } else { first.dtype() })
        }
        Expression::Tuple(parts) => ElementSpec::Tuple(parts.iter().map(of).collect::<Result<_>>()?),
        Expression::Dict(parts) => {
            let parts = parts.iter().map(|(name, part)| Ok((name.clone(), of(part)?)));
            ElementSpec::Dict(parts.collect::<Result<_>>()?)
        }
        Expression::Index(map, name) => match of(map)? {
            ElementSpec::Dict(mut parts) => parts.remove(name).with_context(|| format!("the map has no key {name:?}"))?,
            other => bail!("{other} is not a map"),
        },
        Expression::Call(name, arguments) => called_spec(name, arguments, names)?,
        Expression::Text(_) | Expression::List(_) => bail!("{expression:?} is not a value"),
    })
}

fn tensor_spec(spec: ElementSpec) -> Result<TensorSpec> {
    if let ElementSpec::Tensor(spec) = spec { Ok(spec) } else { bail!("{spec} is not a tensor") }
}

/// Returns the type `spec` with its element type replaced by `dtype`.
fn typed(spec: &TensorSpec, dtype: DType) -> ElementSpec {
    TensorSpec::new(dtype, spec.dims().unwrap_or(&[])).into()
}

fn called_spec(name: &str, arguments: &[Expression], names: &Names<'_, &ElementSpec>) -> Result<ElementSpec> {
    use Expression::{List, Name};
    let of = |expression: &Expression| spec(expression, names);
    let tensor = |expression: &Expression| tensor_spec(of(expression)?);
    let datasets = |of: ElementSpec| ElementSpec::Dataset(Box::new(of));
    Ok(match (name, arguments) {
        ("cast", [x, Name(name)]) => typed(&tensor(x)?, dtype(name)?),
        ("fill", [List(dims), x]) => TensorSpec::new(tensor(x)?.dtype(), &vec![None; dims.len()]).into(),
        ("as_string", [x]) => tensor(x).map(|_| ElementSpec::Strings(Vec::new()))?,
        ("length", [x]) => tensor(x).map(|_| scalar(DType::I64))?,
        ("reduce_sum", [x]) => scalar(tensor(x)?.dtype()),
        ("check_numerics", [x, _]) => of(x)?,
        ("range", [Name(_), x]) => tensor(x).map(|_| datasets(scalar(DType::I64)))?,
        ("from_tensors", [Name(_), x]) => datasets(of(x)?),
        ("from_tensor_slices", [Name(_), x]) => datasets(match of(x)? {
            ElementSpec::Tensor(tensor) => {
                TensorSpec::new(tensor.dtype(), tensor.dims().and_then(|dims| dims.get(1..)).unwrap_or(&[])).into()
            }
            ElementSpec::Strings(dims) => ElementSpec::Strings(dims.get(1..).unwrap_or(&[]).to_vec()),
            other => bail!("{other} cannot be sliced here"),
        }),
        ("repeat", [elements, _]) => of(elements)?,
        ("batch", [elements, _]) => match of(elements)? {
            ElementSpec::Dataset(inner) => datasets(batched(&inner)),
            other => bail!("{other} is not a dataset"),
        },
        (name, [x]) => typed(&tensor(x)?, dtype(name)?),
        _ => bail!("unknown function {name:?}"),
    })
}

/// Returns the type of batches of these elements, of any batch size.
fn batched(spec: &ElementSpec) -> ElementSpec {
    let rows = |dims: Option<&[Option<u32>]>| [&[None], dims.unwrap_or(&[])].concat();
    match spec {
        ElementSpec::Tensor(tensor) => TensorSpec::new(tensor.dtype(), &rows(tensor.dims())).into(),
        ElementSpec::Strings(dims) => ElementSpec::Strings(rows(Some(dims))),
        ElementSpec::Tuple(parts) => ElementSpec::Tuple(parts.iter().map(batched).collect()),
        ElementSpec::Dict(parts) => ElementSpec::Dict(parts.iter().map(|(name, part)| (name.clone(), batched(part))).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(x: i64) -> Value {
        Value::Tensor(Tensor::scalar(&gradlet::cpu(), x))
    }

    fn function(text: &str) -> Function {
        Function::parse(text).unwrap()
    }

    fn numbers_of(dataset: &Dataset<Value>) -> Vec<i64> {
        dataset.iter().map(|element| element.unwrap().integer().unwrap()).collect()
    }

    /// The text of a function, not its name, determines its result.
    #[test]
    fn functions_are_what_their_texts_say() {
        let of = |text: &str, x: i64| function(text).call(number(x)).unwrap().integer().unwrap();
        assert_eq!(["x + 1", "x + 5", "x * -7", "x * x", "20 // (x - 1) (integer division)"].map(|text| of(text, 3)), [4, 8, -21, 9, 10]);
        assert_eq!([of("x % 5", -1), of("reduce_sum(x)", 4), of("2 + x * 3 - 1", 2)], [4, 4, 7]);
        let holds = |text: &str, x: i64| function(text).holds(&number(x)).unwrap();
        assert!(holds("x < 4", 3) && !holds("x < 3", 3) && holds("x % 3 == 2", 5) && holds("x >= 3", 3) && holds("True", 0));
        assert!(!holds("False", 0));
        let pair = Value::Tuple(vec![number(4), number(6)]);
        assert_eq!(function("(a, b) -> a + b").call(pair.clone()).unwrap().integer().unwrap(), 10);
        let [a, b] = function("(a, b) -> (b, a - 1)").call(pair.clone()).unwrap().parts().unwrap();
        assert_eq!((a.integer().unwrap(), b.integer().unwrap()), (6, 3));
        assert!(function("(a, b) -> a < b").holds(&pair).unwrap());
        let named = function("{'v': x, 'more': x + 2}").call(number(1)).unwrap();
        assert_eq!(function("d['more']").call(named).unwrap().integer().unwrap(), 3);
        let halved = function("cast(x, float32) / 4").call(number(2)).unwrap().tensor().unwrap();
        assert_eq!(halved.item::<f32>().unwrap(), 0.5);
        let error = |text: &str| function(text).call(number(5)).unwrap_err().to_string();
        assert_eq!(error("check_numerics(1.0 / float32(x - 5), 'worse value')"), "worse value : Tensor had Inf values");
        assert!(error("10 // (x - 5)").contains("division by zero"));
    }

    #[test]
    fn functions_make_tensors_and_datasets() {
        let tensor = |text: &str| function(text).call(number(2)).unwrap().tensor().unwrap();
        assert_eq!(tensor("fill([x, x+1], x)").dims(), [2, 3]);
        let length = function("length of x (int32)").call(Value::Tensor(tensor("fill([x], x)"))).unwrap().tensor().unwrap();
        assert_eq!((length.dtype(), length.item::<i32>().unwrap()), (DType::I32, 2));
        let Value::Strings(text) = function("decimal string of x").call(number(42)).unwrap() else { panic!("no string") };
        assert_eq!(text.values(), ["42"]);
        let dataset = |text: &str, x: Value| numbers_of(&function(text).dataset(x).unwrap());
        assert_eq!(dataset("Dataset.range(x)", number(3)), [0, 1, 2]);
        assert_eq!(dataset("Dataset.from_tensors(x).repeat(4)", number(3)), [3; 4]);
        assert_eq!(dataset("Dataset.from_tensor_slices(x)", Value::Tensor(tensor("fill([x], x)"))), [2, 2]);
        let window = Value::Dataset(numbers(Dataset::range(0..5)));
        assert_eq!(function("window.batch(4)").dataset(window.clone()).unwrap().iter().count(), 2);
        let key = function("(key, window) -> window.batch(2)");
        assert_eq!(dataset_len(key.call_with(vec![number(0), window]).unwrap()), 3);
    }

    fn dataset_len(value: Value) -> usize {
        dataset(value).unwrap().iter().count()
    }

    #[test]
    fn types_are_known_or_refused() {
        let integer = scalar(DType::I64);
        let of = |text: &str| function(text).spec(&integer).map(|spec| spec.to_string());
        assert_eq!(of("x * x").unwrap(), "i64[]");
        assert_eq!(of("x < 3").unwrap(), "bool[]");
        assert_eq!(of("(x, cast(x, float32) / 2)").unwrap(), "(i64[], f32[])");
        assert_eq!(of("fill([x, x+1], x)").unwrap(), "i64[?,?]");
        assert_eq!(of("Dataset.from_tensors(fill([x], x)).repeat(3)").unwrap(), "dataset of i64[?]");
        assert_eq!(of("length of x (int32)").unwrap(), "i32[]");
        for text in ["(a, b) -> a + b", "d['v']", "unknown(x)", "y(x, x)"] {
            assert!(of(text).is_err(), "{text}");
        }
        for text in ["x +", "(x", "x ? 1", "'a", "fill([x)", "x y"] {
            assert!(Function::parse(text).is_err(), "{text}");
        }
    }
}
