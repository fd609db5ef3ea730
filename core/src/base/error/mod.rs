//! Error type of gradlet: codes and indices. `Display` renders text only on request.

mod code;
mod text;

#[cfg(feature = "alloc")]
use core::fmt;

/// Result whose default error is gradlet's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Error of gradlet. `Display` renders it as text. Firmware that never displays an error carries no text.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "alloc"), derive(Debug))]
#[non_exhaustive]
pub enum Error {
    /// The op does not take this number of inputs.
    Arity {
        /// Actual number of inputs.
        got: u8,
    },
    /// The op does not take the element type of this input.
    DType {
        /// Index of the input.
        input: u8,
    },
    /// The op does not take the rank of this input, or the rank exceeds 8.
    Rank {
        /// Index of the input.
        input: u8,
    },
    /// A dimension of an input differs from the one that the op requires.
    Dimension {
        /// Index of the input.
        input: u8,
        /// Axis of the dimension.
        axis: u8,
        /// Expected dimension.
        want: u32,
        /// Actual dimension.
        got: u32,
    },
    /// An attribute has a value that the op does not allow.
    Attribute {
        /// Index of the attribute word.
        index: u8,
    },
    /// A dimension exceeds 2^32 - 1, the size of a tensor exceeds `usize`, or an artifact or its memory exceeds what the format can hold:
    /// 4 GiB, and an arena of 2 GiB.
    TooLarge,
    /// A label or index in the data is out of range.
    IndexOutOfRange {
        /// Index of the instruction that failed (0 in eager execution).
        node: u32,
        /// Position of the label or index in its tensor.
        position: u32,
        /// Value of the label or index, saturated to 32 bits.
        value: i32,
        /// Exclusive upper limit of the value.
        limit: u32,
    },
    /// An integer was divided by zero.
    DivisionByZero {
        /// Index of the instruction that failed (0 in eager execution).
        node: u32,
        /// Position of the divisor.
        position: u32,
    },
    /// An integer was raised to a negative power.
    NegativePower {
        /// Index of the instruction that failed (0 in eager execution).
        node: u32,
        /// Position of the exponent.
        position: u32,
    },
    /// An assertion is false.
    Assertion {
        /// Index of the instruction that failed (0 in eager execution).
        node: u32,
        /// Position of the first false element.
        position: u32,
    },
    /// An element is infinite or NaN: of an input or a result of a step, or of the new value of a variable.
    NotFinite {
        /// Index of the instruction that found it (0 in eager execution).
        node: u32,
        /// Position of the first such element.
        position: u32,
    },
    /// The bytes do not begin with an artifact's magic number.
    NotAnArtifact,
    /// The artifact has a format version that this reader does not support.
    Version {
        /// Major version of the artifact.
        major: u16,
        /// Minor version of the artifact.
        minor: u16,
    },
    /// The artifact is truncated.
    Truncated {
        /// Size in bytes that the header states.
        needed: u32,
        /// Number of bytes present.
        got: u32,
    },
    /// Memory passed by the caller is not aligned to 16 bytes.
    Misaligned,
    /// The artifact's checksum is wrong, so the artifact is damaged.
    Checksum {
        /// Checksum in the header.
        stored: u32,
        /// Checksum computed from the bytes.
        computed: u32,
    },
    /// A record of the artifact breaks a rule of the format.
    Record {
        /// Table that contains the record.
        section: Section,
        /// Index of the record in the table.
        index: u32,
    },
    /// An instruction of the artifact breaks a rule.
    Instruction {
        /// Index of the instruction.
        index: u32,
        /// Rule that the instruction breaks.
        rule: Rule,
    },
    /// The artifact needs a kernel that is not linked.
    MissingKernel {
        /// Index in the artifact's kernel table, which has the name of the kernel.
        kernel: u32,
    },
    /// The artifact has no signature with this name, or no loaded signature has this index.
    UnknownSignature,
    /// The arena is too small.
    ArenaTooSmall {
        /// Required size in bytes.
        needed: u32,
        /// Actual size in bytes.
        got: u32,
    },
    /// The signature or artifact has no input, output or variable at this index.
    NoSuchTensor {
        /// Index of the tensor.
        index: u32,
    },
    /// The caller read or wrote the tensor at this index with another element type or size.
    TensorType {
        /// Index of the tensor.
        index: u32,
    },
    /// The bytes do not begin with a checkpoint's magic number.
    NotACheckpoint,
    /// The checkpoint has a format version that this reader does not support.
    CheckpointVersion {
        /// Major version of the checkpoint.
        major: u16,
        /// Minor version of the checkpoint.
        minor: u16,
    },
    /// The checkpoint belongs to another artifact.
    OtherArtifact {
        /// Checksum of that artifact.
        checksum: u32,
    },
    /// The checkpoint is damaged.
    Damaged {
        /// Index of the damaged variable, or `None` if the damage is outside the values of the variables, for example in the header.
        variable: Option<u32>,
    },
    /// The checkpoint is truncated.
    CutShort,
    /// The checkpoint changes a variable that is only in flash: no loaded signature assigns it, so it has no RAM.
    InFlash {
        /// Index of the variable.
        variable: u32,
    },
    /// The reader, the writer or the flash failed.
    Io {
        /// Cause that the reader, the writer or the flash reported.
        kind: embedded_io::ErrorKind,
    },
    /// The flash range cannot be divided into slots. A slot consists of whole erase blocks, there are at least two slots, and the
    /// buffer has a whole number of words.
    Slots,
    /// The checkpoint does not fit into a slot.
    SlotTooSmall {
        /// Required slot size in bytes.
        needed: u32,
        /// Actual slot size in bytes.
        got: u32,
    },
    /// Flash does not retain the written data, so it is worn out.
    Worn {
        /// Index of the slot.
        slot: u32,
    },
    /// The session is unfinished: a run failed or was interrupted after it had changed a variable. A restore or a reset ends this state.
    Unfinished,
    /// A variable that would be saved has an element that is infinite or NaN.
    VariableNotFinite {
        /// Index of the variable.
        variable: u32,
    },
    /// A run, a save or a restore in slices cannot go on: it was not begun, it is over, the slots were used for something else, or the
    /// session changed.
    Interrupted,
    /// The caller set the tensor at this index to another number of elements.
    Length {
        /// Index of the tensor.
        index: u32,
        /// Number of elements of the tensor.
        want: u32,
        /// Number of elements that the caller gave.
        got: u32,
    },
    /// gradlet broke one of its own rules. The cause is never the program, its data or the device.
    Internal,
    /// No kernel on the device computes this op for this element type.
    #[cfg(feature = "alloc")]
    NoKernel {
        /// Name of the op.
        op: &'static str,
        /// Element type.
        dtype: crate::base::dtype::DType,
    },
    /// An op received tensors of scopes that do not enclose one another.
    #[cfg(feature = "alloc")]
    UnrelatedScopes,
    /// The tensor belongs to a trace. It has no value yet, or its trace has ended.
    #[cfg(feature = "alloc")]
    Traced,
    /// The tape was used after its gradient was computed. A persistent tape allows more than one gradient.
    #[cfg(feature = "alloc")]
    SpentTape,
    /// The variable was used before it was created. Build its layer first.
    #[cfg(feature = "alloc")]
    Unbuilt,
    /// A variable was created in a trace other than the function's first.
    #[cfg(feature = "alloc")]
    LateVariable,
    /// The device has no memory for this request.
    #[cfg(feature = "alloc")]
    OutOfMemory(alloc::boxed::Box<OutOfMemory>),
    /// Error described by a text.
    #[cfg(feature = "alloc")]
    Message(alloc::boxed::Box<str>),
    /// Error with context.
    #[cfg(feature = "alloc")]
    Context {
        /// Context in which the error occurred.
        context: alloc::boxed::Box<str>,
        /// Cause of the error.
        cause: alloc::boxed::Box<Error>,
        /// Correct usage, or an empty string.
        usage: &'static str,
    },
}

