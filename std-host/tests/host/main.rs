//! The tests of this package, as one program: each links all of gradlet. What counts threads or memory is alone, in `data.rs`.

// Examples stand on one another: each that is tested here brings what it stands on.
#![allow(clippy::duplicate_mod)]

mod applications;
mod checkpoints;
mod examples;
mod fit;
mod loaded;
mod pipelines;
mod seeds;
mod tensorboard;
mod trace;
mod waiting;
