//! Float models whose weights are variables.

use super::conv::{HEIGHT_FIRST, TRANSPOSED, depthwise_filter};
use super::node::Node;
use super::plan::{Plan, constant};
use super::{Model, refused};
use crate::formats::tflite::{Code, SoftmaxOptions, Subgraph, Tensor as Described};
use crate::train::training;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Layer, Module, Visitor};
use gradlet_core::optimizers::{Optimizer, Sgd};
use gradlet_core::{DType, Eager, Error, Result, Scope, Shape, Tensor, TensorType, Variable};
use std::sync::Arc;

/// Order of the axes of a dense kernel `[n,k]` as `[k,n]`.
const COLUMNS_FIRST: &[usize] = &[1, 0];

/// A weight of an operator: its position among the inputs, and the order in which the importer reads its axes.
type Position = (usize, &'static [usize]);

/// The weights of each operator that has any.
const WEIGHTS: &[(&str, &[Position])] = &[
    ("BATCH_MATMUL", &[(1, &[])]),
    ("CONV_2D", &[(1, HEIGHT_FIRST), (2, &[])]),
    ("DEPTHWISE_CONV_2D", &[(1, &[]), (2, &[])]),
    ("FULLY_CONNECTED", &[(1, COLUMNS_FIRST), (2, &[])]),
    ("PRELU", &[(1, &[])]),
    ("SVDF", &[(1, COLUMNS_FIRST), (2, &[]), (3, &[])]),
    ("TRANSPOSE_CONV", &[(1, TRANSPOSED), (3, &[])]),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", LSTM),
    ("UNIDIRECTIONAL_SEQUENCE_RNN", &[(1, COLUMNS_FIRST), (2, COLUMNS_FIRST), (3, &[])]),
];

const LSTM: &[Position] = &[
    (1, COLUMNS_FIRST),
    (2, COLUMNS_FIRST),
    (3, COLUMNS_FIRST),
    (4, COLUMNS_FIRST),
    (5, COLUMNS_FIRST),
    (6, COLUMNS_FIRST),
    (7, COLUMNS_FIRST),
    (8, COLUMNS_FIRST),
    (9, &[]),
    (10, &[]),
    (11, &[]),
    (12, &[]),
    (13, &[]),
    (14, &[]),
    (15, &[]),
    (16, COLUMNS_FIRST),
    (17, &[]),
];

/// The variables of a model's main subgraph, in the order of its operators.
pub(super) struct Weights(Vec<Weight>);

struct Weight {
    tensor: usize,
    variable: Variable,
    /// Order of the axes, or an empty list for that of the file.
    order: &'static [usize],
}

impl Weights {
    /// Reads the variable of a tensor, with its axes in the order `order`. Returns `None` if the tensor is no weight.
    pub(super) fn read(&self, scope: &dyn Scope, tensor: usize, order: &[usize]) -> Result<Option<Tensor>> {
        let Some(weight) = self.0.iter().find(|weight| weight.tensor == tensor) else { return Ok(None) };
        let value = scope.read(&weight.variable)?;
        if weight.order == order {
            return Ok(Some(value));
        }
        let axes = |order: &[usize]| if order.is_empty() { (0..value.dims().len()).collect() } else { order.to_vec() };
        let own = axes(weight.order);
        let moved: Vec<u32> =
            axes(order).iter().filter_map(|axis| own.iter().position(|own| own == axis)).map(|axis| axis as u32).collect();
        value.transpose(&moved).map(Some)
    }

    /// True if a tensor is a weight.
    pub(super) fn has(&self, tensor: usize) -> bool {
        self.0.iter().any(|weight| weight.tensor == tensor)
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.0.iter().map(|weight| &weight.variable)
    }
}

/// A float model whose weights are variables, as a layer that can be trained. [`Model::trainable`] returns it.
///
/// The layer's output is that of the model. If the model ends with a softmax, the layer leaves it out, so that the output has the logits,
/// which the loss needs.
#[derive(Clone)]
pub struct Trainable {
    model: Model,
    output: Output,
}

/// The output of the layer: a tensor of the main subgraph, and the factor by which it is a logit.
#[derive(Clone)]
struct Output {
    tensor: usize,
    factor: f64,
    /// Name of the operator that computes the model's output.
    operator: String,
}

impl Model {
    /// Returns the model as a layer whose weights are variables on the device of `scope`, so that it can be trained further.
    ///
    /// The weights are the constants of convolutions, dense and recurrent layers in the main subgraph, with the names of their tensors. A
    /// constant that several operators share is one variable. Weights of 16 bits become f32. A converter has merged batch normalization
    /// with the convolution before it, and has removed dropout.
    ///
    /// ```
    /// use gradlet::layers::Module;
    /// use gradlet::optimizers::Sgd;
    /// use gradlet::{Eager, Tensor, tflite, train};
    /// use std::sync::Arc;
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/mlp_float32.tflite");
    /// let scope = Eager::new(&gradlet::cpu());
    /// let layer = Arc::new(tflite::Model::open(file)?.trainable(&scope)?);
    /// let step = train::step(&layer, Arc::new(Sgd::new(0.1)), layer.trainable_variables());
    /// let (x, label) = (Tensor::full(&gradlet::cpu(), 0.5f32, &[1, 40])?, Tensor::full(&gradlet::cpu(), 2i32, &[1])?);
    /// let first = step.call(&scope, (x.clone(), label.clone()))?.item::<f32>()?;
    /// assert!(step.call(&scope, (x.clone(), label))?.item::<f32>()? < first);
    /// println!("{}", layer.model().call(&scope, &[&x])?[0]); // probabilities
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails if an operator is not supported or has quantized tensors; the error lists all of them. Fails too if the model does not have
    /// one input and one output, or has no weights.
    pub fn trainable(&self, scope: &dyn Scope) -> Result<Trainable> {
        if self.stream.is_some() || self.weights.is_some() {
            return Err(Error::message("only a model as it is in its file can become trainable"));
        }
        Plan::new(self.parsed(), 0).map_err(|list| refused(list, "are not supported"))?;
        let graph = self.parsed().subgraphs.first().ok_or(Error::Internal)?;
        let nodes = || graph.operators.iter().map(|operator| Node { model: self.parsed(), graph, subgraph: 0, operator });
        let quantized = self.quantized_operators();
        if !quantized.is_empty() {
            return Err(refused(quantized, "cannot be trained: train the float model, from which this one was quantized"));
        }
        let (&[_], &[output]) = (graph.inputs.as_slice(), graph.outputs.as_slice()) else {
            let (inputs, outputs) = (graph.inputs.len(), graph.outputs.len());
            return Err(Error::message(format!(
                "a model with {inputs} inputs and {outputs} outputs cannot be trained: it must have one each"
            )));
        };
        let weights = self.weights(scope, nodes())?;
        if weights.0.is_empty() {
            return Err(Error::message("the model has no weights that can be trained"));
        }
        let model = Model { weights: Some(Arc::new(weights)), ..self.begun_again() };
        Ok(Trainable { model, output: logits(nodes(), output) })
    }

    /// Creates the variables of the main subgraph's weights.
    fn weights<'m>(&self, scope: &dyn Scope, nodes: impl Iterator<Item = Node<'m>>) -> Result<Weights> {
        let mut weights = Weights(Vec::new());
        let eager = Eager::new(&scope.device());
        for node in nodes {
            let positions = WEIGHTS.iter().find(|(name, _)| node.operator.code == Code::Builtin(name)).map_or(&[][..], |row| row.1);
            for &(at, order) in positions {
                let Some(tensor) = node.operator.inputs.get(at).copied().flatten().filter(|&tensor| !weights.has(tensor)) else { continue };
                let Some(source) = source(node.graph, tensor) else { continue };
                let value = in_layout(&node, at, constant(&eager.device(), source, order)?.cast(DType::F32)?)?;
                let taken = source.name.is_empty() || weights.variables().any(|variable| variable.name() == source.name);
                let name = if taken { format!("{}_{tensor}", source.name) } else { source.name.into() };
                weights.0.push(Weight { tensor, variable: Variable::new(&eager, &name, &value)?, order });
            }
        }
        Ok(weights)
    }
}

