//! Fuses a convolution, relu and max pooling, and their gradients. The full-size result of the convolution and its gradient then never
//! exist in memory, and only the winners of the pooling windows take part in the gradients. The results keep their bits.
//!
//! Only plans for microcontrollers are rewritten. A host has faster kernels for the single ops, so it divides the fused ops of an artifact
//! that it loads.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{OpCode, read_attributes};
use crate::compile::plan::{producers, readers};
use crate::ops;
use crate::ops::max_pool2d;
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use crate::tensor::scope::Op;
use alloc::vec::Vec;

/// Fuses every convolution whose result only a max pooling and their gradients read.
pub(crate) fn fuse_pools(graph: &mut Graph) {
    while let Some(fused) = (0..graph.nodes.len()).find_map(|pool| Block::find(graph, pool)?.fused(graph)) {
        *graph = fused;
    }
}

/// Indices of the nodes to fuse.
struct Block {
    conv: usize,
    relu: Option<usize>,
    pool: usize,
    ksize: [u32; 2],
    backward: Option<Backward>,
}

/// Indices of the nodes of the gradient.
#[derive(Default)]
struct Backward {
    pool: usize,
    relu: Option<usize>,
    filter: Option<usize>,
    bias: Option<usize>,
    input: Option<usize>,
}

impl Block {
    /// Returns the block of node `pool`. Returns `None` if that node is no max pooling, or if the nodes around it do not fit.
    fn find(graph: &Graph, pool: usize) -> Option<Block> {
        let node = graph.nodes.get(pool).filter(|node| node.op.def.code == ops::code::max_pool2d)?;
        let (full, producers) = (node.inputs[0], producers(graph));
        let made_by = |id: ValueId, code: OpCode| producers[id].filter(|&index| graph.nodes[index].op.def.code == code);
        let relu = made_by(full, ops::code::relu);
        let convolved = relu.map_or(full, |relu| graph.nodes[relu].inputs[0]);
        let conv = made_by(convolved, ops::code::conv2d)?;
        let float = matches!(graph.values[full].tensor_type.dtype, DType::F32 | DType::F64);
        if !float || relu.is_some_and(|relu| only_readers(graph, convolved) != Some(alloc::vec![relu])) {
            return None;
        }
        let mut others = only_readers(graph, full)?;
        others.retain(|&reader| reader != pool);
        let backward = if others.is_empty() { None } else { Some(Backward::find(graph, [conv, pool], relu, others)?) };
        Some(Block { conv, relu, pool, ksize: apart(graph, node)?, backward })
    }

    /// Returns the graph with the fused nodes. Returns `None` if a fused op does not support the attributes.
    fn fused(&self, graph: &Graph) -> Option<Graph> {
        let mut graph = graph.clone();
        let (node, relu) = (|index: usize| &graph.nodes[index], u32::from(self.relu.is_some()));
        let (inputs, y) = (node(self.conv).inputs.clone(), node(self.pool).outputs[0]);
        let [tall, wide] = self.ksize;
        let forward = fuse(&mut graph, &ops::conv2d_max_pool2d::OP, (self.conv, &[tall, wide, relu]), inputs, &[y])?;
        let winners = forward.outputs[1];
        graph.nodes[self.pool] = forward;
        let mut unused = alloc::vec![Some(self.conv), self.relu];
        if let Some(Backward { pool, relu, filter, bias, input }) = self.backward {
            let dy = graph.nodes[pool].inputs[1];
            if let Some(filter) = filter {
                let inputs = alloc::vec![graph.nodes[filter].inputs[0], dy, winners];
                let outputs: Vec<ValueId> = [Some(filter), bias].into_iter().flatten().map(|index| graph.nodes[index].outputs[0]).collect();
                let node = fuse(&mut graph, &ops::conv2d_max_pool2d_filter_grad::OP, (filter, &self.ksize), inputs, &outputs)?;
                // At the first of the two positions, before every reader.
                graph.nodes[bias.map_or(filter, |bias| bias.min(filter))] = node;
                unused.push(bias.map(|bias| bias.max(filter)));
            }
            if let Some(input) = input {
                let (inputs, outputs) = (alloc::vec![graph.nodes[input].inputs[0], dy, winners], graph.nodes[input].outputs.clone());
                graph.nodes[input] = fuse(&mut graph, &ops::conv2d_max_pool2d_input_grad::OP, (input, &self.ksize), inputs, &outputs)?;
            }
            unused.extend([Some(pool), relu]);
        }
        let mut index = 0;
        graph.nodes.retain(|_| {
            index += 1;
            !unused.contains(&Some(index - 1))
        });
        Some(graph)
    }
}

