//! Padding: `x` inside a larger tensor, whose other elements are `value`. Element i of each axis goes to position
//! `begin + i · step`. Every element type. Like `tf.pad`.
//!
//! With steps, this is the gradient of [`strided_slice`], and `strided_slice` is its gradient.
//!
//! Attribute words, for each axis: the position of the first element, the signed step to the next, and the dimension of the
//! result.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
#[cfg(feature = "alloc")]
use crate::base::shape::MAX_RANK;
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
use crate::ops::shared::runs;
use crate::ops::shared::stages::stages;
use crate::ops::strided_slice;
#[cfg(feature = "alloc")]
use crate::ops::strided_slice::Axis;
use crate::ops::strided_slice::{axes, fits};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};
use bytemuck::Pod;

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::pad, name: "pad", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x, value] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if value.dtype != x.dtype {
        return Err(Error::DType { input: 1 });
    }
    if value.shape.rank() != 0 {
        return Err(Error::Rank { input: 1 });
    }
    let mut result = *x;
    for (index, (axis, dim)) in axes(attributes, x)?.iter().zip(result.shape.dims_mut()).enumerate() {
        fits(index, axis, axis.dim, *dim)?;
        *dim = axis.dim;
    }
    elementwise::set(outputs, result)
}

/// Runs the kernel. `T` is an unsigned integer of the element's size.
fn run<T: Pod>(call: &mut Call<'_, '_>) -> Result<()> {
    let (x, value) = (call.input(0)?, call.input(1)?);
    let axes = axes(call.attributes, x.tensor_type)?;
    let dims = call.output()?.dims();
    let mut runs = strided_slice::runs(axes, dims, x.dims());
    let (from, innermost) = (runs::elements::<T>(x.bytes()), runs.take());
    let total = call.output()?.data.len() / size_of::<T>();
    let [filled, rows] = stages(call, [total, from.len()], [5, 8 + runs::run_cost(innermost)]);
    let to = runs::elements_mut::<T>(call.output()?.data);
    if let (Some(&value), Some(to)) = (runs::elements(value.bytes()).first(), to.get_mut(filled)) {
        to.fill(value);
    }
    runs.each(innermost, rows, |run, mut at| {
        let Some(run) = from.get(run) else { return };
        for &from in run {
            if let Some(to) = to.get_mut(at) {
                *to = from;
            }
            at = at.wrapping_add_signed(innermost.1);
        }
    });
    Ok(())
}

crate::ops::moving_kernels!(sized run);

/// The op with its gradient: x gets the upstream gradient at the positions of its elements, and the value gets the sum over all
/// other positions.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("PadV2"),
    ..Op::total(&DEF, "pad(x, value), where value is a scalar with the element type of x", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (x, value) = (&of.inputs[0], &of.inputs[1]);
    let part: heapless::Vec<Axis, MAX_RANK> =
        axes(of.attributes, &x.tensor_type())?.iter().zip(x.dims()).map(|(&axis, &dim)| Axis { dim, ..axis }).collect();
    let dx = of.if_wanted(0, || of.dy()?.strided(&part))?;
    let dvalue = of.if_wanted(1, || {
        let around = Tensor::emit1(&OP, of.attributes, &[&x.zeros_like()?, &value.like(1.0)?])?;
        of.dy()?.mul(&around)?.sum(&[], false)
    })?;
    Ok([dx, dvalue].into_iter().collect())
}

