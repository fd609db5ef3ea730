//! Examples that TensorFlow wrote, with its parse results: values, or error messages.

use crate::golden::checks::{Checks, hex, hex_field, json};
use crate::golden::parsed_json::{bytes, dtype, float, found, judge, list, same};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use gradlet::DType;
use gradlet::io::example::{
    Example, Feature, FeatureSpec, FeatureType, Features, FixedLenFeature, FixedLenSequenceFeature, ParsedFeatures, RaggedFeature,
    SequenceExample, VarLenFeature, parse_example, parse_single_example, parse_single_sequence_example,
};
use gradlet::io::{ByteOrder, RawType, decode_raw};
use gradlet::io::{parse_strings, parse_tensor, serialize_strings, serialize_tensor};
use gradlet::tensor::{Strings, Values};
use serde_json::Value as Json;
use std::path::Path;

/// Runs `examples/examples.json` and `examples.tfrecord`: Examples and their contents.
pub fn examples(folder: &Path, checks: &mut Checks) -> Result<()> {
    let cases = json(folder, "examples/examples.json")?;
    let cases = cases.as_object().context("expected a JSON object")?;
    // From this one on, the Examples are encoded by hand, in forms that no writer produces.
    let by_hand = cases.keys().position(|name| name.starts_with("unpacked_")).unwrap_or(cases.len());
    for (index, (name, case)) in cases.iter().enumerate() {
        checks.check(&format!("example {name}"), || {
            let record = Bytes::from(hex_field(case)?);
            let example = Example::from_bytes(record.clone())?;
            let decoded = case["decoded"].as_object().context("no decoded values")?;
            let features = example.features.clone().unwrap_or_default().feature;
            ensure!(features.keys().eq(sorted(decoded.keys())), "the names differ: {:?}", features.keys());
            decoded.iter().try_for_each(|(name, wanted)| same_feature(&features[name], wanted).context(name.clone()))?;
            ensure!(Example::from_bytes(example.to_bytes())?.to_bytes() == example.to_bytes(), "it differs after writing and reading it");
            ensure!(index >= by_hand || example.to_bytes() == record, "the bytes differ");
            Ok(())
        });
    }
    checks.check("examples.tfrecord", || {
        let records = gradlet::io::tfrecord::Records::new(std::fs::read(folder.join("examples/examples.tfrecord"))?.into());
        let records = records.collect::<Result<Vec<_>, _>>()?;
        let wanted = cases.values().map(hex_field).collect::<Result<Vec<_>>>()?;
        ensure!(records == wanted, "the records differ from the Examples");
        Ok(())
    });
    Ok(())
}

fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> impl Iterator<Item = &'a String> {
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.into_iter()
}

fn same_feature(feature: &Feature, wanted: &Json) -> Result<()> {
    match wanted["kind"].as_str() {
        None => ensure!(feature.kind.is_none(), "the feature has a list, but must be empty"),
        Some("bytes_list") => {
            let wanted = list(&wanted["values"])?.iter().map(bytes).collect::<Result<Vec<_>>>()?;
            ensure!(feature.strings().context("no strings")? == wanted, "the strings differ");
        }
        Some("float_list") => {
            let bits = feature.f32s().context("no floats")?.iter().map(|value| Json::from(value.to_bits()));
            ensure!(bits.eq(list(&wanted["f32_bits"])?.iter().cloned()), "the floats differ");
        }
        Some("int64_list") => {
            let values = feature.i64s().context("no integers")?.iter().map(|&value| Json::from(value));
            ensure!(values.eq(list(&wanted["values"])?.iter().cloned()), "the integers differ");
        }
        Some(kind) => bail!("unknown kind {kind:?}"),
    }
    Ok(())
}

/// Runs `examples/parse_cases.json`: feature specifications, and TensorFlow's parse results.
pub fn parse_cases(folder: &Path, checks: &mut Checks) -> Result<()> {
    for case in list(&json(folder, "examples/parse_cases.json")?)? {
        let id = case["id"].as_str().context("no id")?;
        checks.check(&format!("parse_cases {id}"), || parse_case(case));
    }
    Ok(())
}

