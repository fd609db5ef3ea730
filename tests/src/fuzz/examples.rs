//! Damaged Examples, SequenceExamples and tensor messages. A reader must accept or refuse each. From a valid message, it must read the same
//! values as `prost`.

use bytes::Bytes;
use gradlet::DType;
use gradlet::io::example::{
    Example, Feature, FeatureType, Features, FixedLenFeature, FixedLenSequenceFeature, ParsedFeatures, RaggedFeature, SequenceExample,
    VarLenFeature, parse_example, parse_single_example, parse_single_sequence_example,
};
use gradlet::io::{parse_strings, parse_tensor};
use gradlet::tensor::Values;

const NAMES: [&str; 3] = ["a", "", "ü"];
const TYPES: [FeatureType; 3] = [FeatureType::Strings, FeatureType::F32, FeatureType::I64];

/// Reads `data` as each kind of message. Panics if a reader panics, or if two readers differ.
pub fn exercise(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    for feature_type in TYPES {
        read(&record, feature_type);
    }
    for dtype in DType::ALL {
        let _ = parse_tensor(data, dtype);
    }
    let _ = parse_strings(data);
    if let Ok(example) = Example::from_bytes(record.clone()) {
        // Otherwise `data` has an unusual encoding, in which TensorFlow's parser may find other values than `prost`.
        if example.to_bytes() == record {
            agree(&example, &record);
        }
    }
    if let Ok(example) = SequenceExample::from_bytes(record.clone()) {
        let again = SequenceExample::from_bytes(example.to_bytes()).expect("a written message can be read");
        assert_eq!(again.to_bytes(), example.to_bytes());
    }
}

/// Parses `record` with every kind of feature of one type.
fn read(record: &Bytes, feature_type: FeatureType) {
    let fixed = FixedLenFeature::new(feature_type, &[2]);
    let rows = FixedLenSequenceFeature::new(feature_type, &[2]).allow_missing(true);
    let every = |name: &str| -> [Features; 4] {
        [
            Features::new().with(name, fixed.clone()),
            Features::new().with(name, VarLenFeature::new(feature_type)),
            Features::new().with(name, rows.clone()),
            Features::new().with(name, RaggedFeature::new(feature_type)),
        ]
    };
    let features = NAMES.map(every).concat();
    for features in &features {
        let single = parse_single_example(record, features);
        let batch = parse_example(&[record.clone(), Bytes::new(), record.clone()], features);
        for error in [single.err(), batch.err()].into_iter().flatten() {
            assert!(!error.to_string().is_empty());
        }
    }
    for name in NAMES {
        let [fixed, sparse, rows, ragged] = every(name);
        for (context, steps) in [(&fixed, &rows), (&sparse, &sparse), (&ragged, &ragged)] {
            let _ = parse_single_sequence_example(record, context, steps);
        }
    }
}

/// Asserts that the parser returns the values of an Example.
fn agree(example: &Example, record: &Bytes) {
    for (name, feature) in example.features.iter().flat_map(|features| &features.feature) {
        let Some((feature_type, _)) = feature.list() else { continue };
        let features = Features::new().with(name, RaggedFeature::new(feature_type));
        for parsed in [parse_single_example(record, &features), parse_single_example(&record.to_vec(), &features)] {
            let parsed = parsed.unwrap_or_else(|error| panic!("{example:?} cannot be parsed: {error}"));
            same(&parsed, name, feature);
        }
        let batch = parse_example(&[record.clone(), record.clone()], &features).expect("a batch is parsed like one Example");
        let ragged = batch.ragged(name).expect("a ragged tensor");
        let twice = twice(feature);
        assert_same(ragged.values(), &twice);
    }
}

fn twice(feature: &Feature) -> Feature {
    let strings = feature.strings().map(|values| [values, values].concat().into());
    let floats = feature.f32s().map(|values| [values, values].concat().into());
    let integers = feature.i64s().map(|values| [values, values].concat().into());
    strings.or(floats).or(integers).unwrap_or_default()
}

fn same(parsed: &ParsedFeatures, name: &str, feature: &Feature) {
    let values: Values = match parsed.tensor(name) {
        Ok(tensor) => tensor.clone().into(),
        Err(_) => parsed.strings(name).expect("numbers or strings").clone().into(),
    };
    assert_same(&values, feature);
}

fn assert_same(values: &Values, feature: &Feature) {
    match values {
        Values::Strings(strings) => assert_eq!(Some(strings.values()), feature.strings()),
        Values::Numbers(tensor) => {
            let floats = feature.f32s().map(bytemuck::cast_slice::<f32, u8>);
            let wanted = floats.or(feature.i64s().map(bytemuck::cast_slice)).expect("numbers");
            assert_eq!(tensor.bytes().expect("computed"), wanted);
        }
    }
}

/// Returns Examples and SequenceExamples to damage.
pub fn samples() -> Vec<Bytes> {
    let all = Example::new().with("a", [1.5f32, -2.0]).with("", [1i64, -1, 1 << 40]).with("ü", ["x", "", "long enough for two"]);
    let sequence = SequenceExample::new()
        .with_context("a", [7i64, 8])
        .with_context("", 0.5f32)
        .with_steps("a", [vec![1i64, 2], vec![3, 4]])
        .with_steps("ü", ["x", "y"])
        .with_steps("", [Feature::default(), Feature::from([0.5f32, 1.0])]);
    let tensor = gradlet::Tensor::new(&gradlet::cpu(), &[1.0f32, 2.0], &[2, 1]);
    let tensor = tensor.and_then(|tensor| gradlet::io::serialize_tensor(&tensor)).unwrap_or_default();
    // Numbers that are not packed, and a duplicate key.
    let unpacked = [&b"\x0a\x13\x0a\x11\x0a\x01a\x12\x0c\x12\x0a\x0d"[..], &1f32.to_le_bytes(), b"\x0d", &2f32.to_le_bytes()].concat();
    let twice = b"\x0a\x0c\x0a\x0a\x0a\x01a\x12\x05\x1a\x03\x0a\x01\x01\x0a\x0c\x0a\x0a\x0a\x01a\x12\x05\x1a\x03\x0a\x01\x02";
    vec![all.to_bytes(), sequence.to_bytes(), tensor, unpacked.into(), Bytes::from_static(twice), Example::new().to_bytes()]
}
