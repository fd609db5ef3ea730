//! The functions that the cases name, and the types of what they give.

use super::value::Value;
use anyhow::{Result, bail};
use gradlet::data::ElementSpec;
use gradlet::{DType, Dataset, Error, Strings, Tensor, TensorSpec};
use std::collections::BTreeMap;

/// What a function makes of an element.
pub fn call(name: &str, value: Value) -> gradlet::Result<Value> {
    let tensor = |value: Value| value.tensor();
    let like = |x: &Tensor, number: i64| Tensor::scalar(&gradlet::cpu(), number).cast(x.dtype());
    Ok(Value::Tensor(match name {
        "add1" => {
            let x = tensor(value)?;
            x.add(&like(&x, 1)?)?
        }
        "mul2" => {
            let x = tensor(value)?;
            x.mul(&like(&x, 2)?)?
        }
        "square" => {
            let x = tensor(value)?;
            x.mul(&x)?
        }
        "half" => {
            let x = tensor(value)?.cast(DType::F32)?;
            x.div(&like(&x, 2)?)?
        }
        "sum2" => {
            let [a, b] = value.parts()?;
            tensor(a)?.add(&tensor(b)?)?
        }
        "sum_all" => tensor(value)?.sum(&[], false)?,
        "fill_x" => {
            let (x, dtype) = (value.integer()?, value.tensor()?.dtype());
            Tensor::full(&gradlet::cpu(), x, &[x as u32])?.cast(dtype)?
        }
        "fill_x_1" => {
            let (x, dtype) = (value.integer()?, value.tensor()?.dtype());
            Tensor::full(&gradlet::cpu(), x, &[x as u32, x as u32 + 1])?.cast(dtype)?
        }
        "fail_on_k" => {
            let x = value.integer()?;
            if x == 3 {
                return Err(Error::message("bad value : Tensor had Inf values"));
            }
            Tensor::scalar(&gradlet::cpu(), 1.0f32 / (x - 3) as f32)
        }
        "fail_div" => {
            let x = tensor(value)?;
            like(&x, 10)?.floordiv(&x.sub(&like(&x, 3)?)?)?
        }
        "length" => Tensor::scalar(&gradlet::cpu(), tensor(value)?.dims()[0] as i32),
        "key_mod2" => {
            let x = tensor(value)?;
            x.floormod(&like(&x, 2)?)?
        }
        _ => return structured(name, value),
    }))
}

fn structured(name: &str, value: Value) -> gradlet::Result<Value> {
    Ok(match name {
        "identity" => value,
        "pair" => Value::Tuple(vec![value.clone(), call("square", value)?]),
        "swap" => {
            let [a, b] = value.parts()?;
            Value::Tuple(vec![b, a])
        }
        "to_dict" => Value::Dict(BTreeMap::from([("v".into(), value.clone()), ("sq".into(), call("square", value)?)])),
        "get_v" => match value {
            Value::Dict(mut parts) => parts.remove("v").ok_or_else(|| Error::message("there is no \"v\""))?,
            _ => return Err(Error::message("a map was expected")),
        },
        "to_string" => Value::Strings(Strings::scalar(value.integer()?.to_string())),
        _ => return Err(Error::message(format!("the function {name:?} is not known"))),
    })
}

/// What a predicate says of an element.
pub fn holds(name: &str, value: &Value) -> gradlet::Result<bool> {
    Ok(match name {
        "is_even" => value.integer()?.rem_euclid(2) == 0,
        "lt_k" => value.integer()? < 3,
        "never" => false,
        "always" => true,
        "mod3_is_0" => value.integer()?.rem_euclid(3) == 0,
        "take_lt" => value.integer()? < 6,
        "first_gt_second" => {
            let [a, b] = value.clone().parts()?;
            a.integer()? > b.integer()?
        }
        _ => return Err(Error::message(format!("the predicate {name:?} is not known"))),
    })
}

/// The dataset that a function makes of an element.
pub fn dataset(name: &str, value: Value) -> gradlet::Result<Dataset<Value>> {
    let inner = inner_spec(name, value_spec(&value).as_ref());
    let made = match (name, value) {
        ("range_x", value) => numbers(Dataset::range(0..value.integer()?)),
        ("x_three_times", value) => Dataset::from_tensors(value).repeat_times(3),
        ("x_x_times", value) => {
            let times = value.integer()?.max(0) as u64;
            Dataset::from_tensors(value).repeat_times(times)
        }
        ("slices", value) => Dataset::from_tensor_slices(value),
        ("batch2", Value::Dataset(window)) => window.batch(2),
        ("batch10", Value::Dataset(window)) => window.batch(10),
        _ => return Err(Error::message(format!("{name:?} makes no dataset of this"))),
    };
    Ok(match inner {
        Ok(spec) => made.with_spec(spec),
        Err(_) => made,
    })
}

fn value_spec(value: &Value) -> Option<ElementSpec> {
    gradlet::data::Element::spec(value)
}

