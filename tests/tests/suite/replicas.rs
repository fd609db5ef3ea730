//! Replicas of a strategy: the same bits as sums in order on one device, and failures that end a run in time.

use gradlet::config::{Context, Environment, LogicalDeviceConfiguration};
use gradlet::distribute::{MirroredStrategy, ReduceOp};
use gradlet::layers::{Activation, Dense, Layer, Module, Sequential};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Optimizer, Sgd};
use gradlet::{Differentiate, Eager, Error, Function, Result, Scope, Shape, Tensor, Variable};
use gradlet_tests::hiding::HidingGpu;
use std::time::{Duration, Instant};

const ROWS: u32 = 12;

/// Divides the CPU of `context` into `count` logical ones with one thread each.
fn divided(context: Context, count: usize) -> Context {
    let cpu = &context.list_physical_devices(Some("CPU"))[0];
    context.set_logical_device_configuration(cpu, &vec![LogicalDeviceConfiguration::new().threads(1); count]).unwrap();
    context
}

fn contexts(count: usize) -> [Context; 3] {
    let environment = Environment::default();
    let all = [
        Context::with_devices([], &environment),
        Context::portable([], &environment),
        Context::of(HidingGpu::cpu(1 << 20), [], &environment),
    ];
    all.map(|context| divided(context, count))
}

fn strategy(count: usize) -> MirroredStrategy {
    MirroredStrategy::new(&divided(Context::portable([], &Environment::default()), count), &[]).unwrap()
}

fn model(scope: &Eager) -> Result<Sequential> {
    let model = Sequential::new().with(Dense::new(7).activation(Activation::Tanh)).with(Dense::new(3));
    model.build(scope, &Shape::new(&[1, 5])?)?;
    Ok(model)
}

/// Returns the share of a part of the batch in the loss of the whole one, and its gradients.
fn gradients(scope: &dyn Scope, model: &Sequential, x: &Tensor, y: &Tensor) -> Result<Vec<(Variable, Option<Tensor>)>> {
    let tape = scope.tape();
    let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(y, &model.apply(&tape, x)?)?;
    let share = loss.mul_scalar(f64::from(x.dims()[0]) / f64::from(ROWS))?;
    tape.gradient(&share, &model.trainable_variables())
}

fn weights(scope: &Eager, model: &Sequential) -> Result<Vec<Vec<f32>>> {
    model.variables().iter().map(|variable| scope.read(variable)?.to_vec()).collect()
}

