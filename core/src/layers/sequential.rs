//! Sequential: Keras's `Sequential`.

use super::{Layer, Module};
use crate::error::Result;
use crate::scope::Scope;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::variable::Variable;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Layers one after the other. Layers of the same kind are numbered: `dense`, `dense_1`, …
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
    layers: Vec<(String, Box<dyn Layer>)>,
}

impl Sequential {
    /// A model without layers.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// The model with `layer` at its end.
    pub fn with(mut self, layer: impl Layer + 'static) -> Sequential {
        let kind = layer.name();
        let name = match self.layers.iter().filter(|(_, other)| other.name() == kind).count() {
            0 => kind.into(),
            number => format!("{kind}_{number}"),
        };
        self.layers.push((name, Box::new(layer)));
        self
    }

    /// The layers with their names.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = (&str, &dyn Layer)> {
        self.layers.iter().map(|(name, layer)| (name.as_str(), &**layer))
    }
}

impl Module for Sequential {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        for (name, layer) in &self.layers {
            layer.visit_under(name, visit);
        }
    }
}

impl Layer for Sequential {
    fn name(&self) -> &str {
        "sequential"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let input = Tensor::full(&scope.device(), 0.0f32, input.dims())?;
        self.call(scope, &input).map(drop)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.layers
            .iter()
            .try_fold(x.clone(), |x, (name, layer)| layer.apply(scope, &x).map_err(|error| error.context(format!("layer {name:?}"))))
    }

    fn apply(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.call(scope, x)
    }
}
