//! Damaged artifacts: small artifacts to damage, and the test that loads and runs a damaged one.

use crate::mlp::{Mlp, weights};
use bytemuck::bytes_of;
use gradlet_core::control::{WhileOptions, cond, while_loop};
use gradlet_core::custom_op::Call;
use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::program::{Header, TensorRecord, checksum};
use gradlet_core::{
    Artifact, DType, Differentiate, Eager, Error, Function, Kernel, Program, Result, Scope, Session, Tensor, TensorType, Variable, ops,
};
use std::cell::Cell;

/// Size of an artifact's header, in bytes.
pub const HEADER: usize = size_of::<Header>();
/// Offset of the artifact's length in the header, in bytes.
const LENGTH: usize = 8;
/// Offset of the artifact's checksum in the header, in bytes.
const CHECKSUM: usize = 12;
/// Offset of the first byte that the checksum covers, in bytes.
const COVERED: usize = 16;
/// Largest arena for a damaged artifact, in bytes.
pub const ARENA_LIMIT: usize = 1 << 20;

/// An artifact to damage, and its signatures.
pub struct Sample {
    /// Name of the sample.
    pub name: String,
    /// Bytes of the artifact.
    pub bytes: Vec<u8>,
    /// Names of its signatures.
    pub signatures: &'static [&'static str],
}

/// Returns the samples: an inference of three ops, and an MLP's training step.
pub fn samples() -> Result<Vec<Sample>> {
    Ok(vec![
        Sample { name: "infer".into(), bytes: infer()?, signatures: &["infer"] },
        Sample { name: "train".into(), bytes: train()?, signatures: &["train"] },
    ])
}

/// Returns samples with nested branches and loops, and with their gradients. Branches assign a variable.
pub fn deciding() -> Result<Vec<Sample>> {
    let scope = Eager::new(&ops::portable_cpu());
    let w = weights(&scope, "w", &[2])?;
    let function = Function::new(move |scope: &dyn Scope, (x, n): (Tensor, Tensor)| recurrence(scope, &w, &x, &n));
    let (x, n) = (Tensor::full(&scope.device(), 0.5f32, &[4, 2])?, Tensor::scalar(&scope.device(), 3i32));
    let mut artifact = Artifact::new();
    artifact.signature("train", &*function.concrete(&scope, &(x, n))?, &["x", "n"], &["loss"])?;
    Ok(vec![Sample { name: "deciding".into(), bytes: artifact.to_bytes()?.to_vec(), signatures: &["train"] }])
}

/// Computes a recurrent state `h` from the first `n` rows of `x`, in a loop with branches. Then updates `w` with the gradient of the loss,
/// and returns the loss.
fn recurrence(scope: &dyn Scope, w: &Variable, x: &Tensor, n: &Tensor) -> Result<Tensor> {
    let tape = scope.tape();
    let kernel = tape.read(w)?;
    let row = |h: &Tensor, i: &Tensor| x.gather(i, 0)?.add(&h.mul(&kernel)?)?.tanh();
    let options = WhileOptions { max_iterations: Some(4) };
    let start = (n.like(0.0)?, x.like(0.0)?.broadcast_to(&[2])?);
    let (_, h) = while_loop(
        &tape,
        options,
        start,
        |(i, _)| i.less(n),
        |(i, h)| {
            let odd = i.floormod(&i.like(2.0)?)?.equal(&i.like(1.0)?)?;
            let h = cond(
                &tape,
                &odd,
                || row(&h, &i),
                || {
                    let twice = (i.like(0.0)?, h.clone());
                    let (_, h) = while_loop(
                        &tape,
                        WhileOptions { max_iterations: Some(2) },
                        twice,
                        |(k, _)| k.less(&k.like(2.0)?),
                        |(k, h)| Ok((k.add_scalar(1.0)?, row(&h, &i)?)),
                    )?;
                    Ok(h)
                },
            )?;
            Ok((i.add_scalar(1.0)?, h))
        },
    )?;
    let loss = h.mul(&h)?.sum(&[], false)?;
    let step = tape.gradient(&loss, w)?.ok_or(Error::Unbuilt)?.mul_scalar(0.1)?;
    let grows = loss.like(1.0)?.less(&loss)?;
    cond(scope, &grows, || scope.assign_sub(w, &step), || scope.assign_add(w, &step))?;
    Ok(loss)
}

