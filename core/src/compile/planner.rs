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
//!    The planner takes the order that needs less scratch memory.
//! 5. For a host, neighbouring nodes are fused. Groups are split again while the plan needs more scratch memory than without fusion
//!    ([`fuse`](crate::compile::fuse)).

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
    let (mut placement, mut layout) = if second.0.scratch < first.0.scratch { second } else { first };
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

/// Fuses nodes. `single` is the plan without fusion. While the fused plan needs more scratch memory than `single`, the group with the most
/// live bytes is split into single nodes again.
fn fuse<'g>(graph: &'g Graph, decided: &Decisions, single: (Placement, Layout<'g>), fusion: Fusion) -> (Placement, Layout<'g>) {
    let order: Vec<usize> = single.1.steps.iter().flat_map(|step| step.nodes.iter().copied()).collect();
    let mut steps = fusion.steps(graph, &order);
    loop {
        let layout = Layout::new(graph, decided, steps, Target::Host(fusion));
        let placement = layout.place();
        if placement.scratch <= single.0.scratch {
            return (placement, layout);
        }
        let Some(largest) = layout.largest_group() else { return single };
        steps = layout.steps;
        let apart = steps[largest].nodes.clone().into_iter().map(Step::single);
        steps.splice(largest..=largest, apart);
    }
}
