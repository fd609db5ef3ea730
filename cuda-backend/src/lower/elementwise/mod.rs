//! Ops that compute element by element, alone or in groups. Their kernels are [`Program`]s. And steps of optimizers, checks and random
//! numbers, whose kernels are in `kernels/steps.cu`.

mod group;
mod segments;

pub(crate) use group::{Grouped, group, program};
pub(crate) use segments::{Segment, Work, segment};

use super::{Family, Job, Target};
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::ptx::program::{Call, Function, Load, Operand, Program, known, moves};
use crate::ptx::{self, Code};
use gradlet_core::custom_op::OpDef;
use gradlet_core::{DType, Error, Result, Shape, TensorType, ops};

pub(super) const FAMILY: Family = Family { has_kernel, lower };

fn has_kernel(op: &OpDef, dtype: DType, _: &Target) -> bool {
    // Alone, an op that only moves elements has a kernel for that.
    known(op).is_some() && (!moves(op) && Function::of(op, dtype).is_some() || ptx::is_stored("steps", &entry(op, dtype)))
}

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let call = match single(job)? {
        Some((program, axes)) => launch(program, elements(job.outputs.first().ok_or(Error::Internal)?)?, &axes, &job.target),
        None => step(job)?,
    };
    Ok(vec![call])
}

/// True if the op computes element by element.
pub(crate) fn is_elementwise(op: &OpDef) -> bool {
    known(op).is_some_and(|known| known.elementwise || moves(op))
}

/// Returns the program of an op that is a function of each element of its inputs, which broadcast, and the lengths of its axes. Returns
/// `None` for other ops.
fn single(job: &Job<'_>) -> Result<Option<(Program, Vec<u64>)>> {
    let Some(function) = Function::of(job.op, job.dtype()) else { return Ok(None) };
    let output = job.outputs.first().ok_or(Error::Internal)?;
    let operands = job.inputs.iter().map(|input| stretches(&output.shape, &input.shape));
    let (axes, varies) = axes(&operands.collect::<Vec<_>>())?;
    let loads = job.inputs.iter().zip(varies).map(|(input, varies)| Load { dtype: input.dtype, varies }).collect();
    let arguments = (0..job.inputs.len()).map(Operand::Load).collect();
    let calls = vec![Call { function, arguments, result: output.dtype, kept: true }];
    Ok(Some((Program::new(axes.len(), loads, calls), axes)))
}

/// Returns where an operand varies that is broadcast to a result of shape `output`, from the innermost axis on: stretches of elements by
/// their sizes, and whether the operand varies from the end of one to that of the next.
fn stretches(output: &Shape, operand: &Shape) -> Vec<(u64, bool)> {
    let (mut stretches, mut size) = (Vec::<(u64, bool)>::new(), 1);
    for (back, &dim) in output.dims().iter().rev().enumerate().filter(|(_, dim)| **dim != 1) {
        let varies = operand.back(back).is_some_and(|own| own != 1);
        size *= u64::from(dim);
        match stretches.last_mut().filter(|last| last.1 == varies) {
            Some(last) => last.0 = size,
            None => stretches.push((size, varies)),
        }
    }
    // One element is nothing to vary, unless it is all there is.
    if stretches.is_empty() { vec![(1, true)] } else { stretches }
}

/// Divides the elements of a result into axes, innermost first, along each of which an operand either varies or stays at one element.
/// Returns their lengths, and for each operand the axes along which it varies, as bits. Fails if the stretches of the operands do not fit
/// each other.
fn axes(operands: &[Vec<(u64, bool)>]) -> Result<(Vec<u64>, Vec<u8>)> {
    let mut ends: Vec<u64> = operands.iter().flatten().map(|&(end, _)| end).collect();
    ends.sort_unstable();
    ends.dedup();
    let lengths = [1].iter().chain(&ends).zip(&ends).map(|(inner, end)| (end.checked_rem(*inner) == Some(0)).then(|| end / inner));
    let lengths = lengths.collect::<Option<Vec<u64>>>().filter(|lengths| (1..=8).contains(&lengths.len())).ok_or(Error::Internal)?;
    let varies = |stretches: &Vec<(u64, bool)>| {
        let at = |end: u64| stretches.iter().find(|stretch| stretch.0 >= end).is_some_and(|stretch| stretch.1);
        ends.iter().enumerate().map(|(axis, &end)| u8::from(at(end)) << axis).sum()
    };
    Ok((lengths, operands.iter().map(varies).collect()))
}

/// Returns the launch of a program for `elements` elements, in axes of these lengths. The operands are those of the program, in its order.
fn launch(program: Program, elements: u64, axes: &[u64], target: &Target) -> KernelCall {
    let program = if elements < few(target) { program } else { program.with_lanes(&axes[..1]) };
    let outputs = program.stored().count();
    let mut arguments = vec![Argument::Wide(elements)];
    // The program does not need the length of the outermost axis.
    arguments.extend(axes.iter().take(program.axes - 1).map(|&length| Argument::Wide(length)));
    arguments.extend((0..program.loads.len()).map(Argument::Input));
    arguments.extend((0..outputs).map(Argument::Output));
    let blocks = elements.div_ceil(program.lanes as u64 * u64::from(BLOCK)).clamp(1, most_blocks(target)) as u32;
    KernelCall { code: Code::Elementwise(program), grid: [blocks, 1, 1], block: [BLOCK, 1, 1], shared: 0, arguments }
}

