//! Groups of elementwise nodes that end with a reduction, which computes the elements where it would load them.

use super::fast::{self, Elements, Shape};
use super::{Groups, elements};
use crate::lower::call::Argument;
use crate::lower::elementwise::{self, Grouped};
use crate::lower::{Job, Target};
use crate::ptx::opening::Opening;
use crate::ptx::program::{Call, Function, Operand, Program};
use gradlet_core::device::{Member, Slot, Source};
use gradlet_core::{DType, Error, Result, ops};

/// Lowers the reduction `last` of a value of `members`, together with them.
pub(crate) fn group(members: &[Member], last: &Member, target: &Target) -> Result<Grouped> {
    let [Source::Value { member, tensor_type }] = last.inputs[..] else { return Err(Error::Internal) };
    let job = Job { op: last.op, attributes: &last.attributes, inputs: &[tensor_type], outputs: &[last.output], target: *target };
    let groups = Groups::new(tensor_type.shape.dims(), last.attributes.get(1..).unwrap_or(&[]));
    let refused = Error::NoKernel { op: last.op.name, dtype: job.dtype() };
    let shape = Shape::new(&groups).filter(|_| !target.strict && fast::has_kernel(job.op, job.dtype())).ok_or(refused)?;
    let (x, inputs, mut outputs) = opened(members, member, &shape)?;
    let calls = shape.calls(&job, &x, Argument::Output(outputs.len()), elements(&last.output)?);
    outputs.push(last.kept.ok_or(Error::Internal)?);
    Ok(Grouped { calls, inputs, outputs })
}

/// Returns the elements of a reduction of the value of member `value`, and the places of the inputs and outputs of `members`.
pub(super) fn opened(members: &[Member], value: usize, shape: &Shape) -> Result<(Elements, Vec<Slot>, Vec<Slot>)> {
    let ends = shape.ends();
    let stretches = ends.iter().zip([true, false, true]).filter(|(end, _)| **end > 1).map(|(&end, varies)| (end, varies));
    let (program, axes, inputs, outputs) = elementwise::program(members, Some(stretches.collect()))?;
    let opening = Opening { axes: divided(&axes, ends), program: returning(program, value)?, by_row: 0 };
    let sizes = axes.iter().take(axes.len() - 1).map(|&length| Argument::Wide(length));
    let operands = (0..inputs.len()).map(Argument::Input).chain((0..outputs.len()).map(Argument::Output));
    Ok((Elements::Opening(opening, sizes.chain(operands).collect()), inputs, outputs))
}

/// Returns how many of the axes of these lengths end within the kernel's axes, which have these ends.
pub(super) fn divided(axes: &[u64], ends: [u64; 3]) -> [usize; 3] {
    let mut counts = [0; 3];
    let mut size = 1;
    for length in axes {
        size *= length;
        let at = ends.iter().position(|&end| size <= end).unwrap_or(2);
        counts[at] += 1;
    }
    counts
}

