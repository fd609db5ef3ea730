//! Earlier ways of doing things.

pub mod v1;
