//! Any bytes as what comes over a line: see `gradlet_tests::telemetry_fuzz`.

#![no_main]

use gradlet_tests::telemetry_fuzz::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| read(data));