/// Runs a case of `parse_cases.json`.
pub fn parse_case(case: &Json) -> Result<()> {
    judge(parsed(case)?, case, found)
}

/// Parses the record of a case with gradlet. The inner result is the parser's. The outer error means that the case itself is invalid.
fn parsed(case: &Json) -> Result<gradlet::Result<ParsedFeatures>> {
    let features = features(&case["features"])?;
    match case["fn"].as_str() {
        Some("parse_single_example") => {
            let record = Bytes::from(hex(case["serialized_hex"].as_str().context("no record")?)?);
            Ok(parse_single_example(&record, &features))
        }
        Some("parse_example") => {
            let records = list(&case["serialized_hex"])?.iter().map(|record| Ok(hex(record.as_str().context("no record")?)?.into()));
            let records = records.collect::<Result<Vec<Bytes>>>()?;
            Ok(parse_example(&records, &features))
        }
        other => bail!("unknown fn {other:?}"),
    }
}

/// Runs `examples/sequence_cases.json`: SequenceExamples, and TensorFlow's parse results.
pub fn sequence_cases(folder: &Path, checks: &mut Checks) -> Result<()> {
    let cases = json(folder, "examples/sequence_cases.json")?;
    let cases = list(&cases)?;
    for case in cases {
        let id = case["id"].as_str().context("no id")?;
        checks.check(&format!("sequence_cases {id}"), || sequence_case(case));
    }
    checks.check("sequence.tfrecord", || {
        let records = gradlet::io::tfrecord::Records::new(std::fs::read(folder.join("examples/sequence.tfrecord"))?.into());
        let records = records.collect::<Result<Vec<_>, _>>()?;
        for record in &records {
            // The names in the file may be in any order.
            let example = SequenceExample::from_bytes(record.clone())?;
            let again = example.to_bytes();
            ensure!(
                again.len() == record.len() && SequenceExample::from_bytes(again.clone())?.to_bytes() == again,
                "it differs after writing and reading it"
            );
        }
        for case in cases {
            let record = hex(case["serialized_hex"].as_str().context("no record")?)?;
            ensure!(case["source"].is_null() || records.iter().any(|known| *known == record), "{} is not in the file", case["id"]);
        }
        Ok(())
    });
    Ok(())
}

/// Runs a case of `sequence_cases.json`.
pub fn sequence_case(case: &Json) -> Result<()> {
    let record = Bytes::from(hex(case["serialized_hex"].as_str().context("no record")?)?);
    let (context, steps) = (features(&case["context_features"])?, features(&case["sequence_features"])?);
    judge(parse_single_sequence_example(&record, &context, &steps), case, |(context, steps), wanted| {
        found(context, &wanted["context"]).context("context")?;
        found(steps, &wanted["sequence"]).context("sequence")
    })
}

/// Reads the feature specification of a case.
fn features(json: &Json) -> Result<Features> {
    let mut features = Features::new();
    for (name, json) in json.as_object().context("no features")? {
        features = features.with(name, spec(json).with_context(|| format!("feature {name:?}"))?);
    }
    Ok(features)
}

fn spec(json: &Json) -> Result<FeatureSpec> {
    let feature_type = match json["dtype"].as_str() {
        Some("string") => FeatureType::Strings,
        Some("float32") => FeatureType::F32,
        Some("int64") => FeatureType::I64,
        other => bail!("unknown dtype {other:?}"),
    };
    let known = ["kind", "dtype", "shape", "default_value", "allow_missing", "row_splits_dtype"];
    for name in json.as_object().context("expected a JSON object")?.keys() {
        ensure!(known.contains(&name.as_str()), "unknown name {name:?}");
    }
    let dims = || list(&json["shape"])?.iter().map(|dim| Ok(dim.as_u64().context("no size")? as u32)).collect::<Result<Vec<_>>>();
    let default = match &json["default_value"] {
        Json::Null => None,
        value => Some(default(feature_type, value)?),
    };
    Ok(match json["kind"].as_str() {
        Some("FixedLenFeature") => {
            let feature = FixedLenFeature::new(feature_type, &dims()?);
            default.into_iter().fold(feature, FixedLenFeature::with_default).into()
        }
        Some("VarLenFeature") => VarLenFeature::new(feature_type).into(),
        Some("FixedLenSequenceFeature") => {
            let feature = FixedLenSequenceFeature::new(feature_type, &dims()?).allow_missing(json["allow_missing"] == true);
            default.into_iter().fold(feature, FixedLenSequenceFeature::with_default).into()
        }
        Some("RaggedFeature") => RaggedFeature::new(feature_type).into(),
        other => bail!("unknown kind {other:?}"),
    })
}

