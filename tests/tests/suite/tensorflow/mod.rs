//! Exchange of files with TensorFlow in both directions.
//!
//! `cargo xtask test TensorFlow` installs TensorFlow and runs these tests. To run them by hand, set `GRADLET_PYTHON` to
//! a Python with TensorFlow.

mod bundles;
mod checkpoints;
mod examples;
mod freezing;
mod images;
mod managers;
mod models;
mod records;
mod second_reader;

use std::path::PathBuf;
use std::process::Command;

/// Runs a script with these arguments, in a Python that has TensorFlow, and returns its output.
#[track_caller]
fn python(script: &str, arguments: &[&str]) -> String {
    let python = std::env::var_os("GRADLET_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let mut command = Command::new(&python);
    command.args(["-c", script]).args(arguments);
    command.envs([("TF_CPP_MIN_LOG_LEVEL", "3"), ("CUDA_VISIBLE_DEVICES", "-1"), ("TF_ENABLE_ONEDNN_OPTS", "0")]);
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", python.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
