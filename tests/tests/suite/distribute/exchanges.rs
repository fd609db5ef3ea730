//! Values of replicas: sums, means and concatenations over replicas, their gradients, and datasets that are divided or dealt.

use super::{cpus, strategy, two};
use gradlet::device::AlignedBytes;
use gradlet::distribute::{
    Communicator, CrossDeviceOps, Exchange, InProcess, MirroredStrategy, PerReplica, ReduceOp, all_reduce, replica_id,
};
use gradlet::{DType, Dataset, Differentiate, Error, Function, Result, Scope, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Returns the number of the replica that traces or runs `scope`.
fn id(scope: &dyn Scope) -> Result<f32> {
    let id = replica_id(scope).ok_or_else(|| Error::message("this is no replica"))?;
    Ok(id as f32)
}

/// Creates a vector on the device of `scope`.
fn vector(scope: &dyn Scope, elements: &[f32]) -> Result<Tensor> {
    Tensor::new(&scope.device(), elements, &[elements.len() as u32])
}

/// Returns the elements of the value of each replica.
fn rows(values: &PerReplica<Tensor>) -> Result<Vec<Vec<f32>>> {
    values.values().iter().map(Tensor::to_vec::<f32>).collect()
}

#[test]
fn all_reduce_adds_and_averages_in_every_replica() -> Result<()> {
    for count in [1, 2, 3] {
        let strategy = strategy(&cpus(true, count)?)?;
        let sum = (0..count).map(|id| id as f32 + 1.0).sum::<f32>();
        for (op, wanted) in [(ReduceOp::Sum, sum), (ReduceOp::Mean, sum / count as f32)] {
            let traced = Function::new(move |scope: &dyn Scope, (): ()| {
                let own = id(scope)?;
                // Two calls take the place of TensorFlow's list of values.
                let first = all_reduce(scope, op, &vector(scope, &[own + 1.0, 10.0])?)?;
                let second = all_reduce(scope, op, &Tensor::scalar(&scope.device(), 2.0f32))?;
                Ok((first, second))
            });
            let total = if op == ReduceOp::Sum { count as f32 } else { 1.0 };
            for _ in 0..3 {
                for (first, second) in strategy.run(|replica| traced.call(replica, ()))?.values() {
                    assert_eq!(first.to_vec::<f32>()?, [wanted, 10.0 * total]);
                    assert_eq!(second.item::<f32>()?, 2.0 * total);
                }
                let eager = strategy.run(|replica| replica.all_reduce(op, &vector(replica, &[id(replica)? + 1.0])?))?;
                assert_eq!(rows(&eager)?, vec![vec![wanted]; count]);
            }
        }
    }
    Ok(())
}

#[test]
fn all_reduce_takes_every_number_that_can_be_added() -> Result<()> {
    let strategy = two()?;
    for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::F16, DType::Bf16] {
        let sums = strategy.run(|replica| {
            let value = vector(replica, &[id(replica)? + 1.0, 3.0])?.cast(dtype)?;
            let sum = replica.all_reduce(ReduceOp::Sum, &value)?;
            assert_eq!(sum.tensor_type(), value.tensor_type());
            sum.cast(DType::F32)
        })?;
        assert_eq!(rows(&sums)?, [[3.0, 6.0], [3.0, 6.0]], "{dtype}");
    }
    let empty = strategy.run(|replica| replica.all_reduce(ReduceOp::Sum, &vector(replica, &[])?))?;
    assert_eq!(rows(&empty)?, vec![Vec::<f32>::new(); 2]);
    assert!(strategy.run(|replica| replica.all_reduce(ReduceOp::Sum, &vector(replica, &[1.0])?.cast(DType::Bool)?)).is_err());
    Ok(())
}

#[test]
fn reductions_have_the_names_of_tensorflow() {
    assert_eq!(["sum", "SUM", "mean", "Mean"].map(|name| name.parse::<ReduceOp>().unwrap() == ReduceOp::Sum), [true, true, false, false]);
    assert!("max".parse::<ReduceOp>().unwrap_err().to_string().contains("\"max\" is not a reduction"));
}

/// Returns the gradient of a replica's loss, which is the combination of all x², times a factor of the replica's own.
fn gradient(scope: &dyn Scope, op: ReduceOp) -> Result<Tensor> {
    let (tape, own) = (scope.tape(), id(scope)?);
    let x = tape.watch(&vector(scope, &[own + 2.0])?)?;
    let loss = all_reduce(&tape, op, &x.mul(&x)?)?.mul(&Tensor::scalar(&scope.device(), own + 1.0))?;
    tape.gradient(&loss, &x)?.ok_or(Error::Internal)
}

