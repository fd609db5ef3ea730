//! Export of a model's signatures as one artifact for a firmware.

use crate::train::models::ModelSpec;
use crate::train::training;
use glob::Pattern;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Layer, Module, Sequential};
use gradlet_core::optimizers::{Optimizer, Sgd};
use gradlet_core::{Artifact, DType, Error, Function, Result, Scope, Shape, Tensor, TensorType, Variable};
use std::sync::Arc;

/// The default signatures to export.
pub const SIGNATURES: [&str; 4] = ["infer", "train", "train_head", "set_learning_rate"];

/// All signatures that can be exported.
pub const ALL_SIGNATURES: [&str; 6] = ["infer", "train", "train_head", "set_learning_rate", "save", "restore"];

/// Options of [`artifact`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of samples per call of each signature.
    pub batch: u32,
    /// Learning rate of the training signatures, which use SGD.
    pub learning_rate: f32,
    /// Names of the signatures to export, from [`ALL_SIGNATURES`].
    pub signatures: Vec<String>,
    /// Layers that the signature `train` trains: names, patterns such as `conv2d*`, or `last:2` for the last two layers with
    /// variables. All others are [frozen](Module::set_trainable), so their variables stay in flash. Without a selection, `train`
    /// trains what the model's own [`trainable_variables`](Module::trainable_variables) are.
    pub train: Vec<String>,
    /// True if the training signatures refuse data that is not finite: see [`Artifact::finite_steps`].
    pub finite_steps: bool,
    /// True if a session keeps a second copy of the variables: see [`Artifact::keep_copy`].
    pub keep_copy: bool,
}

impl Default for Options {
    fn default() -> Options {
        let signatures = SIGNATURES.map(String::from).into();
        Options { batch: 1, learning_rate: 0.01, signatures, train: Vec::new(), finite_steps: true, keep_copy: false }
    }
}

/// Exports `model`, which was built from `spec`. The same model, values and options produce the same bytes.
///
/// - `infer`: `x` f32 `[batch, input…]` → `logits` f32 `[batch, classes]`
/// - `train`: `x`, `y` i32 `[batch]` → `loss` f32 `[]`; an SGD step on the mean softmax cross-entropy updates the
///   weights of the layers that [`Options::train`] selects
/// - `train_head`: the same, but only the weights of the last layer are updated
/// - `set_learning_rate`: `value` f32 `[]`; sets the learning rate of the training signatures ([`Artifact::setter`])
/// - `save`, `restore`: the weights, as outputs and as inputs; [`Artifact::checkpoint_signatures`] adds both together
///
/// Fails if a signature is not one of these, if [`Options::train`] selects no layer, or if the model cannot be traced for its input.
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
    let flags = Flags::of(model);
    let input = Shape::new(&[&[options.batch], &spec.input()[..]].concat())?;
    let x = Tensor::symbolic(TensorType::new(DType::F32, input));
    let y = Tensor::symbolic(TensorType::new(DType::I32, Shape::new(&[options.batch])?));
    let (sgd, head) = (Arc::new(Sgd::new(options.learning_rate)), ["last:1".to_string()]);
    sgd.build(scope, &**model)?;
    let (mut artifact, mut checkpoint, mut trained) = (Artifact::new(), false, Vec::new());
    artifact.finite_steps(options.finite_steps).keep_copy(options.keep_copy);
    for name in &options.signatures {
        match name.as_str() {
            "infer" => {
                let model = model.clone();
                let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x));
                artifact.signature(name, &*infer.concrete(scope, &x)?, &["x"], &["logits"])?.doc(name, "The logits of a batch.")?;
            }
            "train" | "train_head" => {
                let (selection, doc) = match (name.as_str(), &options.train[..]) {
                    ("train", []) => (None, "A step that changes all weights.".into()),
                    ("train", layers) => (Some(layers), format!("A step that changes the weights of {}.", layers.join(", "))),
                    _ => (Some(&head[..]), "A step that changes the last layer's weights.".into()),
                };
                flags.restore();
                selection.map_or(Ok(()), |layers| train_only(model, layers))?;
                trained.extend(model.trainable_variables());
                let step = training::step(model, sgd.clone() as Arc<dyn Optimizer>, model.trainable_variables());
                let concrete = step.concrete(scope, &(x.clone(), y.clone()))?;
                artifact.signature(name, &concrete, &["x", "y"], &["loss"])?.doc(name, &doc)?;
            }
            "set_learning_rate" => {
                let named = sgd.named_variables().into_iter().find(|(name, _)| name == "learning_rate");
                let (_, rate) = named.ok_or(Error::message("the optimizer has no learning rate"))?;
                artifact.setter(scope, "learning_rate", &rate)?.doc(name, "Sets the learning rate of the training steps.")?;
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
    // In the artifact, a variable is trainable if a signature trains it.
    if !trained.is_empty() {
        model.variables().iter().for_each(|variable| variable.set_trainable(trained.contains(variable)));
    }
    artifact.variables(model.named_variables());
    artifact.variables(sgd.named_variables().into_iter().map(|(name, variable)| (format!("sgd/{name}"), variable)).collect());
    artifact.metadata("producer", concat!("gradlet ", env!("CARGO_PKG_VERSION")));
    artifact.metadata("model", &spec.to_string());
    artifact.to_bytes()
}

/// The variables of a model, each with its `trainable` flag. On drop, the variables have these flags again.
struct Flags(Vec<(Variable, bool)>);

impl Flags {
    fn of(model: &Sequential) -> Flags {
        Flags(model.variables().into_iter().map(|variable| (variable.clone(), variable.trainable())).collect())
    }

    fn restore(&self) {
        self.0.iter().for_each(|(variable, trainable)| variable.set_trainable(*trainable));
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Freezes all layers of the model but the selected ones: see [`Options::train`].
fn train_only(model: &Sequential, selection: &[String]) -> Result<()> {
    let layers: Vec<(&str, &dyn Layer)> = model.layers().filter(|(_, layer)| !layer.variables().is_empty()).collect();
    model.set_trainable(false);
    for selected in selection {
        let chosen = match selected.strip_prefix("last:") {
            Some(count) => {
                let count = count.parse().ok().filter(|count| (1..=layers.len()).contains(count));
                let wrong = || Error::message(format!("{selected:?} selects no layers: the number must be from 1 to {}", layers.len()));
                layers[layers.len() - count.ok_or_else(wrong)?..].to_vec()
            }
            None => {
                let pattern = Pattern::new(selected);
                let pattern = pattern.map_err(|error| Error::message(format!("{selected:?} is not a pattern of names: {error}")))?;
                layers.iter().copied().filter(|(name, _)| pattern.matches(name)).collect()
            }
        };
        if chosen.is_empty() {
            let names: Vec<&str> = layers.iter().map(|(name, _)| *name).collect();
            let text = format!("no layer with variables has the name {selected:?}; the model has {}", names.join(", "));
            return Err(Error::message(text));
        }
        chosen.iter().for_each(|(_, layer)| layer.set_trainable(true));
    }
    Ok(())
}
