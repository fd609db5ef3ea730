//! The strategy that keeps a copy of every variable on each device.

use super::per_replica::PerReplica;
use crate::compute::collective::all_reduce::{self, Seat};
use crate::compute::collective::hub::{CrossDeviceOps, Exchange, ReduceOp};
use crate::config::Context;
use crate::data::Dataset;
use gradlet_core::custom_op::Op;
use gradlet_core::function::Structure;
use gradlet_core::replicas::{Replicas, Role};
use gradlet_core::scope::ScopeHandle;
use gradlet_core::{DType, Device, Eager, Error, Result, Scope, Shape, Tensor, TensorType};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time that replicas wait for each other before they fail, unless the program sets another one.
const PATIENCE: Duration = Duration::from_secs(300);

/// Synchronous training with a replica on each of several devices: TensorFlow's `tf.distribute.MirroredStrategy`. Clones are the same
/// strategy. The [module](super) has an example.
#[doc(alias = "tf.distribute.MirroredStrategy")]
#[derive(Clone)]
pub struct MirroredStrategy {
    runner: Arc<Runner>,
    scope: Eager,
}

/// The part of a strategy that its scope holds.
pub(crate) struct Runner {
    mirrors: Arc<Mirrors>,
    /// The scope of each replica.
    scopes: Vec<Eager>,
    settings: Mutex<Settings>,
    /// Held during a run. Replicas of two runs would wait for each other's functions and for their own runs.
    running: Mutex<()>,
}

#[derive(Clone)]
struct Settings {
    limit: Duration,
    cross_device_ops: Arc<dyn CrossDeviceOps>,
}

/// Returns how replicas exchange data, unless the program says otherwise.
fn usual_ops() -> Arc<dyn CrossDeviceOps> {
    #[cfg(feature = "cuda")]
    return Arc::new(super::NcclAllReduce::new());
    #[cfg(not(feature = "cuda"))]
    Arc::new(super::InProcess)
}

/// The devices of the replicas. The runner holds the scopes of the replicas, so these hold only this part of it.
struct Mirrors {
    devices: Vec<Device>,
}

