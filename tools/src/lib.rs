//! Firmwares: building them, running them under QEMU, and what lies in them.

pub mod elf;
pub mod firmware;
