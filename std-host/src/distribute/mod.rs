//! Synchronous training on several devices, as `tf.distribute`.
//!
//! A [`MirroredStrategy`] runs the same program on several devices at the same time, one replica on each. Variables that are created in
//! its scope have a copy on every device. Each replica computes on a part of the batch. Optimizers add the gradients of all replicas
//! before they change the variables, so the copies stay equal.
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

mod per_replica;
mod strategy;

pub use crate::compute::collective::all_reduce::{KERNELS, all_reduce};
pub use crate::compute::collective::hub::{Communicator, CrossDeviceOps, Exchange, InProcess, ReduceOp};
pub use per_replica::PerReplica;
pub use strategy::{MirroredStrategy, Replica, replica_id};
pub(crate) use strategy::{Runner, with_runner};
