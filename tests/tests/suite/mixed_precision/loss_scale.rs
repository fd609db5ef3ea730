//! `LossScaleOptimizer` against Keras's: scripted steps, checkpoints, replicas.

use crate::distribute::two;
use gradlet::checkpoint::Checkpoint;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Dense, Layer, Module, Sequential};
use gradlet_core::optimizers::{Adam, LossScaleOptimizer, Optimizer, Sgd};
use gradlet_core::{Artifact, Eager, Function, Program, Result, Scope, Session, Tensor, Variable, ops};
use gradlet_tests::golden::fixtures;
use serde_json::Value as Json;
use std::sync::Arc;

/// An optimizer around one of two, with the scale and the growth of the fixture.
type Scaled = LossScaleOptimizer<Box<dyn Optimizer>>;

fn script() -> Json {
    serde_json::from_str(include_str!("../../../fixtures/loss_scale/steps.json")).unwrap()
}

fn optimizer(name: &str, script: &Json) -> Scaled {
    let inner: Box<dyn Optimizer> = if name == "sgd" { Box::new(Sgd::new(0.5).momentum(0.9)) } else { Box::new(Adam::new(0.1)) };
    let (scale, growth) = (script["initial_scale"].as_f64().unwrap() as f32, script["dynamic_growth_steps"].as_u64().unwrap() as u32);
    LossScaleOptimizer::new(inner).initial_scale(scale).dynamic_growth_steps(growth)
}

fn numbers(json: &Json) -> Vec<f32> {
    let number = |json: &Json| json.as_f64().map_or_else(|| json.as_str().unwrap().parse().unwrap(), |number| number as f32);
    json.as_array().unwrap().iter().map(number).collect()
}

/// Two variables, an optimizer for them, and a step with their gradients times a factor.
struct Setting {
    scope: Eager,
    variables: Vec<Variable>,
    optimizer: Arc<Scaled>,
    step: Function<(Tensor, Tensor, Tensor), Tensor>,
}

impl Setting {
    fn new(name: &str, script: &Json) -> Setting {
        let scope = Eager::new(&ops::portable_cpu());
        let values: [&[f32]; 2] = [&[1.0, -2.0, 3.0], &[0.5]];
        let value = |values: &[f32]| Tensor::new(&scope.device(), values, &[values.len() as u32]).unwrap();
        let variables: Vec<Variable> =
            values.iter().zip(["a", "b"]).map(|(values, name)| Variable::new(&scope, name, &value(values)).unwrap()).collect();
        let optimizer = Arc::new(optimizer(name, script));
        optimizer.build(&scope, &variables).unwrap();
        let (trained, applied) = (variables.clone(), optimizer.clone());
        let step = Function::new(move |scope: &dyn Scope, (a, b, factor): (Tensor, Tensor, Tensor)| {
            // The square of the factor is infinite in steps that must be skipped. A device would refuse an infinite input.
            let factor = factor.square()?;
            let (a, b) = (a.mul(&factor)?, b.mul(&factor)?);
            let scaled = applied.scale_loss(scope, &Tensor::scalar(&scope.device(), 1.0f32))?;
            applied.apply_gradients(scope, &[(trained[0].clone(), Some(a)), (trained[1].clone(), Some(b))])?;
            Ok(scaled)
        });
        Setting { scope, variables, optimizer, step }
    }

    /// Returns the gradients of a step, and the factor that makes them infinite or NaN if they are in the script.
    fn gradients(&self, step: &Json) -> (Tensor, Tensor, Tensor) {
        let rows = [0, 1].map(|index| numbers(&step["gradients"][index]));
        let finite = rows.iter().flatten().all(|x| x.is_finite());
        let tensor = |row: &Vec<f32>| {
            let row: Vec<f32> = row.iter().map(|&x| if x.is_finite() { x } else { 0.0 }).collect();
            Tensor::new(&self.scope.device(), &row, &[row.len() as u32]).unwrap()
        };
        let factor = Tensor::scalar(&self.scope.device(), if finite { 1.0f32 } else { 1e30 });
        (tensor(&rows[0]), tensor(&rows[1]), factor)
    }

    /// Returns the value of an own variable of the optimizer, or of the one inside.
    fn own(&self, path: &str) -> f64 {
        let (_, variable) = self.optimizer.named_variables().into_iter().find(|(name, _)| name == path).unwrap();
        self.scope.read(&variable).unwrap().cast(gradlet_core::DType::F64).unwrap().item().unwrap()
    }

