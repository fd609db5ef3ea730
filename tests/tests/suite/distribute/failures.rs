//! Replicas that fail: every other replica gets an error that says why, nothing waits longer than it must, and the strategy works again.

use super::{cpus, elements, machine, strategy, two};
use gradlet::distribute::{Communicator, CrossDeviceOps, MirroredStrategy, ReduceOp, Replica, all_reduce, replica_id};
use gradlet::{Eager, Error, Function, Result, Scope, Tensor, Variable};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limit of the time that replicas wait for each other, in tests that exceed it.
const LIMIT: Duration = Duration::from_millis(200);
/// Time that a busy machine may take for anything that does not wait.
const SLACK: Duration = Duration::from_secs(20);

/// Adds a vector of `count` elements over the replicas. Each replica's elements are its number plus 1.
fn sum(scope: &dyn Scope, count: u32) -> Result<Tensor> {
    let id = replica_id(scope).unwrap_or(0) as f32;
    all_reduce(scope, ReduceOp::Sum, &Tensor::full(&scope.device(), id + 1.0, &[count])?)
}

/// Errors of a run.
struct Failure {
    /// The error that `run` returned.
    whole: String,
    /// The error of each replica that returned one.
    replicas: Vec<Option<String>>,
    elapsed: Duration,
}