/// Returns a weight with the dimensions that the operator's kernel needs.
fn in_layout(node: &Node<'_>, at: usize, weight: Tensor) -> Result<Tensor> {
    let depthwise = at == 1 && node.operator.code == Code::Builtin("DEPTHWISE_CONV_2D");
    let channels = node.optional(0).and_then(|x| x.dims.last().copied()).unwrap_or(0);
    match depthwise_filter(weight.dims(), channels) {
        Some(dims) if depthwise && channels > 0 => weight.reshape(&dims),
        _ => Ok(weight),
    }
}

/// Returns the constant of floats that is a tensor, or from which it is converted.
fn source<'m>(graph: &'m Subgraph<'m>, tensor: usize) -> Option<&'m Described<'m>> {
    let constant = |tensor: usize| {
        let described = graph.tensors.get(tensor).filter(|_| !graph.inputs.contains(&tensor))?;
        let float = matches!(described.kind.dtype(), Some(DType::F32 | DType::F16 | DType::Bf16));
        (float && described.data.is_some()).then_some(described)
    };
    let converts = || {
        let conversion = graph.operators.iter().find(|operator| operator.outputs.contains(&tensor))?;
        let input = conversion.inputs.first().copied().flatten().filter(|_| conversion.code == Code::Builtin("DEQUANTIZE"))?;
        constant(input)
    };
    constant(tensor).or_else(converts)
}

