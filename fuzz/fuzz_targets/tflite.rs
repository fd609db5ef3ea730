//! Reads any bytes as a TensorFlow Lite model, and exports it (`gradlet_tests::fuzz::readers`).

#![no_main]

use gradlet_tests::fuzz::readers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (readers::reader("tflite").read)(data);
    let _ = (readers::reader("tflite export").read)(data);
});
