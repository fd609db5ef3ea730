//! Conversion of traced graphs to TensorFlow's `GraphDef`, for TensorBoard's Graphs tab.

use crate::formats::proto::attr_value::{ListValue, Value};
use crate::formats::proto::{AttrValue, DataType, GraphDef, NodeDef, TensorProto, TensorShapeProto, VersionDef, tensor_shape_proto};
use crate::formats::tensor_proto::{data_type, serialize_tensor};
use gradlet_core::function::graph::{Graph, Node, Origin, ValueId};
use gradlet_core::{Shape, Tensor, TensorType, Variable};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size of a constant, in bytes, whose values are included.
const SHOWN: usize = 1024;

/// Converts a graph to a `GraphDef`, for example for TensorBoard: `writer.graph(&graph_def(concrete.traced(), "CPU:0"))`.
///
/// The name of a node includes the scopes of its layers, and the node has the shapes of its outputs. The nodes of a branch or loop
/// body are part of the graph. Their names begin with the name of the branch or loop node.
///
/// ```
/// use gradlet::{Eager, Function, Scope, Tensor, profiler};
/// let scope = Eager::new(&gradlet::cpu());
/// let f = Function::new(|scope: &dyn Scope, x: Tensor| {
///     let _head = scope.name_scope("head");
///     x.matmul(&x)?.relu()
/// });
/// let concrete = f.concrete(&scope, &Tensor::full(&scope.device(), 1.0f32, &[2, 2])?)?;
/// let graph = profiler::graph_def(concrete.traced(), "CPU:0");
/// let names: Vec<&str> = graph.node.iter().map(|node| node.name.as_str()).collect();
/// assert_eq!(names, ["x", "head/MatMul", "head/Relu", "Identity"]);
/// assert_eq!(graph.node[2].input, ["head/MatMul"]);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn graph_def(graph: &Graph, device: &str) -> GraphDef {
    let mut builder = Builder { nodes: Vec::new(), names: BTreeSet::new(), handles: BTreeMap::new(), device: format!("/device:{device}") };
    builder.reserve(graph, &|name| name.into());
    let inputs = graph.inputs.iter().map(|&id| builder.placeholder(graph.values[id].tensor_type)).collect();
    let (sources, outputs) = builder.graph(graph, inputs, &|name| name.into());
    for (output, &id) in outputs.into_iter().zip(&graph.outputs) {
        let name = builder.unique("Identity");
        builder.add(name, "Identity", vec![output], &[graph.values[id].tensor_type]);
    }
    for capture in &graph.captures {
        if let (Some(variable), Some(id)) = (capture.source.variable(), capture.assigned) {
            builder.assign(variable, graph.values[id].tensor_type, &sources[id]);
        }
    }
    GraphDef { node: builder.nodes, versions: Some(VersionDef { producer: 2474, ..VersionDef::default() }), ..GraphDef::default() }
}

/// A function from the name of a node in its own graph to its name in the whole graph.
type Renamed<'n> = dyn Fn(&str) -> String + 'n;

struct Builder {
    nodes: Vec<NodeDef>,
    names: BTreeSet<String>,
    /// Names of the nodes of variables, by the variable's identity.
    handles: BTreeMap<usize, String>,
    device: String,
}

impl Builder {
    /// Reserves the names of traced nodes, so that no other node gets them.
    fn reserve(&mut self, graph: &Graph, renamed: &Renamed<'_>) {
        for node in &graph.nodes {
            self.names.extend(node.name.as_deref().map(renamed));
            let own = whole(node, renamed);
            for (index, body) in node.bodies.iter().enumerate() {
                self.reserve(body, &|name| own.inner_name(node.bodies.len(), index, name).to_string());
            }
        }
    }