/// Creates the artifact of `softmax(relu(dense(x)))`.
fn infer() -> Result<Vec<u8>> {
    let scope = Eager::new(&ops::portable_cpu());
    let (kernel, bias) = (weights(&scope, "kernel", &[4, 3])?, weights(&scope, "bias", &[3])?);
    let function =
        Function::new(move |scope: &dyn Scope, x: Tensor| x.dense(&scope.read(&kernel)?, Some(&scope.read(&bias)?))?.relu()?.softmax(-1));
    let x = Tensor::full(&scope.device(), 0.5f32, &[2, 4])?;
    let mut artifact = Artifact::new();
    artifact.signature("infer", &*function.concrete(&scope, &x)?, &["x"], &["y"])?;
    Ok(artifact.to_bytes()?.to_vec())
}

/// Creates the artifact of a training step of an MLP 4-3-2.
fn train() -> Result<Vec<u8>> {
    let scope = Eager::new(&ops::portable_cpu());
    let mlp = Mlp::new(&scope)?;
    let function = Function::new(move |scope: &dyn Scope, (x, labels): (Tensor, Tensor)| mlp.step(scope, &x, &labels));
    let x = Tensor::full(&scope.device(), 0.5f32, &[1, 4])?;
    let labels = Tensor::new(&scope.device(), &[1i32], &[1])?;
    let mut artifact = Artifact::new();
    artifact.signature("train", &*function.concrete(&scope, &(x, labels))?, &["x", "labels"], &["loss"])?;
    Ok(artifact.to_bytes()?.to_vec())
}

/// Returns the header of an artifact, or `None` if there are too few bytes.
pub fn header(bytes: &[u8]) -> Option<Header> {
    Some(bytemuck::pod_read_unaligned(bytes.get(..HEADER)?))
}

/// Sets the length in the header of the artifact `bytes` to the length of `bytes`.
pub fn fix_length(bytes: &mut [u8]) {
    let length = bytes.len() as u32;
    if let Some(slot) = bytes.get_mut(LENGTH..LENGTH + 4) {
        slot.copy_from_slice(&length.to_le_bytes());
    }
}

/// Sets the header's checksum to the checksum of the bytes.
pub fn fix_checksum(bytes: &mut [u8]) {
    let Some(header) = header(bytes) else { return };
    let sum = checksum(bytes.get(COVERED..header.length as usize).unwrap_or(&[]));
    bytes[CHECKSUM..COVERED].copy_from_slice(&sum.to_le_bytes());
}

/// Sets the byte count of every tensor record to the size of its type, so that the loader does not refuse every changed dimension because
/// of the byte count.
pub fn fix_tensors(bytes: &mut [u8]) {
    let Some(header) = header(bytes) else { return };
    let [tensors, types] = [header.sections[3], header.sections[6]];
    for index in 0..tensors.count.min(1 << 16) as usize {
        let at = tensors.offset as usize + index * size_of::<TensorRecord>();
        let Some(record) = bytes.get(at..at + size_of::<TensorRecord>()) else { return };
        let mut record: TensorRecord = bytemuck::pod_read_unaligned(record);
        let first = types.offset as usize + size_of::<TensorType>() * usize::from(record.tensor_type);
        let Some(words) = bytes.get(first..first + size_of::<TensorType>()) else { continue };
        let Ok(tensor_type) = bytemuck::checked::try_pod_read_unaligned::<TensorType>(words) else { continue };
        let elements = tensor_type.shape.dims().iter().copied().fold(1, u32::wrapping_mul);
        record.bytes = elements.wrapping_mul(tensor_type.dtype.size() as u32);
        bytes[at..at + size_of::<TensorRecord>()].copy_from_slice(bytes_of(&record));
    }
}

