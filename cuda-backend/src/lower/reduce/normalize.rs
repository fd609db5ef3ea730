//! Rows that are normalized by their mean and variance in one pass, for devices that are not strict: the mean, the variance, and all that
//! is computed of them and of the elements.

use super::Groups;
use super::fast::{Shape, looping};
use super::group::divided;
use crate::lower::Target;
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::lower::elementwise::{self, Grouped, is_elementwise};
use crate::ptx::Code;
use crate::ptx::opening::Opening;
use gradlet_core::device::{Member, Slot, Source};
use gradlet_core::{DType, Error, Result, TensorType};

/// Numbers of elements that a thread of a kernel holds.
const HELD: [u64; 2] = [8, 16];
/// Largest number of elements of a row. The cache has the longer ones for the second time that they are read.
const LONGEST: u64 = 1 << 16;

/// True if these members normalize rows: some that compute the elements, if they are not in memory, the four of
/// [`moments`](super::moments), and others.
pub(crate) fn are(members: &[Member]) -> bool {
    let reductions = members.iter().filter(|member| !is_elementwise(member.op)).count();
    reductions == 2 && members.last().is_some_and(|last| is_elementwise(last.op))
}

/// Lowers members that normalize rows. Fails if there is no kernel for them.
pub(crate) fn group(members: &[Member], target: &Target) -> Result<Grouped> {
    let at = members.iter().position(|member| !is_elementwise(member.op)).ok_or(Error::Internal)?;
    let (others, [mean, difference, _, variance, rest @ ..]) = members.split_at(at) else { return Err(Error::Internal) };
    let (slot, value) = match mean.inputs[..] {
        [Source::Memory(slot)] => (slot, None),
        [Source::Value { member, tensor_type }] => {
            let place = others.get(member).and_then(|other| other.kept).ok_or(Error::Internal)?;
            (Slot { tensor_type, ..place }, Some(member))
        }
        _ => return Err(Error::Internal),
    };
    let refused = Error::NoKernel { op: mean.op.name, dtype: slot.tensor_type.dtype };
    let axes = mean.attributes.get(1..).unwrap_or(&[]);
    let shape = Shape::new(&Groups::new(slot.tensor_type.shape.dims(), axes)).ok_or(refused.clone())?;
    if target.strict || slot.tensor_type.dtype != DType::F32 || shape.inner > 1 || shape.extent > LONGEST {
        return Err(refused);
    }
    let rows = Rows { x: slot, value, axes, moments: at, count: shape.outer as usize };
    let (own, by_row) = rows.members([mean, difference, variance], rest).ok_or(refused)?;
    let ends = [shape.extent, shape.extent, shape.extent * shape.outer];
    let stretches = vec![(ends[0], true), (ends[2], false)];
    let (program, lengths, inputs, outputs) = elementwise::program(&own, Some(stretches))?;
    let sizes = lengths.iter().take(lengths.len() - 1).map(|&length| Argument::Wide(length));
    let operands = (0..inputs.len()).map(|index| Argument::Input(index + 1)).chain((0..outputs.len()).map(Argument::Output));
    // Four neighbours are one access, if they are neighbours in all tensors, and have at most 16 bytes.
    let mut types = program.loads.iter().map(|load| load.dtype).chain(program.stored().map(|call| call.result));
    let kind = if lengths[0] % 4 == 0 && types.all(|dtype| dtype.size() <= 4) { "wide_" } else { "" };
    drop(types);
    let held = HELD.into_iter().find(|held| shape.extent <= held * u64::from(BLOCK)).unwrap_or(HELD[1]);
    let members = shape.extent.div_ceil(HELD[0]).next_power_of_two().min(BLOCK.into());
    let words = [shape.extent, members].map(|number| Argument::Words(vec![number as u32]));
    let arguments = [Argument::Input(0), Argument::Wide(shape.outer)].into_iter().chain(words);
    let opening = Opening { axes: divided(&lengths, ends), program, by_row };
    let call = KernelCall {
        code: Code::Opened { file: "moments", entry: format!("normalize_{kind}{held}_f32"), opening },
        grid: [looping(shape.outer.div_ceil(u64::from(BLOCK) / members), target), 1, 1],
        block: [BLOCK, 1, 1],
        shared: 0,
        arguments: arguments.chain(sizes).chain(operands).collect(),
    };
    let own = Grouped { calls: vec![call], inputs: [vec![slot], inputs].concat(), outputs };
    if others.is_empty() {
        Ok(own)
    } else {
        Ok(elementwise::group(slot.tensor_type.shape.elements().unwrap_or(0), others, target)?.then(own))
    }
}

