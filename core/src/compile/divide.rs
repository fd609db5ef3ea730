//! Division of a graph whose nodes run on several devices: each stretch of nodes on the same device becomes a graph of its own.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::device::Device;
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Nodes of a graph that run on the same device, one after the other.
pub(crate) struct Stretch {
    /// Index of the device in its group.
    pub(crate) device: u32,
    /// The nodes. Variables and values of other stretches are inputs.
    pub(crate) graph: Graph,
    /// The values of the whole graph that are the inputs.
    pub(crate) inputs: Vec<ValueId>,
    /// The values of the whole graph that are the outputs.
    pub(crate) outputs: Vec<ValueId>,
}

/// Divides `graph`, a function's that runs on `device`. Returns `None` if all of its nodes and variables are on that device.
///
/// Fails if a node must run on a device that cannot compute it.
pub(crate) fn divide(graph: &Graph, device: &Device) -> Result<Option<Vec<Stretch>>> {
    if device.placement().is_none() {
        return Ok(None);
    }
    let of = |node: &Node| {
        // A branch or a loop runs as a whole. Every device has its kernel.
        if !node.bodies.is_empty() {
            return Ok(node.device.unwrap_or(device.index()));
        }
        let dtype = node.inputs.first().or(node.outputs.first()).map_or(DType::U8, |&id| graph.values[id].tensor_type.dtype);
        device.of_node(node.device, node.op.def, dtype)
    };
    let devices = graph.nodes.iter().map(of).collect::<Result<Vec<u32>>>()?;
    graph.nodes.iter().zip(&devices).for_each(|(node, &index)| device.log_node(node.name.as_deref(), node.op, index));
    let mut elsewhere = devices.iter().any(|&other| other != device.index());
    for variable in graph.captures.iter().filter_map(|capture| capture.source.variable()) {
        elsewhere |= variable.device()? != *device;
    }
    if !elsewhere {
        return Ok(None);
    }
    let mut stretches = Vec::new();
    let mut first = 0;
    for end in 1..=devices.len() {
        if end == devices.len() || devices[end] != devices[first] {
            stretches.push(stretch(graph, first, end, devices[first])?);
            first = end;
        }
    }
    Ok(Some(stretches))
}

/// Returns the nodes from `first` to `end` as a graph of their own.
fn stretch(whole: &Graph, first: usize, end: usize, device: u32) -> Result<Stretch> {
    let (nodes, later) = (&whole.nodes[first..end], &whole.nodes[end..]);
    let needed: BTreeSet<ValueId> = later.iter().flat_map(|node| node.inputs.iter().copied()).chain(whole.results()).collect();
    let (mut graph, mut inputs, mut own) = (Graph::default(), Vec::new(), BTreeMap::<ValueId, ValueId>::new());
    for node in nodes {
        for &id in &node.inputs {
            if own.contains_key(&id) {
                continue;
            }
            let origin = match &whole.values[id].origin {
                Origin::Constant(tensor) => Origin::Constant(tensor.clone()),
                _ => {
                    inputs.push(id);
                    Origin::Input(inputs.len() - 1)
                }
            };
            let is_input = matches!(origin, Origin::Input(_));
            let new = graph.value(whole.values[id].tensor_type, origin);
            own.insert(id, new);
            graph.inputs.extend(is_input.then_some(new));
        }
        for &id in &node.outputs {
            own.insert(id, graph.value(whole.values[id].tensor_type, Origin::Node));
        }
        let of = |ids: &[ValueId]| ids.iter().map(|id| own.get(id).copied().ok_or(Error::Internal)).collect::<Result<Vec<_>>>();
        let (inputs, outputs) = (of(&node.inputs)?, of(&node.outputs)?);
        graph.nodes.push(Node { inputs, outputs, ..node.clone() });
    }
    let outputs: Vec<ValueId> = nodes.iter().flat_map(|node| &node.outputs).copied().filter(|id| needed.contains(id)).collect();
    graph.outputs = outputs.iter().map(|id| own.get(id).copied().ok_or(Error::Internal)).collect::<Result<_>>()?;
    Ok(Stretch { device, graph, inputs, outputs })
}
