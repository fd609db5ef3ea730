//! Elements of a dynamic type, which the cases determine. A program that reads pipelines from a file would define such a type itself.

use anyhow::{Context, Result, ensure};
use gradlet::data::{Batch, Components, Element, ElementSpec, Pad, RaggedBatch, Slices};
use gradlet::tensor::{RaggedTensor, Strings, Values};
use gradlet::{DType, Dataset, Error, Tensor, TensorSpec};
use serde_json::Value as Json;
use std::collections::BTreeMap;

use crate::golden::parsed_json::{self, dtype};

/// An element of any type.
#[derive(Clone, Debug)]
pub enum Value {
    Tensor(Tensor),
    Strings(Strings),
    Ragged(RaggedTensor),
    Tuple(Vec<Value>),
    Dict(BTreeMap<String, Value>),
    Dataset(Dataset<Value>),
}

/// Returns the error for elements of different kinds.
fn mixed() -> Error {
    Error::message("the elements are of different types")
}

/// Combines values of the same kind: tensors with `tensors`, strings with `strings`, and tuples and dictionaries part by part. Fails if the
/// kinds differ.
fn together(
    elements: Vec<Value>,
    tensors: &mut dyn FnMut(Vec<Tensor>) -> gradlet::Result<Value>,
    strings: &mut dyn FnMut(Vec<Strings>) -> gradlet::Result<Value>,
) -> gradlet::Result<Value> {
    match elements.first() {
        Some(Value::Tensor(_)) => tensors(elements.into_iter().map(Value::tensor).collect::<Result<_, _>>()?),
        Some(Value::Strings(_)) => {
            let part = |element| if let Value::Strings(part) = element { Ok(part) } else { Err(mixed()) };
            strings(elements.into_iter().map(part).collect::<Result<_, _>>()?)
        }
        Some(Value::Tuple(parts)) => {
            let mut columns: Vec<Vec<Value>> = parts.iter().map(|_| Vec::new()).collect();
            for element in elements {
                let Value::Tuple(parts) = element else { return Err(mixed()) };
                columns.iter_mut().zip(parts).for_each(|(column, part)| column.push(part));
            }
            Ok(Value::Tuple(columns.into_iter().map(|column| together(column, tensors, strings)).collect::<Result<_, _>>()?))
        }
        Some(Value::Dict(parts)) => {
            let mut columns: BTreeMap<String, Vec<Value>> = parts.keys().map(|name| (name.clone(), Vec::new())).collect();
            for element in elements {
                let Value::Dict(parts) = element else { return Err(mixed()) };
                parts.into_iter().for_each(|(name, part)| columns.entry(name).or_default().push(part));
            }
            let columns = columns.into_iter().map(|(name, column)| Ok((name, together(column, tensors, strings)?)));
            Ok(Value::Dict(columns.collect::<gradlet::Result<_>>()?))
        }
        _ => Err(Error::message("these elements cannot be put together")),
    }
}

impl Batch for Value {
    type Batched = Value;
    fn batch(elements: Vec<Value>) -> gradlet::Result<Value> {
        together(elements, &mut |all| Ok(Value::Tensor(Batch::batch(all)?)), &mut |all| Ok(Value::Strings(Batch::batch(all)?)))
    }
}

impl Pad for Value {
    fn pad(elements: Vec<Value>, components: &mut Components<'_>) -> gradlet::Result<Value> {
        let components = std::cell::RefCell::new(components);
        together(elements, &mut |all| Ok(Value::Tensor(Pad::pad(all, &mut components.borrow_mut())?)), &mut |all| {
            Ok(Value::Strings(Pad::pad(all, &mut components.borrow_mut())?))
        })
    }
}

/// Returns the types of the tensors in an element, in order.
fn leaves(spec: &ElementSpec) -> Vec<&ElementSpec> {
    match spec {
        ElementSpec::Tuple(parts) => parts.iter().flat_map(leaves).collect(),
        ElementSpec::Dict(parts) => parts.values().flat_map(leaves).collect(),
        leaf => vec![leaf],
    }
}

