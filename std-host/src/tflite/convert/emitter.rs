//! A subgraph under construction.

use super::activations::{self, Composites};
use super::{scales, table};
use crate::formats::tflite::write::{Described, Field, Graph, Operator, Options};
use crate::formats::tflite::{ElementType, Quantization as Scales};
use gradlet_core::function::graph::{Graph as Source, Node, Origin, ValueId};
use gradlet_core::tensor::AffineQuantization;
use gradlet_core::{DType, Quantization, Tensor, TensorType};
use std::collections::HashMap;

/// Result whose error is the reason why an op has no operator.
pub(super) type Converted<T> = std::result::Result<T, String>;

/// A graph of gradlet, and the subgraph that it becomes.
pub(super) struct Emitter<'g> {
    pub(super) source: &'g Source,
    graph: Graph,
    /// Number of the subgraph in the file.
    number: usize,
    /// The subgraphs that its operators run, which follow it in the file.
    nested: Vec<Graph>,
    /// The node that computes each value.
    pub(super) makers: Vec<Option<usize>>,
    /// The tensor of each value.
    tensors: Vec<Option<i32>>,
    /// The scales of each value, if its elements are quantized.
    scales: Vec<Option<AffineQuantization>>,
    /// Number of tensors that have had each name.
    names: HashMap<String, usize>,
    /// Name of the tensors that the present node adds.
    name: String,
}

