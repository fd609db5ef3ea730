//! Runs the golden vectors on the host's runtimes.

use gradlet_tests::golden;
use gradlet_tests::golden::coverage::Coverage;
use gradlet_tests::golden::skips::{COMMITTED, Skips};

#[test]
fn golden_vectors() {
    let mut skips = Skips::parse(COMMITTED).unwrap();
    let mut coverage = Coverage::default();
    let counts = golden::run_with(&[], &golden::case_folders(), None, &mut skips, &mut coverage).unwrap();
    assert_eq!(counts.failed, 0);
    assert!(counts.passed > 0);
    // Remove the Cortex-M from the table. `cargo xtask test` checks it.
    let committed = include_str!("../../../COVERAGE.md").replace("DM |", "D |");
    assert_eq!(coverage.table(), committed, "COVERAGE.md is out of date: run `cargo xtask coverage`");
    assert_eq!(skips.unused(), [""; 0], "these lines of skips.txt skip no case");
}

/// Runs the cases of files and data, once for all runtimes.
#[test]
fn golden_data() {
    let mut skips = Skips::parse(COMMITTED).unwrap();
    let counts = golden::run_with(&[], &golden::data_folders(), None, &mut skips, &mut Coverage::default()).unwrap();
    assert_eq!(counts.failed, 0);
    assert!(counts.passed > 0);
}

/// Runs the project's own cases of `neg` on some runtimes with this list of skips, and returns the counts.
fn counts(runtimes: &[&str], skips: &str) -> golden::Counts {
    const FILES: [&str; 2] = ["cases.json", "elementwise.safetensors"];
    let (own, folder) = (golden::own_folder(), tempfile::tempdir().unwrap());
    for file in FILES {
        std::fs::copy(own.join(file), folder.path().join(file)).unwrap();
    }
    let cases = folder.path().join(FILES[0]);
    let mut index: serde_json::Value = serde_json::from_slice(&std::fs::read(&cases).unwrap()).unwrap();
    index["cases"].as_array_mut().unwrap().retain(|case| case["op"] == "neg");
    std::fs::write(&cases, index.to_string()).unwrap();
    let mut skips = Skips::parse(skips).unwrap();
    golden::run_with(runtimes, &[folder.path().into()], None, &mut skips, &mut Coverage::default()).unwrap()
}

#[test]
fn only_the_selected_runtimes_run() {
    let [eager, cpu, both] = [&["eager"][..], &["cpu"], &["cpu", "eager"]].map(|runtimes| counts(runtimes, COMMITTED));
    assert!(eager.passed > 0 && eager.failed + cpu.failed == 0 && cpu.passed == eager.passed, "{eager:?} {cpu:?}");
    assert_eq!(both.passed, eager.passed + cpu.passed);
    let error = golden::run(&["gpu"], &[], None).unwrap_err().to_string();
    assert_eq!(error, "unknown runtime \"gpu\": the runtimes are eager, compiled, cpu, hiding, cuda, device, cortex-m");
}

#[test]
fn a_skip_that_is_out_of_date_fails() {
    let all = counts(&["eager"], COMMITTED);
    let skipped = counts(&["eager"], "neg/random eager it was not known once");
    assert_eq!((skipped.passed, skipped.failed), (all.passed - 1, 1));
}
