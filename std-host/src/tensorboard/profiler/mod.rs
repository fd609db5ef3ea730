//! Traces of a program: its graphs, the times of its ops, and the memory that they use. TensorBoard shows them in its tabs Graphs and
//! Profile. The times and the memory are also written as a Chrome trace, which Perfetto opens.
//!
//! A trace belongs to a device. [`trace_on`] returns a device that behaves like another one and also records the ops that it runs,
//! both eagerly and in a compiled [`Function`](crate::Function). Other devices record nothing, so they have no overhead.

#![doc(alias = "tf.profiler")]

mod graph_def;
mod memory;
mod recording;
mod run_metadata;
mod spans;
mod timeline;
mod trace;

pub use graph_def::graph_def;
pub use memory::MemoryEvent;
pub use timeline::{Line, Plane, Span, Stat, Timeline};
pub use trace::{Options, Step, Trace, trace_on};
