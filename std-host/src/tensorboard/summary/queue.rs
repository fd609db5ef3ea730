//! The thread that writes events to a file.

use crate::files::{FileError, FileResult};
use crate::formats::proto::Event;
use crate::formats::tfrecord;
use gradlet_core::{Error, Result};
use prost::Message;
use std::fs::File;
use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A queue of events that a thread writes to a file.
pub(super) struct Queue {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// Signal that the thread has work.
    work: Condvar,
    /// Signal that the thread made progress.
    done: Condvar,
    /// Maximum number of bytes in the queue.
    most: usize,
    interval: Duration,
}

#[derive(Default)]
struct State {
    /// Encoded records that are not written yet.
    waiting: Vec<u8>,
    /// Number of requests to write the whole queue; `answered` is the number of those that are done.
    asked: u64,
    answered: u64,
    closed: bool,
    failure: Option<String>,
}

impl Queue {
    /// Starts the thread that writes to `file`, which was opened at `path`.
    pub(super) fn new(path: &Path, file: File, most: usize, interval: Duration) -> FileResult<Queue> {
        let shared = Arc::new(Shared { state: Mutex::default(), work: Condvar::new(), done: Condvar::new(), most, interval });
        let writes = shared.clone();
        let thread = std::thread::Builder::new().name("gradlet-events".into()).spawn(move || writes.write(file));
        let thread = thread.map_err(|error| FileError::io(path, error))?;
        Ok(Queue { path: path.into(), shared, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds an event, and waits for room if the queue is full. Fails if an earlier event could not be written or the queue is closed.
    pub(super) fn push(&self, event: &Event) -> Result<()> {
        let record = event.encode_to_vec();
        let mut state = self.shared.lock();
        self.check(&state)?;
        // A record that is larger than the queue waits until the queue is empty.
        while !state.waiting.is_empty() && state.waiting.len() + record.len() > self.shared.most {
            state.asked += 1;
            self.shared.work.notify_one();
            state = wait(&self.shared.done, state);
            self.check(&state)?;
        }
        let before = state.waiting.len();
        tfrecord::frame(&mut state.waiting, &record).map_err(|error| Error::message(error.to_string()))?;
        // Wakes the thread for the first event, which starts the interval, and when the queue becomes half full.
        let half = self.shared.half();
        if before == 0 || (before < half && state.waiting.len() >= half) {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    /// Waits until all events so far are in the file. Returns immediately if the queue is closed.
    pub(super) fn flush(&self) -> Result<()> {
        let mut state = self.shared.lock();
        state.asked += 1;
        let mine = state.asked;
        self.shared.work.notify_one();
        while state.answered < mine {
            state = wait(&self.shared.done, state);
        }
        self.failure(&state)
    }

    /// Writes the events that are still in the queue and ends the thread. Does nothing if the queue is already closed.
    pub(super) fn close(&self) -> Result<()> {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            thread.join().map_err(|_| Error::message(format!("{}: the thread that writes events panicked", self.path.display())))?;
        }
        self.failure(&self.shared.lock())
    }

    fn check(&self, state: &State) -> Result<()> {
        self.failure(state)?;
        if state.closed {
            return Err(Error::message(format!("{}: the writer is already closed", self.path.display())));
        }
        Ok(())
    }

    fn failure(&self, state: &State) -> Result<()> {
        let failed = |text| Err(Error::message(format!("{}: events cannot be written: {text}", self.path.display())));
        state.failure.as_ref().map_or(Ok(()), failed)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A caller that needs the error calls `close` before.
        let _ = self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn half(&self) -> usize {
        (self.most / 2).max(1)
    }

    /// Runs the thread: writes the queue until it is closed or a write fails.
    fn write(&self, mut file: File) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.wait_for_work();
            mem::swap(&mut batch, &mut state.waiting);
            let (asked, closed) = (state.asked, state.closed);
            drop(state);
            self.done.notify_all();
            let written = file.write_all(&batch);
            batch.clear();
            let mut state = self.lock();
            state.answered = asked;
            state.failure = written.err().map(|error| error.to_string());
            let over = closed || state.failure.is_some();
            if over {
                state.answered = u64::MAX;
            }
            self.done.notify_all();
            if over {
                return;
            }
        }
    }

    /// Waits until the queue is closed, must be flushed, or is half full, or until its first event has waited for the interval.
    fn wait_for_work(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let urgent = |state: &State| state.closed || state.asked > state.answered || state.waiting.len() >= self.half();
        while !urgent(&state) && state.waiting.is_empty() {
            state = wait(&self.work, state);
        }
        let begun = Instant::now();
        while !urgent(&state) {
            let Some(left) = self.interval.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else { break };
            state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}
