//! The threads that run batches.

use crate::serve::batch::{Request, divide, join};
use crate::serve::error::{ServeError, ServeResult};
use crate::serve::queue::Queue;
use crate::serve::statistics::Meter;
use gradlet_core::{Device, Error, Result, Tensor, TensorSpec};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs the model on the inputs of a batch.
pub(super) type Session = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>> + Send>;

/// State that callers and threads share.
pub(super) struct Shared {
    pub(super) device: Device,
    pub(super) signature: Vec<TensorSpec>,
    /// The allowed batch sizes, in ascending order.
    pub(super) sizes: Vec<usize>,
    pub(super) queue: Queue,
    pub(super) meter: Mutex<Meter>,
}

impl Shared {
    pub(super) fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that runs batches.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
}

impl Worker {
    /// Runs batches until the queue is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.shared.queue.take() {
            self.answer(batch.requests);
        }
    }

    /// Runs requests together, and gives each its result. If an op refuses the batch, runs each request alone, so that only those that it
    /// refuses fail.
    fn answer(&mut self, requests: Vec<Request>) {
        let outcome = match catch_unwind(AssertUnwindSafe(|| self.compute(&requests))) {
            Ok(Err(_)) if requests.len() > 1 => return requests.into_iter().for_each(|request| self.answer(vec![request])),
            Ok(outcome) => outcome,
            Err(panic) => Err(Error::message(format!("it panicked: {}", text(&*panic)))),
        };
        match outcome {
            Ok(results) => requests.into_iter().zip(results).for_each(|(request, result)| give(request, Ok(result))),
            Err(error) => {
                self.shared.meter().failed(requests.len());
                requests.into_iter().for_each(|request| give(request, Err(ServeError::Model(error.clone()))));
            }
        }
    }

    /// Returns the result of each request.
    fn compute(&mut self, requests: &[Request]) -> Result<Vec<Vec<Tensor>>> {
        let Worker { shared, session } = self;
        let rows = requests.iter().map(|request| request.rows).sum();
        let size = shared.sizes.iter().copied().find(|&size| size >= rows).ok_or(Error::Internal)?;
        let outputs = session(&join(requests, size, &shared.device)?)?;
        let results = divide(&outputs, requests, size)?;
        shared.meter().computed(size, rows, requests.iter().map(|request| request.begun));
        Ok(results)
    }
}

/// Gives a request its result. A panic of the receiver ends only its own call.
fn give(request: Request, result: ServeResult<Vec<Tensor>>) {
    let _ = catch_unwind(AssertUnwindSafe(|| (request.done)(result)));
}

/// Returns the text of a panic.
fn text(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
