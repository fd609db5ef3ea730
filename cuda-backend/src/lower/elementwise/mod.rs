//! Ops that compute element by element, alone or in groups. Their kernels are [`Program`]s. And steps of optimizers, checks and random
//! numbers, whose kernels are in `kernels/steps.cu`.

mod group;

pub(crate) use group::group;

use super::{Family, Job};
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::program::{Call, Function, Load, Operand, Program, known};
use crate::ptx::{self, Code};
use gradlet_core::custom_op::OpDef;
use gradlet_core::{DType, Error, Result, Shape, TensorType, ops};

pub(super) const FAMILY: Family = Family { has_kernel, lower };

fn has_kernel(op: &OpDef, dtype: DType) -> bool {
    // A reshape alone is a copy, which moving kernels make.
    let alone = op.code != ops::code::reshape;
    known(op).is_some() && (alone && Function::of(op, dtype).is_some() || ptx::is_stored("steps", &entry(op, dtype)))
}

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let call = match Function::of(job.op, job.dtype()) {
        Some(function) => broadcast(job, function)?,
        None => step(job)?,
    };
    Ok(vec![call])
}

/// Lowers an op that is a function of each element of its inputs, which broadcast.
fn broadcast(job: &Job<'_>, function: Function) -> Result<KernelCall> {
    let output = job.outputs.first().ok_or(Error::Internal)?;
    let shapes: Vec<&Shape> = job.inputs.iter().map(|input| &input.shape).collect();
    let (axes, varies) = merged_axes(&output.shape, &shapes);
    let loads = job.inputs.iter().zip(varies).map(|(input, varies)| Load { dtype: input.dtype, varies }).collect();
    let arguments = (0..job.inputs.len()).map(Operand::Load).collect();
    let calls = vec![Call { function, arguments, result: output.dtype, kept: true }];
    Ok(launch(Program { axes: axes.len(), loads, calls }, elements(output)?, &axes))
}

/// Divides the elements of a result of shape `output` into axes, innermost first, along each of which an operand either varies or stays at
/// one element. Returns their lengths, and for each operand the axes along which it varies, as bits.
fn merged_axes(output: &Shape, operands: &[&Shape]) -> (Vec<u64>, Vec<u8>) {
    let (mut axes, mut varies, mut last) = (Vec::new(), vec![0; operands.len()], None);
    for (back, &dim) in output.dims().iter().rev().enumerate().filter(|(_, dim)| **dim != 1) {
        let pattern: Vec<bool> = operands.iter().map(|own| own.back(back).is_some_and(|own| own != 1)).collect();
        match axes.last_mut().filter(|_| last.as_ref() == Some(&pattern)) {
            Some(axis) => *axis *= u64::from(dim),
            None => {
                varies.iter_mut().zip(&pattern).for_each(|(bits, &varies)| *bits |= u8::from(varies) << axes.len());
                axes.push(u64::from(dim));
                last = Some(pattern);
            }
        }
    }
    if axes.is_empty() { (vec![1], vec![1; operands.len()]) } else { (axes, varies) }
}

/// Returns the launch of a program for `elements` elements, in axes of these lengths. The operands are those of the program, in its order.
fn launch(program: Program, elements: u64, axes: &[u64]) -> KernelCall {
    let outputs = program.calls.iter().filter(|call| call.kept).count();
    let mut arguments = vec![Argument::Wide(elements)];
    // The program does not need the length of the outermost axis.
    arguments.extend(axes.iter().take(program.axes - 1).map(|&length| Argument::Wide(length)));
    arguments.extend((0..program.loads.len()).map(Argument::Input));
    arguments.extend((0..outputs).map(Argument::Output));
    KernelCall::over(elements, Code::Elementwise(program), arguments)
}

