//! Reads any bytes as a flat checkpoint, and as flash with slots (`gradlet_tests::fuzz::flat`).

#![no_main]

use gradlet_tests::fuzz::flat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = flat::read(data);
});
