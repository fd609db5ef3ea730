//! The queue for callers.

use crate::artifact::{Loaded, LoadedSignature};
use crate::serve::batch::{Request, check_signature, checked};
use crate::serve::error::{ServeError, ServeResult};
use crate::serve::options::BatchingOptions;
use crate::serve::queue::Queue;
use crate::serve::statistics::{Meter, Statistics};
use crate::serve::worker::{Session, Shared, Worker};
use gradlet_core::{Device, Error, Result, Tensor, TensorSpec};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// Joins the requests of many threads to batches: TensorFlow Serving's `BatchingSession`. The [module](super) has an example with an
/// artifact.
///
/// ```
/// use gradlet::layers::{Dense, Layer, Module};
/// use gradlet::serve::{Batcher, BatchingOptions};
/// use gradlet::{DType, Eager, Function, Scope, Shape, Tensor, TensorSpec};
/// use std::sync::Arc;
/// let scope = Eager::new(&gradlet::cpu());
/// let model = Arc::new(Dense::new(2));
/// model.build(&scope, &Shape::new(&[1, 3])?)?;
/// // Each thread has a function of its own over the same model.
/// let session = || {
///     let (model, scope) = (model.clone(), scope.clone());
///     let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.apply(scope, &x));
///     Ok(move |inputs: &[Tensor]| Ok(vec![infer.call(&scope, inputs[0].clone())?]))
/// };
/// let signature = [TensorSpec::new(DType::F32, &[None, Some(3)]).named("x")];
/// let batcher = Batcher::new(&scope.device(), &signature, [1, 4, 16], BatchingOptions::default(), session)?;
/// let y = batcher.call(&[Tensor::full(&scope.device(), 1.0f32, &[2, 3])?])?;
/// assert_eq!(y[0].dims(), [2, 2]);
/// assert_eq!(batcher.statistics().batch_sizes[&4], 1);
/// # Ok::<(), gradlet::Error>(())
/// ```
///
/// Dropping a batcher shuts it down ([`Batcher::shutdown`]), and waits until its threads have ended.
#[doc(alias = "BatchingSession")]
pub struct Batcher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Batcher {
    /// Serves a model whose inputs have the types `signature`, with an open first dimension for the rows of a batch.
    ///
    /// A batch has at most as many rows as the last of `allowed_batch_sizes`. A smaller one is padded to the next allowed size with copies
    /// of its last row, so a model with fixed shapes is traced and planned only for these sizes: `[1, 8, 32]`, or `1..=32` for every size.
    ///
    /// `session` is called once for each of the options' threads. The closure that it returns gets the inputs of a batch on `device`, and
    /// returns outputs with as many rows. If it fails, each request of the batch runs again alone, so that one request cannot fail others.
    /// If it panics, the requests of the batch fail, and the thread continues.
    ///
    /// Fails if an input has no open first dimension or another open one, if the sizes do not ascend from at least 1, if a number of the
    /// options is 0, if `session` fails, or if the system has no thread.
    pub fn new<S>(
        device: &Device,
        signature: &[TensorSpec],
        allowed_batch_sizes: impl IntoIterator<Item = usize>,
        options: BatchingOptions,
        mut session: impl FnMut() -> Result<S>,
    ) -> Result<Batcher>
    where
        S: FnMut(&[Tensor]) -> Result<Vec<Tensor>> + Send + 'static,
    {
        options.check()?;
        check_signature(signature)?;
        let sizes: Vec<usize> = allowed_batch_sizes.into_iter().collect();
        let max = sizes.last().copied().unwrap_or(0);
        if max == 0 || sizes[0] == 0 || sizes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::message(format!("the allowed batch sizes must ascend from at least 1, as 1, 8, 32; they are {sizes:?}")));
        }
        let queue = Queue::new(max, options.max_enqueued_batches, options.batch_timeout);
        let (device, signature) = (device.clone(), signature.to_vec());
        let shared = Arc::new(Shared { device, signature, sizes, queue, meter: Mutex::new(Meter::new()) });
        let mut batcher = Batcher { shared, threads: Vec::new() };
        for index in 0..options.num_batch_threads {
            let worker = Worker { shared: batcher.shared.clone(), session: Box::new(session()?) as Session };
            let named = std::thread::Builder::new().name(format!("gradlet-batch-{index}"));
            let started = named.spawn(move || worker.run());
            batcher.threads.push(started.map_err(|error| Error::message(format!("cannot start a thread for batches: {error}")))?);
        }
        Ok(batcher)
    }

    /// Serves signatures of an artifact that differ only in the number of rows, which are the allowed batch sizes. Each thread has a
    /// session of its own ([`Loaded::session`]) over the variables of `loaded`. Later assignments to them, such as those of a training step
    /// that runs beside the batcher, take effect between batches.
    ///
    /// Fails like [`Batcher::new`]. Also fails if the artifact was only loaded, without [`Loaded::on`], if a signature does not exist, if
    /// the signatures differ in anything but the rows, if an output has other rows than the inputs, and if a signature assigns variables,
    /// because rows of padding would change them.
    pub fn of(loaded: &Loaded, signatures: &[&str], options: BatchingOptions) -> Result<Batcher> {
        let mut served = signatures.iter().map(|name| Served::of(loaded, name)).collect::<Result<Vec<Served>>>()?;
        served.sort_by_key(|one| one.rows);
        let first = served.first().ok_or_else(|| Error::message("name at least one signature to serve"))?;
        if let Some(other) = served.iter().find(|other| other.inputs != first.inputs || other.outputs != first.outputs) {
            let (first, other) = (&first.name, &other.name);
            return Err(Error::message(format!("the signatures {first:?} and {other:?} must differ in the number of rows only")));
        }
        if let Some([first, other]) = served.windows(2).find(|pair| pair[0].rows == pair[1].rows) {
            let (rows, first, other) = (first.rows, &first.name, &other.name);
            return Err(Error::message(format!("the signatures {first:?} and {other:?} both have {rows} rows: name one of them")));
        }
        let (inputs, sizes): (_, Vec<usize>) = (first.inputs.clone(), served.iter().map(|one| one.rows).collect());
        Batcher::new(loaded.device(), &inputs, sizes, options, || {
            let (session, names) = (loaded.session()?, served.iter().map(|one| (one.rows, one.name.clone())).collect::<Vec<_>>());
            Ok(move |inputs: &[Tensor]| {
                let rows = inputs.first().and_then(|input| input.dims().first()).map_or(0, |&rows| rows as usize);
                let (_, name) = names.iter().find(|(own, _)| *own == rows).ok_or(Error::Internal)?;
                session.signature(name)?.call(inputs)
            })
        })
    }

    /// Runs a request, and waits for its outputs. All inputs have the same number of rows, and so have the outputs. They are on
    /// [`cpu`](crate::cpu); the inputs may be on any device.
    ///
    /// Fails with [`ServeError::Request`] if the inputs do not fit the model, with [`ServeError::QueueFull`] if too many batches wait, with
    /// [`ServeError::ShutDown`], and with [`ServeError::Model`] if the model fails or panics.
    pub fn call(&self, inputs: &[Tensor]) -> ServeResult<Vec<Tensor>> {
        let (send, receive) = mpsc::sync_channel(1);
        self.submit(inputs, move |result| _ = send.send(result))?;
        receive.recv().unwrap_or(Err(ServeError::Model(Error::Internal)))
    }

    /// Enqueues a request and returns. `done` gets the result. It runs on a thread that runs batches, so it should only pass the result on,
    /// for example to the one-shot channel that an async task awaits.
    ///
    /// Fails like [`Batcher::call`] if the request is refused. `done` is not called then.
    pub fn submit(&self, inputs: &[Tensor], done: impl FnOnce(ServeResult<Vec<Tensor>>) + Send + 'static) -> ServeResult<()> {
        let begun = Instant::now();
        let Shared { signature, queue, .. } = &*self.shared;
        let enqueued = checked(signature, self.max_batch_size(), inputs).map_err(ServeError::Request);
        let enqueued = enqueued.and_then(|(rows, inputs)| queue.push(Request { inputs, rows, begun, done: Box::new(done) }));
        enqueued.inspect_err(|_| self.shared.meter().refused())
    }

    /// Returns the allowed batch sizes, in ascending order.
    pub fn allowed_batch_sizes(&self) -> &[usize] {
        &self.shared.sizes
    }

    /// Returns the largest number of rows in a batch: the last of the allowed batch sizes.
    pub fn max_batch_size(&self) -> usize {
        self.shared.sizes.last().copied().unwrap_or(0)
    }

    /// Returns latencies, throughput and batch sizes since the start or the last [`Batcher::reset_statistics`].
    pub fn statistics(&self) -> Statistics {
        self.shared.meter().statistics(self.shared.queue.rows())
    }

    /// Starts new statistics, for example after the first requests, which plan the model.
    pub fn reset_statistics(&self) {
        *self.shared.meter() = Meter::new();
    }

    /// Refuses further requests. Those that wait are computed without waiting for others, so every caller gets its result. Returns at once.
    pub fn shutdown(&self) {
        self.shared.queue.close();
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.shutdown();
        let current = std::thread::current().id();
        // A receiver of a result may own the batcher, and drop it on one of its threads, which cannot wait for itself.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != current) {
            let _ = thread.join();
        }
    }
}

