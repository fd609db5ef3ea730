//! The reverse of the writer: reads a signature back as a graph, so that a device with a compiler of its own can run it.
//!
//! Instructions read and write memory. The lifter follows them in order and keeps, for each place in memory, the value that was written
//! there last. A read of a place is then a reference to that value. A read with another shape is a reshape, because the planner lets views
//! share their input's bytes. A body of a branch or a loop works in the memory of the surrounding block: the places that it reads before it
//! writes them become the inputs of the branch or loop, and the places that the block's record names are its outputs.

use crate::base::error::{Error, Result};
use crate::base::op::OpCode;
use crate::base::quantization::AffineQuantization;
use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::compile::pools::divide_pools;
use crate::function::{ConcreteFunction, TensorSpec};
use crate::host::kernel_step::Scratch;
use crate::ops;
use crate::runtime::program::{BlockRecord, InstructionRecord, MAX_DEPTH, Program, Space, TensorRecord, part};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::{Capture, Captured, Graph, Node, Origin, ValueId};
use crate::tensor::scope::Op;
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// Returns the loaded signature `name` of a program as a function on `device`, over `variables`, which correspond to the program's. The ops
/// must be gradlet's own.
///
/// Fails if there is no such signature, or if it reads memory that nothing has written.
///
/// ```
/// use gradlet_core::{Artifact, Eager, Function, Program, Scope, Tensor, artifact, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
/// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
/// let mut written = Artifact::new();
/// written.signature("double", &*double.concrete(&scope, &x)?, &["x"], &["y"])?;
/// let bytes = written.to_bytes()?;
///
/// let program = Program::load(&bytes, ops::KERNELS, &["double"])?;
/// let double = artifact::function(&program, "double", &[], &scope.device())?;
/// assert_eq!(double.run(&[x])?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub fn function(program: &Program<'_>, name: &str, variables: &[Variable], device: &Device) -> Result<ConcreteFunction> {
    let record = program.signatures.get(program.signature(name)?.0 as usize).ok_or(Error::UnknownSignature)?;
    let block = program.blocks.get(record.block as usize).ok_or(Error::UnknownSignature)?;
    let context = |error: Error| error.context(format!("signature {name:?}"));
    let shared = Common { left: Cell::new(program.instructions.len() + program.operands.len()), constants: RefCell::default() };
    let mut lifter = Lifter { variables: Some(variables), ..Lifter::new(program, device, &shared) };
    lifter.signature(block).map_err(context)?;
    let mut graph = lifter.graph;
    divide_pools(&mut graph)?;
    let names = (record.input_names..).map_while(|index| program.name_bytes(index));
    let specs = graph.inputs.iter().zip(names).map(|(&id, name)| {
        let spec = TensorSpec::from(graph.values[id].tensor_type);
        spec.named(&String::from_utf8_lossy(name))
    });
    let specs = specs.collect();
    let mut function = ConcreteFunction::new(name, graph, device.clone(), Shared::new(Scratch::new(name)))?;
    function.signature = specs;
    Ok(function)
}

/// Bytes in memory that instructions can write: a range of scratch memory, or a variable.
#[derive(Clone, PartialEq, Eq)]
enum Place {
    Scratch(Range<u32>),
    Variable(u32),
    /// No bytes. The number tells the states of a loop apart.
    Empty(usize),
}

impl Place {
    fn meets(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Scratch(one), Place::Scratch(other)) => one.start < other.end && other.start < one.end,
            (Place::Variable(one), Place::Variable(other)) => one == other,
            _ => false,
        }
    }
}

struct Lifter<'l, 'p> {
    program: &'l Program<'p>,
    device: &'l Device,
    /// The variables of the whole program, or `None` in a body, whose variables are inputs.
    variables: Option<&'l [Variable]>,
    graph: Graph,
    /// The places that hold a value.
    held: Vec<(Place, ValueId)>,
    /// In a body, the places that it reads before it writes them, with their types, in the order of the graph's inputs.
    asked: Vec<(Place, TensorType)>,
    /// The indices of the captured variables, in the order of the graph's captures.
    captured: Vec<u32>,
    /// The places that were written.
    written: Vec<Place>,
    depth: usize,
    common: &'l Common,
}

