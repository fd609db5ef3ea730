//! Ops with effects: printing, summaries, assertions, checks, random numbers, branches and loops.

pub mod assert;
pub mod check_numerics;
pub mod cond;
pub mod print;
pub mod random_uniform;
pub mod summary;
pub mod while_loop;
