//! Reads any bytes as telemetry from a line (`gradlet_tests::fuzz::telemetry`).

#![no_main]

use gradlet_tests::fuzz::telemetry::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| read(data));