fn default(feature_type: FeatureType, json: &Json) -> Result<Feature> {
    let values = flat(json);
    Ok(match feature_type {
        FeatureType::Strings => values.into_iter().map(bytes).collect::<Result<Vec<_>>>()?.into(),
        FeatureType::F32 => values.into_iter().map(|value| Ok(float(value)? as f32)).collect::<Result<Vec<_>>>()?.into(),
        FeatureType::I64 => values.into_iter().map(|value| value.as_i64().context("no integer")).collect::<Result<Vec<_>>>()?.into(),
    })
}

/// Returns the values of nested lists, flattened.
fn flat(json: &Json) -> Vec<&Json> {
    match json {
        Json::Array(values) => values.iter().flat_map(flat).collect(),
        value => vec![value],
    }
}

/// Runs `serialize_tensor.json`: tensors as protobuf messages, and numbers in raw bytes.
pub fn tensors(folder: &Path, checks: &mut Checks) -> Result<()> {
    let json = json(folder, "serialize_tensor.json")?;
    for case in list(&json["serialize_tensor"])? {
        checks.check(&format!("serialize_tensor {case}"), || serialized(case));
    }
    for case in list(&json["decode_raw"])? {
        checks.check(&format!("decode_raw {case}"), || {
            let strings = Strings::scalar(hex(case["bytes_hex"].as_str().context("no bytes")?)?);
            let order = if case["little_endian"] == true { ByteOrder::Little } else { ByteOrder::Big };
            let to = raw_type(case["out_type"].as_str().context("no type")?)?;
            judge(decode_raw(&strings, to, order), case, |tensor, wanted| same(&tensor.clone().into(), wanted))
        });
    }
    if let Some(case) = json.get("parse_wrong_type") {
        // Only the case's message names the types.
        checks.check("parse_wrong_type", || {
            let float = gradlet::Tensor::scalar(&gradlet::cpu(), 1.0f32);
            judge(parse_tensor(&serialize_tensor(&float)?, DType::I32), case, |_, _| bail!("it was parsed"))
        });
    }
    Ok(())
}

fn serialized(case: &Json) -> Result<()> {
    let again = match parsed_tensor(case)? {
        Values::Strings(strings) => serialize_strings(&strings),
        Values::Numbers(tensor) => serialize_tensor(&tensor)?,
    };
    ensure!(again == hex(case["serialized_tensorproto_hex"].as_str().context("no message")?)?, "the bytes differ");
    Ok(())
}

/// Parses a case's message. Fails if it does not hold the case's values.
pub fn parsed_tensor(case: &Json) -> Result<Values> {
    let message = hex(case["serialized_tensorproto_hex"].as_str().context("no message")?)?;
    let values = match case["dtype"].as_str().context("no type")? {
        "string" => parse_strings(&message)?.into(),
        name => parse_tensor(&message, dtype(name)?)?.into(),
    };
    same(&values, &serde_json::json!({ "dtype": case["dtype"], "shape": case["shape"], "data": flat(&case["values"]) }))?;
    Ok(values)
}

fn raw_type(name: &str) -> Result<RawType> {
    Ok(match name {
        "int16" => RawType::I16,
        "uint16" => RawType::U16,
        name => dtype(name)?.into(),
    })
}
