//! The op contract: what an op is called, which types it takes, and how a kernel computes it.
//!
//! The facets of an op are separate statics of plain function pointers, so that a firmware links only what it names: a
//! [`Kernel`] points to its [`OpDef`], and nothing points back.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};

/// The most inputs an op takes.
pub const MAX_INPUTS: usize = 8;
/// The most outputs an op gives.
pub const MAX_OUTPUTS: usize = 3;

/// A field of a record, or a control op's next block, that says "none".
pub const NONE: u32 = u32::MAX;

/// The number of an op in artifacts: stable, never reused. `ops/mod.rs` has the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpCode(pub u16);

/// From the input types and the attribute words to the output types. Fails where they do not fit the op.
pub type ShapeRule = fn(&[TensorType], &[u32], &mut [TensorType]) -> Result<()>;

/// What is true of an op whatever computes it.
pub struct OpDef {
    /// The number in artifacts.
    pub code: OpCode,
    /// The name, also that of its file.
    pub name: &'static str,
    /// How many inputs it takes, at least and at most.
    pub inputs: (u8, u8),
    /// How many outputs it gives, at most [`MAX_OUTPUTS`].
    pub outputs: u8,
    /// The shape rule and attribute check.
    pub infer: ShapeRule,
    /// Pairs (input, output) that may share their bytes. Each kernel must then read that input through the output.
    pub in_place: &'static [(u8, u8)],
}

impl OpDef {
    /// The output types for `inputs` and `attributes`: the first [`OpDef::outputs`] entries are set.
    ///
    /// Fails where the number of inputs, a dtype, a dimension or an attribute does not fit the op.
    pub fn output_types(&self, inputs: &[TensorType], attributes: &[u32]) -> Result<[TensorType; MAX_OUTPUTS]> {
        if inputs.len() < usize::from(self.inputs.0) || inputs.len() > usize::from(self.inputs.1) {
            return Err(Error::Arity { got: inputs.len() as u8 });
        }
        let mut outputs = [TensorType::EMPTY; MAX_OUTPUTS];
        (self.infer)(inputs, attributes, &mut outputs)?;
        Ok(outputs)
    }
}

/// One op computed for one element type.
pub struct Kernel {
    /// The op.
    pub def: &'static OpDef,
    /// The element type of input 0 (of output 0 if the op has no inputs) that the kernel is for.
    pub dtype: DType,
    /// Computes the outputs. Every element of them is written, unless an error is returned.
    pub run: fn(&mut Call<'_, '_>) -> Result<()>,
}

/// The operands of one run of a kernel, with types that its [`OpDef`] has accepted.
pub struct Call<'c, 'd> {
    /// The attribute words.
    pub attributes: &'c [u32],
    /// The inputs.
    pub inputs: &'c [TensorView<'d>],
    /// The outputs.
    pub outputs: &'c mut [TensorViewMut<'d>],
}

impl<'d> Call<'_, 'd> {
    /// Input `index`. Fails with [`Error::Arity`] where there is none.
    #[inline]
    pub fn input(&self, index: usize) -> Result<TensorView<'d>> {
        self.inputs.get(index).copied().ok_or(Error::Arity { got: self.inputs.len() as u8 })
    }

    /// The attributes as `A`. Fails with [`Error::Attribute`] where the words are not an `A`.
    #[inline]
    pub fn attributes<A: bytemuck::AnyBitPattern>(&self) -> Result<A> {
        read_attributes(self.attributes)
    }

    /// Output 0. Fails with [`Error::Internal`] where there is none.
    #[inline]
    pub fn output(&mut self) -> Result<&mut TensorViewMut<'d>> {
        self.outputs.first_mut().ok_or(Error::Internal)
    }
}

/// Attribute words as the op's own struct. Fails with [`Error::Attribute`] where there are too few or too many.
#[inline]
pub fn read_attributes<A: bytemuck::AnyBitPattern>(words: &[u32]) -> Result<A> {
    bytemuck::try_pod_read_unaligned(bytemuck::cast_slice(words)).map_err(|_| Error::Attribute { index: 0 })
}
