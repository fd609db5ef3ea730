//! The tests of this package, as one program: each links all of gradlet.
//!
//! Tests that need TensorFlow or TensorBoard are ignored unless `cargo xtask test` starts them.

mod allocations;
mod autograph;
mod catalogue;
mod checkpoints;
mod compiled;
mod control;
mod counting;
mod damage;
mod events;
mod examples;
mod flat;
mod frozen;
mod function;
mod fuzz;
mod golden;
mod gradients;
mod layering;
mod layers;
mod narrow;
mod optimizers;
mod readers;
mod refusals;
mod scopes;
mod slots;
mod spine;
mod telemetry;
mod tensorboard;
mod tensorflow;
mod tfrecord;
mod training;

/// The targets in `fuzz/` find their macro here.
extern crate self as libfuzzer_sys;

/// Makes a function of a fuzz target, as libFuzzer does.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:expr) => {
        pub fn target($data: &[u8]) {
            $body
        }
    };
}