/// A signature of an artifact for batches of `rows` rows.
struct Served {
    name: String,
    rows: usize,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
}

impl Served {
    fn of(loaded: &Loaded, name: &str) -> Result<Served> {
        let signature = loaded.signature(name)?;
        let assigned = |by: &String| by == name;
        if let Some(variable) = loaded.description().variables.iter().find(|variable| variable.assigned_by.iter().any(assigned)) {
            let text = format!("signature {name:?} assigns the variable {:?}, so rows of padding would change it", variable.name);
            return Err(Error::message(text));
        }
        let rows = rows(&signature)?;
        let open = |(name, tensor_type): (&str, _)| {
            let spec = TensorSpec::from(tensor_type);
            let dims = spec.dims().unwrap_or_default().iter().enumerate().map(|(axis, &dim)| dim.filter(|_| axis > 0)).collect::<Vec<_>>();
            TensorSpec::new(spec.dtype(), &dims).named(name)
        };
        let (inputs, outputs) = (signature.inputs().map(open).collect(), signature.outputs().map(open).collect());
        Ok(Served { name: name.into(), rows, inputs, outputs })
    }
}

/// Returns the number of rows, which all inputs and outputs of a signature share.
fn rows(signature: &LoadedSignature<'_>) -> Result<usize> {
    let rows = |tensor_type: &gradlet_core::TensorType| tensor_type.shape.dims().first().copied();
    let mut all = signature.inputs().chain(signature.outputs());
    let first = all.next().and_then(|(_, tensor_type)| rows(&tensor_type));
    match all.find(|(_, tensor_type)| rows(tensor_type) != first || first.is_none()) {
        Some((name, tensor_type)) => {
            let (signature, inputs) = (signature.name(), first.map_or("none".into(), |rows| rows.to_string()));
            Err(Error::message(format!("{name:?} of signature {signature:?} is {tensor_type}, but the first input has {inputs} rows")))
        }
        None => Ok(first.unwrap_or(0) as usize),
    }
}
