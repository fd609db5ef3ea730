//! The thread that writes events.

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

/// Events on their way into a file.
pub(super) struct Queue {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// There is something for the thread to do.
    work: Condvar,
    /// The thread did something.
    done: Condvar,
    /// How many bytes wait at most.
    most: usize,
    interval: Duration,
}

#[derive(Default)]
struct State {
    /// Whole records.
    waiting: Vec<u8>,
    /// How often somebody asked for all to be written, and how many of these are answered.
    asked: u64,
    answered: u64,
    closed: bool,
    failure: Option<String>,
}

impl Queue {
    /// Begins to write `file`, which lies at `path`.
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

    /// Adds an event, once there is room. Fails where earlier ones could not be written, or the queue is closed.
    pub(super) fn push(&self, event: &Event) -> Result<()> {
        let record = event.encode_to_vec();
        let mut state = self.shared.lock();
        self.check(&state)?;
        // A record that is larger than the queue goes when the queue is empty.
        while !state.waiting.is_empty() && state.waiting.len() + record.len() > self.shared.most {
            state.asked += 1;
            self.shared.work.notify_one();
            state = wait(&self.shared.done, state);
            self.check(&state)?;
        }
        let before = state.waiting.len();
        tfrecord::frame(&mut state.waiting, &record).map_err(|error| Error::message(error.to_string()))?;
        // The thread wakes when there is something to wait with, and when there is much.
        let half = self.shared.half();
        if before == 0 || (before < half && state.waiting.len() >= half) {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    /// Waits until all that was pushed is in the file. What is closed has written all.
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

    /// Writes all that was pushed, and ends the thread. What is closed already stays so.
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
            return Err(Error::message(format!("{}: the writer is closed already", self.path.display())));
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
        // Who wants to know of errors closes before.
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

    /// What the thread does.
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

    /// Waits until the queue is closed or to be flushed, is half full, or has had an event for as long as the interval.
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
