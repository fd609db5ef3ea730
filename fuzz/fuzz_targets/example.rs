//! Damaged Examples, SequenceExamples and tensor messages are read or refused.

#![no_main]

use gradlet_tests::example_damage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| example_damage::exercise(data));