/// State of a lifter and of those of all bodies.
struct Common {
    /// Number of instructions and operands that may still be read, in case an artifact refers to some of them again and again.
    left: Cell<usize>,
    /// The constants on the device, with their places in flash.
    constants: RefCell<Vec<(u32, Tensor)>>,
}

impl Common {
    /// Subtracts `count` from the number that may still be read.
    fn charge(&self, count: usize) -> Result<()> {
        let again = || Error::message("the artifact uses its instructions or operands more than once");
        self.left.set(self.left.get().checked_sub(count).ok_or_else(again)?);
        Ok(())
    }
}

impl<'l, 'p> Lifter<'l, 'p> {
    fn new(program: &'l Program<'p>, device: &'l Device, common: &'l Common) -> Lifter<'l, 'p> {
        let (held, asked, captured, written) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Lifter { program, device, variables: None, graph: Graph::default(), held, asked, captured, written, depth: 0, common }
    }

    fn signature(&mut self, block: &BlockRecord) -> Result<()> {
        for (index, &operand) in self.program.inputs(block).iter().enumerate() {
            let (place, tensor_type) = self.place(operand)?;
            let id = self.graph.value(tensor_type, Origin::Input(index));
            self.graph.inputs.push(id);
            self.scale(id, operand);
            self.hold(place, id);
        }
        self.instructions(self.program.block_instructions(block))?;
        let outputs = self.program.outputs(block);
        self.graph.outputs = self.read_all(outputs)?;
        for (index, &operand) in outputs.iter().enumerate() {
            self.scale(self.graph.outputs[index], operand);
        }
        for (place, id) in self.held.clone() {
            let Place::Variable(index) = place else { continue };
            let capture = match self.captured.iter().position(|&other| other == index) {
                Some(capture) => capture,
                None => {
                    self.capture(index)?;
                    self.captured.len() - 1
                }
            };
            let initial = self.graph.captures[capture].initial;
            if id != initial {
                // A variable keeps its shape, even if a view of it was written.
                self.graph.captures[capture].assigned = Some(self.viewed(id, self.graph.values[initial].tensor_type)?);
            }
        }
        Ok(())
    }

    fn instructions(&mut self, instructions: &[InstructionRecord]) -> Result<()> {
        instructions.iter().try_for_each(|instruction| {
            self.common.charge(1 + usize::from(instruction.inputs) + usize::from(instruction.outputs))?;
            let record = self.program.kernel_records.get(usize::from(instruction.kernel)).ok_or(Error::Internal)?;
            let op = op(OpCode(record.op)).ok_or_else(|| Error::message(format!("op {} is not one of gradlet's", record.op)))?;
            match op.def.code {
                ops::code::cond => self.branch(op, instruction),
                ops::code::while_loop => self.repeat(op, instruction),
                _ => self.instruction(op, instruction),
            }
        })
    }

    fn instruction(&mut self, op: &'static Op, instruction: &InstructionRecord) -> Result<()> {
        let (inputs, outputs) = self.operands(instruction);
        let inputs = self.read_all(inputs)?;
        // A copy that the planner made is another name of the same value.
        if op.def.code == ops::code::identity
            && let (&[input], &[output]) = (inputs.as_slice(), outputs)
        {
            let (place, tensor_type) = self.place(output)?;
            let id = self.viewed(input, tensor_type)?;
            self.hold(place, id);
            return Ok(());
        }
        let places = outputs.iter().map(|&output| self.place(output)).collect::<Result<Vec<_>>>()?;
        self.node(Node::new(op, self.program.attributes(instruction).to_vec(), inputs, Vec::new()), places);
        Ok(())
    }

