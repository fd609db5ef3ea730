//! The outcome of a function: a code, and the numbers of an error.

use core::num::NonZeroU32;
use core::slice::Iter;
use embedded_io::ErrorKind;
use gradlet_core::Error;
use gradlet_core::error::{Rule, Section};

/// The outcome of a call. It is small, so functions return it by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The code: one of `enum gradlet_code`. It is 0 if the call succeeded.
    pub code: u32,
    /// Details of the error, as the code describes them, and otherwise 0.
    pub numbers: [u32; 4],
}

/// The codes of outcomes. A code never changes its meaning. Up to 38, they are those of errors in the format's specification.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// An op of the artifact does not take this number of inputs (numbers: number).
    Arity = 1,
    /// An op of the artifact does not take the element type of an input (numbers: input).
    Dtype = 2,
    /// An op of the artifact does not take the rank of an input (numbers: input).
    Rank = 3,
    /// A dimension of an input of an op differs from the required one (numbers: input, axis, required, actual).
    Dimension = 4,
    /// An attribute of an op has a value that the op does not allow (numbers: index).
    Attribute = 5,
    /// A dimension, a tensor or the memory of a program is too large.
    TooLarge = 6,
    /// A label or index in the data is out of range (numbers: instruction, position, value, exclusive upper limit).
    IndexOutOfRange = 7,
    /// An integer was divided by zero (numbers: instruction, position).
    DivisionByZero = 8,
    /// An integer was raised to a negative power (numbers: instruction, position).
    NegativePower = 9,
    /// An assertion of the program is false (numbers: instruction, position).
    Assertion = 10,
    /// The bytes are not an artifact.
    NotAnArtifact = 11,
    /// The artifact has a format version that this library does not read (numbers: major, minor).
    Version = 12,
    /// The artifact is cut short (numbers: bytes needed, bytes present).
    Truncated = 13,
    /// Memory is not aligned to 16 bytes. Functions of C report it as GRADLET_CODE_MISALIGNED_POINTER.
    Misaligned = 14,
    /// The artifact is damaged (numbers: stored checksum, computed checksum).
    Checksum = 15,
    /// A record of the artifact breaks the format (numbers: section, record).
    Record = 16,
    /// An instruction of the artifact breaks a rule (numbers: instruction, rule).
    Instruction = 17,
    /// The list of kernels lacks one that the artifact needs (numbers: index in the artifact's table). gradlet_missing_kernel returns its
    /// name.
    MissingKernel = 18,
    /// The artifact has no such signature, or it was not loaded.
    UnknownSignature = 19,
    /// The arena is too small (numbers: bytes needed, bytes present).
    ArenaTooSmall = 20,
    /// There is no input, output or variable at this index (numbers: index).
    NoSuchTensor = 21,
    /// The tensor has another element type (numbers: index).
    TensorType = 22,
    /// The bytes are not a checkpoint.
    NotACheckpoint = 23,
    /// The checkpoint has a format version that this library does not read (numbers: major, minor).
    CheckpointVersion = 24,
    /// The checkpoint belongs to another artifact (numbers: checksum of that artifact).
    OtherArtifact = 25,
    /// The checkpoint is damaged (numbers: the variable, or UINT32_MAX if the damage is outside the values of the variables).
    Damaged = 26,
    /// The checkpoint is cut short.
    CutShort = 27,
    /// The checkpoint changes a variable that no loaded signature assigns, and which therefore has no RAM (numbers: variable).
    InFlash = 28,
    /// A callback reported a failure.
    Io = 29,
    /// The flash cannot be divided into slots this way.
    Slots = 30,
    /// The checkpoint does not fit into a slot (numbers: bytes needed, bytes of a slot).
    SlotTooSmall = 31,
    /// The flash does not hold what was written (numbers: slot).
    Worn = 32,
    /// gradlet broke one of its own rules. Please report how to reproduce this.
    Internal = 33,
    /// An element is infinite or NaN (numbers: instruction, position).
    NotFinite = 34,
    /// A variable that would be saved has an element that is infinite or NaN (numbers: variable).
    VariableNotFinite = 35,
    /// The session is unfinished, because a run ended after it had changed a variable. A restore or a reset ends this state.
    Unfinished = 36,
    /// The tensor has another number of elements (numbers: index, elements of the tensor, elements given).
    Length = 37,
    /// A run, load, save or restore in slices cannot go on: it was not begun, it is over, or something changed meanwhile.
    Interrupted = 38,
    /// A pointer is null (numbers: argument, from 0 on).
    NullPointer = 128,
    /// A pointer is not aligned (numbers: argument, required alignment).
    MisalignedPointer = 129,
    /// The memory of two arguments overlaps, or memory reaches past the end of the address space (numbers: argument, other argument).
    Overlap = 130,
    /// A struct is not initialised, was copied, or depends on one that is no longer what it was (numbers: argument).
    NotInitialized = 131,
    /// A struct is in use by a call that has not returned. Callbacks and interrupts must not use it (numbers: argument).
    InUse = 132,
    /// A text is not UTF-8, or has more than 255 bytes (numbers: argument).
    BadText = 133,
    /// A number is outside its range (numbers: argument).
    BadNumber = 134,
    /// A buffer is too small (numbers: argument, bytes needed, bytes present).
    BufferTooSmall = 135,
}

