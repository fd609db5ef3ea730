//! TensorFlow Lite's models, imported as gradlet's own ops, and written from them.
//!
//! An imported model is ordinary code: each operator of the file emits ops, eagerly or into a trace. It can therefore be computed at once,
//! compiled as a [`Function`], differentiated, and exported as an artifact.
//!
//! ```no_run
//! use gradlet::{Eager, Tensor, tflite};
//! let model = tflite::Model::open("kws.tflite")?;
//! println!("{:?} → {:?}", model.inputs(), model.outputs());
//! let scope = Eager::new(&gradlet::cpu());
//! let x = Tensor::full(&gradlet::cpu(), 0.0f32, &[1, 49, 10, 1])?;
//! let at_once = model.call(&scope, &[&x])?;
//! let compiled = model.function()?.call(&scope, vec![x])?;
//! # Ok::<(), gradlet::Error>(())
//! ```
//!
//! The reader checks the whole file before anything is computed. [`Model::unsupported`] lists the operators that gradlet does not import.
//! The states of recurrent operators are zeros at the beginning of each call. That of an SVDF is a variable, which lasts from one call to
//! the next. The first call determines its batch and its device.
//!
//! [`Model::calibration`] begins the quantization of a float model. [`Model::streaming`] turns a model of a sliding window into a step
//! for each frame. [`Model::trainable`] turns the weights of a float model into variables. [`Converter`] writes functions as files.

mod array;
mod calibrate;
mod control;
mod conv;
mod convert;
mod elementwise;
mod export;
mod linear;
mod node;
mod plan;
mod quantized;
mod recurrent;
mod reduce;
mod resize;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod trainable;
mod variables;

use crate::files::{FileError, FileResult};
use crate::formats::tflite::{self as format, Subgraph};
use gradlet_core::{AffineQuantization, DType, Device, Error, Function, Result, Scope, Tensor, TensorSpec, Variable};
use plan::{Observe, Plan, Run};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use variables::Variables;

pub use convert::Converter;
pub use trainable::Trainable;

self_cell::self_cell!(
    struct Checked {
        owner: Vec<u8>,
        #[covariant]
        dependent: Parsed,
    }
);

type Parsed<'a> = format::Model<'a>;

/// A model of TensorFlow Lite. Clones share the file's bytes and the variables.
#[derive(Clone)]
#[doc(alias = "tf.lite.Interpreter")]
pub struct Model {
    checked: Arc<Checked>,
    variables: Arc<Variables>,
    /// The time axes of a [streaming](Model::streaming) model.
    stream: Option<Arc<stream::Stream>>,
    /// The variables of a [trainable](Model::trainable) model's weights.
    weights: Option<Arc<trainable::Weights>>,
    /// True if an exported artifact has [packed filters](gradlet_core::Artifact::pack_filters).
    packs: bool,
    rounding: Rounding,
}

/// Runtime whose bits the quantized dense layers of a model have ([`Model::with_rounding`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rounding {
    /// TensorFlow Lite: a sum in the scale of the result is rounded once.
    #[default]
    TensorFlow,
    /// TensorFlow Lite Micro, also with CMSIS-NN: it is rounded twice.
    Tflm,
    /// TensorFlow Lite Micro before 13 October 2026: as [`Rounding::Tflm`], and the scale of weights that have only one is multiplied with
    /// that of the input as f32. About one int8 element in 100,000 differs from [`Rounding::Tflm`].
    TflmF32Scales,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Name of the tensor, or of the input or output in a signature.
    pub name: String,
    /// Element type, or `None` if gradlet has no such type.
    pub dtype: Option<DType>,
    /// Dimensions, with `None` for those that each call chooses.
    pub dims: Vec<Option<u32>>,
    /// Quantization of the elements, if they stand for other numbers.
    pub quantization: Option<AffineQuantization>,
}

/// A named function of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Signature {
    /// Name of the signature, such as `serving_default`.
    pub name: String,
    /// Inputs in the order of the model, by their names in the signature.
    pub inputs: Vec<TensorInfo>,
    /// Outputs in the order of the model, by their names in the signature.
    pub outputs: Vec<TensorInfo>,
}

/// An operator that gradlet does not import.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsupported {
    /// Number of the subgraph.
    pub subgraph: usize,
    /// Number of the operator in the subgraph. It is the count of operators for a result of the subgraph that none of them computes.
    pub operator: usize,
    /// Name of the operator.
    pub name: String,
    /// Reason.
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subgraph {}: operator {} ({}): {}", self.subgraph, self.operator, self.name, self.reason)
    }
}

