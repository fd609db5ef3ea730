//! The tests of this package, as one program, because each program links all of gradlet. Tests that count threads or memory are a
//! program of their own, `data.rs`.

// An example includes the examples that it depends on, so that some modules are duplicated here.
#![allow(clippy::duplicate_mod)]

mod applications;
mod checkpoints;
mod examples;
mod fit;
mod freezing;
mod loaded;
mod pipelines;
mod seeds;
mod tensorboard;
mod trace;
mod waiting;