/// Every replica's loss depends on the sum, so the gradient of each part has the sum of their factors.
#[test]
fn the_gradient_of_a_sum_is_the_sum_of_the_gradients() -> Result<()> {
    let strategy = two()?;
    // The factors are 1 and 2, and x is 2 and 3. The derivative of x² is 2x.
    for (op, wanted) in [(ReduceOp::Sum, [[12.0], [18.0]]), (ReduceOp::Mean, [[6.0], [9.0]])] {
        assert_eq!(rows(&strategy.run(|replica| gradient(replica, op))?)?, wanted, "{op:?}");
        let traced = Function::new(move |scope: &dyn Scope, (): ()| gradient(scope, op));
        assert_eq!(rows(&strategy.run(|replica| traced.call(replica, ()))?)?, wanted, "{op:?}, traced");
    }
    Ok(())
}

#[test]
fn all_gather_concatenates_parts_of_different_sizes() -> Result<()> {
    let strategy = two()?;
    let parts = strategy.run(|replica| {
        let id = replica.replica_id() as i32;
        replica.all_gather(&Tensor::full(&replica.device(), id, &[id as u32 + 1])?, 0)
    })?;
    for part in parts.values() {
        assert_eq!(part.to_vec::<i32>()?, [0, 1, 1]);
    }
    let wide = strategy.run(|replica| {
        let id = replica.replica_id() as u32;
        replica.all_gather(&Tensor::full(&replica.device(), id as f32, &[2, 2 * id])?, -1)
    })?;
    assert!(wide.values().iter().all(|part| part.dims() == [2, 2]));
    assert_eq!(rows(&wide)?, [[1.0; 4]; 2]);
    let places = wide.values().iter().map(|part| Ok(part.device()?.name().to_string())).collect::<Result<Vec<String>>>()?;
    assert_eq!(places, ["CPU:0", "CPU:1"]);
    let flags = strategy.run(|replica| {
        let flag = vector(replica, &[id(replica)?])?.cast(DType::Bool)?;
        replica.all_gather(&flag, 0)?.cast(DType::F32)
    })?;
    assert_eq!(rows(&flags)?, [[0.0, 1.0]; 2]);
    // The rows have different widths.
    let uneven = strategy.run(|replica| {
        let width = replica.replica_id() as u32 + 1;
        replica.all_gather(&Tensor::full(&replica.device(), 0u8, &[1, width])?, 0)
    });
    assert!(uneven.is_err());
    Ok(())
}

#[test]
fn gather_concatenates_on_the_first_device() -> Result<()> {
    let strategy = two()?;
    let parts = strategy.run(|replica| Tensor::full(&replica.device(), id(replica)?, &[2, 1]))?;
    let (tall, wide) = (strategy.gather(&parts, 0)?, strategy.gather(&parts, 1)?);
    assert_eq!((tall.dims(), tall.to_vec::<f32>()?), (&[4, 1][..], vec![0.0, 0.0, 1.0, 1.0]));
    assert_eq!((wide.dims(), wide.to_vec::<f32>()?), (&[2, 2][..], vec![0.0, 1.0, 0.0, 1.0]));
    assert_eq!(tall.device()?.name(), "CPU:0");
    assert!(strategy.gather(&parts, 2).is_err());
    Ok(())
}

#[test]
fn reduce_combines_replicas_and_then_an_axis() -> Result<()> {
    let strategy = two()?;
    let reduced = |op: &str, values: &PerReplica<Tensor>, axis: Option<i32>| strategy.reduce(op.parse()?, values, axis);
    let pairs = strategy.run(|replica| vector(replica, &[id(replica)?, 10.0]))?;
    assert_eq!(reduced("sum", &pairs, None)?.to_vec::<f32>()?, [1.0, 20.0]);
    assert_eq!(reduced("mean", &pairs, None)?.to_vec::<f32>()?, [0.5, 10.0]);
    assert_eq!(reduced("mean", &pairs, Some(0))?.item::<f32>()?, 5.25);
    assert_eq!(reduced("sum", &pairs, Some(-1))?.item::<f32>()?, 21.0);
    // Parts of an uneven batch: every element counts once.
    let uneven = strategy.run(|replica| vector(replica, [&[1.0, 2.0, 3.0][..], &[6.0, 8.0]][replica.replica_id()]))?;
    assert_eq!(reduced("mean", &uneven, Some(0))?.item::<f32>()?, 4.0);
    assert!(reduced("sum", &uneven, None).is_err());
    let error = reduced("sum", &pairs, Some(1)).unwrap_err().to_string();
    assert!(error.contains("f32[2] has no axis 1"), "{error}");
    assert!(reduced("max", &pairs, None).is_err());
    assert!(reduced("sum", &PerReplica::new(Vec::new()), None).is_err());
    Ok(())
}

