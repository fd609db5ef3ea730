//! Artifacts of every released format version load, and compute what they computed when they were written.

use gradlet_core::program::VERSION;
use gradlet_tests::frozen;

#[test]
fn every_released_version_gives_its_own_bits() {
    for minor in 0..=VERSION.1 {
        let (artifact, answers) = frozen::folder((VERSION.0, minor));
        let given = frozen::answers(&std::fs::read(&artifact).unwrap()).unwrap();
        assert!(given == std::fs::read(answers).unwrap(), "{} computes something else now", artifact.display());
    }
}
