//! The plans of the bodies of branches and loops.
//!
//! A body has no memory of its own. It reads its inputs in place, as values of the surrounding graph. It writes its results directly to
//! the outputs of the branch or loop. Nothing is therefore copied between iterations, and a loop's state changes in place like a
//! variable.

use crate::compile::plan::{Bodies, Location, Plan, copy, producers};
use crate::ops;
use crate::tensor::graph::{Capture, Captured, Graph, Node, Origin, ValueId};
use alloc::vec::Vec;

/// Plans the bodies of each node of `graph` with `plan`, and removes them from the nodes. Returns the plans of each node, or `None` for
/// a node without bodies. The initial state of a loop is copied, unless the loop is its only reader or it is the old value of the
/// variable that receives the loop's output.
pub(crate) fn plan(graph: &mut Graph, direct: &[Option<usize>], plan: &dyn Fn(Graph) -> Plan) -> Vec<Option<Bodies>> {
    let (uses, producers) = (graph.uses(), producers(graph));
    let loops: Vec<usize> = (0..graph.nodes.len()).filter(|&node| is_loop(&graph.nodes[node])).collect();
    for node in loops {
        for state in 0..graph.nodes[node].outputs.len() {
            let (value, output) = (graph.nodes[node].inputs[state], graph.nodes[node].outputs[state]);
            let in_variable = direct[output].is_some_and(|capture| graph.captures[capture].initial == value);
            let maker = producers[value].map(|maker| &graph.nodes[maker]);
            let alone = uses[value] == 1 && direct[value].is_none();
            if !(in_variable || alone && maker.is_some_and(|maker| !maker.op.is_view())) {
                graph.nodes[node].inputs[state] = copy(graph, value);
            }
        }
    }
    let planned = |(index, node): (usize, &Node)| (!node.bodies.is_empty()).then(|| bodies(graph, direct, index, node, plan));
    let planned = graph.nodes.iter().enumerate().map(planned).collect();
    graph.nodes.iter_mut().for_each(|node| node.bodies.clear());
    planned
}

fn is_loop(node: &Node) -> bool {
    !node.bodies.is_empty() && node.op.def.code == ops::code::while_loop
}

fn bodies(graph: &Graph, direct: &[Option<usize>], index: usize, node: &Node, plan: &dyn Fn(Graph) -> Plan) -> Bodies {
    let outputs = 0..node.outputs.len();
    // A branch updates the variables to which its outputs are assigned. Its other outputs are new values.
    let of_variable = |output: usize| {
        let initial = graph.captures[direct.get(node.outputs[output]).copied().flatten()?].initial;
        Some((node.inputs.iter().position(|&input| input == initial)?, output))
    };
    let updates = if is_loop(node) { outputs.map(|state| (state, state)).collect() } else { outputs.filter_map(of_variable).collect() };
    let bodies = Bodies { node: index, plans: Vec::new(), at: 0, updates };
    let plan_body = |(number, body): (usize, &Graph)| {
        let condition = is_loop(node) && number == 0;
        plan(within(&bodies, node, body, condition))
    };
    Bodies { plans: node.bodies.iter().enumerate().map(plan_body).collect(), ..bodies }
}

/// Turns a body of `node` into a graph that captures its inputs and assigns its outputs. If `condition` is true, the body is a loop's
/// condition and keeps its output.
fn within(bodies: &Bodies, node: &Node, body: &Graph, condition: bool) -> Graph {
    let mut graph = body.clone();
    let first = node.inputs.len() - body.inputs.len();
    let outputs = if condition { Vec::new() } else { core::mem::take(&mut graph.outputs) };
    for (&initial, input) in core::mem::take(&mut graph.inputs).iter().zip(first..) {
        let update = bodies.updates.iter().find(|update| update.0 == input);
        let assigned = update.and_then(|update| outputs.get(update.1)).copied().filter(|&value| value != initial);
        capture(&mut graph, node.inputs[input], initial, assigned);
    }
    for (output, &value) in outputs.iter().enumerate().filter(|(output, _)| bodies.updated(*output).is_none()) {
        let initial = graph.value(graph.values[value].tensor_type, Origin::Node);
        capture(&mut graph, node.outputs[output], initial, Some(value));
    }
    graph
}

fn capture(graph: &mut Graph, outer: ValueId, initial: ValueId, assigned: Option<ValueId>) {
    graph.values[initial].origin = Origin::Variable(graph.captures.len());
    graph.captures.push(Capture { source: Captured::Outer(outer), initial, assigned });
}

/// Converts the locations in all bodies into locations in the whole plan.
pub(crate) fn settle(plan: &mut Plan) {
    shift(plan, 0);
    for bodies in &mut plan.bodies {
        bodies.plans.iter_mut().for_each(|body| place_outer(body, &plan.graph, &plan.locations));
    }
}

/// Adds `base` to all scratch offsets of a plan and its bodies.
fn shift(plan: &mut Plan, base: usize) {
    for location in &mut plan.locations {
        if let Location::Scratch(at) | Location::Block(at) = location {
            *at = at.saturating_add(base);
        }
    }
    for bodies in &mut plan.bodies {
        let base = base.saturating_add(bodies.at);
        bodies.plans.iter_mut().for_each(|body| shift(body, base));
    }
}

/// Sets the location of each value that a body captures to its location in the surrounding graph. Nested bodies follow recursively.
fn place_outer(body: &mut Plan, around: &Graph, locations: &[Location]) {
    for (id, location) in body.locations.iter_mut().enumerate() {
        let Location::Variable(capture) = *location else { continue };
        let Captured::Outer(outer) = body.graph.captures[capture].source else { continue };
        *location = locations[outer];
        if *location == Location::Constant {
            body.graph.values[id].origin = around.values[outer].origin.clone();
        }
    }
    for bodies in &mut body.bodies {
        bodies.plans.iter_mut().for_each(|inner| place_outer(inner, &body.graph, &body.locations));
    }
}
