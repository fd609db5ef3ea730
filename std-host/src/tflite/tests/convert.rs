//! The converter: every model that gradlet imports, converted and imported again.

use crate::tflite::{Converter, Model};
use gradlet_core::function::ConcreteFunction;
use gradlet_core::ops::portable_cpu;
use gradlet_core::{DType, Eager, Function, Result, Scope, Shape, Tensor, TensorType, Variable};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

fn concrete(body: impl Fn(&dyn Scope, Tensor) -> Result<Tensor> + Send + Sync + 'static, x: &Tensor) -> Arc<ConcreteFunction> {
    Function::new(body).named("f").concrete(&Eager::new(&portable_cpu()), x).unwrap()
}

/// Returns the error of a conversion.
fn refusal(function: &ConcreteFunction) -> String {
    Converter::new().signature("s", function, &["x"], &["y"]).err().unwrap().to_string()
}

#[test]
fn what_cannot_be_converted_is_listed() {
    let x = super::new(&[1.0f32, 2.0], &[2]);
    let several = concrete(|_, x| x.erf()?.add(&x.expm1()?)?.softplus(), &x);
    let text = refusal(&several);
    assert!(
        text.starts_with("signature \"s\": f cannot be converted to TensorFlow Lite:\n  erf (Erf): the converter has no operator for it\n"),
        "{text}"
    );
    assert!(refusal(&concrete(|_, x| x.cast(DType::F64)?.exp(), &x)).contains("does not take elements of type f64"));
    let wide = |x: Tensor| x.reshape(&[2, 1, 1, 1, 1])?.floormod(&Tensor::full(&x.device()?, 2.0f32, &[1, 3, 1, 1, 1])?);
    assert!(
        refusal(&concrete(move |_, x| wide(x), &x))
            .contains("its result has 5 axes, but its operator takes at most 4 for operands of different shapes")
    );
    let total = Variable::new(&Eager::new(&portable_cpu()), "total", &x).unwrap();
    let counts = concrete(
        move |scope, x| {
            scope.assign_add(&total, &x)?;
            scope.read(&total)
        },
        &x,
    );
    assert_eq!(refusal(&counts), "f changes the variable total: only a function that changes none can be frozen");
}

#[test]
fn names_are_checked() {
    let function = concrete(|_, x| x.neg(), &super::new(&[1.0f32], &[1]));
    let mut converter = Converter::new();
    assert_eq!(converter.to_bytes().unwrap_err().to_string(), "the converter has no signature");
    let wrong = |error: Result<&mut Converter>, want: &str| assert_eq!(error.err().unwrap().to_string(), want);
    wrong(converter.signature("s", &function, &[], &["y"]), "signature \"s\": f has 1 inputs, but 0 names were given");
    converter.signature("s", &function, &["x"], &["y"]).unwrap();
    wrong(converter.signature("s", &function, &["x"], &["y"]), "signature \"s\": there is one already");
}

/// Signatures are subgraphs with bodies of their own, and share constants.
#[test]
fn signatures_share_constants() {
    let weights = Tensor::full(&portable_cpu(), 0.5f32, &[64, 64]).unwrap();
    let x = Tensor::full(&portable_cpu(), 1.0f32, &[1, 64]).unwrap();
    let grows = |weights: Tensor| {
        concrete(
            move |scope, x| {
                let options = gradlet_core::control::WhileOptions::default();
                let small = |y: &Tensor| y.max(&[], false)?.less(&Tensor::scalar(&portable_cpu(), 1e6f32));
                gradlet_core::control::while_loop(scope, options, x, small, |y| y.matmul(&weights))
            },
            &x,
        )
    };
    let size = |count: usize| {
        let mut converter = Converter::new();
        for at in 0..count {
            converter.signature(&format!("s{at}"), &grows(weights.clone()), &["x"], &["y"]).unwrap();
        }
        (converter.to_bytes().unwrap().len(), converter)
    };
    let ((one, _), (two, converter)) = (size(1), size(2));
    assert!(one > 4 * 64 * 64 && two < one + 4096, "{one} B, then {two} B");
    let model = Model::from_bytes(converter.to_bytes().unwrap()).unwrap();
    let scope = Eager::new(&portable_cpu());
    let want = grows(weights).run(std::slice::from_ref(&x)).unwrap()[0].to_vec::<f32>().unwrap();
    for name in ["s0", "s1"] {
        assert_eq!(model.call_signature(&scope, name, &[("x", &x)]).unwrap()[0].1.to_vec::<f32>().unwrap(), want);
    }
}
