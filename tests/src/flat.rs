//! A small trainable model for tests of checkpoints: an MLP with Adam, loaded once.

use crate::mlp::Mlp;
use gradlet_core::artifact::describe::Description;
use gradlet_core::device::AlignedBytes;
use gradlet_core::function::ConcreteFunction;
use gradlet_core::optimizers::Adam;
use gradlet_core::{Artifact, Device, Eager, Function, Program, Result, Scope, Session, Tensor, Variable, ops};
use std::sync::LazyLock;

/// Creates the artifact. Its signature `infer` assigns no variable, and `train` assigns all.
pub fn artifact(learning_rate: f32) -> Result<Vec<u8>> {
    kept_artifact(learning_rate, false)
}

/// Like [`artifact`], with a second copy of the variables if `keep_copy` is true.
pub fn kept_artifact(learning_rate: f32, keep_copy: bool) -> Result<Vec<u8>> {
    let scope = Eager::new(&ops::portable_cpu());
    let mlp = std::sync::Arc::new(Mlp::with(&scope, Box::new(Adam::new(learning_rate)))?);
    let x = Tensor::full(&scope.device(), 0.5f32, &[1, 4])?;
    let labels = Tensor::new(&scope.device(), &[1i32], &[1])?;
    let variables = mlp.variables.clone();
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let read = variables.iter().map(|variable| scope.read(variable)).collect::<Result<Vec<_>>>()?;
        x.dense(&read[0], Some(&read[1]))?.relu()?.dense(&read[2], Some(&read[3]))
    });
    let train = Function::new(move |scope: &dyn Scope, (x, labels): (Tensor, Tensor)| mlp.step(scope, &x, &labels));
    let mut artifact = Artifact::new();
    artifact.keep_copy(keep_copy);
    artifact.signature("infer", &*infer.concrete(&scope, &x)?, &["x"], &["logits"])?;
    artifact.signature("train", &*train.concrete(&scope, &(x, labels))?, &["x", "labels"], &["loss"])?;
    Ok(artifact.to_bytes()?.to_vec())
}

/// Loads an artifact with these signatures. The bytes are leaked, so the program is `'static`.
pub fn load(artifact: &[u8], signatures: &[&str]) -> Result<Program<'static>> {
    let bytes: &'static AlignedBytes = Box::leak(Box::new(AlignedBytes::from(artifact)));
    Program::load(bytes, ops::KERNELS, signatures)
}

/// Returns the program that the tests share, with both signatures.
pub fn program() -> &'static Program<'static> {
    static PROGRAM: LazyLock<Program<'static>> =
        LazyLock::new(|| artifact(0.01).and_then(|bytes| load(&bytes, &["infer", "train"])).expect("the artifact loads"));
    &PROGRAM
}

/// Returns a signature of a loaded program as a function on `device`, with the artifact's variables, which have their initial values.
pub fn as_function(artifact: &[u8], program: &Program<'_>, name: &str, device: &Device) -> Result<(ConcreteFunction, Vec<Variable>)> {
    let (scope, mut arena) = (Eager::new(device), arena(program));
    let session = Session::new(program, &mut arena)?;
    let mut variables = Vec::new();
    for (index, variable) in Description::read(artifact)?.variables.iter().enumerate() {
        let value = Tensor::from_bytes(device, variable.tensor_type, session.variable(index)?)?;
        variables.push(Variable::new(&scope, &variable.name, &value)?);
    }
    Ok((gradlet_core::artifact::function(program, name, &variables, device)?, variables))
}

/// Creates an arena for a program.
pub fn arena(program: &Program<'_>) -> AlignedBytes {
    AlignedBytes::zeroed(program.arena_bytes())
}

/// Runs training step `number`, and returns the loss.
pub fn step(session: &mut Session<'_, '_>, number: u32) -> Result<f32> {
    let train = session.program().signature("train")?;
    let pixels = session.input_mut::<f32>(train, 0)?;
    (0..).zip(pixels).for_each(|(at, value)| *value = ((number * 7 + at * 3) % 11) as f32 * 0.1);
    session.input_mut::<i32>(train, 1)?.fill((number % 2) as i32);
    session.run(train)?;
    Ok(session.output::<f32>(train, 0)?[0])
}

/// Returns the values of all variables.
pub fn state(session: &Session<'_, '_>) -> Vec<Vec<u8>> {
    (0..session.variable_count()).map(|index| session.variable(index).unwrap_or_default().to_vec()).collect()
}
