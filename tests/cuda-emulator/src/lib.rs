//! An emulator of the CUDA driver that interprets PTX.

pub mod driver;
pub mod machine;
pub mod ptx;
