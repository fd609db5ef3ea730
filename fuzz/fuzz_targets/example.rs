//! Damaged Examples, SequenceExamples and tensor messages are read or refused.

#![no_main]

use gradlet_tests::fuzz::examples;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| examples::exercise(data));