impl Failure {
    /// Runs `body`, which must fail.
    fn of(strategy: &MirroredStrategy, body: impl Fn(&Replica<'_>) -> Result<()> + Sync) -> Failure {
        let replicas = Mutex::new(vec![None; strategy.num_replicas_in_sync()]);
        let start = Instant::now();
        let result = strategy.run(|replica| {
            let own = body(replica);
            replicas.lock().unwrap()[replica.replica_id()] = own.as_ref().err().map(ToString::to_string);
            own
        });
        let whole = result.expect_err("the run must fail").to_string();
        Failure { whole, replicas: replicas.into_inner().unwrap(), elapsed: start.elapsed() }
    }

    /// Checks that the error of the run and those of the replicas `failed` contain all of `words`, and that no other replica failed. Checks
    /// that nothing waited for a limit.
    fn tells(&self, failed: &[usize], words: &[&str]) {
        let all = |text: &str| words.iter().all(|word| text.contains(word));
        assert!(all(&self.whole), "{words:?} are not in {:?}", self.whole);
        for (rank, error) in self.replicas.iter().enumerate() {
            match error {
                Some(error) => assert!(failed.contains(&rank) && all(error), "{words:?} are not in {error:?} of replica {rank}"),
                None => assert!(!failed.contains(&rank), "replica {rank} did not fail"),
            }
        }
        assert!(self.elapsed < SLACK, "{:?}", self.elapsed);
    }
}

/// Checks that a strategy computes the right sums, eagerly and in a function.
fn works(strategy: &MirroredStrategy) -> Result<()> {
    let count = strategy.num_replicas_in_sync();
    let wanted = (1..=count).sum::<usize>() as f32;
    let function = Function::new(|scope: &dyn Scope, (): ()| sum(scope, 3));
    for traced in [false, true] {
        let sums = strategy.run(|replica| if traced { function.call(replica, ()) } else { sum(replica, 3) })?;
        for sum in sums.values() {
            assert_eq!(sum.to_vec::<f32>()?, [wanted; 3]);
        }
    }
    Ok(())
}

/// Sets how long the replicas wait for each other. Clones of a strategy have the same limit.
fn set_limit(strategy: &MirroredStrategy, limit: Duration) {
    drop(strategy.clone().timeout(limit));
}

/// True for the replica that fails in these tests.
fn is_last(replica: &Replica<'_>) -> bool {
    replica.replica_id() + 1 == replica.num_replicas_in_sync()
}

/// Returns strategies with two and three CPUs, and with two hidden GPUs.
fn strategies() -> Result<[MirroredStrategy; 3]> {
    Ok([two()?, strategy(&cpus(true, 3)?)?, strategy(&machine(2).0)?])
}

#[test]
fn an_error_of_one_replica_reaches_all() -> Result<()> {
    for strategy in strategies()? {
        let last = strategy.num_replicas_in_sync() - 1;
        let name = format!("replica {last}");
        for calls in [0, 1, 5] {
            let failure = Failure::of(&strategy, |replica| {
                (0..calls).try_for_each(|_| sum(replica, 2).map(drop))?;
                if is_last(replica) {
                    return Err(Error::message("there is no data"));
                }
                sum(replica, 2).map(drop)
            });
            let every: Vec<usize> = (0..=last).collect();
            failure.tells(&every, &["there is no data"]);
            assert!(failure.whole.starts_with(&name), "{:?} does not begin with {name}", failure.whole);
            let others = &failure.replicas[..last];
            assert!(others.iter().flatten().all(|error| error.contains(&format!("{name} failed"))), "{others:?}");
            works(&strategy)?;
        }
    }
    Ok(())
}

#[test]
fn a_panic_of_one_replica_reaches_all() -> Result<()> {
    for strategy in strategies()? {
        let last = strategy.num_replicas_in_sync() - 1;
        let others: Vec<usize> = (0..last).collect();
        let failure = Failure::of(&strategy, |replica| {
            assert!(!is_last(replica), "this replica is tired");
            sum(replica, 2).map(drop)
        });
        failure.tells(&others, &[&format!("replica {last}"), "panicked", "this replica is tired"]);
        works(&strategy)?;
        // The first replica runs on the thread of the caller.
        let failure = Failure::of(&strategy, |replica| {
            assert!(replica.replica_id() > 0, "{} is tired, too", replica.replica_id());
            sum(replica, 2).map(drop)
        });
        let others: Vec<usize> = (1..=last).collect();
        failure.tells(&others, &["replica 0", "panicked", "0 is tired, too"]);
        works(&strategy)?;
    }
    Ok(())
}

#[test]
fn a_replica_that_ends_early_is_named_with_the_call() -> Result<()> {
    for strategy in strategies()? {
        let last = strategy.num_replicas_in_sync() - 1;
        let others: Vec<usize> = (0..last).collect();
        let words = [format!("replica {last} has ended"), "all_reduce (sum) of 2 elements f32".into()];
        let words = words.each_ref().map(String::as_str);
        for calls in [0, 1, 3] {
            // The other replicas call once more.
            let failure = Failure::of(&strategy, |replica| {
                let own = if is_last(replica) { calls } else { calls + 1 };
                (0..own).try_for_each(|_| sum(replica, 2).map(drop))
            });
            failure.tells(&others, &words);
            works(&strategy)?;
        }
        // It has ended before the others call.
        let failure = Failure::of(&strategy, |replica| {
            if is_last(replica) {
                return Ok(());
            }
            sleep(LIMIT);
            sum(replica, 2).map(drop)
        });
        failure.tells(&others, &words);
        works(&strategy)?;
    }
    Ok(())
}

/// A collective call of one of two replicas.
type Call = fn(&Replica<'_>) -> Result<Tensor>;

#[test]
fn different_calls_are_named_with_their_replicas() -> Result<()> {
    let mean: Call = |replica| replica.all_reduce(ReduceOp::Mean, &Tensor::full(&replica.device(), 1.0f32, &[2])?);
    let integers: Call = |replica| replica.all_reduce(ReduceOp::Sum, &Tensor::full(&replica.device(), 1i32, &[2])?);
    let gather: Call = |replica| replica.all_gather(&Tensor::full(&replica.device(), 1.0f32, &[2])?, 0);
    let [usual, long]: [Call; 2] = [|replica| sum(replica, 2), |replica| sum(replica, 3)];
    let cases = [
        (long, "all_reduce (sum) of 3 elements f32"),
        (mean, "all_reduce (mean) of 2 elements f32"),
        (integers, "all_reduce (sum) of 2 elements i32"),
        (gather, "all_gather"),
    ];
    for strategy in [two()?, strategy(&machine(2).0)?] {
        for (other, name) in cases {
            for swapped in [false, true] {
                let failure = Failure::of(&strategy, |replica| {
                    let call = if (replica.replica_id() == 0) == swapped { other } else { usual };
                    call(replica).map(drop)
                });
                let words = ["replica 0 calls", "replica 1 calls", "all_reduce (sum) of 2 elements f32", name];
                failure.tells(&[0, 1], &words);
                works(&strategy)?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_late_replica_makes_all_fail_at_the_limit() -> Result<()> {
    for strategy in strategies()? {
        set_limit(&strategy, LIMIT);
        let last = strategy.num_replicas_in_sync() - 1;
        let waited = Mutex::new(Vec::new());
        let failure = Failure::of(&strategy, |replica| {
            if is_last(replica) {
                sleep(5 * LIMIT);
                return sum(replica, 2).map(drop);
            }
            let start = Instant::now();
            let result = sum(replica, 2).map(drop);
            waited.lock().unwrap().push(start.elapsed());
            result
        });
        let every: Vec<usize> = (0..=last).collect();
        let words = [format!("replica {last} did not arrive"), "all_reduce (sum) of 2 elements f32".into(), format!("{LIMIT:?}")];
        failure.tells(&every, &words.each_ref().map(String::as_str));
        let waited = waited.into_inner().unwrap();
        assert_eq!(waited.len(), last);
        assert!(waited.iter().all(|waited| (LIMIT / 2..SLACK).contains(waited)), "{waited:?}");
        set_limit(&strategy, SLACK);
        works(&strategy)?;
    }
    Ok(())
}

#[test]
fn replicas_that_fail_in_a_function_leave_it_usable() -> Result<()> {
    for strategy in [two()?, strategy(&machine(2).0)?] {
        let scope = strategy.scope();
        let total = Variable::new(&scope, "total", &Tensor::full(&scope.device(), 0.0f32, &[2])?)?;
        let own = total.clone();
        let step = Function::new(move |scope: &dyn Scope, (): ()| {
            let sum = sum(scope, 2)?;
            scope.assign_add(&own, &sum)?;
            Ok(sum)
        });
        let mut wanted = 0.0;
        for absent in [0, 1, 0] {
            strategy.run(|replica| step.call(replica, ()))?;
            wanted += 3.0;
            assert_eq!(elements(&strategy, &total)?, [wanted; 4]);
            for sleeps in [false, true] {
                set_limit(&strategy, if sleeps { LIMIT } else { SLACK });
                let failure = Failure::of(&strategy, |replica| {
                    if replica.replica_id() == absent && !sleeps {
                        return Err(Error::message("not today"));
                    }
                    sleep(if replica.replica_id() == absent { 5 * LIMIT } else { Duration::ZERO });
                    step.call(replica, ()).map(drop)
                });
                let reason = if sleeps { format!("replica {absent} did not arrive") } else { "not today".into() };
                failure.tells(&[0, 1], &[&reason]);
                assert_eq!(elements(&strategy, &total)?, [wanted; 4], "a variable changed");
            }
            set_limit(&strategy, SLACK);
        }
        works(&strategy)?;
    }
    Ok(())
}

#[test]
fn replicas_do_not_run_replicas() -> Result<()> {
    let (strategy, other) = (two()?, two()?);
    let failure = Failure::of(&strategy, |_| strategy.run(|_| Ok(())).map(drop));
    failure.tells(&[0, 1], &["a replica cannot run replicas"]);
    let failure = Failure::of(&strategy, |_| other.run(|_| Ok(())).map(drop));
    failure.tells(&[0, 1], &["a replica cannot run replicas"]);
    works(&strategy)?;
    works(&other)
}

#[test]
fn collective_operations_need_a_replica() -> Result<()> {
    let strategy = two()?;
    for scope in [strategy.scope(), Eager::new(&gradlet::portable_cpu())] {
        let error = sum(&scope, 2).unwrap_err().to_string();
        assert!(error.contains("all_reduce needs a replica"), "{error}");
        let function = Function::new(|scope: &dyn Scope, (): ()| sum(scope, 2));
        assert!(function.call(&scope, ()).is_err());
    }
    // A thread that a replica starts has no place in the run.
    let failure =
        Failure::of(&strategy, |replica| std::thread::scope(|threads| threads.spawn(|| sum(replica, 2)).join().unwrap()).map(drop));
    failure.tells(&[0, 1], &["need a replica"]);
    works(&strategy)
}

#[test]
fn replicas_have_different_devices() -> Result<()> {
    let context = cpus(true, 2)?;
    for (names, wanted) in [
        (["CPU:0", "CPU:0"], "twice"),
        (["CPU:0", "/device:CPU:0"], "twice"),
        (["cpu:1", "/job:localhost/replica:0/task:0/device:CPU:1"], "twice"),
        (["CPU:0", "nonsense"], "not the name of a device"),
    ] {
        let error = MirroredStrategy::new(&context, &names).map(drop).unwrap_err().to_string();
        assert!(error.contains(wanted), "{names:?}: {error}");
    }
    // With soft placement, another device takes the place of one that does not exist.
    let soft = MirroredStrategy::new(&context, &["CPU:0", "CPU:5"])?;
    assert_eq!(soft.num_replicas_in_sync(), 2);
    works(&soft)?;
    let v = Variable::new(&soft.scope(), "v", &Tensor::scalar(&soft.scope().device(), 1.0f32))?;
    soft.run(|replica| replica.assign(&v, &Tensor::scalar(&replica.device(), replica.replica_id() as f32)))?;
    assert_eq!(elements(&soft, &v)?, [0.0, 1.0]);
    context.set_soft_device_placement(false);
    let error = MirroredStrategy::new(&context, &["CPU:0", "CPU:5"]).map(drop).unwrap_err().to_string();
    assert!(error.contains("CPU:5"), "{error}");
    works(&MirroredStrategy::new(&context, &["CPU:1", "CPU:0"])?)
}

/// Exchange that cannot begin.
struct Broken;

impl CrossDeviceOps for Broken {
    fn begin(&self, _: usize, _: Duration) -> Result<Arc<dyn Communicator>> {
        Err(Error::message("the cable is out"))
    }
}

#[test]
fn a_run_needs_an_exchange() -> Result<()> {
    let strategy = two()?.cross_device_ops(Broken);
    let failure = Failure::of(&strategy, |_| Ok(()));
    failure.tells(&[], &["the cable is out"]);
    Ok(())
}
