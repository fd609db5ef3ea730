//! Threads that use a strategy or a communicator in another way than a run does.

use super::two;
use gradlet::distribute::{CrossDeviceOps, Exchange, InProcess, ReduceOp, all_reduce};
use gradlet::{DType, Error, Function, Result, Scope, Tensor, Variable};
use std::thread;
use std::time::Duration;

const SUM: Exchange = Exchange { name: "sum", dtype: DType::F32, bytes: Some(8) };

#[test]
fn two_threads_run_replicas_one_after_the_other() -> Result<()> {
    let strategy = two()?;
    let scope = strategy.scope();
    let total = Variable::new(&scope, "total", &Tensor::scalar(&scope.device(), 0.0f32))?;
    let own = total.clone();
    let step = Function::new(move |scope: &dyn Scope, x: Tensor| {
        scope.assign_add(&own, &all_reduce(scope, ReduceOp::Sum, &x)?)?;
        Ok(x)
    });
    let run = || strategy.run(|replica| step.call(replica, Tensor::scalar(&replica.device(), 1.0f32)).map(drop));
    thread::scope(|threads| {
        let all: Vec<_> = (0..4).map(|_| threads.spawn(|| (0..25).try_for_each(|_| run().map(drop)))).collect();
        all.into_iter().try_for_each(|one| one.join().map_err(|_| Error::Internal)?)
    })?;
    for copy in total.copies() {
        assert_eq!(scope.read(&copy)?.item::<f32>()?, 200.0);
    }
    Ok(())
}

#[test]
fn replicas_may_wait_for_ever() -> Result<()> {
    let strategy = two()?.timeout(Duration::MAX);
    let sums = strategy.run(|replica| {
        thread::sleep(Duration::from_millis(20 * replica.replica_id() as u64));
        replica.all_reduce(ReduceOp::Sum, &Tensor::scalar(&replica.device(), 2.0f32))?.item::<f32>()
    })?;
    assert_eq!(sums.values(), [4.0, 4.0]);
    Ok(())
}

#[test]
fn a_replica_that_calls_twice_at_once_fails() -> Result<()> {
    let communicator = InProcess.begin(2, Duration::from_secs(60))?;
    let call = |rank| communicator.all_reduce(rank, SUM, bytemuck::cast_slice_mut(&mut [1.0f32, 2.0]));
    // Whichever of the two comes second fails both. A third call of the other replica does not save them.
    let results = thread::scope(|threads| [0, 0].map(|rank| threads.spawn(move || call(rank))).map(|one| one.join().unwrap()));
    for result in results {
        assert!(result.unwrap_err().to_string().contains("replica 0 calls sum of 2 elements f32 while another call"));
    }
    assert!(call(1).is_err());
    Ok(())
}

#[test]
fn a_sum_does_not_meet_a_gathering() -> Result<()> {
    let communicator = InProcess.begin(2, Duration::from_secs(60))?;
    let (gathered, added) = thread::scope(|threads| {
        let gathered = threads.spawn(|| communicator.all_gather(0, SUM, &[0; 8]).map(drop));
        let added = communicator.all_reduce(1, SUM, &mut [0; 8]);
        (gathered.join().unwrap(), added)
    });
    assert!(gathered.is_err() && added.is_err());
    Ok(())
}
