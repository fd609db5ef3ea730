//! An emulator of the CUDA driver that interprets PTX, and of NCCL between its devices.

pub mod driver;
pub mod machine;
pub mod nccl;
pub mod ptx;
