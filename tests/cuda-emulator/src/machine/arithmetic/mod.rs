//! Results of instructions, value by value.

pub mod float;
pub mod half;
pub mod integer;
pub mod packed;
pub mod rounding;
