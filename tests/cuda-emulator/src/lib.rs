//! An emulator of the CUDA driver that interprets PTX, of NCCL between its devices, and of cuBLASLt.

pub mod cublaslt;
pub mod driver;
pub mod machine;
pub mod nccl;
pub mod ptx;
