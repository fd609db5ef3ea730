//! The artifact writer. It writes planned signatures over shared variables as one flat file. `SPEC.md` specifies the format.

mod checks;
pub mod describe;
mod lift;
mod limits;
mod signatures;

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::OpDef;
use crate::base::quantization::AffineQuantization;
use crate::base::shape::TensorType;
use crate::compile::optimize::optimize_on;
use crate::compile::pack::pack;
use crate::compile::plan::{Location, Plan, Target};
use crate::compile::planner::plan;
use crate::function::ConcreteFunction;
use crate::ops;
use crate::runtime::program;
use crate::runtime::program::{
    BlockRecord, Header, InstructionRecord, KernelRecord, MAGIC, MAX_DEPTH, MAX_SIGNATURES, NONE, Range, SignatureRecord, Space,
    TensorRecord, VERSION, VariableRecord,
};
use crate::tensor::device::AlignedBytes;
use crate::tensor::graph::{Capture, Node, ValueId};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytemuck::{Pod, Zeroable};

pub use lift::function;

/// Collects traced functions and writes them as one artifact. The same functions and values always produce the same bytes.
///
/// ```
/// use gradlet_core::{Artifact, Eager, Function, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
/// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
/// let mut artifact = Artifact::new();
/// artifact.signature("double", &*double.concrete(&scope, &x)?, &["x"], &["y"])?;
/// let bytes = artifact.to_bytes()?;
/// assert_eq!(&bytes[..4], b"GRDL");
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[doc(alias = "TFLiteConverter", alias = "tf.saved_model.save")]
pub struct Artifact {
    signatures: Vec<Signature>,
    names: Vec<(String, Variable)>,
    metadata: Vec<(String, String)>,
    finite_steps: bool,
    keep_copy: bool,
    pack_filters: bool,
}

struct Signature {
    name: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    plan: Plan,
}

impl Default for Artifact {
    fn default() -> Artifact {
        Artifact::new()
    }
}

impl Artifact {
    /// Creates an artifact without signatures.
    pub fn new() -> Artifact {
        Artifact {
            signatures: Vec::new(),
            names: Vec::new(),
            metadata: Vec::new(),
            finite_steps: true,
            keep_copy: false,
            pack_filters: true,
        }
    }

    /// Sets whether signatures that assign variables check their data. The default is true. Set it before the first signature.
    ///
    /// A checked signature fails with [`Error::NotFinite`] before it changes anything, if a float input is infinite or NaN, or a float
    /// result that does not depend on a new value of a variable, such as the loss. It fails too if a new value of a variable is not finite;
    /// the session is then unfinished, unless there is a second copy ([`Artifact::keep_copy`]). A checkpoint of such values is refused. A
    /// check costs about two and a half instructions per element on a Cortex-M4F. The firmware links the kernel `check_numerics`.
    pub fn finite_steps(&mut self, check: bool) -> &mut Artifact {
        self.finite_steps = check;
        self
    }

    /// Sets names for variables. With a model's `named_variables`, for example, a variable is called `dense_1/kernel` instead of
    /// `kernel`.
    pub fn variables(&mut self, names: Vec<(String, Variable)>) -> &mut Artifact {
        self.names.extend(names);
        self
    }

    /// Sets whether a session keeps a second copy of the variables that the loaded signatures assign. The default is false.
    ///
    /// The arena then grows by the size of these variables
    /// ([`SignatureInfo::copy_bytes`](describe::SignatureInfo::copy_bytes)). A run that assigns variables copies them first. If the run
    /// fails, or a reset of the device interrupts it, the session takes the old values back. Each failing step thus changes nothing, and
    /// the session is never unfinished after a run. The artifact has format version 1.1.
    pub fn keep_copy(&mut self, keep: bool) -> &mut Artifact {
        self.keep_copy = keep;
        self
    }

    /// Sets whether constant filters of quantised ops are packed. The default is true. Set it before the first signature.
    ///
    /// A packed convolution or dense layer has the same bits. It takes a sixth of the instructions of the other form on a Cortex-M4, M7 or
    /// M33, half of them on a RISC-V, and some working memory in the arena. On a Cortex-M0+, which multiplies 64 bits slowly, it takes a
    /// third more.
    pub fn pack_filters(&mut self, pack: bool) -> &mut Artifact {
        self.pack_filters = pack;
        self
    }

