//! Reads any bytes as a TensorFlow Lite model (`gradlet_tests::fuzz::readers`).

#![no_main]

use gradlet_tests::fuzz::readers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (readers::reader("tflite").read)(data);
});
