//! Tests of the steps that a model makes: where they build layers, how warnings name them, and how they report a bad loss.

use super::callbacks::TerminateOnNaN;
use super::{Compile, Fit, Model};
use crate::train::progress::Verbose;
use gradlet_core::layers::{Dense, Layer, Module, Sequential, Visitor};
use gradlet_core::losses::MeanSquaredError;
use gradlet_core::optimizers::Sgd;
use gradlet_core::{Eager, Error, Result, Scope, Shape, Tensor, Variable};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

/// A layer that keeps a tensor that `build` computes in its scope.
struct Noise {
    factor: Variable,
    noise: OnceLock<Tensor>,
}

impl Module for Noise {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.module("factor", &self.factor);
    }
}

impl Layer for Noise {
    fn name(&self) -> &str {
        "noise"
    }
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let noise = Tensor::random_uniform(scope, &input.dims()[1..])?;
        self.noise.get_or_init(|| noise);
        self.factor.create(scope, &Tensor::scalar(&scope.device(), 0.5f32))
    }
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        x.add(&self.noise.get().ok_or(Error::Unbuilt)?.mul(&scope.read(&self.factor)?)?)
    }
}

fn model(scope: &Eager, layers: Sequential) -> Model {
    let mut model = Model::new(scope, layers);
    model.compile(Compile::new(Sgd::new(0.1), MeanSquaredError)).unwrap();
    model
}

fn full(scope: &Eager, value: f32, dims: &[u32]) -> Tensor {
    Tensor::full(&scope.device(), value, dims).unwrap()
}

#[test]
fn a_layer_may_keep_a_tensor_that_build_creates() {
    let scope = Eager::with_seed(&crate::compute::devices::cpu(), 1);
    let noise = Arc::new(Noise { factor: Variable::deferred("factor"), noise: OnceLock::new() });
    let model = model(&scope, Sequential::new().with(noise.clone()).with(Dense::new(1)));
    let (x, y) = (full(&scope, 1.0, &[8, 3]), full(&scope, 2.0, &[8, 1]));
    let history = model.fit((&x, &y), Fit::new().epochs(3).batch_size(3).verbose(Verbose::Silent)).unwrap();
    assert!(history.get("loss")[2] < history.get("loss")[0]);
    assert_eq!(noise.noise.get().unwrap().to_vec::<f32>().unwrap().len(), 3);
    assert_eq!(model.predict(&x).unwrap().dims(), [8, 1]);
}

#[test]
fn warnings_of_retracing_name_the_step() {
    let warnings = Arc::new(Mutex::new(String::new()));
    let sink = warnings.clone();
    let device = crate::compute::devices::cpu().printing(move |part| *sink.lock().unwrap() += &part.to_string());
    let scope = Eager::with_seed(&device, 1);
    let model = model(&scope, Sequential::new().with(Dense::new(1)));
    for samples in 1..=6 {
        let (x, y) = (full(&scope, 1.0, &[samples, 3]), full(&scope, 2.0, &[samples, 1]));
        model.train_on_batch((&x, &y)).unwrap();
        model.test_on_batch((&x, &y)).unwrap();
        model.predict_on_batch(&x).unwrap();
    }
    let warnings = warnings.lock().unwrap();
    for step in ["train_step", "test_step", "predict_step"] {
        assert!(warnings.contains(&format!("warning: 5 of the last 5 calls of {step} traced it again")), "{warnings}");
    }
}

const REASON: &str = "Batch 1: Invalid loss, terminating training";

/// Trains with a loss that overflows after the first step. Returns the reason for the end of the training.
fn overflow(verbose: Verbose) -> Option<String> {
    let scope = Eager::with_seed(&crate::compute::devices::cpu(), 1);
    let model = model(&scope, Sequential::new().with(Dense::new(1)));
    let (x, y) = (full(&scope, 1e10, &[9, 3]), full(&scope, 1.0, &[9, 1]));
    let options = Fit::new().epochs(2).batch_size(3).verbose(verbose).callback(TerminateOnNaN::new());
    let history = model.fit((&x, &y), options).unwrap();
    assert_eq!(history.epochs.len(), 1);
    history.stop_reason
}

#[test]
#[ignore = "started by terminate_on_nan_says_why_it_stopped"]
fn overflows_in_lines() {
    overflow(Verbose::Lines);
}

#[test]
#[ignore = "started by terminate_on_nan_says_why_it_stopped"]
fn overflows_silently() {
    overflow(Verbose::Silent);
}

#[test]
fn terminate_on_nan_says_why_it_stopped() {
    assert_eq!(overflow(Verbose::Silent).as_deref(), Some(REASON));
    let said = |test: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", &format!("train::model::tests::{test}"), "--ignored", "--nocapture"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let lines = said("overflows_in_lines");
    let mut lines = lines.lines().skip_while(|line| *line != "Epoch 1/2").skip(1);
    assert_eq!(lines.next(), Some(REASON));
    assert!(lines.next().unwrap().starts_with("2/2 - "));
    assert!(!said("overflows_silently").contains(REASON));
}
