//! The command `gradlet convert`.

use crate::print;
use crate::samples::{self, InferenceType};
use anyhow::{Context, Result, ensure};
use clap::Args;
use gradlet::function::ConcreteFunction;
use gradlet::io::write_whole;
use gradlet::quantize::Calibration;
use gradlet::tflite::Converter;
use gradlet::{Eager, portable_cpu};
use std::path::PathBuf;

/// Convert an artifact to a model of TensorFlow Lite
///
/// Writes a .tflite file with a signature for each signature of the artifact that changes no variable. The values of variables become
/// constants. Interpreters of TensorFlow Lite, LiteRT and TensorFlow Lite Micro run the file. With --quantize, a float signature becomes
/// int8, with the same bits in the reference kernels of TensorFlow Lite. An artifact that is int8 already is refused: it lacks the scales
/// between its ops. If an op cannot be converted, nothing is written, and the error lists all such ops of the signature.
#[derive(Args)]
#[command(after_help = "Examples:\n  gradlet convert cnn.grdl -o cnn.tflite\n  \
                        gradlet convert cnn.grdl -o cnn.tflite --signature infer\n  \
                        gradlet convert cnn.grdl -o int8.tflite --signature infer --quantize samples.npy\n\n\
                        gradlet import converts a .tflite file to an artifact.")]
pub struct Convert {
    /// The artifact, a .grdl file
    file: PathBuf,
    /// File for the model, whose name ends with .tflite
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Only these signatures, of which the first one becomes the main subgraph
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    signature: Vec<String>,
    /// Quantize the signature to int8, with the ranges that its tensors have for these samples: a .npy file for each input, in their order,
    /// whose first axis counts the samples
    ///
    /// About 100 samples of real data are usual. Ops without an int8 form stay in float, and are listed.
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    quantize: Vec<PathBuf>,
    /// Element type of the inputs and outputs of a signature that --quantize quantizes
    #[arg(long, value_enum, default_value_t, value_name = "TYPE", requires = "quantize")]
    inference_type: InferenceType,
}

impl Convert {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let written = self.convert(quiet).with_context(|| format!("cannot convert {}", self.file.display()))?;
        if quiet { Ok(()) } else { print(&written) }
    }

    /// Writes the file, and returns a line for each of its signatures.
    fn convert(&self, quiet: bool) -> Result<String> {
        let loaded = gradlet::load(&self.file)?.on(&portable_cpu())?;
        let changes = |function: &ConcreteFunction| function.graph().captures.iter().any(|capture| capture.assigned.is_some());
        let (mut signatures, mut skipped) = (Vec::new(), Vec::new());
        for name in &self.signature {
            signatures.push(loaded.signature(name)?);
        }
        if signatures.is_empty() {
            for signature in loaded.signatures() {
                match changes(signature.concrete()?) {
                    true => skipped.push(signature.name()),
                    false => signatures.push(signature),
                }
            }
        }
        ensure!(
            !signatures.is_empty(),
            "all of its signatures change variables, as a training step does: a .tflite file needs one that changes none"
        );
        let count = signatures.len();
        ensure!(
            self.quantize.is_empty() || count == 1,
            "--quantize takes one signature, but {count} would be converted: choose one with --signature"
        );
        let (mut converter, mut lines) = (Converter::new(), String::new());
        for signature in signatures {
            let inputs: Vec<&str> = signature.inputs().map(|(name, _)| name).collect();
            let outputs: Vec<&str> = signature.outputs().map(|(name, _)| name).collect();
            let mut add = |function: &ConcreteFunction| {
                let typed = |names: &[&str], types: Vec<gradlet::TensorType>| {
                    names.iter().zip(types).map(|(name, kind)| format!("{name}: {kind}")).collect::<Vec<_>>().join(", ")
                };
                let (takes, gives) = (typed(&inputs, function.inputs()), typed(&outputs, function.outputs()));
                lines += &format!("  {}({takes}) → {gives}\n", signature.name());
                converter.signature(signature.name(), function, &inputs, &outputs).map(drop)
            };
            if self.quantize.is_empty() {
                add(signature.concrete()?)?;
            } else {
                let mut calibration = Calibration::new(signature.concrete()?)?;
                samples::observe(&mut calibration, &self.quantize, &self.file, quiet)?;
                add(&*calibration.quantize(&Eager::new(&portable_cpu()), &self.inference_type.options())?)?;
            }
        }
        let bytes = converter.to_bytes()?;
        write_whole(&self.output, &bytes)?;
        if !skipped.is_empty() {
            lines += &format!("  without {}, which change variables\n", skipped.join(", "));
        }
        lines += &format!("  operators: {}\n", converter.operators().join(", "));
        Ok(format!("{}: {} B\n{lines}", self.output.display(), bytes.len()))
    }
}
