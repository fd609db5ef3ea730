//! The command `gradlet run`.

use crate::print;
use anyhow::{Context, Result, bail};
use clap::Args;
use gradlet::artifact::describe::Description;
use gradlet::artifact::{LoadedSignature, load_signatures};
use gradlet::datasets::Digits;
use gradlet::io::FileError;
use gradlet::io::npy::{self, Npy};
use gradlet::runtime::format::Values;
use gradlet::tensor::TensorView;
use gradlet::{DType, Tensor, TensorType};
use std::path::{Path, PathBuf};

/// Number of elements that are printed at each end of a dimension of an output.
const EDGES: u32 = 8;

/// Run a signature of an artifact, as a firmware does
///
/// Prints the outputs. A training signature changes weights only in memory. With --steps, it runs several steps on the same input.
/// With --save, the artifact is written with the changed weights.
#[derive(Args)]
#[command(after_help = "Inputs, one for each input of the signature, by name or in order:\n  \
    FILE.npy, NAME=FILE.npy            an array\n  \
    DIR                                an array DIR/NAME.npy for each input\n  \
    digits:DIR:INDEX, NAME=digits:…    a test digit of the MNIST files in DIR: its pixels, or its label for an i32\n\n\
    Examples:\n  gradlet run cnn.grdl infer x=digits:data/mnist10k:0 --output logits=logits.npy\n  \
    gradlet run cnn.grdl --signature train picture.npy label.npy --steps 20 --save trained.grdl")]
pub struct Run {
    /// The artifact
    file: PathBuf,
    /// Name of the signature, which may be omitted if there is only one, then the inputs
    #[arg(value_name = "[SIGNATURE] INPUT")]
    arguments: Vec<String>,
    /// Name of the signature
    #[arg(long, value_name = "NAME")]
    signature: Option<String>,
    /// Source of an input
    #[arg(long, value_name = "NAME=SOURCE", value_parser = named)]
    input: Vec<(String, String)>,
    /// File for an output, as NPY, or folder for all outputs, as DIR/NAME.npy
    #[arg(long, value_name = "NAME=FILE|DIR")]
    output: Vec<String>,
    /// Number of runs
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Also write the artifact with the values of the variables after the run
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

fn named(argument: &str) -> Result<(String, String), String> {
    let (name, value) = argument.split_once('=').ok_or("expected NAME=SOURCE")?;
    Ok((name.into(), value.into()))
}

/// True if an argument is the source of an input, not the name of a signature.
fn is_input(argument: &str) -> bool {
    argument.contains('=') || argument.ends_with(".npy") || argument.starts_with("digits:") || Path::new(argument).is_dir()
}

impl Run {
    pub fn run(&self) -> Result<()> {
        let (signature, inputs) = self.signature()?;
        let loaded = load_signatures(&self.file, &[&signature])?;
        let signature = loaded.signature(&signature)?;
        let inputs = self.inputs(&signature, inputs)?;
        self.check_output_names(&signature)?;
        let mut outputs = Vec::new();
        for _ in 0..self.steps {
            outputs = signature.call(&inputs)?;
        }
        self.outputs(&signature, &outputs)?;
        Ok(self.save.iter().try_for_each(|path| loaded.save(path))?)
    }

    /// Returns the name of the signature, and the inputs among the arguments.
    fn signature(&self) -> Result<(String, &[String])> {
        if let Some(name) = &self.signature {
            return Ok((name.clone(), &self.arguments));
        }
        match self.arguments.split_first() {
            Some((name, inputs)) if !is_input(name) => Ok((name.clone(), inputs)),
            _ => Ok((self.only_signature()?, &self.arguments)),
        }
    }

    fn only_signature(&self) -> Result<String> {
        let bytes = std::fs::read(&self.file).map_err(|error| FileError::io(&self.file, error))?;
        let description = Description::read(&bytes).map_err(|error| FileError::model(&self.file, error))?;
        let names: Vec<&str> = description.signatures.iter().map(|signature| signature.name.as_str()).collect();
        match names.as_slice() {
            [name] => Ok(name.to_string()),
            _ => bail!(FileError::new(&self.file, format!("choose the signature to run: the artifact has {}", names.join(", ")))),
        }
    }

