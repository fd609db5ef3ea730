//! Reads and assignments of variables that have a copy on the device of each replica.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::graph::Graph;
use crate::tensor::replicas::{Role, VariableAggregation};
use crate::tensor::scope::ScopeHandle;
use crate::tensor::variable::Variable;
use alloc::format;

/// Returns the variable that a scope with this role uses in place of `variable`: the copy of its replica, or `variable` itself.
pub(crate) fn own(role: Option<&Role>, variable: &Variable) -> Variable {
    match role.and_then(|role| role.rank) {
        Some(rank) => variable.copy_of(rank),
        None => variable.clone(),
    }
}

/// Returns the value of a variable outside of its replicas. `read` returns the value of a copy.
pub(crate) fn read(variable: &Variable, read: impl Fn(&Variable) -> Result<Tensor>) -> Result<Tensor> {
    let copies = variable.copies();
    let Some((first, others)) = copies.split_first() else { return read(variable) };
    if !variable.is_synchronized_on_read() {
        return read(first);
    }
    let device = first.device()?;
    let mean = match variable.aggregation() {
        VariableAggregation::OnlyFirstReplica => return read(first),
        VariableAggregation::Sum => false,
        VariableAggregation::Mean => true,
        VariableAggregation::None => {
            let text = "has another value in each replica: read it in a replica, or aggregate it";
            return Err(Error::message(format!("variable {:?} {text}", variable.name())));
        }
    };
    let near = |value: Tensor| if value.known()?.is_some() { value.brought(&device) } else { Ok(value) };
    let sum = others.iter().try_fold(read(first)?, |sum, copy| sum.add(&near(read(copy)?)?))?;
    if mean { part(&sum, copies.len()) } else { Ok(sum) }
}

/// Sets all copies of a variable outside of its replicas. `assign` sets a copy.
pub(crate) fn assign(variable: &Variable, value: &Tensor, assign: impl Fn(&Variable, &Tensor) -> Result<()>) -> Result<()> {
    let copies = variable.copies();
    let summed = variable.is_synchronized_on_read() && variable.aggregation() == VariableAggregation::Sum;
    let value = if summed { part(value, copies.len())? } else { value.clone() };
    copies.iter().try_for_each(|copy| assign(copy, &value))
}

/// Returns `value` divided by the number of replicas.
fn part(value: &Tensor, count: usize) -> Result<Tensor> {
    let count = Tensor::scalar(&value.device()?, count as f32);
    match value.dtype() {
        DType::F32 => value.div(&count),
        dtype => value.cast(DType::F32)?.div(&count)?.cast(dtype),
    }
}

impl Variable {
    /// Gives the value of the first copy to all copies, after it was written outside of every scope. Does nothing if there are no copies.
    pub fn share(&self) -> Result<()> {
        if !self.is_mirrored() {
            return Ok(());
        }
        let value = self.copy_of(0).value()?;
        assign(self, &value, |copy, value| copy.set(&value.brought(&copy.device()?)?))
    }
}

/// Returns the current value of a variable outside of every scope.
pub(crate) fn value(variable: &Variable) -> Result<Tensor> {
    if variable.is_mirrored() { read(variable, Variable::value) } else { variable.value() }
}

/// Checks a function that a replica traced. While it runs, it owns the variables that it assigns. If it also waits for the other replicas,
/// they must not need the same variables.
pub(crate) fn check(scope: &ScopeHandle, graph: &Graph) -> Result<()> {
    if !is_replica(scope) || !graph.nodes.iter().any(|node| node.op.exchanges) {
        return Ok(());
    }
    let own = scope.recorder.random_state()?;
    let assigned = graph.captures.iter().filter(|capture| capture.assigned.is_some());
    let shared = assigned.filter_map(|capture| capture.source.variable()).find(|variable| !variable.is_copy() && **variable != own);
    let Some(variable) = shared else { return Ok(()) };
    let text = "has no copies, so replicas that wait for each other cannot assign it: create it in the scope of the strategy";
    Err(Error::message(format!("variable {:?} {text}", variable.name())))
}

/// True if this scope is that of a replica.
pub(crate) fn is_replica(scope: &ScopeHandle) -> bool {
    scope.recorder.role().is_some_and(|role| role.rank.is_some())
}
