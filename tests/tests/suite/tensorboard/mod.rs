//! TensorBoard itself: what its EventAccumulator reads from gradlet's files, and what its pages show in Chromium.
//!
//! `cargo xtask test TensorBoard` installs both and runs these tests, one after the other; by hand, give `GRADLET_PYTHON` a Python
//! that has TensorFlow, TensorBoard and xprof, and `GRADLET_CHROMIUM` a Chromium. Pictures of the pages stay in target/tensorboard.

mod accumulator;
mod browser;
mod callback;
mod live;
mod pages;
mod server;
mod trace;

use std::path::PathBuf;
use std::process::Command;

/// What keeps TensorFlow from talking, and from looking for devices.
const QUIET: [(&str, &str); 3] = [("TF_CPP_MIN_LOG_LEVEL", "3"), ("CUDA_VISIBLE_DEVICES", "-1"), ("TF_ENABLE_ONEDNN_OPTS", "0")];

/// The Python that `GRADLET_PYTHON` names.
fn interpreter() -> PathBuf {
    std::env::var_os("GRADLET_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// Runs a script in that Python, with these arguments. Gives what it prints.
#[track_caller]
fn python(script: &str, arguments: &[&str]) -> String {
    let output = Command::new(interpreter()).args(["-c", script]).args(arguments).envs(QUIET).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", interpreter().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
