//! What `cargo xtask` and the tools that it starts share: the command line, the machine's programs, and how they are found.

pub mod boards;
pub mod cli;
pub mod setup;
pub mod shell;
