//! Groups of elementwise nodes, which run as one kernel.

use super::{axes, is_elementwise, launch, stretches};
use crate::lower::Target;
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::program::{Call, Function, Load, Operand, Program};
use gradlet_core::device::{Member, Slot, Source};
use gradlet_core::{Error, Result, ops};

/// The launches of a group, and the places of their inputs and outputs.
pub(crate) struct Grouped {
    pub calls: Vec<KernelCall>,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
}

impl Grouped {
    /// Returns these launches and then those of `next`.
    pub(crate) fn then(mut self, next: Grouped) -> Grouped {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        let after = |operand| match operand {
            Argument::Input(index) => Argument::Input(index + inputs),
            Argument::Output(index) => Argument::Output(index + outputs),
            other => other,
        };
        self.calls.extend(next.calls.into_iter().map(|call| call.with(after)));
        self.inputs.extend(next.inputs);
        self.outputs.extend(next.outputs);
        self
    }
}

/// Lowers the members of a group with `elements` elements.
pub(crate) fn group(elements: usize, members: &[Member], target: &Target) -> Result<Grouped> {
    let (program, axes, inputs, outputs) = program(members, None)?;
    let calls = if elements == 0 { Vec::new() } else { vec![launch(program, elements as u64, &axes, target)] };
    Ok(Grouped { calls, inputs, outputs })
}

/// A program, the lengths of its axes, and the places of its inputs and outputs.
type Placed = (Program, Vec<u64>, Vec<Slot>, Vec<Slot>);

/// Returns the program of a group. A member that does not compute element by element is given. The axes also end where `stretches` do.
pub(crate) fn program(members: &[Member], stretches: Option<Vec<(u64, bool)>>) -> Result<Placed> {
    let mut inputs: Vec<Input> = Vec::new();
    let mut calls: Vec<Call> = Vec::with_capacity(members.len());
    for (index, member) in members.iter().enumerate() {
        if !is_elementwise(member.op) {
            let function = Function::of(&ops::identity::DEF, member.output.dtype).ok_or(Error::Internal)?;
            let given = Operand::Given(members[..index].iter().filter(|member| !is_elementwise(member.op)).count());
            calls.push(Call { function, arguments: vec![given], result: member.output.dtype, kept: member.kept.is_some() });
            continue;
        }
        let arguments: Result<Vec<Operand>> = member.inputs.iter().map(|source| operand(source, index, member, &mut inputs)).collect();
        let dtype = match member.inputs.first().ok_or(Error::Internal)? {
            Source::Memory(slot) => slot.tensor_type.dtype,
            Source::Value { tensor_type, .. } => tensor_type.dtype,
        };
        let function = Function::of(member.op, dtype).ok_or(Error::NoKernel { op: member.op.name, dtype })?;
        calls.push(Call { function, arguments: arguments?, result: member.output.dtype, kept: member.kept.is_some() });
    }
    let whole = members.first().map(|member| super::stretches(&member.output.shape, &member.output.shape));
    let (axes, varies) = axes(&inputs.iter().map(|input| input.stretches.clone()).chain(whole).chain(stretches).collect::<Vec<_>>())?;
    let loads = inputs.iter().zip(varies).map(|(input, varies)| Load { dtype: input.slot.tensor_type.dtype, varies }).collect();
    let outputs = members.iter().filter_map(|member| member.kept).collect();
    Ok((Program::new(axes.len(), loads, calls), axes, inputs.iter().map(|input| input.slot).collect(), outputs))
}

/// A tensor in memory that a group reads, and where it varies.
struct Input {
    slot: Slot,
    stretches: Vec<(u64, bool)>,
}

/// Returns an argument of `member`, which is member `index`. A tensor in memory becomes one of `inputs`, unless it is one already.
fn operand(source: &Source, index: usize, member: &Member, inputs: &mut Vec<Input>) -> Result<Operand> {
    match source {
        Source::Value { member, .. } if *member < index => Ok(Operand::Call(*member)),
        Source::Value { .. } => Err(Error::Internal),
        Source::Memory(slot) => {
            // A tensor with as many elements is not broadcast, whatever its shape.
            let (own, whole) = (&slot.tensor_type.shape, &member.output.shape);
            let stretches = stretches(whole, if own.elements() == whole.elements() { whole } else { own });
            let key = |slot: &Slot| (slot.base, slot.offset, slot.tensor_type.dtype);
            let found = inputs.iter().position(|input| key(&input.slot) == key(slot) && input.stretches == stretches);
            if found.is_none() {
                inputs.push(Input { slot: *slot, stretches });
            }
            Ok(Operand::Load(found.unwrap_or(inputs.len() - 1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{DType, Shape, TensorType};

    fn tensor(dims: &[u32]) -> TensorType {
        TensorType::new(DType::F32, Shape::new(dims).unwrap())
    }

    fn slot(dims: &[u32], offset: u64) -> Slot {
        Slot { tensor_type: tensor(dims), base: 0, offset }
    }

    #[test]
    fn a_group_reads_once_and_stores_what_is_kept() {
        let (x, bias, y, z) = (slot(&[6, 4], 0), slot(&[4], 96), slot(&[6, 4], 112), slot(&[6, 4], 208));
        let value = |member| Source::Value { member, tensor_type: tensor(&[24]) };
        let member = |op, inputs, kept| Member { op, attributes: Vec::new(), inputs, output: tensor(&[6, 4]), kept };
        let members = [
            member(&ops::add::DEF, vec![Source::Memory(x), Source::Memory(bias)], None),
            member(&ops::relu::DEF, vec![value(0)], Some(y)),
            member(&ops::mul::DEF, vec![value(1), Source::Memory(x)], Some(x)),
            member(&ops::sub::DEF, vec![value(2), Source::Memory(slot(&[6, 1], 96))], Some(z)),
        ];
        let Grouped { mut calls, inputs, outputs } = group(24, &members, &Target::ORIN).unwrap();
        let call = calls.remove(0);
        assert_eq!((inputs.len(), outputs.len()), (3, 3));
        assert_eq!((inputs[1].offset, outputs[0].offset, outputs[1].offset), (96, 112, 0));
        // The number of elements, the length of the inner axis, and the operands.
        assert_eq!(call.arguments.len(), 8);
        let crate::ptx::Code::Elementwise(program) = call.code else { panic!("{:?}", call.code) };
        assert_eq!(program.loads.iter().map(|load| load.varies).collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(program.calls[2].arguments, [Operand::Call(1), Operand::Load(0)]);
    }
}
