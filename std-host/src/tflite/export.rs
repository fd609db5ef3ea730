//! Export of a model as an artifact.

use super::{Model, Signature, TensorInfo};
use gradlet_core::device::AlignedBytes;
use gradlet_core::{Artifact, Eager, Error, Function, Result, Shape, Tensor, TensorType};

/// Name of the signature of the model's main subgraph.
pub(super) const MAIN: &str = "infer";

/// A function of a model.
pub(super) type Call = Function<Vec<Tensor>, Vec<Tensor>>;

impl Model {
    /// Exports the model as an artifact, for firmware and for [`load`](crate::artifact::load). The main subgraph is the signature `infer`,
    /// with the names of the model's signature for it, or those of its tensors. Other signatures of the model keep their names. Each
    /// dimension that a call chooses becomes `batch`.
    ///
    /// ```no_run
    /// let model = gradlet::tflite::Model::open("kws.tflite")?;
    /// gradlet::io::write_whole("kws.grdl".as_ref(), &model.export(1)?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Variables have the values that calls have left in them, except those of a [streaming](Model::streaming) model, which begins again.
    ///
    /// Fails if an operator is not supported; the error lists all of them.
    pub fn export(&self, batch: u32) -> Result<AlignedBytes> {
        match self.stream {
            Some(_) => self.begun_again().artifact(batch)?.to_bytes(),
            None => self.artifact(batch)?.to_bytes(),
        }
    }

    /// Returns the model with packed filters in its artifacts, or with plain ones. They are packed by default. See
    /// [`Artifact::pack_filters`].
    pub fn pack_filters(&self, pack: bool) -> Model {
        Model { packs: pack, ..self.clone() }
    }

    /// Returns the signatures of the model.
    pub(super) fn artifact(&self, batch: u32) -> Result<Artifact> {
        let scope = Eager::new(&self.device());
        let mut artifact = Artifact::new();
        artifact.pack_filters(self.packs);
        let mut add = |name: &str, function: &Call, signature: &Signature| {
            let function = function.concrete(&scope, &arguments(&signature.inputs, batch)?)?;
            artifact.signature(name, &function, &names(&signature.inputs), &names(&signature.outputs)).map(drop)
        };
        let (function, main) = self.main_function()?;
        add(MAIN, &function, &main)?;
        for signature in self.signatures().iter().filter(|signature| !self.is_main(&signature.name)) {
            add(&signature.name, &self.signature_function(&signature.name)?, signature)?;
        }
        if let Some(stream) = &self.stream {
            artifact
                .doc(MAIN, &format!("A step for each frame: the results for the window of {} frames that ends with it.", stream.frames))?;
        }
        self.describe(&mut artifact);
        Ok(artifact)
    }

    /// Notes the origin of an artifact.
    pub(super) fn describe(&self, artifact: &mut Artifact) {
        artifact.metadata("producer", concat!("gradlet ", env!("CARGO_PKG_VERSION")));
        if !self.description().is_empty() {
            artifact.metadata("model", self.description());
        }
    }

    /// Returns the main subgraph as a function, and its signature.
    pub(super) fn main_function(&self) -> Result<(Call, Signature)> {
        match self.signatures().into_iter().find(|signature| self.is_main(&signature.name)) {
            Some(main) => Ok((self.signature_function(&main.name)?, main)),
            None => Ok((self.function()?, Signature { name: MAIN.into(), inputs: self.inputs(), outputs: self.outputs() })),
        }
    }

    /// True if a signature is one of the main subgraph.
    fn is_main(&self, signature: &str) -> bool {
        self.parsed().signatures.iter().any(|own| own.key == signature && own.subgraph == 0)
    }
}

/// Returns arguments without values for `inputs`. Each dimension that a call chooses is `batch`.
pub(super) fn arguments(inputs: &[TensorInfo], batch: u32) -> Result<Vec<Tensor>> {
    let symbolic = |info: &TensorInfo| {
        let dims: Vec<u32> = info.dims.iter().map(|dim| dim.unwrap_or(batch)).collect();
        let dtype = info.dtype.ok_or_else(|| Error::message(format!("input {:?} has a type that gradlet does not have", info.name)))?;
        Ok(Tensor::symbolic(TensorType::new(dtype, Shape::new(&dims)?)))
    };
    inputs.iter().map(symbolic).collect()
}

/// Returns the names of inputs or outputs.
pub(super) fn names(list: &[TensorInfo]) -> Vec<&str> {
    list.iter().map(|info| info.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::describe::Description;
    use crate::artifact::inspect::{costs, multiply_accumulates};

    #[test]
    fn an_imported_model_costs_what_it_has() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/digits_cnn_int8.tflite");
        let bytes = Model::open(path).unwrap().export(1).unwrap();
        let description = Description::read(&bytes).unwrap();
        let walk = description.signatures[0].walk();
        let of = |op: &str| walk.iter().filter(|(_, one)| one.op == op).map(|(_, one)| multiply_accumulates(one)).collect::<Vec<_>>();
        // 14 · 14 pixels of 8 channels with 3 · 3 taps, and the dense layer of 10 classes.
        assert_eq!(of("packed_conv2d")[0], 14 * 14 * 8 * 9);
        assert!(of("packed_dense")[0] % 10 == 0 && of("quantized_softmax") == [0]);
        let text = costs(&description, &[]);
        let total: u64 = walk.iter().map(|(_, one)| multiply_accumulates(one)).sum();
        let digits = text.replace(',', "");
        assert!(digits.contains(&total.to_string()), "{text}");
        assert!(digits.contains(&format!("arena {} B", description.signatures[0].arena_bytes)), "{text}");

        let plain = Description::read(&Model::open(path).unwrap().pack_filters(false).export(1).unwrap()).unwrap();
        assert_eq!(plain.signatures[0].walk().iter().map(|(_, one)| multiply_accumulates(one)).sum::<u64>(), total);
        assert!(plain.kernels.iter().all(|(op, _)| !op.starts_with("packed")));
    }
}
