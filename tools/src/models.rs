//! Folders for the builds of firmwares: an exported model, its kernel list and its data.

use anyhow::{Context, Result};
use gradlet::applications::ModelSpec;
use gradlet::artifact::export::{self, Options};
use gradlet::artifact::firmware::{self, Cpu};
use gradlet::control::{WhileOptions, cond, while_loop};
use gradlet::layers::{self, Activation, Conv2D, Dense, Flatten, Layer, MaxPooling2D, Module, Sequential};
use gradlet::optimizers::{Adam, Sgd};
use gradlet::tensor::Bool;
use gradlet::tflite::Model;
use gradlet::{Artifact, Eager, Function, Scope, Tensor, portable_cpu, train};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xtask::boards::folder;
use xtask::shell::root;

/// Learning rate of the exported training steps. It is Keras's default for SGD.
pub const LEARNING_RATE: f32 = 0.01;

/// Exports the model of firmware `name` (`mlp`, `train`, `lstm`, `book`, `dispatch`, `slices`, `restart` or `hostile`), and returns its
/// folder.
pub fn export(name: &str) -> Result<PathBuf> {
    let artifact = match name {
        "mlp" => of("mlp:64-32-10", &["infer", "train"])?,
        "train" => of("mlp:64-32-10", &["train"])?,
        "book" => of("mlp:784-100-10", &["infer", "train"])?,
        "slices" => of("cnn", &["infer", "train"])?,
        "lstm" => lstm()?,
        "dispatch" => chains()?,
        "restart" => adam(false)?,
        "hostile" => adam(true)?,
        _ => anyhow::bail!("firmware {name} has no default model: pass one with --model"),
    };
    write(name, &artifact)
}

/// Imports the model `file` of the suite's fixtures for firmware `infer` on `cpu`. With `stream`, the signature takes one frame along
/// this axis of the input. Returns the firmware's folder, and the elements of the first output that the model has on the host for the
/// firmware's input.
pub fn import(file: &str, cpu: Cpu, stream: Option<usize>) -> Result<(PathBuf, Vec<i8>)> {
    let model = Model::open(root().join("tests/fixtures").join(file))?;
    let model = stream.map_or(Ok(model.clone()), |axis| model.streaming(axis))?;
    let scope = Eager::new(&portable_cpu());
    let dims: Vec<u32> = model.inputs()[0].dims.iter().map(|dim| dim.unwrap_or(1)).collect();
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as i8
    };
    let x: Vec<i8> = std::iter::repeat_with(next).take(dims.iter().product::<u32>() as usize).collect();
    let y = model.call(&scope, &[&Tensor::new(&scope.device(), &x, &dims)?])?.remove(0);
    Ok((write_for(cpu, "infer", &model.export(1)?)?, y.to_vec()?))
}

/// Writes `model.grdl` and `model.rs` to the folder of firmware `name`, and returns the folder.
pub fn write(name: &str, artifact: &[u8]) -> Result<PathBuf> {
    write_for(Cpu::Any, name, artifact)
}

/// Like [`write`], with the kernels for `cpu`.
fn write_for(cpu: Cpu, name: &str, artifact: &[u8]) -> Result<PathBuf> {
    let folder = folder(name)?;
    fs::write(folder.join("model.grdl"), artifact)?;
    fs::write(folder.join("model.rs"), firmware::source_for(cpu, artifact, "cargo xtask")?)?;
    Ok(folder)
}

/// Exports the untrained model `spec` with the named signatures.
pub fn of(spec: &str, signatures: &[&str]) -> Result<Vec<u8>> {
    let scope = Eager::new(&portable_cpu());
    let spec: ModelSpec = spec.parse()?;
    let model = Arc::new(spec.build(&scope)?);
    let signatures = signatures.iter().map(|name| name.to_string()).collect();
    let options = Options { learning_rate: LEARNING_RATE, signatures, ..Options::default() };
    Ok(export::artifact(&scope, &model, &spec, &options)?.to_vec())
}

/// Exports the training step of an MLP 64-32-10 with Adam, whose state is part of a checkpoint. If `sets_rate` is true, the learning rate
/// can be set.
pub fn adam(sets_rate: bool) -> Result<Vec<u8>> {
    let scope = Eager::new(&portable_cpu());
    let model = Arc::new("mlp:64-32-10".parse::<ModelSpec>()?.build(&scope)?);
    let x = Tensor::full(&scope.device(), 0.5f32, &[1, 64])?;
    let labels = Tensor::full(&scope.device(), 0i32, &[1])?;
    let optimizer = Arc::new(Adam::new(LEARNING_RATE));
    let train = train::step(&model, optimizer.clone(), model.trainable_variables());
    let mut artifact = Artifact::new();
    artifact.variables(model.named_variables());
    artifact.signature("train", &*train.concrete(&scope, &(x, labels))?, &["features", "labels"], &["loss"])?;
    if sets_rate {
        let rate = optimizer.named_variables().into_iter().find(|(name, _)| name == "learning_rate");
        artifact.setter(&scope, "learning_rate", &rate.context("the optimizer has no learning rate")?.1)?;
    }
    Ok(artifact.to_bytes()?.to_vec())
}

/// Sizes of the LSTM: steps of a sequence, features of a step, units, classes.
const LSTM: [u32; 4] = [100, 3, 8, 10];