    /// Documents signature `name`, with a line of metadata `signature.NAME.doc` that readers show beside the signature.
    ///
    /// Fails if there is no such signature.
    pub fn doc(&mut self, name: &str, text: &str) -> Result<&mut Artifact> {
        match self.signatures.iter().any(|signature| signature.name == name) {
            true => Ok(self.metadata(&doc_key(name), text)),
            false => Err(Error::message(format!("there is no signature {name:?} to document"))),
        }
    }

    /// Adds a line of metadata, such as the author of the file.
    pub fn metadata(&mut self, key: &str, value: &str) -> &mut Artifact {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a signature. Fails if the number of names differs from the number of the function's inputs or outputs, if the name is already
    /// used, or if there are already 32 signatures.
    pub fn signature(&mut self, name: &str, function: &ConcreteFunction, inputs: &[&str], outputs: &[&str]) -> Result<&mut Artifact> {
        let graph = function.graph();
        let has = (graph.inputs.len(), graph.outputs.len());
        if has != (inputs.len(), outputs.len()) {
            let ((ins, outs), given, results) = (has, inputs.len(), outputs.len());
            let text =
                format!("signature {name:?} has {ins} inputs and {outs} outputs, but got {given} input names and {results} output names");
            return Err(Error::message(text));
        }
        if self.signatures.iter().any(|signature| signature.name == name) {
            return Err(Error::message(format!("the artifact already has a signature {name:?}")));
        }
        if self.signatures.len() == MAX_SIGNATURES {
            return Err(Error::message(format!("the artifact already has {MAX_SIGNATURES} signatures, the maximum")));
        }
        let mut graph = graph.clone();
        let device = ops::portable_cpu();
        optimize_on(&device, &mut graph)?;
        if self.pack_filters {
            pack(&device, &mut graph)?;
        }
        if self.finite_steps {
            checks::add(&mut graph);
        }
        let owned = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        self.signatures.push(Signature {
            name: name.into(),
            inputs: owned(inputs),
            outputs: owned(outputs),
            plan: plan(&graph, Target::Device),
        });
        Ok(self)
    }

    /// Returns the bytes of the artifact. The current values of the variables become their initial values.
    pub fn to_bytes(&self) -> Result<AlignedBytes> {
        self.check_names()?;
        let mut tables = Tables::default();
        let variables = self.variable_order();
        let names = self.variable_names(&variables);
        limits::check(&variables, &names, &self.signatures)?;
        for (index, variable) in variables.iter().enumerate() {
            self.write_variable(&mut tables, index, variable, &names[index])?;
        }
        tables.blocks.resize(self.signatures.len(), BlockRecord::zeroed());
        for (index, signature) in self.signatures.iter().enumerate() {
            let name = tables.name(&signature.name);
            let input_names = signature.inputs.iter().map(|name| tables.name(name)).min().unwrap_or(0);
            let output_names = signature.outputs.iter().map(|name| tables.name(name)).min().unwrap_or(0);
            tables.signatures.push(SignatureRecord { name, block: index as u32, input_names, output_names });
            tables.signature(index, &signature.plan, &variables)?;
        }
        for (index, variable) in variables.iter().enumerate() {
            let dtype = variable.tensor_type()?.dtype;
            if self.finite_steps && tables.variables[index].assigned_by != 0 && dtype.is_float() {
                // A session looks for this kernel to check the variable's new values.
                tables.kernel(&ops::check_numerics::DEF, dtype);
            }
        }
        for (key, value) in &self.metadata {
            push_name(&mut tables.metadata, key);
            push_name(&mut tables.metadata, value);
        }
        let quantized = tables.tensors.iter().any(|tensor| tensor.quantization != NONE);
        let new_type = tables.types.iter().any(|tensor_type| tensor_type.dtype == DType::I16);
        tables.to_bytes(if quantized || new_type { 2 } else { self.keep_copy.into() })
    }

    /// Returns the variables, in the order of the artifact.
    fn variable_order(&self) -> Vec<Variable> {
        let mut variables: Vec<Variable> = Vec::new();
        let captured =
            self.signatures.iter().flat_map(|signature| &signature.plan.graph.captures).filter_map(|capture| capture.source.variable());
        // Named variables come first, in the model's order.
        let named = self.names.iter().map(|(_, variable)| variable).filter(|variable| captured.clone().any(|other| other == *variable));
        for variable in named.chain(captured.clone()) {
            if !variables.contains(variable) {
                variables.push(variable.clone());
            }
        }
        variables
    }

    /// Returns a unique name for each variable: the name that was set for it, which includes the scopes of its modules, or else its own
    /// name.
    fn variable_names(&self, variables: &[Variable]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for variable in variables {
            let given = self.names.iter().find(|(_, other)| other == variable).map(|(name, _)| name.as_str());
            let own = given.unwrap_or(variable.name());
            let numbered = (1..).map(|number| format!("{own}_{number}"));
            let free = core::iter::once(own.into()).chain(numbered).find(|name| !names.contains(name));
            names.extend(free);
        }
        names
    }

    /// Checks the length of all names. Readers accept lengths whose varint has at most three bytes.
    fn check_names(&self) -> Result<()> {
        let signatures = self.signatures.iter().flat_map(|one| one.inputs.iter().chain(&one.outputs).chain([&one.name]));
        let others = self.metadata.iter().flat_map(|(key, value)| [key, value]).chain(self.names.iter().map(|(name, _)| name));
        match signatures.chain(others).find(|name| name.len() >= 1 << 21) {
            Some(name) => Err(Error::message(format!("a name of {} bytes is too long: it must stay below 2 MiB", name.len()))),
            None => Ok(()),
        }
    }

    fn write_variable(&self, tables: &mut Tables, index: usize, variable: &Variable, name: &str) -> Result<()> {
        let capture_in = |signature: &Signature| {
            signature.plan.graph.captures.iter().find(|capture| capture.source.variable() == Some(variable)).cloned()
        };
        let assigned_by = self.signatures.iter().enumerate().fold(0u32, |bits, (index, signature)| {
            let assigned = capture_in(signature).is_some_and(|capture: Capture| capture.assigned.is_some());
            bits | u32::from(assigned) << index
        });
        let read_only = self.signatures.iter().filter_map(capture_in).any(|capture| capture.assigned.is_none());
        let tensor_type = variable.tensor_type()?;
        let tensor = tables.tensor(tensor_type, Space::Variable, index as u32, NONE)?;
        let value = crate::trace::copies::value(variable)?;
        let bytes = &*value.bytes()?;
        // Zeros that every signature overwrites, such as an optimizer's slots, need no flash.
        let zeros = !read_only && bytes.len() > 16 && bytes.iter().all(|&byte| byte == 0);
        let initial = if zeros { NONE } else { tables.data(bytes) };
        let name = tables.name(name);
        let kept = if self.keep_copy && assigned_by != 0 { program::KEPT } else { 0 };
        let flags = if variable.trainable() { program::TRAINABLE } else { 0 } | kept;
        tables.variables.push(VariableRecord { name, tensor, initial, assigned_by, flags });
        Ok(())
    }
}

/// Returns the key of the metadata line that documents a signature.
pub(crate) fn doc_key(signature: &str) -> String {
    format!("signature.{signature}.doc")
}

/// Writes a postcard string: its length as a varint, then its bytes.
fn push_name(bytes: &mut Vec<u8>, name: &str) {
    let mut length = name.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(name.as_bytes());
}

/// The tables of an artifact under construction.
#[derive(Default)]
struct Tables {
    signatures: Vec<SignatureRecord>,
    blocks: Vec<BlockRecord>,
    variables: Vec<VariableRecord>,
    tensors: Vec<TensorRecord>,
    instructions: Vec<InstructionRecord>,
    kernels: Vec<KernelRecord>,
    types: Vec<TensorType>,
    attributes: Vec<u32>,
    operands: Vec<u16>,
    names: Vec<u8>,
    name_count: u32,
    metadata: Vec<u8>,
    data: Vec<u8>,
    /// Offset and length of each piece of `data`, to find bytes that are already stored.
    pieces: Vec<(usize, usize)>,
}

impl Tables {
    fn name(&mut self, name: &str) -> u32 {
        push_name(&mut self.names, name);
        self.name_count += 1;
        self.name_count - 1
    }