#[test]
fn a_batch_is_divided_with_all_of_its_tensors() -> Result<()> {
    let strategy = strategy(&cpus(true, 3)?)?;
    let scope = strategy.scope();
    let x = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[4, 2])?;
    let parts = strategy.split(&(x.clone(), Some(vector(&scope, &[1.0, 2.0, 3.0, 4.0])?), 5i32))?;
    let dims: Vec<_> = parts.values().iter().map(|(x, y, number)| (x.dims().to_vec(), y.as_ref().unwrap().dims()[0], *number)).collect();
    assert_eq!(dims, [(vec![2, 2], 2, 5), (vec![2, 2], 2, 5), (vec![0, 2], 0, 5)]);
    assert_eq!(parts.get(1).unwrap().0.to_vec::<f32>()?, [5.0, 6.0, 7.0, 8.0]);
    // A replica without rows adds nothing.
    let sums = strategy.run(|replica| parts.values()[replica.replica_id()].0.sum(&[], false))?;
    assert_eq!(rows(&sums)?, [[10.0], [26.0], [0.0]]);
    let error = strategy.split(&(x, vector(&scope, &[1.0])?)).unwrap_err().to_string();
    assert!(error.contains("f32[1]"), "{error}");
    assert!(strategy.split(&Tensor::scalar(&scope.device(), 1.0f32)).is_err());
    Ok(())
}

/// Returns the numbers in each part, step by step. Checks the device of each part.
fn steps(strategy: &MirroredStrategy, batches: impl Iterator<Item = Result<PerReplica<Tensor>>>) -> Result<Vec<Vec<Vec<i64>>>> {
    let mut steps = Vec::new();
    for parts in batches {
        let parts = parts?;
        assert!(parts.values().iter().zip(strategy.devices()).all(|(part, device)| part.device().is_ok_and(|own| own == *device)));
        steps.push(parts.values().iter().map(Tensor::to_vec::<i64>).collect::<Result<_>>()?);
    }
    Ok(steps)
}

#[test]
fn datasets_are_divided_or_dealt() -> Result<()> {
    let strategy = two()?;
    let batches = Dataset::range(0..5).batch(2);
    let divided = steps(&strategy, strategy.distribute(&batches))?;
    assert_eq!(divided, [[vec![0], vec![1]], [vec![2], vec![3]], [vec![4], vec![]]]);
    let dealt = steps(&strategy, strategy.deal(&batches))?;
    assert_eq!(dealt, [[vec![0, 1], vec![2, 3]], [vec![4], vec![]]]);
    // Each pass begins again.
    assert_eq!(steps(&strategy, strategy.deal(&batches))?, dealt);
    assert!(strategy.deal(&Dataset::range(0..0).batch(2)).next().is_none());
    Ok(())
}

#[test]
fn an_error_of_a_dataset_ends_neither_kind_silently() -> Result<()> {
    let strategy = two()?;
    let numbers = Dataset::range(0..6).map(|number| if number < 4 { Ok(number) } else { Err(Error::message("no such number")) });
    let batches = numbers.batch(2);
    let divided: Vec<bool> = strategy.distribute(&batches).take(3).map(|parts| parts.is_ok()).collect();
    assert_eq!(divided, [true, true, false]);
    let dealt: Vec<bool> = strategy.deal(&batches).take(2).map(|parts| parts.is_ok()).collect();
    assert_eq!(dealt, [true, false]);
    Ok(())
}

/// Exchange between threads that counts the runs and the calls.
#[derive(Clone, Default)]
struct Counting {
    runs: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl CrossDeviceOps for Counting {
    fn begin(&self, replicas: usize, limit: Duration) -> Result<Arc<dyn Communicator>> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Counted { inner: InProcess.begin(replicas, limit)?, calls: self.calls.clone() }))
    }
}

struct Counted {
    inner: Arc<dyn Communicator>,
    calls: Arc<AtomicUsize>,
}

impl Communicator for Counted {
    fn all_gather(&self, rank: usize, what: Exchange, part: &[u8]) -> Result<Arc<[AlignedBytes]>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.all_gather(rank, what, part)
    }

    fn leave(&self, rank: usize, error: Option<&str>) {
        self.inner.leave(rank, error);
    }
}

#[test]
fn a_program_can_replace_the_exchange() -> Result<()> {
    let counting = Counting::default();
    let strategy = two()?.cross_device_ops(counting.clone());
    for run in 1..=3 {
        let sums = strategy.run(|replica| replica.all_reduce(ReduceOp::Sum, &vector(replica, &[id(replica)? + 1.0])?))?;
        assert_eq!(rows(&sums)?, [[3.0], [3.0]]);
        assert_eq!((counting.runs.load(Ordering::Relaxed), counting.calls.load(Ordering::Relaxed)), (run, 2 * run));
    }
    Ok(())
}
