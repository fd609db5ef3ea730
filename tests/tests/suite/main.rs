//! The tests of this package, as one program, because each program links all of gradlet.
//!
//! Tests that need TensorFlow or TensorBoard are ignored, unless `cargo xtask test` starts them.

mod allocations;
mod autograph;
mod by_index;
mod catalogue;
mod checkpoints;
mod cnn;
mod compiled;
mod control;
mod convert;
mod counting;
mod cuda;
mod damage;
mod devices;
mod distribute;
mod events;
mod examples;
mod flat;
mod frozen;
mod function;
mod fuzz;
mod golden;
mod gradients;
mod hiding;
mod hostile;
mod large;
mod layering;
mod layers;
mod mixed_precision;
mod narrow;
mod optimizers;
mod pages;
mod pools;
mod quantize;
mod readers;
mod refusals;
mod scopes;
mod serving;
mod slices;
mod slots;
mod slots_in_slices;
mod spec;
mod spine;
mod svdf;
mod telemetry;
mod tensorboard;
mod tensorflow;
mod tfrecord;
mod training;
mod whole_steps;

/// Lets the targets in `fuzz/` find the macro `fuzz_target` in this crate.
extern crate self as libfuzzer_sys;

/// Defines the function of a fuzz target, as libFuzzer's macro does.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:expr) => {
        pub fn target($data: &[u8]) {
            $body
        }
    };
}
