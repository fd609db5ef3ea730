//! Any bytes as a checkpoint: see `gradlet_tests::fuzz::bundle`.

#![no_main]

use gradlet_tests::fuzz::bundle::{exercise, folder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (_, error) = exercise(&folder(), data);
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
});
