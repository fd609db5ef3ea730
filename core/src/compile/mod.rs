//! From a graph to a plan, one stage after the other:
//!
//! 1. [`inline`]: calls and decided branches become part of the graph around them.
//! 2. [`optimize`]: rewrites that keep the bits.
//! 3. [`plan`]: the order of the nodes, and where each value lives, with
//!    [`lifetimes`] (offsets in the scratch memory), [`subgraphs`] (bodies of branches and loops) and
//!    [`fuse`] (neighbours that a host runs together).

pub mod fuse;
pub(crate) mod inline;
pub(crate) mod lifetimes;
pub mod optimize;
pub mod plan;
pub mod subgraphs;