/// Returns the program with a last call that returns the result of call `value` as f32.
fn returning(mut program: Program, value: usize) -> Result<Program> {
    let dtype = program.calls.get(value).ok_or(Error::Internal)?.result;
    if dtype != DType::F32 || value + 1 != program.calls.len() {
        let op = if dtype == DType::F32 { &ops::identity::DEF } else { &ops::cast::DEF };
        let function = Function::of(op, dtype).ok_or(Error::Internal)?;
        program.calls.push(Call { function, arguments: vec![Operand::Call(value)], result: DType::F32, kept: false });
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::Code;
    use crate::ptx::assert_assembles;
    use gradlet_core::custom_op::OpDef;
    use gradlet_core::{Shape, TensorType};

    fn tensor(dtype: DType, dims: &[u32]) -> TensorType {
        TensorType::new(dtype, Shape::new(dims).unwrap())
    }

    /// Lowers the squares of the differences of a tensor and an operand, which are stored, and their reduction in type `dtype`.
    fn lowered(op: &'static OpDef, dtype: DType, dims: &[u32], operand: &[u32], axes: &[u32]) -> Grouped {
        let slot = |dtype, dims: &[u32], offset| Slot { tensor_type: tensor(dtype, dims), base: 0, offset };
        let [x, operand, squares] = [(dims, 0), (operand, 1 << 30), (dims, 1 << 31)].map(|(dims, offset)| slot(DType::F32, dims, offset));
        let value = |dtype, member| Source::Value { member, tensor_type: tensor(dtype, dims) };
        let member = |op, attributes, inputs, dtype, kept| Member { op, attributes, inputs, output: tensor(dtype, dims), kept };
        let members = [
            member(&ops::sub::DEF, vec![], vec![Source::Memory(x), Source::Memory(operand)], DType::F32, None),
            member(&ops::mul::DEF, vec![], vec![value(DType::F32, 0); 2], DType::F32, Some(squares)),
            member(&ops::cast::DEF, vec![dtype as u32], vec![value(DType::F32, 1)], dtype, None),
        ];
        let kept: Vec<u32> = (0..dims.len()).filter(|axis| !axes.contains(&(*axis as u32))).map(|axis| dims[axis]).collect();
        let result = slot(dtype, &kept, 1 << 32);
        let attributes = [&[0], axes].concat();
        let last = Member { op, attributes, inputs: vec![value(dtype, 2)], output: result.tensor_type, kept: Some(result) };
        let target = Target { strict: false, ..Target::ORIN };
        group(&members, &last, &target).unwrap()
    }

    #[test]
    fn the_axes_of_a_kernel_have_some_of_the_programs() {
        let opening = |dims: &[u32], operand: &[u32], axes: &[u32]| {
            let grouped = lowered(&ops::mean::DEF, DType::F32, dims, operand, axes);
            let Code::Opened { entry, opening, .. } = grouped.calls[0].code.clone() else { panic!("{:?}", grouped.calls) };
            (entry, opening.axes, opening.program.loads[1].varies)
        };
        assert_eq!(opening(&[6, 40], &[6, 1], &[1]), ("sum_opening_rows_f32".into(), [0, 1, 1], 0b10));
        assert_eq!(opening(&[6, 40], &[40], &[0]), ("sum_opening_columns_f32".into(), [1, 1, 0], 0b01));
        assert_eq!(opening(&[2, 3, 4, 5], &[3, 1, 5], &[1, 2]), ("sum_opening_columns_f32".into(), [1, 2, 1], 0b101));
        assert_eq!(opening(&[2, 3, 4, 5], &[], &[0, 1, 2, 3]), ("sum_opening_rows_f32".into(), [0, 1, 0], 0));
    }

    #[test]
    fn parts_of_a_group_have_a_second_launch() {
        let grouped = lowered(&ops::sum::DEF, DType::F16, &[1 << 20, 2], &[2], &[0]);
        assert_eq!((grouped.calls.len(), grouped.inputs.len(), grouped.outputs.len()), (2, 2, 2));
        assert_eq!(grouped.calls[1].code, Code::stored("fast_reduce", "sum_parts_f16".into()));
    }

    /// No instruction is left that the host should have replaced. If there is an assembler, it takes the kernels, and nothing spills.
    #[test]
    fn openings_are_filled() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (op, axis) in [(&ops::sum::DEF, 0), (&ops::sum::DEF, 1), (&ops::max::DEF, 0), (&ops::max::DEF, 1)] {
                if op.code == ops::code::max && dtype != DType::F32 {
                    continue;
                }
                let (text, entry) = lowered(op, dtype, &[2, 3, 4], &[3, 1], &[axis]).calls[0].code.ptx(true).unwrap();
                assert!(!text.contains("// opening"), "{entry}");
                // Each element is loaded once, where it is needed.
                assert_eq!(text.matches("@%xp").count(), 8 * if axis == 1 { 3 } else { 2 }, "{entry}");
                assert_assembles(&entry, &text);
            }
        }
    }
}
