//! Groups of elementwise nodes, which run as one kernel.

use super::launch;
use crate::lower::call::KernelCall;
use crate::ptx::program::{Call, Function, Load, Operand, Program};
use gradlet_core::device::{Member, Slot, Source};
use gradlet_core::{Error, Result};

/// Lowers the members of a group with `elements` elements. Returns the launch, and the places of its inputs and outputs.
pub(crate) fn group(elements: usize, members: &[Member]) -> Result<(KernelCall, Vec<Slot>, Vec<Slot>)> {
    let mut inputs: Vec<Slot> = Vec::new();
    let mut calls: Vec<Call> = Vec::with_capacity(members.len());
    for (index, member) in members.iter().enumerate() {
        let arguments: Result<Vec<Operand>> = member.inputs.iter().map(|source| operand(source, index, &mut inputs)).collect();
        let dtype = match member.inputs.first().ok_or(Error::Internal)? {
            Source::Memory(slot) => slot.tensor_type.dtype,
            Source::Value { tensor_type, .. } => tensor_type.dtype,
        };
        let function = Function::of(member.op, dtype).ok_or(Error::NoKernel { op: member.op.name, dtype })?;
        calls.push(Call { function, arguments: arguments?, result: member.output.dtype, kept: member.kept.is_some() });
    }
    let counts: Result<Vec<usize>> = inputs.iter().map(count).collect();
    let (axes, varies) = trailing_axes(elements, &counts?)?;
    let loads = inputs.iter().zip(varies).map(|(slot, varies)| Load { dtype: slot.tensor_type.dtype, varies }).collect();
    let outputs = members.iter().filter_map(|member| member.kept).collect();
    Ok((launch(Program { axes: axes.len(), loads, calls }, elements as u64, &axes), inputs, outputs))
}

/// Returns an argument of member `index`. A tensor in memory becomes one of `inputs`, unless it is one already.
fn operand(source: &Source, index: usize, inputs: &mut Vec<Slot>) -> Result<Operand> {
    match source {
        Source::Value { member, .. } if *member < index => Ok(Operand::Call(*member)),
        Source::Value { .. } => Err(Error::Internal),
        Source::Memory(slot) => {
            let key = |slot: &Slot| (slot.base, slot.offset, slot.tensor_type.dtype, slot.tensor_type.shape.elements());
            let found = inputs.iter().position(|input| key(input) == key(slot));
            if found.is_none() {
                inputs.push(*slot);
            }
            Ok(Operand::Load(found.unwrap_or(inputs.len() - 1)))
        }
    }
}

fn count(slot: &Slot) -> Result<usize> {
    slot.tensor_type.shape.elements().ok_or(Error::TooLarge)
}

/// Divides `elements` elements into axes, innermost first, for tensors that have all of them, or one element, or those of the last axes.
/// `counts` are the tensors' numbers of elements. Returns the lengths of the axes, and for each tensor the axes along which it varies, as
/// bits. Fails if the tensors do not fit each other.
fn trailing_axes(elements: usize, counts: &[usize]) -> Result<(Vec<u64>, Vec<u8>)> {
    let mut sizes: Vec<usize> = counts.iter().copied().filter(|&count| count != 1).chain([elements]).collect();
    sizes.sort();
    sizes.dedup();
    let inner = [1].into_iter().chain(sizes.iter().copied());
    let axes = inner
        .zip(&sizes)
        .map(|(inner, &size)| if size.checked_rem(inner) == Some(0) { Ok((size / inner) as u64) } else { Err(Error::Internal) });
    let axes = axes.collect::<Result<Vec<u64>>>()?;
    if axes.len() > 8 || sizes.last() != Some(&elements) {
        return Err(Error::Internal);
    }
    // A tensor varies along the axes up to its own size. One element is nothing to vary, unless it is all there is.
    let varies = counts.iter().map(|&count| match sizes.iter().position(|&size| size == count) {
        Some(axis) => u8::MAX >> (7 - axis),
        None => 0,
    });
    Ok((axes, varies.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{DType, Shape, TensorType, ops};

    fn tensor(dims: &[u32]) -> TensorType {
        TensorType::new(DType::F32, Shape::new(dims).unwrap())
    }

    fn slot(dims: &[u32], offset: u64) -> Slot {
        Slot { tensor_type: tensor(dims), base: 0, offset }
    }

    #[test]
    fn axes_follow_the_sizes() {
        assert_eq!(trailing_axes(24, &[24, 1]).unwrap(), (vec![24], vec![1, 0]));
        assert_eq!(trailing_axes(24, &[24, 4, 1]).unwrap(), (vec![4, 6], vec![3, 1, 0]));
        assert_eq!(trailing_axes(24, &[12, 4]).unwrap(), (vec![4, 3, 2], vec![3, 1]));
        assert_eq!(trailing_axes(1, &[1]).unwrap(), (vec![1], vec![1]));
        assert!(trailing_axes(24, &[5]).is_err());
        assert!(trailing_axes(4, &[8]).is_err());
        assert!(trailing_axes(0, &[0, 4]).is_err());
    }

    #[test]
    fn a_group_reads_once_and_stores_what_is_kept() {
        let (x, bias, y) = (slot(&[6, 4], 0), slot(&[4], 96), slot(&[6, 4], 112));
        let value = |member| Source::Value { member, tensor_type: tensor(&[24]) };
        let member = |op, inputs, kept| Member { op, attributes: Vec::new(), inputs, output: tensor(&[6, 4]), kept };
        let members = [
            member(&ops::add::DEF, vec![Source::Memory(x), Source::Memory(bias)], None),
            member(&ops::relu::DEF, vec![value(0)], Some(y)),
            member(&ops::mul::DEF, vec![value(1), Source::Memory(x)], Some(x)),
        ];
        let (call, inputs, outputs) = group(24, &members).unwrap();
        assert_eq!((inputs.len(), outputs.len()), (2, 2));
        assert_eq!((inputs[1].offset, outputs[0].offset, outputs[1].offset), (96, 112, 0));
        // The number of elements, the length of the inner axis, and the operands.
        assert_eq!(call.arguments.len(), 6);
        let crate::ptx::Code::Elementwise(program) = call.code else { panic!("{:?}", call.code) };
        assert_eq!(program.loads.iter().map(|load| load.varies).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(program.calls[2].arguments, [Operand::Call(1), Operand::Load(0)]);
    }
}
