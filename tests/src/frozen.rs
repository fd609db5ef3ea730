//! Frozen samples: artifacts of each released format version, with the results that they computed at that time.

use crate::quantised;
use anyhow::Result;
use gradlet_core::artifact::describe::Description;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Padding, Sequential};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::optimizers::{Adam, Optimizer, Sgd};
use gradlet_core::{Artifact, DType, Differentiate, Eager, Function, Program, Scope, Session, Tensor, ops};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folder of the samples `NAME-VERSION.grdl`, and of their results `NAME-VERSION.out`.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/artifacts");

/// Returns the paths of an artifact of a version, and of its results.
pub fn paths(name: &str, (major, minor): (u16, u16)) -> (PathBuf, PathBuf) {
    let path = |ending: &str| Path::new(FOLDER).join(format!("{name}-{major}.{minor}.{ending}"));
    (path("grdl"), path("out"))
}

/// Returns the paths of all frozen artifacts and of their results. They are a CNN of each version, an LSTM, branches and
/// loops, a step of Adam, and all ops on quantised tensors.
pub fn samples() -> Result<Vec<(PathBuf, PathBuf)>> {
    let paths = std::fs::read_dir(FOLDER)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let artifacts = paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "grdl"));
    Ok(artifacts.map(|path| (path.clone(), path.with_extension("out"))).collect())
}

/// Creates the samples of the current version, with their names: an int8 CNN of TensorFlow Lite, and all ops on quantised tensors of i8 and
/// of i16.
pub fn current() -> Result<[(&'static str, AlignedBytes); 2]> {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/models/cnn_int8.tflite");
    Ok([("cnn", gradlet::tflite::Model::open(model)?.export(1)?), ("quantised", quantised::artifact(1..4)?)])
}

/// Creates the artifact of a small CNN with `infer` and the training steps of two optimizers. It has most ops, and
/// every table of the format. It keeps a second copy of the variables, as version 1.1 allows.
pub fn sample() -> Result<AlignedBytes> {
    let scope = Eager::with_seed(&ops::portable_cpu(), 3);
    let conv = Conv2D::new(3, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
    let model = Sequential::new().with(conv).with(MaxPool2D::new([2, 2])).with(Flatten).with(Dense::new(4));
    let model = Arc::new(model);
    let x = Tensor::full(&scope.device(), 0.0f32, &[1, 4, 4, 1])?;
    let y = Tensor::full(&scope.device(), 0i32, &[1])?;
    model.build(&scope, x.shape())?;
    let mut artifact = Artifact::new();
    artifact.keep_copy(true).variables(model.named_variables()).metadata("sample", "frozen");
    let called = model.clone();
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| called.call(scope, &x)?.softmax(-1));
    artifact.signature("infer", &*infer.concrete(&scope, &x)?, &["x"], &["probabilities"])?;
    let optimizers: [(&str, Box<dyn Optimizer>); 2] = [("train_sgd", Box::new(Sgd::new(0.1))), ("train_adam", Box::<Adam>::default())];
    for (name, optimizer) in optimizers {
        let model = model.clone();
        let step = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
            let tape = scope.tape();
            let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&y, &model.call(&tape, &x)?)?;
            let gradients = tape.gradient(&loss, &model.trainable_variables())?;
            optimizer.apply_gradients(scope, &gradients)?;
            Ok(loss)
        });
        artifact.signature(name, &*step.concrete(&scope, &(x.clone(), y.clone()))?, &["x", "y"], &["loss"])?;
    }
    Ok(artifact.to_bytes()?)
}

/// Runs every signature in order on synthetic inputs. Returns the outputs, then all variables.
pub fn answers(artifact: &[u8]) -> Result<Vec<u8>> {
    let names: Vec<String> = Description::read(artifact)?.signatures.into_iter().map(|signature| signature.name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let artifact = AlignedBytes::from(artifact);
    let program = Program::load(&artifact, ops::KERNELS, &names)?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    let mut answers = Vec::new();
    for name in names {
        let signature = program.signature(name)?;
        for input in 0.. {
            match session.input_type(signature, input).map(|tensor_type| tensor_type.dtype) {
                Ok(DType::I32) => session.input_mut::<i32>(signature, input)?.fill(2),
                Ok(DType::I8) => session.input_mut(signature, input)?.iter_mut().zip(0..).for_each(|(x, at)| *x = (4133 * at) as i8),
                Ok(DType::I16) => session.input_mut(signature, input)?.iter_mut().zip(0..).for_each(|(x, at)| *x = (4133 * at) as i16),
                Ok(_) => session.input_mut::<f32>(signature, input)?.iter_mut().zip(1..).for_each(|(x, at)| *x = at as f32 / 16.0),
                Err(_) => break,
            }
        }
        session.run(signature)?;
        answers.extend(session.output_bytes(signature, 0)?);
    }
    for variable in 0..session.variable_count() {
        answers.extend(session.variable(variable)?);
    }
    Ok(answers)
}
