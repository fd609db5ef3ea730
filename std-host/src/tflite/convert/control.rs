//! Branches and loops, whose bodies are subgraphs.

use super::emitter::{Converted, Emitter};
use crate::formats::tflite::write::Field;
use gradlet_core::function::graph::{Graph, Node, Origin, ValueId};
use gradlet_core::{DType, Shape, TensorType};

/// Operands of a branch or loop that its bodies get: all but constants, which each body has as its own.
struct Passed {
    operands: Vec<ValueId>,
    /// For each operand of the node, whether it is passed.
    is_passed: Vec<bool>,
}

impl Passed {
    /// Chooses among `operands`, of which the first `needed` are passed in any case.
    fn new(to: &Emitter<'_>, operands: &[ValueId], needed: usize) -> Passed {
        let is_passed: Vec<bool> = operands.iter().enumerate().map(|(at, &id)| at < needed || to.source.constant(id).is_none()).collect();
        let passed = operands.iter().zip(&is_passed).filter(|(_, passed)| **passed).map(|(&id, _)| id).collect();
        Passed { operands: passed, is_passed }
    }

    /// Returns a body whose inputs are the operands that are passed.
    fn body(&self, to: &Emitter<'_>, body: &Graph, operands: &[ValueId]) -> Graph {
        let mut body = body.clone();
        for ((&input, &id), passed) in body.inputs.iter().zip(operands).zip(&self.is_passed) {
            if let Some(constant) = to.source.constant(id).filter(|_| !passed) {
                body.values[input].origin = Origin::Constant(constant.clone());
            }
        }
        let mut passed = self.is_passed.iter();
        body.inputs.retain(|_| passed.next() == Some(&true));
        body
    }
}

/// Adds a branch on a condition.
pub(super) fn branch(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (&by, operands) = node.inputs.split_first().ok_or("it has no condition")?;
    let [then, otherwise] = node.bodies.as_slice() else { return Err(format!("it has {} branches, but IF takes 2", node.bodies.len())) };
    if to.kind(by).dtype != DType::Bool {
        return Err("it chooses by a number, but IF takes a bool".into());
    }
    let passed = Passed::new(to, operands, 0);
    let mut subgraphs = Vec::new();
    for (slot, (name, body)) in [("then", then), ("else", otherwise)].into_iter().enumerate() {
        let body = passed.body(to, body, operands);
        subgraphs.push((slot as u16, Field::I32(to.nest(&body, name, |_| Ok(()))?)));
    }
    let inputs = [by].iter().chain(&passed.operands).map(|&id| to.tensor(id)).collect::<Converted<Vec<i32>>>()?;
    let outputs = node.outputs.iter().map(|&id| to.result(id)).collect::<Converted<Vec<i32>>>()?;
    to.operator("IF", &inputs, &outputs, Some((92, subgraphs)));
    Ok(())
}

/// Type of the number of an iteration.
const COUNT: TensorType = TensorType::new(DType::I32, Shape::SCALAR);

/// Adds a loop. Its state is that of gradlet, then the operands that do not change and, if the iterations are limited, their number.
pub(super) fn repeat(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ([condition, body], Some(&most)) = (node.bodies.as_slice(), node.attributes.last()) else { return Err("it has no body".into()) };
    let most = i32::try_from(most).ok();
    let passed = Passed::new(to, &node.inputs, node.outputs.len());
    let [condition, mut body] = [condition, body].map(|graph| passed.body(to, graph, &node.inputs));
    body.outputs.extend(body.inputs.iter().skip(node.outputs.len()));
    let condition = to.nest(&condition, "cond", |inner| {
        let Some(most) = most else { return Ok(()) };
        let (count, most) = (inner.argument(COUNT)?, inner.number(most)?);
        let [is_less, both] = [inner.temporary(TensorType::BOOL, None)?, inner.temporary(TensorType::BOOL, None)?];
        inner.operator("LESS", &[count, most], &[is_less], None);
        let holds = inner.results().first().copied().ok_or("it has no condition")?;
        inner.operator("LOGICAL_AND", &[holds, is_less], &[both], None);
        *inner.results() = vec![both];
        Ok(())
    })?;
    let body = to.nest(&body, "body", |inner| {
        inner.copy_other_inputs()?;
        if most.is_some() {
            let (count, one, next) = (inner.argument(COUNT)?, inner.number(1)?, inner.temporary(COUNT, None)?);
            inner.operator("ADD", &[count, one], &[next], Some((11, Vec::new())));
            inner.results().push(next);
        }
        Ok(())
    })?;
    let mut inputs = passed.operands.iter().map(|&id| to.tensor(id)).collect::<Converted<Vec<i32>>>()?;
    let mut outputs = node.outputs.iter().map(|&id| to.result(id)).collect::<Converted<Vec<i32>>>()?;
    for &id in passed.operands.iter().skip(node.outputs.len()) {
        outputs.push(to.temporary(to.kind(id), None)?);
    }
    if most.is_some() {
        inputs.push(to.number(0)?);
        outputs.push(to.temporary(COUNT, None)?);
    }
    to.operator("WHILE", &inputs, &outputs, Some((93, vec![(0, Field::I32(condition)), (1, Field::I32(body))])));
    Ok(())
}
