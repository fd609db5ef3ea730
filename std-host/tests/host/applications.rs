//! Tests that known networks have Keras's list of weights and its outputs. `tests/fixtures/keras_applications.py` recorded them.

use gradlet::applications::{self, Application, Pooling};
use gradlet::io::weights;
use gradlet::layers::{Functional, Layer, Module};
use gradlet::{Eager, Scope, Tensor};
use serde_json::Value;

fn scope() -> Eager {
    Eager::new(&gradlet::cpu())
}

/// Returns the same numbers as the function `hashed` of the Python script.
fn hashed(count: usize, start: u64) -> impl Iterator<Item = f64> {
    (start..start + count as u64).map(|index| {
        let x = (index * 2_654_435_761) as u32;
        let x = (x ^ (x >> 15)).wrapping_mul(2_246_822_519);
        f64::from(x ^ (x >> 13)) / 4_294_967_296.0 - 0.5
    })
}

/// Sets the weights to the same values as the function `fill` of the Python script.
fn fill(scope: &Eager, model: &Functional) {
    for (index, (path, variable)) in model.named_variables().into_iter().enumerate() {
        let shape = variable.tensor_type().unwrap().shape;
        let dims = shape.dims();
        let name = path.rsplit('/').next().unwrap();
        let depthwise = path.contains("depthwise") || path.contains("conv_dw");
        let summed = if depthwise { 2.min(dims.len()) } else { dims.len() - 1 };
        let terms: u32 = dims[..summed].iter().product();
        let value = |number: f64| match name {
            "kernel" => number * (24.0 / f64::from(terms)).sqrt(),
            "gamma" | "moving_variance" => 1.0 + 0.5 * number,
            _ => 0.2 * number,
        };
        let values: Vec<f32> = hashed(shape.elements().unwrap(), 1_000_000 * (index as u64 + 1)).map(|x| value(x) as f32).collect();
        scope.assign(&variable, &Tensor::new(&scope.device(), &values, dims).unwrap()).unwrap();
    }
}

/// Compares an application with Keras's network that was recorded as `name`: the list of weights, and the output for two images.
fn is_keras_s(name: &str, application: Application) {
    let recorded: Value = serde_json::from_str(include_str!("../fixtures/keras_applications.json")).unwrap();
    let wanted = &recorded[name];
    let scope = scope();
    let model = application.build(&scope).unwrap();
    let own: Vec<Value> = model
        .named_variables()
        .into_iter()
        .map(|(path, variable)| serde_json::json!([path, variable.tensor_type().unwrap().shape.dims(), variable.trainable()]))
        .collect();
    for (own, wanted) in own.iter().zip(wanted["weights"].as_array().unwrap()) {
        assert_eq!(own, wanted, "{name}");
    }
    assert_eq!(own.len(), wanted["weights"].as_array().unwrap().len());
    let numbers = |key: &str| -> Vec<u32> { wanted[key].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as u32).collect() };
    let input = numbers("input");
    let summary = model.summary(&scope, &input).unwrap();
    assert_eq!(summary.parameters().count, wanted["params"].as_u64().unwrap());
    assert_eq!(summary.layers.last().unwrap().output.dims()[1..], numbers("output"));

    let Some(outputs) = wanted["outputs"].as_array() else { return };
    fill(&scope, &model);
    let count = 2 * input.iter().product::<u32>();
    let pixels: Vec<f32> = hashed(count as usize, 7).map(|x| x as f32 * 2.0).collect();
    let x = Tensor::new(&scope.device(), &pixels, &[&[2], &input[..]].concat()).unwrap();
    let y = model.apply(&scope, &x).unwrap().to_vec::<f32>().unwrap();
    let each = y.len() / 2;
    let some = y.chunks(each).flat_map(|y| y.iter().step_by((each / 20).max(1)));
    for (index, (own, wanted)) in some.zip(outputs).enumerate() {
        let wanted = wanted.as_f64().unwrap();
        assert!((f64::from(*own) - wanted).abs() < 1e-4, "{name}: output {index} is {own}, not {wanted}");
    }
}

#[test]
fn mobilenet_v2() {
    let network = applications::mobilenet_v2;
    is_keras_s("mobilenet_v2", network());
    is_keras_s("mobilenet_v2_small", network().input_shape([64, 96, 3]).alpha(0.35).classes(10));
    is_keras_s("mobilenet_v2_wide_features", network().input_shape([32, 32, 1]).alpha(1.3).include_top(false));
    is_keras_s("mobilenet_v2_pooled", network().input_shape([33, 47, 3]).alpha(0.5).include_top(false).pooling(Pooling::Max));
    let summary = network().build(&scope()).unwrap().summary(&scope(), &[224, 224, 3]).unwrap();
    assert_eq!((summary.name.as_str(), summary.trainable.count, summary.non_trainable.count), ("mobilenetv2_1.00_224", 3_504_872, 34_112));
    assert!(summary.to_string().contains("│ block_2_add (Add)               │ (None, 56, 56, 24)     │             0 │"), "{summary}");
}

#[test]
fn mobilenet() {
    let network = applications::mobilenet;
    is_keras_s("mobilenet", network());
    is_keras_s("mobilenet_small", network().input_shape([96, 96, 3]).alpha(0.25).classes(2));
    is_keras_s("mobilenet_features", network().input_shape([65, 50, 3]).alpha(0.25).include_top(false).pooling(Pooling::Avg));
}

#[test]
fn networks_of_mlperf_tiny() {
    is_keras_s("resnet8", applications::resnet8());
    is_keras_s("ds_cnn", applications::ds_cnn());
    let half = applications::resnet8().alpha(0.5).include_top(false).build(&scope()).unwrap();
    let summary = half.summary(&scope(), &[32, 32, 3]).unwrap();
    assert_eq!(summary.layers.last().unwrap().output.dims(), [1, 8, 8, 32]);
}

#[test]
fn weights_come_from_a_file() {
    let (folder, scope) = (tempfile::tempdir().unwrap(), scope());
    let path = folder.path().join("words.safetensors");
    let one = applications::ds_cnn().alpha(0.25).classes(3).build(&scope).unwrap();
    weights::save(&scope, &one, "ds_cnn", &path).unwrap();
    let network = || applications::ds_cnn().alpha(0.25).weights(&path);
    let other = network().classes(3).build(&scope).unwrap();
    let values = |model: &Functional| scope.read(&model.variables()[0]).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(values(&one), values(&other));
    let error = network().build(&scope).err().unwrap().to_string();
    assert!(error.ends_with(r#"tensor "dense/kernel" is f32[16,3], but the model's is f32[16,12]"#), "{error}");
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let error = |application: Application| application.build(&scope()).err().unwrap().to_string();
    let small = error(applications::mobilenet_v2().input_shape([31, 96, 3]));
    assert_eq!(small, "input_shape must be at least [32, 32, 1], not [31, 96, 3]");
    assert!(error(applications::resnet8().classes(0)).contains("must be more than 0, not 0 and 1"));
    assert!(error(applications::resnet8().alpha(f64::NAN)).contains("not 10 and NaN"));
}
