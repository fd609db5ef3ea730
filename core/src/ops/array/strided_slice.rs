//! Slice of `x` along each axis, with a start and a step. Every element type. Like `tf.strided_slice`.
//!
//! Attribute words, for each axis: the position of the first element, the signed step to the next, and the number of elements.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
#[cfg(feature = "alloc")]
use crate::base::shape::MAX_RANK;
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
use crate::ops::shared::runs;
use crate::ops::shared::runs::Runs;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};
use bytemuck::{Pod, Zeroable};
#[cfg(feature = "alloc")]
use heapless::Vec;

/// Attribute words of one axis, for `strided_slice` and `pad`: the position of a smaller tensor inside a larger one. The result is
/// the smaller tensor of `strided_slice`, or the larger tensor of `pad`. The input of the op is the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Axis {
    /// Position of the smaller tensor's first element in the larger tensor.
    pub begin: u32,
    /// Distance in the larger tensor from one element of the smaller tensor to the next.
    pub step: i32,
    /// Dimension of the op's result along this axis.
    pub dim: u32,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::strided_slice, name: "strided_slice", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let mut result = *x;
    let axes = axes(attributes, x)?;
    for (index, (axis, dim)) in axes.iter().zip(result.shape.dims_mut()).enumerate() {
        fits(index, axis, *dim, axis.dim)?;
        *dim = axis.dim;
    }
    elementwise::set(outputs, result)
}

/// Returns the attribute words as one [`Axis`] for each axis of `x`. Fails if the number of words does not match the rank of `x`.
pub(in crate::ops) fn axes<'a>(attributes: &'a [u32], x: &TensorType) -> Result<&'a [Axis]> {
    let axes: &[Axis] = bytemuck::try_cast_slice(attributes).unwrap_or(&[]);
    if axes.len() * 3 != attributes.len() || axes.len() != x.shape.rank() {
        return Err(Error::Attribute { index: 0 });
    }
    Ok(axes)
}

/// Fails unless the `small` elements of the smaller tensor are within the `large` elements of the larger one, along axis `index`.
pub(in crate::ops) fn fits(index: usize, axis: &Axis, large: u32, small: u32) -> Result<()> {
    let last = i64::from(axis.begin) + i64::from(axis.step) * (i64::from(small) - 1);
    if axis.step == 0 || (small > 0 && (axis.begin >= large || last < 0 || last >= i64::from(large))) {
        return Err(Error::Attribute { index: (index * 3) as u8 });
    }
    Ok(())
}

/// Returns a walk over a tensor with dimensions `small`, which returns the positions of its elements in a tensor with dimensions `large`.
pub(in crate::ops) fn runs(axes: &[Axis], large: &[u32], small: &[u32]) -> Runs {
    let (mut start, mut stride) = (0usize, 1usize);
    let walked = axes.iter().rev().zip(small.iter().rev()).zip(large.iter().rev()).map(|((axis, &dim), &large)| {
        let step = (stride as isize).wrapping_mul(axis.step as isize);
        start = start.wrapping_add(stride.wrapping_mul(axis.begin as usize));
        stride = stride.wrapping_mul(large as usize);
        (dim as usize, step)
    });
    let mut runs = Runs::new(walked);
    runs.begin(start);
    runs
}

/// Runs the kernel. `T` is an unsigned integer of the element's size.
fn run<T: Pod>(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    let axes = axes(call.attributes, x.tensor_type)?;
    let dims = call.output()?.dims();
    runs::collect::<T>(call, runs(axes, x.dims(), dims))
}

crate::ops::moving_kernels!(sized run);

