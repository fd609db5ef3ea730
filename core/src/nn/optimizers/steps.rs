//! Steps that are compiled in eager code. A compiled step changes variables in place, and takes all memory before it changes the first.

use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared};
use crate::function::ConcreteFunction;
use crate::host::executable::Caller;
use crate::host::kernel_step::Scratch;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::profile::Activity;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use crate::trace::tracing::Tracing;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of compiled steps that an optimizer keeps. The least recently used one is dropped first.
const MAX_STEPS: usize = 8;

/// The compiled steps of an optimizer: one for each set of variables that are trained together. They share their scratch memory.
pub(super) struct Steps {
    name: String,
    scratch: Shared<Scratch>,
    kept: Lock<Kept>,
}

#[derive(Default)]
struct Kept {
    steps: Vec<Compiled>,
    /// Number of steps that were dropped.
    dropped: usize,
}

struct Compiled {
    device: Device,
    /// Number of the replica that the step belongs to.
    rank: Option<usize>,
    variables: Vec<Variable>,
    types: Vec<TensorType>,
    function: Shared<ConcreteFunction>,
}

/// The device of a step, and the number of its replica.
type Place<'p> = (&'p Device, Option<usize>);

impl Kept {
    /// Returns the step for these variables and inputs, which becomes the most recently used one.
    fn find(&mut self, (device, rank): Place<'_>, variables: &[&Variable], inputs: &[Tensor]) -> Option<Shared<ConcreteFunction>> {
        let fits = |compiled: &Compiled| {
            compiled.device.is_like(device)
                && compiled.rank == rank
                && compiled.variables.iter().eq(variables.iter().copied())
                && compiled.types.iter().copied().eq(inputs.iter().map(Tensor::tensor_type))
        };
        let index = self.steps.iter().rposition(fits)?;
        let found = self.steps.remove(index);
        let function = found.function.clone();
        self.steps.push(found);
        Some(function)
    }
}

impl Steps {
    /// Creates the steps of the optimizer `name`, of which none is compiled.
    pub(super) fn new(name: String) -> Steps {
        Steps { scratch: Shared::new(Scratch::new(&name)), name, kept: Lock::default() }
    }

    /// Runs a step that updates `variables` from `inputs`. On the first call with these variables and types of inputs, traces it with
    /// `step`. `scope` is the outermost scope. Returns false, and does nothing, if the variables change so often that compiling them costs
    /// more than it saves.
    pub(super) fn run(
        &self,
        scope: &dyn Scope,
        variables: &[&Variable],
        inputs: &Vec<Tensor>,
        step: impl FnOnce(&dyn Scope, Vec<Tensor>) -> Result<()>,
    ) -> Result<bool> {
        let (device, scope) = (scope.device(), scope.handle());
        let place = (&device, scope.recorder.role().and_then(|role| role.rank));
        let mut kept = self.kept.lock();
        let (known, settled) = (kept.find(place, variables, inputs), kept.dropped >= MAX_STEPS);
        drop(kept);
        let function = match known {
            Some(function) => function,
            None if settled => return Ok(false),
            None => {
                let (graph, ()) = Tracing::function(&scope, false, inputs, step)?;
                let function = Shared::new(ConcreteFunction::new(&self.name, graph, device.clone(), self.scratch.clone())?);
                self.keep(place, variables, inputs, function)
            }
        };
        let caller = Caller::on(&device);
        let run = || function.compute(&caller, |take| inputs.iter().for_each(take), |_| ());
        let partial = |error: Error| match error.root() {
            Error::OutOfMemory(_) => error,
            _ => error.context("the step may have changed some variables"),
        };
        caller.during(Activity::Scope(&self.name), run).map_err(partial)?;
        Ok(true)
    }

    /// Keeps a compiled step, unless another thread has compiled the same one. Returns the one that is kept.
    fn keep(
        &self,
        place: Place<'_>,
        variables: &[&Variable],
        inputs: &[Tensor],
        function: Shared<ConcreteFunction>,
    ) -> Shared<ConcreteFunction> {
        let mut kept = self.kept.lock();
        if let Some(other) = kept.find(place, variables, inputs) {
            return other;
        }
        let oldest = (kept.steps.len() == MAX_STEPS).then(|| kept.steps.remove(0));
        kept.dropped += usize::from(oldest.is_some());
        let variables = variables.iter().map(|&variable| variable.clone()).collect();
        let types = inputs.iter().map(Tensor::tensor_type).collect();
        kept.steps.push(Compiled { device: place.0.clone(), rank: place.1, variables, types, function: function.clone() });
        drop(kept);
        // Dropped after the lock is released.
        drop(oldest);
        function
    }
}