/// Request that a device refused because its memory is full: see [`Error::OutOfMemory`].
#[cfg(feature = "alloc")]
#[derive(Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Name of the device.
    pub device: alloc::string::String,
    /// Bytes that were requested.
    pub requested: u64,
    /// Free bytes.
    pub free: u64,
    /// Largest free block in bytes.
    pub largest: u64,
    /// Limit of the device in bytes, if it has one.
    pub limit: Option<u64>,
    /// Holders of the memory in use, with their bytes, largest first.
    pub holders: alloc::vec::Vec<(alloc::string::String, u64)>,
}

#[cfg(feature = "alloc")]
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Holders that the text names. It counts the others.
        const MOST: usize = 8;
        write!(f, "{} has no memory for {} bytes", self.device, self.requested)?;
        match self.limit {
            Some(limit) => write!(f, ": {} of its {limit} bytes are free, the largest block has {}", self.free, self.largest)?,
            None => write!(f, ": the system refuses them")?,
        }
        for (index, (holder, bytes)) in self.holders.iter().take(MOST).enumerate() {
            write!(f, "{}{holder} {bytes}", if index == 0 { "; the holders of the rest, in bytes: " } else { ", " })?;
        }
        match self.holders.len().checked_sub(MOST) {
            Some(others @ 1..) => write!(f, ", {others} others {}", self.holders.iter().skip(MOST).map(|(_, bytes)| bytes).sum::<u64>()),
            _ => Ok(()),
        }
    }
}

