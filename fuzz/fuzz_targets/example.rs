//! Reads any bytes as an Example, a SequenceExample and a tensor message (`gradlet_tests::fuzz::examples`).

#![no_main]

use gradlet_tests::fuzz::examples;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| examples::exercise(data));
