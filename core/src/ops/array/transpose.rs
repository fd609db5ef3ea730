//! Permutation of the axes of `x`. Every element type. Like `tf.transpose`.
//!
//! Attribute words: for each axis of the result, the corresponding axis of `x`.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
#[cfg(feature = "alloc")]
use crate::base::shape::MAX_RANK;
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::elementwise;
use crate::ops::shared::runs;
use crate::ops::shared::runs::Runs;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Keeps, Op},
};
#[cfg(feature = "alloc")]
use heapless::Vec;

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::transpose, name: "transpose", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if attributes.len() != x.shape.rank() {
        return Err(Error::Attribute { index: 0 });
    }
    let mut shape = Shape::SCALAR;
    for (index, &axis) in attributes.iter().enumerate() {
        let dim = x.shape.dims().get(axis as usize).copied();
        let again = attributes.iter().take(index).any(|&earlier| earlier == axis);
        shape.push(dim.filter(|_| !again).ok_or(Error::Attribute { index: index as u8 })?)?;
    }
    elementwise::set(outputs, TensorType::new(x.dtype, shape))
}

/// Runs the kernel. `T` is an unsigned integer of the element's size.
fn run<T: bytemuck::Pod>(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    let axes = call.attributes.iter().rev().map(|&axis| runs::axis(x.dims(), axis as usize));
    runs::collect::<T>(call, Runs::new(axes))
}

crate::ops::moving_kernels!(sized run);

/// The op with its gradient: the upstream gradient with the inverse permutation.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    keeps: Keeps::Where(moves_nothing),
    ..Op::total(&DEF, "transpose(x), with an order that lists every axis of x once", Gradient::Rule(grad))
};

/// True if only axes of dimension 1 change their position, so that the elements stay in the same order.
#[cfg(feature = "alloc")]
fn moves_nothing(order: &[u32], dims: &[u32]) -> bool {
    order.iter().filter(|axis| dims.get(**axis as usize).is_some_and(|&dim| dim != 1)).is_sorted()
}

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let mut back = [0; MAX_RANK];
    for (index, &axis) in (0..).zip(of.attributes) {
        back[axis as usize] = index;
    }
    Ok([of.if_wanted(0, || of.dy()?.transpose(&back[..of.attributes.len()]))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Permutes the axes: axis `i` of the result is axis `order[i]` of `self`. An empty `order` reverses the axes.
    ///
    /// Fails unless `order` lists every axis once. Like `tf.transpose`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.transpose(&[1, 0])?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// assert_eq!(x.transpose(&[])?.dims(), [3, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn transpose(&self, order: &[u32]) -> Result<Tensor> {
        let reversed: Vec<u32, MAX_RANK> = (0..self.shape().rank() as u32).rev().collect();
        Tensor::emit1(&OP, if order.is_empty() { &reversed } else { order }, &[self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run, shapes};

    #[test]
    fn same_as_one_element_at_a_time() {
        for from in shapes(4, &[0, 1, 2, 5]) {
            let rank = from.len() as u32;
            let x: std::vec::Vec<i32> = numbers(&from, 5).iter().map(|x| (x * 1e6) as i32).collect();
            for order in shapes(from.len(), &[0, 1, 2, 3][..from.len()]) {
                if order.len() != from.len() || !(0..rank).all(|axis| order.contains(&axis)) {
                    continue;
                }
                let to: std::vec::Vec<u32> = order.iter().map(|&axis| from[axis as usize]).collect();
                let mut want = std::vec![0; x.len()];
                for index in indices(&from) {
                    let ours: std::vec::Vec<u32> = order.iter().map(|&axis| index[axis as usize]).collect();
                    want[position(&to, &ours)] = x[position(&from, &index)];
                }
                let (result, got) = run(&I32, &order, &[&Value::new(&x, &from)], &[]);
                assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &to)]), "{from:?} by {order:?}");
            }
        }
    }

    #[test]
    fn attributes_are_checked() {
        let x = Value::new(&[0u8; 6], &[2, 3]);
        for order in [&[0u32][..], &[0, 0], &[0, 2], &[0, 1, 2], &[u32::MAX, 0]] {
            assert!(matches!(run(&U8, order, &[&x], &[]).0, Err(Error::Attribute { .. })), "{order:?}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        for order in [[0u32, 1, 2], [2, 0, 1], [1, 0, 2]] {
            crate::ops::shared::testing::check_gradient(&OP, &order, &[crate::ops::shared::testing::tensor(&[2, 3, 4], 1)]);
        }
    }
}
