//! Tests of `gradlet import`.

use super::{run, succeeds};
use gradlet::io::npy::{self, Npy};
use gradlet::{DType, Shape, TensorType, portable_cpu};
use safetensors::SafeTensors;
use tempfile::TempDir;

fn fixture(name: &str) -> String {
    format!("{}/../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_window_becomes_a_step_per_frame() {
    let folder = TempDir::new().unwrap();
    succeeds("import", &folder, &[&fixture("tinyml/str_ww_ref_model.tflite"), "-o", "ww.grdl", "--stream", "1"]);
    let described = succeeds("inspect", &folder, &["ww.grdl"]);
    assert!(described.contains("signature infer(input_1: i8[1,1,1,40] with scale"), "{described}");
    assert!(described.contains("A step for each frame: the results for the window of 30 frames"), "{described}");
    assert!(described.contains("variables 3,536 B"), "{described}");

    let refused = run("import", &folder, &[&fixture("tinyml/kws_ref_model.tflite"), "-o", "kws.grdl", "--stream", "1"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && text.contains("operator 0 (CONV_2D): its stride along the time, axis 1, is 2"), "{text}");
    assert!(!folder.path().join("kws.grdl").exists());
}

#[test]
fn a_float_model_is_imported_for_training() {
    let folder = TempDir::new().unwrap();
    let model = fixture("models/mlp_float32.tflite");
    succeeds("import", &folder, &[&model, "-o", "mlp.grdl", "--train", "--learning-rate", "0.5"]);
    let described = succeeds("inspect", &folder, &["mlp.grdl"]);
    assert!(described.contains("signature train(x: f32[1,40], y: i32[1]) -> (loss: f32[])"), "{described}");
    assert!(described.contains("signature set_learning_rate(value: f32[])"), "{described}");
    let refused = run("import", &folder, &[&fixture("models/mlp_int8.tflite"), "-o", "int8.grdl", "--train"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && text.contains("train the float model"), "{text}");
}

#[test]
fn a_float_model_is_quantized() {
    let folder = TempDir::new().unwrap();
    let (model, samples) = (fixture("quantize/normalized_float32.tflite"), fixture("quantize/normalized_0.npy"));
    let costs = succeeds("import", &folder, &[&model, "-o", "int8.grdl", "--quantize", &samples]);
    assert!(costs.contains("packed_conv2d") && !costs.contains("float"), "{costs}");
    let described = succeeds("inspect", &folder, &["int8.grdl"]);
    assert!(
        described.contains(": i8[1,8,8,3] with scale") && described.contains("-> (output_0: i8[1,4] with scale 0.00390625"),
        "{described}"
    );
    succeeds("import", &folder, &[&model, "-o", "float.grdl", "--quantize", &samples, "--inference-type", "float32"]);
    assert!(succeeds("inspect", &folder, &["float.grdl"]).contains(": f32[1,8,8,3]) -> (output_0: f32[1,4])"));

    let refused = |arguments: &[&str], want: &str| {
        let output = run("import", &folder, &[&["-o", "no.grdl"], arguments].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(want), "{text}");
        assert!(!folder.path().join("no.grdl").exists());
    };
    let other = fixture("quantize/dense_0.npy");
    refused(&[&model, "--quantize", &other], "dense_0.npy has f32[16,1,12], but the model takes f32[1,8,8,3]");
    refused(&[&model, "--quantize", &format!("{samples},{samples}")], "inputs of the model: 1, files: 2");
    let all = npy::read(samples.as_ref()).unwrap().tensor(&portable_cpu()).unwrap();
    let write = |name: &str, tensor: gradlet::Tensor| {
        let path = folder.path().join(name);
        npy::write(&path, &Npy::of(&tensor).unwrap()).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (wide, none) =
        (write("wide.npy", all.cast(DType::F64).unwrap()), write("none.npy", all.slice(&[0; 5], &[0, -1, -1, -1, -1]).unwrap()));
    succeeds("import", &folder, &[&model, "-o", "wide.grdl", "--quantize", &wide]);
    assert_eq!(std::fs::read(folder.path().join("wide.grdl")).unwrap(), std::fs::read(folder.path().join("int8.grdl")).unwrap());
    refused(&[&model, "--quantize", &none], "none.npy has no samples");
    let integers = write("integers.npy", all.cast(DType::I32).unwrap());
    refused(&[&model, "--quantize", &integers], "integers.npy has i32, but the model takes f32");
    refused(&[&fixture("quantize/dense_int8.tflite"), "--quantize", &other], "take the float model");
}

/// Many sums of the model are so near the middle between two elements that another rounding has another result.
#[test]
fn dense_layers_have_the_bits_of_tensorflow_lite_micro() {
    let folder = TempDir::new().unwrap();
    let model = fixture("tflm/rounding_int8.tflite");
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    for rounding in ["tflm", "tflm-f32-scales"] {
        let file = std::fs::read(fixture(&format!("tflm/{}.safetensors", rounding.replace('-', "_")))).unwrap();
        let file = SafeTensors::deserialize(&file).unwrap();
        let vector = |name: &str| file.tensor(&format!("rounding_int8/{name}")).unwrap().data().to_vec();
        let x = Npy { tensor_type: TensorType::new(DType::I8, Shape::new(&[1, 6]).unwrap()), bytes: vector("in/0/0") };
        npy::write(&folder.path().join("x.npy"), &x).unwrap();
        let artifact = format!("{rounding}.grdl");
        succeeds("import", &folder, &[&model, "-o", &artifact, "--rounding", rounding]);
        succeeds("run", &folder, &[&artifact, "x=x.npy", "--output", "."]);
        for at in 0..5 {
            let got = npy::read(&folder.path().join(format!("y{at}.npy"))).unwrap().bytes;
            assert!(got == vector(&format!("out/0/{at}")), "{rounding}, layer {at}");
        }
    }
    succeeds("import", &folder, &[&model, "-o", "tensorflow.grdl", "--rounding", "tensorflow"]);
    succeeds("import", &folder, &[&model, "-o", "default.grdl"]);
    assert!(bytes("default.grdl") == bytes("tensorflow.grdl") && bytes("default.grdl") != bytes("tflm.grdl"));
}

#[test]
fn the_generated_source_names_kernels_for_helium() {
    let folder = TempDir::new().unwrap();
    let kernels = |file: &str| {
        let source = std::fs::read_to_string(folder.path().join(file)).unwrap();
        let lines = source.lines().filter_map(|line| line.strip_prefix("    &")?.strip_suffix("::I8,"));
        lines.map(Into::into).collect::<Vec<String>>()
    };
    let model = fixture("tinyml/kws_ref_model.tflite");
    succeeds("import", &folder, &[&model, "-o", "kws.grdl", "--rust", "kws.rs", "--cpu", "cortex-m55"]);
    let want = [
        "gradlet_helium::packed_conv2d",
        "gradlet_helium::packed_depthwise_conv2d",
        "gradlet_core::ops::quantized_avg_pool2d",
        "gradlet_helium::packed_dense",
        "gradlet_core::ops::quantized_softmax",
    ];
    assert_eq!(kernels("kws.rs"), want);
    // The artifact is the same for each processor.
    succeeds("inspect", &folder, &["kws.grdl", "--rust", "any.rs"]);
    assert_eq!(kernels("any.rs"), want.map(|line| line.replace("gradlet_helium", "gradlet_core::ops")));
    succeeds("inspect", &folder, &["kws.grdl", "--rust", "again.rs", "--cpu", "cortex-m55"]);
    assert_eq!(kernels("again.rs"), want);
    assert_eq!(run("inspect", &folder, &["kws.grdl", "--cpu", "cortex-m55"]).status.code(), Some(2));
}

/// The step "the report before flashing" measures.
#[test]
fn a_measurement_without_its_tools_says_what_to_install() {
    let folder = TempDir::new().unwrap();
    let model = fixture("models/mlp_int8.tflite");
    let imported = succeeds("import", &folder, &[&model, "-o", "mlp.grdl"]);
    assert!(imported.contains("MACs") && imported.contains("they are measured with --measure"), "{imported}");
    assert!(succeeds("inspect", &folder, &["mlp.grdl"]).contains(imported.split_once('\n').unwrap().1));
    let mut inspect = assert_cmd::Command::cargo_bin("gradlet").unwrap();
    let output = inspect.args(["inspect", "mlp.grdl", "--measure"]).current_dir(&folder).env("PATH", folder.path()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("error: --measure needs qemu-system-arm, which is not installed: run `sudo apt-get install"), "{text}");
    for wrong in [&["--cpu", "cortex-m4"][..], &["--measure", "--cpu", "cortex-a7"]] {
        assert_eq!(run("inspect", &folder, &[&["mlp.grdl"], wrong].concat()).status.code(), Some(2), "{wrong:?}");
    }
}
