//! Export of a model's signatures as one artifact for a firmware.

use crate::train::models::ModelSpec;
use crate::train::training;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Layer, Module, Sequential};
use gradlet_core::optimizers::{Optimizer, Sgd};
use gradlet_core::{Artifact, DType, Error, Function, Result, Scope, Shape, Tensor, TensorType};
use std::sync::Arc;

/// The default signatures to export.
pub const SIGNATURES: [&str; 3] = ["infer", "train", "train_head"];

/// All signatures that can be exported.
pub const ALL_SIGNATURES: [&str; 5] = ["infer", "train", "train_head", "save", "restore"];

/// Options of [`artifact`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of samples per call of each signature.
    pub batch: u32,
    /// Learning rate of the training signatures, which use SGD.
    pub learning_rate: f32,
    /// Names of the signatures to export, from [`ALL_SIGNATURES`].
    pub signatures: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { batch: 1, learning_rate: 0.01, signatures: SIGNATURES.map(String::from).into() }
    }
}

/// Exports `model`, which was built from `spec`. The same model, values and options produce the same bytes.
///
/// - `infer`: `x` f32 `[batch, input…]` → `logits` f32 `[batch, classes]`
/// - `train`: `x`, `y` i32 `[batch]` → `loss` f32 `[]`; an SGD step on the mean softmax cross-entropy updates all weights
/// - `train_head`: the same, but only the weights of the last layer are updated
/// - `save`, `restore`: the weights, as outputs and as inputs; [`Artifact::checkpoint_signatures`] adds both together
///
/// Fails if a signature is not one of these, or if the model cannot be traced for its input.
///
/// ```
/// use gradlet::Eager;
/// use gradlet::applications::ModelSpec;
/// use gradlet::artifact::export;
/// use gradlet::artifact::describe::Description;
/// use std::sync::Arc;
/// let scope = Eager::new(&gradlet::cpu());
/// let spec: ModelSpec = "mlp:4-3-2".parse()?;
/// let model = Arc::new(spec.build(&scope)?);
/// let bytes = export::artifact(&scope, &model, &spec, &export::Options::default())?;
/// let described = Description::read(&bytes)?;
/// assert_eq!(described.signatures[1].name, "train");
/// assert_eq!(described.signatures[1].inputs[0].1.tensor_type.to_string(), "f32[1,4]");
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn artifact(scope: &dyn Scope, model: &Arc<Sequential>, spec: &ModelSpec, options: &Options) -> Result<AlignedBytes> {
    let input = Shape::new(&[&[options.batch], &spec.input()[..]].concat())?;
    let x = Tensor::zeros(&scope.device(), TensorType::new(DType::F32, input))?;
    let y = Tensor::full(&scope.device(), 0i32, &[options.batch])?;
    let sgd = Arc::new(Sgd::new(options.learning_rate));
    sgd.build(scope, &**model)?;
    let (mut artifact, mut checkpoint) = (Artifact::new(), false);
    for name in &options.signatures {
        match name.as_str() {
            "infer" => {
                let model = model.clone();
                let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x));
                artifact.signature(name, &*infer.concrete(scope, &x)?, &["x"], &["logits"])?.doc(name, "The logits of a batch.")?;
            }
            "train" | "train_head" => {
                let variables = if name == "train" { model.trainable_variables() } else { head(model) };
                let step = training::step(model, sgd.clone() as Arc<dyn Optimizer>, variables);
                let doc =
                    if name == "train" { "A step that changes all weights." } else { "A step that changes the last layer's weights." };
                let concrete = step.concrete(scope, &(x.clone(), y.clone()))?;
                artifact.signature(name, &concrete, &["x", "y"], &["loss"])?.doc(name, doc)?;
            }
            "save" | "restore" if checkpoint => (),
            "save" | "restore" => {
                artifact.checkpoint_signatures(scope, &model.named_variables())?;
                checkpoint = true;
            }
            _ => {
                return Err(Error::message(format!(
                    "there is no signature {name:?} to export: it must be one of {}",
                    ALL_SIGNATURES.join(", ")
                )));
            }
        }
    }
    artifact.variables(model.named_variables());
    artifact.variables(sgd.named_variables().into_iter().map(|(name, variable)| (format!("sgd/{name}"), variable)).collect());
    artifact.metadata("producer", concat!("gradlet ", env!("CARGO_PKG_VERSION")));
    artifact.metadata("model", &spec.to_string());
    artifact.to_bytes()
}

/// Returns the trainable variables of the last layer that has any.
fn head(model: &Sequential) -> Vec<gradlet_core::Variable> {
    let layers = model.layers().rev().map(|(_, layer)| layer.trainable_variables());
    layers.into_iter().find(|variables| !variables.is_empty()).unwrap_or_default()
}
