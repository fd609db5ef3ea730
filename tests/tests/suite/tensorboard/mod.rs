//! Tests with TensorBoard: the data that its EventAccumulator reads from gradlet's files, and its pages in Chromium.
//!
//! `cargo xtask test TensorBoard` installs both, and runs these tests one after another. To run them by hand, set
//! `GRADLET_PYTHON` to a Python with TensorFlow, TensorBoard and xprof, and `GRADLET_CHROMIUM` to a Chromium. Screenshots of the
//! pages are saved in target/tensorboard.

mod accumulator;
mod browser;
mod callback;
mod gpu;
mod live;
mod memory;
mod pages;
mod server;
mod trace;

use std::path::PathBuf;
use std::process::Command;

/// Environment variables that silence TensorFlow, and keep it from searching for devices.
const QUIET: [(&str, &str); 3] = [("TF_CPP_MIN_LOG_LEVEL", "3"), ("CUDA_VISIBLE_DEVICES", "-1"), ("TF_ENABLE_ONEDNN_OPTS", "0")];

/// Returns the Python that `GRADLET_PYTHON` names, or `python3`.
fn interpreter() -> PathBuf {
    std::env::var_os("GRADLET_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// Runs a script with these arguments in the Python of [`interpreter`], and returns its output.
#[track_caller]
fn python(script: &str, arguments: &[&str]) -> String {
    let output = Command::new(interpreter()).args(["-c", script]).args(arguments).envs(QUIET).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", interpreter().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
