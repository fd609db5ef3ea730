//! Variables: handles, reads, assignments, and the subgraph that gives them their first values.

use super::node::{Emit, Imported, Node, many, one};
use crate::formats::tflite::{Code, VarHandleOptions};
use gradlet_core::{Eager, Error, Result, Scope, Tensor, Variable};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The variables of a model, which all its calls share.
pub(super) struct Variables {
    named: Mutex<BTreeMap<String, Variable>>,
    /// For each subgraph, whether it has run as an initialization.
    initialized: Vec<Mutex<bool>>,
}

impl Variables {
    /// Creates the variables of a model with this many subgraphs.
    pub(super) fn new(subgraphs: usize) -> Variables {
        Variables { named: Mutex::default(), initialized: (0..subgraphs).map(|_| Mutex::default()).collect() }
    }

    /// Returns all variables that calls have named so far.
    pub(super) fn all(&self) -> Vec<Variable> {
        locked(&self.named).values().cloned().collect()
    }

    pub(super) fn named(&self, name: &str) -> Variable {
        locked(&self.named).entry(name.into()).or_insert_with(|| Variable::deferred(name)).clone()
    }

    /// Returns a variable that no optimizer trains. The first call gives it the value `first`, on the device of `scope`.
    pub(super) fn state(&self, name: &str, scope: &dyn Scope, first: impl FnOnce(&Eager) -> Result<Tensor>) -> Result<Variable> {
        let variable = locked(&self.named).entry(name.into()).or_insert_with(|| Variable::untrained(name)).clone();
        if !variable.is_built() {
            let eager = Eager::new(&scope.device());
            variable.create(&eager, &first(&eager)?)?;
        }
        Ok(variable)
    }

    /// Calls `initialize` unless it has succeeded before for this subgraph.
    pub(super) fn once(&self, subgraph: usize, initialize: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut done = locked(self.initialized.get(subgraph).ok_or(Error::Internal)?);
        if !*done {
            initialize()?;
            *done = true;
        }
        Ok(())
    }
}

/// Locks data that is valid even after a panic, because it changes in one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of the variable whose handle is an input.
fn name(node: &Node<'_>, at: usize) -> Imported<String> {
    let index = node.operator.inputs.get(at).copied().flatten();
    let made = node.graph.operators.iter().find(|operator| index.is_some_and(|index| operator.outputs.contains(&index)));
    let made = made.filter(|operator| operator.code == Code::Builtin("VAR_HANDLE"));
    let options = made.and_then(|operator| operator.options::<VarHandleOptions<'_>>());
    let options = options.ok_or("its handle comes from another subgraph")?;
    let (container, name) = (options.container().unwrap_or_default(), options.shared_name().unwrap_or_default());
    Ok(if container.is_empty() { name.into() } else { format!("{container}/{name}") })
}

/// Imports a handle, which is not a tensor. Reads and assignments find its name.
pub(super) fn handle<'m>(_: &Node<'m>) -> Imported<Emit<'m>> {
    many(|_| Ok(Vec::new()))
}

pub(super) fn read<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let name = name(node, 0)?;
    one(move |inputs| {
        let variable = inputs.variables().named(&name);
        if !variable.is_built() {
            return Err(Error::message(format!("variable {name:?} has no value yet")));
        }
        inputs.scope().read(&variable)
    })
}

/// Imports an assignment. The first one creates the variable.
pub(super) fn assign<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let name = name(node, 0)?;
    many(move |inputs| {
        let (variable, value) = (inputs.variables().named(&name), inputs.get(1)?);
        if variable.is_built() {
            inputs.scope().assign(&variable, &value)?;
        } else {
            variable.create(inputs.scope(), &value)?;
        }
        Ok(Vec::new())
    })
}

/// Imports the call of a subgraph in the first call of the model. It runs eagerly, even in a trace.
pub(super) fn call_once<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let callees = node.callees()?;
    let &[subgraph] = callees.as_slice() else { return Err("it calls no subgraph".into()) };
    many(move |inputs| {
        inputs.variables().once(subgraph, || inputs.eagerly(subgraph))?;
        Ok(Vec::new())
    })
}
