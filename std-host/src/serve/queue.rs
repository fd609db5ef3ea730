//! The queue of batches.

use crate::serve::batch::{Batch, Request};
use crate::serve::error::{ServeError, ServeResult};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Batches that wait for a thread. The last one still takes requests.
///
/// While a batch waits and a thread is free, at least one free thread waits until the first batch is ready, not longer. A request that
/// begins or fills a batch wakes a thread, and a thread that takes a batch wakes another one if a batch is left.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    max_rows: usize,
    max_batches: usize,
    timeout: Duration,
}

struct State {
    batches: VecDeque<Batch>,
    closed: bool,
}

impl Queue {
    /// Creates a queue of at most `max_batches` batches of at most `max_rows` rows each, the last of which waits at most `timeout`.
    pub(super) fn new(max_rows: usize, max_batches: usize, timeout: Duration) -> Queue {
        let state = State { batches: VecDeque::new(), closed: false };
        Queue { state: Mutex::new(state), changed: Condvar::new(), max_rows, max_batches, timeout }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request to the last batch, or to a new one if it has no room. Fails if a new batch has no room either, or after
    /// [`Queue::close`].
    pub(super) fn push(&self, request: Request) -> ServeResult<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(ServeError::ShutDown);
        }
        let full = state.batches.len() >= self.max_batches;
        match state.batches.back_mut().filter(|batch| batch.rows + request.rows <= self.max_rows) {
            Some(batch) => {
                batch.add(request);
                if batch.rows < self.max_rows {
                    return Ok(());
                }
            }
            None if full => return Err(ServeError::QueueFull(self.max_batches)),
            None => state.batches.push_back(Batch::new(request)),
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the first batch that is full or has waited long enough, and takes it. After [`Queue::close`], takes the batches that are
    /// left, and then returns `None`.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            state = match self.wait(&state) {
                None if state.closed && state.batches.is_empty() => return None,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(time) => self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        let batch = state.batches.pop_front();
        if !state.batches.is_empty() {
            self.changed.notify_one();
        }
        batch
    }

    /// Returns the time until the first batch is ready, or `None` if there is no batch.
    fn wait(&self, state: &State) -> Option<Duration> {
        let first = state.batches.front()?;
        let ready = state.closed || state.batches.len() > 1 || first.rows >= self.max_rows;
        let waited = first.begun().map_or(self.timeout, |begun: Instant| begun.elapsed());
        Some(if ready { Duration::ZERO } else { self.timeout.saturating_sub(waited) })
    }

    /// Returns the number of rows that wait.
    pub(super) fn rows(&self) -> usize {
        self.lock().batches.iter().map(|batch| batch.rows).sum()
    }

    /// Refuses further requests, and makes all batches ready.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
