//! Everything that can go wrong, as codes and indices; text is rendered only where somebody asks for it.

mod code;

use core::fmt;

/// A result whose error is gradlet's.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What was wrong. `Display` says it in words; firmware that never displays one carries no text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The op does not take this number of inputs.
    Arity {
        /// How many there were.
        got: u8,
    },
    /// The op does not take the element type of this input.
    DType {
        /// Which input.
        input: u8,
    },
    /// The op does not take the rank of this input, or a rank passes 8.
    Rank {
        /// Which input.
        input: u8,
    },
    /// A dimension of an input does not fit.
    Dimension {
        /// Which input.
        input: u8,
        /// Which of its axes.
        axis: u8,
        /// What would fit.
        want: u32,
        /// What was there.
        got: u32,
    },
    /// An attribute has a value that the op does not allow.
    Attribute {
        /// Which attribute word.
        index: u8,
    },
    /// A tensor would have more than 2^32 - 1 bytes, or a program need an arena of 2 GiB or more.
    TooLarge,
    /// A label or index in the data is out of range.
    IndexOutOfRange {
        /// The instruction that found it (0 when run eagerly).
        node: u32,
        /// Its position in the input.
        position: u32,
        /// Its value, saturated to 32 bits.
        value: i32,
        /// The first value that is too large.
        limit: u32,
    },
    /// An integer was divided by zero.
    DivisionByZero {
        /// The instruction that found it (0 when run eagerly).
        node: u32,
        /// The position of the divisor.
        position: u32,
    },
    /// An integer was raised to a negative power.
    NegativePower {
        /// The instruction that found it (0 when run eagerly).
        node: u32,
        /// The position of the exponent.
        position: u32,
    },
    /// What was asserted is not true.
    Assertion {
        /// The instruction that found it (0 when run eagerly).
        node: u32,
        /// The position of the first element that is false.
        position: u32,
    },
    /// The bytes do not begin as an artifact does.
    NotAnArtifact,
    /// The artifact is of a format version that this reader does not take.
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// The artifact is cut short.
    Truncated {
        /// The bytes it says it has.
        needed: u32,
        /// The bytes that are there.
        got: u32,
    },
    /// Memory given by the caller does not begin at a multiple of 16.
    Misaligned,
    /// The artifact's checksum is wrong: it is damaged.
    Checksum {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A record of the artifact breaks a rule of the format.
    Record {
        /// The table it stands in.
        section: Section,
        /// Its index there.
        index: u32,
    },
    /// An instruction of the artifact breaks a rule.
    Instruction {
        /// Its index.
        index: u32,
        /// The rule.
        rule: Rule,
    },
    /// The artifact needs a kernel that is not linked.
    MissingKernel {
        /// Its index in the artifact's kernel table, which names it.
        kernel: u32,
    },
    /// The artifact has no signature of this name, or none at this index was loaded.
    UnknownSignature,
    /// The arena is too small.
    ArenaTooSmall {
        /// The bytes it must have.
        needed: u32,
        /// The bytes it has.
        got: u32,
    },
    /// The signature (or artifact) has no input, output or variable at this index.
    NoSuchTensor {
        /// The index.
        index: u32,
    },
    /// The tensor at this index was asked for, or given, as another element type or size.
    TensorType {
        /// The index.
        index: u32,
    },
    /// The bytes do not begin as a checkpoint does.
    NotACheckpoint,
    /// The checkpoint is of a format version that this reader does not take.
    CheckpointVersion {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// The checkpoint belongs to another artifact.
    OtherArtifact {
        /// The checksum of that artifact.
        checksum: u32,
    },
    /// The checkpoint is damaged.
    Damaged {
        /// The variable where it is; nothing where the damage leaves no variable to tell, as in its header.
        variable: Option<u32>,
    },
    /// The checkpoint ends before its end.
    CutShort,
    /// The checkpoint has another value for this variable than flash has, and no signature that assigns it is loaded, so it has no memory.
    InFlash {
        /// The variable.
        variable: u32,
    },
    /// The reader, the writer or the flash failed.
    Io {
        /// What it said.
        kind: embedded_io::ErrorKind,
    },
    /// A range of flash cannot be divided so: slots are whole erase blocks, at least two, and the buffer holds whole words.
    Slots,
    /// A checkpoint does not fit into a slot.
    SlotTooSmall {
        /// The bytes that a slot must have.
        needed: u32,
        /// The bytes it has.
        got: u32,
    },
    /// Flash does not hold what was written: it is worn.
    Worn {
        /// The slot.
        slot: u32,
    },
    /// A rule that gradlet keeps itself is broken: this is never the fault of a program, its data or a device.
    Internal,
    /// No kernel on the device computes this op for this element type.
    #[cfg(feature = "alloc")]
    NoKernel {
        /// The name of the op.
        op: &'static str,
        /// The element type.
        dtype: crate::base::dtype::DType,
    },
    /// Tensors of scopes that do not enclose one another met in an op.
    #[cfg(feature = "alloc")]
    UnrelatedScopes,
    /// The tensor belongs to a trace: it has no value yet, or its trace is over.
    #[cfg(feature = "alloc")]
    Traced,
    /// The tape was used after its gradient was taken. A persistent tape allows more.
    #[cfg(feature = "alloc")]
    SpentTape,
    /// The variable was used before it was created: build its layer first.
    #[cfg(feature = "alloc")]
    Unbuilt,
    /// A variable was created in a trace after the first one.
    #[cfg(feature = "alloc")]
    LateVariable,
    /// In words.
    #[cfg(feature = "alloc")]
    Message(alloc::boxed::Box<str>),
    /// What happened, and where.
    #[cfg(feature = "alloc")]
    Context {
        /// Where.
        context: alloc::boxed::Box<str>,
        /// What.
        cause: alloc::boxed::Box<Error>,
        /// What would be right, or nothing.
        usage: &'static str,
    },
}

/// A table of an artifact, in the order of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Section {
    /// The sections of the header themselves.
    Header,
    /// Signatures.
    Signatures,
    /// Blocks: runs of instructions with inputs and outputs.
    Blocks,
    /// Variables.
    Variables,
    /// Tensors.
    Tensors,
    /// Instructions.
    Instructions,
    /// Kernels that the instructions name.
    Kernels,
    /// Types: element types with shapes.
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

/// A rule that an instruction can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// Its operand, attribute or kernel numbers lie outside their tables.
    Operands,
    /// The op does not take these inputs or attributes.
    Inputs,
    /// The outputs are not of the types that the op gives.
    Outputs,
    /// The kernel is for another element type.
    Kernel,
    /// An output overlaps an operand in a way that the op does not allow, or lies in flash.
    Alias,
    /// An operand lies outside the scratch memory.
    Bounds,
    /// It assigns a variable that its signature is not said to assign.
    Assigns,
    /// The blocks that it runs do not exist, do not follow it, are nested too deep, or do not agree on what they give.
    Blocks,
}

