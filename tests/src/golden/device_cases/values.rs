//! Values of steps: tensors of nested lists, and results, which are compared with TensorFlow's.

use crate::golden::parsed_json::{dtype, list, values};
use anyhow::{Context, Result, bail, ensure};
use gradlet::tensor::Values;
use gradlet::{DType, Device, Tensor};
use serde_json::Value as Json;

/// Result of a step.
pub enum Got {
    /// Names of devices, counts, or null.
    Plain(Json),
    /// Value of a tensor.
    Tensor(Tensor),
    /// Results in order.
    List(Vec<Got>),
    /// Results with names.
    Fields(Vec<(&'static str, Got)>),
}

impl From<Json> for Got {
    fn from(plain: Json) -> Got {
        Got::Plain(plain)
    }
}

impl From<Tensor> for Got {
    fn from(tensor: Tensor) -> Got {
        Got::Tensor(tensor)
    }
}

impl<T: Into<Got>> From<Vec<T>> for Got {
    fn from(items: Vec<T>) -> Got {
        Got::List(items.into_iter().map(Into::into).collect())
    }
}

impl Got {
    /// Checks that the result equals `wanted`, TensorFlow's result. Floats may differ by `tolerance`, which is relative and absolute.
    pub fn compare(&self, wanted: &Json, tolerance: f64) -> Result<()> {
        match self {
            Got::Plain(got) => ensure!(got == wanted, "got {got}, wanted {wanted}"),
            Got::Tensor(tensor) => close(tensor, wanted, tolerance)?,
            Got::List(items) => {
                let wanted = list(wanted)?;
                ensure!(items.len() == wanted.len(), "{} items, wanted {}", items.len(), wanted.len());
                for (index, (item, wanted)) in items.iter().zip(wanted).enumerate() {
                    item.compare(wanted, tolerance).with_context(|| format!("item {index}"))?;
                }
            }
            Got::Fields(fields) => {
                let count = wanted.as_object().context("expected a JSON object")?.len();
                ensure!(fields.len() == count, "{} fields, wanted {wanted}", fields.len());
                for (name, field) in fields {
                    field.compare(&wanted[*name], tolerance).context(*name)?;
                }
            }
        }
        Ok(())
    }
}

/// Checks that a tensor has the type and the elements of `{"dtype", "shape", "data"}`.
fn close(tensor: &Tensor, wanted: &Json, tolerance: f64) -> Result<()> {
    let wanted = numbers(wanted)?;
    ensure!(tensor.tensor_type() == wanted.tensor_type(), "got {}, wanted {}", tensor.tensor_type(), wanted.tensor_type());
    if !tensor.dtype().is_float() {
        ensure!(*tensor.bytes()? == *wanted.bytes()?, "got the bytes {:?}, wanted {:?}", tensor.bytes()?, wanted.bytes()?);
        return Ok(());
    }
    let (got, wanted) = (floats(tensor)?, floats(&wanted)?);
    let near = |(got, wanted): (&f64, &f64)| {
        let within = wanted.is_finite() && (got - wanted).abs() <= tolerance * (1.0 + wanted.abs());
        within || got == wanted || (got.is_nan() && wanted.is_nan())
    };
    ensure!(got.iter().zip(&wanted).all(near), "got {got:?}, wanted {wanted:?}");
    Ok(())
}

fn floats(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(on(&gradlet::cpu(), tensor)?.cast(DType::F64)?.to_vec()?)
}

/// Reads a tensor of the form `{"dtype", "shape", "data"}` to the host's CPU.
fn numbers(json: &Json) -> Result<Tensor> {
    match values(json)? {
        Values::Numbers(tensor) => Ok(tensor),
        Values::Strings(_) => bail!("{json} is not a tensor of numbers"),
    }
}

/// Creates a tensor of a number or a nested list on the host's CPU. `dtype` is TensorFlow's name of the element type.
pub fn host(dtype: &str, value: &Json) -> Result<Tensor> {
    let (mut dims, mut level) = (Vec::new(), vec![value]);
    while let Some(Json::Array(first)) = level.first() {
        dims.push(first.len());
        level = level.iter().flat_map(|item| item.as_array().into_iter().flatten()).collect();
    }
    numbers(&serde_json::json!({"dtype": dtype, "shape": dims, "data": level}))
}

/// Copies a tensor to a device.
pub fn on(device: &Device, tensor: &Tensor) -> gradlet::Result<Tensor> {
    Tensor::from_bytes(device, tensor.tensor_type(), &tensor.bytes()?)
}

/// Returns TensorFlow's name of an element type, such as `float32`.
pub fn name_of(own: DType) -> Result<&'static str> {
    let all = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"];
    all.into_iter().find(|name| dtype(name).is_ok_and(|known| known == own)).with_context(|| format!("{own} has no name"))
}