impl Model {
    /// Reads and checks a file. Fails if it cannot be read, is damaged, or is not a model of version 3 of the format. The error names the
    /// place in the model.
    pub fn open(path: impl AsRef<Path>) -> FileResult<Model> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| FileError::io(path, error))?;
        Model::parse(bytes).map_err(|problem| FileError::new(path, problem))
    }

    /// Reads and checks the bytes of a file. Fails as [`Model::open`] does.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Model> {
        Model::parse(bytes.into()).map_err(|problem| Error::message(format!("the model cannot be read: {problem}")))
    }

    fn parse(bytes: Vec<u8>) -> std::result::Result<Model, String> {
        let checked = Checked::try_new(bytes, |bytes| format::read(bytes))?;
        let variables = Variables::new(checked.borrow_dependent().subgraphs.len());
        let (checked, variables) = (Arc::new(checked), Arc::new(variables));
        Ok(Model { checked, variables, stream: None, weights: None, packs: true, rounding: Rounding::default() })
    }

    fn parsed(&self) -> &Parsed<'_> {
        self.checked.borrow_dependent()
    }

    /// Returns the description that the converter has written.
    pub fn description(&self) -> &str {
        self.parsed().description
    }

    /// Returns the errors in the file that do not change its meaning.
    pub fn warnings(&self) -> &[String] {
        &self.parsed().warnings
    }

    /// Returns the model with the bits of `rounding` in its quantized dense layers (`FULLY_CONNECTED`). The default is
    /// [`Rounding::TensorFlow`]. With another rounding, an int8 element of a layer differs by at most one.
    ///
    /// ```no_run
    /// use gradlet::tflite::{Model, Rounding};
    /// let model = Model::open("ad01.tflite")?.with_rounding(Rounding::Tflm)?;
    /// gradlet::io::write_whole("ad01.grdl".as_ref(), &model.export(1)?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails for a [streaming](Model::streaming) model, whose first columns are rounded already.
    pub fn with_rounding(&self, rounding: Rounding) -> Result<Model> {
        match self.stream {
            Some(_) => Err(Error::message("a streaming model has its rounding already: set it before the model becomes streaming")),
            None => Ok(Model { rounding, ..self.clone() }),
        }
    }

    /// Returns the inputs, in the order of the arguments of [`Model::call`].
    pub fn inputs(&self) -> Vec<TensorInfo> {
        self.main(|graph| graph.inputs.as_slice())
    }

    /// Returns the outputs, in the order of the results of [`Model::call`].
    pub fn outputs(&self) -> Vec<TensorInfo> {
        self.main(|graph| graph.outputs.as_slice())
    }

    fn main(&self, list: for<'g> fn(&'g Subgraph<'_>) -> &'g [usize]) -> Vec<TensorInfo> {
        self.parsed().subgraphs.first().map_or(Vec::new(), |graph| list(graph).iter().map(|&index| self.info(graph, index)).collect())
    }

    /// Describes a tensor of a subgraph. A streaming model has one column of it.
    fn info(&self, graph: &Subgraph<'_>, index: usize) -> TensorInfo {
        let dims = self.stream.as_ref().and_then(|stream| stream.dims(index));
        let info = info(graph, index);
        let dims = dims.map_or(info.dims, |dims| dims.iter().copied().map(Some).collect());
        TensorInfo { dims, ..info }
    }

    /// Returns the model's signatures. A streaming model has those of its main subgraph.
    pub fn signatures(&self) -> Vec<Signature> {
        let named = |graph: &Subgraph<'_>, list: &[(&str, usize)]| -> Vec<TensorInfo> {
            list.iter().map(|&(name, index)| TensorInfo { name: name.into(), ..self.info(graph, index) }).collect()
        };
        let model = self.parsed();
        let streamed = |signature: &&format::Signature<'_>| self.stream.is_none() || signature.subgraph == 0;
        let signatures =
            model.signatures.iter().filter(streamed).filter_map(|signature| Some((signature, model.subgraphs.get(signature.subgraph)?)));
        let signature = |(signature, graph): (&format::Signature<'_>, &Subgraph<'_>)| Signature {
            name: signature.key.into(),
            inputs: named(graph, &signature.inputs),
            outputs: named(graph, &signature.outputs),
        };
        signatures.map(signature).collect()
    }

    /// Returns every operator of the main subgraph, and of those that it calls, that gradlet does not import. If the list is empty, the
    /// model can be called.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        Plan::new(self.parsed(), 0).err().unwrap_or_default()
    }

    /// Calls the model: computes the outputs at once, or records them if `scope` or an input belongs to a trace or a tape.
    ///
    /// Each call copies the constants to the device. For many calls, compile a [`Model::function`].
    ///
    /// Fails if the inputs do not have the types of [`Model::inputs`], and if an operator fails. Fails before anything is computed if an
    /// operator is not supported; the error lists all of them.
    pub fn call(&self, scope: &dyn Scope, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.call_observed(scope, inputs, |_, _, _| ())
    }

    /// Calls the model like [`Model::call`], and passes each tensor that an operator computes to `observe`, with the numbers of the
    /// subgraph and of the tensor in it.
    pub fn call_observed(
        &self,
        scope: &dyn Scope,
        inputs: &[&Tensor],
        mut observe: impl FnMut(usize, usize, &Tensor),
    ) -> Result<Vec<Tensor>> {
        self.run(0, scope, inputs, &mut observe)
    }

    /// Returns the model as a function, which compiles it for the device of its first call. Its signature has the types of
    /// [`Model::inputs`]. Fails if an operator is not supported; the error lists all of them.
    pub fn function(&self) -> Result<Function<Vec<Tensor>, Vec<Tensor>>> {
        let order = |count: usize| (0..count).collect();
        let entry = Entry { subgraph: 0, inputs: order(self.inputs().len()), outputs: order(self.outputs().len()) };
        self.compiled("model", entry, &self.inputs())
    }

    /// Calls a signature with its inputs by name, in any order. Returns its outputs by name. Fails as [`Model::call`] does, and if the
    /// model has no such signature or the signature has other inputs.
    pub fn call_signature(&self, scope: &dyn Scope, name: &str, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>> {
        let (entry, signature) = self.entry(name)?;
        if let Some((other, _)) = inputs.iter().find(|(input, _)| signature.inputs.iter().all(|info| info.name != *input)) {
            let names: Vec<&str> = signature.inputs.iter().map(|info| info.name.as_str()).collect();
            return Err(Error::message(format!("signature {name:?} has no input {other:?}, but {names:?}")));
        }
        let given = |info: &TensorInfo| {
            let input = inputs.iter().find(|(input, _)| *input == info.name).map(|(_, tensor)| *tensor);
            input.ok_or_else(|| Error::message(format!("signature {name:?} needs input {:?}", info.name)))
        };
        let ordered = signature.inputs.iter().map(given).collect::<Result<Vec<&Tensor>>>()?;
        let outputs = self.enter(&entry, scope, &ordered)?;
        Ok(signature.outputs.into_iter().map(|info| info.name).zip(outputs).collect())
    }

    /// Returns a signature as a function like [`Model::function`], with arguments and results in the order of [`Signature`].
    pub fn signature_function(&self, name: &str) -> Result<Function<Vec<Tensor>, Vec<Tensor>>> {
        let (entry, signature) = self.entry(name)?;
        self.compiled(name, entry, &signature.inputs)
    }

    /// Returns the variables that calls have created so far, in the order of their names. The weights of a [trainable](Model::trainable)
    /// model come after them.
    pub fn variables(&self) -> Vec<Variable> {
        let weights = self.weights.iter().flat_map(|weights| weights.variables().cloned());
        self.variables.all().into_iter().filter(Variable::is_built).chain(weights).collect()
    }

    /// Returns the device of the weights, or the portable one.
    fn device(&self) -> Device {
        let weight = self.weights.as_ref().and_then(|weights| weights.variables().next());
        weight.and_then(|variable| variable.device().ok()).unwrap_or_else(crate::compute::devices::portable_cpu)
    }

    /// Finds a signature.
    fn entry(&self, name: &str) -> Result<(Entry, Signature)> {
        let model = self.parsed();
        let described = self.signatures();
        let names: Vec<&str> = described.iter().map(|signature| signature.name.as_str()).collect();
        let wrong = Error::message(format!("the model has no signature {name:?}, but {names:?}"));
        let described = described.into_iter().find(|signature| signature.name == name).ok_or(wrong)?;
        let signature = model.signatures.iter().find(|signature| signature.key == name).ok_or(Error::Internal)?;
        let graph = model.subgraphs.get(signature.subgraph).ok_or(Error::Internal)?;
        let position = |tensor: usize, list: &[usize]| list.iter().position(|&index| index == tensor).ok_or(Error::Internal);
        let named: Vec<usize> = signature.inputs.iter().map(|&(_, tensor)| tensor).collect();
        let inputs = graph.inputs.iter().map(|&input| position(input, &named)).collect::<Result<Vec<usize>>>();
        let inputs = inputs.map_err(|_| Error::message(format!("signature {name:?} does not name all inputs of its subgraph")))?;
        let outputs = signature.outputs.iter().map(|&(_, output)| position(output, &graph.outputs)).collect::<Result<Vec<usize>>>()?;
        Ok((Entry { subgraph: signature.subgraph, inputs, outputs }, described))
    }

    fn compiled(&self, name: &str, entry: Entry, inputs: &[TensorInfo]) -> Result<Function<Vec<Tensor>, Vec<Tensor>>> {
        Plan::new(self.parsed(), entry.subgraph).map_err(|list| refused(list, "are not supported"))?;
        let specs = inputs.iter().map(spec).collect::<Result<Vec<TensorSpec>>>()?;
        let model = self.clone();
        let body = move |scope: &dyn Scope, inputs: Vec<Tensor>| model.enter(&entry, scope, &inputs.iter().collect::<Vec<_>>());
        Ok(Function::new(body).named(name).with_signature(&specs))
    }

    fn enter(&self, entry: &Entry, scope: &dyn Scope, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let input = |&at: &usize| inputs.get(at).copied().ok_or(Error::Arity { got: inputs.len() as u8 });
        let inputs = entry.inputs.iter().map(input).collect::<Result<Vec<&Tensor>>>()?;
        let outputs = self.run(entry.subgraph, scope, &inputs, &mut |_, _, _| ())?;
        entry.outputs.iter().map(|&at| outputs.get(at).cloned().ok_or(Error::Internal)).collect()
    }

    fn run(&self, subgraph: usize, scope: &dyn Scope, inputs: &[&Tensor], observe: Observe<'_>) -> Result<Vec<Tensor>> {
        let plan = Plan::new(self.parsed(), subgraph).map_err(|list| refused(list, "are not supported"))?;
        let graph = self.parsed().subgraphs.get(subgraph).ok_or(Error::Internal)?;
        if inputs.len() != graph.inputs.len() {
            return Err(Error::message(format!("the model has {} inputs, but got {}", graph.inputs.len(), inputs.len())));
        }
        for (at, (&index, input)) in graph.inputs.iter().zip(inputs).enumerate() {
            let info = self.info(graph, index);
            let spec = spec(&info)?;
            if !spec.accepts(&input.tensor_type()) {
                return Err(Error::message(format!("input {at} must be {spec}, not {}", input.tensor_type())));
            }
        }
        Run::new(&plan, self, scope.handle(), observe).subgraph(subgraph, inputs.iter().map(|&input| input.clone()).collect())
    }
}

