//! Branches and loops, whose bodies are subgraphs.

use super::node::{Emit, Imported, Node, many};
use gradlet_core::control::{WhileOptions, cond, while_loop};
use gradlet_core::{Error, Result, Tensor};

/// Returns a predicate as a scalar.
fn scalar(predicate: &Tensor) -> Result<Tensor> {
    if predicate.dims().is_empty() { Ok(predicate.clone()) } else { predicate.reshape(&[]) }
}

pub(super) fn branch<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let callees = node.callees()?;
    let &[then, otherwise] = callees.as_slice() else { return Err("it has no branches".into()) };
    many(move |inputs| {
        let mut operands = inputs.all()?.into_iter();
        let predicate = scalar(&operands.next().ok_or(Error::Arity { got: 0 })?)?;
        let operands: Vec<Tensor> = operands.collect();
        let branch = |subgraph| inputs.subgraph(subgraph, operands.clone());
        cond(inputs.scope(), &predicate, || branch(then), || branch(otherwise))
    })
}

pub(super) fn repeat<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let callees = node.callees()?;
    let &[condition, body] = callees.as_slice() else { return Err("it has no body".into()) };
    many(move |inputs| {
        let holds = |state: &Vec<Tensor>| {
            let holds = inputs.subgraph(condition, state.clone())?;
            scalar(holds.first().ok_or(Error::Arity { got: 0 })?)
        };
        while_loop(inputs.scope(), WhileOptions::default(), inputs.all()?, holds, |state| inputs.subgraph(body, state))
    })
}
