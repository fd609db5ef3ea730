//! The planner, which uses the other modules of this folder. For a device, it first fuses convolutions with max pooling
//! ([`pools`](crate::compile::pools)). Then it works in five steps:
//!
//! 1. Each assignment gets a destination: the variable's own bytes, or a copy ([`assignments`](crate::compile::assignments)).
//! 2. The bodies of branches and loops are planned, innermost first ([`subgraphs`]). A body works in a part of the surrounding graph's
//!    scratch memory. It reads and writes the surrounding graph's values in place.
//! 3. The order constraints of the nodes are collected. They follow from the values, from overwritten variables, and from effects. Nodes
//!    that may reject their data run before any variable is written. Two orders are tried: the order of the trace, and one that always runs
//!    the node that frees the most memory ([`order`](crate::compile::order)).
//! 4. In each order, values that can share bytes become one storage area, which lives from its first writer to its last reader. The largest
//!    area gets the lowest offset that is free for its whole lifetime, then the next largest ([`lifetimes`](crate::compile::lifetimes)).
//!    The planner takes the order that needs less scratch memory. For a device that joins neighbours, it takes that of the trace, unless
//!    the other one needs a quarter less: there, more neighbours can be joined, and fewer nodes wait for memory that others still use.
//! 5. For a host, neighbouring nodes are fused. Groups are split again while the plan needs more scratch memory than its nodes need one by
//!    one ([`fuse`](crate::compile::fuse)).

use crate::compile::assignments::place_assignments;
use crate::compile::lifetimes::{Layout, Placement};
use crate::compile::order::{edges, hoist_checks, in_order, lowest_first};
use crate::compile::plan::{Bodies, Decisions, Fusion, Plan, Step, Target, effects, is_view};
use crate::compile::pools::fuse_pools;
use crate::compile::subgraphs;
use crate::tensor::graph::Graph;
use alloc::vec::Vec;

/// Plans `graph` for `target`.
pub fn plan(graph: &Graph, target: Target) -> Plan {
    let mut plan = plan_part(graph.clone(), target, target != Target::Device);
    subgraphs::settle(&mut plan);
    plan
}

/// Plans a whole graph or a body. If `gives` is true, the caller may receive the results in buffers. Offsets of nested bodies are relative
/// to their own scratch memory.
fn plan_part(mut graph: Graph, target: Target, gives: bool) -> Plan {
    if target == Target::Device {
        fuse_pools(&mut graph);
    }
    let mut direct = place_assignments(&mut graph);
    let effects = effects(&graph);
    let bodies = subgraphs::plan(&mut graph, &direct, &|body| plan_part(body, target, false));
    direct.resize(graph.values.len(), None);
    let decided = Decisions { direct, bodies, gives };
    let mut edges = edges(&graph, &decided.direct);
    // Nodes with effects keep the order of the trace.
    effects.windows(2).for_each(|pair| edges[pair[1]].push(pair[0]));
    hoist_checks(&graph, &decided.direct, &mut edges);
    let orders = [in_order(&edges), lowest_first(&graph, &edges, target)];
    let layouts = orders.map(|order| Layout::new(&graph, &decided, order.into_iter().map(Step::single).collect(), target));
    let [first, second] = layouts.map(|layout| (layout.place(), layout));
    let joins_neighbours = matches!(target, Target::Host(fusion) if fusion.neighbours);
    let most = if joins_neighbours { first.0.scratch / 4 * 3 } else { first.0.scratch };
    let (mut placement, mut layout) = if second.0.scratch < most { second } else { first };
    if let Target::Host(fusion) = target {
        (placement, layout) = fuse(&graph, &decided, (placement, layout), fusion);
    }
    let mut steps = layout.steps;
    steps.iter_mut().for_each(|step| step.nodes.retain(|&index| !is_view(&graph, &graph.nodes[index])));
    steps.retain(|step| !step.nodes.is_empty());
    let place = |(node, bodies): (usize, Option<Bodies>)| {
        let at = placement.workspaces.iter().find(|(other, _)| *other == node).map_or(0, |(_, at)| *at);
        Some(Bodies { at, ..bodies? })
    };
    let bodies = decided.bodies.into_iter().enumerate().filter_map(place).collect();
    Plan { steps, locations: placement.locations, scratch: placement.scratch, bodies, graph }
}