/// Exports an untrained LSTM that classifies sequences, with the signatures `infer` and `train`. Both loop over the steps.
fn lstm() -> Result<Vec<u8>> {
    let scope = Eager::new(&portable_cpu());
    let [steps, features, units, classes] = LSTM;
    let model = Arc::new(Sequential::new().with(layers::LSTM::new(units)).with(layers::Dense::new(classes)));
    let x = Tensor::full(&scope.device(), 0.5f32, &[1, steps, features])?;
    let labels = Tensor::full(&scope.device(), 0i32, &[1])?;
    model.apply(&scope, &x)?;
    let forward = model.clone();
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| forward.apply(scope, &x)?.softmax(-1));
    let train = train::step(&model, Arc::new(Sgd::new(LEARNING_RATE)), model.trainable_variables());
    let mut artifact = Artifact::new();
    artifact.variables(model.named_variables());
    artifact.signature("infer", &*infer.concrete(&scope, &x)?, &["sequence"], &["probabilities"])?;
    artifact.signature("train", &*train.concrete(&scope, &(x, labels))?, &["sequence", "labels"], &["loss"])?;
    Ok(artifact.to_bytes()?.to_vec())
}

/// Exports training steps of small models, one signature each, which every processor runs 100 times in seconds.
pub fn small(names: &[&str]) -> Result<Vec<u8>> {
    let scope = Eager::new(&portable_cpu());
    let mut artifact = Artifact::new();
    for name in names {
        let (model, x) = match *name {
            "mlp" => (Sequential::new().with(Dense::new(32).activation(Activation::Relu)), vec![1, 64]),
            "cnn" => (Sequential::new().with(Conv2D::new(4, [3, 3])).with(MaxPooling2D::new([2, 2])).with(Flatten), vec![1, 8, 8, 1]),
            "lstm" => (Sequential::new().with(layers::LSTM::new(8)), vec![1, 10, 3]),
            other => anyhow::bail!("there is no small model {other}"),
        };
        let model = Arc::new(model.with(Dense::new(10)));
        let x = Tensor::full(&scope.device(), 0.5f32, &x)?;
        let labels = Tensor::full(&scope.device(), 0i32, &[1])?;
        model.apply(&scope, &x)?;
        let train = train::step(&model, Arc::new(Sgd::new(LEARNING_RATE)), model.trainable_variables());
        artifact.variables(model.named_variables().into_iter().map(|(path, variable)| (format!("{name}/{path}"), variable)).collect());
        artifact.signature(name, &*train.concrete(&scope, &(x, labels))?, &["x", "labels"], &["loss"])?;
    }
    Ok(artifact.to_bytes()?.to_vec())
}

/// Exports additions on one element: in chains, in loops, and each in a branch. Every `long` signature has 64 more additions than its
/// `short` one.
fn chains() -> Result<Vec<u8>> {
    let scope = Eager::new(&portable_cpu());
    let one = Tensor::full(&scope.device(), 1.0f32, &[1])?;
    let mut artifact = Artifact::new();
    for (name, length) in [("short", 4), ("long", 68)] {
        let constant = one.clone();
        let chain = Function::new(move |_: &dyn Scope, x: Tensor| (0..length).try_fold(x, |x, _| x.add(&constant)));
        artifact.signature(name, &*chain.concrete(&scope, &one)?, &["x"], &["y"])?;
    }
    // A loop that only `max_iterations` ends, and one that counts.
    for (name, length, counts) in [("loop_short", 4, false), ("loop_long", 68, false), ("count_short", 4, true), ("count_long", 68, true)] {
        let constant = one.clone();
        let turns = Function::new(move |scope: &dyn Scope, x: Tensor| {
            let options = WhileOptions { max_iterations: Some(if counts { 100 } else { length }) };
            if !counts {
                let always = Tensor::scalar(&scope.device(), Bool::from(true));
                return while_loop(scope, options, x, |_| Ok(always.clone()), |x| x.add(&constant));
            }
            let count = Tensor::scalar(&scope.device(), 0i32);
            let next = |(i, x): (Tensor, Tensor)| Ok((i.add_scalar(1.0)?, x.add(&constant)?));
            Ok(while_loop(scope, options, (count, x), |(i, _)| i.less(&i.like(length.into())?), next)?.1)
        });
        artifact.signature(name, &*turns.concrete(&scope, &one)?, &["x"], &["y"])?;
    }
    for (name, length) in [("branch_short", 4), ("branch_long", 68)] {
        let constant = one.clone();
        let branches = Function::new(move |scope: &dyn Scope, x: Tensor| {
            let positive = x.like(0.0)?.less(&x)?.reshape(&[])?;
            (0..length).try_fold(x, |x, _| cond(scope, &positive, || x.add(&constant), || x.sub(&constant)))
        });
        artifact.signature(name, &*branches.concrete(&scope, &one)?, &["x"], &["y"])?;
    }
    Ok(artifact.to_bytes()?.to_vec())
}

/// Exports an untrained CNN with the signatures that the firmware `demo` runs.
pub fn cnn() -> Result<Vec<u8>> {
    let (scope, spec) = (Eager::with_seed(&portable_cpu(), 1), ModelSpec::Cnn);
    let model = Arc::new(spec.build(&scope)?);
    Ok(export::artifact(&scope, &model, &spec, &Options { learning_rate: LEARNING_RATE, ..Options::default() })?.to_vec())
}

/// Creates the folder `path`, or empties it if it exists.
pub fn empty(path: &Path) -> Result<PathBuf> {
    if path.exists() {
        fs::remove_dir_all(path).with_context(|| format!("cannot empty {}", path.display()))?;
    }
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path.into())
}

/// Writes digits in the form that the firmware reads: two counts, the labels, the images. The training digits come first.
pub fn write_digits(path: &Path, train: &gradlet::datasets::Digits, test: &gradlet::datasets::Digits) -> Result<()> {
    let counts = [train.len() as u32, test.len() as u32].map(u32::to_le_bytes).concat();
    let bytes = [&counts, &train.labels, &test.labels, &train.images, &test.images].map(|part| &part[..]).concat();
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
