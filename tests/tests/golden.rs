//! The golden vectors on the host's runtimes.

use gradlet_tests::coverage::Coverage;
use gradlet_tests::golden;
use gradlet_tests::skips::{COMMITTED, Skips};

#[test]
fn golden_vectors() {
    let mut skips = Skips::parse(COMMITTED).unwrap();
    let counts = golden::run_with(&[golden::own_folder()], None, &mut skips, &mut Coverage::default()).unwrap();
    assert_eq!(counts.failed, 0);
    assert!(counts.passed > 0);
    assert_eq!(skips.unused(), [""; 0], "these lines of skips.txt leave nothing out");
}

/// Files and data: once, for all runtimes.
#[test]
fn golden_data() {
    let mut skips = Skips::parse(COMMITTED).unwrap();
    let counts = golden::run_with(&golden::data_folders(), None, &mut skips, &mut Coverage::default()).unwrap();
    assert_eq!(counts.failed, 0);
    assert!(counts.passed > 0);
}
