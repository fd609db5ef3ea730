//! A compiled step allocates nothing after its first run, neither in training nor in inference. An eager optimizer step allocates no second
//! copy of the weights.

use crate::counting::{COUNT, HELD, LARGEST};
use gradlet_core::layers::{Activation, Dense, Layer, Module, Sequential};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::optimizers::{Adam, Optimizer, Sgd};
use gradlet_core::{DType, Differentiate, Eager, Function, Scope, Shape, Tensor, TensorSpec, Variable, ops};
use std::sync::Arc;

/// Counts the allocations of `work`.
fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn a_compiled_step_allocates_nothing() {
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) > 0, "allocations are counted");
    let scope = Eager::new(&ops::portable_cpu());
    let model = Arc::new(Sequential::new().with(Dense::new(20).activation(Activation::Relu)).with(Dense::new(3)));
    model.build(&scope, &Shape::new(&[8, 5]).unwrap()).unwrap();
    let (trained, adam) = (model.clone(), Adam::new(0.01));
    let train = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.tape();
        let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&y, &trained.call(&tape, &x)?)?;
        adam.apply_gradients(scope, &tape.gradient(&loss, &trained.trainable_variables())?)?;
        Ok(loss)
    });
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x));
    let x = Tensor::full(&scope.device(), 0.5f32, &[8, 5]).unwrap();
    let y = Tensor::full(&scope.device(), 1i32, &[8]).unwrap();
    let losses: Vec<(usize, f32)> = (0..5)
        .map(|_| {
            let mut loss = None;
            let count = allocations(|| loss = train.call(&scope, (x.clone(), y.clone())).ok());
            (count, loss.unwrap().item().unwrap())
        })
        .collect();
    assert!(losses.windows(2).all(|pair| pair[1].1 < pair[0].1), "{losses:?}");
    assert!(losses.iter().skip(1).all(|&(count, _)| count == 0), "{losses:?}");
    let calls: Vec<usize> = (0..5).map(|_| allocations(|| drop(infer.call(&scope, x.clone()).unwrap()))).collect();
    assert!(calls.iter().skip(1).all(|&count| count == 0), "{calls:?}");
}

#[test]
fn an_eager_step_changes_the_weights_in_place() {
    let scope = Eager::new(&ops::portable_cpu());
    let weights = |value: f32| Tensor::full(&scope.device(), value, &[100, 100]).unwrap();
    let variable = Variable::new(&scope, "w", &weights(1.0)).unwrap();
    for optimizer in [Box::new(Adam::new(0.01)) as Box<dyn Optimizer>, Box::new(Sgd::new(0.01))] {
        let gradients = [(variable.clone(), Some(weights(0.5)))];
        let before = scope.read(&variable).unwrap().to_vec::<f32>().unwrap();
        optimizer.apply_gradients(&scope, &gradients).unwrap();
        LARGEST.set(0);
        optimizer.apply_gradients(&scope, &gradients).unwrap();
        assert!(LARGEST.get() < 4000, "{} bytes", LARGEST.get());
        assert!(scope.read(&variable).unwrap().to_vec::<f32>().unwrap()[9999] < before[9999]);
    }
}

/// Calls a sequence model with sequences of 600 different lengths. Without a limit on the number of plans, these would hold several hundred
/// megabytes.
#[test]
fn plans_of_many_lengths_hold_little() {
    let scope = Eager::new(&ops::portable_cpu());
    let model = Arc::new(Sequential::new().with(Dense::new(64).activation(Activation::Relu)).with(Dense::new(64)).with(Dense::new(1)));
    model.build(&scope, &Shape::new(&[1, 16]).unwrap()).unwrap();
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x)?.sum(&[], false));
    let infer = infer.with_signature(&[TensorSpec::new(DType::F32, &[None, Some(16)])]);
    let call = |length: u32| {
        let x = Tensor::full(&scope.device(), 0.5f32, &[length, 16]).unwrap();
        infer.call(&scope, x).unwrap().item::<f32>().unwrap()
    };
    /// Upper limit in bytes, for 64 plans and the scratch memory of the longest sequence.
    const BOUND: isize = 2 << 20;
    let first = call(1);
    let before = HELD.get();
    for length in 1..=600 {
        let sum = call(length);
        assert!((sum - first * length as f32).abs() <= 1e-3 * sum.abs(), "{sum} for {length} rows");
    }
    let held = HELD.get() - before;
    assert!(held < BOUND, "{held} bytes");
    // The first call plans again, because its plan was dropped. The second uses the plan.
    assert_eq!(call(1), first);
    assert_eq!(call(1), first);
    assert!(HELD.get() - before < BOUND);
}