impl Backward {
    /// Returns the gradient's nodes. `others` are the nodes other than the pooling that read the full-size result. Returns `None` if one
    /// of them, or of the readers of the full-size gradient, does not belong to the gradient.
    fn find(graph: &Graph, [conv, pool]: [usize; 2], relu: Option<usize>, others: Vec<usize>) -> Option<Backward> {
        let node = |index: usize| &graph.nodes[index];
        let with = |code: OpCode| others.iter().copied().find(|&index| node(index).op.def.code == code);
        let (full, expected) = (node(pool).inputs[0], 1 + usize::from(relu.is_some()));
        let back = with(ops::code::max_pool2d_grad)?;
        let mut gradient = node(back).outputs[0];
        if others.len() != expected || node(back).attributes != node(pool).attributes || node(back).inputs[1] == full {
            return None;
        }
        let mut backward = Backward { pool: back, ..Backward::default() };
        if relu.is_some() {
            let back = with(ops::code::relu_grad)?;
            if node(back).inputs != [gradient, full] || only_readers(graph, gradient)? != [back] {
                return None;
            }
            gradient = node(back).outputs[0];
            backward.relu = Some(back);
        }
        for reader in only_readers(graph, gradient)? {
            let of_conv = node(reader).attributes.starts_with(&node(conv).attributes) && node(reader).inputs[0] != gradient;
            let slot = match node(reader).op.def.code {
                ops::code::conv2d_filter_grad if of_conv => &mut backward.filter,
                ops::code::conv2d_input_grad if of_conv => &mut backward.input,
                ops::code::sum if node(reader).attributes == [0, 0, 1, 2] => &mut backward.bias,
                _ => return None,
            };
            if slot.replace(reader).is_some() {
                return None;
            }
        }
        // The gradient of a bias is an output of that of the filter.
        (backward.filter.is_some() || backward.bias.is_none()).then_some(backward)
    }
}

/// Returns the node that replaces node `of`. It has its name, its attribute words followed by `words`, and the outputs `outputs`, followed
/// by new ones. Returns `None` if the op refuses the types or the attributes.
fn fuse(graph: &mut Graph, op: &'static Op, (of, words): (usize, &[u32]), inputs: Vec<ValueId>, outputs: &[ValueId]) -> Option<Node> {
    let Node { attributes, name, .. } = graph.nodes[of].clone();
    let attributes = [&attributes, words].concat();
    let types: Vec<_> = inputs.iter().map(|&id| graph.values[id].tensor_type).collect();
    let types: Vec<_> = op.def.output_types(&types, &attributes).ok()?.into_iter().take(op.def.outputs.into()).collect();
    let new = types.into_iter().skip(outputs.len()).map(|tensor_type| graph.value(tensor_type, Origin::Node));
    let outputs = outputs.iter().copied().chain(new.collect::<Vec<_>>()).collect();
    Some(Node { name, ..Node::new(op, attributes, inputs, outputs) })
}

/// Divides every fused op into the single ops again, for a device with faster kernels for those. The results keep their bits. A fused op
/// whose winners another node reads than its gradients stays.
pub(crate) fn divide_pools(graph: &mut Graph) -> Result<()> {
    for node in 0..graph.nodes.len() {
        let mut bodies = core::mem::take(&mut graph.nodes[node].bodies);
        bodies.iter_mut().try_for_each(divide_pools)?;
        graph.nodes[node].bodies = bodies;
    }
    let gradients = [ops::code::conv2d_max_pool2d_filter_grad, ops::code::conv2d_max_pool2d_input_grad];
    let (uses, mut pools) = (graph.uses(), Vec::<Divided>::new());
    let own = |node: &Node, winners: ValueId| gradients.contains(&node.op.def.code) && node.inputs[2] == winners;
    let only_gradients = |graph: &Graph, fused: &Node| {
        let readers = graph.nodes.iter().filter(|node| own(node, fused.outputs[1])).count();
        uses[fused.outputs[1]] == readers && uses[fused.outputs[2]] == 0
    };
    let whole: Vec<bool> =
        graph.nodes.iter().map(|node| node.op.def.code == ops::code::conv2d_max_pool2d && only_gradients(graph, node)).collect();
    for (node, whole) in core::mem::take(&mut graph.nodes).into_iter().zip(whole) {
        if whole {
            pools.push(divide_forward(graph, &node)?);
        } else if let Some(pool) = pools.iter_mut().find(|pool| own(&node, pool.winners)) {
            divide_gradient(graph, &node, pool)?;
        } else {
            graph.nodes.push(node);
        }
    }
    Ok(())
}