/// The rows of a tensor.
struct Rows<'r> {
    x: Slot,
    /// The member whose value they are, if they are not in memory before.
    value: Option<usize>,
    axes: &'r [u32],
    /// The first of the four members that find the moments.
    moments: usize,
    count: usize,
}

impl Rows<'_> {
    /// Returns the members of the kernel's program, and how many of them have one result for each row: the moments, which are given, and
    /// those of `rest`. Then follow the rows, which are given too, and the members with a result for each element. Returns `None` if one
    /// has other results or reads something else.
    fn members(&self, [mean, difference, variance]: [&Member; 3], rest: &[Member]) -> Option<(Vec<Member>, usize)> {
        let elements = |tensor_type: &TensorType| tensor_type.shape.elements();
        let (all, count) = (elements(&self.x.tensor_type)?, self.count);
        let is_row = |member: &&Member| elements(&member.output) == Some(count);
        let by_row = 2 + rest.iter().filter(is_row).count();
        // The new number of each member.
        let mut numbers = vec![None; self.moments];
        if let Some(value) = self.value {
            numbers[value] = Some(by_row);
        }
        let stored = usize::from(difference.kept.is_some());
        numbers.extend([Some(0), (stored > 0).then_some(by_row + 1), None, Some(1)]);
        let [mut row, mut element] = [2, by_row + 1 + stored];
        for member in rest {
            let next = if is_row(&member) { &mut row } else { &mut element };
            numbers.push(Some(*next));
            *next += 1;
        }
        let given = |member: &Member| Member { inputs: Vec::new(), output: self.x.tensor_type, ..member.clone() };
        let mut own = vec![given(mean), given(variance)];
        for member in rest.iter().filter(is_row) {
            let inputs = member.inputs.iter().map(|source| self.of_row(source, &numbers)).collect::<Option<_>>()?;
            let output = TensorType::new(member.output.dtype, self.x.tensor_type.shape);
            own.push(Member { inputs, output, ..member.clone() });
        }
        own.push(Member { kept: None, ..given(mean) });
        for member in [difference].into_iter().take(stored).chain(rest.iter().filter(|member| !is_row(member))) {
            let inputs = member.inputs.iter().map(|source| self.of_element(source, member, by_row, &numbers)).collect::<Option<_>>()?;
            own.push(Member { inputs, ..member.clone() });
            (elements(&member.output) == Some(all)).then_some(())?;
        }
        Some((own, by_row))
    }

    /// Returns an input of a member with a result for each row.
    fn of_row(&self, source: &Source, numbers: &[Option<usize>]) -> Option<Source> {
        match *source {
            Source::Value { member, tensor_type } => Some(Source::Value { member: (*numbers.get(member)?)?, tensor_type }),
            Source::Memory(slot) => match slot.tensor_type.shape.elements()? {
                1 => Some(*source),
                count if count == self.count => {
                    Some(Source::Memory(Slot { tensor_type: kept(&self.x.tensor_type, slot.tensor_type.dtype, self.axes)?, ..slot }))
                }
                _ => None,
            },
        }
    }

    /// Returns an input of a member with a result for each element. Values of rows are read along the rows.
    fn of_element(&self, source: &Source, member: &Member, by_row: usize, numbers: &[Option<usize>]) -> Option<Source> {
        let shape = &self.x.tensor_type.shape;
        match *source {
            Source::Value { member: value, tensor_type } => {
                let number = (*numbers.get(value)?)?;
                let along =
                    || Some(tensor_type) == kept(&self.x.tensor_type, tensor_type.dtype, self.axes) && member.output.shape == *shape;
                (number >= by_row || along()).then_some(Source::Value { member: number, tensor_type })
            }
            Source::Memory(slot) => {
                let own = &slot.tensor_type;
                let is_x = (slot.base, slot.offset, own) == (self.x.base, self.x.offset, &TensorType::new(DType::F32, own.shape));
                let whole = own.shape.elements() == shape.elements();
                let read = if is_x && whole { Source::Value { member: by_row, tensor_type: *own } } else { *source };
                (whole || own.shape.elements() == Some(1) || member.output.shape == *shape).then_some(read)
            }
        }
    }
}

