//! Objects of a checkpoint as a tree.

use gradlet::io::proto::TrackableObjectGraph;
use gradlet::io::proto::trackable_object_graph::TrackableObject;

/// Formats the objects below the root, indented by depth. The children of an object are listed only where the object
/// occurs first.
pub fn text(graph: &TrackableObjectGraph) -> String {
    let mut text = String::new();
    let mut shown = vec![false; graph.nodes.len()];
    let mut stack = vec![(0, 0, "(root)")];
    while let Some((index, depth, name)) = stack.pop() {
        let Some(node) = graph.nodes.get(index) else { continue };
        let again = std::mem::replace(&mut shown[index], true);
        let note = if again && !node.children.is_empty() { " (as above)".into() } else { what(node) };
        // Indentation stops at depth 100.
        text.push_str(&format!("{}{name}{note}\n", "  ".repeat(depth.min(100))));
        if !again {
            let children = node.children.iter().rev().filter_map(|child| Some((usize::try_from(child.node_id).ok()?, child)));
            stack.extend(children.map(|(id, child)| (id, depth + 1, child.local_name.as_str())));
        }
    }
    text
}

/// Describes an object: its values and the number of its slot variables.
fn what(node: &TrackableObject) -> String {
    let values = node.attributes.iter().map(|attribute| match attribute.full_name.as_str() {
        "" => format!(" = {}", attribute.checkpoint_key),
        name => format!(" = {} ({name})", attribute.checkpoint_key),
    });
    let slots = node.slot_variables.len();
    let slots = (slots > 0).then(|| format!(" with {slots} slot variables"));
    values.chain(slots).collect()
}