    fn branch(&mut self, op: &'static Op, instruction: &InstructionRecord) -> Result<()> {
        let (by, _) = self.operands(instruction);
        let by = self.read_all(by)?;
        let blocks = self.program.attributes(instruction).iter().map(|&block| self.block(block)).collect::<Result<Vec<_>>>()?;
        let results = self.program.outputs(blocks.first().ok_or(Error::Internal)?);
        let mut bodies = Vec::new();
        for block in &blocks {
            let mut body = self.body();
            body.instructions(self.program.block_instructions(block))?;
            body.graph.outputs = body.read_all(results)?;
            bodies.push(body);
        }
        self.control(op, Vec::new(), by, bodies, results)
    }

    fn repeat(&mut self, op: &'static Op, instruction: &InstructionRecord) -> Result<()> {
        let (by, _) = self.operands(instruction);
        let &[condition, body, most] = self.program.attributes(instruction) else { return Err(Error::Internal) };
        let (condition, body) = (self.block(condition)?, self.block(body)?);
        let states = self.program.outputs(body);
        let places = states.iter().map(|&state| Ok(self.place(state)?.0)).collect::<Result<Vec<_>>>()?;
        if (0..places.len()).any(|index| places[..index].iter().any(|other| other.meets(&places[index]))) {
            return Err(Error::message("two states of a loop share memory"));
        }
        let mut inner = [self.body(), self.body()];
        for (index, &state) in states.iter().enumerate() {
            let (place, tensor_type) = self.place(state)?;
            let place = if matches!(place, Place::Empty(_)) { Place::Empty(index) } else { place };
            for lifter in &mut inner {
                lifter.ask(place.clone(), tensor_type);
            }
        }
        let [decides, runs] = &mut inner;
        let tests = self.program.block_instructions(condition);
        decides.instructions(tests)?;
        decides.graph.outputs = decides.read_all(by)?;
        // The block of the body ends with the instructions of the condition, for the next iteration.
        let all = self.program.block_instructions(body);
        let (own, again) = all.split_at_checked(all.len().saturating_sub(tests.len())).ok_or(Error::Internal)?;
        if !again.iter().zip(tests).all(|(one, other)| self.same(one, other)) {
            return Err(Error::message("a loop does not evaluate its condition at its end"));
        }
        runs.instructions(own)?;
        let carried = |(place, _): &&(Place, TensorType)| !places.contains(place) && runs.written.iter().any(|other| other.meets(place));
        if decides.asked.iter().chain(&runs.asked).find(carried).is_some() {
            return Err(Error::message("a loop changes memory that is not a state, and reads it in its next iteration"));
        }
        runs.graph.outputs = runs.read_all(states)?;
        self.control(op, alloc::vec![most], Vec::new(), inner.into(), states)
    }

    /// Adds a branch or a loop. Its inputs are `first`, followed by the places that a body asked for.
    fn control(
        &mut self,
        op: &'static Op,
        attributes: Vec<u32>,
        first: Vec<ValueId>,
        bodies: Vec<Lifter<'_, '_>>,
        results: &[u16],
    ) -> Result<()> {
        let mut asked: Vec<(Place, TensorType)> = Vec::new();
        for one in bodies.iter().flat_map(|body| &body.asked) {
            if !asked.contains(one) {
                asked.push(one.clone());
            }
        }
        self.common.charge(results.len())?;
        let (mut inputs, mut written) = (first, Vec::new());
        for (place, tensor_type) in &asked {
            inputs.push(self.read(place.clone(), *tensor_type)?);
        }
        let mut graphs = Vec::new();
        for body in bodies {
            // Temporary values of a body overwrite scratch memory.
            body.written.iter().for_each(|place| self.forget(place));
            written.extend(body.written);
            let mut graph = body.graph;
            let own = core::mem::take(&mut graph.inputs);
            for (index, one) in asked.iter().enumerate() {
                let known = body.asked.iter().position(|other| other == one).map(|known| own[known]);
                let id = known.unwrap_or_else(|| graph.value(one.1, Origin::Input(index)));
                graph.values[id].origin = Origin::Input(index);
                graph.inputs.push(id);
            }
            graphs.push(graph);
        }
        let places = results.iter().map(|&output| self.place(output)).collect::<Result<Vec<_>>>()?;
        let lost = |place: &&Place| matches!(place, Place::Variable(_)) && !places.iter().any(|(other, _)| other == *place);
        if written.iter().find(lost).is_some() {
            return Err(Error::message("a branch or a loop assigns a variable that is not one of its results"));
        }
        self.written.extend(written);
        self.node(Node { bodies: graphs, ..Node::new(op, attributes, inputs, Vec::new()) }, places);
        Ok(())
    }