/// Lowers an op that has a kernel of its own.
fn step(job: &Job<'_>) -> Result<KernelCall> {
    // A check has no output, and random numbers have the elements of theirs.
    let tensor = job.outputs.first().or(job.inputs.first()).ok_or(Error::Internal)?;
    let elements = elements(tensor)?;
    // A thread computes four random numbers.
    let threads = if job.op.code == ops::code::random_uniform { elements.div_ceil(4) } else { elements };
    let mut arguments = vec![Argument::Wide(elements)];
    if job.op.code == ops::code::adam_step {
        arguments.push(Argument::Words(job.attributes.to_vec()));
    }
    arguments.extend((0..job.inputs.len()).map(Argument::Input));
    arguments.extend((0..job.outputs.len()).map(Argument::Output));
    Ok(KernelCall::over(threads, Code::stored("steps", entry(job.op, job.dtype())), arguments))
}

/// Returns the name of the entry or function of an op.
fn entry(op: &OpDef, dtype: DType) -> String {
    format!("{}_{dtype}", op.name)
}

fn elements(tensor: &TensorType) -> Result<u64> {
    Ok(tensor.shape.elements().ok_or(Error::TooLarge)? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::custom_op::Op;

    fn shape(dims: &[u32]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn axes(output: &[u32], operands: &[&[u32]]) -> (Vec<u64>, Vec<u8>) {
        let operands: Vec<Shape> = operands.iter().map(|dims| shape(dims)).collect();
        merged_axes(&shape(output), &operands.iter().collect::<Vec<_>>())
    }

    #[test]
    fn axes_merge_where_operands_go_on_alike() {
        assert_eq!(axes(&[2, 3, 4], &[&[2, 3, 4], &[2, 3, 4]]), (vec![24], vec![1, 1]));
        assert_eq!(axes(&[2, 3, 4], &[&[2, 3, 4], &[]]), (vec![24], vec![1, 0]));
        assert_eq!(axes(&[2, 3, 4], &[&[2, 3, 4], &[4]]), (vec![4, 6], vec![3, 1]));
        assert_eq!(axes(&[2, 3, 4], &[&[2, 1, 4], &[3, 1]]), (vec![4, 3, 2], vec![5, 2]));
        assert_eq!(axes(&[2, 1, 4], &[&[2, 1, 4], &[1, 4]]), (vec![4, 2], vec![3, 1]));
        assert_eq!(axes(&[1, 1], &[&[1, 1], &[]]), (vec![1], vec![1, 1]));
        assert_eq!(axes(&[65_536, 65_536, 2], &[&[65_536, 65_536, 1], &[2]]), (vec![2, 1 << 32], vec![2, 1]));
    }

    #[test]
    fn the_elementwise_catalogue_is_covered() {
        let here = |op: &Op| op.elementwise && op.def.code != ops::code::reshape;
        let others = [&ops::check_numerics::DEF, &ops::assert::DEF, &ops::random_uniform::DEF];
        for kernel in ops::KERNELS {
            let mine = known(kernel.def).is_some_and(here) || others.iter().any(|other| std::ptr::eq(*other, kernel.def));
            assert_eq!(has_kernel(kernel.def, kernel.dtype), mine, "{} {}", kernel.def.name, kernel.dtype);
        }
    }

    #[test]
    fn an_adam_step_is_one_launch() {
        let (w, scalar) = (TensorType::new(DType::F32, shape(&[300, 2])), TensorType::new(DType::F32, Shape::SCALAR));
        let iterations = TensorType::new(DType::I64, Shape::SCALAR);
        let job =
            Job { op: &ops::adam_step::DEF, attributes: &[1, 2, 3, 4, 5], inputs: &[w, w, w, w, scalar, iterations], outputs: &[w; 3] };
        let calls = lower(&job).unwrap();
        assert_eq!((calls.len(), calls[0].grid, calls[0].arguments.len()), (1, [3, 1, 1], 11));
        assert_eq!(calls[0].code, Code::stored("steps", "adam_step_f32".to_string()));
    }
}
