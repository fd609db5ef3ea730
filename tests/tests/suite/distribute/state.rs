//! State that training creates and changes in replicas: variables of layers, of optimizers and of random numbers, frozen variables.

use super::{agreed, copies, elements, machine, near, strategy, two};
use gradlet::distribute::{MirroredStrategy, PerReplica, ReduceOp, Replica, all_reduce, replica_id};
use gradlet::layers::{Activation, Dense, Dropout, Layer, Module, Sequential};
use gradlet::optimizers::{Adam, Optimizer, Sgd};
use gradlet::{Differentiate, Eager, Error, Function, Result, Scope, Shape, Tensor, Variable};
use gradlet_tests::random::Random;
use std::sync::Arc;

/// Inputs and targets.
type Pair = (Tensor, Tensor);

/// Returns a batch of a linear function.
fn batch(seed: u64, rows: u32) -> Result<Pair> {
    let (device, mut random) = (gradlet::portable_cpu(), Random::new(seed));
    let x: Vec<f32> = (0..rows * 3).map(|_| random.unit() as f32).collect();
    let y: Vec<f32> = x.chunks(3).map(|x| x[0] - 2.0 * x[1] + 0.5 * x[2]).collect();
    Ok((Tensor::new(&device, &x, &[rows, 3])?, Tensor::new(&device, &y, &[rows, 1])?))
}

/// A model with the parts of a training step.
struct Net {
    model: Sequential,
    optimizer: Box<dyn Optimizer>,
}

impl Net {
    /// Creates a model and an optimizer without variables.
    fn unbuilt(optimizer: impl Optimizer + 'static) -> Arc<Net> {
        let model = Sequential::new().with(Dense::new(4).activation(Activation::Tanh)).with(Dense::new(1));
        Arc::new(Net { model, optimizer: Box::new(optimizer) })
    }

    /// Does a training step on a part. The step creates the variables that do not exist yet. Returns the sum of the squared errors.
    fn step(&self, scope: &dyn Scope, (x, y): &Pair) -> Result<Tensor> {
        let tape = scope.tape();
        let error = self.model.apply(&tape, x)?.sub(y)?;
        let loss = error.mul(&error)?.sum(&[], false)?;
        self.optimizer.apply_gradients(scope, &tape.gradient(&loss, &self.model.trainable_variables())?)?;
        Ok(loss)
    }

    /// Returns the step as a function.
    fn traced(self: &Arc<Net>) -> Function<Pair, Tensor> {
        let own = self.clone();
        Function::new(move |scope: &dyn Scope, part: Pair| own.step(scope, &part))
    }

    fn variables(&self) -> Vec<Variable> {
        [self.model.variables(), self.optimizer.variables()].concat()
    }
}

