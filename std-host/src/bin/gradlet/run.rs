//! `gradlet run`.

use crate::inspect::unknown_signature;
use crate::print;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use gradlet::describe::{Description, OperandInfo, SignatureInfo};
use gradlet::device::AlignedBytes;
use gradlet::npy::{self, Npy};
use gradlet::program::missing_kernel;
use gradlet::{DType, Digits, Error, FileError, Program, Session, SignatureId, TensorType, firmware, ops};
use std::path::{Path, PathBuf};

/// The elements of an output that are printed.
const SHOWN: usize = 32;

/// Run a signature of an artifact, as a firmware does
///
/// Prints the outputs. A training signature changes weights in memory only: with --steps it takes several steps on the same
/// input.
#[derive(Args)]
#[command(after_help = "Inputs, one for each of the signature's:\n  \
    --input NAME=FILE.npy            an array of f32 or i32\n  \
    --input NAME=digits:DIR:INDEX    a test digit of the MNIST files in DIR: its pixels, or its label for an i32\n\n\
    Example:\n  gradlet run cnn.grdl infer --input x=digits:data/mnist10k:0 --output logits=logits.npy")]
pub struct Run {
    /// The artifact
    file: PathBuf,
    /// The signature
    signature: String,
    /// What to set an input to
    #[arg(long, value_name = "NAME=SOURCE", value_parser = named)]
    input: Vec<(String, String)>,
    /// Also write an output, as NPY
    #[arg(long, value_name = "NAME=FILE", value_parser = named)]
    output: Vec<(String, String)>,
    /// How often to run
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

fn named(argument: &str) -> Result<(String, String), String> {
    let (name, value) = argument.split_once('=').ok_or("it must be NAME=…")?;
    Ok((name.into(), value.into()))
}

impl Run {
    pub fn run(&self) -> Result<()> {
        let bytes = std::fs::read(&self.file).map_err(|error| FileError::io(&self.file, error))?;
        let bytes = AlignedBytes::from(bytes.as_slice());
        let description = Description::read(&bytes).map_err(|error| FileError::model(&self.file, error))?;
        let signature = description.signatures.iter().find(|signature| signature.name == self.signature);
        let signature = signature.ok_or_else(|| FileError::new(&self.file, unknown_signature(&description, &self.signature)))?;
        let inputs = self.inputs(signature)?;
        self.check_output_names(signature)?;

        let program = Program::load(&bytes, ops::KERNELS, &[&signature.name]).map_err(|error| self.explain(&bytes, error))?;
        let id = program.signature(&signature.name)?;
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        let mut session = Session::new(&program, &mut arena)?;
        for step in 0..self.steps {
            for (index, input) in inputs.iter().enumerate() {
                session.input_bytes_mut(id, index)?.copy_from_slice(&input.bytes);
            }
            session.run(id).with_context(|| format!("step {step} of {:?}", signature.name))?;
        }
        self.outputs(signature, &session, id)
    }

    /// The signature's inputs, in its order, all of the right types.
    fn inputs(&self, signature: &SignatureInfo) -> Result<Vec<Npy>> {
        let known = |name: &str| signature.inputs.iter().any(|(known, _)| known == name);
        if let Some((name, _)) = self.input.iter().find(|(name, _)| !known(name)) {
            bail!("{:?} has no input {name:?}; it has {}", signature.name, list(&signature.inputs));
        }
        let inputs = signature.inputs.iter().enumerate().map(|(index, (name, operand))| {
            let wanted = operand.tensor_type;
            let given = self.input.iter().rfind(|(given, _)| given == name);
            let (_, source) = given.with_context(|| {
                format!("input {name:?} of {:?} is not given: add --input {name}=FILE.npy with an array {wanted}", signature.name)
            })?;
            let got = match source.strip_prefix("digits:") {
                Some(source) => digit(source, wanted)?,
                None => npy::read(Path::new(source))?,
            };
            let tensor_type = got.tensor_type;
            ensure!(tensor_type == wanted, "input {index} of {:?} is {wanted}, got {tensor_type}", signature.name);
            Ok(got)
        });
        inputs.collect()
    }

