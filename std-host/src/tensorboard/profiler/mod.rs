//! What a program does, seen: its graph, and when each op ran. TensorBoard shows both, in its tabs Graphs and Profile; Perfetto
//! opens the Chrome trace beside the profile.
//!
//! A trace hangs on a device, as all in gradlet that watches does: [`trace_on`] gives one that is like another and keeps what
//! it runs, eagerly or in a compiled [`Function`](crate::Function). Off, there is nothing to ask.

mod graph_def;
mod recording;
mod run_metadata;
mod timeline;
mod trace;

pub use graph_def::graph_def;
pub use timeline::{Line, Plane, Span, Stat, Timeline};
pub use trace::{Options, Step, Trace, trace_on};
