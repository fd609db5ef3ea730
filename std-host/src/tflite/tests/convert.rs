//! The converter: every model that gradlet imports, converted and imported again.

use crate::tflite::{Converter, Model};
use gradlet_core::ops::portable_cpu;
use gradlet_core::{DType, Eager, Shape, Tensor, TensorType};
use std::path::{Path, PathBuf};

/// Returns the models of the test data.
fn models() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    let folders = ["models", "models_int16", "quantize", "tflm", "tinyml"].map(|folder| fixtures.join(folder));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let mut models: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|extension| extension == "tflite")).collect();
    models.sort();
    models
}

/// Returns an argument with elements of all sizes.
fn argument(kind: TensorType) -> Tensor {
    let mut state = 7u32;
    let reals: Vec<f32> = (0..kind.shape.elements().unwrap())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    let x = Tensor::new(&portable_cpu(), &reals, kind.shape.dims()).unwrap();
    match kind.dtype {
        DType::F32 => x,
        DType::I8 | DType::U8 => x.mul_scalar(127.0).unwrap().cast(kind.dtype).unwrap(),
        DType::I16 => x.mul_scalar(32767.0).unwrap().cast(kind.dtype).unwrap(),
        _ => x.abs().unwrap().mul_scalar(3.0).unwrap().cast(kind.dtype).unwrap(),
    }
}

/// Models with ops that have no operator: LSTM of int8, functions of int16 or with slopes that are several ops in gradlet, and depthwise
/// convolutions of int16 with a bias of 32 bits, which TensorFlow Lite does not run either.
const REFUSED: [&str; 10] = [
    "lstm_fused_int8",
    "convolutions_int16_bias32",
    "exponentials_int16",
    "exponentials_int16_bias32",
    "exponentials_int16_float",
    "functions_int16",
    "functions_int16_bias32",
    "functions_int16_float",
    "slopes_int8",
    "slopes_uint8",
];

/// A converted model has the bits of the model, if it computes with integers.
#[test]
fn every_model_can_be_converted() {
    let scope = Eager::new(&portable_cpu());
    let mut refused = Vec::new();
    let mut converted = 0;
    for path in models() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let Ok(model) = Model::open(&path) else { continue };
        let Ok(function) = model.function() else { continue };
        let arguments: Vec<Tensor> = model
            .inputs()
            .iter()
            .map(|info| {
                let dims: Vec<u32> = info.dims.iter().map(|dim| dim.unwrap_or(1)).collect();
                argument(TensorType::new(info.dtype.unwrap(), Shape::new(&dims).unwrap()))
            })
            .collect();
        let concrete = function.concrete(&scope, &arguments).unwrap();
        let names = |count: usize| (0..count).map(|at| format!("{at}")).collect::<Vec<String>>();
        let (inputs, outputs) = (names(concrete.inputs().len()), names(concrete.outputs().len()));
        let (inputs, outputs) =
            (inputs.iter().map(String::as_str).collect::<Vec<_>>(), outputs.iter().map(String::as_str).collect::<Vec<_>>());
        let mut converter = Converter::new();
        if let Err(error) = converter.signature("infer", &concrete, &inputs, &outputs) {
            refused.push((name, error.to_string()));
            continue;
        }
        let bytes = converter.to_bytes().unwrap();
        if let Some(folder) = std::env::var_os("GRADLET_CONVERTED") {
            std::fs::write(Path::new(&folder).join(format!("{name}.tflite")), &bytes).unwrap();
        }
        let again = Model::from_bytes(bytes).unwrap();
        assert!(again.unsupported().is_empty(), "{name}: {:?}", again.unsupported());
        let got = again.call(&scope, &arguments.iter().collect::<Vec<_>>()).unwrap();
        for (at, (got, want)) in got.iter().zip(concrete.run(&arguments).unwrap()).enumerate() {
            assert_eq!(got.tensor_type(), want.tensor_type(), "{name}, output {at}");
            if got.dtype() == DType::F32 && !name.contains("int8") && !name.contains("quant") {
                let (got, want) = (got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
                let near = |(got, want): (&f32, &f32)| (got - want).abs() <= 1e-5 * want.abs().max(1.0) || got.is_nan() && want.is_nan();
                assert!(got.iter().zip(&want).all(near), "{name}, output {at}: {got:?}, not {want:?}");
            } else {
                assert_eq!(*got.bytes().unwrap(), *want.bytes().unwrap(), "{name}, output {at}");
            }
        }
        converted += 1;
    }
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, REFUSED, "{refused:?}");
    assert!(converted > 130, "{converted} models were converted");
}