    /// Returns the offset of `bytes` in the data, and adds them if they are not there yet. An offset that does not fit in a u32 is
    /// saturated: the artifact is then too large, which `to_bytes` refuses.
    fn data(&mut self, bytes: &[u8]) -> u32 {
        let same = |&&(offset, length): &&(usize, usize)| self.data[offset..][..length] == *bytes;
        let known = self.pieces.iter().find(same).map(|&(offset, _)| offset);
        let offset = known.unwrap_or_else(|| {
            self.data.resize(program::align(self.data.len()), 0);
            self.pieces.push((self.data.len(), bytes.len()));
            self.data.extend(bytes);
            self.data.len() - bytes.len()
        });
        u32::try_from(offset).unwrap_or(u32::MAX)
    }

    /// Returns the index of `words` in a table, and adds them if they are not there yet.
    fn words(table: &mut Vec<u32>, words: &[u32]) -> u32 {
        let known = if words.is_empty() { Some(0) } else { table.windows(words.len()).position(|window| window == words) };
        known.unwrap_or_else(|| {
            table.extend(words);
            table.len() - words.len()
        }) as u32
    }

    fn tensor_type(&mut self, tensor_type: TensorType) -> Result<u16> {
        let index = self.types.iter().position(|other| *other == tensor_type).unwrap_or_else(|| {
            self.types.push(tensor_type);
            self.types.len() - 1
        });
        u16::try_from(index).map_err(|_| Error::message("the artifact has more than 65,536 types, the maximum"))
    }

