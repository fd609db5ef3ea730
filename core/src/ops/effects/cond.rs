//! Conditional branches: runs one of several blocks. `cond` selects by a bool, `switch_case` by an i32. [`crate::control`]
//! has both functions.

use crate::base::dtype::{Bool, DType};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, NONE, OpDef};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

/// Definition of the op. In a program, the attribute words are the numbers of the branches' blocks. For a bool, they are the block
/// for true and the block for false. For an i32, they are the blocks for 0, 1, …
pub static DEF: OpDef = OpDef { code: crate::ops::code::cond, name: "cond", inputs: (1, 1), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], _: &mut [TensorType]) -> Result<()> {
    match (inputs, attributes) {
        (_, []) => Err(Error::Attribute { index: 0 }),
        ([TensorType::BOOL], [_, _]) | ([TensorType::I32], _) => Ok(()),
        _ => Err(Error::DType { input: 0 }),
    }
}

/// Selects the block. There is no next step, so the op ends when that block has run.
fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let by = call.input(0)?;
    let last = call.attributes.len().saturating_sub(1);
    let index = match by.dtype() {
        DType::Bool => usize::from(!by.scalar::<Bool>().get()),
        _ => usize::try_from(by.scalar::<i32>()).unwrap_or(last).min(last),
    };
    call.slice.answer = call.attributes.get(index).copied().unwrap_or(NONE);
    Ok(())
}

/// Kernel that selects the first block if the input is true, and the second otherwise.
pub const BOOL: Kernel = Kernel { def: &DEF, dtype: DType::Bool, run };
/// Kernel that selects the block with the input's number, or the last block if the number is out of range.
pub const I32: Kernel = Kernel { def: &DEF, dtype: DType::I32, run };

/// The op, which has no gradient of its own. The tape differentiates the branches.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("If"),
    ..Op::total(&DEF, "cond(predicate), see gradlet::control", Gradient::None("the tape takes the gradient of the branches themselves"))
};