    fn check_output_names(&self, signature: &SignatureInfo) -> Result<()> {
        let known = |name: &str| signature.outputs.iter().any(|(known, _)| known == name);
        match self.output.iter().find(|(name, _)| !known(name)) {
            Some((name, _)) => bail!("{:?} has no output {name:?}; it has {}", signature.name, list(&signature.outputs)),
            None => Ok(()),
        }
    }

    fn outputs(&self, signature: &SignatureInfo, session: &Session<'_, '_>, id: SignatureId) -> Result<()> {
        for (index, (name, operand)) in signature.outputs.iter().enumerate() {
            let tensor_type = operand.tensor_type;
            let bytes = session.output_bytes(id, index)?;
            for (_, path) in self.output.iter().filter(|(wanted, _)| wanted == name) {
                npy::write(Path::new(path), &Npy { tensor_type, bytes: bytes.to_vec() })?;
            }
            print(&format!("{name} {tensor_type} = {}\n", elements(tensor_type.dtype, bytes)))?;
        }
        Ok(())
    }

    /// The error with what would help, in words of the artifact.
    fn explain(&self, bytes: &[u8], error: Error) -> FileError {
        let missing = match error.root() {
            Error::MissingKernel { kernel } => missing_kernel(bytes, *kernel),
            _ => None,
        };
        match missing {
            Some((op, dtype)) => {
                let line = firmware::kernel(op, dtype);
                FileError::new(&self.file, format!("it needs the op {op} for {dtype}, which is not linked: add {line} to the kernels"))
            }
            None => FileError::model(&self.file, error),
        }
    }
}

fn list(named: &[(String, OperandInfo)]) -> String {
    named.iter().map(|(name, operand)| format!("{name}: {}", operand.tensor_type)).collect::<Vec<_>>().join(", ")
}

/// `DIR:INDEX`: the pixels of a test digit as the input's type has them, or its label where the input is of integers.
fn digit(source: &str, wanted: TensorType) -> Result<Npy> {
    let (folder, index) = source.rsplit_once(':').with_context(|| format!("digits:{source} must be digits:DIR:INDEX"))?;
    let index: usize = index.parse().with_context(|| format!("digits:{source} must end with a number"))?;
    let digits = Digits::load(Path::new(folder), "t10k")?;
    let (x, y) = match wanted.shape.dims().split_first() {
        Some((1, picture)) if wanted.dtype == DType::F32 => digits.batch(&gradlet::cpu(), &[index], picture)?,
        _ => digits.batch(&gradlet::cpu(), &[index], &[digits.rows as u32, digits.cols as u32])?,
    };
    match wanted.dtype {
        DType::I32 => {
            Ok(Npy { tensor_type: y.tensor_type(), bytes: y.to_vec::<i32>()?.iter().flat_map(|label| label.to_le_bytes()).collect() })
        }
        _ => Ok(Npy { tensor_type: x.tensor_type(), bytes: x.to_vec::<f32>()?.iter().flat_map(|pixel| pixel.to_le_bytes()).collect() }),
    }
}

/// The first elements, as text.
fn elements(dtype: DType, bytes: &[u8]) -> String {
    let words = bytes.chunks_exact(dtype.size());
    let more = if words.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<String> = words.take(SHOWN).map(|word| element(dtype, word)).collect();
    format!("[{}{more}]", shown.join(", "))
}

fn element(dtype: DType, word: &[u8]) -> String {
    match (dtype, word) {
        (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).to_string(),
        (DType::I32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]).to_string(),
        (DType::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]).to_string(),
        (DType::I64, &[a, b, c, d, e, f, g, h]) => i64::from_le_bytes([a, b, c, d, e, f, g, h]).to_string(),
        (DType::I8, &[a]) => (a as i8).to_string(),
        (DType::U8, &[a]) => a.to_string(),
        (DType::Bool, &[a]) => (a != 0).to_string(),
        _ => word.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