impl RaggedBatch for Value {
    type Ragged = Value;
    fn ragged_batch(elements: Vec<Value>, spec: Option<&ElementSpec>) -> gradlet::Result<Value> {
        let leaves = std::cell::RefCell::new(spec.map(leaves).unwrap_or_default().into_iter());
        let next = || leaves.borrow_mut().next();
        together(elements, &mut |all| Ok(RaggedBatch::ragged_batch(all, next())?.into()), &mut |all| {
            Ok(RaggedBatch::ragged_batch(all, next())?.into())
        })
    }
}

/// Converts a ragged tensor. One without ragged dimensions becomes a plain tensor.
impl From<RaggedTensor> for Value {
    fn from(ragged: RaggedTensor) -> Value {
        match (ragged.ragged_rank(), ragged.values()) {
            (0, Values::Numbers(tensor)) => Value::Tensor(tensor.clone()),
            (0, Values::Strings(strings)) => Value::Strings(strings.clone()),
            _ => Value::Ragged(ragged),
        }
    }
}

impl Element for Value {
    fn spec(&self) -> Option<ElementSpec> {
        match self {
            Value::Tensor(tensor) => tensor.spec(),
            Value::Strings(strings) => strings.spec(),
            Value::Tuple(parts) => Some(ElementSpec::Tuple(parts.iter().map(Element::spec).collect::<Option<_>>()?)),
            Value::Dict(parts) => parts.spec(),
            Value::Dataset(dataset) => Some(ElementSpec::Dataset(dataset.element_spec()?.clone().into())),
            Value::Ragged(_) => None,
        }
    }
}

impl Slices for Value {
    type Slice = Value;

    fn length(&self) -> gradlet::Result<usize> {
        match self {
            Value::Tensor(tensor) => tensor.length(),
            Value::Strings(strings) => strings.length(),
            Value::Dict(parts) => parts.length(),
            Value::Tuple(parts) => {
                let named: BTreeMap<String, Value> =
                    parts.iter().enumerate().map(|(index, part)| (format!("{index:3}"), part.clone())).collect();
                named.length()
            }
            _ => Err(Error::message("this element cannot be taken apart")),
        }
    }

    fn slice(&self, index: usize) -> gradlet::Result<Value> {
        Ok(match self {
            Value::Tensor(tensor) => Value::Tensor(Slices::slice(tensor, index)?),
            Value::Strings(strings) => Value::Strings(strings.slice(index)?),
            Value::Dict(parts) => Value::Dict(parts.slice(index)?),
            Value::Tuple(parts) => Value::Tuple(parts.iter().map(|part| part.slice(index)).collect::<gradlet::Result<_>>()?),
            _ => return Err(Error::message("this element cannot be taken apart")),
        })
    }
}

