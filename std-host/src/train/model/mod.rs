//! Models: Keras's `compile`, `fit`, `evaluate` and `predict` for any layer.

pub mod callbacks;
mod dataset;
mod fit;
mod logs;
mod source;
mod steps;
#[cfg(test)]
mod tests;

pub use callbacks::Callback;
pub use dataset::Inputs;
pub use fit::{Evaluate, Fit};
pub use logs::{History, Logs};
pub use source::{Arrays, Batch, Order, Pass, Source};
pub use steps::Compile;
pub(crate) use steps::Results;

use crate::files::{FileError, FileResult};
use crate::formats::proto::GraphDef;
use crate::formats::weights;
use gradlet_core::layers::{Layer, Module, Size, Summary, Visitor};
use gradlet_core::optimizers::Optimizer;
use gradlet_core::{DType, Eager, Error, Function, Result, Scope, Shape, Tensor, TensorType, Variable};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use steps::{Compiled, Kind};

/// A layer with methods for training, evaluation and prediction: Keras's `Model`.
///
/// ```
/// use gradlet::layers::{Activation, Dense, Sequential};
/// use gradlet::losses::SparseCategoricalCrossentropy;
/// use gradlet::metrics::SparseCategoricalAccuracy;
/// use gradlet::train::{Compile, Evaluate, Fit, Model};
/// use gradlet::optimizers::Adam;
/// use gradlet::{Eager, Scope, Tensor};
///
/// let scope = Eager::with_seed(&gradlet::cpu(), 42);
/// let layers = Sequential::new().with(Dense::new(8).activation(Activation::Relu)).with(Dense::new(2));
/// let mut model = Model::new(&scope, layers);
/// let loss = SparseCategoricalCrossentropy::default().from_logits(true);
/// model.compile(Compile::new(Adam::new(0.1), loss).metric("accuracy", SparseCategoricalAccuracy::default()))?;
///
/// // Which of two numbers is larger?
/// let x = Tensor::random_uniform(&scope, &[64, 2])?;
/// let y = x.argmax(-1, gradlet::DType::I32)?;
/// let history = model.fit((&x, &y), Fit::new().epochs(20).batch_size(16))?;
/// assert!(history.get("loss")[19] < history.get("loss")[0]);
/// assert!(model.evaluate((&x, &y), Evaluate::new())?.get("accuracy") > Some(0.9));
/// assert_eq!(model.predict(&x)?.dims(), [64, 2]);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[doc(alias = "keras.Model")]
pub struct Model {
    scope: Eager,
    layer: Arc<dyn Layer>,
    /// Type of the input for which the model was built.
    input: OnceLock<TensorType>,
    predict: Function<Tensor, Tensor>,
    compiled: Option<Compiled>,
}

impl Model {
    /// Creates a model of `layer`. Its tensors are created in `scope`. To keep using the layer itself, pass a clone of an `Arc` of it.
    pub fn new(scope: &Eager, layer: impl Layer + 'static) -> Model {
        let layer: Arc<dyn Layer> = Arc::new(layer);
        let called = layer.clone();
        let predict = Function::new(move |scope: &dyn Scope, x: Tensor| called.apply(scope, &x)).named("predict_step");
        Model { scope: scope.clone(), layer, input: OnceLock::new(), predict, compiled: None }
    }

    /// Sets the optimizer, the loss and the metrics. Fails if two metrics have the same name.
    pub fn compile(&mut self, compile: Compile) -> Result<()> {
        self.compiled = Some(Compiled::new(&self.layer, compile)?);
        Ok(())
    }

    /// Creates the variables, for f32 inputs with these dimensions after the batch dimension.
    pub fn build(&self, input: &[u32]) -> Result<()> {
        self.build_for(TensorType::new(DType::F32, Shape::new(&[&[1], input].concat())?))
    }

    fn build_for(&self, input: TensorType) -> Result<()> {
        if !self.layer.is_built() || self.input.get().is_none() {
            self.layer.output_type(&self.scope, input)?;
        }
        self.input.get_or_init(|| input);
        Ok(())
    }

    /// Builds the model and its optimizer for batches with the types of this one.
    fn prepare(&self, batch: &Batch) -> Result<()> {
        batch.samples()?;
        self.build_for(batch.x.tensor_type())?;
        self.compiled()?.optimizer().build(&self.scope, &*self.layer)
    }

    /// Returns the scope in which the model's tensors are created.
    pub fn scope(&self) -> &Eager {
        &self.scope
    }

    /// Returns the layer.
    pub fn layer(&self) -> &Arc<dyn Layer> {
        &self.layer
    }

    /// Returns the optimizer with which the model was compiled.
    pub fn optimizer(&self) -> Result<&Arc<dyn Optimizer>> {
        Ok(self.compiled()?.optimizer())
    }

    fn compiled(&self) -> Result<&Compiled> {
        self.compiled.as_ref().ok_or_else(|| Error::message("the model is not compiled: call compile() first"))
    }

    /// Returns a summary as Keras prints it: the layers with their output shapes and parameters, and the size of the optimizer's state.
    ///
    /// Fails if the model was neither built nor called before.
    pub fn summary(&self) -> Result<Summary> {
        let input = self.input.get().ok_or_else(unbuilt)?;
        let state = self.compiled.as_ref().map(|compiled| compiled.optimizer().variables()).unwrap_or_default();
        let optimizer = state.iter().any(Variable::is_built).then(|| Size::of(&state));
        let mut summary = Summary::new(&*self.layer, &self.scope, *input)?;
        summary.optimizer = optimizer;
        Ok(summary)
    }

