//! Tests of `gradlet convert`.

use super::{run, succeeds};
use gradlet::io::npy::{self, Npy};
use gradlet::tflite::Model;
use gradlet::{DType, Eager, Tensor, portable_cpu};
use tempfile::TempDir;

fn fixture(name: &str) -> String {
    format!("{}/../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn an_artifact_becomes_a_model() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    succeeds("export", &folder, &["mlp:784-8-10", "-o", "mlp.grdl"]);
    let printed = succeeds("convert", &folder, &["mlp.grdl", "-o", "mlp.tflite"]);
    assert!(printed.contains("infer(x: f32[1,784]) → logits: f32[1,10]") && !printed.contains("train("), "{printed}");
    assert!(printed.contains("without train, ") && printed.contains("operators: FULLY_CONNECTED\n"), "{printed}");

    let (scope, device) = (Eager::new(&gradlet::cpu()), gradlet::cpu());
    let artifact = gradlet::load(path("mlp.grdl")).unwrap();
    let x = Tensor::full(&device, 0.25f32, &[1, 784]).unwrap();
    let want = artifact.signature("infer").unwrap().call(std::slice::from_ref(&x)).unwrap()[0].to_vec::<f32>().unwrap();
    let model = Model::open(path("mlp.tflite")).unwrap();
    let got = model.call_signature(&scope, "infer", &[("x", &x)]).unwrap()[0].1.to_vec::<f32>().unwrap();
    assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-5), "{got:?}, not {want:?}");

    let samples = Tensor::stack(&[x.clone(), x.neg().unwrap()], 0).unwrap();
    npy::write(&path("samples.npy"), &Npy::of(&samples).unwrap()).unwrap();
    succeeds("convert", &folder, &["mlp.grdl", "-o", "int8.tflite", "--signature", "infer", "--quantize", "samples.npy"]);
    let int8 = Model::open(path("int8.tflite")).unwrap();
    assert_eq!(int8.inputs()[0].dtype, Some(DType::I8));
    assert!(int8.inputs()[0].quantization.is_some());
}

#[test]
fn what_has_no_operator_is_refused() {
    let folder = TempDir::new().unwrap();
    succeeds("export", &folder, &["mlp:784-8-10", "-o", "mlp.grdl"]);
    succeeds("import", &folder, &[&fixture("tinyml/ad01_int8.tflite"), "-o", "packed.grdl"]);
    let refused = |arguments: &[&str], want: &str| {
        let output = run("convert", &folder, &[arguments, &["-o", "no.tflite"]].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(want), "{text}");
        assert!(!folder.path().join("no.tflite").exists());
    };
    refused(&["mlp.grdl", "--signature", "train"], "only a function that changes none can be frozen");
    refused(&["mlp.grdl", "--signature", "nothing"], "nothing");
    refused(&["packed.grdl"], "its filter is packed for a microcontroller");
    refused(&["none.grdl"], "none.grdl");
}

/// The artifact of `import --quantize` and the file of `convert --quantize` have the same bits.
#[test]
fn a_float_artifact_is_quantized() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["normalized", "residual", "attention", "functions"] {
        let (model, samples) = (fixture(&format!("quantize/{name}_float32.tflite")), fixture(&format!("quantize/{name}_0.npy")));
        succeeds("import", &folder, &[&model, "-o", "int8.grdl", "--quantize", &samples, "--no-packing"]);
        succeeds("import", &folder, &[&model, "-o", "float.grdl"]);
        succeeds("convert", &folder, &["float.grdl", "-o", "int8.tflite", "--quantize", &samples]);
        let artifact = gradlet::load(path("int8.grdl")).unwrap().on(&portable_cpu()).unwrap();
        let infer = artifact.signature("infer").unwrap();
        let (input, kind) = infer.inputs().next().unwrap();
        let elements: Vec<i8> = (0..kind.shape.elements().unwrap()).map(|at| (at * 37 % 256) as u8 as i8).collect();
        let x = Tensor::new(&portable_cpu(), &elements, kind.shape.dims()).unwrap();
        let want = infer.call(std::slice::from_ref(&x)).unwrap()[0].to_vec::<i8>().unwrap();
        let converted = Model::open(path("int8.tflite")).unwrap();
        let got = converted.call_signature(&Eager::new(&portable_cpu()), "infer", &[(input, &x)]).unwrap()[0].1.to_vec::<i8>().unwrap();
        assert_eq!(got, want, "{name}");
    }
    let refused = run("convert", &folder, &["int8.grdl", "-o", "no.tflite"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && text.contains("an artifact has only those of inputs and outputs"), "{text}");
}