/// Result of a function before it returns to C.
pub(crate) type Result<T = (), E = Outcome> = core::result::Result<T, E>;

/// An error of a check of arguments: a code, the position of the argument, and a detail. It fits into a register, so checks stay small.
#[derive(Clone, Copy)]
pub(crate) struct Fault(NonZeroU32);

impl Fault {
    /// `argument` is below 256, and `detail` below 65,536.
    #[inline(always)]
    pub(crate) const fn new(code: Code, argument: u32, detail: u32) -> Fault {
        // No code is 0.
        Fault(NonZeroU32::MIN.saturating_add((code as u32 | argument << 8 | detail << 16) - 1))
    }
}

impl From<Fault> for Outcome {
    #[inline(never)]
    fn from(Fault(fault): Fault) -> Outcome {
        let fault = fault.get();
        Outcome { code: fault & 0xff, numbers: [fault >> 8 & 0xff, fault >> 16, 0, 0] }
    }
}

impl Outcome {
    const OK: Outcome = Outcome { code: Code::Ok as u32, numbers: [0; 4] };

    pub(crate) fn new(code: Code, numbers: [u32; 4]) -> Outcome {
        Outcome { code: code as u32, numbers }
    }

    /// Returns the outcome of `work`.
    #[inline(always)]
    pub(crate) fn of(work: impl FnOnce() -> Result) -> Outcome {
        match work() {
            Ok(()) => Outcome::OK,
            Err(outcome) => outcome,
        }
    }
}

/// A detail of an error that is stored as a number.
trait Number: Sized {
    fn to(&self) -> u32;
    fn of(number: u32) -> Option<Self>;
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn to(&self) -> u32 {
                *self as u32
            }

            fn of(number: u32) -> Option<Self> {
                Some(number as $ty)
            }
        }
    )*};
}
integers!(u8, u16, u32, i32);

macro_rules! lists {
    ($($ty:ident: $($value:ident),*;)*) => {$(
        impl Number for $ty {
            fn to(&self) -> u32 {
                *self as u32
            }

            fn of(number: u32) -> Option<Self> {
                [$($ty::$value),*].get(number as usize).copied()
            }
        }
    )*};
}
lists! {
    Section: Header, Signatures, Blocks, Variables, Tensors, Instructions, Kernels, Types, Attributes, Operands, Names, Metadata, Data;
    Rule: Operands, Inputs, Outputs, Kernel, Alias, Bounds, Assigns, Blocks;
}

impl Number for Option<u32> {
    fn to(&self) -> u32 {
        self.unwrap_or(u32::MAX)
    }

    fn of(number: u32) -> Option<Self> {
        Some((number != u32::MAX).then_some(number))
    }
}

/// The kind of a failed callback is not stored, because callbacks report none.
impl Number for ErrorKind {
    fn to(&self) -> u32 {
        0
    }

    fn of(_: u32) -> Option<Self> {
        Some(ErrorKind::Other)
    }
}

