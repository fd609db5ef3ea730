//! Products with which the groups of a remote device begin, and reductions with which they end
//! ([`Fuses::Neighbours`](crate::tensor::device::remote::Fuses)).

use crate::base::dtype::DType;
use crate::compile::plan::is_by_element;
use crate::ops::code;
use crate::tensor::graph::{Graph, Node, ValueId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// True if a group may begin with `node`.
pub(crate) fn is_product(graph: &Graph, node: &Node) -> bool {
    let product = [code::matmul, code::dense, code::conv2d, code::conv2d_input_grad].contains(&node.op.def.code);
    product && is_plain(graph, node) && graph.values[node.outputs[0]].tensor_type.bytes() != Some(0)
}

/// True if the result of `node` is f32, and no new value of a variable.
pub(crate) fn is_plain(graph: &Graph, node: &Node) -> bool {
    let &[result] = node.outputs.as_slice() else { return false };
    graph.values[result].tensor_type.dtype == DType::F32 && !is_assigned(graph, result)
}

/// Returns the order in which each product stands directly before the first node that reads it, if only small elementwise nodes were
/// between them, such as those that compute the factors of a normalization. The small nodes are then before the product. They are also
/// before elementwise nodes that may be one group without them.
pub(crate) fn brought_together(graph: &Graph, order: &[usize]) -> Vec<usize> {
    let mut order = order.to_vec();
    small_ones_first(graph, &mut order);
    for at in (0..order.len()).rev().filter(|&at| is_product(graph, &graph.nodes[order[at]])).collect::<Vec<_>>() {
        let value = graph.nodes[order[at]].outputs[0];
        let reads = |index: &usize| graph.nodes[*index].inputs.contains(&value);
        let after = &order[at + 1..];
        if let Some(count) = after.iter().position(reads)
            && after[..count].iter().all(|&index| is_small(graph, &graph.nodes[index], value))
        {
            order[at..=at + count].rotate_left(1);
        }
    }
    order
}

/// Moves small nodes that stand between elementwise nodes with the same number of elements before all of these, such as those that compute
/// the moving statistics of a normalization.
fn small_ones_first(graph: &Graph, order: &mut [usize]) {
    let elements = |id: ValueId| graph.values[id].tensor_type.shape.elements();
    let value = |index: usize| graph.nodes[index].outputs.first().copied().filter(|_| is_by_element(&graph.nodes[index]));
    // The last neighbours of each size.
    let mut runs = BTreeMap::<Option<usize>, Range<usize>>::new();
    for at in 0..order.len() {
        let Some(large) = value(order[at]) else { continue };
        let is_small = |index: &&usize| is_small(graph, &graph.nodes[**index], large);
        let is_large = |index: &&usize| value(**index).is_some_and(|value| elements(value) == elements(large));
        let small = order[..at].iter().rev().take_while(is_small).count();
        let end = at - small;
        let run = runs.get(&elements(large)).filter(|run| run.end == end);
        let first = run.map_or_else(|| end - order[..end].iter().rev().take_while(is_large).count(), |run| run.start);
        order[first..at].rotate_left(end - first);
        runs.insert(elements(large), first + small..at + 1);
    }
}

/// True if `node` computes fewer elements than `value` has, and may run earlier. A node that computes no elements may not: it could read
/// `value`.
fn is_small(graph: &Graph, node: &Node, value: ValueId) -> bool {
    let elements = |id: ValueId| graph.values[id].tensor_type.shape.elements();
    let refuses = node.inputs.first().is_none_or(|&input| node.op.may_refuse(graph.values[input].tensor_type.dtype));
    let is_smaller = |id: ValueId| (Some(1)..elements(value)).contains(&elements(id));
    is_by_element(node) && !refuses && node.outputs.iter().all(|&id| is_smaller(id) && !is_assigned(graph, id))
}

/// True if a variable gets the value.
fn is_assigned(graph: &Graph, id: ValueId) -> bool {
    graph.captures.iter().any(|capture| capture.assigned == Some(id))
}

/// Returns the value that `node` reduces, and the sizes of the stretches of elements at whose ends the reduced axes begin and end. Returns
/// `None` if no group may end with `node`.
pub(crate) fn reduction(graph: &Graph, node: &Node) -> Option<(ValueId, Vec<usize>)> {
    let (&[value], &[result]) = (node.inputs.as_slice(), node.outputs.as_slice()) else { return None };
    // The group may still read a variable when the first results are there.
    if is_assigned(graph, result) {
        return None;
    }
    let x = graph.values[value].tensor_type;
    let known = match node.op.def.code {
        code::sum | code::mean => matches!(x.dtype, DType::F32 | DType::F16 | DType::Bf16),
        code::max => x.dtype == DType::F32,
        _ => false,
    };
    let elements = x.shape.elements().filter(|&elements| (1..1 << 32).contains(&(elements as u64)))?;
    let reduced = node.attributes.get(1..).filter(|_| known)?;
    let (mut edges, mut size, mut before) = (Vec::new(), 1, false);
    for (axis, &dim) in x.shape.dims().iter().enumerate().rev().filter(|(_, dim)| **dim != 1) {
        let own = reduced.contains(&(axis as u32));
        if own != before {
            edges.push(size);
        }
        (before, size) = (own, size * dim as usize);
    }
    if before {
        edges.push(elements);
    }
    // One stretch of axes begins and ends. Edges at the ends of the tensor are none.
    let one = edges.len() == 2;
    edges.retain(|&edge| edge != 1 && edge != elements);
    one.then_some((value, edges))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shape::Shape;
    use crate::base::shape::TensorType;
    use crate::ops;
    use crate::tensor::graph::Origin;

    /// Returns the edges of a reduction of f32.
    fn edges(op: &'static crate::tensor::scope::Op, dims: &[u32], reduced: &[u32]) -> Option<Vec<usize>> {
        let mut graph = Graph::default();
        let x = graph.value(TensorType::new(DType::F32, Shape::new(dims).unwrap()), Origin::Input(0));
        let y = graph.value(TensorType::new(DType::F32, Shape::SCALAR), Origin::Node);
        let node = Node::new(op, [&[0], reduced].concat(), alloc::vec![x], alloc::vec![y]);
        reduction(&graph, &node).map(|(value, edges)| {
            assert_eq!(value, x);
            edges
        })
    }

    #[test]
    fn neighbouring_axes_have_edges() {
        assert_eq!(edges(&ops::sum::OP, &[2, 3, 4, 5], &[1, 2]), Some(alloc::vec![5, 60]));
        assert_eq!(edges(&ops::mean::OP, &[2, 3, 1, 5], &[0, 1]), Some(alloc::vec![5]));
        assert_eq!(edges(&ops::max::OP, &[2, 3], &[1]), Some(alloc::vec![3]));
        assert_eq!(edges(&ops::sum::OP, &[2, 1, 3], &[0, 2]), Some(alloc::vec![]));
    }

    #[test]
    fn other_reductions_end_no_group() {
        assert_eq!(edges(&ops::sum::OP, &[2, 3, 4], &[0, 2]), None);
        assert_eq!(edges(&ops::sum::OP, &[2, 1], &[1]), None);
        assert_eq!(edges(&ops::sum::OP, &[1, 1], &[0, 1]), None);
        assert_eq!(edges(&ops::sum::OP, &[2, 0], &[0]), None);
        assert_eq!(edges(&ops::sum::OP, &[1 << 16, 1 << 16], &[0]), None);
        assert_eq!(edges(&ops::min::OP, &[2, 3], &[0]), None);
    }

    #[test]
    fn small_nodes_run_before_a_product() {
        let mut graph = Graph::default();
        let tensor = |dims: &[u32]| TensorType::new(DType::F32, Shape::new(dims).unwrap());
        let [x, row] = [&[4, 4][..], &[4]].map(|dims| graph.value(tensor(dims), Origin::Input(0)));
        let [product, factor, scaled, large] = [&[4, 4][..], &[4], &[4, 4], &[4, 4]].map(|dims| graph.value(tensor(dims), Origin::Node));
        let mut add = |op, inputs: &[ValueId], output| {
            graph.nodes.push(Node::new(op, Vec::new(), inputs.to_vec(), alloc::vec![output]));
        };
        add(&ops::matmul::OP, &[x, x], product);
        add(&ops::rsqrt::OP, &[row], factor);
        add(&ops::mul::OP, &[product, factor], scaled);
        add(&ops::exp::OP, &[x], large);
        assert_eq!(brought_together(&graph, &[0, 1, 2, 3]), [1, 0, 2, 3]);
        // A node with as many elements stays after the product.
        assert_eq!(brought_together(&graph, &[0, 3, 1, 2]), [0, 1, 3, 2]);
    }

    #[test]
    fn small_nodes_run_before_large_ones_that_they_divide() {
        let mut graph = Graph::default();
        let sizes = [[4, 4], [4, 4], [1, 4], [1, 1], [4, 4], [4, 4], [1, 0]];
        let tensors = sizes.map(|dims| TensorType::new(DType::F32, Shape::new(&dims).unwrap()));
        let x = graph.value(tensors[0], Origin::Input(0));
        let values = tensors.map(|tensor_type| graph.value(tensor_type, Origin::Node));
        for (index, &value) in values.iter().enumerate() {
            let (op, attributes) = if index == 5 { (&ops::sum::OP, alloc::vec![0]) } else { (&ops::exp::OP, Vec::new()) };
            graph.nodes.push(Node::new(op, attributes, alloc::vec![x], alloc::vec![value]));
        }
        // Large ones are 0, 1 and 4, small ones 2 and 3. Node 5 is a reduction, and node 6 has no elements.
        assert_eq!(brought_together(&graph, &[0, 1, 2, 3, 4]), [2, 3, 0, 1, 4]);
        assert_eq!(brought_together(&graph, &[0, 2, 1, 3, 4]), [2, 3, 0, 1, 4]);
        for others in [[0, 1, 2, 3], [5, 2, 3, 4], [0, 2, 5, 4], [0, 6, 1, 4]] {
            assert_eq!(brought_together(&graph, &others), others);
        }
    }
}
