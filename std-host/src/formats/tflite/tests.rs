//! Tests of the reader: on real models, and on damaged ones.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models")
}

/// Returns the models of the fixtures, and those of the folder that `GRADLET_MODELS` names.
fn models() -> Vec<(PathBuf, Vec<u8>)> {
    let folders = [Some(folder()), std::env::var_os("GRADLET_MODELS").map(PathBuf::from)];
    let files = folders.into_iter().flatten().flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "tflite"))
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn sample(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap()
}

#[test]
fn every_model_is_read() {
    for (path, bytes) in models() {
        let model = read(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!model.subgraphs.is_empty());
        let repaired = path.ends_with("person_detect.tflite");
        assert_eq!(!model.warnings.is_empty(), repaired, "{}: {:?}", path.display(), model.warnings);
    }
}

/// The index of the vectors has the tensors and operators as TensorFlow reads them.
#[test]
fn tensors_and_operators_are_those_of_tensorflow() {
    let cases: serde_json::Value = serde_json::from_slice(&sample("cases.json")).unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let bytes = sample(case["file"].as_str().unwrap());
        let model = read(&bytes).unwrap();
        let graph = &model.subgraphs[0];
        let name = |operator: &Operator<'_>| operator.code.to_string();
        let names: Vec<String> = graph.operators.iter().map(name).collect();
        let wanted = |key: &str, field: &str| case[key].as_array().unwrap().iter().map(|value| value[field].clone()).collect::<Vec<_>>();
        assert_eq!(names, wanted("operators", "op"), "{}", case["id"]);
        // TensorFlow's list ends with tensors that its kernels have added.
        for (at, (tensor, wanted)) in graph.tensors.iter().zip(case["tensors"].as_array().unwrap()).enumerate() {
            assert_eq!(serde_json::json!(tensor.dims), wanted["shape"], "{}: tensor {at}", case["id"]);
            assert_eq!(tensor.name, wanted["name"], "{}: tensor {at}", case["id"]);
            let scales = tensor.quantization.as_ref().map_or(Vec::new(), |quantization| quantization.scales.clone());
            let wanted = wanted["quantization"]["scales"].as_array().cloned().unwrap_or_default();
            let wanted: Vec<f32> = wanted.iter().map(|scale| scale.as_f64().unwrap() as f32).collect();
            assert_eq!(scales, wanted, "{}: tensor {at}", case["id"]);
        }
    }
}

#[test]
fn options_have_the_schemas_slots() {
    let bytes = sample("conv_variants_float32.tflite");
    let model = read(&bytes).unwrap();
    let convolutions = model.subgraphs[0].operators.iter().filter(|operator| operator.code == Code::Builtin("CONV_2D"));
    let strides: Vec<_> = convolutions
        .map(|operator| {
            let options = operator.options::<Conv2DOptions<'_>>().unwrap();
            assert!(operator.options::<Pool2DOptions<'_>>().is_none());
            ([options.stride_h(), options.stride_w()], [options.dilation_h_factor(), options.dilation_w_factor()])
        })
        .collect();
    assert!(strides.iter().any(|(_, dilations)| *dilations != [1, 1]), "{strides:?}");
    assert!(strides.iter().any(|([height, width], _)| height != width), "{strides:?}");
    let defaults = <Conv2DOptions<'_> as OptionsTable<'_>>::defaults();
    assert_eq!([defaults.stride_h(), defaults.dilation_h_factor(), defaults.padding().into()], [0, 1, 0]);
}

#[test]
fn other_files_are_refused() {
    assert_eq!(read(b"").unwrap_err(), "it is shorter than the header of a model");
    assert!(read(b"\x08\0\0\0TFL2\0\0\0\0").unwrap_err().contains("TFL2"));
    assert!(read(b"\xff\0\0\0TFL3\0\0\0\0").unwrap_err().starts_with("it is damaged"));
}

#[test]
fn a_model_that_is_cut_short_is_an_error_or_whole() {
    let bytes = sample("op_ceil_float32.tflite");
    for end in 0..bytes.len() {
        let _ = read(&bytes[..end]);
    }
    assert!(read(&bytes[..bytes.len() / 2]).is_err());
}

/// A mutation of a file is an error or a model whose indices are in range.
#[test]
fn damage_is_an_error() {
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let samples = ["mlp_int8.tflite", "op_ceil_float32.tflite", "lstm_while_float32.tflite", "dynamic_batch_float32.tflite"].map(sample);
    let mut errors = 0;
    for round in 0..20_000 {
        let mut bytes = samples[round % samples.len()].clone();
        for _ in 0..1 + next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] ^= 1 << next(8),
                1 => bytes[at] = next(256) as u8,
                _ => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
            }
        }
        match read(&bytes) {
            Ok(model) => walk(&model),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 1000, "only {errors} of 20,000 changes are errors");
}

/// Follows every index of a model.
fn walk(model: &Model<'_>) {
    for graph in &model.subgraphs {
        let tensors = graph.operators.iter().flat_map(|operator| operator.outputs.iter().chain(operator.inputs.iter().flatten()));
        for &index in graph.inputs.iter().chain(&graph.outputs).chain(tensors) {
            let tensor = &graph.tensors[index];
            assert!(tensor.data.is_none_or(|data| tensor.kind.size().is_none_or(|size| data.len() % size == 0)));
        }
        graph.operators.iter().filter_map(|operator| operator.options::<StridedSliceOptions<'_>>()).for_each(|options| {
            let _ = options.begin_mask();
        });
    }
}

/// A list that names one table many times would need more memory than the file has.
#[test]
fn repeated_tables_need_no_more_memory_than_the_file_allows() {
    const COUNT: u32 = 100_000;
    let mut bytes = Vec::new();
    let mut number = |value: u32| bytes.extend(value.to_le_bytes());
    number(24);
    number(u32::from_le_bytes(*b"TFL3"));
    // The vtable of the model: its version and its subgraphs.
    number(10 | 12 << 16);
    number(4);
    number(8);
    number(0);
    // The model, whose vtable is at byte 8.
    number(24 - 8);
    number(3);
    number(4);
    // The list of subgraphs, which are all the same table, with the vtable at byte 36 + 4 * COUNT.
    number(COUNT);
    (0..COUNT).for_each(|at| number(4 * (COUNT - at) + 4));
    number(4 | 4 << 16);
    number(4);
    let error = read(&bytes).unwrap_err();
    assert!(error.contains("memory") || error.contains("Too many") || error.contains("too large"), "{error}");
}
