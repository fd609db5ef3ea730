//! Requests, and the batches that they form.

use crate::compute::devices::cpu;
use crate::serve::error::ServeResult;
use gradlet_core::{Device, Error, Result, Shape, Tensor, TensorSpec, TensorType};
use std::time::Instant;

/// Receives the result of a request.
pub(super) type Done = Box<dyn FnOnce(ServeResult<Vec<Tensor>>) + Send>;

/// A request that fits the model.
pub(super) struct Request {
    /// The inputs, in memory of the host.
    pub(super) inputs: Vec<Tensor>,
    pub(super) rows: usize,
    pub(super) begun: Instant,
    pub(super) done: Done,
}

/// Requests that run together.
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    pub(super) rows: usize,
}

impl Batch {
    pub(super) fn new(request: Request) -> Batch {
        Batch { rows: request.rows, requests: vec![request] }
    }

    pub(super) fn add(&mut self, request: Request) {
        self.rows += request.rows;
        self.requests.push(request);
    }

    /// Returns the time at which the first request began.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.requests.first().map(|request| request.begun)
    }
}

/// Checks the signature of a model: the first dimension of each input is open, and no other.
pub(super) fn check_signature(signature: &[TensorSpec]) -> Result<()> {
    let is_batch = |spec: &TensorSpec| matches!(spec.dims(), Some([None, row @ ..]) if row.iter().all(Option::is_some));
    match signature.iter().enumerate().find(|(_, spec)| !is_batch(spec)) {
        Some((index, spec)) => Err(Error::message(format!(
            "input {index} of a batch needs an open first dimension, and no other, such as f32[?,3]; it is {spec}"
        ))),
        None if signature.is_empty() => Err(Error::message("a model without inputs has no batches")),
        None => Ok(()),
    }
}

/// Returns the number of rows of a request, and its inputs in memory of the host.
///
/// Fails if an input has another type than `signature` requires, or cannot be read, if the inputs differ in their rows, and if there are no
/// rows or more than `max`.
pub(super) fn checked(signature: &[TensorSpec], max: usize, inputs: &[Tensor]) -> Result<(usize, Vec<Tensor>)> {
    if inputs.len() != signature.len() {
        let wanted: Vec<String> = signature.iter().map(ToString::to_string).collect();
        return Err(Error::message(format!("the model takes {} inputs ({}), got {}", wanted.len(), wanted.join(", "), inputs.len())));
    }
    if let Some((index, (spec, input))) =
        signature.iter().zip(inputs).enumerate().find(|(_, (spec, input))| !spec.accepts(&input.tensor_type()))
    {
        return Err(Error::message(format!("input {index} must be {spec}, got {}", input.tensor_type())));
    }
    let rows = |input: &Tensor| input.dims().first().map_or(0, |&rows| rows as usize);
    let first = inputs.first().map_or(0, rows);
    match inputs.iter().map(rows).find(|&other| other != first) {
        Some(other) => Err(Error::message(format!("the inputs must have the same number of rows, got {first} and {other}"))),
        None if first == 0 || first > max => Err(Error::message(format!("a request has 1 to {max} rows, got {first}"))),
        None => Ok((first, inputs.iter().map(on_host).collect::<Result<_>>()?)),
    }
}

/// Returns a computed tensor with memory of the host.
fn on_host(input: &Tensor) -> Result<Tensor> {
    let tensor = input.to(&cpu())?;
    tensor.bytes()?;
    Ok(tensor)
}

/// Returns the inputs of a batch of `size` rows on `device`: those of the requests, joined along the first dimension, followed by copies of
/// the last row. A copy cannot fail where the row itself does not.
pub(super) fn join(requests: &[Request], size: usize, device: &Device) -> Result<Vec<Tensor>> {
    let last = requests.last().ok_or(Error::Internal)?;
    let rows: usize = requests.iter().map(|request| request.rows).sum();
    let input = |(index, like): (usize, &Tensor)| {
        let own = |request: &Request| request.inputs.get(index).cloned().ok_or(Error::Internal);
        let inputs = requests.iter().map(own).collect::<Result<Vec<Tensor>>>()?;
        let read = inputs.iter().map(Tensor::bytes).collect::<Result<Vec<_>>>()?;
        let mut parts: Vec<&[u8]> = read.iter().map(|bytes| &**bytes).collect();
        let end = parts.last().copied().unwrap_or_default();
        let row = &end[end.len() - end.len() / last.rows..];
        parts.extend(std::iter::repeat_n(row, size.saturating_sub(rows)));
        Tensor::from_parts(device, of_rows(like, size)?, &parts)
    };
    last.inputs.iter().enumerate().map(input).collect()
}

/// Returns the rows of each request in the outputs of a batch of `size` rows, in memory of the host.
///
/// Fails if the first dimension of an output is not `size`.
pub(super) fn divide(outputs: &[Tensor], requests: &[Request], size: usize) -> Result<Vec<Vec<Tensor>>> {
    let mut divided: Vec<Vec<Tensor>> = requests.iter().map(|_| Vec::new()).collect();
    for (index, output) in outputs.iter().enumerate() {
        if output.dims().first().is_none_or(|&rows| rows as usize != size) {
            let tensor_type = output.tensor_type();
            return Err(Error::message(format!(
                "output {index} is {tensor_type}, but a batch of {size} rows needs {size} rows of results"
            )));
        }
        let bytes = output.bytes()?;
        let (mut rest, row) = (&*bytes, bytes.len() / size);
        for (request, own) in requests.iter().zip(&mut divided) {
            let (part, after) = rest.split_at_checked(request.rows * row).ok_or(Error::Internal)?;
            own.push(Tensor::from_bytes(&cpu(), of_rows(output, request.rows)?, part)?);
            rest = after;
        }
    }
    Ok(divided)
}

/// Returns the type of `tensor` with another number of rows.
fn of_rows(tensor: &Tensor, rows: usize) -> Result<TensorType> {
    let mut dims = tensor.dims().to_vec();
    let rows = u32::try_from(rows).map_err(|_| Error::TooLarge)?;
    dims.first_mut().into_iter().for_each(|first| *first = rows);
    Ok(TensorType::new(tensor.dtype(), Shape::new(&dims)?))
}
