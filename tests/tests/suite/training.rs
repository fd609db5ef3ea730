//! Checks that a training step, with its fused ops, has the same bits eagerly, compiled and exported.

use gradlet_core::device::AlignedBytes;
use gradlet_core::optimizers::{Adam, Optimizer, Sgd};
use gradlet_core::{Artifact, Eager, Function, Program, Result, Scope, Session, Tensor, ops};
use gradlet_tests::mlp::Mlp;
use gradlet_tests::random::Random;

const STEPS: usize = 100;

/// Returns a random sample: an image of four pixels, and a label, the index of the brighter half.
fn sample(random: &mut Random) -> ([f32; 4], i32) {
    let x = [(); 4].map(|()| random.unit() as f32);
    (x, i32::from(x[0] + x[1] > x[2] + x[3]))
}

fn tensors(scope: &Eager, (x, label): ([f32; 4], i32)) -> Result<(Tensor, Tensor)> {
    Ok((Tensor::new(&scope.device(), &x, &[1, 4])?, Tensor::new(&scope.device(), &[label], &[1])?))
}

/// Returns the bits of the loss and of every weight.
fn state(scope: &Eager, mlp: &Mlp, loss: &Tensor) -> Result<Vec<Vec<u32>>> {
    let bits = |tensor: &Tensor| Ok(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect());
    let weights = mlp.variables.iter().map(|variable| bits(&scope.read(variable)?));
    std::iter::once(bits(loss)).chain(weights).collect()
}

#[test]
fn every_step_has_the_same_bits() -> Result<()> {
    same_bits("matmul_sgd", || Box::new(Sgd::new(0.1)))?;
    same_bits("matmul_adam", || Box::new(Adam::new(0.01)))
}

fn same_bits(fused: &str, optimizer: fn() -> Box<dyn Optimizer>) -> Result<()> {
    let scope = Eager::new(&ops::portable_cpu());
    let (eager, traced) = (Mlp::with(&scope, optimizer())?, std::sync::Arc::new(Mlp::with(&scope, optimizer())?));
    let body = traced.clone();
    let compiled = Function::new(move |scope: &dyn Scope, (x, labels): (Tensor, Tensor)| body.step(scope, &x, &labels));

    let mut random = Random::new(1);
    let concrete = compiled.concrete(&scope, &tensors(&scope, sample(&mut random))?)?;
    let found = concrete.graph().nodes.iter().any(|node| node.op.def.name == fused);
    assert!(found, "no gradient was fused with its step into {fused}");
    let mut artifact = Artifact::new();
    // Named variables come first in the artifact, in this order.
    artifact.variables(traced.variables.iter().map(|variable| (variable.name().into(), variable.clone())).collect());
    artifact.signature("train", &concrete, &["x", "labels"], &["loss"])?;
    let bytes = artifact.to_bytes()?;
    let program = Program::load(&bytes, ops::KERNELS, &["train"])?;
    let train = program.signature("train")?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;

    for step in 0..STEPS {
        let (x, label) = sample(&mut random);
        let (inputs, labels) = tensors(&scope, (x, label))?;
        let loss = eager.step(&scope, &inputs, &labels)?;
        let wanted = state(&scope, &eager, &loss)?;
        let loss = compiled.call(&scope, (inputs, labels))?;
        assert_eq!(state(&scope, &traced, &loss)?, wanted, "compiled, step {step}");

        session.input_mut::<f32>(train, 0)?.copy_from_slice(&x);
        session.input_mut::<i32>(train, 1)?.copy_from_slice(&[label]);
        session.run(train)?;
        let words = |bytes: &[u8]| bytemuck::cast_slice::<u8, u32>(bytes).to_vec();
        assert_eq!(words(session.output_bytes(train, 0)?), wanted[0], "exported, step {step}");
        for (index, wanted) in wanted[1..].iter().enumerate() {
            assert_eq!(words(session.variable(index)?), *wanted, "exported, step {step}, variable {index}");
        }
    }
    Ok(())
}
