//! Examples that gradlet writes and TensorFlow reads, and the reverse. Also compares the parse results of both for the same bytes.

use crate::tensorflow::python;
use bytes::Bytes;
use gradlet::io::example::{Example, Feature, SequenceExample};
use gradlet::io::proto::Features;
use gradlet::io::tfrecord::{Compression, RecordWriter, Records};
use gradlet_tests::golden::checks::Checks;
use gradlet_tests::golden::example_cases;
use gradlet_tests::random::Random;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value as Json, json};
use std::fs;

const SCRIPT: &str = include_str!("examples.py");

fn float() -> impl Strategy<Value = f32> {
    let extremes = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN, f32::MAX, f32::MIN_POSITIVE, 1e-45];
    prop_oneof![
        proptest::num::f32::ANY.prop_map(|value| if value.is_nan() { f32::NAN } else { value }),
        proptest::sample::select(extremes.to_vec())
    ]
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), -200..200i64, proptest::sample::select(vec![i64::MIN, i64::MAX, 0, -1, 127, 128, 1 << 35])]
}

fn feature() -> impl Strategy<Value = Feature> {
    prop_oneof![
        1 => Just(Feature::default()),
        3 => vec(vec(any::<u8>(), 0..20).prop_map(Bytes::from), 0..4).prop_map(Feature::from),
        3 => vec(float(), 0..6).prop_map(Feature::from),
        3 => vec(integer(), 0..6).prop_map(Feature::from),
    ]
}

fn example() -> impl Strategy<Value = Example> {
    let features = btree_map(prop_oneof!["\\PC{0,6}", "[a-d]"], feature(), 0..6);
    proptest::option::weighted(0.99, features.prop_map(|feature| Features { feature })).prop_map(|features| Example { features })
}

