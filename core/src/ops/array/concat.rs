//! Concatenation of the inputs along one axis. All other dimensions must be equal. Every element type. Like `tf.concat`.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, MAX_INPUTS, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
use crate::ops::shared::elementwise::copy_elements;
use crate::ops::shared::lanes::Attributes;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};
#[cfg(feature = "alloc")]
use {alloc::vec::Vec, core::borrow::Borrow};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::concat, name: "concat", inputs: (1, MAX_INPUTS as u8), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { axis } = read_attributes(attributes)?;
    let axis = axis as usize;
    let (first, others) = inputs.split_first().ok_or(Error::Internal)?;
    let mut result = *first;
    for (index, other) in (1u8..).zip(others) {
        if other.dtype != first.dtype {
            return Err(Error::DType { input: index });
        }
        let mut want = first.shape;
        if let (Some(want), Some(&got)) = (want.dims_mut().get_mut(axis), other.shape.dims().get(axis)) {
            *want = got;
        }
        elementwise::same_dims(index, want.dims(), other.shape.dims())?;
        let dim = result.shape.dims_mut().get_mut(axis).ok_or(Error::Attribute { index: 0 })?;
        *dim = dim.checked_add(other.shape.dims().get(axis).copied().unwrap_or(0)).ok_or(Error::TooLarge)?;
    }
    if axis >= result.shape.rank() {
        return Err(Error::Attribute { index: 0 });
    }
    elementwise::set(outputs, result)
}

/// Returns the number of bytes that `tensor_type` has for each index of the axes before `axis`. These elements, along `axis` and
/// all axes after it, are contiguous.
fn row_bytes(tensor_type: &TensorType, axis: usize) -> usize {
    tensor_type.shape.dims().iter().skip(axis).fold(tensor_type.dtype.size(), |bytes, &dim| bytes * dim as usize)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { axis } = call.attributes()?;
    let inputs = call.inputs;
    let output = call.output()?;
    let whole = row_bytes(output.tensor_type, axis as usize).max(1);
    let total = output.data.len() / whole;
    let rows = call.rows(total, 60 * inputs.len() + whole);
    let output = call.output()?;
    let mut start = 0;
    for input in inputs {
        let part = row_bytes(input.tensor_type, axis as usize);
        let mut parts = input.bytes().get(rows.start * part..).unwrap_or_default().chunks_exact(part.max(1));
        let whole = output.data.get_mut(rows.start * whole..rows.end * whole).unwrap_or_default().chunks_exact_mut(whole);
        for row in whole {
            if let (Some(to), Some(from)) = (row.get_mut(start..start + part), parts.next()) {
                copy_elements(from, to);
            }
        }
        start += part;
    }
    Ok(())
}

crate::ops::moving_kernels!(bytes run);

