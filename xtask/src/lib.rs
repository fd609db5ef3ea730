//! Code that `cargo xtask` shares with the tools that it starts: the command line, and the setup of the machine.

pub mod boards;
pub mod cli;
pub mod jetson;
pub mod setup;
pub mod shell;