    /// Runs one training step. Returns the loss and the metrics of this batch.
    ///
    /// Fails if the model is not compiled, if the batch does not fit it, or if a label is out of range.
    pub fn train_on_batch(&self, batch: impl Into<Batch>) -> Result<Logs> {
        let batch = batch.into();
        self.prepare(&batch)?;
        self.reset_metrics()?;
        self.compiled()?.run(Kind::Train, &self.scope, &batch, false)?.logs().cloned()
    }

    /// Returns the graph of a training step for batches like this one, for TensorBoard, or `None` if steps run eagerly.
    pub(crate) fn train_graph(&self, batch: &Batch) -> Result<Option<GraphDef>> {
        self.compiled()?.train_graph(&self.scope, batch)
    }

    /// Returns the loss and the metrics of this batch, without training.
    pub fn test_on_batch(&self, batch: impl Into<Batch>) -> Result<Logs> {
        let batch = batch.into();
        self.build_for(batch.x.tensor_type())?;
        self.reset_metrics()?;
        self.compiled()?.run(Kind::Test, &self.scope, &batch, false)?.logs().cloned()
    }

    fn reset_metrics(&self) -> Result<()> {
        self.compiled()?.reset(&self.scope)
    }

    /// Returns the outputs for all samples of a tensor, computed in batches of 32, or of a dataset of batches. Fails if there
    /// are no samples.
    pub fn predict(&self, x: impl Inputs) -> Result<Tensor> {
        self.outputs(x.inputs()?)
    }

    /// Returns the outputs for all samples of `x`, computed in batches of `batch_size`.
    pub fn predict_in_batches(&self, x: &Tensor, batch_size: usize) -> Result<Tensor> {
        self.outputs(dataset::batches_of(x, batch_size)?)
    }

    fn outputs(&self, batches: impl Iterator<Item = Result<Tensor>>) -> Result<Tensor> {
        let outputs = batches.map(|batch| self.predict_on_batch(&batch?)).collect::<Result<Vec<Tensor>>>()?;
        match outputs.as_slice() {
            [] => Err(Error::message("there are no samples: the dataset has no batches")),
            outputs => Tensor::concat(outputs, 0),
        }
    }

    /// Returns the outputs for one batch, computed in one call.
    pub fn predict_on_batch(&self, x: &Tensor) -> Result<Tensor> {
        self.build_for(x.tensor_type())?;
        self.predict.call(&self.scope, x.to(&self.scope.device())?)
    }

    /// Returns the values of all variables.
    ///
    /// Fails if the model is not built.
    pub fn get_weights(&self) -> Result<Vec<Tensor>> {
        self.built_variables()?.iter().map(|(_, variable)| self.scope.read(variable)).collect()
    }

    /// Sets all variables, in the order of [`Model::get_weights`].
    ///
    /// Fails if the model is not built, if the number of values differs from that of the variables, or if a value has another
    /// element type or shape than its variable. No variable changes then.
    pub fn set_weights(&self, weights: &[Tensor]) -> Result<()> {
        let variables = self.built_variables()?;
        if variables.len() != weights.len() {
            return Err(Error::message(format!("the model has {} variables, but got {} weights", variables.len(), weights.len())));
        }
        for ((name, variable), weight) in variables.iter().zip(weights) {
            let (own, got) = (variable.tensor_type()?, weight.tensor_type());
            if own != got {
                return Err(Error::message(format!("variable {name:?} is {own}, but its weight is {got}")));
            }
        }
        let values = variables.iter().zip(weights).map(|((_, variable), weight)| weight.to(&variable.device()?));
        let values = values.collect::<Result<Vec<_>>>()?;
        variables.iter().zip(&values).try_for_each(|((_, variable), value)| self.scope.assign(variable, value))
    }

    /// Writes all variables atomically to a safetensors file. A tensor is named after its path, such as `dense_1/kernel`.
    ///
    /// Fails if the file name does not end in `.safetensors`. Keras's `.weights.h5` and `.keras` are not supported. TensorFlow can
    /// read a [`Checkpoint`](crate::checkpoint::Checkpoint).
    pub fn save_weights(&self, path: impl AsRef<Path>) -> FileResult<()> {
        let path = path.as_ref();
        self.built_variables().map_err(|error| FileError::model(path, error))?;
        weights::save(&self.scope, &*self.layer, self.layer.name(), path)
    }

    /// Sets all variables from a safetensors file with any name.
    ///
    /// Fails if the model is not built or the file is damaged. Fails if the file lacks a variable or has one that the model does
    /// not have, or if an element type or shape differs. No variable changes then.
    pub fn load_weights(&self, path: impl AsRef<Path>) -> FileResult<()> {
        let path = path.as_ref();
        self.built_variables().map_err(|error| FileError::model(path, error))?;
        weights::load(&self.scope, &*self.layer, path)
    }

    fn built_variables(&self) -> Result<Vec<(String, Variable)>> {
        let variables = self.layer.named_variables();
        let built = !variables.is_empty() && variables.iter().all(|(_, variable)| variable.is_built());
        // A model without variables counts as built once it was called.
        if built || self.input.get().is_some() { Ok(variables) } else { Err(unbuilt()) }
    }
}

impl Module for Model {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.module("", &self.layer);
        if let Some(compiled) = self.compiled.as_ref().filter(|_| visitor.tracks()) {
            visitor.module("optimizer", compiled.optimizer());
        }
    }
}

fn unbuilt() -> Error {
    Error::message("the model is not built: call build() with the dimensions of an input, or call the model once")
}
