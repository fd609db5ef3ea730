//! Text listings of traced functions.

use super::concrete::ConcreteFunction;
use crate::base::format::{Printed, SUMMARIZE, Summary, Values};
use crate::base::view::TensorView;
use crate::ops;
use crate::tensor::graph::{Capture, Graph, Node, Origin, ValueId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Writes one line for each node. The bodies of a branch or loop follow its line.
impl fmt::Display for ConcreteFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = &self.traced;
        let mut listing = Listing { f, values: 0 };
        let inputs: Vec<String> = graph.inputs.iter().map(|_| listing.name()).collect();
        let named = self.signature.iter().map(|spec| spec.name().unwrap_or_default()).chain(core::iter::repeat(""));
        let typed = inputs.iter().zip(&graph.inputs).zip(named).map(|((name, &id), own)| {
            let space = if own.is_empty() { "" } else { " " };
            format!("{own}{space}{name}: {}", graph.values[id].tensor_type)
        });
        let typed: Vec<String> = typed.collect();
        writeln!(listing.f, "{}({})", self.name, typed.join(", "))?;
        listing.graph(graph, &inputs, 1)
    }
}

struct Listing<'f, 'a> {
    f: &'f mut fmt::Formatter<'a>,
    values: usize,
}

impl Listing<'_, '_> {
    fn name(&mut self) -> String {
        self.values += 1;
        format!("%{}", self.values - 1)
    }

    fn line(&mut self, depth: usize, text: fmt::Arguments<'_>) -> fmt::Result {
        writeln!(self.f, "{:width$}{text}", "", width = 2 * depth)
    }

    /// Lists a graph. `inputs` are the names of its inputs.
    fn graph(&mut self, graph: &Graph, inputs: &[String], depth: usize) -> fmt::Result {
        let mut names: Vec<String> = graph.values.iter().map(|_| String::new()).collect();
        for (id, value) in graph.values.iter().enumerate() {
            names[id] = match &value.origin {
                Origin::Input(index) => inputs.get(*index).cloned().unwrap_or_default(),
                Origin::Constant(tensor) => match tensor.bytes() {
                    Ok(bytes) if tensor.dims().is_empty() => {
                        let tensor = TensorView { tensor_type: &value.tensor_type, data: Some(&bytes) };
                        format!("{}", Values { tensor, edges: SUMMARIZE })
                    }
                    _ => format!("constant {}", value.tensor_type),
                },
                Origin::Variable(index) => variable(&graph.captures[*index]),
                Origin::Node => String::new(),
            };
        }
        for node in &graph.nodes {
            for &id in &node.outputs {
                names[id] = self.name();
            }
            self.node(graph, node, &names, depth)?;
        }
        for capture in &graph.captures {
            if let Some(value) = capture.assigned {
                self.line(depth, format_args!("{} := {}", variable(capture), names[value]))?;
            }
        }
        self.line(depth, format_args!("give {}", joined(&graph.outputs, &names)))
    }

    fn node(&mut self, graph: &Graph, node: &Node, names: &[String], depth: usize) -> fmt::Result {
        let (name, mut inputs) = (node.op.def.name, joined(&node.inputs, names));
        if let (ops::code::print, Some(text)) = (node.op.def.code, (Printed { attributes: &node.attributes, inputs: &[] }).text()) {
            inputs = format!("{text:?}{}{inputs}", if inputs.is_empty() { "" } else { ", " });
        }
        if let (ops::code::summary, Some((_, _, tag))) = (node.op.def.code, Summary::words(&node.attributes)) {
            inputs = format!("{tag:?}, {inputs}");
        }
        if node.outputs.is_empty() {
            self.line(depth, format_args!("{name}({inputs})"))?;
        } else {
            let types: Vec<String> = node.outputs.iter().map(|&id| format!("{}", graph.values[id].tensor_type)).collect();
            self.line(depth, format_args!("{} = {name}({inputs}): {}", joined(&node.outputs, names), types.join(", ")))?;
        }
        let outer = |ids: &[ValueId]| ids.iter().map(|&id| names[id].clone()).collect::<Vec<_>>();
        let code = node.op.def.code;
        let state = if code == ops::code::while_loop { node.outputs.len() } else { 0 };
        let shared = outer(&node.inputs[usize::from(code == ops::code::cond)..]);
        for (index, body) in node.bodies.iter().enumerate() {
            let own: Vec<String> = (0..state).map(|_| self.name()).collect();
            let title = match (code, index, node.bodies.len()) {
                (ops::code::while_loop, 0, _) => "while".into(),
                (ops::code::while_loop, ..) => "do".into(),
                (ops::code::cond, 0, 2) => "then".into(),
                (ops::code::cond, 1, 2) => "else".into(),
                (ops::code::cond, ..) => format!("case {index}"),
                _ => "runs".into(),
            };
            let state = if own.is_empty() { String::new() } else { format!(" ({})", own.join(", ")) };
            self.line(depth + 1, format_args!("{title}{state}:"))?;
            let inputs: Vec<String> = own.iter().chain(&shared[own.len()..]).cloned().collect();
            self.graph(body, &inputs, depth + 2)?;
        }
        Ok(())
    }
}

fn variable(capture: &Capture) -> String {
    capture.source.variable().map_or(String::new(), |variable| variable.name().into())
}

fn joined(ids: &[ValueId], names: &[String]) -> String {
    ids.iter().map(|&id| names[id].as_str()).collect::<Vec<_>>().join(", ")
}
