//! Training in mixed precision: `fit`, exported steps, and the digits.

#[path = "../../../../std-host/examples/mixed_precision.rs"]
#[allow(dead_code)]
mod example;

use example::{accuracy, network};
use gradlet::datasets::digits;
use gradlet::layers::{BatchNormalization, Dense, Layer, Module, Sequential};
use gradlet::losses::MeanSquaredError;
use gradlet::optimizers::{Adam, LossScaleOptimizer, Optimizer, Sgd};
use gradlet::train::{Compile, Fit, Model, Verbose};
use gradlet::{Artifact, DType, DTypePolicy, Eager, Program, Result, Scope, Session, Tensor, Variable};
use gradlet_core::device::AlignedBytes;
use std::path::Path;
use std::sync::Arc;

/// Returns the value of the optimizer's variable `name`, or `None` if it has none.
fn scale(model: &Model) -> Option<f32> {
    let variables = model.optimizer().unwrap().variables();
    let scale = variables.iter().find(|variable| variable.name() == "dynamic_scale")?;
    Some(model.scope().read(scale).unwrap().item().unwrap())
}

/// `compile` wraps the optimizer of a model with the policy `mixed_float16`, once, unless it is told not to.
#[test]
fn compile_scales_the_loss() -> Result<()> {
    let trained = |policy: DTypePolicy, configure: &dyn Fn() -> Compile| -> Result<Option<f32>> {
        let scope = Eager::with_seed(&gradlet::portable_cpu(), 1);
        let mut model = Model::new(&scope, Sequential::new().with(Dense::new(1)).dtype(policy));
        model.compile(configure())?;
        let (x, y) = (Tensor::full(&scope.device(), 0.25f32, &[4, 2])?, Tensor::full(&scope.device(), 0.0f32, &[4, 1])?);
        let history = model.fit((&x, &y), Fit::new().epochs(2).verbose(Verbose::Silent))?;
        // The loss is reported without the scale.
        assert!(history.get("loss")[0] < 100.0 && history.get("loss")[1] < history.get("loss")[0]);
        assert_eq!(model.predict(&x)?.dtype(), policy.compute_dtype());
        Ok(scale(&model))
    };
    let plain = || Compile::new(Sgd::new(0.01), MeanSquaredError);
    assert_eq!(trained(DTypePolicy::MixedFloat16, &plain)?, Some(32768.0));
    assert_eq!(trained(DTypePolicy::MixedFloat16, &|| plain().run_eagerly(true))?, Some(32768.0));
    assert_eq!(trained(DTypePolicy::MixedFloat16, &|| plain().auto_scale_loss(false))?, None);
    assert_eq!(trained(DTypePolicy::MixedBfloat16, &plain)?, None);
    assert_eq!(trained(DTypePolicy::Float32, &plain)?, None);
    let scaled = || Compile::new(LossScaleOptimizer::new(Sgd::new(0.01)).initial_scale(256.0), MeanSquaredError);
    assert_eq!(trained(DTypePolicy::MixedFloat16, &scaled)?, Some(256.0));
    Ok(())
}

/// A scale that overflows f16 makes `fit` skip steps and halve the scale, until the gradients are finite. Skipped steps change neither the
/// model nor the state of the optimizer.
#[test]
fn fit_finds_a_scale() -> Result<()> {
    let scope = Eager::with_seed(&gradlet::portable_cpu(), 1);
    let mut model = Model::new(&scope, Sequential::new().with(Dense::new(8)).with(Dense::new(1)).dtype(DTypePolicy::MixedFloat16));
    model.compile(Compile::new(LossScaleOptimizer::new(Adam::new(0.01)).initial_scale(65536.0 * 64.0), MeanSquaredError))?;
    let (x, y) = (Tensor::full(&scope.device(), 1.0f32, &[4, 2])?, Tensor::full(&scope.device(), 9.0f32, &[4, 1])?);
    let bits = |model: &Model| -> Result<Vec<Vec<u8>>> {
        let own = ["dynamic_scale", "step_counter"];
        let variables = [model.layer().variables(), model.optimizer()?.variables()].concat();
        let kept = variables.iter().filter(|variable| !own.contains(&variable.name()));
        kept.map(|variable| Ok(scope.read(variable)?.bytes()?.to_vec())).collect()
    };
    let mut skipped = 0;
    model.train_on_batch((&x, &y))?;
    for _ in 0..40 {
        let (before, old) = (bits(&model)?, scale(&model));
        model.train_on_batch((&x, &y))?;
        let overflowed = scale(&model) < old;
        assert_eq!(bits(&model)? == before, overflowed);
        skipped += usize::from(overflowed);
    }
    assert!((4..30).contains(&skipped), "{skipped} steps were skipped");
    Ok(())
}

