//! More than computing: printing, reporting, stopping, drawing random numbers, running blocks.

pub mod assert;
pub mod cond;
pub mod print;
pub mod random_uniform;
pub mod summary;
pub mod while_loop;
