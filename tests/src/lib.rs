//! The test suite, which runs the same cases on many runtimes.
//!
//! [`golden::run`] reads folders of golden vectors ([`mod@golden::fixtures`]) into [`golden::case::Case`]s. A case is a function from input
//! tensors to output tensors, with the outputs that a reference computed. Every case runs on every runtime ([`golden::runtimes`]). The
//! outputs must be within the stated tolerance, and must have the same bits as those of eager execution.
//!
//! Folders of files and data ([`golden::checks`]) run only once, not on every runtime. `skips.txt` lists the skipped cases of each runtime,
//! with reasons ([`golden::skips`]). Nothing else is skipped.
//!
//! [`fuzz`] checks the properties that must hold for damaged bytes, for the targets in `fuzz/` and for the tests.

#[cfg(doctest)]
mod book;
pub mod flash;
pub mod flat;
pub mod frozen;
pub mod fuzz;
pub mod golden;
pub mod gpu;
pub mod hiding;
pub mod mlp;
pub mod quantised;
pub mod random;
pub mod roofline;