    /// Returns the index of a tensor's record. `quantization` is the offset of its scales in the data, or [`NONE`].
    fn tensor(&mut self, tensor_type: TensorType, space: Space, location: u32, quantization: u32) -> Result<u32> {
        let record = TensorRecord {
            tensor_type: self.tensor_type(tensor_type)?,
            space: space as u8,
            reserved: 0,
            location,
            bytes: narrow(tensor_type.bytes().ok_or(Error::TooLarge)?)?,
            quantization,
        };
        let same = |other: &TensorRecord| bytemuck::bytes_of(other) == bytemuck::bytes_of(&record);
        Ok(self.tensors.iter().position(same).unwrap_or_else(|| {
            self.tensors.push(record);
            self.tensors.len() - 1
        }) as u32)
    }

    fn kernel(&mut self, def: &OpDef, dtype: DType) -> u16 {
        let same = |record: &KernelRecord| record.op == def.code.0 && record.dtype == dtype as u8;
        self.kernels.iter().position(same).unwrap_or_else(|| {
            let name = self.name(def.name);
            self.kernels.push(KernelRecord { op: def.code.0, dtype: dtype as u8, reserved: 0, name });
            self.kernels.len() - 1
        }) as u16
    }

    /// Writes the block of signature `index` and then, level by level, the blocks that it runs.
    fn signature(&mut self, index: usize, plan: &Plan, variables: &[Variable]) -> Result<()> {
        let captured: Vec<u32> = plan.graph.captures.iter().map(|capture| position(variables, capture)).collect();
        let mut named = alloc::vec![Named { plan, then: None, block: index, depth: 0 }];
        let mut written = 0;
        while let Some(&next) = named.get(written) {
            if next.depth > MAX_DEPTH {
                return Err(Error::message(format!("branches and loops are nested more than {MAX_DEPTH} deep")));
            }
            self.block(next, &captured, &mut named)?;
            self.blocks[next.block].scratch = narrow(plan.scratch)?;
            written += 1;
        }
        let graph = &plan.graph;
        let (inputs, outputs) = (self.operands(plan, &captured, &graph.inputs)?, self.operands(plan, &captured, &graph.outputs)?);
        self.give(index, (inputs, graph.inputs.len()), (outputs, graph.outputs.len()));
        Ok(())
    }