fn samples<T>(strategy: impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// Returns the contents of an Example in the form of the script.
fn contents(example: &Example) -> Json {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let float = |value: &f32| if value.is_nan() { json!("NaN") } else { json!(value.to_bits()) };
    let mut names = Map::new();
    for (name, feature) in example.features.iter().flat_map(|features| &features.feature) {
        let strings = feature.strings().map(|values| json!(["bytes_list", values.iter().map(|value| hex(value)).collect::<Vec<_>>()]));
        let floats = feature.f32s().map(|values| json!(["float_list", values.iter().map(float).collect::<Vec<_>>()]));
        let integers = feature.i64s().map(|values| json!(["int64_list", values]));
        names.insert(hex(name.as_bytes()), strings.or(floats).or(integers).unwrap_or(json!([null, []])));
    }
    Json::Object(names)
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test tensorflow` installs and runs it"]
fn ten_thousand_examples_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let examples = samples(example(), 10_000);
    let mut writer = RecordWriter::new(Vec::new(), Compression::None);
    examples.iter().for_each(|example| writer.write(&example.to_bytes()).unwrap());
    fs::write(folder.path().join("gradlet.tfrecord"), writer.into_inner().unwrap()).unwrap();
    python(SCRIPT, &["both_ways", folder.path().to_str().unwrap()]);

    let read = fs::read_to_string(folder.path().join("contents.jsonl")).unwrap();
    assert_eq!(read.lines().count(), examples.len());
    for (example, line) in examples.iter().zip(read.lines()) {
        let wanted = json!([true, contents(example)]);
        assert_eq!(serde_json::from_str::<Json>(line).unwrap(), wanted, "TensorFlow read something else, or writes it in other bytes");
    }
    let written = fs::read(folder.path().join("tensorflow.tfrecord")).unwrap();
    let records = Records::new(written.into()).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(records.len(), examples.len());
    for (example, record) in examples.iter().zip(records) {
        assert_eq!(contents(&Example::from_bytes(record).unwrap()), contents(example));
    }
}

/// Returns a random record. It is often damaged, and often has an encoding that gradlet does not write.
fn record(random: &mut Random, names: &[&str]) -> Vec<u8> {
    let mut example = Example::new();
    for name in names {
        if random.below(4) > 0 {
            example = example.with(*name, small_feature(random, name));
        }
    }
    let mut bytes = example.to_bytes().to_vec();
    if random.below(6) == 0 {
        // Two concatenated messages are a merged message.
        let name = random.pick(names);
        bytes.extend(Example::new().with(name, small_feature(random, name)).to_bytes());
    }
    damage(random, &mut bytes);
    bytes
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(16) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 | 2 if !bytes.is_empty() => {
            let at = random.below(bytes.len());
            bytes[at] = bytes[at].wrapping_add(random.pick(&[1, 2, 8, 0x80, 0xff]));
        }
        3 => {
            let at = random.below(bytes.len() + 1);
            bytes.insert(at, random.pick(&[0, 1, 2, 8, 10, 0x12, 0x1a, 0x80]));
        }
        _ => (),
    }
}

/// Returns the usual element type of the feature with this name.
fn usual(name: &str) -> &'static str {
    match name {
        "" => "float32",
        "kü" => "string",
        _ => "int64",
    }
}

fn dtype(random: &mut Random, name: &str) -> &'static str {
    if random.below(12) > 0 { usual(name) } else { random.pick(&["int64", "float32", "string"]) }
}

fn small_feature(random: &mut Random, name: &str) -> Feature {
    let count = random.pick(&[2, 2, 2, 2, 0, 1, 3, 4]);
    match dtype(random, name) {
        _ if random.below(10) == 0 => Feature::default(),
        "string" => (0..count).map(|_| Bytes::from(vec![b'a'; random.below(3)])).collect::<Vec<_>>().into(),
        "float32" => (0..count).map(|_| random.unit() as f32).collect::<Vec<_>>().into(),
        _ => (0..count).map(|_| random.bits() as i64 >> random.below(64)).collect::<Vec<_>>().into(),
    }
}

fn small_spec(random: &mut Random, name: &str, kinds: &[&str]) -> Json {
    let dtype = dtype(random, name);
    let shape = random.pick(&[&[2][..], &[2], &[2], &[1, 2], &[], &[3]]);
    match random.pick(kinds) {
        "FixedLenFeature" if random.below(4) == 0 => json!({"kind": "FixedLenFeature", "dtype": dtype, "shape": shape}),
        "FixedLenFeature" => {
            let value = if dtype == "string" { json!("d") } else { json!(7) };
            let default = shape.iter().rev().fold(value, |inner, &dim| json!(vec![inner; dim as usize]));
            json!({"kind": "FixedLenFeature", "dtype": dtype, "shape": shape, "default_value": default})
        }
        "FixedLenSequenceFeature" => {
            let default = if random.coin() {
                Json::Null
            } else if dtype == "string" {
                json!("d")
            } else {
                json!(7)
            };
            let allow_missing = random.below(20) > 0;
            json!({
                "kind": "FixedLenSequenceFeature", "dtype": dtype, "shape": shape,
                "allow_missing": allow_missing, "default_value": default
            })
        }
        kind => json!({"kind": kind, "dtype": dtype}),
    }
}

fn specs(random: &mut Random, names: &[&str], kinds: &[&str]) -> Json {
    let count = 1 + random.below(names.len() - 1);
    Json::Object(names.iter().take(count).map(|name| (name.to_string(), small_spec(random, name, kinds))).collect())
}

const NAMES: [&str; 4] = ["a", "", "kü", "zz"];
const ALL: [&str; 4] = ["FixedLenFeature", "VarLenFeature", "FixedLenSequenceFeature", "RaggedFeature"];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn judged(cases: &[Json], run: fn(&Json) -> anyhow::Result<()>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cases.json"), serde_json::to_vec(cases).unwrap()).unwrap();
    python(SCRIPT, &["parse", folder.path().to_str().unwrap()]);
    let judged: Vec<Json> = serde_json::from_slice(&fs::read(folder.path().join("judged.json")).unwrap()).unwrap();
    let mut checks = Checks::default();
    for case in &judged {
        checks.check(&case.to_string(), || run(case));
    }
    let errors = judged.iter().filter(|case| case.get("error").is_some()).count();
    println!("{} cases, {errors} of them errors", judged.len());
    assert_eq!((checks.counts.passed, checks.counts.failed), (cases.len(), 0));
    assert!(errors > cases.len() / 10 && errors < cases.len() * 9 / 10, "the cases are one-sided");
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test tensorflow` installs and runs it"]
fn parses_as_tensorflow() {
    let mut random = Random::new(5);
    let cases = (0..1000).map(|index| {
        let features = specs(&mut random, &NAMES, &ALL);
        let records: Vec<String> = (0..1 + random.below(3)).map(|_| hex(&record(&mut random, &NAMES))).collect();
        match index % 2 {
            0 => json!({"fn": "parse_example", "serialized_hex": records, "features": features}),
            _ => json!({"fn": "parse_single_example", "serialized_hex": records[0], "features": features}),
        }
    });
    judged(&cases.collect::<Vec<_>>(), example_cases::parse_case);
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test tensorflow` installs and runs it"]
fn parses_sequences_as_tensorflow() {
    let mut random = Random::new(6);
    let cases = (0..1000).map(|_| {
        let mut example = SequenceExample::new();
        for name in NAMES {
            if random.coin() {
                example = example.with_context(name, small_feature(&mut random, name));
            }
            if random.below(4) > 0 {
                let same = small_feature(&mut random, name);
                let steps: Vec<Feature> = (0..random.below(4))
                    .map(|_| if random.below(8) > 0 { same.clone() } else { small_feature(&mut random, name) })
                    .collect();
                example = example.with_steps(name, steps);
            }
        }
        let mut bytes = example.to_bytes().to_vec();
        damage(&mut random, &mut bytes);
        json!({
            "serialized_hex": hex(&bytes),
            "context_features": specs(&mut random, &NAMES[..2], &["FixedLenFeature", "VarLenFeature", "RaggedFeature"]),
            "sequence_features": specs(&mut random, &NAMES, &["FixedLenSequenceFeature", "VarLenFeature", "RaggedFeature"]),
        })
    });
    // If a record has several errors, the order of a hash map decides which one TensorFlow reports. The message is therefore not compared.
    judged(&cases.collect::<Vec<_>>(), |case| {
        let mut case = case.clone();
        if let Some(error) = case.get_mut("error") {
            error["core"] = "".into();
        }
        example_cases::sequence_case(&case)
    });
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test tensorflow` installs and runs it"]
fn tensor_messages_and_bare_bytes() {
    let folder = tempfile::tempdir().unwrap();
    python(SCRIPT, &["tensors", folder.path().to_str().unwrap()]);
    let mut checks = Checks::default();
    example_cases::tensors(folder.path(), &mut checks).unwrap();
    let compact: Vec<Json> = serde_json::from_slice(&fs::read(folder.path().join("compact.json")).unwrap()).unwrap();
    for case in &compact {
        checks.check(&case.to_string(), || example_cases::parsed_tensor(case).map(drop));
    }
    assert_eq!((checks.counts.passed, checks.counts.failed), (180, 0));
}
