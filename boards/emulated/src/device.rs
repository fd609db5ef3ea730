//! The part of the board's description that RTIC reads.

/// Number of bits of an interrupt's priority.
pub const NVIC_PRIO_BITS: u8 = 3;