/// Calls `step` in every replica with its part of a batch. Returns the sum of the losses.
fn train(strategy: &MirroredStrategy, batch: &Pair, step: impl Fn(&Replica<'_>, Pair) -> Result<Tensor> + Sync) -> Result<Tensor> {
    let parts = strategy.split(batch)?;
    let losses = strategy.run(|replica| step(replica, parts.values()[replica.replica_id()].clone()))?;
    strategy.reduce(ReduceOp::Sum, &losses, None)
}

#[test]
fn replicas_create_variables_with_a_copy_in_each() -> Result<()> {
    for strategy in [two()?, strategy(&machine(2).0)?] {
        for traced in [false, true] {
            let v = Variable::deferred("v");
            let own = v.clone();
            let body = move |scope: &dyn Scope| {
                own.create(scope, &Tensor::scalar(&scope.device(), 2.0f32))?;
                scope.read(&own)?.mul(&Tensor::scalar(&scope.device(), 3.0f32))
            };
            let function = Function::new({
                let body = body.clone();
                move |scope: &dyn Scope, (): ()| body(scope)
            });
            for _ in 0..2 {
                let values = strategy.run(|replica| if traced { function.call(replica, ()) } else { body(replica) })?;
                let values = values.values().iter().map(Tensor::item::<f32>).collect::<Result<Vec<_>>>()?;
                assert_eq!((values, elements(&strategy, &v)?), (vec![6.0, 6.0], vec![2.0, 2.0]), "traced: {traced}");
            }
            let devices: Vec<_> = v.copies().iter().map(Variable::device).collect::<Result<_>>()?;
            assert_eq!(devices, strategy.devices());
        }
    }
    Ok(())
}

#[test]
fn replicas_create_layers_and_the_state_of_an_optimizer() -> Result<()> {
    for strategy in [two()?, strategy(&machine(2).0)?] {
        for traced in [false, true] {
            let net = Net::unbuilt(Adam::new(0.01));
            let step = net.traced();
            let mut losses = Vec::new();
            for _ in 0..30 {
                let one = |replica: &Replica<'_>, part| if traced { step.call(replica, part) } else { net.step(replica, &part) };
                losses.push(train(&strategy, &batch(1, 7)?, one)?.item::<f32>()?);
                agreed(&strategy, &net.variables())?;
            }
            assert!(losses[29] < losses[0], "traced: {traced}: {losses:?}");
            // The iteration, the rate, and two averages for each of four variables.
            assert_eq!((net.model.variables().len(), net.optimizer.variables().len()), (4, 10));
            let iteration = net.optimizer.variables().swap_remove(0);
            assert_eq!(strategy.scope().read(&iteration)?.item::<i64>()?, 30);
        }
    }
    Ok(())
}

#[test]
fn a_frozen_variable_stays_in_all_replicas() -> Result<()> {
    let strategy = two()?;
    let net = Net::unbuilt(Sgd::new(0.05).momentum(0.9));
    net.model.build(&strategy.scope(), &Shape::new(&[1, 3])?)?;
    net.optimizer.build(&strategy.scope(), &net.model)?;
    let (step, all) = (net.traced(), net.model.variables());
    let changed = |frozen: usize| -> Result<Vec<bool>> {
        all.iter().enumerate().for_each(|(index, variable)| variable.set_trainable(index >= frozen));
        assert!(all[..frozen].iter().flat_map(Variable::copies).all(|copy| !copy.trainable()));
        let before = agreed(&strategy, &all)?;
        train(&strategy, &batch(2, 5)?, |replica, part| step.call(replica, part))?;
        let after = agreed(&strategy, &net.variables())?;
        Ok(before.iter().zip(&after).map(|(before, after)| before != after).collect())
    };
    for frozen in [0, 2, 3, 2, 0] {
        let wanted: Vec<bool> = (0..4).map(|index| index >= frozen).collect();
        assert_eq!(changed(frozen)?, wanted, "{frozen} variables are frozen");
    }
    // A variable that is frozen before it is created has frozen copies.
    let early = Variable::deferred("early");
    early.set_trainable(false);
    early.create(&strategy.scope(), &Tensor::scalar(&strategy.scope().device(), 1.0f32))?;
    assert!(early.copies().iter().all(|copy| !copy.trainable()));
    Ok(())
}

/// A step without an optimizer of its own: the program sums the gradients.
#[test]
fn a_program_can_sum_its_gradients() -> Result<()> {
    let strategy = two()?;
    let scope = strategy.scope();
    let w = Variable::new(&scope, "w", &Tensor::full(&scope.device(), 0.0f32, &[3, 1])?)?;
    let own = w.clone();
    let step = Function::new(move |scope: &dyn Scope, (x, y): Pair| {
        let tape = scope.tape();
        let error = x.matmul(&tape.read(&own)?)?.sub(&y)?;
        let loss = error.mul(&error)?.sum(&[], false)?;
        let gradient = tape.gradient(&loss, &own)?.ok_or(Error::Internal)?;
        let sum = all_reduce(scope, ReduceOp::Sum, &gradient)?;
        scope.assign_sub(&own, &sum.mul(&Tensor::scalar(&scope.device(), 0.05f32))?)?;
        Ok(loss)
    });
    for seed in 0..200 {
        train(&strategy, &batch(seed, 5)?, |replica, part| step.call(replica, part))?;
    }
    agreed(&strategy, std::slice::from_ref(&w))?;
    near(&scope.read(&w)?, &Tensor::new(&scope.device(), &[1.0f32, -2.0, 0.5], &[3, 1])?, 1e-3)
}

/// Returns the masks of three calls of dropout in each replica.
fn masks(strategy: &MirroredStrategy, traced: bool) -> Result<PerReplica<Vec<Vec<f32>>>> {
    let dropped = |scope: &dyn Scope, x: &Tensor| Dropout::new(0.5).call(scope, x);
    let function = Function::new(move |scope: &dyn Scope, x: Tensor| dropped(scope, &x));
    strategy.run(|replica| {
        let (scope, x) = (replica.with_training(true), Tensor::full(&replica.device(), 1.0f32, &[64])?);
        let call = || if traced { function.call(&scope, x.clone()) } else { dropped(&scope, &x) };
        (0..3).map(|_| call()?.to_vec::<f32>()).collect()
    })
}

#[test]
fn replicas_drop_different_elements() -> Result<()> {
    for context in [super::cpus(true, 2)?, machine(2).0] {
        let first = masks(&strategy(&context)?, false)?;
        let all = first.values().concat();
        assert_eq!(all.len(), 6);
        for (index, mask) in all.iter().enumerate() {
            assert!(mask.contains(&0.0) && mask.contains(&2.0), "{mask:?}");
            assert!(!all[..index].contains(mask), "two masks are equal");
        }
        // The masks depend on the seed only.
        assert_eq!(masks(&strategy(&context)?, false)?, first);
        assert_eq!(masks(&strategy(&context)?, true)?, first);
        let other = MirroredStrategy::with_seed(&context, &[], super::SEED + 1)?;
        assert_ne!(masks(&other, false)?, first);
    }
    Ok(())
}

/// A model without a strategy sees no copies: its variables and its steps are as before.
#[test]
fn a_scope_without_replicas_is_unchanged() -> Result<()> {
    let scope = Eager::with_seed(&gradlet::portable_cpu(), 1);
    let net = Net::unbuilt(Sgd::new(0.05));
    assert_eq!(replica_id(&scope), None);
    net.step(&scope, &batch(0, 4)?)?;
    assert!(net.variables().iter().all(|variable| variable.copies().is_empty()));
    let strategy = two()?;
    assert_eq!(replica_id(&strategy.scope()), None);
    assert!(copies(&strategy, &net.variables()[0])?.is_empty());
    Ok(())
}