/// Returns the type of a tensor that has dimension 1 along these axes of `x`, and otherwise the dimensions of `x`.
pub(crate) fn kept(x: &TensorType, dtype: DType, axes: &[u32]) -> Option<TensorType> {
    let dims = (0..).zip(x.shape.dims()).map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim });
    Some(TensorType::new(dtype, gradlet_core::Shape::new(&dims.collect::<Vec<u32>>()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::assert_assembles;
    use gradlet_core::custom_op::OpDef;
    use gradlet_core::{Shape, ops};

    fn slot(dims: &[u32], offset: u64) -> Slot {
        Slot { tensor_type: TensorType::new(DType::F32, Shape::new(dims).unwrap()), base: 0, offset: offset << 32 }
    }

    fn member(op: &'static OpDef, attributes: &[u32], inputs: &[Source], output: &Slot, kept: bool) -> Member {
        let (attributes, kept) = (attributes.to_vec(), kept.then_some(*output));
        Member { op, attributes, inputs: inputs.to_vec(), output: output.tensor_type, kept }
    }

    /// Lowers layer normalization of rows. The differences are stored, and the factors are read in this shape.
    fn lowered(rows: u32, extent: u32, factors: &[u32]) -> Result<Grouped> {
        let (x, row, gamma) = (slot(&[rows, extent], 0), slot(&[rows, 1], 1), slot(&[extent], 2));
        let value = |member, slot: &Slot| Source::Value { member, tensor_type: slot.tensor_type };
        let memory = Source::Memory;
        let members = [
            member(&ops::mean::DEF, &[1, 1], &[memory(x)], &row, true),
            member(&ops::sub::DEF, &[], &[memory(x), value(0, &row)], &slot(&[rows, extent], 3), true),
            member(&ops::mul::DEF, &[], &[value(1, &x), value(1, &x)], &x, false),
            member(&ops::mean::DEF, &[1, 1], &[value(2, &x)], &slot(&[rows, 1], 4), true),
            member(&ops::add::DEF, &[], &[value(3, &row), memory(slot(&[], 5))], &row, false),
            member(&ops::rsqrt::DEF, &[], &[value(4, &row)], &slot(&[rows, 1], 6), true),
            member(&ops::mul::DEF, &[], &[value(5, &slot(factors, 0)), memory(gamma)], &x, false),
            member(&ops::mul::DEF, &[], &[memory(x), value(6, &x)], &slot(&[rows, extent], 7), true),
        ];
        assert!(are(&members));
        group(&members, &Target { strict: false, ..Target::ORIN })
    }

    #[test]
    fn a_normalization_is_one_launch() {
        let Grouped { calls, inputs, outputs } = lowered(500, 4096, &[500, 1]).unwrap();
        let [KernelCall { code: Code::Opened { entry, opening, .. }, grid, .. }] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!((entry.as_str(), grid, opening.by_row, opening.axes), ("normalize_wide_16_f32", &[500, 1, 1], 4, [1, 0, 1]));
        // The rows, a number and the factors of columns. Mean, variance, factors of rows; differences and results.
        assert_eq!((inputs.len(), outputs.iter().map(|slot| slot.offset >> 32).collect::<Vec<_>>()), (3, vec![1, 4, 6, 3, 7]));
        let reads: Vec<u8> = opening.program.loads.iter().map(|load| load.varies).collect();
        assert_eq!(reads, [0, 1]);
    }

    #[test]
    fn values_of_rows_are_read_along_rows() {
        assert!(lowered(64, 64, &[64, 1]).is_ok());
        assert!(lowered(64, 64, &[64]).is_err() && lowered(64, 64, &[1, 64]).is_err());
        assert!(lowered(2, 1 << 17, &[2, 1]).is_err());
    }

    /// No instruction is left that the host should have replaced. If there is an assembler, it takes the kernels, and nothing spills.
    #[test]
    fn rows_are_filled() {
        for extent in [100, 4096, 9000] {
            let (text, entry) = lowered(300, extent, &[300, 1]).unwrap().calls[0].code.ptx(true).unwrap();
            assert!(!text.contains("// row"), "{entry}");
            assert_assembles(&entry, &text);
        }
    }
}
