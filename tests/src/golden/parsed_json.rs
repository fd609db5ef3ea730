//! Comparison of parsed features with the reference's parse results in JSON.

use crate::golden::checks::hex_field;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use gradlet::io::example::{Parsed, ParsedFeatures};
use gradlet::tensor::{Strings, Values};
use gradlet::{DType, Shape, Tensor, TensorType};
use serde_json::Value as Json;

/// Compares a result with a case: `right` compares a value with the case's `ok`, and the text of an error must match the case's `error`.
pub fn judge<T>(result: gradlet::Result<T>, case: &Json, right: impl FnOnce(&T, &Json) -> Result<()>) -> Result<()> {
    match (result, case.get("ok"), case.get("error")) {
        (Ok(value), Some(wanted), None) => right(&value, wanted),
        (Err(error), None, Some(wanted)) => right_words(&error.to_string(), wanted),
        (Err(error), Some(_), None) => bail!("it failed: {error}"),
        (Ok(_), None, Some(wanted)) => bail!("it did not fail, but should have: {wanted}"),
        _ => bail!("the case has neither \"ok\" nor \"error\""),
    }
}

/// Checks that the error contains the reference's message. If the message contains an unparsable record, the bytes of the record are not
/// compared.
fn right_words(text: &str, wanted: &Json) -> Result<()> {
    if wanted["type"] == "UnicodeDecodeError" {
        // Python could not decode the reference's error, which contains the record's bytes.
        ensure!(text.contains("Could not parse example input"), "got: {text}");
        return Ok(());
    }
    let core = wanted["core"].as_str().or(wanted["message"].as_str()).context("no message")?;
    let core = core.find("value: '").map_or(core, |at| &core[..at + 8]);
    ensure!(text.contains(core), "got: {text}\nwanted: {core}");
    Ok(())
}

/// Checks that parsed features equal those of a JSON object in names, types, shapes and values. Floats are compared bit for bit.
pub fn found(parsed: &ParsedFeatures, wanted: &Json) -> Result<()> {
    let parsed = parsed.clone().into_map();
    let wanted = wanted.as_object().context("expected a JSON object")?;
    ensure!(parsed.len() == wanted.len(), "{} features, wanted {}", parsed.len(), wanted.len());
    for (name, wanted) in wanted {
        let value = parsed.get(name).with_context(|| format!("{name:?} is missing"))?;
        one(value, wanted).with_context(|| format!("feature {name:?}"))?;
    }
    Ok(())
}

fn one(value: &Parsed, wanted: &Json) -> Result<()> {
    match value {
        Parsed::Tensor(tensor) => same(&tensor.clone().into(), wanted),
        Parsed::Strings(strings) => same(&strings.clone().into(), wanted),
        Parsed::Sparse(sparse) => {
            let wanted = wanted.get("sparse").context("wanted no sparse tensor")?;
            same(&sparse.indices().clone().into(), &wanted["indices"]).context("indices")?;
            ensure!(shape(&wanted["dense_shape"])? == *sparse.dense_shape(), "dense shape {}", sparse.dense_shape());
            same(sparse.values(), &wanted["values"])
        }
        Parsed::Ragged(ragged) => {
            let wanted = wanted.get("ragged").context("wanted no ragged tensor")?;
            ensure!(wanted["row_splits"] == serde_json::json!(ragged.row_splits()), "row splits {:?}", ragged.row_splits());
            same(ragged.values(), &wanted["values"])
        }
    }
}

