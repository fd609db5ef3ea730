//! Statistics of a batcher.

use crate::serve::latencies::Latencies;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Counts and times of a [`Batcher`](super::Batcher) since it was created, or since
/// [`Batcher::reset_statistics`](super::Batcher::reset_statistics).
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Times from a request to its result. Requests that failed or were refused are not among them.
    pub latencies: Latencies,
    /// Number of requests that the model failed.
    pub failed: u64,
    /// Number of requests that were refused: they did not fit the model, the queue was full, or the batcher was shut down.
    pub refused: u64,
    /// Number of rows that were computed for callers.
    pub rows: u64,
    /// Number of batches of each size that were computed. A size counts the rows of padding too.
    pub batch_sizes: BTreeMap<usize, u64>,
    /// Number of rows that wait for a thread now.
    pub waiting: usize,
    /// Time that the statistics cover.
    pub elapsed: Duration,
}

impl Statistics {
    /// Returns the number of batches that were computed.
    pub fn batches(&self) -> u64 {
        self.batch_sizes.values().sum()
    }

    /// Returns the mean number of rows in a batch, without padding.
    pub fn mean_rows(&self) -> f64 {
        self.rows as f64 / self.batches().max(1) as f64
    }

    /// Returns the share of padding among all rows that were computed, from 0 to 1.
    pub fn padding(&self) -> f64 {
        let computed: u64 = self.batch_sizes.iter().map(|(&size, batches)| size as u64 * batches).sum();
        1.0 - self.rows as f64 / computed.max(self.rows).max(1) as f64
    }

    /// Returns the number of requests with a result, for each second.
    pub fn requests_per_second(&self) -> f64 {
        self.latencies.count() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The statistics as they grow.
pub(super) struct Meter {
    start: Instant,
    statistics: Statistics,
}

impl Meter {
    pub(super) fn new() -> Meter {
        let (latencies, batch_sizes) = (Latencies::default(), BTreeMap::new());
        let statistics = Statistics { latencies, failed: 0, refused: 0, rows: 0, batch_sizes, waiting: 0, elapsed: Duration::ZERO };
        Meter { start: Instant::now(), statistics }
    }

    pub(super) fn refused(&mut self) {
        self.statistics.refused += 1;
    }

    pub(super) fn failed(&mut self, requests: usize) {
        self.statistics.failed += requests as u64;
    }

    /// Counts a batch of `size` rows, `rows` of which are those of requests that began at `begun`.
    pub(super) fn computed(&mut self, size: usize, rows: usize, begun: impl Iterator<Item = Instant>) {
        *self.statistics.batch_sizes.entry(size).or_default() += 1;
        self.statistics.rows += rows as u64;
        begun.for_each(|begun| self.statistics.latencies.record(begun.elapsed()));
    }

    pub(super) fn statistics(&self, waiting: usize) -> Statistics {
        Statistics { waiting, elapsed: self.start.elapsed(), ..self.statistics.clone() }
    }
}
