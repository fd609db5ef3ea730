//! Quantized models that TensorFlow has converted: each runtime computes the bits of TensorFlow Lite's reference kernels.

use super::python;
use gradlet_tests::golden;
use serde_json::{Map, Value};

const SCRIPT: &str = include_str!("models.py");
const RUNTIMES: [&str; 5] = ["eager", "compiled", "cpu", "hiding", "device"];

/// The conversions that TensorFlow 2.21 refuses: it has no kernel with 16 bits for hard swish, nor one for a depthwise convolution with a
/// bias of 32 bits.
const REFUSED: [&str; 4] = ["convolutions/int16_bias32", "swish/int16", "swish/int16_bias32", "swish/int16_float"];

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn quantized_models_have_the_bits_of_tensorflow() {
    let folder = tempfile::tempdir().unwrap();
    let output = python(SCRIPT, &[folder.path().to_str().unwrap()]);
    let refused: Map<String, Value> = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    let others: Vec<_> = refused.iter().filter(|(name, _)| !REFUSED.contains(&name.as_str())).collect();
    assert!(others.is_empty(), "TensorFlow refused {others:?}");
    let counts = golden::run(&RUNTIMES, &[folder.path().into()], None).unwrap();
    assert_eq!(counts.failed + counts.skipped, 0);
    assert!(counts.passed >= 400 * RUNTIMES.len(), "only {counts:?}");
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn a_filter_keeps_its_state_like_tensorflows() {
    let folder = tempfile::tempdir().unwrap();
    python(include_str!("svdf.py"), &[folder.path().to_str().unwrap()]);
    crate::svdf::check(folder.path());
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn float_models_are_quantized_like_tensorflows() {
    let folder = tempfile::tempdir().unwrap();
    python(include_str!("quantize.py"), &[folder.path().to_str().unwrap()]);
    crate::quantize::check(folder.path());
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn tensorflow_runs_the_files_that_gradlet_writes() {
    let folder = tempfile::tempdir().unwrap();
    let names = crate::convert::write(folder.path());
    let output = python(include_str!("converted.py"), &[folder.path().to_str().unwrap()]);
    assert_eq!(output.trim(), names.len().to_string());
}