    /// Reads the inputs of the signature from the sources that the command line names. Returns them in the order of the
    /// signature.
    fn inputs(&self, signature: &LoadedSignature<'_>, arguments: &[String]) -> Result<Vec<Tensor>> {
        let wanted: Vec<(&str, TensorType)> = signature.inputs().collect();
        let has = wanted.iter().map(|(name, tensor_type)| format!("{name}: {tensor_type}")).collect::<Vec<_>>().join(", ");
        let mut sources: Vec<Option<String>> = vec![None; wanted.len()];
        let mut named = self.input.clone();
        for argument in arguments {
            match argument.split_once('=') {
                Some((name, source)) => named.push((name.into(), source.into())),
                None if Path::new(argument).is_dir() => {
                    let file = |name| Path::new(argument).join(file_name(name)).to_string_lossy().into_owned();
                    named.extend(wanted.iter().map(|(name, _)| (name.to_string(), file(name))));
                }
                None => {
                    let free = sources.iter_mut().find(|source| source.is_none());
                    *free.with_context(|| format!("{:?} has no further input for {argument}; its inputs are {has}", signature.name()))? =
                        Some(argument.clone());
                }
            }
        }
        for (name, source) in named {
            let index = wanted.iter().position(|(known, _)| *known == name);
            let index = index.with_context(|| format!("{:?} has no input {name:?}; it has {has}", signature.name()))?;
            sources[index] = Some(source);
        }
        let read = wanted.iter().zip(sources).map(|(&(name, wanted), source)| {
            let source = source.with_context(|| {
                format!("input {name:?} of {:?} is not given: add {name}=FILE.npy with an array {wanted}", signature.name())
            })?;
            match source.strip_prefix("digits:") {
                Some(source) => digit(source, wanted),
                None => Ok(npy::read(Path::new(&source))?.tensor(&gradlet::cpu())?),
            }
        });
        read.collect()
    }

    fn check_output_names(&self, signature: &LoadedSignature<'_>) -> Result<()> {
        let known = |name: &str| signature.outputs().any(|(known, _)| known == name);
        let unknown = self.output.iter().filter_map(|output| output.split_once('=')).find(|(name, _)| !known(name));
        let Some((name, _)) = unknown else { return Ok(()) };
        let has = signature.outputs().map(|(name, tensor_type)| format!("{name}: {tensor_type}")).collect::<Vec<_>>().join(", ");
        bail!("{:?} has no output {name:?}; it has {has}", signature.name())
    }

    fn outputs(&self, signature: &LoadedSignature<'_>, outputs: &[Tensor]) -> Result<()> {
        for ((name, tensor_type), output) in signature.outputs().zip(outputs) {
            for wanted in &self.output {
                match wanted.split_once('=') {
                    Some((other, _)) if other != name => (),
                    Some((_, path)) => npy::write(Path::new(path), &Npy::of(output)?)?,
                    None => {
                        std::fs::create_dir_all(wanted).map_err(|error| FileError::io(Path::new(wanted), error))?;
                        npy::write(&Path::new(wanted).join(file_name(name)), &Npy::of(output)?)?;
                    }
                }
            }
            let tensor = TensorView { tensor_type: &tensor_type, data: Some(&output.bytes()?) };
            print(&format!("{name} {tensor_type} = {}\n", Values { tensor, edges: EDGES }))?;
        }
        Ok(())
    }
}

/// Returns the file name of an input or output in a folder: `dense_kernel.npy` for `dense/kernel`.
fn file_name(name: &str) -> String {
    format!("{}.npy", name.replace(['/', '\\'], "_"))
}

/// Reads a test digit from `DIR:INDEX`. Returns its label for an i32 input, or else its pixels in the input's shape.
fn digit(source: &str, wanted: TensorType) -> Result<Tensor> {
    let (folder, index) = source.rsplit_once(':').with_context(|| format!("digits:{source} must be digits:DIR:INDEX"))?;
    let index: usize = index.parse().with_context(|| format!("digits:{source} must end with a number"))?;
    let digits = Digits::load(Path::new(folder), "t10k")?;
    let (x, y) = match wanted.shape.dims().split_first() {
        Some((1, picture)) if wanted.dtype == DType::F32 => digits.batch(&gradlet::cpu(), &[index], picture)?,
        _ => digits.batch(&gradlet::cpu(), &[index], &[digits.rows as u32, digits.cols as u32])?,
    };
    Ok(if wanted.dtype == DType::I32 { y } else { x })
}