/// Trains on two or three replicas, on one device part by part, and on one device with the undivided batch.
fn compare(context: &Context, count: usize) -> Result<()> {
    let strategy = MirroredStrategy::new(context, &[])?;
    assert_eq!(strategy.num_replicas_in_sync(), count);
    let one = Eager::new(&context.device("CPU:0")?);
    let (mirrored, parted, whole) = (model(&strategy.scope())?, model(&one)?, model(&one)?);
    for other in [&parted, &whole] {
        for (own, variable) in mirrored.variables().iter().zip(other.variables()) {
            one.assign(&variable, &strategy.scope().read(own)?.to(&one.device())?)?;
        }
    }
    let momentum = || Sgd::new(0.3).momentum(0.5);
    let (together, in_parts, at_once) = (momentum(), momentum(), momentum());
    together.build(&strategy.scope(), &mirrored)?;
    let variables = mirrored.variables();
    let step = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        together.apply_gradients(scope, &gradients(scope, &mirrored, &x, &y)?)?;
        x.sum(&[], false)
    });
    for number in 0..20u32 {
        let x = Tensor::random_uniform(&Eager::with_seed(&gradlet::portable_cpu(), number.into()), &[ROWS, 5])?;
        let labels: Vec<i32> = (0..ROWS).map(|row| ((row * 7 + number) % 3) as i32).collect();
        let y = Tensor::new(&gradlet::portable_cpu(), &labels, &[ROWS])?;
        let parts = strategy.split(&(x.clone(), y.clone()))?;
        strategy.run(|replica| step.call(replica, parts.get(replica.replica_id()).cloned().ok_or(Error::Internal)?))?;
        let mut sums = Vec::new();
        for (x, y) in parts.values() {
            let (x, y) = (x.to(&one.device())?, y.to(&one.device())?);
            let own = gradients(&one, &parted, &x, &y)?;
            sums = match sums.is_empty() {
                true => own,
                false => sums
                    .into_iter()
                    .zip(own)
                    .map(|((variable, sum), (_, own)): ((Variable, Option<Tensor>), _)| {
                        Ok((variable, Some(sum.ok_or(Error::Internal)?.add(&own.ok_or(Error::Internal)?)?)))
                    })
                    .collect::<Result<Vec<_>>>()?,
            };
        }
        in_parts.apply_gradients(&one, &sums)?;
        let (x, y) = (x.to(&one.device())?, y.to(&one.device())?);
        at_once.apply_gradients(&one, &gradients(&one, &whole, &x, &y)?)?;
        let (parted, whole) = (weights(&one, &parted)?, weights(&one, &whole)?);
        for ((variable, parted), whole) in variables.iter().zip(&parted).zip(&whole) {
            for copy in variable.copies() {
                let own = strategy.scope().read(&copy)?.to_vec::<f32>()?;
                assert!(own.iter().zip(parted).all(|(a, b)| a.to_bits() == b.to_bits()), "step {number}: {own:?}, {parted:?}");
                assert!(own.iter().zip(whole).all(|(a, b)| (a - b).abs() < 1e-5), "step {number}: {own:?}, {whole:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn replicas_have_the_bits_of_the_ordered_sum() -> Result<()> {
    for count in [2, 3] {
        contexts(count).iter().try_for_each(|context| compare(context, count))?;
    }
    Ok(())
}

/// Runs `wrong` on two replicas, and checks the error, the time, and that the strategy still works.
fn fails(limit: Duration, wanted: &str, wrong: impl Fn(&gradlet::distribute::Replica<'_>, &Tensor) -> Result<Tensor> + Sync) {
    let strategy = strategy(2).timeout(limit);
    let own = |replica: &gradlet::distribute::Replica<'_>| Tensor::scalar(&replica.device(), replica.replica_id() as f32 + 1.0);
    let others = std::sync::Mutex::new(Vec::new());
    let start = Instant::now();
    let run = strategy.run(|replica| {
        let result = wrong(replica, &own(replica));
        others.lock().unwrap().push(result.is_err());
        result
    });
    let error = run.err().unwrap().to_string();
    assert!(error.contains(wanted), "{error}");
    assert!(start.elapsed() < limit + Duration::from_secs(2), "{:?}", start.elapsed());
    let sums = strategy.run(|replica| replica.all_reduce(ReduceOp::Sum, &own(replica))?.item::<f32>()).unwrap();
    assert_eq!(sums.values(), [3.0, 3.0]);
}

#[test]
fn a_replica_that_fails_ends_the_run() {
    let long = Duration::from_secs(60);
    fails(long, "replica 1: no data", |replica, own| match replica.replica_id() {
        0 => replica.all_reduce(ReduceOp::Sum, own),
        _ => Err(Error::message("no data")),
    });
    fails(long, "replica 1: it panicked: no data", |replica, own| match replica.replica_id() {
        0 => replica.all_reduce(ReduceOp::Sum, own),
        _ => panic!("no data"),
    });
    fails(long, "replica 1 has ended without all_reduce (sum) of 1 elements f32, which replica 0 calls", |replica, own| {
        match replica.replica_id() {
            0 => replica.all_reduce(ReduceOp::Sum, own),
            _ => Ok(own.clone()),
        }
    });
    fails(long, "calls all_reduce (mean) of 1 elements f32, but replica", |replica, own| {
        replica.all_reduce(if replica.replica_id() == 0 { ReduceOp::Sum } else { ReduceOp::Mean }, own)
    });
    fails(long, "calls all_reduce (sum) of 2 elements f32, but replica", |replica, own| {
        let wide = Tensor::full(&replica.device(), 1.0f32, &[2])?;
        replica.all_reduce(ReduceOp::Sum, if replica.replica_id() == 0 { own } else { &wide })
    });
}

#[test]
fn a_replica_that_is_late_fails_the_others_in_time() {
    let limit = Duration::from_millis(200);
    fails(limit, "replica 1 did not arrive at all_reduce (sum) of 1 elements f32 within 200ms", |replica, own| {
        if replica.replica_id() == 1 {
            std::thread::sleep(3 * limit);
        }
        replica.all_reduce(ReduceOp::Sum, own)
    });
}

#[test]
fn collective_operations_need_a_replica() -> Result<()> {
    let strategy = strategy(2);
    let x = Tensor::scalar(&strategy.scope().device(), 1.0f32);
    assert!(gradlet::distribute::all_reduce(&strategy.scope(), ReduceOp::Sum, &x).is_err());
    assert!(strategy.run(|_| strategy.run(|_| Ok(())).map(drop)).is_err());
    // A run inside of a function that the strategy's own scope traces has other plans than a replica.
    let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
    assert_eq!(double.call(&strategy.scope(), x.clone())?.item::<f32>()?, 2.0);
    let doubled = strategy.run(|replica| double.call(replica, x.to(&replica.device())?)?.item::<f32>())?;
    assert_eq!(doubled.values(), [2.0, 2.0]);
    Ok(())
}

#[test]
fn all_reduce_has_a_gradient() -> Result<()> {
    let strategy = strategy(3);
    let gradients = strategy.run(|replica| {
        let tape = replica.tape();
        let x = tape.watch(&Tensor::scalar(&replica.device(), replica.replica_id() as f32 + 1.0))?;
        // The sum is 6 in each replica, and the loss of replica r is (r + 1) times the sum.
        let loss = gradlet::distribute::all_reduce(&tape, ReduceOp::Sum, &x)?.mul_scalar(replica.replica_id() as f64 + 1.0)?;
        tape.gradient(&loss, &x)?.ok_or(Error::Internal)?.item::<f32>()
    })?;
    assert_eq!(gradients.values(), [6.0; 3]);
    Ok(())
}