/// The op with its gradient: each input gets its part of the upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("ConcatV2"),
    ..Op::total(
        &DEF,
        "concat(x, …), at most 8 inputs with the same element type, and the same shape except along the axis",
        Gradient::Rule(grad),
    )
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let Attributes { axis } = read_attributes(of.attributes)?;
    let mut gradients = InputGradients::new();
    let mut begin = 0;
    for (index, input) in of.inputs.iter().enumerate() {
        let part = || of.dy()?.part(|at, dim| if at == axis as usize { (begin, input.dims()[at]) } else { (0, dim) });
        let _ = gradients.push(of.if_wanted(index, part)?);
        begin += input.dims()[axis as usize];
    }
    Ok(gradients)
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Concatenates `tensors` along `axis`. A negative axis counts from the end.
    ///
    /// Fails if there are no tensors, if the element types differ, or if another dimension differs. Like `tf.concat`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1, 2], &[2, 1])?;
    /// let b = Tensor::new(&device, &[3, 4, 5, 6], &[2, 2])?;
    /// assert_eq!(Tensor::concat(&[a, b], 1)?.to_vec::<i32>()?, [1, 3, 4, 2, 5, 6]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn concat<T: Borrow<Tensor>>(tensors: &[T], axis: i32) -> Result<Tensor> {
        let mut parts: Vec<Tensor> = tensors.iter().map(|tensor| tensor.borrow().clone()).collect();
        let first = parts.first().ok_or_else(|| Error::message("concat and stack need at least one tensor"))?;
        let attributes = [crate::ops::shared::reduce::axis(first, axis)?];
        while parts.len() > 1 {
            let joined = |parts: &[Tensor]| match parts {
                [one] => Ok(one.clone()),
                _ => Tensor::emit1(&OP, &attributes, &parts.iter().collect::<Vec<_>>()),
            };
            parts = parts.chunks(MAX_INPUTS).map(joined).collect::<Result<_>>()?;
        }
        parts.pop().ok_or(Error::Internal)
    }

    /// Stacks `tensors`, which all have the same shape, along a new axis. `axis` is its position in the result. A negative axis
    /// counts from the end.
    ///
    /// Fails if there are no tensors, or if element types or shapes differ. Like `tf.stack`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let (a, b) = (Tensor::new(&device, &[1, 2], &[2])?, Tensor::new(&device, &[3, 4], &[2])?);
    /// assert_eq!(Tensor::stack(&[&a, &b], 0)?.to_vec::<i32>()?, [1, 2, 3, 4]);
    /// assert_eq!(Tensor::stack(&[&a, &b], -1)?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn stack<T: Borrow<Tensor>>(tensors: &[T], axis: i32) -> Result<Tensor> {
        let wide: Vec<Tensor> = tensors.iter().map(|tensor| tensor.borrow().expand_dims(axis)).collect::<Result<_>>()?;
        if let Some(other) = wide.iter().find(|tensor| tensor.tensor_type() != wide[0].tensor_type()) {
            let (first, other) = (wide[0].tensor_type(), other.tensor_type());
            return Err(Error::message(alloc::format!(
                "stack needs tensors of the same type, but got slices of the types {first} and {other}"
            )));
        }
        Tensor::concat(&wide, axis)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run, shapes};
    use std::vec::Vec;

    #[test]
    fn same_as_one_element_at_a_time() {
        for dims in shapes(3, &[0, 1, 3]) {
            for axis in 0..dims.len() {
                for parts in [&[2u32][..], &[1, 0, 3], &[0, 0], &[1, 1, 1, 1, 1, 1, 1, 2]] {
                    let with = |dim: u32| dims.iter().enumerate().map(|(at, &own)| if at == axis { dim } else { own }).collect::<Vec<_>>();
                    let inputs: Vec<(Vec<i32>, Vec<u32>)> = (1..)
                        .zip(parts)
                        .map(|(seed, &part)| (numbers(&with(part), seed).iter().map(|x| (x * 1e6) as i32).collect(), with(part)))
                        .collect();
                    let to = with(parts.iter().sum());
                    let element = |index: Vec<u32>| {
                        let mut ours = index;
                        let mut input = inputs.iter();
                        loop {
                            let (x, dims) = input.next().unwrap();
                            if ours[axis] < dims[axis] {
                                return x[position(dims, &ours)];
                            }
                            ours[axis] -= dims[axis];
                        }
                    };
                    let want: Vec<i32> = indices(&to).into_iter().map(element).collect();
                    let values: Vec<Value> = inputs.iter().map(|(x, dims)| Value::new(x, dims)).collect();
                    let (result, got) = run(&I32, &[axis as u32], &values.iter().collect::<Vec<_>>(), &[]);
                    assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &to)]), "{dims:?} {axis} {parts:?}");
                }
            }
        }
    }

    #[test]
    fn inputs_must_fit() {
        let (a, b) = (Value::new(&[0u8; 6], &[2, 3]), Value::new(&[0u8; 4], &[2, 2]));
        let refused = |words: &[u32], inputs: &[&Value]| run(&U8, words, inputs, &[]).0;
        assert_eq!(refused(&[1], &[&a, &b]), Ok(()));
        assert_eq!(refused(&[0], &[&a, &b]), Err(Error::Dimension { input: 1, axis: 1, want: 3, got: 2 }));
        assert_eq!(refused(&[2], &[&a]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[2], &[&a, &a]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[], &[&a]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0], &[&a, &Value::new(&[0u8; 6], &[6])]), Err(Error::Rank { input: 1 }));
        assert_eq!(refused(&[0], &[&a, &Value::new(&[0i8; 6], &[2, 3])]), Err(Error::DType { input: 1 }));
        let wide = TensorType::new(crate::DType::U8, crate::Shape::new(&[u32::MAX, 0]).unwrap());
        assert_eq!(DEF.output_types(&[wide, wide], &[0]), Err(Error::TooLarge));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn any_number_of_tensors() {
        use crate::ops::shared::testing::device;
        let parts: Vec<Tensor> = (0..70).map(|i| Tensor::new(device(), &[i, i], &[1, 2]).unwrap()).collect();
        let joined = Tensor::concat(&parts, 0).unwrap();
        assert_eq!(joined.to_vec::<i32>().unwrap(), (0..140).map(|i| i / 2).collect::<Vec<_>>());
        assert_eq!(Tensor::stack(&parts, -1).unwrap().dims(), [1, 2, 70]);
        assert!(Tensor::concat::<Tensor>(&[], 0).is_err() && Tensor::stack::<Tensor>(&[], 0).is_err());
        let refused = Tensor::stack(&[&parts[0], &parts[0].reshape(&[2, 1]).unwrap()], 0).unwrap_err();
        assert_eq!(
            std::format!("{refused}"),
            "stack needs tensors of the same type, but got slices of the types i32[1,1,2] and i32[1,2,1]"
        );
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        check_gradient(&OP, &[1], &[tensor(&[2, 3], 1), tensor(&[2, 1], 2), tensor(&[2, 2], 3)]);
    }
}
