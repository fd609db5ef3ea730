//! One suite, many runtimes.
//!
//! [`golden::run`] takes folders of golden vectors ([`mod@golden::fixtures`]), turns each into [`golden::case::Case`]s — a function from
//! input tensors to output tensors, with what a reference computed — and runs every case on every runtime ([`golden::runtimes`]): the
//! outputs must be within the stated tolerance, and must be the same bits as those of eager execution.
//! Folders of files and data ([`golden::checks`]) are judged once.
//! What a runtime leaves out stands in `skips.txt`, with reasons ([`golden::skips`]); nothing else is skipped.
//!
//! [`fuzz`] has what must hold of damaged bytes, for the targets in `fuzz/` and for the tests.

pub mod flash;
pub mod flat;
pub mod frozen;
pub mod fuzz;
pub mod golden;
pub mod mlp;
pub mod random;
