//! Samples of a model's inputs, from NumPy files.

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use gradlet::io::npy;
use gradlet::quantize::{Calibration, Options};
use gradlet::{DType, Tensor, TensorType, portable_cpu};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Element type of the inputs and outputs of a quantized model.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum InferenceType {
    /// Integers, which the caller converts
    #[default]
    Int8,
    /// Floats, which the model converts
    Float32,
}

impl InferenceType {
    /// Returns the settings of the quantization.
    pub fn options(self) -> Options {
        let dtype = match self {
            InferenceType::Int8 => DType::I8,
            InferenceType::Float32 => DType::F32,
        };
        Options { input: dtype, output: dtype, ..Options::default() }
    }
}

/// Observes the samples in `files`, and warns of the ops of the model `of` that stay in float.
pub fn observe(calibration: &mut Calibration, files: &[PathBuf], of: &Path, quiet: bool) -> Result<()> {
    each(files, calibration.inputs(), quiet, |sample| calibration.observe(sample))?;
    for op in calibration.float_ops() {
        eprintln!("warning: {}: it stays in float: {op}", of.display());
    }
    Ok(())
}

/// Calls `use_sample` with each sample in the files, which belong to inputs of these types. The first axis of a file counts the samples.
fn each(
    files: &[PathBuf],
    inputs: Vec<TensorType>,
    quiet: bool,
    mut use_sample: impl FnMut(&[Tensor]) -> gradlet::Result<()>,
) -> Result<()> {
    let (got, wanted) = (files.len(), inputs.len());
    ensure!(got == wanted, "each input needs a file with samples: inputs of the model: {wanted}, files: {got}");
    let columns = files.iter().zip(&inputs).map(|(path, input)| read(path, input)).collect::<Result<Vec<Vec<Tensor>>>>()?;
    let count = columns.first().map_or(0, Vec::len);
    ensure!(count > 0, "{} has no samples", files[0].display());
    for (path, samples) in files.iter().zip(&columns) {
        ensure!(samples.len() == count, "{} has {} samples, but {} has {count}", path.display(), samples.len(), files[0].display());
    }
    let bar = bar(count as u64, quiet);
    for at in 0..count {
        let sample: Vec<Tensor> = columns.iter().map(|samples| samples[at].clone()).collect();
        use_sample(&sample).with_context(|| format!("cannot take sample {at} of {}", files[0].display()))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Reads the samples of one input.
fn read(path: &Path, input: &TensorType) -> Result<Vec<Tensor>> {
    let all = npy::read(path)?;
    let (got, dims) = (all.tensor_type, input.shape.dims());
    let [count, rest @ ..] = got.shape.dims() else { anyhow::bail!("{} has no axis that counts samples", path.display()) };
    // The batch of one sample may be missing.
    let fits = rest == dims || dims.first() == Some(&1) && rest == &dims[1..];
    ensure!(fits, "{} has {got}, but the model takes {input}: the file must have one more axis, which counts the samples", path.display());
    // NumPy's own numbers are f64.
    let narrows = got.dtype == DType::F64 && input.dtype == DType::F32;
    ensure!(narrows || got.dtype == input.dtype, "{} has {}, but the model takes {}", path.display(), got.dtype, input.dtype);
    let all = all.tensor(&portable_cpu())?.cast(input.dtype)?;
    let first = |at: u32| -> Vec<u32> { [at].into_iter().chain(rest.iter().map(|_| 0)).collect() };
    let one: Vec<i64> = [1].into_iter().chain(rest.iter().map(|_| -1)).collect();
    Ok((0..*count).map(|at| all.slice(&first(at), &one)?.reshape(dims)).collect::<gradlet::Result<Vec<Tensor>>>()?)
}

/// Creates a progress bar for a number of samples. It is shown only on a terminal.
fn bar(samples: u64, quiet: bool) -> ProgressBar {
    let hidden = quiet || !std::io::stderr().is_terminal();
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} samples {eta}");
    ProgressBar::with_draw_target(Some(samples), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
