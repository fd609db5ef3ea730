//! Firmwares: builds them, runs them under QEMU, and measures their sizes.

pub mod elf;
pub mod firmware;
