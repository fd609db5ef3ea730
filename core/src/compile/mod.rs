//! From a graph to a plan, one stage after the other.
//!
//! | stage | what |
//! |---|---|
//! | [`inline`] | calls and decided branches become part of the graph around them |
//! | [`optimize`] | rewrites that keep the bits |
//! | [`planner`] | the order of the nodes, and where each value lives: a [`plan`] |
//!
//! The planner's own stages are [`assignments`], [`subgraphs`], [`order`], [`lifetimes`] and, for a host, [`fuse`].

pub(crate) mod assignments;
pub mod fuse;
pub(crate) mod inline;
pub(crate) mod lifetimes;
pub mod optimize;
pub(crate) mod order;
pub mod plan;
pub mod planner;
pub mod subgraphs;
