//! Post-training quantization of a float model.

use super::export::{MAIN, arguments, names};
use super::node::Node;
use super::table::is_quantized;
use super::{Model, Unsupported, refused};
use gradlet_core::device::AlignedBytes;
use gradlet_core::quantize::{Calibration, Options};
use gradlet_core::{Artifact, Eager, Result};

impl Model {
    /// Begins the post-training quantization of a float model. Each dimension that a call chooses becomes `batch`. The calibration observes
    /// samples with the types and the order of the inputs of [`Model::export_quantized`]'s signature.
    ///
    /// ```
    /// use gradlet::quantize::Options;
    /// use gradlet::{DType, Tensor, tflite};
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/mlp_float32.tflite");
    /// let model = tflite::Model::open(file)?;
    /// let mut calibration = model.calibration(1)?;
    /// for level in 0..10 {
    ///     calibration.observe(&[Tensor::full(&gradlet::cpu(), level as f32 / 10.0, &[1, 40])?])?;
    /// }
    /// let int8 = Options { input: DType::I8, output: DType::I8, ..Options::default() };
    /// let artifact = model.export_quantized(&calibration, &int8)?;
    /// # assert!(!artifact.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails if an operator is not supported or has quantized tensors; the error lists all of them. Fails too for a model that changes
    /// variables.
    pub fn calibration(&self, batch: u32) -> Result<Calibration> {
        let (function, main) = self.main_function()?;
        let quantized = self.quantized_operators();
        if !quantized.is_empty() {
            return Err(refused(quantized, "cannot be quantized: take the float model, from which this one was quantized"));
        }
        Calibration::new(&*function.concrete(&Eager::new(&self.device()), &arguments(&main.inputs, batch)?)?)
    }

    /// Exports the quantized model as an artifact with the signature `infer`, as [`Model::export`] does with the model of the file.
    ///
    /// Fails as [`Calibration::quantize`] does.
    pub fn export_quantized(&self, calibration: &Calibration, options: &Options) -> Result<AlignedBytes> {
        let (_, main) = self.main_function()?;
        let function = calibration.quantize(&Eager::new(&self.device()), options)?;
        let mut artifact = Artifact::new();
        artifact.pack_filters(self.packs);
        artifact.signature(MAIN, &function, &names(&main.inputs), &names(&main.outputs))?;
        self.describe(&mut artifact);
        artifact.to_bytes()
    }

    /// Returns the operators that have quantized tensors.
    pub(super) fn quantized_operators(&self) -> Vec<Unsupported> {
        let model = self.parsed();
        let graphs = model.subgraphs.iter().enumerate();
        let nodes = graphs.flat_map(|(subgraph, graph)| {
            let node = move |(at, operator)| (at, Node { model, graph, subgraph, operator });
            graph.operators.iter().enumerate().map(node)
        });
        let quantized = |(at, node): (usize, Node<'_>)| {
            let tensor = node.tensors().find(|tensor| is_quantized(tensor))?;
            Some(node.refused(at, format!("its tensor {:?} is {} with a scale", tensor.name, tensor.kind)))
        };
        nodes.filter_map(quantized).collect()
    }
}