/// A subgraph as a function whose arguments and results have an order of their own.
struct Entry {
    subgraph: usize,
    /// For each input of the subgraph, the number of the argument.
    inputs: Vec<usize>,
    /// For each result, the number of the subgraph's output.
    outputs: Vec<usize>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("inputs", &self.inputs()).field("outputs", &self.outputs()).finish_non_exhaustive()
    }
}

fn info(graph: &Subgraph<'_>, index: usize) -> TensorInfo {
    let Some(tensor) = graph.tensors.get(index) else {
        return TensorInfo { name: String::new(), dtype: None, dims: Vec::new(), quantization: None };
    };
    let dims = match tensor.signature.is_empty() {
        true => tensor.dims.iter().map(|&dim| Some(dim)).collect(),
        false => tensor.signature.clone(),
    };
    let quantization = tensor.quantization.as_ref().map(affine);
    TensorInfo { name: tensor.name.into(), dtype: tensor.kind.dtype(), dims, quantization }
}

fn spec(info: &TensorInfo) -> Result<TensorSpec> {
    let dtype =
        info.dtype.ok_or_else(|| Error::message(format!("input {:?} has an element type that gradlet does not have", info.name)))?;
    let spec = TensorSpec::new(dtype, &info.dims);
    Ok(if info.name.is_empty() { spec } else { spec.named(&info.name) })
}

/// Returns the error that operators "are not supported", or something else that they are.
fn refused(unsupported: Vec<Unsupported>, what: &str) -> Error {
    let lines: Vec<String> = unsupported.iter().map(|one| format!("\n  {one}")).collect();
    Error::message(format!("{} operators of the model {what}:{}", unsupported.len(), lines.concat()))
}

/// Converts the scales of a tensor.
fn affine(quantization: &format::Quantization) -> AffineQuantization {
    let format::Quantization { scales, zero_points, axis } = quantization;
    let zero_points = zero_points.iter().map(|&zero_point| zero_point as i32).collect();
    AffineQuantization { axis: *axis as u32, scales: scales.clone(), zero_points }
}
