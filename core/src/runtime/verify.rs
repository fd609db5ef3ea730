//! The rules that every instruction must follow. They apply to loaded programs and to gradlet's own plans alike.

use crate::base::error::{Error, Result, Rule};
use crate::base::op::{MAX_OUTPUTS, OpDef};
use crate::base::shape::TensorType;

/// The location of an operand's bytes: a space and a range in it. Ranges in different spaces never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The space: flash, scratch memory, or one space for each variable.
    pub space: u32,
    /// Offset of the first byte.
    pub start: usize,
    /// Number of bytes.
    pub bytes: usize,
}

impl Region {
    /// The space of constants, which no instruction writes.
    pub const FLASH: u32 = 0;
    /// The space of scratch memory.
    pub const SCRATCH: u32 = 1;

    /// Returns the space of variable `index`.
    pub const fn variable(index: u32) -> u32 {
        index.saturating_add(2)
    }

    /// True if the two regions share a byte.
    pub fn overlaps(&self, other: &Region) -> bool {
        let ends = |place: &Region| place.start.saturating_add(place.bytes);
        self.space == other.space && self.start < ends(other) && other.start < ends(self)
    }
}

/// Checks the types of an instruction: the shape rule of `def` must map `inputs` to `outputs`.
pub fn types(def: &OpDef, attributes: &[u32], inputs: &[TensorType], outputs: &[TensorType]) -> Result<(), Rule> {
    let given: [TensorType; MAX_OUTPUTS] = def.output_types(inputs, attributes).map_err(|_| Rule::Inputs)?;
    if given.get(..usize::from(def.outputs)) == Some(outputs) { Ok(()) } else { Err(Rule::Outputs) }
}

/// Checks the regions of an instruction's operands. Outputs must not be in flash, must not overlap one another, and must not overlap the
/// inputs. The exception is an input that `def` allows to share an output, if both are exactly the same region.
pub fn regions(def: &OpDef, inputs: &[Region], outputs: &[Region]) -> Result<(), Rule> {
    for (o, output) in outputs.iter().enumerate() {
        let apart = outputs.iter().skip(o + 1).all(|other| !output.overlaps(other));
        let shares = |i: usize, input: &Region| input == output && def.in_place.contains(&(i as u8, o as u8));
        let inputs_fit = inputs.iter().enumerate().all(|(i, input)| !input.overlaps(output) || shares(i, input));
        if output.space == Region::FLASH || !apart || !inputs_fit {
            return Err(Rule::Alias);
        }
    }
    Ok(())
}

/// Adds the index of an instruction to the rule that the instruction breaks.
#[inline(never)]
pub(crate) fn at<T>(index: u32, result: Result<T, Rule>) -> Result<T> {
    result.map_err(|rule| Error::Instruction { index, rule })
}