    fn values(&self) -> Vec<Vec<f32>> {
        self.variables.iter().map(|variable| self.scope.read(variable).unwrap().to_vec().unwrap()).collect()
    }

    /// Compares the variables with Keras's after a step.
    fn check(&self, at: &str, step: &Json) {
        for (got, want) in self.values().iter().zip(step["values"].as_array().unwrap()) {
            let near = |(got, want): (&f32, f32)| (got - want).abs() <= 2e-6 * (1.0 + want.abs());
            assert!(got.iter().zip(numbers(want)).all(near), "{at}: {got:?}, not {want}");
        }
        assert_eq!(self.own("dynamic_scale"), step["dynamic_scale"].as_f64().unwrap(), "{at}");
        assert_eq!(self.own("step_counter"), step["step_counter"].as_f64().unwrap(), "{at}");
        assert_eq!(self.own("inner_optimizer/iteration"), step["iterations"].as_f64().unwrap(), "{at}");
    }
}

fn each(test: impl Fn(&str, &Json, &[Json])) {
    let script = script();
    for run in script["runs"].as_array().unwrap() {
        test(run["optimizer"].as_str().unwrap(), &script, run["steps"].as_array().unwrap());
    }
}

/// Eagerly and compiled, the scale, the counters and the variables are Keras's. A step with a gradient that is not finite changes no
/// variable of the model or of the optimizer inside.
#[test]
fn steps_are_keras_steps() {
    each(|name, script, steps| {
        for compiled in [false, true] {
            let setting = Setting::new(name, script);
            for (number, step) in steps.iter().enumerate() {
                let at = format!("{name}, compiled: {compiled}, step {number}");
                let before = (setting.values(), setting.optimizer.inner_optimizer().variables());
                let bits = |variables: &[Variable]| -> Vec<Vec<u8>> {
                    variables.iter().map(|variable| setting.scope.read(variable).unwrap().bytes().unwrap().to_vec()).collect()
                };
                let state = bits(&before.1);
                let (a, b, factor) = setting.gradients(step);
                let finite = factor.item::<f32>().unwrap() == 1.0;
                let scaled = match compiled {
                    true => setting.step.call(&setting.scope, (a, b, factor)).unwrap(),
                    false => {
                        let device = setting.scope.device();
                        let scaled = setting.optimizer.scale_loss(&setting.scope, &Tensor::scalar(&device, 1.0f32)).unwrap();
                        let raw = |index: usize| {
                            let row = numbers(&step["gradients"][index]);
                            Some(Tensor::new(&device, &row, &[row.len() as u32]).unwrap())
                        };
                        let gradients: Vec<_> = setting.variables.iter().cloned().zip([raw(0), raw(1)]).collect();
                        setting.optimizer.apply_gradients(&setting.scope, &gradients).unwrap();
                        scaled
                    }
                };
                assert_eq!(f64::from(scaled.item::<f32>().unwrap()), step["scaled_loss"].as_f64().unwrap(), "{at}");
                setting.check(&at, step);
                assert_eq!(finite, setting.values() != before.0, "{at}");
                assert_eq!(finite, bits(&before.1) != state, "{at}");
            }
            assert_eq!(setting.step.traces(), usize::from(compiled));
        }
    });
}

/// An exported step does the same without a heap, with the bits of the compiled one.
#[test]
fn exported_steps_are_keras_steps() {
    each(|name, script, steps| {
        let (host, exported) = (Setting::new(name, script), Setting::new(name, script));
        let concrete = exported.step.concrete(&exported.scope, &exported.gradients(&steps[0])).unwrap();
        let mut artifact = Artifact::new();
        artifact.signature("train", &concrete, &["a", "b", "factor"], &["scaled"]).unwrap();
        let bytes = artifact.to_bytes().unwrap();
        let program = Program::load(&bytes, ops::KERNELS, &["train"]).unwrap();
        let (signature, mut arena) = (program.signature("train").unwrap(), AlignedBytes::zeroed(program.arena_bytes()));
        let mut session = Session::new(&program, &mut arena).unwrap();
        for (number, step) in steps.iter().enumerate() {
            let (a, b, factor) = host.gradients(step);
            for (index, input) in [&a, &b, &factor].into_iter().enumerate() {
                session.input_bytes_mut(signature, index).unwrap().copy_from_slice(&input.bytes().unwrap());
            }
            session.run(signature).unwrap();
            let scaled = host.step.call(&host.scope, (a, b, factor)).unwrap();
            assert_eq!(session.output_bytes(signature, 0).unwrap(), &*scaled.bytes().unwrap(), "{name}, step {number}");
        }
        let described = gradlet_core::artifact::describe::Description::read(&bytes).unwrap();
        let mut seen = 0;
        let own = [host.optimizer.named_variables(), host.variables.iter().map(|v| (v.name().to_string(), v.clone())).collect()].concat();
        for (index, variable) in described.variables.iter().enumerate() {
            // The optimizer inside comes after the one around it, which has the same names.
            let (_, found) =
                own.iter().rev().find(|(name, _)| *name == variable.name || name.ends_with(&format!("/{}", variable.name))).unwrap();
            assert_eq!(session.variable(index).unwrap(), &*host.scope.read(found).unwrap().bytes().unwrap(), "{name}: {}", variable.name);
            seen += 1;
        }
        assert!(seen >= 7, "{seen} variables");
    });
}

