//! Loop: runs a block repeatedly. The function is in [`crate::control`].

use crate::base::dtype::{Bool, DType};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, NONE, OpDef};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

/// Definition of the op. The input is the loop's condition. In a program, there are three attribute words: the number of the
/// condition's block, the number of the body's block, and the maximum number of iterations. The condition's block computes the
/// condition before the first iteration. The body computes the condition again at its end.
pub static DEF: OpDef = OpDef { code: crate::ops::code::while_loop, name: "while_loop", inputs: (1, 1), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], _: &mut [TensorType]) -> Result<()> {
    match (inputs, attributes) {
        ([TensorType::BOOL], [_, _, _]) => Ok(()),
        ([TensorType::BOOL], _) => Err(Error::Attribute { index: 0 }),
        _ => Err(Error::DType { input: 0 }),
    }
}

/// Step 0 runs the condition's block. The next steps run the body, as long as the condition is true and iterations are left.
fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let holds = call.input(0)?.scalar::<Bool>().get();
    let &[condition, body, most] = call.attributes else { return Err(Error::Attribute { index: 0 }) };
    (call.slice.next, call.slice.answer) = match call.slice.first {
        0 => (1, condition),
        next if holds && next <= most.min(MOST) => (next + 1, body),
        _ => (NONE, NONE),
    };
    Ok(())
}

/// Maximum number of iterations of any loop. The step numbers after it are reserved for other meanings.
const MOST: u32 = u32::MAX - 2;

/// Kernel of the loop.
pub const BOOL: Kernel = Kernel { def: &DEF, dtype: DType::Bool, run };

/// The op, which has no gradient of its own. The tape differentiates the body.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("While"),
    ..Op::total(&DEF, "while_loop(condition), see gradlet::control", Gradient::None("the tape takes the gradient of the body itself"))
};
