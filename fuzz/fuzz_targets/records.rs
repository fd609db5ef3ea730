//! Any bytes as records: see `gradlet_tests::tfrecord_fuzz`.

#![no_main]

use gradlet_tests::tfrecord_fuzz::exercise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (_, error) = exercise(data);
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
});
