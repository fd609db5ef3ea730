//! The runtimes, and the functions that run a case on the host's runtimes.

use crate::flat::as_function;
use crate::golden::case::{Body, Case, compare_bits};
use anyhow::{Context, Result, bail};
use gradlet_core::device::AlignedBytes;
use gradlet_core::function::ConcreteFunction;
use gradlet_core::function::graph::{Graph, Node};
use gradlet_core::tensor::Bool;
use gradlet_core::{Artifact, DType, Device, Eager, Function, Program, Scope, Session, Tensor, ops};
use std::sync::Arc;

/// Name of the runtime that executes eagerly, with portable kernels.
pub const EAGER: &str = "eager";
/// Name of the runtime that traces a case as one function, and compiles it for the host's portable kernels.
pub const COMPILED: &str = "compiled";
/// Name of the runtime [`gradlet::cpu`], with its fast kernels and all cores. It runs a case eagerly, and as one compiled function.
pub const CPU: &str = "cpu";
/// Name of the runtime on a device that hides its memory, with portable kernels: eagerly, and as one compiled function.
pub const HIDING: &str = "hiding";
/// Name of the runtime on a GPU, with a strict and a fast device: eagerly, and as one compiled function. See [`gpu`](crate::gpu).
pub const CUDA: &str = "cuda";
/// Name of the runtime that exports and loads the traced function, and runs it without a heap.
pub const DEVICE: &str = "device";
/// Name of the runtime that runs the same artifact on a Cortex-M.
pub const CORTEX_M: &str = "cortex-m";
/// Every runtime.
pub const NAMES: [&str; 7] = [EAGER, COMPILED, CPU, HIDING, CUDA, DEVICE, CORTEX_M];

/// Returns the runtimes with these names, in the order of [`NAMES`]. Returns all of them if `names` is empty. Fails for an unknown name.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static str>> {
    if let Some(unknown) = names.iter().map(AsRef::as_ref).find(|name| !NAMES.contains(name)) {
        bail!("unknown runtime {unknown:?}: the runtimes are {}", NAMES.join(", "));
    }
    let chosen = |runtime: &&str| names.is_empty() || names.iter().any(|name| name.as_ref() == *runtime);
    Ok(NAMES.into_iter().filter(chosen).collect())
}

/// Name of the signature of exported cases.
pub const SIGNATURE: &str = "call";

/// Bytes of a case's outputs.
pub type Outputs = Vec<Vec<u8>>;

/// Runs a case eagerly on `device`.
pub fn eager(device: &Device, case: &Case, body: &Body) -> Result<Outputs> {
    let scope = Eager::new(device);
    bytes(&body(&scope, &inputs(case, &scope)?)?)
}

/// A case as a traced function of all its inputs. Forward, backward and updates are in one graph.
pub struct Traced {
    inputs: Vec<Tensor>,
    function: Arc<ConcreteFunction>,
}

impl Traced {
    /// Traces a case for the portable kernels.
    pub fn new(case: &Case, body: &Body) -> Result<Traced> {
        Traced::on(&ops::portable_cpu(), case, body)
    }

    /// Traces a case for `device`.
    pub fn on(device: &Device, case: &Case, body: &Body) -> Result<Traced> {
        let scope = Eager::new(device);
        let inputs = inputs(case, &scope)?;
        let body = body.clone();
        let function = Function::new(move |scope: &dyn Scope, inputs: Vec<Tensor>| body(scope, &inputs));
        let function = function.concrete(&scope, &inputs)?;
        Ok(Traced { inputs, function })
    }

    /// Exports the function as an artifact with one signature. The variables' initial values are their current values.
    pub fn export(&self, case: &Case) -> Result<AlignedBytes> {
        let inputs: Vec<&str> = case.inputs.iter().map(|value| value.name.as_str()).collect();
        let outputs: Vec<&str> = case.wanted.iter().map(|value| value.name.as_str()).collect();
        let mut artifact = Artifact::new();
        artifact.signature(SIGNATURE, &self.function, &inputs, &outputs)?;
        Ok(artifact.to_bytes()?)
    }

    /// Returns the optimized graph.
    pub fn graph(&self) -> &Graph {
        self.function.graph()
    }

    /// Returns the names of the ops in the optimized graph, with the element types of their first inputs.
    pub fn ops(&self) -> impl Iterator<Item = (&'static str, DType)> {
        let graph = self.graph();
        let of = |node: &Node| graph.values[node.inputs[0]].tensor_type.dtype;
        graph.nodes.iter().map(move |node| (node.op.def.name, of(node)))
    }

    /// Returns the traced graph and the optimized graph.
    pub fn graphs(&self) -> [&Graph; 2] {
        [self.function.traced(), self.function.graph()]
    }

    /// Runs the compiled function.
    pub fn run(&self) -> Result<Outputs> {
        bytes(&self.function.run(&self.inputs)?)
    }
}

/// Runs an exported case, in an arena of exactly `program.arena_bytes()` bytes.
pub fn device(case: &Case, artifact: &[u8]) -> Result<Outputs> {
    let program = Program::load(artifact, ops::KERNELS, &[SIGNATURE]).context("load")?;
    let signature = program.signature(SIGNATURE)?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    for (index, input) in case.inputs.iter().enumerate() {
        let slot = session.input_bytes_mut(signature, index)?;
        anyhow::ensure!(slot.len() == input.bytes.len(), "input {} has {} bytes", input.name, slot.len());
        slot.copy_from_slice(&input.bytes);
    }
    let portable = ops::portable_cpu();
    let (function, _) = as_function(artifact, &program, SIGNATURE, &portable).context("as a function")?;
    let lifted = bytes(&function.run(&inputs(case, &Eager::new(&portable))?)?)?;
    session.run(signature)?;
    let outputs = (0..case.wanted.len()).map(|index| Ok(session.output_bytes(signature, index)?.to_vec()));
    let outputs = outputs.collect::<Result<Outputs>>()?;
    let differences = compare_bits(&case.wanted, &lifted, &outputs);
    anyhow::ensure!(differences.is_empty(), "as a function: {}", differences.join("; "));
    Ok(outputs)
}

fn inputs(case: &Case, scope: &Eager) -> Result<Vec<Tensor>> {
    case.inputs.iter().map(|value| Ok(value.tensor(&scope.device())?)).collect()
}

/// Returns the bytes of computed tensors.
fn bytes(tensors: &[Tensor]) -> Result<Outputs> {
    tensors.iter().map(tensor_bytes).collect()
}

/// Returns the bytes of a computed tensor.
pub fn tensor_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    macro_rules! bytes_of {
        ($($dtype:ident $element:ty),*) => {
            match tensor.dtype() {
                $(DType::$dtype => bytemuck::cast_slice(&tensor.to_vec::<$element>()?).to_vec(),)*
            }
        };
    }
    Ok(bytes_of!(F32 f32, F64 f64, F16 half::f16, Bf16 half::bf16, I8 i8, U8 u8, I32 i32, I16 i16, I64 i64, Bool Bool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_selected_by_name() {
        assert_eq!(select::<&str>(&[]).unwrap(), NAMES);
        assert_eq!(select(&[DEVICE, CPU, DEVICE]).unwrap(), [CPU, DEVICE]);
        let error = select(&["cpu", "gpu"]).unwrap_err().to_string();
        assert_eq!(error, "unknown runtime \"gpu\": the runtimes are eager, compiled, cpu, hiding, cuda, device, cortex-m");
    }
}