/// A range, with elements of any type.
pub fn numbers(range: Dataset<i64>) -> Dataset<Value> {
    let spec = scalar(DType::I64);
    range.map(|x| Ok(Value::Tensor(Tensor::scalar(&gradlet::cpu(), x)))).with_spec(spec)
}

/// The next state and the element of a scan.
pub fn scan(name: &str, state: Value, x: Value) -> gradlet::Result<(Value, Value)> {
    match name {
        "scan_sum" => {
            let sum = Value::Tensor(state.tensor()?.add(&x.tensor()?)?);
            Ok((sum.clone(), sum))
        }
        "scan_prev" => Ok((x, state)),
        _ => Err(Error::message(format!("the function {name:?} is not known"))),
    }
}

/// What a reduction of a group gives.
pub fn reduce(name: &str, group: &Dataset<Value>) -> gradlet::Result<Dataset<Value>> {
    match name {
        "reduce_batch" => Ok(group.batch(3)),
        _ => Err(Error::message(format!("the function {name:?} is not known"))),
    }
}

fn scalar(dtype: DType) -> ElementSpec {
    TensorSpec::new(dtype, &[]).into()
}

/// The type of what a function gives. Fails where a program with such a function would not compile.
pub fn spec(name: &str, spec: &ElementSpec) -> Result<ElementSpec> {
    use ElementSpec::{Dict, Tensor, Tuple};
    Ok(match (name, spec) {
        ("add1" | "mul2" | "square" | "identity" | "key_mod2" | "fail_div", Tensor(_)) | ("identity", _) => spec.clone(),
        ("half", Tensor(tensor)) => Tensor(TensorSpec::new(DType::F32, tensor.dims().unwrap_or(&[]))),
        ("pair", Tensor(_)) => Tuple(vec![spec.clone(), spec.clone()]),
        ("swap", Tuple(parts)) if parts.len() == 2 => Tuple(vec![parts[1].clone(), parts[0].clone()]),
        ("sum2", Tuple(parts)) if parts.len() == 2 => parts[0].clone(),
        ("to_dict", Tensor(_)) => Dict(BTreeMap::from([("v".into(), spec.clone()), ("sq".into(), spec.clone())])),
        ("get_v", Dict(parts)) if parts.contains_key("v") => parts["v"].clone(),
        ("fill_x", Tensor(tensor)) => TensorSpec::new(tensor.dtype(), &[None]).into(),
        ("fill_x_1", Tensor(tensor)) => TensorSpec::new(tensor.dtype(), &[None, None]).into(),
        ("to_string", Tensor(_)) => ElementSpec::Strings(Vec::new()),
        ("fail_on_k", Tensor(_)) => scalar(DType::F32),
        ("sum_all", Tensor(tensor)) => scalar(tensor.dtype()),
        ("length", Tensor(_)) => scalar(DType::I32),
        _ => bail!("{name} does not take {spec}"),
    })
}

/// Fails where a program with such a predicate would not compile.
pub fn predicate(name: &str, spec: &ElementSpec) -> Result<()> {
    match (name, spec) {
        ("is_even" | "lt_k" | "mod3_is_0" | "take_lt", ElementSpec::Tensor(_)) | ("never" | "always", _) => Ok(()),
        ("first_gt_second", ElementSpec::Tuple(parts)) if parts.len() == 2 => Ok(()),
        _ => bail!("{name} of {spec} is not a bool"),
    }
}

/// The type of the elements of the datasets that a function makes. Fails where a program with such a function would not compile.
pub fn inner_spec(name: &str, spec: Option<&ElementSpec>) -> Result<ElementSpec> {
    use ElementSpec::{Dataset, Strings, Tensor};
    Ok(match (name, spec) {
        ("range_x", Some(Tensor(_))) => scalar(DType::I64),
        ("x_three_times" | "x_x_times", Some(spec)) => spec.clone(),
        ("slices", Some(Tensor(tensor))) => {
            TensorSpec::new(tensor.dtype(), tensor.dims().and_then(|dims| dims.get(1..)).unwrap_or(&[])).into()
        }
        ("slices", Some(Strings(dims))) => Strings(dims.get(1..).unwrap_or(&[]).to_vec()),
        ("batch2" | "batch10", Some(Dataset(inner))) => batched(inner),
        _ => bail!("{name} makes no dataset of {spec:?}"),
    })
}

/// The type of batches of any size.
pub fn batched(spec: &ElementSpec) -> ElementSpec {
    let rows = |dims: Option<&[Option<u32>]>| [&[None], dims.unwrap_or(&[])].concat();
    match spec {
        ElementSpec::Tensor(tensor) => TensorSpec::new(tensor.dtype(), &rows(tensor.dims())).into(),
        ElementSpec::Strings(dims) => ElementSpec::Strings(rows(Some(dims))),
        ElementSpec::Tuple(parts) => ElementSpec::Tuple(parts.iter().map(batched).collect()),
        ElementSpec::Dict(parts) => ElementSpec::Dict(parts.iter().map(|(name, part)| (name.clone(), batched(part))).collect()),
        other => other.clone(),
    }
}