/// Table of an artifact, in the order of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Section {
    /// Section table of the header itself.
    Header,
    /// Signatures.
    Signatures,
    /// Blocks: sequences of instructions with inputs and outputs.
    Blocks,
    /// Variables.
    Variables,
    /// Tensors.
    Tensors,
    /// Instructions.
    Instructions,
    /// Kernels that the instructions refer to.
    Kernels,
    /// Types: pairs of element type and shape.
    Types,
    /// Attribute words.
    Attributes,
    /// Operand numbers.
    Operands,
    /// Names.
    Names,
    /// Metadata.
    Metadata,
    /// Constants and initial values.
    Data,
}

/// Rule that an instruction can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Rule {
    /// The instruction's operand, attribute or kernel numbers are outside their tables.
    Operands,
    /// The op does not take these inputs or attributes.
    Inputs,
    /// The outputs do not have the types that the op produces.
    Outputs,
    /// The kernel is for another element type.
    Kernel,
    /// An output overlaps an operand in a way that the op does not allow, or is in flash.
    Alias,
    /// An operand is outside the scratch memory.
    Bounds,
    /// The instruction assigns a variable that its signature does not declare as assigned.
    Assigns,
    /// The blocks that the instruction runs do not exist, do not follow it, are nested too deeply, or return different types.
    Blocks,
}

impl Error {
    /// Returns the innermost cause, without any context.
    pub fn root(&self) -> &Error {
        match self {
            #[cfg(feature = "alloc")]
            Error::Context { cause, .. } => cause.root(),
            error => error,
        }
    }

    /// Returns a position as an error stores it. A host's tensor can have more than 2^32 elements; later positions become `u32::MAX`.
    pub(crate) fn position(index: usize) -> u32 {
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Returns the same error with `index` as the instruction that failed. An error that names no instruction is unchanged.
    pub(crate) fn at(mut self, index: u32) -> Error {
        if let Error::IndexOutOfRange { node, .. }
        | Error::DivisionByZero { node, .. }
        | Error::NegativePower { node, .. }
        | Error::Assertion { node, .. }
        | Error::NotFinite { node, .. } = &mut self
        {
            *node = index;
        }
        self
    }

    /// Returns the instruction that failed, if the error names it.
    #[cfg(feature = "alloc")]
    pub(crate) fn instruction(&self) -> Option<u32> {
        match self.root() {
            Error::IndexOutOfRange { node, .. }
            | Error::DivisionByZero { node, .. }
            | Error::NegativePower { node, .. }
            | Error::Assertion { node, .. }
            | Error::NotFinite { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// Creates an error from a text.
    #[cfg(feature = "alloc")]
    pub fn message(text: impl Into<alloc::string::String>) -> Error {
        Error::Message(text.into().into_boxed_str())
    }

    /// Returns the same error with `context` before it.
    #[cfg(feature = "alloc")]
    pub fn context(self, context: impl Into<alloc::string::String>) -> Error {
        self.with_usage(context, "")
    }

    /// Returns the same error with `context` before it and the correct usage after it.
    #[cfg(feature = "alloc")]
    pub(crate) fn with_usage(self, context: impl Into<alloc::string::String>, usage: &'static str) -> Error {
        Error::Context { context: context.into().into_boxed_str(), cause: alloc::boxed::Box::new(self), usage }
    }
}

/// Prints the text of `Display`, because `main` and `unwrap` print errors through `Debug`.
#[cfg(feature = "alloc")]
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {}