    /// Sets the inputs and outputs of a block. Each pair is the index of the first one in the operands, and their number.
    fn give(&mut self, block: usize, inputs: (u32, usize), outputs: (u32, usize)) {
        let record = &mut self.blocks[block];
        (record.inputs, record.input_count) = (inputs.0, inputs.1 as u32);
        (record.outputs, record.output_count) = (outputs.0, outputs.1 as u32);
    }

    /// Writes the instructions of `block`, and adds the blocks that they run to `named`. `captured` holds the index of each captured
    /// variable.
    fn block<'p>(&mut self, block: Named<'p>, captured: &[u32], named: &mut Vec<Named<'p>>) -> Result<()> {
        let mut instructions = Vec::new();
        for plan in core::iter::once(block.plan).chain(block.then) {
            for &index in plan.steps.iter().flat_map(|step| &step.nodes) {
                let node = &plan.graph.nodes[index];
                instructions.push(match plan.bodies.iter().find(|bodies| bodies.node == index) {
                    Some(bodies) => {
                        named.extend(bodies_of(node, &bodies.plans, self.blocks.len(), block.depth + 1));
                        self.branch(plan, node, &bodies.plans, captured)?
                    }
                    None => self.instruction(plan, node, captured)?,
                });
            }
        }
        let record = &mut self.blocks[block.block];
        let first = self.instructions.len() as u32;
        *record = BlockRecord { first, instructions: instructions.len() as u32, ..*record };
        self.instructions.extend(instructions);
        Ok(())
    }

    fn instruction(&mut self, plan: &Plan, node: &Node, captured: &[u32]) -> Result<InstructionRecord> {
        let typed_by = node.inputs.first().or(node.outputs.first());
        let dtype = typed_by.map_or(DType::U8, |&id| plan.graph.values[id].tensor_type.dtype);
        let kernel = self.kernel(node.op.def, dtype);
        let operands = self.operands(plan, captured, node.inputs.iter().chain(&node.outputs))?;
        Ok(InstructionRecord {
            kernel,
            inputs: node.inputs.len() as u8,
            outputs: node.outputs.len() as u8,
            operands,
            attributes: Tables::words(&mut self.attributes, &node.attributes),
            attribute_words: node.attributes.len() as u32,
        })
    }

    /// Creates the instruction of a branch or loop, and the records of the blocks that it runs.
    fn branch(&mut self, plan: &Plan, node: &Node, bodies: &[Plan], captured: &[u32]) -> Result<InstructionRecord> {
        let is_loop = node.op.def.code == ops::code::while_loop;
        // The output of its condition decides a loop, its first input a branch.
        let (decided, by) = if is_loop { (&bodies[0], bodies[0].graph.outputs[0]) } else { (plan, node.inputs[0]) };
        let kernel = self.kernel(node.op.def, decided.graph.values[by].tensor_type.dtype);
        let operands = self.operands(decided, captured, &[by])?;
        let results = (self.operands(plan, captured, &node.outputs)?, node.outputs.len());
        let mut words = Vec::new();
        for _ in bodies {
            words.push(self.blocks.len() as u32);
            self.blocks.push(BlockRecord::zeroed());
            self.give(self.blocks.len() - 1, (0, 0), results);
        }
        words.extend(&node.attributes);
        let attributes = Tables::words(&mut self.attributes, &words);
        Ok(InstructionRecord { kernel, inputs: 1, outputs: 0, operands, attributes, attribute_words: words.len() as u32 })
    }