/// Keras's checkpoint restores every variable, and ours has the same keys.
#[test]
fn checkpoints_are_keras_checkpoints() {
    let (script, scope) = (script(), Eager::new(&ops::portable_cpu()));
    let model = Sequential::new().with(Dense::new(2));
    model.output_type(&scope, Tensor::full(&scope.device(), 1.0f32, &[1, 3]).unwrap().tensor_type()).unwrap();
    for early in [false, true] {
        let optimizer = optimizer("adam", &script);
        if !early {
            optimizer.build(&scope, &model).unwrap();
        }
        let checkpoint = Checkpoint::new().with("model", &model).with("optimizer", &optimizer);
        let status = checkpoint.read(fixtures("loss_scale").join("checkpoint-1")).unwrap();
        // The values of variables that the optimizer creates later wait for them.
        optimizer.build(&scope, &model).unwrap();
        status.assert_existing_objects_matched().unwrap();
        let variables = optimizer.variables();
        let wanted = script["checkpoint"].as_array().unwrap();
        assert_eq!(variables.len(), wanted.len());
        for (variable, wanted) in variables.iter().zip(wanted) {
            let value = scope.read(variable).unwrap().cast(gradlet_core::DType::F32).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(value, numbers(&wanted["data"]), "{}", variable.name());
        }
        let folder = tempfile::tempdir().unwrap();
        let keys = |prefix: &std::path::Path| -> Vec<String> {
            let reader = gradlet::checkpoint::bundle::BundleReader::open(prefix).unwrap();
            reader.entries().map(|(key, _)| key.to_string()).collect()
        };
        let written = checkpoint.write(folder.path().join("checkpoint-1")).unwrap();
        assert_eq!(keys(&written), keys(&fixtures("loss_scale").join("checkpoint-1")));
    }
}

/// If the gradients of one replica are not finite, no replica changes its variables.
#[test]
fn all_replicas_skip_a_step() -> Result<()> {
    for compiled in [false, true] {
        let strategy = two()?;
        let scope = strategy.scope();
        let w = Variable::new(&scope, "w", &Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?)?;
        let optimizer = Arc::new(LossScaleOptimizer::new(Sgd::new(0.5)).initial_scale(8.0).dynamic_growth_steps(2));
        optimizer.build(&scope, &w)?;
        let (trained, applied) = (w.clone(), optimizer.clone());
        let step = Function::new(move |scope: &dyn Scope, g: Tensor| {
            applied.apply_gradients(scope, &[(trained.clone(), Some(g))])?;
            applied.dynamic_scale(scope)
        });
        let mut scales = Vec::new();
        for infinite in [None, Some(1), Some(0), None, None] {
            let results = strategy.run(|replica| {
                let factor = if infinite == Some(replica.replica_id()) { f32::INFINITY } else { 1.0 };
                let g = optimizer.dynamic_scale(replica)?.mul_scalar(f64::from(factor))?.broadcast_to(&[2])?;
                if compiled {
                    return step.call(replica, g)?.item::<f32>();
                }
                optimizer.apply_gradients(replica, &[(w.clone(), Some(g))])?;
                optimizer.dynamic_scale(replica)?.item::<f32>()
            })?;
            let results: Vec<f32> = results.into_values();
            assert_eq!(results[0], results[1]);
            scales.push(results[0]);
        }
        assert_eq!(scales, [8.0, 4.0, 2.0, 2.0, 4.0], "compiled: {compiled}");
        // Three steps, each with a gradient of 1 from both replicas.
        for copy in w.copies() {
            assert_eq!(scope.read(&copy)?.to_vec::<f32>()?, [-2.0, -1.0]);
        }
    }
    Ok(())
}
