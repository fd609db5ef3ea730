//! The texts of errors, for `core::fmt` and for defmt.

use super::Error;
use core::fmt;

/// Passes the text of the error `$error` with its arguments to a macro such as `core::write`, after `$f`. Both formats have the same texts.
macro_rules! text {
    ($error:expr, $f:expr, $($write:tt)+) => {
        match $error {
            Error::Arity { got } => $($write)+!($f, "the op does not take {} inputs", got),
            Error::DType { input } => $($write)+!($f, "the op does not take the element type of input {}: `cast` converts a tensor", input),
            Error::Rank { input } => $($write)+!($f, "the op does not take the rank of input {}", input),
            Error::Dimension { input, axis, want, got } => $($write)+!(
                $f,
                "dimension {} of input {} must be {}, not {}",
                axis, input, want, got
            ),
            Error::Attribute { index } => $($write)+!($f, "attribute {} has a value that the op does not allow", index),
            Error::TooLarge => $($write)+!($f, "a dimension, a tensor or the memory of a program is too large"),
            Error::IndexOutOfRange { node, position, value, limit } => $($write)+!(
                $f,
                "the label or index at position {} is {}, but must be at least 0 and less than {} (instruction {})",
                position, value, limit, node
            ),
            Error::DivisionByZero { node, position } => $($write)+!(
                $f,
                "integer division by zero at position {} (instruction {})",
                position, node
            ),
            Error::NegativePower { node, position } => $($write)+!(
                $f,
                "an integer has no negative power: cast it to a float (exponent at position {}, instruction {})",
                position, node
            ),
            Error::Assertion { node, position } => $($write)+!($f, "the assertion fails at position {} (instruction {})", position, node),
            Error::NotFinite { node, position } => $($write)+!(
                $f,
                "the element at position {} is infinite or NaN, but must be finite (instruction {})",
                position, node
            ),
            Error::NotAnArtifact => $($write)+!($f, "not a gradlet artifact: it must begin with \"GRDL\""),
            Error::Version { major, minor } => $($write)+!(
                $f,
                "the artifact has format version {}.{}, which this gradlet does not read: export it with this version",
                major, minor
            ),
            Error::Truncated { needed, got } => $($write)+!($f, "the artifact is cut short: it needs {} bytes, but has {}", needed, got),
            Error::Misaligned => $($write)+!($f, "memory must begin at a multiple of 16: wrap it in gradlet_core::runtime::Aligned"),
            Error::Checksum { stored, computed } => $($write)+!(
                $f,
                "the artifact is damaged: its checksum is {:08x}, its header says {:08x}",
                computed, stored
            ),
            Error::Record { section, index } => $($write)+!($f, "record {} of section {:?} breaks the format", index, section),
            Error::Instruction { index, rule } => $($write)+!($f, "instruction {} breaks the rule {:?}", index, rule),
            Error::MissingKernel { kernel } => $($write)+!($f, "kernel {} of the artifact is not linked", kernel),
            Error::UnknownSignature => $($write)+!($f, "the artifact has no such signature, or it was not loaded"),
            Error::ArenaTooSmall { needed, got } => $($write)+!($f, "the arena needs {} bytes, but has {}", needed, got),
            Error::NoSuchTensor { index } => $($write)+!($f, "there is no input, output or variable at index {}", index),
            Error::TensorType { index } => $($write)+!(
                $f,
                "the tensor at index {} does not have the requested element type or size",
                index
            ),
            Error::NotACheckpoint => $($write)+!($f, "not a flat checkpoint: it must begin with \"GRDC\""),
            Error::CheckpointVersion { major, minor } => $($write)+!(
                $f,
                "the checkpoint has format version {}.{}, which this gradlet does not read",
                major, minor
            ),
            Error::OtherArtifact { checksum } => $($write)+!(
                $f,
                "the checkpoint belongs to another artifact, with checksum {:08x}",
                checksum
            ),
            Error::Damaged { variable: Some(variable) } => $($write)+!($f, "the checkpoint is damaged at variable {}", variable),
            Error::Damaged { variable: None } => $($write)+!($f, "the checkpoint is damaged outside the values of its variables"),
            Error::CutShort => $($write)+!($f, "the checkpoint is cut short"),
            Error::InFlash { variable } => $($write)+!(
                $f,
                "the checkpoint changes variable {}, which is in flash: load a signature that assigns it",
                variable
            ),
            Error::Io { kind } => $($write)+!($f, "reading or writing failed: {:?}", kind),
            Error::Slots => $($write)+!(
                $f,
                "flash cannot be divided this way: slots are whole erase blocks, at least two, and the buffer holds whole words"
            ),
            Error::SlotTooSmall { needed, got } => $($write)+!(
                $f,
                "the checkpoint needs a slot of {} bytes, but the slot has {}",
                needed, got
            ),
            Error::Worn { slot } => $($write)+!($f, "slot {} does not hold what was written: the flash is worn", slot),
            Error::Unfinished => $($write)+!(
                $f,
                "the session is unfinished, because a run ended after it had changed a variable: restore a checkpoint or reset the \
                 session"
            ),
            Error::VariableNotFinite { variable } => $($write)+!(
                $f,
                "variable {} has an element that is infinite or NaN: only finite variables can be saved",
                variable
            ),
            Error::Interrupted => $($write)+!(
                $f,
                "the run, save or restore cannot go on: it was not begun, it is over, the slots were used for something else, or the \
                 session changed: begin it again"
            ),
            Error::Length { index, want, got } => $($write)+!($f, "the tensor at index {} takes {} elements, but got {}", index, want, got),
            Error::Internal => $($write)+!($f, "gradlet broke one of its own rules: please report how to reproduce this"),
            #[cfg(feature = "alloc")]
            Error::NoKernel { op, dtype } => $($write)+!($f, "the device has no kernel for {} on {}", op, dtype),
            #[cfg(feature = "alloc")]
            Error::OutOfMemory(shortage) => $($write)+!($f, "{}", &**shortage),
            #[cfg(feature = "alloc")]
            Error::UnrelatedScopes => $($write)+!(
                $f,
                "the tensors come from scopes that do not enclose one another: pass the tensor as an argument, let the function return \
                 it, or create it outside of the function"
            ),
            #[cfg(feature = "alloc")]
            Error::Traced => $($write)+!(
                $f,
                "the tensor belongs to a trace: it has no value, and is invalid after the trace: let the function return it, or create \
                 it outside of the function"
            ),
            #[cfg(feature = "alloc")]
            Error::SpentTape => $($write)+!($f, "the tape has already computed a gradient: persistent_tape() allows more than one"),
            #[cfg(feature = "alloc")]
            Error::Unbuilt => $($write)+!($f, "the variable has no value yet: build the layer, or call the model once"),
            #[cfg(feature = "alloc")]
            Error::LateVariable => $($write)+!(
                $f,
                "variables can be created only while a function is traced for the first time: create them, or call their layer once, \
                 before calling the function"
            ),
            #[cfg(feature = "alloc")]
            Error::Message(text) => $($write)+!($f, "{}", &**text),
            #[cfg(feature = "alloc")]
            Error::Context { context, cause, usage: "" } => $($write)+!($f, "{}: {}", &**context, &**cause),
            #[cfg(feature = "alloc")]
            Error::Context { context, cause, usage } => $($write)+!($f, "{}: {}; usage: {}", &**context, &**cause, usage),
        }
    };
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text!(self, f, core::write)
    }
}

/// Logs the text of `Display`, without the holders of the memory.
#[cfg(all(feature = "alloc", feature = "defmt"))]
impl defmt::Format for super::OutOfMemory {
    fn format(&self, f: defmt::Formatter<'_>) {
        let (device, requested, free, largest) = (&*self.device, self.requested, self.free, self.largest);
        match self.limit {
            Some(limit) => defmt::write!(
                f,
                "{} has no memory for {} bytes: {} of its {} bytes are free, the largest block has {}",
                device,
                requested,
                free,
                limit,
                largest
            ),
            None => defmt::write!(f, "{} has no memory for {} bytes: the system refuses them", device, requested),
        }
    }
}

/// Logs the text of `Display`. The device sends only its number and the arguments.
#[cfg(feature = "defmt")]
impl defmt::Format for Error {
    fn format(&self, f: defmt::Formatter<'_>) {
        text!(self, f, defmt::write)
    }
}
