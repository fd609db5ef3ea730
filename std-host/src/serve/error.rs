//! Errors of requests.

use gradlet_core::Error;
use std::fmt;

/// Result of a request.
pub type ServeResult<T> = Result<T, ServeError>;

/// The reason why a request has no result. A server translates each variant to a status of its protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum ServeError {
    /// The request does not fit the model: HTTP's 400. The queue has not taken it.
    Request(Error),
    /// As many batches wait as may wait: HTTP's 503. The queue has not taken the request, and the caller can try again later.
    QueueFull(usize),
    /// The batcher was shut down before the request: HTTP's 503.
    ShutDown,
    /// The model failed or panicked: HTTP's 500.
    Model(Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Request(error) => write!(f, "the request: {error}"),
            ServeError::QueueFull(batches) => write!(f, "the queue is full: {batches} batches wait, the maximum; try again later"),
            ServeError::ShutDown => f.write_str("the batcher was shut down"),
            ServeError::Model(error) => write!(f, "the model: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<ServeError> for Error {
    fn from(error: ServeError) -> Error {
        match error {
            ServeError::Request(error) => error.context("the request"),
            ServeError::Model(error) => error.context("the model"),
            error => Error::message(error.to_string()),
        }
    }
}
