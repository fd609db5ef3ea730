//! Reads any bytes as an event file (`gradlet_tests::fuzz::events`).

#![no_main]

use gradlet_tests::fuzz::bundle::folder;
use gradlet_tests::fuzz::events::exercise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    exercise(&folder(), data);
});
