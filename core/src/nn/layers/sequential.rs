//! Models whose layers run one after another: Keras's `Sequential`.

use super::{Layer, Module, Visitor};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::Shared;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::trace::tracing::dry_run;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A sequence of layers, each of which takes the output of the one before. Layers of the same kind are numbered: `dense`,
/// `dense_1`, …
///
/// ```
/// use gradlet_core::layers::{Activation, Dense, Flatten, Layer, Module, Sequential};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let model = Sequential::new().with(Flatten).with(Dense::new(32).activation(Activation::Relu)).with(Dense::new(10));
/// let y = model.call(&scope, &Tensor::full(&scope.device(), 0.0f32, &[1, 8, 8])?)?;
/// assert_eq!(y.dims(), [1, 10]);
/// let names: Vec<String> = model.named_variables().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<(String, Shared<dyn Layer>)>,
}

impl Sequential {
    /// Creates a model without layers.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a layer.
    pub fn with(self, layer: impl Layer + 'static) -> Sequential {
        let name = String::from(layer.name());
        self.with_named(&name, layer)
    }

    /// Appends a layer under this name. If another layer already has the name, a number is appended to the name of the new layer.
    pub fn with_named(mut self, name: &str, layer: impl Layer + 'static) -> Sequential {
        let name = unused(name, |name| self.layer(name).is_none());
        self.layers.push((name, Shared::new(layer)));
        self
    }

    /// Returns the layer with this name, or `None` if the model has no such layer.
    pub fn layer(&self, name: &str) -> Option<&dyn Layer> {
        self.layers().find(|(known, _)| *known == name).map(|(_, layer)| layer)
    }

    /// Returns the layers with their names.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = (&str, &dyn Layer)> {
        self.layers.iter().map(|(name, layer)| (name.as_str(), &**layer))
    }

    /// Divides the model after the layer `name`. The first part ends with this layer, and the second part takes its output. Both
    /// share the layers with this model, so training a part trains the model.
    ///
    /// To train only the last layers, compute the output of the first part once for each sample, and train the second part on it.
    ///
    /// Fails if there is no such layer, or if it is the last one.
    ///
    /// ```
    /// use gradlet_core::layers::{Dense, Layer, Sequential};
    /// use gradlet_core::{Eager, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let model = Sequential::new().with(Dense::new(4)).with(Dense::new(2));
    /// let (features, head) = model.cut("dense")?;
    /// let x = Tensor::full(&scope.device(), 1.0f32, &[1, 3])?;
    /// let y = head.call(&scope, &features.call(&scope, &x)?)?;
    /// assert_eq!(y.to_vec::<f32>()?, model.call(&scope, &x)?.to_vec::<f32>()?);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn cut(&self, name: &str) -> Result<(Sequential, Sequential)> {
        let at = cut_at(name, self.layers.iter().map(|(name, _)| name.as_str()))?;
        let (features, head) = self.layers.split_at(at + 1);
        Ok((Sequential { layers: features.to_vec() }, Sequential { layers: head.to_vec() }))
    }
}

/// Returns the position of the layer `name` among the layers with these names. Fails if there is none, or if it is the last one.
pub(super) fn cut_at<'n>(name: &str, names: impl DoubleEndedIterator<Item = &'n str> + Clone) -> Result<usize> {
    let unknown = || Error::message(format!("there is no layer {name:?}; the model has {}", names.clone().collect::<Vec<_>>().join(", ")));
    let at = names.clone().position(|known| known == name).ok_or_else(unknown)?;
    if names.clone().next_back() == Some(name) {
        return Err(Error::message(format!("layer {name:?} is the last one, so a cut after it leaves nothing for the second part")));
    }
    Ok(at)
}

/// Returns the first of `name`, `name_1`, `name_2`, … for which `free` returns true.
pub(super) fn unused(name: &str, free: impl Fn(&str) -> bool) -> String {
    let numbered = (1..).map(|number| format!("{name}_{number}"));
    core::iter::once(name.into()).chain(numbered).find(|name| free(name)).unwrap_or_default()
}

/// Returns an iterator over a single module without variables. It takes the place of Keras's input layer in checkpoints.
pub(super) fn input<'a>() -> impl Iterator<Item = &'a dyn Module> {
    core::iter::once(&() as &dyn Module)
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut dyn Visitor) {
        if visitor.tracks() {
            // Keras's `Sequential` contains a functional model whose first operation is the input.
            let operations: Vec<&dyn Module> = input().chain(self.layers().map(|(_, layer)| layer as &dyn Module)).collect();
            visitor.module("_functional", &BTreeMap::from([(String::from("_operations"), operations)]));
        } else {
            self.layers().for_each(|(name, layer)| visitor.module(name, &layer));
        }
    }
}

impl Layer for Sequential {
    fn name(&self) -> &str {
        "sequential"
    }

    /// Returns false: the layers cast their inputs.
    fn autocast(&self) -> bool {
        false
    }

    /// Builds every layer, for f32 inputs.
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        dry_run(scope, TensorType::new(DType::F32, *input), |scope, x| self.call(scope, x)).map(drop)
    }

    /// Does nothing: the layers are built when they are applied.
    fn ensure_built(&self, _: &dyn Scope, _: &Tensor) -> Result<()> {
        Ok(())
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, (name, layer)| layer.apply_as(name, scope, &x))
    }
}
