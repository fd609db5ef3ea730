//! A function traced for one signature.

use super::signature::{TensorSpec, misplaced};
use crate::base::error::Result;
use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::compile::divide::divide;
use crate::compile::freeze::freeze;
use crate::compile::optimize::{localize, optimize};
use crate::compile::plan::Fusion;
use crate::host::divided::Divided;
use crate::host::executable::{Caller, Executable};
use crate::host::kernel_step::Scratch;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::Graph;
use crate::tensor::profile::Activity;
use crate::tensor::variable::Variable;
use crate::tensor::waiting::Monitor;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A function traced for one signature. Its `Display` implementation lists the graph as it was traced.
///
/// ```
/// use gradlet_core::{Eager, Function, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let f = Function::new(|_: &dyn Scope, x: Tensor| x.mul(&x)?.neg()).named("f");
/// let concrete = f.concrete(&scope, &Tensor::scalar(&scope.device(), 1.0f32))?;
/// assert_eq!(concrete.to_string(), "f(%0: f32[])\n  %1 = mul(%0, %0): f32[]\n  %2 = neg(%1): f32[]\n  give %2\n");
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub struct ConcreteFunction {
    pub(super) name: String,
    pub(crate) signature: Vec<TensorSpec>,
    pub(super) device: Device,
    /// The graph as it was traced.
    pub(super) traced: Graph,
    graph: Graph,
    /// Scratch memory that all plans of one function share.
    scratch: Shared<Scratch>,
    /// The compiled graph. The inner `None` means that there was no run yet. The outer `None` means that a thread is running it.
    compiled: Monitor<Option<Option<Compiled>>>,
}

impl Clone for ConcreteFunction {
    /// Returns a function over the same variables and constants, with scratch memory and results of its own. Both can run at the same time.
    fn clone(&self) -> ConcreteFunction {
        ConcreteFunction {
            name: self.name.clone(),
            signature: self.signature.clone(),
            device: self.device.clone(),
            traced: self.traced.clone(),
            graph: self.graph.clone(),
            scratch: Shared::new(Scratch::new(&self.name)),
            compiled: Monitor::new(Some(None)),
        }
    }
}

/// The executable of a function.
enum Compiled {
    /// All nodes run on the function's device.
    Whole(Box<Executable>),
    Divided(Box<Divided>),
}

impl ConcreteFunction {
    pub(crate) fn new(name: &str, traced: Graph, device: Device, scratch: Shared<Scratch>) -> Result<ConcreteFunction> {
        let mut graph = traced.clone();
        optimize(&mut graph)?;
        let compiled = Monitor::new(Some(None));
        Ok(ConcreteFunction { name: name.into(), signature: Vec::new(), device, traced, graph, scratch, compiled })
    }

    /// Returns the optimized graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the graph as it was traced.
    pub fn traced(&self) -> &Graph {
        &self.traced
    }

    /// Returns the graph with the present values of the variables as constants. Sums and products with a constant for each channel, such
    /// as a normalization, become part of the weights of the convolution or dense layer before them, so the last bits can differ.
    ///
    /// Fails if the function changes a variable, as a training step does, or if an op on constants fails.
    #[doc(alias = "convert_variables_to_constants_v2")]
    pub fn frozen(&self) -> Result<Graph> {
        freeze(&self.name, &self.traced)
    }

    /// Returns the function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the types of the arguments as the signature states them: TensorFlow's `structured_input_signature`.
    pub fn signature(&self) -> &[TensorSpec] {
        &self.signature
    }

    /// Returns the types of the inputs.
    pub fn inputs(&self) -> Vec<TensorType> {
        self.traced.inputs.iter().map(|&id| self.traced.values[id].tensor_type).collect()
    }

    /// Returns the types of the outputs.
    pub fn outputs(&self) -> Vec<TensorType> {
        self.traced.outputs.iter().map(|&id| self.traced.values[id].tensor_type).collect()
    }

    /// Returns the variables that the function reads or assigns.
    pub fn variables(&self) -> Vec<Variable> {
        self.captured().cloned().collect()
    }

    pub(super) fn captured(&self) -> impl Iterator<Item = &Variable> {
        self.traced.captures.iter().filter_map(|capture| capture.source.variable())
    }

    /// Runs the function on computed tensors. They must have the types that the function was traced for and be on its device.
    ///
    /// While it runs, the function owns the variables that it assigns. A thread that reads or assigns one of them waits until the run
    /// ends. Calls from several threads run one after another, those of a clone at the same time.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let results = self.graph.outputs.len();
        let caller = Caller::on(&self.device);
        self.compute(&caller, |take| inputs.iter().for_each(take), |next| (0..results).map(|_| next()).collect())
    }

    /// Returns the number of bytes that a run uses: scratch memory, results, constants and variables. The arguments belong to the caller
    /// and are not counted.
    pub fn planned_bytes(&self) -> Result<usize> {
        self.with_compiled(&Caller::on(&self.device), |compiled| match compiled {
            Compiled::Whole(executable) => executable.planned_bytes(),
            Compiled::Divided(divided) => divided.planned_bytes(),
        })
    }

    /// Runs the function on the tensors that `gather` passes to its argument, and builds the results with `build`.
    pub(crate) fn compute<R>(
        &self,
        caller: &Caller<'_>,
        gather: impl FnOnce(&mut dyn FnMut(&Tensor)),
        build: impl FnOnce(&mut dyn FnMut() -> Tensor) -> R,
    ) -> Result<R> {
        caller.show(&self.name, &self.traced, &self.graph);
        let misplaced = |index, other: &Device| misplaced(&self.name, &self.signature, index, other, &self.device);
        self.with_compiled(caller, |compiled| match compiled {
            Compiled::Whole(executable) => executable.run(caller, &misplaced, gather, build),
            Compiled::Divided(divided) => divided.run(caller, gather, build),
        })
    }

    /// Calls `work` with the executable, which it creates if necessary. One caller uses it at a time; the others wait.
    fn with_compiled<R>(&self, caller: &Caller<'_>, work: impl FnOnce(&mut Compiled) -> Result<R>) -> Result<R> {
        match &mut *self.compiled.turn(&self.device) {
            Some(compiled) => work(compiled),
            empty => work(empty.insert(caller.during(Activity::Gap("plan"), || self.compile())?)),
        }
    }

    fn compile(&self) -> Result<Compiled> {
        if let Some(stretches) = divide(&self.traced, &self.device)? {
            return Ok(Compiled::Divided(Box::new(Divided::new(&self.traced, stretches, &self.device, &self.scratch)?)));
        }
        let executable = |graph: &Graph| Executable::new(graph, &self.device, Fusion::of(&self.device), &self.scratch);
        if self.device.placement().is_none() {
            return Ok(Compiled::Whole(Box::new(executable(&self.graph)?)));
        }
        let mut graph = self.graph.clone();
        localize(&self.device, &mut graph)?;
        Ok(Compiled::Whole(Box::new(executable(&graph)?)))
    }
}
