//! TensorFlow's values of images.

use gradlet_tests::image_cases;
use std::path::Path;

#[test]
fn golden_vectors() {
    let counts = image_cases::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/image")).unwrap();
    assert_eq!(counts.failed, 0);
    assert!(counts.passed > 500, "{counts:?}");
}
