//! Steps that are compiled in eager code. A compiled step changes variables in place. If it fails, it changes none.

use crate::base::error::Result;
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
use alloc::vec::Vec;

/// Maximum number of compiled steps that an optimizer keeps. The oldest is dropped first.
const MAX_STEPS: usize = 8;

/// The compiled steps of an optimizer: one for each set of variables that are trained together.
#[derive(Default)]
pub(super) struct Steps(Lock<Vec<Compiled>>);

struct Compiled {
    device: Device,
    variables: Vec<Variable>,
    types: Vec<TensorType>,
    function: Shared<ConcreteFunction>,
}

impl Steps {
    /// Runs a step that updates `variables` from `inputs`. On the first call with these variables and types of inputs, traces it with
    /// `step`. `scope` is the outermost scope.
    pub(super) fn run(
        &self,
        scope: &dyn Scope,
        name: &str,
        variables: &[&Variable],
        inputs: &Vec<Tensor>,
        step: impl FnOnce(&dyn Scope, Vec<Tensor>) -> Result<()>,
    ) -> Result<()> {
        let device = scope.device();
        let fits = |compiled: &&Compiled| {
            compiled.device == device
                && compiled.variables.iter().eq(variables.iter().copied())
                && compiled.types.iter().copied().eq(inputs.iter().map(Tensor::tensor_type))
        };
        let known = self.0.lock().iter().find(fits).map(|compiled| compiled.function.clone());
        let function = match known {
            Some(function) => function,
            None => {
                let (graph, ()) = Tracing::function(&scope.handle(), false, inputs, step)?;
                let scratch = Shared::new(Scratch::new(name));
                let function = Shared::new(ConcreteFunction::new(name, graph, device.clone(), scratch)?);
                let variables = variables.iter().map(|&variable| variable.clone()).collect();
                let types = inputs.iter().map(Tensor::tensor_type).collect();
                let mut all = self.0.lock();
                let oldest = (all.len() == MAX_STEPS).then(|| all.remove(0));
                all.push(Compiled { device: device.clone(), variables, types, function: function.clone() });
                drop(all);
                // Dropped after the lock is released.
                drop(oldest);
                function
            }
        };
        Caller::on(&device).during(Activity::Function(name), || function.run(inputs)).map(drop)
    }
}
