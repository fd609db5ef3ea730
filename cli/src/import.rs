//! The command `gradlet import`.

use crate::firmware::{Cpu, c_file, write_c};
use crate::measure::Measure;
use crate::print;
use crate::samples::{self, InferenceType};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use gradlet::artifact::describe::Description;
use gradlet::artifact::inspect;
use gradlet::device::AlignedBytes;
use gradlet::io::write_whole;
use gradlet::tflite::{self, Model};
use gradlet::{Eager, portable_cpu};
use std::path::PathBuf;

/// Import a model of TensorFlow Lite as an artifact that a firmware can run
///
/// Its int8 and int16 operators keep the bits of TensorFlow Lite's reference kernels. With --rounding, its dense layers can have those of
/// TensorFlow Lite Micro. With --quantize, a float model becomes an int8 model. The main subgraph becomes the signature `infer`. A model
/// that cannot be imported is refused, with a list of all operators that stand in the way.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("for a processor").args(["measure", "rust"]).multiple(true)))]
#[command(after_help = "Examples:\n  gradlet import kws.tflite -o kws.grdl --rust model.rs\n  \
                        gradlet import person.tflite -o person.grdl --svg arena.svg\n  \
                        gradlet import wake_word.tflite -o wake_word.grdl --stream 1\n  \
                        gradlet import kws.tflite -o kws.grdl --measure --cpu cortex-m55\n  \
                        gradlet import ad01.tflite -o ad01.grdl --rounding tflm\n  \
                        gradlet import float.tflite -o int8.grdl --quantize samples.npy\n  \
                        gradlet import digits.tflite -o digits.grdl --train --learning-rate 0.05")]
pub struct Import {
    /// The model, a .tflite file
    file: PathBuf,
    /// File for the artifact
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Size of the dimensions that the model leaves open
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Import a model of a sliding window as a step for each frame: `infer` takes one frame along this axis of the input, counted from 0,
    /// and returns the result for the window that ends with it
    ///
    /// Variables keep the columns of each layer that the next frames need. They begin as in a window of zeros, and a reset of the session
    /// begins again. Convolutions and pooling must have stride 1 and no padding along the axis. The other open dimensions become 1.
    #[arg(long, value_name = "AXIS", conflicts_with = "batch")]
    stream: Option<usize>,
    /// Import a float classifier so that a device can train it further: its weights become variables, and the signatures `train` (x and the
    /// classes y → loss) and `set_learning_rate` are added
    ///
    /// `train` is a step of SGD on the mean softmax cross-entropy. A softmax at the end of the model is part of the loss there. `infer`
    /// keeps it. A quantized model is refused.
    #[arg(long, conflicts_with = "stream")]
    train: bool,
    /// Learning rate of the signature `train`
    #[arg(long, alias = "rate", default_value_t = 0.01, value_name = "RATE", requires = "train")]
    learning_rate: f32,
    /// Quantize a float model to int8, with the ranges that its tensors have for these samples: a .npy file for each input, in their order,
    /// whose first axis counts the samples
    ///
    /// About 100 samples of real data are usual. Operators without an int8 form stay in float, and are listed.
    #[arg(long, value_name = "FILES", value_delimiter = ',', conflicts_with_all = ["stream", "train", "rounding"])]
    quantize: Vec<PathBuf>,
    /// Element type of the inputs and outputs of a model that --quantize quantizes
    #[arg(long, value_enum, default_value_t, value_name = "TYPE", requires = "quantize")]
    inference_type: InferenceType,
    /// Leave the filters of int8 convolutions and dense layers as they are
    ///
    /// By default they are packed, with the same bits: a Cortex-M4, M7 or M33 then takes a sixth of the instructions, and a RISC-V half of
    /// them. A Cortex-M0+, which multiplies 64 bits slowly, takes a third more.
    #[arg(long)]
    no_packing: bool,
    /// Runtime whose bits the quantized dense layers (FULLY_CONNECTED) have
    #[arg(long, value_enum, default_value_t, value_name = "RUNTIME")]
    rounding: Rounding,
    /// Also draw the arena over time, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also write the firmware's kernels, arena sizes, names, indices and shapes, as Rust
    #[arg(long, value_name = "FILE")]
    rust: Option<PathBuf>,
    /// Processor of the firmware: `--rust` names its kernels, and `--measure` runs on it, or on a cortex-m4 if it is `any`
    #[arg(long, value_enum, default_value_t, requires = "for a processor")]
    cpu: Cpu,
    /// Also write them and the artifact as C: a source file whose name ends with .c, and the header beside it
    #[arg(long, value_name = "FILE", value_parser = c_file)]
    c: Option<PathBuf>,
    #[command(flatten)]
    measure: Measure,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Rounding {
    /// TensorFlow Lite, which rounds a sum once
    #[default]
    Tensorflow,
    /// TensorFlow Lite Micro, also with CMSIS-NN, which rounds it twice
    Tflm,
    /// TensorFlow Lite Micro before 13 October 2026, which also multiplies scales as f32 if the weights have only one
    TflmF32Scales,
}

impl Import {
    fn model(&self) -> Result<Model> {
        let rounding = match self.rounding {
            Rounding::Tensorflow => tflite::Rounding::TensorFlow,
            Rounding::Tflm => tflite::Rounding::Tflm,
            Rounding::TflmF32Scales => tflite::Rounding::TflmF32Scales,
        };
        Ok(Model::open(&self.file)?.pack_filters(!self.no_packing).with_rounding(rounding)?)
    }

    fn artifact(&self, model: &Model, quiet: bool) -> Result<AlignedBytes> {
        Ok(match self.stream {
            Some(axis) => model.streaming(axis)?.export(1),
            None if self.train => model.trainable(&Eager::new(&portable_cpu()))?.export(self.batch, self.learning_rate),
            None if !self.quantize.is_empty() => return self.quantized(model, quiet),
            None => model.export(self.batch),
        }?)
    }

    fn quantized(&self, model: &Model, quiet: bool) -> Result<AlignedBytes> {
        let mut calibration = model.calibration(self.batch)?;
        samples::observe(&mut calibration, &self.quantize, &self.file, quiet)?;
        Ok(model.export_quantized(&calibration, &self.inference_type.options())?)
    }

    pub fn run(&self, quiet: bool) -> Result<()> {
        let model = self.model()?;
        for warning in model.warnings() {
            eprintln!("warning: {}: {warning}", self.file.display());
        }
        let bytes = self.artifact(&model, quiet).with_context(|| format!("cannot import {}", self.file.display()))?;
        let description = Description::read(&bytes)?;
        let source =
            self.rust.as_ref().map(|path| Ok::<_, anyhow::Error>((path, self.cpu.source(&bytes, "gradlet import")?))).transpose()?;
        write_whole(&self.output, &bytes)?;
        if let Some((path, source)) = source {
            write_whole(path, source.as_bytes())?;
        }
        if let Some(path) = &self.c {
            write_c(path, &bytes, "gradlet import")?;
        }
        let measured = self.measure.run(self.cpu, &bytes, &description, quiet)?;
        if let Some(path) = &self.svg {
            let signatures: Vec<_> = description.signatures.iter().collect();
            write_whole(path, inspect::svg(&description, &signatures, &measured).as_bytes())?;
        }
        if quiet {
            Ok(())
        } else {
            print(&format!("{}: {} B\n{}", self.output.display(), description.length, inspect::costs(&description, &measured)))
        }
    }
}