/// An exported step of mixed precision, with its loss scale, has the bits of the compiled one, also in the step that it skips.
#[test]
fn exported_steps_have_the_bits_of_the_host() -> Result<()> {
    for policy in [DTypePolicy::MixedFloat16, DTypePolicy::MixedBfloat16] {
        let setting = || {
            let scope = Eager::with_seed(&gradlet::portable_cpu(), 2);
            let layers = Sequential::new().with(Dense::new(4)).with(BatchNormalization::default()).with(Dense::new(3));
            let model = Arc::new(layers.dtype(policy));
            let input = Tensor::full(&scope.device(), 1.0f32, &[2, 5])?.tensor_type();
            model.output_type(&scope, input)?;
            // Gradients of f16 overflow with this scale.
            let optimizer = Arc::new(LossScaleOptimizer::new(Adam::new(0.01)).initial_scale(262_144.0));
            optimizer.build(&scope, &*model)?;
            let step = gradlet::train::step(&model, optimizer.clone(), model.trainable_variables());
            Ok::<_, gradlet::Error>((scope, model, optimizer, step))
        };
        let ((scope, model, optimizer, step), (other, _, _, exported)) = (setting()?, setting()?);
        let (mut random, labels) = (gradlet_tests::random::Random::new(1), Tensor::new(&scope.device(), &[0i32, 2], &[2])?);
        let concrete = exported.concrete(&other.with_training(true), &(Tensor::full(&scope.device(), 1.0f32, &[2, 5])?, labels.clone()))?;
        let mut artifact = Artifact::new();
        artifact.signature("train", &concrete, &["x", "y"], &["loss"])?;
        let bytes = artifact.to_bytes()?;
        let program = Program::load(&bytes, gradlet::ops::KERNELS, &["train"])?;
        let (signature, mut arena) = (program.signature("train")?, AlignedBytes::zeroed(program.arena_bytes()));
        let mut session = Session::new(&program, &mut arena)?;
        for number in 0..6 {
            let x: Vec<f32> = (0..10).map(|_| random.unit() as f32).collect();
            session.input_bytes_mut(signature, 0)?.copy_from_slice(bytemuck::cast_slice(&x));
            session.input_bytes_mut(signature, 1)?.copy_from_slice(&labels.bytes()?);
            session.run(signature)?;
            let loss = step.call(&scope.with_training(true), (Tensor::new(&scope.device(), &x, &[2, 5])?, labels.clone()))?;
            assert_eq!(session.output_bytes(signature, 0)?, &*loss.bytes()?, "{policy}, step {number}");
        }
        let skipped = optimizer.dynamic_scale(&scope)?.item::<f32>()? < 262_144.0;
        assert_eq!(skipped, policy == DTypePolicy::MixedFloat16);
        let kernel: Variable = model.variables()[0].clone();
        assert_eq!(kernel.tensor_type()?.dtype, DType::F32);
        let value = scope.read(&kernel)?;
        assert!((0..).map_while(|index| session.variable(index).ok()).any(|bytes| *bytes == *value.bytes().unwrap()));
    }
    Ok(())
}

/// The handbook's network, made smaller, learns digits in 16 bits as well as in 32: the accuracies are within 0.2 points.
#[test]
fn digits_in_16_bits() -> Result<()> {
    let (train, test) = digits::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k"))).unwrap();
    let (train, test) = (train.first(1500), test.first(1000));
    let mut accuracies = Vec::new();
    for policy in [DTypePolicy::Float32, DTypePolicy::MixedFloat16, DTypePolicy::MixedBfloat16] {
        // Portable kernels have the same bits on all machines.
        let scope = Eager::with_seed(&gradlet::portable_cpu(), 2);
        let (model, accuracy) = accuracy(&scope, network(policy, 4, 32), [&train, &test], 4)?;
        assert_eq!(scale(&model), (policy == DTypePolicy::MixedFloat16).then_some(32768.0), "no step was skipped");
        accuracies.push(100.0 * accuracy);
    }
    assert!(accuracies[0] > 88.0 && accuracies.iter().all(|other| (other - accuracies[0]).abs() <= 0.2), "{accuracies:?}");
    Ok(())
}