/// The op with its gradient: the upstream gradient at the positions of the slice's elements, and zeros elsewhere.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "strided_slice(x), of positions within x", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let x = &of.inputs[0];
    let dx = || of.dy()?.place(of.attributes, x.dims());
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Emits the op with these attributes. If the slice is the whole tensor, returns `self` and emits nothing. The axes must be
    /// within `self`.
    pub(in crate::ops) fn strided(&self, axes: &[Axis]) -> Result<Tensor> {
        let whole = |(axis, &dim): (&Axis, &u32)| axis.dim == dim && (dim == 0 || (axis.begin == 0 && (axis.step == 1 || dim == 1)));
        if axes.iter().zip(self.dims()).all(whole) {
            return Ok(self.clone());
        }
        Tensor::emit1(&OP, bytemuck::cast_slice(axes), &[self])
    }

    /// Returns a slice with step 1 along each axis. `choose` gets the number and the dimension of an axis. It returns the position
    /// of the slice's first element along this axis, and the number of elements.
    pub(in crate::ops) fn part(&self, choose: impl Fn(usize, u32) -> (u32, u32)) -> Result<Tensor> {
        let axes = self.dims().iter().enumerate().map(|(index, &dim)| {
            let (begin, dim) = choose(index, dim);
            Axis { begin, step: 1, dim }
        });
        self.strided(&axes.collect::<Vec<_, MAX_RANK>>())
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run, shapes};
    use std::vec::Vec;

    /// Returns ways to select elements from an axis of dimension `dim`.
    fn choices(dim: u32) -> Vec<Axis> {
        let axis = |begin, step, dim| Axis { begin, step, dim };
        match dim {
            0 => std::vec![axis(0, 1, 0), axis(9, -3, 0)],
            1 => std::vec![axis(0, 1, 1), axis(0, -7, 1), axis(0, 1, 0)],
            dim => std::vec![axis(0, 1, dim), axis(dim - 1, -1, dim), axis(1, 1, dim - 1), axis(dim - 1, 2 - dim as i32 * 2, 1)],
        }
        .into_iter()
        .chain((dim > 4).then(|| axis(dim - 1, -2, dim.div_ceil(2))))
        .chain((dim > 4).then(|| axis(1, 2, dim / 2)))
        .collect()
    }

    /// Returns test cases: the dimensions of x, and the attributes of a slice of it.
    pub fn parts() -> Vec<(Vec<u32>, Vec<Axis>)> {
        let mut parts = Vec::new();
        for dims in shapes(3, &[0, 1, 2, 5]) {
            let mut chosen = std::vec![Vec::new()];
            for &dim in &dims {
                let longer = |axes: Vec<Axis>| choices(dim).into_iter().map(move |axis| axes.iter().copied().chain([axis]).collect());
                chosen = chosen.into_iter().flat_map(longer).collect();
            }
            parts.extend(chosen.into_iter().map(|axes| (dims.clone(), axes)));
        }
        parts
    }

    /// Returns the index in x of the element that the slice has at `index`.
    pub fn index_in_whole(axes: &[Axis], index: &[u32]) -> Vec<u32> {
        axes.iter().zip(index).map(|(axis, &at)| (i64::from(axis.begin) + i64::from(axis.step) * i64::from(at)) as u32).collect()
    }

    #[test]
    fn same_as_one_element_at_a_time() {
        for (dims, axes) in parts() {
            let to: Vec<u32> = axes.iter().map(|axis| axis.dim).collect();
            let x: Vec<i32> = numbers(&dims, 3).iter().map(|x| (x * 1e6) as i32).collect();
            let want: Vec<i32> = indices(&to).iter().map(|index| x[position(&dims, &index_in_whole(&axes, index))]).collect();
            let (result, got) = run(&I32, bytemuck::cast_slice(&axes), &[&Value::new(&x, &dims)], &[]);
            assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &to)]), "{dims:?} {axes:?}");
        }
    }

    #[test]
    fn attributes_are_checked() {
        let x = Value::new(&[0u8; 6], &[2, 3]);
        let refused = |words: [u32; 3]| run(&U8, &[&[0, 1, 2][..], &words].concat(), &[&x], &[]).0;
        assert_eq!(refused([0, 1, 3]), Ok(()));
        assert_eq!(refused([9, 1, 0]), Ok(()));
        let minus = |step: i32| step.wrapping_neg() as u32;
        for words in [[3, 1, 1], [0, 1, 4], [1, 1, 3], [0, 0, 1], [0, 2, 3], [1, minus(1), 3], [0, u32::MAX, 2], [2, 1 << 31, 2]] {
            assert_eq!(refused(words), Err(Error::Attribute { index: 3 }), "{words:?}");
        }
        assert_eq!(run(&U8, &[0, 1, 2], &[&x], &[]).0, Err(Error::Attribute { index: 0 }));
        assert_eq!(run(&U8, &[0, 1, 2, 0, 1], &[&x], &[]).0, Err(Error::Attribute { index: 0 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        check_gradient(&OP, &[2, -2i32 as u32, 2, 0, 1, 2], &[tensor(&[4, 3], 1)]);
    }
}
