//! One suite, many runtimes.
//!
//! [`golden::run`] takes folders of golden vectors ([`fixtures`]), turns each into [`case::Case`]s — a function from input
//! tensors to output tensors, with what a reference computed — and runs every case on every runtime ([`runtimes`]): the
//! outputs must be within the stated tolerance, and must be the same bits as those of eager execution.
//! Folders of files and data ([`checks`]) are judged once.
//! What a runtime leaves out stands in `skips.txt`, with reasons ([`skips`]); nothing else is skipped.

pub mod bundle;
pub mod bundle_fuzz;
pub mod campaign;
pub mod case;
pub mod checkpoint_cases;
pub mod checks;
pub mod coverage;
pub mod damage;
pub mod data_cases;
mod dropout_case;
pub mod dtypes;
pub mod event_cases;
pub mod event_fuzz;
pub mod example_cases;
pub mod example_damage;
pub mod fixtures;
pub mod flash;
pub mod flat;
pub mod flat_fuzz;
pub mod frozen;
pub mod golden;
pub mod image_cases;
pub mod mlp;
pub mod op_cases;
pub mod ops_table;
pub mod parsed_json;
pub mod random;
pub mod readers;
pub mod repeated;
pub mod rounded;
pub mod runtimes;
pub mod skips;
pub mod state_cases;
pub mod telemetry_fuzz;
pub mod tfrecord_cases;
pub mod tfrecord_fuzz;