    fn operands<'v>(&mut self, plan: &Plan, captured: &[u32], values: impl IntoIterator<Item = &'v ValueId>) -> Result<u32> {
        let first = self.operands.len() as u32;
        for &id in values {
            let (space, location) = match plan.locations[id] {
                Location::Scratch(offset) => (Space::Scratch, narrow(offset)?),
                Location::Variable(capture) => (Space::Variable, captured[capture]),
                Location::Constant => (Space::Flash, self.data(&plan.graph.constant(id).ok_or(Error::Internal)?.bytes()?)),
                Location::Input(_) | Location::Result(_) | Location::Block(_) | Location::Register => return Err(Error::Internal),
            };
            let value = &plan.graph.values[id];
            let quantization = value.quantization.as_ref().map_or(NONE, |scales| self.data(&quantization_record(scales)));
            let tensor = self.tensor(value.tensor_type, space, location, quantization)?;
            let operand = u16::try_from(tensor).map_err(|_| Error::message("the artifact has more than 65,536 tensors, the maximum"))?;
            self.operands.push(operand);
        }
        Ok(first)
    }

    fn to_bytes(&self, minor: u16) -> Result<AlignedBytes> {
        let mut bytes = bytemuck::bytes_of(&Header::zeroed()).to_vec();
        let mut header = Header { magic: MAGIC, major: VERSION.0, minor, ..Header::zeroed() };
        let [signatures, blocks, variables, tensors, instructions, kernels, types, attributes, operands, names, metadata, data] =
            &mut header.sections;
        section(&mut bytes, signatures, &self.signatures);
        section(&mut bytes, blocks, &self.blocks);
        section(&mut bytes, variables, &self.variables);
        section(&mut bytes, tensors, &self.tensors);
        section(&mut bytes, instructions, &self.instructions);
        section(&mut bytes, kernels, &self.kernels);
        let type_records: Vec<[u32; 10]> = self.types.iter().map(type_record).collect();
        section(&mut bytes, types, &type_records);
        section(&mut bytes, attributes, &self.attributes);
        section(&mut bytes, operands, &self.operands);
        section(&mut bytes, names, &self.names);
        section(&mut bytes, metadata, &self.metadata);
        section(&mut bytes, data, &self.data);
        limits::at_most(u32::MAX.into(), bytes.len() as u128, || "the artifact".into())?;
        header.length = bytes.len() as u32;
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        header.checksum = program::checksum(&bytes[program::CHECKSUM_FROM..]);
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        Ok(AlignedBytes::from(bytes.as_slice()))
    }
}

/// A block that an instruction refers to and that is written later.
#[derive(Clone, Copy)]
struct Named<'p> {
    plan: &'p Plan,
    /// A second plan that the block runs afterwards: a loop's body evaluates the condition again for the next iteration.
    then: Option<&'p Plan>,
    block: usize,
    /// Number of branches and loops around the block.
    depth: usize,
}

/// Returns the blocks of a branch or loop, numbered from `first`.
fn bodies_of<'p>(node: &Node, bodies: &'p [Plan], first: usize, depth: usize) -> impl Iterator<Item = Named<'p>> {
    let is_loop = node.op.def.code == ops::code::while_loop;
    let condition = bodies.first().filter(|_| is_loop);
    let named = move |(index, plan)| Named { plan, then: condition.filter(|_| index > 0), block: first + index, depth };
    bodies.iter().enumerate().map(named)
}

/// Returns a size or an offset as the format stores it.
fn narrow(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| Error::TooLarge)
}

/// Returns the index of a captured variable.
fn position(variables: &[Variable], capture: &Capture) -> u32 {
    variables.iter().position(|variable| Some(variable) == capture.source.variable()).unwrap_or(0) as u32
}

/// Returns the record of scales and zero points.
fn quantization_record(of: &AffineQuantization) -> Vec<u8> {
    let words = [of.axis, of.scales.len() as u32].into_iter().chain(of.scales.iter().map(|scale| scale.to_bits()));
    words.chain(of.zero_points.iter().map(|&zero_point| zero_point as u32)).flat_map(u32::to_le_bytes).collect()
}

/// Returns the record of a type.
fn type_record(tensor_type: &TensorType) -> [u32; 10] {
    let mut words = [0; 10];
    let shape = &tensor_type.shape;
    let values = [tensor_type.dtype as u32, shape.rank() as u32].into_iter().chain(shape.dims().iter().copied());
    words.iter_mut().zip(values).for_each(|(word, value)| *word = value.to_le());
    words
}

fn section<T: Pod>(bytes: &mut Vec<u8>, range: &mut Range, records: &[T]) {
    bytes.resize(program::align(bytes.len()), 0);
    *range = Range { offset: bytes.len() as u32, count: records.len() as u32 };
    bytes.extend(bytemuck::cast_slice::<T, u8>(records));
}