/// Values of the elements that padding adds around a tensor.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// All padding elements have this value.
    Constant(f64),
    /// The tensor mirrored at its outermost elements, which are not repeated.
    Reflect,
    /// The tensor mirrored at its edges. Its outermost elements are repeated.
    Symmetric,
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Writes `self` into a tensor of zeros with dimensions `dims`, at the positions that `attributes`, those of a strided slice,
    /// select. This is the gradient of that strided slice of a tensor with dimensions `dims`.
    pub(in crate::ops) fn place(&self, attributes: &[u32], dims: &[u32]) -> Result<Tensor> {
        let axes: &[Axis] = bytemuck::cast_slice(attributes);
        let axes: heapless::Vec<Axis, MAX_RANK> = axes.iter().zip(dims).map(|(&axis, &dim)| Axis { dim, ..axis }).collect();
        Tensor::emit1(&OP, bytemuck::cast_slice(&axes), &[self, &self.like(0.0)?])
    }

    /// Pads each axis. `paddings` has the number of elements before and after each axis, and `mode` determines their values.
    ///
    /// Fails unless `paddings` has one pair for each axis. Fails if a mirrored axis is too short: it must be longer than the
    /// padding for `Reflect`, and at least as long for `Symmetric`. Like `tf.pad`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::pad::PadMode;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3], &[3])?;
    /// assert_eq!(x.pad(&[(1, 2)], PadMode::Constant(0.0))?.to_vec::<i32>()?, [0, 1, 2, 3, 0, 0]);
    /// assert_eq!(x.pad(&[(1, 2)], PadMode::Reflect)?.to_vec::<i32>()?, [2, 1, 2, 3, 2, 1]);
    /// assert_eq!(x.pad(&[(1, 2)], PadMode::Symmetric)?.to_vec::<i32>()?, [1, 1, 2, 3, 3, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn pad(&self, paddings: &[(u32, u32)], mode: PadMode) -> Result<Tensor> {
        if paddings.len() != self.shape().rank() {
            return Err(Error::message(alloc::format!(
                "got {} paddings for {}, expected one for each axis",
                paddings.len(),
                self.tensor_type()
            )));
        }
        match mode {
            PadMode::Constant(value) => self.pad_constant(paddings, value),
            PadMode::Reflect => self.pad_mirrored(paddings, 1),
            PadMode::Symmetric => self.pad_mirrored(paddings, 0),
        }
    }

    fn pad_constant(&self, paddings: &[(u32, u32)], value: f64) -> Result<Tensor> {
        if paddings.iter().all(|&padding| padding == (0, 0)) {
            return Ok(self.clone());
        }
        let mut axes = heapless::Vec::<Axis, MAX_RANK>::new();
        for (&(before, after), &dim) in paddings.iter().zip(self.dims()) {
            let dim = dim.checked_add(before).and_then(|dim| dim.checked_add(after)).ok_or(Error::TooLarge)?;
            let _ = axes.push(Axis { begin: before, step: 1, dim });
        }
        Tensor::emit1(&OP, bytemuck::cast_slice(&axes), &[self, &self.like(value)?])
    }

    /// Pads with mirrored elements. `skip` is the number of elements at each edge that are not repeated: 1 for
    /// [`PadMode::Reflect`], and 0 for [`PadMode::Symmetric`].
    fn pad_mirrored(&self, paddings: &[(u32, u32)], skip: u32) -> Result<Tensor> {
        let mut result = self.clone();
        for (axis, &(before, after)) in paddings.iter().enumerate().filter(|(_, padding)| **padding != (0, 0)) {
            let dim = result.dims()[axis];
            let most = dim.saturating_sub(skip);
            if before.max(after) > most {
                let (got, x) = (before.max(after), self.tensor_type());
                return Err(Error::message(alloc::format!("axis {axis} of {x} can be mirrored by at most {most} elements, not {got}")));
            }
            let mirror = |begin: u32, length: u32| {
                result.part(|at, dim| if at == axis { (begin, length) } else { (0, dim) })?.reverse(&[axis as i32])
            };
            let mut parts = alloc::vec::Vec::new();
            if before > 0 {
                parts.push(mirror(skip, before)?);
            }
            parts.push(result.clone());
            if after > 0 {
                parts.push(mirror(dim - skip - after, after)?);
            }
            result = Tensor::concat(&parts, axis as i32)?;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run};
    use crate::ops::strided_slice::Axis;
    use crate::ops::strided_slice::tests::{index_in_whole, parts};
    use std::vec::Vec;

    #[test]
    fn same_as_one_element_at_a_time() {
        for (dims, axes) in parts() {
            let from: Vec<u32> = axes.iter().map(|axis| axis.dim).collect();
            let words: Vec<Axis> = axes.iter().zip(&dims).map(|(&axis, &dim)| Axis { dim, ..axis }).collect();
            let x: Vec<i32> = numbers(&from, 3).iter().map(|x| (x * 1e6) as i32).collect();
            let mut want = std::vec![7; indices(&dims).len()];
            for index in indices(&from) {
                want[position(&dims, &index_in_whole(&axes, &index))] = x[position(&from, &index)];
            }
            let inputs = [&Value::new(&x, &from), &Value::new(&[7], &[])];
            let (result, got) = run(&I32, bytemuck::cast_slice(&words), &inputs, &[]);
            assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &dims)]), "{dims:?} {axes:?}");
        }
    }

    #[test]
    fn inputs_must_fit() {
        let (x, value) = (Value::new(&[0u8; 3], &[3]), Value::new(&[1u8], &[]));
        let refused = |words: &[u32], inputs: &[&Value]| run(&U8, words, inputs, &[]).0;
        assert_eq!(refused(&[1, 2, 6], &[&x, &value]), Ok(()));
        assert_eq!(refused(&[1, 2, 5], &[&x, &value]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 0, 5], &[&x, &value]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 1], &[&x, &value]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 1, 3], &[&x, &x]), Err(Error::Rank { input: 1 }));
        assert_eq!(refused(&[0, 1, 3], &[&x, &Value::new(&[1i8], &[])]), Err(Error::DType { input: 1 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        check_gradient(&OP, &[4, -2i32 as u32, 6, 1, 1, 4], &[tensor(&[3, 2], 1), tensor(&[], 2)]);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn mirrors_must_be_long_enough() {
        let x = crate::ops::shared::testing::tensor(&[3, 2], 1);
        assert!(x.pad(&[(2, 2), (1, 0)], PadMode::Reflect).is_ok());
        assert!(x.pad(&[(0, 0), (0, 2)], PadMode::Reflect).is_err());
        assert!(x.pad(&[(0, 0), (0, 2)], PadMode::Symmetric).is_ok());
        assert!(x.pad(&[(4, 0), (0, 0)], PadMode::Symmetric).is_err());
        assert!(x.pad(&[(1, 1)], PadMode::Constant(0.0)).is_err());
    }
}
