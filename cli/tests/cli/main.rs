//! The tests of the `gradlet` command, as one program.

mod ckpt;
mod models;
mod monitor;
mod summary;
mod tfrecord;
