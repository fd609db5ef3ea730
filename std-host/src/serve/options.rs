//! Settings of a batcher.

use gradlet_core::{Error, Result};
use std::time::Duration;

/// Settings of a [`Batcher`](super::Batcher), with the names of TensorFlow Serving's batching parameters.
///
/// ```
/// use gradlet::serve::BatchingOptions;
/// use std::time::Duration;
/// let options = BatchingOptions { batch_timeout: Duration::from_millis(5), ..BatchingOptions::default() };
/// assert_eq!(options.max_enqueued_batches, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchingOptions {
    /// The longest time that a batch waits for further requests. The default is 1 ms. With 0, a free thread takes a batch at once.
    #[doc(alias = "batch_timeout_micros")]
    pub batch_timeout: Duration,
    /// The number of threads that run batches, each with a session of its own. The default is 2: one prepares a batch while the other
    /// computes.
    pub num_batch_threads: usize,
    /// The largest number of batches that wait for a thread, the last of which may be unfinished. The default is 100.
    pub max_enqueued_batches: usize,
}

impl Default for BatchingOptions {
    fn default() -> BatchingOptions {
        BatchingOptions { batch_timeout: Duration::from_millis(1), num_batch_threads: 2, max_enqueued_batches: 100 }
    }
}

impl BatchingOptions {
    /// Fails if a number is 0.
    pub(super) fn check(&self) -> Result<()> {
        for (name, number) in [("num_batch_threads", self.num_batch_threads), ("max_enqueued_batches", self.max_enqueued_batches)] {
            if number == 0 {
                return Err(Error::message(format!("{name} must be at least 1")));
            }
        }
        Ok(())
    }
}