impl Error {
    /// The innermost cause: what remains when all context is taken off.
    pub fn root(&self) -> &Error {
        match self {
            #[cfg(feature = "alloc")]
            Error::Context { cause, .. } => cause.root(),
            error => error,
        }
    }

    /// The same error, with the number of the instruction where it came up.
    pub(crate) fn at(mut self, index: u32) -> Error {
        if let Error::IndexOutOfRange { node, .. }
        | Error::DivisionByZero { node, .. }
        | Error::NegativePower { node, .. }
        | Error::Assertion { node, .. } = &mut self
        {
            *node = index;
        }
        self
    }

    /// An error in words.
    #[cfg(feature = "alloc")]
    pub fn message(text: impl Into<alloc::string::String>) -> Error {
        Error::Message(text.into().into_boxed_str())
    }

    /// The same error, with `context` before it.
    #[cfg(feature = "alloc")]
    pub fn context(self, context: impl Into<alloc::string::String>) -> Error {
        self.with_usage(context, "")
    }

    /// The same error, with `context` before it and what would be right after it.
    #[cfg(feature = "alloc")]
    pub(crate) fn with_usage(self, context: impl Into<alloc::string::String>, usage: &'static str) -> Error {
        Error::Context { context: context.into().into_boxed_str(), cause: alloc::boxed::Box::new(self), usage }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Arity { got } => write!(f, "the op does not take {got} inputs"),
            Error::DType { input } => write!(f, "the op does not take the element type of input {input}"),
            Error::Rank { input } => write!(f, "the rank of input {input} does not fit"),
            Error::Dimension { input, axis, want, got } => {
                write!(f, "dimension {axis} of input {input} must be {want}, not {got}")
            }
            Error::Attribute { index } => write!(f, "attribute {index} has a value that the op does not allow"),
            Error::TooLarge => f.write_str("the tensor would be larger than 4 GiB, or the program need more than 2 GiB of memory"),
            Error::IndexOutOfRange { node, position, value, limit } => write!(
                f,
                "the label or index at position {position} is {value}, but must be at least 0 and less than {limit} (instruction {node})"
            ),
            Error::DivisionByZero { node, position } => {
                write!(f, "integer division by zero at position {position} (instruction {node})")
            }
            Error::NegativePower { node, position } => {
                write!(f, "an integer has no negative power, such as that at position {position} (instruction {node}): cast it to a float")
            }
            Error::Assertion { node, position } => write!(f, "the assertion fails at position {position} (instruction {node})"),
            Error::NotAnArtifact => f.write_str("not a gradlet artifact: it must begin with \"GRDL\""),
            Error::Version { major, minor } => {
                write!(f, "the artifact has format version {major}.{minor}, which this gradlet does not read: export it with this version")
            }
            Error::Truncated { needed, got } => write!(f, "the artifact is cut short: it needs {needed} bytes, {got} are there"),
            Error::Misaligned => f.write_str("memory must begin at a multiple of 16: wrap it in gradlet_core::runtime::Aligned"),
            Error::Checksum { stored, computed } => {
                write!(f, "the artifact is damaged: its checksum is {computed:08x}, its header says {stored:08x}")
            }
            Error::Record { section, index } => write!(f, "record {index} of section {section:?} breaks the format"),
            Error::Instruction { index, rule } => write!(f, "instruction {index} breaks the rule {rule:?}"),
            Error::MissingKernel { kernel } => write!(f, "kernel {kernel} of the artifact is not linked"),
            Error::UnknownSignature => f.write_str("the artifact has no such signature, or it was not loaded"),
            Error::ArenaTooSmall { needed, got } => write!(f, "the arena needs {needed} bytes and has {got}"),
            Error::NoSuchTensor { index } => write!(f, "there is no tensor at index {index}"),
            Error::TensorType { index } => write!(f, "the tensor at index {index} has another element type or size"),
            Error::NotACheckpoint => f.write_str("not a flat checkpoint: it must begin with \"GRDC\""),
            Error::CheckpointVersion { major, minor } => {
                write!(f, "the checkpoint has format version {major}.{minor}, which this gradlet does not read")
            }
            Error::OtherArtifact { checksum } => write!(f, "the checkpoint belongs to another artifact, with checksum {checksum:08x}"),
            Error::Damaged { variable: Some(variable) } => write!(f, "the checkpoint is damaged at variable {variable}"),
            Error::Damaged { variable: None } => f.write_str("the checkpoint is damaged outside the values of its variables"),
            Error::CutShort => f.write_str("the checkpoint is cut short"),
            Error::InFlash { variable } => {
                write!(f, "the checkpoint changes variable {variable}, which is in flash: load a signature that assigns it")
            }
            Error::Io { kind } => write!(f, "reading or writing failed: {kind:?}"),
            Error::Slots => f.write_str(
                "flash cannot be divided so: a slot is one erase block or more, there are at least two, and the buffer holds whole words",
            ),
            Error::SlotTooSmall { needed, got } => write!(f, "the checkpoint needs a slot of {needed} bytes, and it has {got}"),
            Error::Worn { slot } => write!(f, "slot {slot} does not hold what was written: the flash is worn"),
            Error::Internal => f.write_str("gradlet broke a rule of its own: please report how it came to this"),
            #[cfg(feature = "alloc")]
            Error::NoKernel { op, dtype } => write!(f, "the device has no kernel for {op} on {dtype}"),
            #[cfg(feature = "alloc")]
            Error::UnrelatedScopes => f.write_str("the tensors come from scopes that do not enclose one another"),
            #[cfg(feature = "alloc")]
            Error::Traced => {
                f.write_str("the tensor belongs to a trace: it has no value, and no life after the trace; what a function returns has both")
            }
            #[cfg(feature = "alloc")]
            Error::SpentTape => f.write_str("the tape is spent: its gradient was taken; use persistent_tape() to take several"),
            #[cfg(feature = "alloc")]
            Error::Unbuilt => f.write_str("the variable has no value yet: build the layer, or call the model once"),
            #[cfg(feature = "alloc")]
            Error::LateVariable => f.write_str("variables can be created only while a function is traced for the first time"),
            #[cfg(feature = "alloc")]
            Error::Message(text) => f.write_str(text),
            #[cfg(feature = "alloc")]
            Error::Context { context, cause, usage: "" } => write!(f, "{context}: {cause}"),
            #[cfg(feature = "alloc")]
            Error::Context { context, cause, usage } => write!(f, "{context}: {cause}; usage: {usage}"),
        }
    }
}

impl core::error::Error for Error {}
