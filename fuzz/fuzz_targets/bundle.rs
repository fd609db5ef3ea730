//! Reads any bytes as a checkpoint of TensorFlow's format (`gradlet_tests::fuzz::bundle`).

#![no_main]

use gradlet_tests::fuzz::bundle::{exercise, folder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (_, error) = exercise(&folder(), data);
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
});
