//! Elementwise cases with repeated elements. With this many elements, the host's compiled functions divide the work into blocks, and over
//! several cores.

use crate::golden::case::{Case, Value};
use crate::golden::ops_table;
use crate::golden::runtimes::Traced;
use anyhow::{Context, Result};
use gradlet_core::{Shape, TensorType};

/// Number of elements. It is enough for several threads if at least two ops are fused.
const ELEMENTS: usize = 1 << 17;

/// Returns the case with each tensor repeated to `ELEMENTS` elements. Returns `None` if its elements depend on each other, if its tensors
/// differ in shape, or if it is a variant in another element type.
pub fn repeated(case: &Case, traced: &Traced) -> Result<Option<Case>> {
    let values = || case.inputs.iter().chain(&case.wanted);
    let Some(shape) = values().next().map(|value| value.tensor_type.shape) else { return Ok(None) };
    let count = shape.elements().unwrap_or(0);
    let even = values().all(|value| value.tensor_type.shape == shape);
    let Some(op) = case.group.strip_prefix("op:") else { return Ok(None) };
    if !even || count < 2 || !ops_table::is_elementwise(op) || !alone(traced, count) {
        return Ok(None);
    }
    let times = ELEMENTS.div_ceil(count);
    let longer = |value: &Value| {
        let mut dims = shape.dims().to_vec();
        *dims.first_mut().context("a value with several elements has no axis")? *= times as u32;
        let tensor_type = TensorType::new(value.tensor_type.dtype, Shape::new(&dims)?);
        Ok(Value { name: value.name.clone(), tensor_type, bytes: value.bytes.repeat(times) })
    };
    let longer = |values: &[Value]| values.iter().map(longer).collect::<Result<Vec<_>>>();
    Ok(Some(Case {
        id: format!("{}, repeated", case.id),
        group: case.group.clone(),
        tolerance: case.tolerance,
        inputs: longer(&case.inputs)?,
        wanted: longer(&case.wanted)?,
        gradients: case.gradients,
        known: Vec::new(),
        body: case.body.clone(),
    }))
}

/// True if no op of the function reduces a tensor of `count` elements to fewer elements. The elements are then independent of each other.
fn alone(traced: &Traced, count: usize) -> bool {
    let graph = traced.graph();
    let elements = |&id: &usize| graph.values[id].tensor_type.shape.elements().unwrap_or(0);
    graph.nodes.iter().all(|node| node.inputs.iter().all(|id| elements(id) < count) || node.outputs.iter().all(|id| elements(id) >= count))
}
