//! Any bytes as an event file: see `gradlet_tests::event_fuzz`.

#![no_main]

use gradlet_tests::bundle_fuzz::folder;
use gradlet_tests::event_fuzz::exercise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    exercise(&folder(), data);
});
