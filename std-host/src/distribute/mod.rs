//! Synchronous training on several devices, as `tf.distribute`.
//!
//! A [`MirroredStrategy`] runs the same program on several devices at the same time, one *replica* on each. A variable that is created in
//! the strategy's scope has a copy on every device. Each replica computes on its part of the batch. Optimizers add the gradients of all
//! replicas before they change the variables, so the copies stay equal.
//!
//! A [`Model`](crate::train::Model) in the strategy's scope needs no other change: `fit` and `evaluate` divide the batches. In a loop of
//! your own, [`run`](MirroredStrategy::run) calls a closure in each replica, and [`reduce`](MirroredStrategy::reduce) combines the results:
//!
//! ```
//! use gradlet::config::{Context, LogicalDeviceConfiguration};
//! use gradlet::distribute::{MirroredStrategy, ReduceOp};
//! use gradlet::{Scope, Tensor, Variable};
//! let context = Context::new();
//! let cpu = &context.list_physical_devices(Some("CPU"))[0];
//! context.set_logical_device_configuration(cpu, &[LogicalDeviceConfiguration::new(); 2])?;
//! let strategy = MirroredStrategy::new(&context, &["CPU:0", "CPU:1"])?;
//! let scope = strategy.scope();
//! let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 3.0f32))?;
//! let results = strategy.run(|replica| {
//!     let own = Tensor::scalar(&replica.device(), replica.replica_id() as f32);
//!     replica.read(&w)?.mul(&own)
//! })?;
//! assert_eq!(strategy.reduce(ReduceOp::Sum, &results, None)?.item::<f32>()?, 3.0);
//! # Ok::<(), gradlet::Error>(())
//! ```
//!
//! # Gradients
//!
//! Gradients are added, not averaged. Divide the loss by the number of samples of the whole batch, not by that of the replica's part. `fit`
//! does so. Create the state of an optimizer before the replicas run, with [`Optimizer::build`](crate::optimizers::Optimizer::build).
//!
//! # Collective operations
//!
//! All replicas call the same collective operations in the same order: [`Replica::all_reduce`], [`Replica::all_gather`], and the steps of
//! optimizers. Each operation waits for all replicas, and all of them get the same bits. The sum has the order of the replicas, unless NCCL
//! adds the values of three or more GPUs. If a replica fails, panics, ends early or does not arrive in time, the others fail in their next
//! operation.
//!
//! Logical devices of one GPU add by kernels of the GPU, several GPUs by NCCL if it is installed, and all others in memory of the host.
//! [`cross_device_ops`](MirroredStrategy::cross_device_ops) changes that.
//!
//! A replica has one device, so [`with_device`](crate::Scope::with_device) fails in it. Replicas are threads of one process.

mod per_replica;
mod strategy;

pub use crate::compute::collective::all_reduce::{KERNELS, all_reduce};
#[cfg(feature = "cuda")]
pub use crate::compute::collective::gpus::NcclAllReduce;
pub use crate::compute::collective::hub::{Communicator, CrossDeviceOps, DevicePart, Exchange, InProcess, ReduceOp};
pub use per_replica::PerReplica;
pub use strategy::{MirroredStrategy, Replica, replica_id};
pub(crate) use strategy::{Runner, with_runner};
