//! Reads any bytes as TFRecord files (`gradlet_tests::fuzz::records`).

#![no_main]

use gradlet_tests::fuzz::records::exercise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (_, error) = exercise(data);
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
});