/// Defines the numbers of each error of core, and the way back.
macro_rules! errors {
    ($($name:ident $({ $($field:ident),* })?;)*) => {
        /// Returns the details of an error.
        fn numbers(error: &Error) -> [u32; 4] {
            match error {
                $(Error::$name $({ $($field),* })? => fill([$($(Number::to($field)),*)?]),)*
                // Core has no other error without its feature `alloc`.
                _ => [0; 4],
            }
        }

        /// Returns the error of core that has become `outcome`, or `None` if there is none.
        pub(crate) fn core_error(outcome: &Outcome) -> Option<Error> {
            $(
                #[allow(unused_mut, unused_variables)]
                let error = |mut numbers: Iter<'_, u32>| Some(Error::$name $({ $($field: Number::of(*numbers.next()?)?),* })?);
                if let Some(error) = error(outcome.numbers.iter()).filter(|error| u32::from(error.code()) == outcome.code) {
                    return Some(error);
                }
            )*
            None
        }
    };
}
errors! {
    Arity { got };
    DType { input };
    Rank { input };
    Dimension { input, axis, want, got };
    Attribute { index };
    TooLarge;
    IndexOutOfRange { node, position, value, limit };
    DivisionByZero { node, position };
    NegativePower { node, position };
    Assertion { node, position };
    NotAnArtifact;
    Version { major, minor };
    Truncated { needed, got };
    Misaligned;
    Checksum { stored, computed };
    Record { section, index };
    Instruction { index, rule };
    MissingKernel { kernel };
    UnknownSignature;
    ArenaTooSmall { needed, got };
    NoSuchTensor { index };
    TensorType { index };
    NotACheckpoint;
    CheckpointVersion { major, minor };
    OtherArtifact { checksum };
    Damaged { variable };
    CutShort;
    InFlash { variable };
    Io { kind };
    Slots;
    SlotTooSmall { needed, got };
    Worn { slot };
    Internal;
    NotFinite { node, position };
    VariableNotFinite { variable };
    Unfinished;
    Length { index, want, got };
    Interrupted;
}

fn fill<const N: usize>(first: [u32; N]) -> [u32; 4] {
    let mut numbers = [0; 4];
    numbers.iter_mut().zip(first).for_each(|(number, first)| *number = first);
    numbers
}

impl From<Error> for Outcome {
    #[inline(never)]
    fn from(error: Error) -> Outcome {
        Outcome { code: error.code().into(), numbers: numbers(&error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification lists every error of a device: `| 20 | ArenaTooSmall | … |`.
    #[test]
    fn every_error_of_the_specification_has_a_code_and_comes_back() {
        let text = include_str!("../../SPEC.md").split("## Error codes").nth(1).unwrap().split("## ").next().unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
        let errors: Vec<(u32, &str)> = rows.filter_map(|(code, rest)| Some((code.parse().ok()?, rest.split(' ').next()?))).collect();
        assert!(errors.len() >= 38, "{errors:?}");
        let header = include_str!("../include/gradlet.h");
        for (code, name) in errors {
            let outcome = Outcome { code, numbers: [3, 2, 1, 9] };
            let error = core_error(&outcome).unwrap_or_else(|| panic!("there is no error {name}"));
            let (again, numbers) = (Outcome::from(error.clone()), outcome.numbers);
            assert_eq!(again.code, code, "{name}");
            let is_prefix =
                (0..=4).any(|count| again.numbers[..count] == numbers[..count] && again.numbers[count..].iter().all(|n| *n == 0));
            assert!(is_prefix, "{name}: {again:?}");
            assert_eq!(core_error(&again), Some(error), "{name}");
            let constant: String = name.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_uppercase())).collect();
            let constant = constant.replace("_D_TYPE", "_DTYPE");
            assert!(header.contains(&format!("    GRADLET_CODE{constant} = {code},\n")), "{constant}");
        }
    }

    #[test]
    fn a_fault_keeps_its_numbers() {
        let outcome = Outcome::from(Fault::new(Code::MisalignedPointer, 5, 16));
        assert_eq!(outcome, Outcome::new(Code::MisalignedPointer, [5, 16, 0, 0]));
        assert_eq!(Outcome::from(Fault::new(Code::Overlap, 255, 65_535)), Outcome::new(Code::Overlap, [255, 65_535, 0, 0]));
    }
}
