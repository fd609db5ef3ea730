//! Artifacts of every released format version load, and compute the same results as when they were written.

use gradlet_core::runtime::program::VERSION;
use gradlet_tests::frozen;

#[test]
fn every_sample_gives_its_own_bits() {
    let samples = frozen::samples().unwrap();
    for (artifact, answers) in &samples {
        let given = frozen::answers(&std::fs::read(artifact).unwrap()).unwrap();
        assert!(given == std::fs::read(answers).unwrap(), "{} computes something else now", artifact.display());
    }
    for minor in 0..=VERSION.1 {
        assert!(samples.contains(&frozen::paths("cnn", (VERSION.0, minor))), "version {}.{minor} has no sample", VERSION.0);
    }
}
