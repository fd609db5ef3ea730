//! The tests of the `gradlet` command, as one program.

mod ckpt;
mod convert;
mod devices;
mod import;
mod models;
mod monitor;
mod new;
mod summary;
mod tfrecord;

use assert_cmd::Command;
use std::process::Output;
use tempfile::TempDir;

/// Runs `gradlet WORD` with these arguments in `folder`.
fn run(word: &str, folder: &TempDir, arguments: &[&str]) -> Output {
    Command::cargo_bin("gradlet").unwrap().arg(word).args(arguments).current_dir(folder).output().unwrap()
}

/// Checks that `gradlet WORD` succeeds without a word on stderr. Returns its stdout.
#[track_caller]
fn succeeds(word: &str, folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(word, folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that `gradlet WORD` ends with exit code 1 and one line on stderr. Returns its stdout, and this line.
#[track_caller]
fn fails(word: &str, folder: &TempDir, arguments: &[&str]) -> (String, String) {
    let output = run(word, folder, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    (String::from_utf8(output.stdout).unwrap(), stderr)
}