/// Fuses nodes. `single` is the plan without fusion. While the fused plan needs more scratch memory than `single`, or than its own order
/// without groups, the group with the most live bytes is split into single nodes again.
fn fuse<'g>(graph: &'g Graph, decided: &Decisions, single: (Placement, Layout<'g>), fusion: Fusion) -> (Placement, Layout<'g>) {
    let before: Vec<usize> = single.1.steps.iter().flat_map(|step| step.nodes.iter().copied()).collect();
    let order = fusion.order(graph, &before);
    let mut most = single.0.scratch;
    if order != before {
        let alone = Layout::new(graph, decided, order.iter().copied().map(Step::single).collect(), Target::Host(fusion));
        most = most.max(alone.place().scratch);
    }
    let mut steps = fusion.steps(graph, &order);
    loop {
        let layout = Layout::new(graph, decided, steps, Target::Host(fusion));
        let placement = layout.place();
        if placement.scratch <= most {
            return (placement, layout);
        }
        let Some(largest) = layout.largest_group() else { return single };
        steps = layout.steps;
        let apart = steps[largest].nodes.clone().into_iter().map(Step::single);
        steps.splice(largest..=largest, apart);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::dtype::DType;
    use crate::base::shape::{Shape, TensorType};
    use crate::ops::{add, broadcast_to, cast, mul, sum, transpose};
    use crate::tensor::graph::{Node, Origin};
    use crate::tensor::scope::Op;

    /// Returns the order of the nodes in the plan of a graph. In the order of its trace, `rows` rows and two others have memory at once. In
    /// the lowest order, each has it alone.
    fn order(rows: u32, fusion: Fusion) -> Vec<usize> {
        let mut graph = Graph::default();
        let of = |dims: &[u32]| TensorType::new(DType::F32, Shape::new(dims).unwrap());
        let x = graph.value(of(&[]), Origin::Input(0));
        graph.inputs.push(x);
        let mut node = |op: &'static Op, attributes: &[u32], inputs: &[_], dims: &[u32]| {
            let output = graph.value(of(dims), Origin::Node);
            graph.nodes.push(Node::new(op, attributes.to_vec(), inputs.to_vec(), alloc::vec![output]));
            output
        };
        let [whole, one, other] = [rows, 1, 1].map(|rows| node(&broadcast_to::OP, &[rows, 4096], &[x], &[rows, 4096]));
        let sums = [one, other].map(|row| node(&sum::OP, &[0, 0, 1], &[row], &[]));
        let factor = node(&add::OP, &[], &sums, &[]);
        let product = node(&mul::OP, &[], &[whole, factor], &[rows, 4096]);
        let result = node(&sum::OP, &[0, 0, 1], &[product], &[]);
        graph.outputs.push(result);
        plan(&graph, Target::Host(fusion)).steps.into_iter().flat_map(|step| step.nodes).collect()
    }

    /// The settings of a device that joins neighbours.
    fn joining() -> Fusion {
        Fusion { block: 0, registers: true, neighbours: true, ..Fusion::NONE }
    }

    /// A scalar that runs earlier in a group's order takes memory where the plan without groups needs none.
    #[test]
    fn groups_may_need_the_memory_of_their_order() {
        let mut graph = Graph::default();
        let of = |dtype, dims: &[u32]| TensorType::new(dtype, Shape::new(dims).unwrap());
        let inputs = [of(DType::F16, &[2, 64, 64]), of(DType::F32, &[])];
        let [x, scalar] = [0, 1].map(|index| graph.value(inputs[index], Origin::Input(index)));
        graph.inputs.extend([x, scalar]);
        let mut node = |op: &'static Op, attributes: &[u32], inputs: &[_], output| {
            let output = graph.value(output, Origin::Node);
            graph.nodes.push(Node::new(op, attributes.to_vec(), inputs.to_vec(), alloc::vec![output]));
            output
        };
        let narrow = node(&sum::OP, &[0, 0], &[x], of(DType::F16, &[64, 64]));
        let wide = node(&cast::OP, &[DType::F32 as u32], &[narrow], of(DType::F32, &[64, 64]));
        let factor = node(&add::OP, &[], &[scalar, scalar], of(DType::F32, &[]));
        let product = node(&mul::OP, &[], &[wide, factor], of(DType::F32, &[64, 64]));
        let result = node(&transpose::OP, &[1, 0], &[product], of(DType::F32, &[64, 64]));
        graph.outputs.push(result);
        let steps: Vec<_> = plan(&graph, Target::Host(joining())).steps.into_iter().map(|step| step.nodes).collect();
        assert!(steps.contains(&alloc::vec![1, 3]), "{steps:?}");
    }

    #[test]
    fn neighbours_are_worth_some_memory() {
        let joins = joining();
        let (trace, lowest) = ([0, 1, 2, 3, 4, 5, 6, 7], [1, 3, 2, 4, 5, 0, 6, 7]);
        assert_eq!([order(8, Fusion::NONE), order(8, joins)], [lowest, trace]);
        assert_eq!(order(2, joins), lowest);
    }
}
