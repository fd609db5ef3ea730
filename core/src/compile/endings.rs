//! Reductions with which the groups of a remote device end.

use crate::base::dtype::DType;
use crate::ops::code;
use crate::tensor::graph::{Graph, Node, ValueId};
use alloc::vec::Vec;

/// Returns the value that `node` reduces, and the sizes of the stretches of elements at whose ends the reduced axes begin and end. Returns
/// `None` if `node` is no reduction with which a group may end ([`Fuses::Reductions`](crate::tensor::device::remote::Fuses)).
pub(crate) fn reduction(graph: &Graph, node: &Node) -> Option<(ValueId, Vec<usize>)> {
    let (&[value], &[result]) = (node.inputs.as_slice(), node.outputs.as_slice()) else { return None };
    // The group may still read a variable when the first results are there.
    if graph.captures.iter().any(|capture| capture.assigned == Some(result)) {
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
}
