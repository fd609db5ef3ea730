//! `gradlet devices`, and devices by their names.

use crate::{fails, succeeds};
use tempfile::tempdir;

/// The CPU comes first. Then there is a GPU, or the reason why there is none.
#[test]
fn devices_are_listed() {
    let printed = succeeds("devices", &tempdir().unwrap(), &[]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("CPU:0  ") && lines[0].ends_with(" cores"), "{printed}");
    let known = ["GPU:0  ", "unsupported  ", "no GPU: "];
    assert!(lines.len() > 1 && known.iter().any(|start| lines[1].starts_with(start)), "{printed}");
}

#[test]
fn an_unknown_device_is_told_with_the_known_ones() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");
    let (_, stderr) = fails("train", &tempdir().unwrap(), &["mlp:784-8-10", "--data", data, "--limit", "10", "--device", "GPU:7"]);
    assert!(stderr.contains("GPU:7") && stderr.contains("CPU:0") && stderr.contains("gradlet devices"), "{stderr}");
}
