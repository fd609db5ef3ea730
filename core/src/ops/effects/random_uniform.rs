//! Uniform random numbers from 0 (included) to 1 (excluded). The generator is Philox 4x32-10, with the seed `state[0]` and the
//! stream `state[1]`. The state is i64 `[2]`. The numbers are f32 and multiples of 2⁻²⁴. The same state gives the same numbers on
//! every target.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::random::{Stream, unit};
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::elementwise::set;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op, Scope},
};

/// Definition of the op. The attribute words are the dimensions of the result.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::random_uniform, name: "random_uniform", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [state] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if state.dtype != DType::I64 {
        return Err(Error::DType { input: 0 });
    }
    crate::ops::shared::elementwise::same_dims(0, &[2], state.shape.dims())?;
    set(outputs, TensorType::new(DType::F32, Shape::new(attributes)?))
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let state = call.input(0)?;
    let &[key, stream] = state.slice::<i64>() else { return Err(Error::Rank { input: 0 }) };
    let stream = Stream { key: key as u64, stream: stream as u64 };
    let total = call.output()?.slice_mut::<f32>().len();
    let rows = call.rows(total.div_ceil(4), 220);
    let numbers = call.output()?.slice_mut::<f32>().get_mut(rows.start * 4..total.min(rows.end * 4)).unwrap_or_default();
    for (index, numbers) in (rows.start as u64..).zip(numbers.chunks_mut(4)) {
        numbers.iter_mut().zip(stream.block(index)).for_each(|(number, word)| *number = unit(word));
    }
    Ok(())
}

/// Portable kernel for an i64 state.
pub const I64: Kernel = Kernel { def: &DEF, dtype: DType::I64, run };

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(
    &DEF,
    "random_uniform(state), where state is i64[2]",
    Gradient::None("the numbers do not depend on the state in any way that has a derivative"),
);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns f32 random numbers, from 0 (included) to 1 (excluded). Each call returns different numbers, and so does each run of
    /// a traced function.
    ///
    /// The numbers come from the scope's [`random_state`](Scope::random_state). Each call advances that state, and it is saved
    /// and exported like any variable.
    ///
    /// ```
    /// # use gradlet_core::{Eager, Tensor, ops};
    /// let scope = Eager::with_seed(&ops::portable_cpu(), 7);
    /// let numbers = Tensor::random_uniform(&scope, &[2, 3])?;
    /// assert!(numbers.to_vec::<f32>()?.iter().all(|number| (0.0..1.0).contains(number)));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn random_uniform(scope: &dyn Scope, dims: &[u32]) -> Result<Tensor> {
        let variable = scope.random_state()?;
        let state = scope.read(&variable)?;
        let numbers = scope.emit(&OP, dims, &[&state])?.pop().ok_or(Error::Internal)?;
        let next = state.add(&Tensor::new(&scope.device(), &[0i64, 1], &[2])?)?;
        scope.assign(&variable, &next)?;
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, run};

    #[test]
    fn the_numbers_are_the_streams() {
        let stream = Stream { key: 7, stream: 3 };
        let (result, got) = run(&I64, &[3, 5], &[&Value::new(&[7i64, 3], &[2])], &[]);
        assert_eq!(result, Ok(()));
        let want: std::vec::Vec<f32> = (0..4).flat_map(|index| stream.block(index)).map(unit).take(15).collect();
        assert_eq!(got, [Value::new(&want, &[3, 5])]);
    }

    #[test]
    fn the_state_is_two_i64() {
        assert_eq!(run(&I64, &[1], &[&Value::new(&[7i64], &[1])], &[]).0, Err(Error::Dimension { input: 0, axis: 0, want: 2, got: 1 }));
    }
}
