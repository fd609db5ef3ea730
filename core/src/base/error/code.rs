//! Numeric error codes.

use super::Error;

impl Error {
    /// Returns a number for firmware that carries no text. `SPEC.md` lists the meanings. A number never changes its meaning, and new
    /// errors get new numbers. Numbers from 64 on never occur on a device.
    pub const fn code(&self) -> u8 {
        match self {
            Error::Arity { .. } => 1,
            Error::DType { .. } => 2,
            Error::Rank { .. } => 3,
            Error::Dimension { .. } => 4,
            Error::Attribute { .. } => 5,
            Error::TooLarge => 6,
            Error::IndexOutOfRange { .. } => 7,
            Error::DivisionByZero { .. } => 8,
            Error::NegativePower { .. } => 9,
            Error::Assertion { .. } => 10,
            Error::NotAnArtifact => 11,
            Error::Version { .. } => 12,
            Error::Truncated { .. } => 13,
            Error::Misaligned => 14,
            Error::Checksum { .. } => 15,
            Error::Record { .. } => 16,
            Error::Instruction { .. } => 17,
            Error::MissingKernel { .. } => 18,
            Error::UnknownSignature => 19,
            Error::ArenaTooSmall { .. } => 20,
            Error::NoSuchTensor { .. } => 21,
            Error::TensorType { .. } => 22,
            Error::NotACheckpoint => 23,
            Error::CheckpointVersion { .. } => 24,
            Error::OtherArtifact { .. } => 25,
            Error::Damaged { .. } => 26,
            Error::CutShort => 27,
            Error::InFlash { .. } => 28,
            Error::Io { .. } => 29,
            Error::Slots => 30,
            Error::SlotTooSmall { .. } => 31,
            Error::Worn { .. } => 32,
            Error::Internal => 33,
            Error::NotFinite { .. } => 34,
            Error::VariableNotFinite { .. } => 35,
            Error::Unfinished => 36,
            Error::Length { .. } => 37,
            Error::Interrupted => 38,
            #[cfg(feature = "alloc")]
            Error::NoKernel { .. } => 64,
            #[cfg(feature = "alloc")]
            Error::UnrelatedScopes => 65,
            #[cfg(feature = "alloc")]
            Error::Traced => 66,
            #[cfg(feature = "alloc")]
            Error::SpentTape => 67,
            #[cfg(feature = "alloc")]
            Error::Unbuilt => 68,
            #[cfg(feature = "alloc")]
            Error::LateVariable => 69,
            #[cfg(feature = "alloc")]
            Error::Message(_) => 70,
            #[cfg(feature = "alloc")]
            Error::Context { .. } => 71,
            #[cfg(feature = "alloc")]
            Error::OutOfMemory(_) => 72,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::error::{Rule, Section};
    use std::string::ToString;

    #[test]
    fn numbers_stay() {
        assert_eq!(Error::Arity { got: 0 }.code(), 1);
        assert_eq!(Error::Misaligned.code(), 14);
        assert_eq!(Error::Record { section: Section::Header, index: 0 }.code(), 16);
        assert_eq!(Error::Instruction { index: 0, rule: Rule::Blocks }.code(), 17);
        assert_eq!(Error::Worn { slot: 0 }.code(), 32);
        assert_eq!(Error::Unfinished.code(), 36);
    }

    #[test]
    fn what_cannot_happen_is_no_fault_of_the_caller() {
        assert_eq!(Error::Internal.code(), 33);
        assert_eq!(Error::Internal.to_string(), "gradlet broke one of its own rules: please report how to reproduce this");
    }
}
