//! Every rule that an instruction must keep, in one place: for programs from outside as for plans of our own.

use crate::base::error::{Error, Result, Rule};
use crate::base::op::{MAX_OUTPUTS, OpDef};
use crate::base::shape::TensorType;

/// Where an operand's bytes are: a space and a range in it. Ranges of different spaces never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The space: flash, scratch, or one for each variable.
    pub space: u32,
    /// The first byte.
    pub start: u32,
    /// How many bytes.
    pub bytes: u32,
}

impl Region {
    /// The space of constants, which nothing writes.
    pub const FLASH: u32 = 0;
    /// The space of scratch memory.
    pub const SCRATCH: u32 = 1;

    /// The space of variable `index`.
    pub const fn variable(index: u32) -> u32 {
        index.saturating_add(2)
    }

    /// True if the two share a byte.
    pub fn overlaps(&self, other: &Region) -> bool {
        let ends = |place: &Region| u64::from(place.start) + u64::from(place.bytes);
        self.space == other.space && u64::from(self.start) < ends(other) && u64::from(other.start) < ends(self)
    }
}

/// The types: what `def` gives for `inputs` must be `outputs`.
pub fn types(def: &OpDef, attributes: &[u32], inputs: &[TensorType], outputs: &[TensorType]) -> Result<(), Rule> {
    let given: [TensorType; MAX_OUTPUTS] = def.output_types(inputs, attributes).map_err(|_| Rule::Inputs)?;
    if given.get(..usize::from(def.outputs)) == Some(outputs) { Ok(()) } else { Err(Rule::Outputs) }
}

/// The places: outputs are written, so they lie outside flash, apart from one another, and apart from the inputs but
/// for those that `def` lets share an output, byte for byte.
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

/// Puts the number of an instruction to the rule it breaks.
#[inline(never)]
pub(crate) fn at<T>(index: u32, result: Result<T, Rule>) -> Result<T> {
    result.map_err(|rule| Error::Instruction { index, rule })
}