/// Checks that values equal those of `{"dtype", "shape", "data"}`. TensorFlow's ops that decode 16-bit integers give i32 here.
pub fn same(values: &Values, wanted: &Json) -> Result<()> {
    ensure!(shape(&wanted["shape"])? == *values.shape(), "shape {}, wanted {}", values.shape(), wanted["shape"]);
    let (name, data) = (wanted["dtype"].as_str().context("no dtype")?, list(&wanted["data"])?);
    let tensor = match values {
        Values::Strings(strings) => {
            ensure!(name == "string", "strings, wanted {name}");
            let data = data.iter().map(bytes).collect::<Result<Vec<_>>>()?;
            ensure!(strings.values() == data, "{:?}, wanted {data:?}", strings.values());
            return Ok(());
        }
        Values::Numbers(tensor) => tensor,
    };
    let wanted = if ["int16", "uint16"].contains(&name) { DType::I32 } else { dtype(name)? };
    ensure!(tensor.dtype() == wanted, "{}, wanted {name}", tensor.dtype());
    let wanted = data.iter().map(|value| element(value, wanted)).collect::<Result<Vec<_>>>()?.concat();
    ensure!(quiet(tensor)? == wanted, "{:?}, wanted {wanted:?}", tensor.bytes()?);
    Ok(())
}

/// Reads the values of `{"dtype", "shape", "data"}`.
pub fn values(json: &Json) -> Result<Values> {
    let (name, data, shape) = (json["dtype"].as_str().context("no dtype")?, list(&json["data"])?, shape(&json["shape"])?);
    if name == "string" {
        return Ok(Strings::new(data.iter().map(bytes).collect::<Result<_>>()?, shape.dims())?.into());
    }
    let dtype = dtype(name)?;
    let elements = data.iter().map(|value| element(value, dtype)).collect::<Result<Vec<_>>>()?.concat();
    Ok(Tensor::from_bytes(&gradlet::cpu(), TensorType::new(dtype, shape), &elements)?.into())
}

/// Returns the bytes of a tensor, with every NaN replaced by the same NaN, because JSON has only one NaN.
fn quiet(tensor: &Tensor) -> Result<Vec<u8>> {
    Ok(match tensor.dtype() {
        DType::F32 => {
            tensor.to_vec::<f32>()?.into_iter().flat_map(|value| if value.is_nan() { f32::NAN } else { value }.to_le_bytes()).collect()
        }
        DType::F64 => {
            tensor.to_vec::<f64>()?.into_iter().flat_map(|value| if value.is_nan() { f64::NAN } else { value }.to_le_bytes()).collect()
        }
        _ => tensor.bytes()?.to_vec(),
    })
}

fn element(json: &Json, dtype: DType) -> Result<Vec<u8>> {
    let integer = || json.as_i64().or(json.as_bool().map(i64::from)).with_context(|| format!("{json} is not an integer"));
    Ok(match dtype {
        DType::F32 => (float(json)? as f32).to_le_bytes().into(),
        DType::F64 => float(json)?.to_le_bytes().into(),
        DType::F16 => half::f16::from_f64(float(json)?).to_le_bytes().into(),
        DType::Bf16 => half::bf16::from_f64(float(json)?).to_le_bytes().into(),
        dtype => integer()?.to_le_bytes()[..dtype.size()].into(),
    })
}

/// Returns the element type with this name in TensorFlow's Python API, such as `float32`. Fails if gradlet has no such type.
pub fn dtype(name: &str) -> Result<DType> {
    Ok(match name {
        "float32" => DType::F32,
        "float64" => DType::F64,
        "float16" => DType::F16,
        "bfloat16" => DType::Bf16,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "bool" => DType::Bool,
        other => bail!("unknown dtype {other:?}"),
    })
}

fn shape(json: &Json) -> Result<Shape> {
    let dims = list(json)?.iter().map(|dim| Ok(u32::try_from(dim.as_u64().context("no size")?)?)).collect::<Result<Vec<_>>>()?;
    Ok(Shape::new(&dims)?)
}

/// Returns the items of a list. Fails if `json` is not a list.
pub fn list(json: &Json) -> Result<&Vec<Json>> {
    json.as_array().with_context(|| format!("{json} is not a list"))
}

/// Returns a float. In JSON, non-finite floats are texts.
pub fn float(json: &Json) -> Result<f64> {
    crate::golden::fixtures::number(json).with_context(|| format!("{json} is not a number"))
}

/// Returns a byte string, which is in hexadecimal or plain text.
pub fn bytes(json: &Json) -> Result<Bytes> {
    match json {
        Json::String(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        object => Ok(hex_field(object)?.into()),
    }
}