/// Number of elements below which each thread computes one: half of the threads that the GPU runs at once. All loads are then on their way
/// at the same time, and the least code is the best.
fn few(target: &Target) -> u64 {
    1024 * u64::from(target.multiprocessors)
}

/// Largest number of blocks, whose threads loop: about four for each one that the GPU runs at once. While some of them begin or end,
/// others keep the memory busy.
fn most_blocks(target: &Target) -> u64 {
    32 * u64::from(target.multiprocessors)
}

/// Lowers an op that has a kernel of its own.
fn step(job: &Job<'_>) -> Result<KernelCall> {
    // A check has no output, and random numbers have the elements of theirs.
    let tensor = job.outputs.first().or(job.inputs.first()).ok_or(Error::Internal)?;
    let elements = elements(tensor)?;
    if job.op.code == ops::code::adam_step {
        return Ok(Work::Adam(job.dtype(), job.attributes.to_vec()).launch(&[elements], &job.target));
    }
    // A thread computes four random numbers.
    let threads = if job.op.code == ops::code::random_uniform { elements.div_ceil(4) } else { elements };
    let mut arguments = vec![Argument::Wide(elements)];
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

    fn divided(output: &[u32], operands: &[&[u32]]) -> (Vec<u64>, Vec<u8>) {
        axes(&operands.iter().map(|dims| stretches(&shape(output), &shape(dims))).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn axes_merge_where_operands_go_on_alike() {
        assert_eq!(divided(&[2, 3, 4], &[&[2, 3, 4], &[2, 3, 4]]), (vec![24], vec![1, 1]));
        assert_eq!(divided(&[2, 3, 4], &[&[2, 3, 4], &[]]), (vec![24], vec![1, 0]));
        assert_eq!(divided(&[2, 3, 4], &[&[2, 3, 4], &[4]]), (vec![4, 6], vec![3, 1]));
        assert_eq!(divided(&[2, 3, 4], &[&[2, 1, 4], &[3, 1]]), (vec![4, 3, 2], vec![5, 2]));
        assert_eq!(divided(&[2, 1, 4], &[&[2, 1, 4], &[1, 4]]), (vec![4, 2], vec![3, 1]));
        assert_eq!(divided(&[1, 1], &[&[1, 1], &[]]), (vec![1], vec![1, 1]));
        assert_eq!(divided(&[65_536, 65_536, 2], &[&[65_536, 65_536, 1], &[2]]), (vec![2, 1 << 32], vec![2, 1]));
    }

    #[test]
    fn stretches_of_several_shapes_fit_or_not() {
        let stretches = |output: &[u32], operand: &[u32]| stretches(&shape(output), &shape(operand));
        let rows = [stretches(&[6, 4], &[6, 1]), stretches(&[24], &[24]), stretches(&[2, 3, 4], &[3, 1])];
        assert_eq!(axes(&rows).unwrap(), (vec![4, 3, 2], vec![6, 7, 2]));
        assert!(axes(&[stretches(&[6, 4], &[4]), stretches(&[4, 6], &[6])]).is_err());
        assert!(axes(&[]).is_err());
    }

    #[test]
    fn the_elementwise_catalogue_is_covered() {
        let here = |op: &Op| op.elementwise && !moves(op.def);
        let others = [&ops::check_numerics::DEF, &ops::assert::DEF, &ops::random_uniform::DEF];
        for kernel in ops::KERNELS {
            let mine = known(kernel.def).is_some_and(here) || others.iter().any(|other| std::ptr::eq(*other, kernel.def));
            assert_eq!(has_kernel(kernel.def, kernel.dtype, &Target::ORIN), mine, "{} {}", kernel.def.name, kernel.dtype);
        }
    }

    #[test]
    fn an_adam_step_is_one_launch() {
        let (w, scalar) = (TensorType::new(DType::F32, shape(&[300, 2])), TensorType::new(DType::F32, Shape::SCALAR));
        let iterations = TensorType::new(DType::I64, Shape::SCALAR);
        let inputs = [w, w, w, w, scalar, iterations];
        let target = Target::ORIN;
        let job = Job { op: &ops::adam_step::DEF, attributes: &[1, 2, 3, 4, 5], inputs: &inputs, outputs: &[w; 3], target };
        let calls = lower(&job).unwrap();
        assert_eq!((calls.len(), calls[0].grid, calls[0].arguments.len()), (1, [1, 1, 1], 3));
        assert_eq!(calls[0].code, Code::stored("steps", "adam_step_f32".to_string()));
    }
}