impl Value {
    /// Returns the tensor. Fails for any other kind.
    pub fn tensor(self) -> gradlet::Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(Error::message(format!("expected a tensor, but got {other:?}"))),
        }
    }

    /// Returns the parts of a tuple. Fails for any other kind, or for another number of parts.
    pub fn parts<const COUNT: usize>(self) -> gradlet::Result<[Value; COUNT]> {
        match self {
            Value::Tuple(parts) => parts.try_into().map_err(|_| mixed()),
            other => Err(Error::message(format!("expected a tuple, but got {other:?}"))),
        }
    }

    /// Returns the integer in a scalar tensor of any integer type.
    pub fn integer(&self) -> gradlet::Result<i64> {
        self.clone().tensor()?.cast(DType::I64)?.item()
    }

    /// Reads the element in a case.
    pub fn from_json(json: &Json) -> Result<Value> {
        if let Some(parts) = json["tuple"].as_array() {
            return Ok(Value::Tuple(parts.iter().map(Value::from_json).collect::<Result<_>>()?));
        }
        if let Some(parts) = json["dict"].as_object() {
            let parts = parts.iter().map(|(name, part)| Ok((name.clone(), Value::from_json(part)?)));
            return Ok(Value::Dict(parts.collect::<Result<_>>()?));
        }
        Ok(match parsed_json::values(json)? {
            Values::Numbers(tensor) => Value::Tensor(tensor),
            Values::Strings(strings) => Value::Strings(strings),
        })
    }

    /// Compares this element with the one in a case. Fails if they differ.
    pub fn compare(&self, json: &Json) -> Result<()> {
        match self {
            Value::Tuple(parts) => {
                let wanted = json["tuple"].as_array().with_context(|| format!("a tuple, wanted {json}"))?;
                ensure!(wanted.len() == parts.len(), "a tuple of {}, wanted {json}", parts.len());
                parts.iter().zip(wanted).try_for_each(|(part, wanted)| part.compare(wanted))
            }
            Value::Dict(parts) => {
                let wanted = json["dict"].as_object().with_context(|| format!("a map, wanted {json}"))?;
                ensure!(wanted.len() == parts.len(), "a map of {}, wanted {json}", parts.len());
                parts.iter().try_for_each(|(name, part)| part.compare(&wanted[name]).with_context(|| name.clone()))
            }
            Value::Dataset(dataset) => {
                let wanted = json["dataset"].as_array().with_context(|| format!("a dataset, wanted {json}"))?;
                let elements: Vec<Value> = dataset.iter().collect::<gradlet::Result<_>>()?;
                ensure!(elements.len() == wanted.len(), "a dataset of {}, wanted {json}", elements.len());
                elements.iter().zip(wanted).try_for_each(|(element, wanted)| element.compare(wanted))
            }
            Value::Ragged(ragged) => {
                let wanted = &json["ragged"];
                parsed_json::same(ragged.values(), &wanted["values"])?;
                ensure!(
                    serde_json::json!(ragged.row_splits()) == wanted["row_splits"],
                    "splits {:?}, wanted {wanted}",
                    ragged.row_splits()
                );
                Ok(())
            }
            Value::Strings(strings) => parsed_json::same(&strings.clone().into(), json),
            Value::Tensor(tensor) => parsed_json::same(&tensor.clone().into(), json),
        }
    }
}

/// Reads the element type in a case. Returns `None` for a form that only TensorFlow has.
pub fn spec_from_json(json: &Json) -> Result<Option<ElementSpec>> {
    let all = |parts: &Vec<Json>| parts.iter().map(spec_from_json).collect::<Result<Option<Vec<_>>>>();
    if let Some(parts) = json["tuple"].as_array() {
        return Ok(all(parts)?.map(ElementSpec::Tuple));
    }
    if let Some(parts) = json["dict"].as_object() {
        let specs = all(&parts.values().cloned().collect())?;
        return Ok(specs.map(|specs| ElementSpec::Dict(parts.keys().cloned().zip(specs).collect())));
    }
    if json["dataset_of"].is_object() {
        return Ok(spec_from_json(&json["dataset_of"])?.map(|spec| ElementSpec::Dataset(spec.into())));
    }
    if let Some(text) = json["other"].as_str() {
        return ragged_spec(text).map(Some);
    }
    let Some(dims) = json["shape"].as_array() else { return Ok(None) };
    let dims: Vec<Option<u32>> = dims.iter().map(|dim| dim.as_u64().map(|dim| dim as u32)).collect();
    Ok(Some(match json["dtype"].as_str().context("no dtype")? {
        "string" => ElementSpec::Strings(dims),
        name => TensorSpec::new(dtype(name)?, &dims).into(),
    }))
}

/// Parses a text such as `RaggedTensorSpec(TensorShape([None, None]), tf.int64, 1, tf.int64)`.
fn ragged_spec(text: &str) -> Result<ElementSpec> {
    let inside = |open: char, close: char| text.split_once(open).and_then(|(_, rest)| rest.split_once(close)).map(|(inside, _)| inside);
    let dims = inside('[', ']').with_context(|| text.to_string())?;
    let dims = dims.split(", ").filter(|dim| !dim.is_empty()).map(|dim| if dim == "None" { Ok(None) } else { Ok(Some(dim.parse()?)) });
    let dims: Vec<Option<u32>> = dims.collect::<Result<_>>()?;
    let name = text.split("tf.").nth(1).and_then(|rest| rest.split(',').next()).with_context(|| text.to_string())?;
    let spec = TensorSpec::new(dtype(name)?, &dims);
    // A ragged type of rank 1 is in fact a plain batch of scalars.
    Ok(if dims.len() > 1 { ElementSpec::Ragged(spec) } else { spec.into() })
}