impl Replicas for Mirrors {
    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn reduction(&self) -> &'static Op {
        &all_reduce::OP
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Replicas for Runner {
    fn devices(&self) -> &[Device] {
        &self.mirrors.devices
    }

    fn reduction(&self) -> &'static Op {
        self.mirrors.reduction()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Calls `work` with the strategy whose scope this is. Returns `None` for any other scope.
pub(crate) fn with_runner<R>(scope: &dyn Scope, work: impl FnOnce(&Runner) -> R) -> Option<R> {
    let role = scope.handle().role().filter(|role| role.rank.is_none())?;
    role.replicas.as_any().downcast_ref().map(work)
}

impl MirroredStrategy {
    /// Creates a strategy on the devices of a context with these names. Without names, uses all GPUs, or all CPUs if there are no GPUs.
    ///
    /// Fails if a name occurs twice or is not that of a device. A device that does not exist is replaced if placement is soft, otherwise it
    /// is an error.
    pub fn new(context: &Context, devices: &[&str]) -> Result<MirroredStrategy> {
        MirroredStrategy::with_seed(context, devices, 0)
    }

    /// Creates a strategy with this random seed: see [`MirroredStrategy::new`].
    pub fn with_seed(context: &Context, devices: &[&str], seed: u64) -> Result<MirroredStrategy> {
        let mut own: Vec<Device> = Vec::new();
        for &name in devices {
            // A device that does not exist is replaced. Its account of the memory distinguishes it from the replacement.
            let device = context.placed(name)?.map_or_else(|| Ok(context.group()?.alone().limited(u64::MAX)), Ok::<_, Error>)?;
            if own.contains(&device) {
                return Err(Error::message(format!("the device {name:?} occurs twice: each replica needs its own")));
            }
            own.push(device);
        }
        if devices.is_empty() {
            let all = context.list_logical_devices(None)?;
            let gpus = all.iter().any(|one| one.device_type() != "CPU");
            own = all.iter().filter(|one| (one.device_type() != "CPU") == gpus).map(|one| one.device().clone()).collect();
        }
        let mirrors = Arc::new(Mirrors { devices: own });
        let of = |(rank, device): (usize, &Device)| {
            let role = Role { replicas: mirrors.clone(), rank: Some(rank) };
            // Other random numbers than those of the initial values, and of the other replicas.
            Eager::with_role(device, seed ^ (rank as u64 + 1) << 32, role)
        };
        let scopes = mirrors.devices.iter().enumerate().map(of).collect();
        let settings = Mutex::new(Settings { limit: PATIENCE, cross_device_ops: usual_ops() });
        let runner = Arc::new(Runner { mirrors, scopes, settings, running: Mutex::default() });
        let scope = Eager::with_role(&context.group()?, seed, Role { replicas: runner.clone(), rank: None });
        Ok(MirroredStrategy { runner, scope })
    }

    /// Sets how long replicas wait for each other in a collective operation before all of them fail. The default is 5 minutes.
    pub fn timeout(self, limit: Duration) -> MirroredStrategy {
        self.runner.settings().limit = limit;
        self
    }

    /// Sets how replicas exchange data. The default is [`InProcess`](super::InProcess), and with the feature `cuda` `NcclAllReduce`, which
    /// differs from it only for GPUs.
    pub fn cross_device_ops(self, ops: impl CrossDeviceOps + 'static) -> MirroredStrategy {
        self.runner.settings().cross_device_ops = Arc::new(ops);
        self
    }

    /// Returns the number of replicas.
    pub fn num_replicas_in_sync(&self) -> usize {
        self.devices().len()
    }

    /// Returns the device of each replica: TensorFlow's `extended.worker_devices`.
    pub fn devices(&self) -> &[Device] {
        &self.runner.mirrors.devices
    }

    /// Returns the scope around the replicas. A variable that is created in it has a copy on each device, and an assignment sets all of
    /// them.
    pub fn scope(&self) -> Eager {
        self.scope.clone()
    }

    /// Calls `body` once for each replica, each on a thread of its own, and returns the results.
    ///
    /// Fails if a replica fails or panics, and if replicas do not agree on their collective operations. The other replicas then fail in
    /// their next one. The strategy can be used again. Another thread that calls this waits until the run has ended.
    pub fn run<R: Send>(&self, body: impl Fn(&Replica<'_>) -> Result<R> + Sync) -> Result<PerReplica<R>> {
        self.runner.run(body)
    }

    /// Combines the values of the replicas into one on the first device. With an axis, also combines the elements along that axis: the
    /// mean is that over all elements.
    pub fn reduce(&self, op: ReduceOp, values: &PerReplica<Tensor>, axis: Option<i32>) -> Result<Tensor> {
        let first = self.devices().first().ok_or(Error::Internal)?;
        let mut total: Option<Tensor> = None;
        let mut count = 0;
        for value in values.values() {
            let mut value = value.to(first)?;
            if let Some(axis) = axis {
                let position = usize::try_from(if axis < 0 { axis + value.dims().len() as i32 } else { axis }).unwrap_or(usize::MAX);
                let rows = value.dims().get(position);
                let outside = || Error::message(format!("a tensor {} has no axis {axis}", value.tensor_type()));
                count += *rows.ok_or_else(outside)? as usize;
                value = value.sum(&[axis], false)?;
            } else {
                count += 1;
            }
            total = Some(match total {
                Some(total) if total.tensor_type() != value.tensor_type() => {
                    let (one, other) = (total.tensor_type(), value.tensor_type());
                    return Err(Error::message(format!("the replicas have a {one} and a {other}, which cannot be combined")));
                }
                Some(total) => total.add(&value)?,
                None => value,
            });
        }
        let total = total.ok_or_else(|| Error::message("there are no values to reduce"))?;
        match op {
            ReduceOp::Sum => Ok(total),
            ReduceOp::Mean if total.dtype().is_float() => total.div(&Tensor::scalar(first, count as f32).cast(total.dtype())?),
            ReduceOp::Mean => total.truncatediv(&Tensor::scalar(first, count as i32).cast(total.dtype())?),
        }
    }

    /// Concatenates the values of the replicas along an axis, on the first device.
    pub fn gather(&self, values: &PerReplica<Tensor>, axis: i32) -> Result<Tensor> {
        let first = self.devices().first().ok_or(Error::Internal)?;
        let values = values.values().iter().map(|value| value.to(first)).collect::<Result<Vec<_>>>()?;
        Tensor::concat(&values, axis)
    }

    /// Divides a batch among the replicas along its first axis, as TensorFlow does: all parts have as many rows, except that the last
    /// ones may have fewer or none.
    pub fn split<T: Structure>(&self, batch: &T) -> Result<PerReplica<T>> {
        self.runner.split(batch)
    }

    /// Returns the batches of a dataset, each divided among the replicas: TensorFlow's `experimental_distribute_dataset`. The size of the
    /// batches is that of all replicas together.
    pub fn distribute<T: Structure + Send + 'static>(&self, dataset: &Dataset<T>) -> impl Iterator<Item = Result<PerReplica<T>>> {
        let strategy = self.clone();
        dataset.iter().map(move |batch| strategy.split(&batch?))
    }

    /// Returns the batches of a dataset, dealt to the replicas one after the other: TensorFlow's `distribute_datasets_from_function`.
    /// The size of the batches is that of one replica. In the last step, replicas without a batch get one without rows.
    pub fn deal<T: Structure + Send + 'static>(&self, dataset: &Dataset<T>) -> impl Iterator<Item = Result<PerReplica<T>>> {
        let (devices, mut batches) = (self.runner.mirrors.clone(), dataset.iter());
        std::iter::from_fn(move || dealt(&devices.devices, &mut batches).transpose())
    }
}

impl Runner {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Divides a batch among the replicas: see [`MirroredStrategy::split`].
    pub(crate) fn split<T: Structure>(&self, batch: &T) -> Result<PerReplica<T>> {
        PerReplica::of_batch(batch, &self.mirrors.devices)
    }