/// Outcome of loading and running a damaged artifact.
#[derive(Debug)]
pub enum Verdict {
    /// The artifact was refused.
    Refused(Error),
    /// The artifact would need an arena larger than [`ARENA_LIMIT`].
    TooLarge,
    /// The artifact was accepted, and its run ended with this result.
    Ran(Result<()>),
    /// The artifact was accepted, but its loops were stopped after 20,000 iterations.
    Endless,
}

/// Largest number of loop iterations in a run, all loops together.
const PATIENCE: u32 = 20_000;

thread_local! {
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

/// A kernel of `while_loop` that fails after [`PATIENCE`] iterations. It also asserts that no loop exceeds its own iteration limit.
static IMPATIENT: Kernel = Kernel { def: &ops::while_loop::DEF, dtype: DType::Bool, run: impatient };

fn impatient(call: &mut Call<'_, '_>) -> Result<()> {
    let most = call.attributes.get(2).copied().unwrap_or(0);
    let before = call.slice.first;
    assert!(before <= most.saturating_add(1), "a loop of at most {most} iterations evaluated its condition {before} times");
    ASKED.set(ASKED.get() + 1);
    if ASKED.get() > PATIENCE { Err(Error::TooLarge) } else { (ops::while_loop::BOOL.run)(call) }
}

/// Loads an artifact with every portable kernel. If it is accepted, runs each of `signatures` once, and reads all outputs and variables.
/// Also reads the signatures of some artifacts back as functions.
pub fn exercise(bytes: &[u8], signatures: &[&str]) -> Verdict {
    let bytes = AlignedBytes::from(bytes);
    let is_loop = |kernel: &&&Kernel| kernel.def.code == ops::while_loop::DEF.code;
    let others = ops::KERNELS.iter().filter(|kernel| !is_loop(kernel));
    let kernels: Vec<&Kernel> = others.copied().chain([&IMPATIENT]).collect();
    let program = match Program::load(&bytes, &kernels, signatures) {
        Ok(program) => program,
        Err(error) => return Verdict::Refused(error),
    };
    let needed = program.arena_bytes();
    if needed > ARENA_LIMIT {
        return Verdict::TooLarge;
    }
    let mut arena = AlignedBytes::zeroed(needed);
    let mut session = match Session::new(&program, &mut arena) {
        Ok(session) => session,
        Err(error) => return Verdict::Refused(error),
    };
    // The checksum decides, because lifting takes longer than a run.
    if bytes[CHECKSUM].is_multiple_of(8) {
        let (device, count) = (ops::portable_cpu(), session.variable_count());
        let variables: Vec<Variable> = (0..count).map(|_| Variable::deferred("v")).collect();
        signatures.iter().for_each(|name| drop(gradlet_core::artifact::function(&program, name, &variables, &device)));
    }
    ASKED.set(0);
    let ran = signatures.iter().try_for_each(|name| run(&program, &mut session, name));
    if ASKED.get() > PATIENCE { Verdict::Endless } else { Verdict::Ran(ran) }
}

fn run(program: &Program<'_>, session: &mut Session<'_, '_>, name: &str) -> Result<()> {
    let signature = program.signature(name)?;
    for index in 0.. {
        let Ok(tensor_type) = session.input_type(signature, index) else { break };
        match tensor_type.dtype {
            DType::F32 => session.input_mut::<f32>(signature, index)?.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 5) as f32 - 2.0),
            dtype => session.input_bytes_mut(signature, index)?.chunks_mut(dtype.size()).for_each(|x| x[0] = 1),
        }
    }
    let result = session.run(signature);
    let read = (0..).map_while(|index| session.output_bytes(signature, index).ok()).map(<[u8]>::len).sum::<usize>();
    let kept = (0..session.variable_count()).filter_map(|index| session.variable(index).ok()).map(<[u8]>::len).sum::<usize>();
    std::hint::black_box(read + kept);
    result
}
