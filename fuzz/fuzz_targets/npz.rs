//! Reads any bytes as an NPZ file (`gradlet_tests::fuzz::readers`).

#![no_main]

use gradlet_tests::fuzz::readers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (readers::reader("npz").read)(data);
});
