//! Arbitrary bytes as a flat checkpoint, and as flash with slots, for `gradlet_tests::flat_fuzz`.

#![no_main]

use gradlet_tests::flat_fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = flat_fuzz::read(data);
});
