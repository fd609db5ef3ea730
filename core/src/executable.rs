//! A traced function on the host: its program in an arena of its own, with the variables that it shares with others.

use crate::artifact::Artifact;
use crate::device::{AlignedBytes, Device};
use crate::error::{Error, Result};
use crate::exec::Session;
use crate::graph::Graph;
use crate::op::Kernel;
use crate::program::Program;
use crate::tensor::Tensor;
use crate::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

const SIGNATURE: &str = "call";

/// A planned function, ready to run. It allocates only its results.
pub(crate) struct Executable {
    device: Device,
    artifact: AlignedBytes,
    /// In the artifact's order, so that each instruction finds its kernel at once.
    kernels: Vec<&'static Kernel>,
    arena: AlignedBytes,
    variables: Vec<Bound>,
}

/// A variable, and which of its values the arena holds.
struct Bound {
    variable: Variable,
    assigned: bool,
    version: Option<u64>,
}

impl Executable {
    pub(crate) fn new(graph: &Graph, device: &Device) -> Result<Executable> {
        let mut artifact = Artifact::new();
        let (inputs, outputs) = (alloc::vec![""; graph.inputs.len()], alloc::vec![""; graph.outputs.len()]);
        artifact.graph_signature(SIGNATURE, graph, &inputs, &outputs)?;
        let assigned =
            |variable: &Variable| graph.captures.iter().any(|capture| capture.variable == *variable && capture.assigned.is_some());
        let bind = |variable: Variable| Bound { assigned: assigned(&variable), variable, version: None };
        let variables = artifact.variable_order().into_iter().map(bind).collect();
        let artifact = artifact.to_bytes_without_values()?;
        let kernels = kernels(&artifact, device)?;
        let program = Program::load(&artifact, &kernels, &[SIGNATURE])?;
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        Session::new(&program, &mut arena)?;
        Ok(Executable { device: device.clone(), artifact, kernels, arena, variables })
    }

    pub(crate) fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let program = Program::reopen(&self.artifact, &self.kernels)?;
        let mut session = Session::resume(&program, &mut self.arena)?;
        let signature = program.signature(SIGNATURE)?;
        let wanted = program.inputs(program.block(signature)?).len();
        if inputs.len() != wanted {
            return Err(Error::message(format!("the function takes {wanted} tensors, got {}", inputs.len())));
        }
        for (index, tensor) in inputs.iter().enumerate() {
            let wanted = session.input_type(signature, index)?;
            if wanted != tensor.tensor_type() {
                return Err(Error::message(format!("input {index} is {wanted}, got {}", tensor.tensor_type())));
            }
            session.input_bytes_mut(signature, index)?.copy_from_slice(tensor.buffer()?.bytes());
        }
        for (index, bound) in self.variables.iter_mut().enumerate() {
            let (version, buffer) = bound.variable.snapshot()?;
            if bound.version != Some(version) {
                session.variable_mut(index)?.copy_from_slice(buffer.bytes());
                bound.version = Some(version);
            }
        }
        let ran = session.run(signature);
        for (index, bound) in self.variables.iter_mut().enumerate().filter(|(_, bound)| bound.assigned) {
            bound.version = Some(bound.variable.set_bytes(session.variable(index)?)?);
        }
        ran?;
        let results = (0..program.outputs(program.block(signature)?).len()).map(|index| {
            let tensor_type = session.output_type(signature, index)?;
            Tensor::from_bytes(&self.device, tensor_type, session.output_bytes(signature, index)?)
        });
        results.collect()
    }
}

/// The device's first choice for each kernel that the artifact names.
fn kernels(artifact: &[u8], device: &Device) -> Result<Vec<&'static Kernel>> {
    let (_, program) = Program::open(artifact, &[])?;
    let find = |record: &crate::program::KernelRecord| {
        let fits = |kernel: &&&'static Kernel| kernel.def.code.0 == record.op && kernel.dtype as u8 == record.dtype;
        device.kernels().iter().find(fits).copied().ok_or_else(|| {
            let name = program.name_bytes(record.name).unwrap_or_default();
            let dtype = crate::dtype::DType::from_code(record.dtype).map_or("?", |dtype| dtype.name());
            Error::message(format!("{} has no kernel for {} on {dtype}", device.name(), alloc::string::String::from_utf8_lossy(name)))
        })
    };
    program.kernel_records.iter().map(find).collect()
}
