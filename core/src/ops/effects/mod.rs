//! Ops with effects: printing, summaries, assertions, random numbers, branches and loops.

pub mod assert;
pub mod cond;
pub mod print;
pub mod random_uniform;
pub mod summary;
pub mod while_loop;