/// Returns the tensor of the logits, if the output is the softmax of one, or the output.
fn logits<'m>(nodes: impl Iterator<Item = Node<'m>>, output: usize) -> Output {
    let Some(last) = nodes.filter(|node| node.operator.outputs.contains(&output)).last() else {
        return Output { tensor: output, factor: 1.0, operator: String::new() };
    };
    let operator = last.operator.code.to_string();
    let softmax = last.options::<SoftmaxOptions<'_>>().ok().filter(|_| operator == "SOFTMAX");
    match (softmax, last.operator.inputs.first().copied().flatten()) {
        (Some(options), Some(tensor)) => Output { tensor, factor: options.beta().into(), operator },
        _ => Output { tensor: output, factor: 1.0, operator },
    }
}

impl Trainable {
    /// Returns the model, whose calls and [`Model::export`] use the values of the variables. Its output keeps the softmax. Make it
    /// [stream](Model::streaming) after the training, because the first columns of a stream depend on the weights.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Exports a classifier for training on a device. Each dimension that a call chooses becomes `batch`. The artifact has the signatures
    /// of [`Model::export`], and these:
    ///
    /// - `train`: `x`, `y` i32 → `loss` f32 `[]`; an SGD step on the mean softmax cross-entropy changes the
    ///   [trainable](Variable::trainable) variables. `y` has the number of a class for each row of the output, such as `[n]` for
    ///   `[n, classes]`.
    /// - `set_learning_rate`: `value` f32 `[]`; sets the learning rate
    ///
    /// Fails if an operator is not supported or cannot be differentiated, and if the output is not f32 `[…, classes]` or comes from a
    /// sigmoid.
    pub fn export(&self, batch: u32, learning_rate: f32) -> Result<AlignedBytes> {
        let mut artifact = self.model.artifact(batch)?;
        let scope = Eager::new(&self.model.device());
        let input = self.model.inputs().into_iter().next().ok_or(Error::Internal)?;
        let dims: Vec<u32> = input.dims.iter().map(|dim| dim.unwrap_or(batch)).collect();
        let x = Tensor::symbolic(TensorType::new(input.dtype.ok_or(Error::Internal)?, Shape::new(&dims)?));
        let logits = self.output_type(&scope, x.tensor_type())?;
        let (DType::F32, &[ref samples @ .., 2..=u32::MAX]) = (logits.dtype, logits.shape.dims()) else {
            return Err(Error::message(format!("a classifier has an output f32[…,classes] of two or more classes, not {logits}")));
        };
        if self.output.operator == "LOGISTIC" {
            return Err(Error::message("the model ends with a sigmoid, but the loss of a classifier needs a softmax or logits"));
        }
        let y = Tensor::symbolic(TensorType::new(DType::I32, Shape::new(samples)?));
        let (layer, sgd) = (Arc::new(self.clone()), Arc::new(Sgd::new(learning_rate)));
        sgd.build(&scope, self)?;
        let step = training::step(&layer, sgd.clone() as Arc<dyn Optimizer>, self.trainable_variables());
        artifact.signature("train", &*step.concrete(&scope, &(x, y))?, &["x", "y"], &["loss"])?;
        artifact.doc("train", "A step that changes the weights.")?;
        let named = sgd.named_variables();
        let rate = named.iter().find(|(name, _)| name == "learning_rate").ok_or(Error::Internal)?;
        artifact.setter(&scope, "learning_rate", &rate.1)?.doc("set_learning_rate", "Sets the learning rate of the training steps.")?;
        artifact.variables(self.named_variables());
        artifact.variables(named.into_iter().map(|(name, variable)| (format!("sgd/{name}"), variable)).collect());
        artifact.to_bytes()
    }
}

impl Module for Trainable {
    fn visit(&self, visitor: &mut dyn Visitor) {
        for variable in self.model.weights.iter().flat_map(|weights| weights.variables()) {
            visitor.module(variable.name(), variable);
        }
    }
}

impl Layer for Trainable {
    fn name(&self) -> &str {
        "tflite"
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let Output { tensor, factor, .. } = self.output;
        let mut found = None;
        self.model.call_observed(scope, &[x], |subgraph, at, value| {
            if (subgraph, at) == (0, tensor) {
                found = Some(value.clone());
            }
        })?;
        let y = found.ok_or(Error::Internal)?;
        if factor == 1.0 { Ok(y) } else { y.mul_scalar(factor) }
    }
}
