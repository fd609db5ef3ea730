//! Inference for many callers at the same time, as TensorFlow Serving's batching.
//!
//! A [`Batcher`] joins the requests of many threads to batches, because a device computes one batch of 32 rows much faster than 32 batches
//! of one row. A request has one or more rows: the first dimension of its inputs. A batch waits until it is full, but at most
//! [`batch_timeout`](BatchingOptions::batch_timeout). One of [`num_batch_threads`](BatchingOptions::num_batch_threads) threads then pads it
//! to the next allowed size, runs the model, and gives each caller its own rows. If
//! [`max_enqueued_batches`](BatchingOptions::max_enqueued_batches) wait already, a request is refused.
//!
//! [`Batcher::of`] serves an artifact. Its signatures have fixed shapes, so it has one signature for each allowed batch size:
//!
//! ```
//! use gradlet::artifact::Loaded;
//! use gradlet::serve::{Batcher, BatchingOptions};
//! use gradlet::{Artifact, Eager, Function, Scope, Tensor};
//! let cpu = gradlet::cpu();
//! let sum = Function::new(|_: &dyn Scope, x: Tensor| x.sum(&[1], false));
//! let mut artifact = Artifact::new();
//! for (name, rows) in [("sum_1", 1), ("sum_8", 8)] {
//!     let x = Tensor::full(&cpu, 0.0f32, &[rows, 3])?;
//!     artifact.signature(name, &*sum.concrete(&Eager::new(&cpu), &x)?, &["x"], &["y"])?;
//! }
//! let loaded = Loaded::new(&artifact.to_bytes()?, None)?.on(&cpu)?;
//!
//! let batcher = Batcher::of(&loaded, &["sum_1", "sum_8"], BatchingOptions::default())?;
//! std::thread::scope(|threads| {
//!     for client in 0..8u8 {
//!         let batcher = &batcher;
//!         threads.spawn(move || {
//!             let x = Tensor::full(&gradlet::cpu(), f32::from(client), &[1, 3]).unwrap();
//!             assert_eq!(batcher.call(&[x]).unwrap()[0].to_vec::<f32>().unwrap(), [3.0 * f32::from(client)]);
//!         });
//!     }
//! });
//! let statistics = batcher.statistics();
//! println!("{} batches, p99 {:?}", statistics.batches(), statistics.latencies.percentile(99.0));
//! # Ok::<(), gradlet::Error>(())
//! ```
//!
//! [`Batcher::new`] serves any closure, such as a [`Function`](crate::Function) over a model that the program trains itself.

mod batch;
mod batcher;
mod error;
mod latencies;
mod options;
mod queue;
mod statistics;
#[cfg(test)]
mod tests;
mod worker;

pub use batcher::Batcher;
pub use error::{ServeError, ServeResult};
pub use latencies::Latencies;
pub use options::BatchingOptions;
pub use statistics::Statistics;
