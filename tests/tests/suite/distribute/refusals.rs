//! Devices that refuse memory or fail in one replica: all replicas get an error, and their variables stay equal or the error says so.

use super::equality::{Replicated, batch};
use super::{differing, machine, strategy};
use gradlet::config::{Context, Environment, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet::distribute::{ReduceOp, Replica};
use gradlet::optimizers::{Adam, Optimizer, Sgd};
use gradlet::{Error, Result, Scope, Tensor, Variable};
use gradlet_tests::hiding::{Counts, Hiding};

/// Largest number of places of a step at which a test lets a device fail.
const PLACES: u64 = 400;

/// Way in which a device fails.
struct Way {
    /// Tells the device to fail after this number of further uses, or not to fail any more.
    tell: fn(&Hiding, Option<u64>),
    /// Returns the number of uses.
    count: fn(&Counts) -> u64,
    /// Text of the error.
    text: &'static str,
    /// True if the error must say that variables may have changed, unless all copies are equal.
    whole: bool,
}

const REFUSES_MEMORY: Way = Way { tell: Hiding::refuse_after, count: |counts| counts.allocations, text: "has no memory for", whole: true };
const FAILS: Way = Way { tell: Hiding::fail_after, count: |counts| counts.launches, text: "was told to fail", whole: false };

/// Returns the values of all copies. While somebody holds them, new values need memory of their own.
fn held(net: &Replicated) -> Result<Vec<Tensor>> {
    let scope = net.strategy.scope();
    net.net.variables().iter().flat_map(Variable::copies).map(|copy| scope.read(&copy)).collect()
}

/// Gives the value of the first copy of each variable to all copies.
fn repair(net: &Replicated) -> Result<()> {
    let scope = net.strategy.scope();
    net.net.variables().iter().try_for_each(|variable| scope.assign(variable, &scope.read(variable)?))
}

/// Lets the device of replica `rank` fail at every place of a step, after `good` steps that work. All replicas must then work again. After
/// a refusal of memory, their copies must be equal or the error must say that they may not be.
fn fails_at_every_place(way: &Way, rank: usize, good: u64, new: fn() -> Box<dyn Optimizer>) -> Result<()> {
    for place in 0..PLACES {
        let (context, gpus) = machine(2);
        let net = Replicated::new(&strategy(&context)?, new())?;
        (0..good).try_for_each(|step| net.train(&batch(step, 5)?).map(drop))?;
        let hiding = gpus[rank].created()[0].0.clone();
        let (parts, held) = (net.strategy.split(&batch(good, 5)?)?, held(&net)?);
        (way.tell)(&hiding, Some(place));
        let (result, counts) = hiding.during(|| net.run(&parts));
        (way.tell)(&hiding, None);
        let reached = (way.count)(&counts) > place;
        let name = format!("place {place} of replica {rank} after {good} steps");
        match result {
            Ok(losses) => {
                assert!(!reached, "{name}: the failure was lost");
                assert_eq!(losses.values().len(), 2);
                assert!(place > 3, "{name}: the device was hardly used");
                return net.bits().map(drop);
            }
            Err(error) => {
                let text = error.to_string();
                assert!(reached && text.contains(way.text) && text.contains(&format!("replica {rank}")), "{name}: {text}");
                let differ = differing(&net.strategy, &net.net.variables())?;
                let told = differ.is_empty() || !way.whole || text.contains("may have changed");
                assert!(told, "{name}: the copies of {differ:?} differ, but the error is {text}");
                repair(&net)?;
                net.train(&batch(good, 5)?)?;
                net.bits()?;
            }
        }
        drop(held);
    }
    panic!("the step has more than {PLACES} places");
}

#[test]
fn a_refusal_of_memory_in_one_replica_keeps_the_copies_equal() -> Result<()> {
    for rank in [0, 1] {
        for good in [0, 1] {
            fails_at_every_place(&REFUSES_MEMORY, rank, good, || Box::new(Sgd::new(0.1)))?;
            fails_at_every_place(&REFUSES_MEMORY, rank, good, || Box::new(Adam::new(0.01)))?;
        }
    }
    Ok(())
}

#[test]
fn a_failure_of_one_device_is_an_error_of_the_run() -> Result<()> {
    for rank in [0, 1] {
        fails_at_every_place(&FAILS, rank, 1, || Box::new(Sgd::new(0.1)))?;
        fails_at_every_place(&FAILS, rank, 1, || Box::new(Adam::new(0.01)))?;
    }
    Ok(())
}

/// A caller of the optimizer without a function of its own.
#[test]
fn an_eager_step_that_is_refused_keeps_the_copies_equal_or_says_so() -> Result<()> {
    for place in 0..PLACES {
        let (context, gpus) = machine(2);
        let net = Replicated::new(&strategy(&context)?, Box::new(Adam::new(0.01)))?;
        let (hiding, batch) = (gpus[1].created()[0].0.clone(), batch(0, 5)?);
        hiding.refuse_after(Some(place));
        let (result, counts) = hiding.during(|| net.train_eagerly(&batch));
        hiding.refuse_after(None);
        let Err(error) = result else {
            assert!(counts.allocations <= place && place > 3, "place {place}: the refusal was lost");
            return net.bits().map(drop);
        };
        assert!(error.to_string().contains("has no memory for"), "place {place}: {error}");
        let differ = differing(&net.strategy, &net.net.variables())?;
        assert!(differ.is_empty() || error.to_string().contains("changed"), "place {place}: the copies of {differ:?} differ, {error}");
    }
    panic!("the step has more than {PLACES} places");
}

/// Returns the sum of a large tensor and of those of the other replicas.
fn large(replica: &Replica<'_>, count: u32) -> Result<Tensor> {
    let value = Tensor::full(&replica.device(), 1.0f32, &[count])?;
    replica.all_reduce(ReduceOp::Sum, &value)
}

#[test]
fn a_limit_of_one_logical_cpu_is_an_error_of_all_replicas() -> Result<()> {
    let context = Context::portable([], &Environment::default());
    let sizes = [LogicalDeviceConfiguration::new(), LogicalDeviceConfiguration::new().memory_limit_bytes(1 << 12)];
    context.set_logical_device_configuration(&PhysicalDevice::new("CPU", 0), &sizes)?;
    let strategy = strategy(&context)?;
    for _ in 0..2 {
        let error = strategy.run(|replica| large(replica, 10_000)).unwrap_err();
        assert!(matches!(error.root(), Error::OutOfMemory(shortage) if shortage.device == "CPU:1"), "{error}");
        assert!(error.to_string().starts_with("replica 1"), "{error}");
        let sums = strategy.run(|replica| large(replica, 10)?.to_vec::<f32>())?;
        assert_eq!(sums.values(), [vec![2.0; 10], vec![2.0; 10]]);
    }
    Ok(())
}
