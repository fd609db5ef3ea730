//! Reads any bytes as a CSV file (`gradlet_tests::fuzz::readers`).

#![no_main]

use gradlet_tests::fuzz::readers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (readers::reader("csv").read)(data);
});