    /// Returns a name that no other node has, derived from `name`.
    fn unique(&mut self, name: &str) -> String {
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.to_string()).chain(numbered).find(|name| !self.names.contains(name)).unwrap_or_default();
        self.names.insert(free.clone());
        free
    }

    fn add(&mut self, name: String, op: &str, input: Vec<String>, outputs: &[TensorType]) -> &mut NodeDef {
        let shape = outputs.iter().map(|output| shape_proto(&output.shape)).collect();
        let shapes = Value::List(ListValue { shape, ..ListValue::default() });
        let mut node = NodeDef { name, op: op.into(), input, device: self.device.clone(), ..NodeDef::default() };
        node.set("_output_shapes", shapes);
        if let Some(output) = outputs.first() {
            node.set("T", Value::Type(data_type(output.dtype).into()));
        }
        self.nodes.push(node);
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    fn placeholder(&mut self, tensor_type: TensorType) -> String {
        let name = self.unique("x");
        self.add(name.clone(), "Placeholder", Vec::new(), &[tensor_type]).set("dtype", Value::Type(data_type(tensor_type.dtype).into()));
        name
    }

    /// Adds the nodes of a graph. `inputs` are the names of the nodes that produce its inputs. Returns the name of the node that
    /// produces each value, and the name of the node that produces each output.
    fn graph(&mut self, graph: &Graph, inputs: Vec<String>, renamed: &Renamed<'_>) -> (Vec<String>, Vec<String>) {
        let mut sources = vec![String::new(); graph.values.len()];
        for (&id, input) in graph.inputs.iter().zip(inputs) {
            sources[id] = input;
        }
        for node in &graph.nodes {
            let name = match &node.name {
                Some(name) => renamed(name),
                None => self.unique(&renamed(&node.op.type_name())),
            };
            let mut input: Vec<String> = node.inputs.iter().map(|&id| self.source(graph, &mut sources, id, &name)).collect();
            let own = whole(node, renamed);
            let mut inner = Vec::new();
            for (index, body) in node.bodies.iter().enumerate() {
                let inputs = input[input.len() - body.inputs.len()..].to_vec();
                inner.extend(self.graph(body, inputs, &|name| own.inner_name(node.bodies.len(), index, name).to_string()).1);
            }
            // Edges in TensorBoard: the results of a call come from its body only, a branch also reads its condition, and a loop
            // also reads its initial values.
            match (node.rule.is_some(), node.op.def.name) {
                (true, _) => input.clear(),
                (false, "cond") => input.truncate(1),
                _ => (),
            }
            input.extend(inner);
            let types: Vec<TensorType> = node.outputs.iter().map(|&id| graph.values[id].tensor_type).collect();
            self.add(name.clone(), &node.op.type_name(), input, &types);
            for (index, &id) in node.outputs.iter().enumerate() {
                sources[id] = if index == 0 { name.clone() } else { format!("{name}:{index}") };
            }
        }
        let outputs = graph.outputs.iter().map(|&id| self.source(graph, &mut sources, id, "")).collect();
        for capture in &graph.captures {
            capture.assigned.into_iter().for_each(|id| drop(self.source(graph, &mut sources, id, "")));
        }
        (sources, outputs)
    }

    /// Returns the name of the node that produces value `id`. If no node of the graph produces it, adds a node in the scope of its
    /// first reader.
    fn source(&mut self, graph: &Graph, sources: &mut [String], id: ValueId, reader: &str) -> String {
        if sources[id].is_empty() {
            let tensor_type = graph.values[id].tensor_type;
            sources[id] = match &graph.values[id].origin {
                Origin::Constant(tensor) => self.constant(tensor, reader),
                Origin::Variable(index) => match graph.captures.get(*index).and_then(|capture| capture.source.variable()) {
                    Some(variable) => self.read(variable, tensor_type, reader),
                    None => self.placeholder(tensor_type),
                },
                Origin::Input(_) | Origin::Node => self.placeholder(tensor_type),
            };
        }
        sources[id].clone()
    }

    fn constant(&mut self, tensor: &Tensor, reader: &str) -> String {
        let name = self.unique(&beside(reader, "Const"));
        let small = Some(tensor).filter(|tensor| tensor.tensor_type().bytes().is_some_and(|bytes| bytes <= SHOWN));
        let value = small.and_then(|tensor| TensorProto::decode(serialize_tensor(tensor).ok()?).ok());
        let node = self.add(name.clone(), "Const", Vec::new(), &[tensor.tensor_type()]);
        node.set("dtype", Value::Type(data_type(tensor.dtype()).into()));
        if let Some(value) = value {
            node.set("value", Value::Tensor(value));
        }
        name
    }

    /// Returns the name of the node of a variable. Adds the node if there is none.
    fn handle(&mut self, variable: &Variable, tensor_type: TensorType, reader: &str) -> String {
        if let Some(handle) = self.handles.get(&variable.id()) {
            return handle.clone();
        }
        let name = self.unique(&beside(reader, variable.name()));
        let node = self.add(name.clone(), "VarHandleOp", Vec::new(), &[]);
        node.set("dtype", Value::Type(data_type(tensor_type.dtype).into()));
        node.set("shape", Value::Shape(shape_proto(&tensor_type.shape)));
        node.set("shared_name", Value::S(variable.name().to_string().into()));
        node.set("_output_shapes", Value::List(ListValue { shape: vec![shape_proto(&Shape::SCALAR)], ..ListValue::default() }));
        node.set("T", Value::Type(DataType::DtResource.into()));
        self.handles.insert(variable.id(), name.clone());
        name
    }

    fn read(&mut self, variable: &Variable, tensor_type: TensorType, reader: &str) -> String {
        let handle = self.handle(variable, tensor_type, reader);
        let within = if reader.is_empty() { "ReadVariableOp".into() } else { format!("{reader}/ReadVariableOp") };
        let name = self.unique(&within);
        self.add(name.clone(), "ReadVariableOp", vec![handle], &[tensor_type]);
        name
    }

    fn assign(&mut self, variable: &Variable, tensor_type: TensorType, source: &str) {
        let handle = self.handle(variable, tensor_type, source);
        let name = self.unique(&beside(source, "AssignVariableOp"));
        self.add(name, "AssignVariableOp", vec![handle, source.into()], &[]).set("dtype", Value::Type(data_type(tensor_type.dtype).into()));
    }
}

impl NodeDef {
    fn set(&mut self, name: &str, value: Value) {
        self.attr.insert(name.into(), AttrValue { value: Some(value) });
    }
}

/// Copies a node without its inputs, outputs and bodies, with its name in the whole graph.
fn whole(node: &Node, renamed: &Renamed<'_>) -> Node {
    let bare = Node::new(node.op, node.attributes.clone(), Vec::new(), Vec::new());
    Node { name: node.name.as_deref().map(|name| renamed(name).into()), rule: node.rule.clone(), ..bare }
}

/// Returns `name` with the scope of the node called `reader` in front of it.
fn beside(reader: &str, name: &str) -> String {
    reader.rsplit_once('/').map_or_else(|| name.into(), |(scope, _)| format!("{scope}/{name}"))
}

fn shape_proto(shape: &Shape) -> TensorShapeProto {
    let dim = |&size: &u32| tensor_shape_proto::Dim { size: size.into(), ..Default::default() };
    TensorShapeProto { dim: shape.dims().iter().map(dim).collect(), ..Default::default() }
}
