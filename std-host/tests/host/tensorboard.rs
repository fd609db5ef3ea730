//! Test of the TensorFlow handbook's training with a loss curve for TensorBoard.

#[allow(dead_code)]
#[path = "../../examples/tensorboard.rs"]
mod program;

use gradlet::summary::Run;
use std::path::Path;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");

/// The curve has the losses that the same program without TensorBoard prints.
#[test]
fn the_curve_is_the_training_s() {
    let folder = tempfile::tempdir().unwrap();
    program::run(Path::new(DATA), folder.path(), 1).unwrap();
    let run = Run::read(folder.path()).unwrap();
    let points = &run.series("loss").unwrap().points;
    let lines = points.iter().map(|point| format!("batch {}: loss {:.6}", point.step, point.number().unwrap()));
    let mut printed = Vec::new();
    program::mlp::run(Path::new(DATA), 1, &mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(lines.collect::<Vec<_>>(), printed.lines().take(160).collect::<Vec<_>>());
}
