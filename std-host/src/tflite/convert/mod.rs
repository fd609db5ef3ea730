//! The converter: from a function to a file of TensorFlow Lite.
//!
//! | file | contents |
//! |---|---|
//! | `emitter.rs` | a subgraph under construction |
//! | `scales.rs` | the scales of quantized values |
//! | `table.rs` | the operator of each op |
//! | `activations.rs` | ops that are one operator together, and activations that become part of the operator before them |
//! | `arrays.rs`, `windows.rs`, `quantized.rs`, `control.rs` | operators with options, operands or subgraphs of their own |

mod activations;
mod arrays;
mod control;
mod emitter;
mod quantized;
mod scales;
mod table;
mod windows;

use crate::formats::tflite::write::{Graph, Named, write};
use emitter::Emitter;
use gradlet_core::function::ConcreteFunction;
use gradlet_core::{Error, Result};

/// Converter of functions to a file of TensorFlow Lite.
///
/// Each signature is a subgraph of the file. Interpreters of TensorFlow Lite, LiteRT and TensorFlow Lite Micro run the first one if the
/// caller names none. Variables are constants of the file, with the values that they have now. Signatures share equal constants.
///
/// An int8 function, from [`Calibration::quantize`](crate::quantize::Calibration::quantize) or from an imported model, has the same
/// bits in TensorFlow Lite's reference kernels as in gradlet. A float function has the same results within rounding errors. For NaN,
/// maxima, sorts and casts can differ. So can casts of floats outside the range of the integers.
///
/// ```
/// use gradlet::layers::{Activation, Dense, Layer, Sequential};
/// use gradlet::{Eager, Function, Result, Scope, Tensor, tflite};
/// use std::sync::Arc;
/// let scope = Eager::with_seed(&gradlet::cpu(), 1);
/// let model = Arc::new(Sequential::new().with(Dense::new(16).activation(Activation::Relu)).with(Dense::new(4)));
/// let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.apply(scope, &x));
/// let x = Tensor::full(&scope.device(), 0.5f32, &[1, 8])?;
/// let mut converter = tflite::Converter::new();
/// converter.signature("serving_default", &*infer.concrete(&scope, &x)?, &["x"], &["logits"])?;
/// let bytes = converter.to_bytes()?;
///
/// let model = tflite::Model::from_bytes(&*bytes)?;
/// let outputs = model.call_signature(&scope, "serving_default", &[("x", &x)])?;
/// assert_eq!(outputs[0].0, "logits");
/// # Ok::<(), gradlet::Error>(())
/// ```
#[doc(alias = "tf.lite.TFLiteConverter")]
#[derive(Clone, Default)]
pub struct Converter {
    graphs: Vec<Graph>,
    signatures: Vec<Named>,
}

impl Converter {
    /// Creates a converter without signatures.
    pub fn new() -> Converter {
        Converter::default()
    }

    /// Adds a function as the signature `name`, with names for its arguments and results. It can be on any device.
    ///
    /// Fails if an op cannot be converted; the error lists all such ops with the reasons. Fails if the function changes a
    /// variable, if the numbers of names are not those of the arguments and results, and if a name is used twice.
    pub fn signature(&mut self, name: &str, function: &ConcreteFunction, inputs: &[&str], outputs: &[&str]) -> Result<&mut Converter> {
        let wrong = |text: String| Error::message(format!("signature {name:?}: {text}"));
        if self.signatures.iter().any(|signature| signature.key == name) {
            return Err(wrong("there is one already".into()));
        }
        for (what, names, count) in [("inputs", inputs, function.inputs().len()), ("outputs", outputs, function.outputs().len())] {
            if names.len() != count {
                return Err(wrong(format!("{} has {count} {what}, but {} names were given", function.name(), names.len())));
            }
            if let Some((_, twice)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
                return Err(wrong(format!("two {what} have the name {twice:?}")));
            }
        }
        let frozen = function.frozen()?;
        let emitter = Emitter::new(&frozen, self.graphs.len(), name, inputs).map_err(wrong)?;
        let graphs = emitter.run().map_err(|refused| {
            let lines: Vec<String> = refused.iter().map(|line| format!("\n  {line}")).collect();
            wrong(format!("{} cannot be converted to TensorFlow Lite:{}", function.name(), lines.concat()))
        })?;
        let graph = graphs.first().ok_or(Error::Internal)?;
        let named = |names: &[&str], tensors: &[i32]| names.iter().map(|name| name.to_string()).zip(tensors.iter().copied()).collect();
        let (inputs, outputs) = (named(inputs, &graph.inputs), named(outputs, &graph.outputs));
        self.signatures.push(Named { key: name.into(), subgraph: self.graphs.len() as u32, inputs, outputs });
        self.graphs.extend(graphs);
        Ok(self)
    }

    /// Returns the names of the operators of the file, in alphabetical order. A program with TensorFlow Lite Micro adds them to its
    /// resolver.
    pub fn operators(&self) -> Vec<&'static str> {
        let names = self.graphs.iter().flat_map(|graph| &graph.operators).map(|operator| operator.name);
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the bytes of the file.
    ///
    /// Fails if there is no signature, and with [`Error::TooLarge`] if the constants have more than 1 GiB together.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if self.graphs.is_empty() {
            return Err(Error::message("the converter has no signature"));
        }
        write(&self.graphs, &self.signatures).ok_or(Error::TooLarge)
    }
}