    /// Runs the replicas: see [`MirroredStrategy::run`].
    pub(crate) fn run<R: Send>(&self, body: impl Fn(&Replica<'_>) -> Result<R> + Sync) -> Result<PerReplica<R>> {
        if Seat::is_taken() {
            return Err(Error::message("a replica cannot run replicas: call run() outside of run()"));
        }
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let replicas = self.scopes.len();
        let Settings { limit, cross_device_ops } = self.settings().clone();
        let communicator = cross_device_ops.begin(replicas, limit)?;
        let run_one = |rank: usize| {
            let seat = Seat { rank, replicas, communicator: communicator.clone() };
            let replica = Replica { rank, scopes: &self.scopes };
            let result = seat.during(|| catch_unwind(AssertUnwindSafe(|| body(&replica))));
            let result = result.unwrap_or_else(|panic| Err(Error::message(format!("it panicked: {}", message(&*panic)))));
            communicator.leave(rank, result.as_ref().err().map(ToString::to_string).as_deref());
            result
        };
        let results = std::thread::scope(|threads| {
            let others: Vec<_> = (1..replicas).map(|rank| threads.spawn(move || run_one(rank))).collect();
            let first = run_one(0);
            let others = others.into_iter().map(|other| other.join().unwrap_or(Err(Error::Internal)));
            std::iter::once(first).chain(others).collect::<Vec<_>>()
        });
        collected(results)
    }
}

/// Returns the next batch for each device, or `None` at the end.
fn dealt<T: Structure>(devices: &[Device], batches: &mut impl Iterator<Item = Result<T>>) -> Result<Option<PerReplica<T>>> {
    let own = batches.by_ref().take(devices.len()).collect::<Result<Vec<T>>>()?;
    let Some(first) = own.first() else { return Ok(None) };
    let mut parts = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        let (batch, empty) = own.get(index).map_or((first, true), |batch| (batch, false));
        let mut tensors = Vec::new();
        batch.tensors(&mut |tensor| tensors.push(tensor.clone()));
        let moved = |tensor: &Tensor| if empty { without_rows(tensor, device) } else { tensor.to(device) };
        let mut tensors = tensors.iter().map(moved).collect::<Result<Vec<Tensor>>>()?.into_iter();
        parts.push(batch.with(&mut || tensors.next().unwrap_or_else(|| Tensor::scalar(device, 0.0f32))));
    }
    Ok(Some(PerReplica::new(parts)))
}

/// Returns a tensor like this one, with 0 rows.
fn without_rows(tensor: &Tensor, device: &Device) -> Result<Tensor> {
    let mut dims = tensor.dims().to_vec();
    dims.first_mut().into_iter().for_each(|rows| *rows = 0);
    Tensor::zeros(device, TensorType::new(tensor.dtype(), Shape::new(&dims)?))
}

/// Returns the results of all replicas, or the error of the one that failed first: not one that only reports the failure of another.
fn collected<R>(results: Vec<Result<R>>) -> Result<PerReplica<R>> {
    let follows = |error: &Error| error.root().to_string().starts_with("replica ");
    let failed = |own: bool| {
        results.iter().enumerate().find_map(|(rank, result)| Some((rank, result.as_ref().err().filter(|error| follows(error) != own)?)))
    };
    match failed(true).or(failed(false)) {
        Some((_, error)) if follows(error) => Err(error.clone()),
        Some((rank, error)) if results.iter().any(Result::is_ok) => {
            let others = "while other replicas have finished, which may have changed their copies of variables";
            Err(error.clone().context(format!("replica {rank}, {others}")))
        }
        Some((rank, error)) => Err(error.clone().context(format!("replica {rank}"))),
        None => results.into_iter().collect::<Result<Vec<R>>>().map(PerReplica::new),
    }
}

/// Returns the text of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A replica in a run of a strategy, and its scope: TensorFlow's `tf.distribute.ReplicaContext`.
pub struct Replica<'s> {
    rank: usize,
    scopes: &'s [Eager],
}

