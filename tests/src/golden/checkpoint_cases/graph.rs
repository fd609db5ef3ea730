//! Object graphs in the reference's two forms: JSON and protobuf text. Both leave out fields with default values.

use gradlet::io::proto::TrackableObjectGraph;
use gradlet::io::proto::trackable_object_graph::TrackableObject;
use serde_json::{Map, Value as Json, json};

/// Value of a field.
enum Value<'a> {
    Number(i32),
    Text(&'a str),
    Flag(bool),
    Message(Vec<(&'static str, Value<'a>)>),
}

use Value::{Flag, Message, Number, Text};

/// Returns the fields of a node as names and values, in the order of their field numbers. A list becomes consecutive fields.
fn fields(node: &TrackableObject) -> Vec<(&'static str, Value<'_>)> {
    let children = node
        .children
        .iter()
        .map(|child| ("children", Message(vec![("node_id", Number(child.node_id)), ("local_name", Text(&child.local_name))])));
    let attributes = node.attributes.iter().map(|attribute| {
        let key = ("checkpoint_key", Text(&attribute.checkpoint_key));
        ("attributes", Message(vec![("name", Text(&attribute.name)), ("full_name", Text(&attribute.full_name)), key]))
    });
    let slots = node.slot_variables.iter().map(|slot| {
        let original = ("original_variable_node_id", Number(slot.original_variable_node_id));
        let own = ("slot_variable_node_id", Number(slot.slot_variable_node_id));
        ("slot_variables", Message(vec![original, ("slot_name", Text(&slot.slot_name)), own]))
    });
    let saver = node
        .registered_saver
        .iter()
        .map(|saver| ("registered_saver", Message(vec![("name", Text(&saver.name)), ("object_name", Text(&saver.object_name))])));
    let flag = node.has_checkpoint_values.iter().map(|flag| ("has_checkpoint_values", Flag(*flag)));
    children.chain(attributes).chain(slots).chain(saver).chain(flag).collect()
}

/// Converts a graph to JSON. Repeated fields become lists.
pub fn to_json(graph: &TrackableObjectGraph) -> Json {
    let object = |fields: &[(&'static str, Value<'_>)]| {
        let mut object = Map::new();
        for (name, value) in fields {
            match value {
                Number(number) if *number != 0 => drop(object.insert(name.to_string(), json!(number))),
                Text(text) if !text.is_empty() => drop(object.insert(name.to_string(), json!(text))),
                _ => (),
            }
        }
        Json::from(object)
    };
    let node = |node: &TrackableObject| {
        let mut all = Map::new();
        for (name, value) in fields(node) {
            match value {
                Message(inner) if name == "registered_saver" => drop(all.insert(name.into(), object(&inner))),
                Message(inner) => {
                    let list = all.entry(name).or_insert_with(|| json!([]));
                    list.as_array_mut().into_iter().for_each(|list| list.push(object(&inner)));
                }
                Flag(flag) => drop(all.insert(name.into(), json!(flag))),
                Number(_) | Text(_) => (),
            }
        }
        Json::from(all)
    };
    json!({ "nodes": graph.nodes.iter().map(node).collect::<Vec<_>>() })
}

/// Converts a graph to protobuf's text format.
pub fn to_text(graph: &TrackableObjectGraph) -> String {
    let mut text = String::new();
    graph.nodes.iter().for_each(|node| put(&mut text, "nodes", &Message(fields(node)), ""));
    text
}

fn put(text: &mut String, name: &str, value: &Value<'_>, indent: &str) {
    let line = match value {
        Number(0) | Text("") => return,
        Number(number) => format!("{indent}{name}: {number}\n"),
        Text(value) => format!("{indent}{name}: \"{}\"\n", escaped(value)),
        Flag(false) => format!("{indent}{name} {{\n{indent}}}\n"),
        Flag(true) => format!("{indent}{name} {{\n{indent}  value: true\n{indent}}}\n"),
        Message(fields) => {
            text.push_str(&format!("{indent}{name} {{\n"));
            fields.iter().for_each(|(name, value)| put(text, name, value, &format!("{indent}  ")));
            format!("{indent}}}\n")
        }
    };
    text.push_str(&line);
}

fn escaped(value: &str) -> String {
    let mut text = String::new();
    for character in value.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '"' | '\'' | '\\' => text.extend(['\\', character]),
            character if character.is_ascii_control() => text.push_str(&format!("\\{:03o}", character as u32)),
            character => text.push(character),
        }
    }
    text
}