    /// True if both instructions do the same. A branch or a loop is compared without its blocks.
    fn same(&self, one: &InstructionRecord, other: &InstructionRecord) -> bool {
        let control = |record: &InstructionRecord| {
            let kernel = self.program.kernel_records.get(usize::from(record.kernel));
            kernel.is_some_and(|kernel| [ops::code::cond.0, ops::code::while_loop.0].contains(&kernel.op))
        };
        let attributes = |record: &InstructionRecord| if control(record) { &[] } else { self.program.attributes(record) };
        one.kernel == other.kernel && self.operands(one) == self.operands(other) && attributes(one) == attributes(other)
    }

    /// Adds `node`, which writes these places.
    fn node(&mut self, node: Node, places: Vec<(Place, TensorType)>) {
        let outputs: Vec<ValueId> = places.iter().map(|(_, tensor_type)| self.graph.value(*tensor_type, Origin::Node)).collect();
        places.into_iter().zip(&outputs).for_each(|((place, _), &id)| self.hold(place, id));
        self.graph.nodes.push(Node { outputs, ..node });
    }

    fn body(&self) -> Lifter<'l, 'p> {
        Lifter { depth: self.depth + 1, ..Lifter::new(self.program, self.device, self.common) }
    }

    fn block(&self, index: u32) -> Result<&'l BlockRecord> {
        self.program.blocks.get(index as usize).filter(|_| self.depth < MAX_DEPTH).ok_or(Error::Internal)
    }

    fn operands(&self, instruction: &InstructionRecord) -> (&'p [u16], &'p [u16]) {
        let outputs = instruction.operands.saturating_add(instruction.inputs.into());
        let operands = self.program.operands;
        (part(operands, instruction.operands, instruction.inputs.into()), part(operands, outputs, instruction.outputs.into()))
    }

    fn tensor(&self, operand: u16) -> Result<(&'p TensorRecord, TensorType)> {
        let record = self.program.tensors.get(usize::from(operand)).ok_or(Error::NoSuchTensor { index: operand.into() })?;
        Ok((record, *self.program.tensor_type(record)))
    }

    /// Gives a value the scales of an operand, if it has any that fit.
    fn scale(&mut self, id: ValueId, operand: u16) {
        let record = self.program.tensors.get(usize::from(operand));
        let Some((axis, scales, zero_points)) = record.and_then(|record| self.program.quantization(record)) else { return };
        let scales = scales.iter().map(|&scale| f32::from_bits(scale)).collect();
        let quantization = AffineQuantization { axis, scales, zero_points: zero_points.iter().map(|&word| word as i32).collect() };
        let value = &mut self.graph.values[id];
        if quantization.check(&value.tensor_type).is_ok() {
            value.quantization = Some(Shared::new(quantization));
        }
    }

    /// Returns the place of an operand that is not a constant.
    fn place(&self, operand: u16) -> Result<(Place, TensorType)> {
        let (record, tensor_type) = self.tensor(operand)?;
        Ok(match record.space {
            Space::SCRATCH if record.bytes == 0 => (Place::Empty(usize::MAX), tensor_type),
            Space::SCRATCH => (Place::Scratch(record.location..record.location.saturating_add(record.bytes)), tensor_type),
            Space::FLASH => return Err(Error::Internal),
            _ => (Place::Variable(record.location), tensor_type),
        })
    }

    fn read_all(&mut self, operands: &[u16]) -> Result<Vec<ValueId>> {
        let read = |&operand: &u16| {
            let (record, tensor_type) = self.tensor(operand)?;
            if record.space == Space::FLASH {
                let tensor = self.constant(record, tensor_type)?;
                return Ok(self.graph.value(tensor_type, Origin::Constant(tensor)));
            }
            let (place, tensor_type) = self.place(operand)?;
            self.read(place, tensor_type)
        };
        operands.iter().map(read).collect()
    }

    /// Returns a constant, which is copied to the device only once.
    fn constant(&self, record: &TensorRecord, tensor_type: TensorType) -> Result<Tensor> {
        let mut known = self.common.constants.borrow_mut();
        let same = |(at, tensor): &&(u32, Tensor)| *at == record.location && tensor.tensor_type() == tensor_type;
        if let Some((_, tensor)) = known.iter().find(same) {
            return Ok(tensor.clone());
        }
        let tensor = Tensor::from_bytes(self.device, tensor_type, part(self.program.data, record.location, record.bytes))?;
        known.push((record.location, tensor.clone()));
        Ok(tensor)
    }

    /// Returns the value at `place` as a tensor of type `tensor_type`.
    fn read(&mut self, place: Place, tensor_type: TensorType) -> Result<ValueId> {
        if let Some(&(_, id)) = self.held.iter().find(|(other, _)| *other == place && !matches!(other, Place::Empty(_))) {
            return self.viewed(id, tensor_type);
        }
        match (self.variables, &place) {
            (Some(_), &Place::Variable(index)) if !self.captured.contains(&index) => {
                let id = self.capture(index)?;
                self.held.push((place, id));
                self.viewed(id, tensor_type)
            }
            (_, Place::Empty(_)) => {
                let nothing = Tensor::from_bytes(self.device, tensor_type, &[])?;
                Ok(self.graph.value(tensor_type, Origin::Constant(nothing)))
            }
            (Some(_), _) => Err(Error::message("an instruction reads memory that nothing has written")),
            (None, _) => Ok(self.ask(place, tensor_type)),
        }
    }

    /// Makes `place` an input of this body.
    fn ask(&mut self, place: Place, tensor_type: TensorType) -> ValueId {
        let id = self.graph.value(tensor_type, Origin::Input(self.asked.len()));
        self.graph.inputs.push(id);
        self.asked.push((place.clone(), tensor_type));
        self.held.push((place, id));
        id
    }

    /// Returns value `id` with the shape of `tensor_type`.
    fn viewed(&mut self, id: ValueId, tensor_type: TensorType) -> Result<ValueId> {
        let own = self.graph.values[id].tensor_type;
        if own == tensor_type {
            return Ok(id);
        }
        if own.dtype != tensor_type.dtype || own.bytes() != tensor_type.bytes() {
            return Err(Error::message(format!("an instruction reads {tensor_type} where {own} was written")));
        }
        let output = self.graph.value(tensor_type, Origin::Node);
        let attributes = tensor_type.shape.dims().to_vec();
        self.graph.nodes.push(Node::new(&ops::reshape::OP, attributes, alloc::vec![id], alloc::vec![output]));
        Ok(output)
    }

    /// Sets the value at `place`.
    fn hold(&mut self, place: Place, id: ValueId) {
        if let Place::Empty(_) = place {
            return;
        }
        self.forget(&place);
        self.written.push(place.clone());
        self.held.push((place, id));
    }

    /// Captures variable `index`, and returns its first value.
    fn capture(&mut self, index: u32) -> Result<ValueId> {
        let missing = Error::NoSuchTensor { index };
        let record = self.program.variables.get(index as usize).ok_or(missing.clone())?;
        let variable = self.variables.and_then(|all| all.get(index as usize)).ok_or(missing.clone())?.clone();
        let tensor_type = *self.program.tensor_type(self.program.tensors.get(record.tensor as usize).ok_or(missing)?);
        let initial = self.graph.value(tensor_type, Origin::Variable(self.graph.captures.len()));
        self.graph.captures.push(Capture { source: Captured::Variable(variable), initial, assigned: None });
        self.captured.push(index);
        Ok(initial)
    }

    /// Forgets the values of which a byte is in `place`, because it is overwritten.
    fn forget(&mut self, place: &Place) {
        self.held.retain(|(other, _)| !other.meets(place));
    }
}

/// Returns the op with this number.
fn op(code: OpCode) -> Option<&'static Op> {
    ops::OPS.iter().find(|op| op.def.code == code).copied()
}