impl Replica<'_> {
    /// Returns the number of the replica: TensorFlow's `replica_id_in_sync_group`.
    pub fn replica_id(&self) -> usize {
        self.rank
    }

    /// Returns the number of replicas.
    pub fn num_replicas_in_sync(&self) -> usize {
        self.scopes.len()
    }

    /// Returns `value`, combined with those of the other replicas: see [`all_reduce`](super::all_reduce()).
    pub fn all_reduce(&self, op: ReduceOp, value: &Tensor) -> Result<Tensor> {
        all_reduce::all_reduce(self, op, value)
    }

    /// Returns the values of all replicas, concatenated along an axis. Their sizes along the other axes must be equal. Fails like
    /// [`all_reduce`](super::all_reduce()).
    pub fn all_gather(&self, value: &Tensor, axis: i32) -> Result<Tensor> {
        let seat = Seat::current()?;
        let dims = value.dims().iter().map(|&dim| i64::from(dim)).collect::<Vec<_>>();
        let what = |name, dtype| Exchange { name, dtype, bytes: None };
        let shapes = seat.communicator.all_gather(self.rank, what("all_gather (shapes)", DType::I64), bytemuck::cast_slice(&dims))?;
        let parts = seat.communicator.all_gather(self.rank, what("all_gather", value.dtype()), &value.bytes()?)?;
        let one = |(dims, part): (&gradlet_core::device::AlignedBytes, &gradlet_core::device::AlignedBytes)| {
            let dims: Vec<u32> = bytemuck::cast_slice::<u8, i64>(dims).iter().map(|&dim| dim as u32).collect();
            Tensor::from_bytes(&self.device(), TensorType::new(value.dtype(), Shape::new(&dims)?), part)
        };
        Tensor::concat(&shapes.iter().zip(parts.iter()).map(one).collect::<Result<Vec<_>>>()?, axis)
    }
}

impl Scope for Replica<'_> {
    fn handle(&self) -> ScopeHandle {
        self.scopes[self.rank].handle()
    }
}

/// Returns the number of the replica whose scope this is, or `None` outside of a replica.
pub fn replica_id(scope: &dyn Scope) -> Option<usize> {
    scope.handle().role()?.rank
}
