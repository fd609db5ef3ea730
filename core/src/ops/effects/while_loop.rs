//! Runs a block again and again; [`crate::trace::control`] has the function.

use crate::base::dtype::{Bool, DType};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, NONE, OpDef};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

/// The op. In a program, its attribute words are the number of the block that computes the condition, which is the op's input;
/// that of the body, which computes the condition again at its end; and the most iterations.
pub static DEF: OpDef = OpDef { code: crate::ops::code::while_loop, name: "while_loop", inputs: (1, 1), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], _: &mut [TensorType]) -> Result<()> {
    match (inputs, attributes) {
        ([TensorType::BOOL], [_, _, _]) => Ok(()),
        ([TensorType::BOOL], _) => Err(Error::Attribute { index: 0 }),
        _ => Err(Error::DType { input: 0 }),
    }
}

/// Given `[step, _]`, sets `[next step, block to run]`: the condition at step 0, then the body for as long as the condition holds and
/// there are iterations left. When the loop ends, the next step is 0 again.
fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let holds = call.input(0)?.scalar::<Bool>().get();
    let &[condition, body, most] = call.attributes else { return Err(Error::Attribute { index: 0 }) };
    let Some([step, block]) = call.output()?.words_mut() else { return Err(Error::Internal) };
    (*step, *block) = match *step {
        0 => (1, condition),
        next if holds && next <= most.min(MOST) => (next + 1, body),
        _ => (0, NONE),
    };
    Ok(())
}

/// No loop runs longer than this: the steps after it mean something else.
const MOST: u32 = u32::MAX - 2;

/// The kernel.
pub static BOOL: Kernel = Kernel { def: &DEF, dtype: DType::Bool, run };

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("While"),
    ..Op::total(&DEF, "while_loop(condition), see gradlet::control", Gradient::None("the tape takes the gradient of the body itself"))
};
