//! Tests of properties that the golden cases do not cover.

use super::*;

fn i64s(dims: &[u32]) -> FixedLenFeature {
    FixedLenFeature::new(FeatureType::I64, dims)
}

#[test]
fn empty_names_and_features_are_written() {
    let example = Example::new().with("", Feature::default());
    assert_eq!(&example.to_bytes()[..], [0x0a, 6, 0x0a, 4, 0x0a, 0, 0x12, 0]);
    assert_eq!(Example::from_bytes(example.to_bytes()).unwrap(), example);
    assert!(parse_single_example(&example.to_bytes(), &Features::new().with("", i64s(&[]).with_default(3))).is_ok());
}

#[test]
fn conversions() {
    let example = Example::new().with("s", "x").with("v", vec![1u8, 2]).with("i", [1, 2]).with("f", 0.5f32).with("n", ["a", "b"]);
    assert_eq!(example.feature("s").unwrap().strings().unwrap(), ["x"]);
    assert_eq!(example.feature("v").unwrap().strings().unwrap(), [&[1, 2][..]]);
    assert_eq!(example.feature("i").unwrap().i64s().unwrap(), [1, 2]);
    assert_eq!(example.feature("f").unwrap().f32s().unwrap(), [0.5]);
    assert_eq!(example.feature("n").unwrap().list(), Some((FeatureType::Strings, 2)));
    assert_eq!(example.feature("n").unwrap().i64s(), None);
    assert_eq!(example.feature("z"), None);
}

#[test]
fn strings_share_the_memory_of_a_record() {
    let record = Example::new().with("image", &[7u8; 100]).to_bytes();
    let features = Features::new().with("image", FixedLenFeature::new(FeatureType::Strings, &[]));
    let parsed = parse_single_example(&record, &features).unwrap();
    let image = parsed.strings("image").unwrap().item().unwrap();
    assert!(record.as_ptr_range().contains(&image.as_ptr()));
    assert_eq!(image, &[7u8; 100][..]);
    let copied = parse_single_example(&&record[..], &features).unwrap();
    assert_eq!(copied.strings("image").unwrap(), parsed.strings("image").unwrap());
}

#[test]
fn errors_name_the_feature() {
    let record = Example::new().with("label", 3).to_bytes();
    let parsed = parse_single_example(&record, &Features::new().with("label", i64s(&[]))).unwrap();
    assert_eq!(parsed.strings("label").unwrap_err().to_string(), "feature \"label\" is a tensor, not strings");
    assert_eq!(parsed.tensor("lable").unwrap_err().to_string(), "there is no feature \"lable\"; there are \"label\"");
    let wrong = Features::new().with("label", i64s(&[]).with_default(0.5f32));
    assert!(parse_single_example(&record, &wrong).unwrap_err().to_string().contains("default of feature \"label\" is float"));
}

#[test]
fn a_batch_of_none_is_empty() {
    let features = Features::new()
        .with("fixed", i64s(&[2]))
        .with("rows", FixedLenSequenceFeature::new(FeatureType::F32, &[3]).allow_missing(true))
        .with("sparse", VarLenFeature::new(FeatureType::Strings))
        .with("ragged", RaggedFeature::new(FeatureType::Strings));
    let parsed = parse_example::<Bytes>(&[], &features).unwrap();
    assert_eq!(parsed.tensor("fixed").unwrap().dims(), [0, 2]);
    assert_eq!(parsed.tensor("rows").unwrap().dims(), [0, 0, 3]);
    assert_eq!(parsed.sparse("sparse").unwrap().dense_shape().dims(), [0, 0]);
    assert_eq!(parsed.ragged("ragged").unwrap().row_splits(), [[0]]);
}

#[test]
fn the_kinds_of_features_that_sequences_have() {
    let record = SequenceExample::new().to_bytes();
    let fixed = Features::new().with("x", i64s(&[]));
    let rows = Features::new().with("x", FixedLenSequenceFeature::new(FeatureType::I64, &[]));
    let wrong = |context: &Features, steps: &Features| parse_single_sequence_example(&record, context, steps).unwrap_err().to_string();
    assert!(wrong(&Features::new(), &fixed).contains("feature \"x\": Unsupported FixedLenFeature"));
    assert!(wrong(&rows, &Features::new()).contains("feature \"x\": Unsupported FixedLenSequenceFeature"));
}