/// A fused op that was divided.
struct Divided {
    winners: ValueId,
    /// The full-size result of the convolution, after relu.
    full: ValueId,
    relu: bool,
    /// The attribute words of the pooling.
    pooling: Vec<u32>,
    /// The gradients of the pooled values, each with the full-size gradient.
    gradients: Vec<(ValueId, ValueId)>,
}

/// Adds a node with one output of type `of`, or of a new type if `of` is `None`. Returns its output.
fn add(graph: &mut Graph, op: &'static Op, attributes: &[u32], inputs: &[ValueId], output: Option<ValueId>) -> Result<ValueId> {
    let types: Vec<_> = inputs.iter().map(|&id| graph.values[id].tensor_type).collect();
    let [tensor_type, ..] = op.def.output_types(&types, attributes)?;
    let output = output.unwrap_or_else(|| graph.value(tensor_type, Origin::Node));
    graph.nodes.push(Node::new(op, attributes.to_vec(), inputs.to_vec(), alloc::vec![output]));
    Ok(output)
}

fn divide_forward(graph: &mut Graph, node: &Node) -> Result<Divided> {
    let (&[y, winners, _], Some((conv, &[tall, wide, relu]))) = (node.outputs.as_slice(), node.attributes.split_last_chunk::<3>()) else {
        return Err(Error::Internal);
    };
    let mut full = add(graph, &ops::conv2d::OP, conv, &node.inputs, None)?;
    if relu != 0 {
        full = add(graph, &ops::relu::OP, &[], &[full], None)?;
    }
    let pooling = alloc::vec![tall, wide, tall, wide, 0];
    add(graph, &ops::max_pool2d::OP, &pooling, &[full], Some(y))?;
    Ok(Divided { winners, full, relu: relu != 0, pooling, gradients: Vec::new() })
}

fn divide_gradient(graph: &mut Graph, node: &Node, pool: &mut Divided) -> Result<()> {
    let (dy, words) = (node.inputs[1], node.attributes.len().saturating_sub(2));
    let conv = &node.attributes[..words];
    let gradient = match pool.gradients.iter().find(|(other, _)| *other == dy) {
        Some(&(_, gradient)) => gradient,
        None => {
            let mut gradient = add(graph, &ops::max_pool2d_grad::OP, &pool.pooling, &[pool.full, dy], None)?;
            if pool.relu {
                gradient = add(graph, &ops::relu_grad::OP, &[], &[gradient, pool.full], None)?;
            }
            pool.gradients.push((dy, gradient));
            gradient
        }
    };
    let inputs = [node.inputs[0], gradient];
    match node.outputs.as_slice() {
        &[filter, bias] => {
            add(graph, &ops::conv2d_filter_grad::OP, conv, &inputs, Some(filter))?;
            add(graph, &ops::sum::OP, &[0, 0, 1, 2], &[gradient], Some(bias))?;
        }
        outputs => drop(add(graph, &ops::conv2d_input_grad::OP, conv, &inputs, outputs.first().copied())?),
    }
    Ok(())
}

/// Returns the size of the windows of a max pooling. Returns `None` if they overlap, leave gaps, or are padded.
fn apart(graph: &Graph, pool: &Node) -> Option<[u32; 2]> {
    let max_pool2d::Attributes { ksize, strides, padding } = read_attributes(&pool.attributes).ok()?;
    let full = graph.values[pool.inputs[0]].tensor_type.shape;
    let whole = full.dims().iter().skip(1).zip(ksize).all(|(&dim, size)| dim.is_multiple_of(size));
    (ksize == strides && (padding == 0 || whole)).then_some(ksize)
}

/// Returns the nodes that read value `id`. Returns `None` if the value is a result.
fn only_readers(graph: &Graph, id: ValueId) -> Option<Vec<usize>> {
    let readers = readers(graph).swap_remove(id);
    graph.results().all(|result| result != id).then_some(readers)
}
