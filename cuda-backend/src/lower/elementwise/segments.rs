//! Launches that do the same work on several segments, which are independent sets of tensors: a step of an optimizer on all variables.

use super::{entry, few, group, is_elementwise, most_blocks, single};
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::lower::{Job, Target};
use crate::ptx::Code;
use crate::ptx::program::Program;
use gradlet_core::device::{Slot, Step};
use gradlet_core::{DType, Result, TensorType, ops};

/// Number of segments in the table of the kernel `adam_step`, and the words of 64 bits that each of them has.
const ADAM_SEGMENTS: usize = 40;
const ADAM_WORDS: usize = 12;
/// Largest number of words of a table. A kernel has at most 4 KiB of parameters.
const MAX_WORDS: usize = 500;

/// Work of a launch on the tensors of each segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    /// A program with one axis, of one segment and one lane.
    Program(Program),
    /// A step of Adam on variables of this element type, with these attributes.
    Adam(DType, Vec<u32>),
}

/// The tensors of a segment. Each output has `elements` elements.
pub(crate) struct Segment {
    pub elements: u64,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
}

/// Returns the work of a step and the step's tensors. Returns `None` if no other step can join it in a launch.
pub(crate) fn segment(step: &Step, target: &Target) -> Result<Option<(Work, Segment)>> {
    let (work, inputs, outputs) = match step {
        Step::Group { members, .. } if members.iter().any(|member| !is_elementwise(member.op)) => return Ok(None),
        Step::Group { members, .. } => {
            let (program, _, inputs, outputs) = group::program(members, None)?;
            (Work::Program(program), inputs, outputs)
        }
        Step::Op(op) => {
            let types = |slots: &[Slot]| slots.iter().map(|slot| slot.tensor_type).collect::<Vec<TensorType>>();
            let (inputs, outputs) = (types(&op.inputs), types(&op.outputs));
            if outputs.iter().any(|output| output.bytes() == Some(0)) {
                return Ok(None);
            }
            let job = Job { op: op.op, attributes: &op.attributes, inputs: &inputs, outputs: &outputs, target: *target };
            let work = match single(&job)? {
                Some((program, _)) => Work::Program(program),
                None if op.op.code == ops::code::adam_step => Work::Adam(job.dtype(), op.attributes.clone()),
                None => return Ok(None),
            };
            (work, op.inputs.clone(), op.outputs.clone())
        }
    };
    let elements = outputs.first().and_then(|slot| slot.tensor_type.shape.elements()).unwrap_or(0) as u64;
    let joins = match &work {
        Work::Program(program) => program.axes == 1 && program.calls.iter().all(|call| !call.function.refuses),
        Work::Adam(..) => true,
    };
    Ok((joins && elements > 0).then_some((work, Segment { elements, inputs, outputs })))
}

impl Work {
    /// Returns the largest number of segments of a launch.
    pub(crate) fn most_segments(&self) -> usize {
        match self {
            Work::Program(program) => MAX_WORDS / program.words(),
            Work::Adam(..) => ADAM_SEGMENTS,
        }
    }

    /// Returns the launch for segments with these numbers of elements. The operands of the segments follow each other.
    pub(crate) fn launch(&self, elements: &[u64], target: &Target) -> KernelCall {
        match self {
            Work::Program(program) => {
                let many = elements.iter().sum::<u64>() >= few(target);
                let mut program = if many { program.clone().with_lanes(elements) } else { program.clone() };
                program.segments = elements.len();
                let (inputs, outputs) = (program.loads.len(), program.stored().count());
                let (table, blocks) = table(elements, program.lanes as u64, inputs, outputs, target);
                call(Code::Elementwise(program), blocks, vec![Argument::Structure(table)])
            }
            Work::Adam(dtype, attributes) => {
                let lanes = 16 / dtype.size() as u64;
                let (mut table, blocks) = table(elements, lanes, 6, 3, target);
                table.resize_with(ADAM_SEGMENTS * ADAM_WORDS, || Argument::Wide(0));
                let count = Argument::Words(vec![elements.len() as u32]);
                let arguments = vec![Argument::Words(attributes.clone()), count, Argument::Structure(table)];
                call(Code::stored("steps", entry(&ops::adam_step::DEF, *dtype)), blocks, arguments)
            }
        }
    }
}

fn call(code: Code, blocks: u64, arguments: Vec<Argument>) -> KernelCall {
    KernelCall { code, grid: [blocks as u32, 1, 1], block: [BLOCK, 1, 1], shared: 0, arguments }
}

/// Returns the table of segments with these numbers of elements and operands, and the number of all blocks. A segment has the number of its
/// first block, those of its blocks and elements, and its operands. The threads of all blocks have about as many elements, `lanes` at a
/// time.
fn table(elements: &[u64], lanes: u64, inputs: usize, outputs: usize, target: &Target) -> (Vec<Argument>, u64) {
    let vectors = elements.iter().map(|elements| elements.div_ceil(lanes));
    let of_a_block = vectors.clone().sum::<u64>().div_ceil(most_blocks(target)).next_multiple_of(BLOCK.into());
    let (mut table, mut first) = (Vec::new(), 0);
    for (segment, (&elements, vectors)) in elements.iter().zip(vectors).enumerate() {
        let blocks = vectors.div_ceil(of_a_block);
        table.extend([first, blocks, elements].map(Argument::Wide));
        table.extend((0..inputs).map(|input| Argument::Input(segment * inputs + input)));
        table.extend((0..outputs).map(|output| Argument::Output(segment * outputs + output)));
        first += blocks;
    }
    (table, first)
}
