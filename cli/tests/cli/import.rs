//! Tests of `gradlet import`.

use super::{run, succeeds};
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
