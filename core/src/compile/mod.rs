//! Compiles a graph into a plan, in several stages.
//!
//! | stage | task |
//! |---|---|
//! | [`divide`] | divides a graph whose nodes run on several devices into one graph for each stretch on the same device |
//! | [`inline`] | makes calls and decided branches part of the graph around them |
//! | [`optimize`] | rewrites the graph without changing a bit of its results |
//! | [`pack`] | packs constant filters for a microcontroller |
//! | [`planner`] | decides the order of the nodes and the location of each value; the result is a [`plan`] |
//!
//! The planner itself uses [`assignments`], [`subgraphs`], [`order`], [`lifetimes`] with [`offsets`] and, for a host, [`fuse`] with
//! [`neighbours`]. For a device, it uses [`pools`].
//!
//! Apart from these stages, [`freeze`] makes variables constants, for quantization and for other formats.

pub(crate) mod assignments;
pub(crate) mod divide;
pub(crate) mod freeze;
pub mod fuse;
pub(crate) mod inline;
pub(crate) mod lifetimes;
pub(crate) mod neighbours;
pub(crate) mod offsets;
pub mod optimize;
pub(crate) mod order;
pub(crate) mod pack;
pub mod plan;
pub mod planner;
pub(crate) mod pools;
pub mod subgraphs;