impl<'g> Emitter<'g> {
    /// Begins subgraph number `number` of a file, with names for its inputs.
    pub(super) fn new(source: &'g Source, number: usize, name: &str, inputs: &[&str]) -> Converted<Emitter<'g>> {
        let mut makers = vec![None; source.values.len()];
        for (index, node) in source.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|&id| makers[id] = Some(index));
        }
        let scales = scales::known(source)?;
        let graph = Graph { name: name.into(), ..Graph::default() };
        let tensors = vec![None; source.values.len()];
        let (names, name, nested) = (HashMap::new(), String::new(), Vec::new());
        let mut emitter = Emitter { source, graph, number, nested, makers, tensors, scales, names, name };
        for (at, &id) in source.inputs.iter().enumerate() {
            emitter.name = inputs.get(at).map_or_else(|| format!("input_{at}"), |name| name.to_string());
            let tensor = emitter.result(id)?;
            emitter.graph.inputs.push(tensor);
        }
        Ok(emitter)
    }

    /// Emits the operators, and returns the subgraph, with the subgraphs that it runs after it. The error lists the ops without operators.
    pub(super) fn run(mut self) -> std::result::Result<Vec<Graph>, Vec<String>> {
        self.emit()?;
        // A result that is also an input, a constant or another result is a copy.
        for at in 0..self.graph.outputs.len() {
            let (tensor, id) = (self.graph.outputs[at], self.source.outputs[at]);
            if !matches!(self.source.values[id].origin, Origin::Node) || self.graph.outputs[..at].contains(&tensor) {
                self.copy_result(at, self.scales[id].clone()).map_err(|reason| vec![reason])?;
            }
        }
        Ok(self.finish())
    }

    /// Adds a subgraph for a body, with what `more` adds to it, and returns its number.
    pub(super) fn nest(&mut self, body: &Source, name: &str, more: impl FnOnce(&mut Emitter<'_>) -> Converted<()>) -> Converted<i32> {
        let number = self.number + 1 + self.nested.len();
        let mut inner = Emitter::new(body, number, &format!("{}/{name}", self.name), &[])?;
        inner.emit().map_err(|refused| {
            let lines: Vec<String> = refused.iter().map(|line| format!("\n    {}", line.replace('\n', "\n  "))).collect();
            format!("its body cannot be converted:{}", lines.concat())
        })?;
        more(&mut inner)?;
        self.nested.extend(inner.finish());
        Ok(number as i32)
    }

    /// Adds an input that no value of the source has.
    pub(super) fn argument(&mut self, kind: TensorType) -> Converted<i32> {
        let tensor = self.temporary(kind, None)?;
        self.graph.inputs.push(tensor);
        Ok(tensor)
    }

    /// Makes result `at`, a value of the source, a copy.
    fn copy_result(&mut self, at: usize, scales: Option<AffineQuantization>) -> Converted<()> {
        let copy = self.temporary(self.kind(self.source.outputs[at]), scales)?;
        self.reshape(self.graph.outputs[at], copy)?;
        self.graph.outputs[at] = copy;
        Ok(())
    }

    /// Makes each result that is another input than that of its own position a copy. The results of a loop's body take the memory of its
    /// inputs one after another.
    pub(super) fn copy_other_inputs(&mut self) -> Converted<()> {
        for at in 0..self.graph.outputs.len() {
            let input = self.graph.inputs.iter().position(|input| *input == self.graph.outputs[at]);
            if input.is_some_and(|input| input != at) {
                self.copy_result(at, self.scales[self.source.outputs[at]].clone())?;
            }
        }
        Ok(())
    }

    /// Returns the results, in which a caller can replace some.
    pub(super) fn results(&mut self) -> &mut Vec<i32> {
        &mut self.graph.outputs
    }

    fn finish(mut self) -> Vec<Graph> {
        activations::fuse(&mut self.graph);
        self.graph.remove_unused();
        std::iter::once(self.graph).chain(self.nested).collect()
    }

    fn emit(&mut self) -> std::result::Result<(), Vec<String>> {
        let source = self.source;
        let plan = Composites::default().plan(self);
        let mut refused = Vec::new();
        for (node, planned) in source.nodes.iter().zip(plan) {
            let label = node.name.as_deref().unwrap_or(node.op.def.name);
            self.name = label.into();
            let emitted = match planned {
                activations::Planned::Unused => continue,
                activations::Planned::Alone => table::emit(self, node),
                activations::Planned::Composite(operator, x) => self.composite(node, operator, x),
            };
            if let Err(reason) = emitted {
                refused.push(format!("{} ({label}): {reason}", node.op.def.name));
            }
            // The readers of a refused node are judged by themselves.
            for &id in &node.outputs {
                if self.tensors[id].is_none()
                    && let Err(reason) = self.result(id)
                {
                    refused.push(format!("{} ({label}): {reason}", node.op.def.name));
                }
            }
        }
        for (at, &id) in source.outputs.iter().enumerate() {
            self.name = format!("output_{at}");
            match self.tensor(id) {
                Ok(output) => self.graph.outputs.push(output),
                Err(reason) => refused.push(format!("output {at}: {reason}")),
            }
        }
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    fn composite(&mut self, node: &Node, (name, options): (&'static str, Options), x: ValueId) -> Converted<()> {
        let (x, y) = (self.tensor(x)?, self.result(node.outputs[0])?);
        self.operator(name, &[x], &[y], options);
        Ok(())
    }

    /// Returns the type of a value.
    pub(super) fn kind(&self, id: ValueId) -> TensorType {
        self.source.values[id].tensor_type
    }

    /// Returns the dimensions of a value.
    pub(super) fn dims(&self, id: ValueId) -> Vec<u32> {
        self.kind(id).shape.dims().to_vec()
    }

    /// Returns a value that must be a constant.
    pub(super) fn known(&self, node: &Node, at: usize) -> Converted<&'g Tensor> {
        let id = node.inputs.get(at).copied().ok_or_else(|| format!("operand {at} is missing"))?;
        self.source.constant(id).ok_or_else(|| format!("operand {at} is computed, but must be a constant"))
    }

    /// Returns the scale and zero point of a value.
    pub(super) fn scale(&self, id: ValueId) -> Converted<Quantization> {
        let scales = self.scales[id]
            .as_ref()
            .ok_or("an operand or result of integers has no scale: an artifact has only those of inputs and outputs")?;
        scales.single().ok_or_else(|| "an operand or result has a scale for each channel, but its operator needs one".into())
    }

    /// Gives a value that has no tensor yet the scale and zero point `wanted`. Fails if it has others.
    pub(super) fn set_scale(&mut self, id: ValueId, wanted: Quantization) -> Converted<()> {
        match &self.scales[id] {
            Some(known) if known.single() == Some(wanted) => Ok(()),
            None if self.tensors[id].is_none() => {
                self.scales[id] = Some(wanted.into());
                Ok(())
            }
            _ => Err(format!("an operand or result has another scale than {wanted}, which its operator needs")),
        }
    }

    /// Returns the tensor of an operand that has the scale and zero point `wanted`, if it is quantized. A constant can have several.
    pub(super) fn tensor_with(&mut self, id: ValueId, wanted: Option<Quantization>) -> Converted<i32> {
        let Some(wanted) = wanted else { return self.tensor(id) };
        match self.source.constant(id) {
            Some(constant) => self.constant(constant, Some(wanted.into())),
            None => match self.scale(id)? {
                known if known == wanted => self.tensor(id),
                known => Err(format!("an operand has {known}, but its operator needs {wanted}")),
            },
        }
    }

    /// Returns the tensor of an operand.
    pub(super) fn tensor(&mut self, id: ValueId) -> Converted<i32> {
        if let Some(tensor) = self.tensors[id] {
            return Ok(tensor);
        }
        let constant = self.source.constant(id).ok_or("an operand has no value")?;
        let tensor = self.constant(constant, self.scales[id].clone())?;
        self.tensors[id] = Some(tensor);
        Ok(tensor)
    }

    /// Returns the tensors of all operands of a node.
    pub(super) fn operands(&mut self, node: &Node) -> Converted<Vec<i32>> {
        node.inputs.iter().map(|&id| self.tensor(id)).collect()
    }

    /// Adds the tensor of a value that is about to be computed.
    pub(super) fn result(&mut self, id: ValueId) -> Converted<i32> {
        let tensor = self.push(self.name.clone(), self.kind(id), None, self.scales[id].clone())?;
        self.tensors[id] = Some(tensor);
        Ok(tensor)
    }

    /// Adds a tensor between the operators of a node.
    pub(super) fn temporary(&mut self, kind: TensorType, scales: Option<AffineQuantization>) -> Converted<i32> {
        self.push(format!("{}/value", self.name), kind, None, scales)
    }

    /// Adds a constant.
    pub(super) fn constant(&mut self, tensor: &Tensor, scales: Option<AffineQuantization>) -> Converted<i32> {
        let bytes = tensor.bytes().map_err(|error| error.to_string())?;
        self.push(format!("{}/constant", self.name), tensor.tensor_type(), Some(bytes.to_vec()), scales)
    }

    /// Adds a list of numbers.
    pub(super) fn list(&mut self, numbers: &[i32]) -> Converted<i32> {
        let tensor = Tensor::new(&gradlet_core::ops::portable_cpu(), numbers, &[numbers.len() as u32]);
        self.constant(&tensor.map_err(|error| error.to_string())?, None)
    }

    /// Adds a list of dimensions.
    pub(super) fn shape(&mut self, dims: &[u32]) -> Converted<i32> {
        self.list(&integers(dims)?)
    }

    /// Adds one number, a scalar.
    pub(super) fn number(&mut self, number: i32) -> Converted<i32> {
        self.constant(&Tensor::scalar(&gradlet_core::ops::portable_cpu(), number), None)
    }

    fn push(&mut self, base: String, kind: TensorType, data: Option<Vec<u8>>, scales: Option<AffineQuantization>) -> Converted<i32> {
        let dims = integers(kind.shape.dims())?;
        let count = self.names.entry(base.clone()).or_default();
        let name = if *count == 0 { base } else { format!("{base}_{count}") };
        *count += 1;
        let quantization = scales.as_ref().filter(|_| kind.dtype != DType::F32).map(described_scales);
        self.graph.tensors.push(Described { name, kind: ElementType::from(kind.dtype), dims, data, quantization });
        Ok(self.graph.tensors.len() as i32 - 1)
    }

    /// Adds an operator.
    pub(super) fn operator(&mut self, name: &'static str, inputs: &[i32], outputs: &[i32], options: Options) {
        self.graph.operators.push(Operator { name, inputs: inputs.to_vec(), outputs: outputs.to_vec(), options });
    }

    /// Adds an operator on all operands of a node, with its first result.
    pub(super) fn same(&mut self, node: &Node, name: &'static str, options: Options) -> Converted<()> {
        let (inputs, output) = (self.operands(node)?, self.result(node.outputs[0])?);
        self.operator(name, &inputs, &[output], options);
        Ok(())
    }

    /// Adds an operator on the first operand of a node and the operands `others`.
    pub(super) fn with(&mut self, node: &Node, name: &'static str, others: &[i32], options: Options) -> Converted<()> {
        let inputs = [&[self.tensor(node.inputs[0])?], others].concat();
        let output = self.result(node.outputs[0])?;
        self.operator(name, &inputs, &[output], options);
        Ok(())
    }

    /// Adds the operator that gives `to` the elements of `from`.
    pub(super) fn reshape(&mut self, from: i32, to: i32) -> Converted<()> {
        let dims = self.graph.tensors[to as usize].dims.clone();
        // A list without elements is no constant for an interpreter. The option [0] stands for a scalar.
        let (inputs, option) = if dims.is_empty() { (vec![from], vec![0]) } else { (vec![from, self.list(&dims)?], dims) };
        self.operator("RESHAPE", &inputs, &[to], Some((17, vec![(0, Field::List(option))])));
        Ok(())
    }
}

/// Returns dimensions as the format has them.
pub(super) fn integers(dims: &[u32]) -> Converted<Vec<i32>> {
    dims.iter().map(|&dim| i32::try_from(dim).map_err(|_| format!("a dimension is {dim}, which is too large for the format"))).collect()
}

fn described_scales(scales: &AffineQuantization) -> Scales {
    let zero_points = scales.zero_points.iter().map(|&zero_point| zero_point.into()).collect();
    Scales { scales: scales.scales.clone(), zero_points, axis: scales.axis as usize }
}
