//! What a program does, seen: its graph, and when each op ran.

mod timeline;

pub use timeline::{Line, Plane, Span, Stat, Timeline};
