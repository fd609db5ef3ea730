//! Tests of batchers over closures: their queue, their errors, and their end.

use super::*;
use crate::compute::devices::{cpu, portable_cpu};
use gradlet_core::{DType, Device, Error, Result, Tensor, TensorSpec};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A time that no test waits for.
const NEVER: Duration = Duration::from_secs(3600);

fn device() -> Device {
    portable_cpu()
}

/// Returns a request: rows with two columns.
fn rows(values: &[f32]) -> Tensor {
    let columns: Vec<f32> = values.iter().flat_map(|&value| [value, -value]).collect();
    Tensor::new(&cpu(), &columns, &[values.len() as u32, 2]).unwrap()
}

fn signature() -> [TensorSpec; 1] {
    [TensorSpec::new(DType::F32, &[None, Some(2)]).named("x")]
}

fn options(batch_timeout: Duration, num_batch_threads: usize) -> BatchingOptions {
    BatchingOptions { batch_timeout, num_batch_threads, ..BatchingOptions::default() }
}

/// Doubles its input. Fails if a number is 13, and panics if it is 14.
fn double(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let values = inputs[0].to_vec::<f32>()?;
    assert!(!values.contains(&14.0), "no number may be 14");
    if values.contains(&13.0) {
        return Err(Error::message("no number may be 13"));
    }
    Ok(vec![inputs[0].add(&inputs[0])?])
}

fn doubling(sizes: &[usize], options: BatchingOptions) -> Batcher {
    Batcher::new(&device(), &signature(), sizes.iter().copied(), options, || Ok(double)).unwrap()
}

/// A request that [`Batcher::submit`] has enqueued.
struct Pending(Receiver<ServeResult<Vec<Tensor>>>);

impl Pending {
    fn submit(batcher: &Batcher, values: &[f32]) -> ServeResult<Pending> {
        let (send, receive) = channel();
        batcher.submit(&[rows(values)], move |result| send.send(result).unwrap())?;
        Ok(Pending(receive))
    }

    /// Returns the first column of the result.
    fn result(self) -> ServeResult<Vec<f32>> {
        let outputs = self.0.recv().unwrap()?;
        Ok(outputs[0].to_vec::<f32>().unwrap().into_iter().step_by(2).collect())
    }
}

/// A model whose runs begin and end when the test says so.
struct Gate {
    /// Gets the number of rows of a run as it begins.
    begun: Receiver<u32>,
    go: Sender<()>,
}

fn gated(sizes: &[usize], options: BatchingOptions) -> (Batcher, Gate) {
    let ((begin, begun), (go, gone)) = (channel(), channel());
    let gone = Arc::new(Mutex::new(gone));
    let session = || {
        let (begin, gone) = (begin.clone(), gone.clone());
        Ok(move |inputs: &[Tensor]| {
            begin.send(inputs[0].dims()[0]).unwrap();
            gone.lock().unwrap().recv().unwrap();
            double(inputs)
        })
    };
    (Batcher::new(&device(), &signature(), sizes.iter().copied(), options, session).unwrap(), Gate { begun, go })
}

#[test]
fn a_full_batch_does_not_wait() {
    let batcher = doubling(&[1, 2, 3], options(NEVER, 1));
    let pending = [&[1.0f32][..], &[2.0, 3.0]].map(|values| Pending::submit(&batcher, values).unwrap());
    assert_eq!(pending.map(|pending| pending.result().unwrap()), [vec![2.0], vec![4.0, 6.0]]);
    let statistics = batcher.statistics();
    assert_eq!((statistics.latencies.count(), statistics.batches(), statistics.mean_rows(), statistics.padding()), (2, 1, 3.0, 0.0));
}

#[test]
fn a_batch_waits_for_its_timeout() {
    let timeout = Duration::from_millis(60);
    let batcher = doubling(&[4], options(timeout, 2));
    let start = Instant::now();
    assert_eq!(Pending::submit(&batcher, &[1.0]).unwrap().result(), Ok(vec![2.0]));
    assert!(start.elapsed() >= timeout);
    let statistics = batcher.statistics();
    assert!(statistics.latencies.percentile(50.0) >= timeout && statistics.elapsed >= timeout);
    assert_eq!((statistics.batch_sizes.into_iter().collect::<Vec<_>>(), statistics.rows), (vec![(4, 1)], 1));
}

/// A request without room in the last batch begins another one, and the first one does not wait any more.
#[test]
fn a_request_is_not_divided() {
    let batcher = doubling(&[1, 2, 3, 4], options(Duration::from_millis(20), 1));
    let pending = [&[1.0f32, 2.0, 3.0][..], &[4.0, 5.0]].map(|values| Pending::submit(&batcher, values).unwrap());
    assert_eq!(pending.map(|pending| pending.result().unwrap()), [vec![2.0, 4.0, 6.0], vec![8.0, 10.0]]);
    assert_eq!(batcher.statistics().batch_sizes.into_keys().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn only_allowed_sizes_run() {
    let (batcher, gate) = gated(&[1, 4, 6], options(Duration::ZERO, 1));
    let first = Pending::submit(&batcher, &[1.0]).unwrap();
    assert_eq!(gate.begun.recv(), Ok(1));
    // These wait for the thread: 3 rows are padded to 4. The next 5 have no room there, and are padded to 6.
    let [second, third] = [&[2.0f32, 3.0, 4.0][..], &[5.0, 6.0, 7.0, 8.0, 9.0]].map(|values| Pending::submit(&batcher, values).unwrap());
    for rows in [4, 6] {
        gate.go.send(()).unwrap();
        assert_eq!(gate.begun.recv(), Ok(rows));
    }
    gate.go.send(()).unwrap();
    assert_eq!(first.result(), Ok(vec![2.0]));
    assert_eq!(second.result(), Ok(vec![4.0, 6.0, 8.0]));
    assert_eq!(third.result(), Ok(vec![10.0, 12.0, 14.0, 16.0, 18.0]));
    let statistics = batcher.statistics();
    assert_eq!((statistics.rows, statistics.batch_sizes.into_iter().collect::<Vec<_>>()), (9, vec![(1, 1), (4, 1), (6, 1)]));
}

#[test]
fn a_full_queue_refuses() {
    let (batcher, gate) = gated(&[1, 2], BatchingOptions { max_enqueued_batches: 2, ..options(Duration::ZERO, 1) });
    let running = Pending::submit(&batcher, &[1.0]).unwrap();
    assert_eq!(gate.begun.recv(), Ok(1));
    // Two batches: one with 2 rows, one with 1 row and room for another one.
    let waiting = [&[2.0f32, 3.0][..], &[4.0]].map(|values| Pending::submit(&batcher, values).unwrap());
    let refused = Pending::submit(&batcher, &[5.0, 6.0]).err();
    assert_eq!(refused, Some(ServeError::QueueFull(2)));
    assert_eq!(refused.unwrap().to_string(), "the queue is full: 2 batches wait, the maximum; try again later");
    let last = Pending::submit(&batcher, &[7.0]).unwrap();
    assert_eq!(Pending::submit(&batcher, &[8.0]).err(), Some(ServeError::QueueFull(2)));
    (0..3).for_each(|_| gate.go.send(()).unwrap());
    assert_eq!(running.result(), Ok(vec![2.0]));
    assert_eq!(waiting.map(|pending| pending.result().unwrap()), [vec![4.0, 6.0], vec![8.0]]);
    assert_eq!(last.result(), Ok(vec![14.0]));
    assert_eq!(batcher.statistics().refused, 2);
}

#[test]
fn threads_run_batches_at_the_same_time() {
    let (batcher, gate) = gated(&[1], options(NEVER, 3));
    let pending = [1.0, 2.0, 3.0].map(|value| Pending::submit(&batcher, &[value]).unwrap());
    // All have begun before the first one may end.
    (0..3).for_each(|_| assert_eq!(gate.begun.recv(), Ok(1)));
    (0..3).for_each(|_| gate.go.send(()).unwrap());
    assert_eq!(pending.map(|pending| pending.result().unwrap()), [[2.0], [4.0], [6.0]]);
}

/// Callers that wait for a batch that never fills get their results at the end, and later ones are refused.
#[test]
fn shutdown_answers_those_who_wait() {
    let batcher = doubling(&[100], options(NEVER, 2));
    std::thread::scope(|threads| {
        let call = |value: f32| batcher.call(&[rows(&[value])]).unwrap()[0].to_vec::<f32>().unwrap();
        let callers = [1.0f32, 2.0, 3.0].map(|value| threads.spawn(move || call(value)));
        while batcher.statistics().waiting < 3 {
            std::thread::yield_now();
        }
        batcher.shutdown();
        assert_eq!(callers.map(|caller| caller.join().unwrap()), [[2.0, -2.0], [4.0, -4.0], [6.0, -6.0]]);
    });
    assert_eq!(batcher.call(&[rows(&[1.0])]).err(), Some(ServeError::ShutDown));
    assert_eq!(batcher.statistics().refused, 1);
}

#[test]
fn a_batcher_that_is_dropped_answers_those_who_wait() {
    let batcher = doubling(&[100], options(NEVER, 2));
    let pending = Pending::submit(&batcher, &[1.0]).unwrap();
    drop(batcher);
    assert_eq!(pending.result(), Ok(vec![2.0]));
}

/// The receiver of a result may be the last owner of the batcher, which cannot wait for the receiver's thread.
#[test]
fn a_receiver_may_drop_the_batcher() {
    let batcher = Arc::new(doubling(&[1], options(NEVER, 1)));
    let (own, (drops, dropped), (ends, ended)) = (batcher.clone(), channel(), channel());
    let done = move |_| {
        dropped.recv().unwrap();
        drop(own);
        ends.send(()).unwrap();
    };
    batcher.submit(&[rows(&[1.0])], done).unwrap();
    drop(batcher);
    drops.send(()).unwrap();
    assert_eq!(ended.recv(), Ok(()));
}

#[test]
fn a_wrong_request_fails_alone() {
    let batcher = doubling(&[4], options(NEVER, 1));
    let told = |inputs: &[Tensor]| batcher.call(inputs).unwrap_err().to_string();
    let pending = Pending::submit(&batcher, &[1.0]).unwrap();
    let wide = Tensor::full(&cpu(), 1.0f32, &[1, 3]).unwrap();
    assert_eq!(told(&[wide]), "the request: input 0 must be x: f32[?,2], got f32[1,3]");
    assert_eq!(told(&[Tensor::scalar(&cpu(), 1.0f32)]), "the request: input 0 must be x: f32[?,2], got f32[]");
    assert_eq!(told(&[]), "the request: the model takes 1 inputs (x: f32[?,2]), got 0");
    assert_eq!(told(&[rows(&[])]), "the request: a request has 1 to 4 rows, got 0");
    assert_eq!(told(&[rows(&[1.0; 5])]), "the request: a request has 1 to 4 rows, got 5");
    let full = portable_cpu().limited(0);
    let refused = Tensor::scalar(&full, 1.0f32);
    let scalars = Batcher::new(&device(), &signature(), [4], options(NEVER, 1), || Ok(double)).unwrap();
    assert!(matches!(scalars.call(&[refused]), Err(ServeError::Request(_))));
    batcher.shutdown();
    assert_eq!(pending.result(), Ok(vec![2.0]));
    assert_eq!((batcher.statistics().refused, batcher.statistics().failed), (5, 0));
}

#[test]
fn inputs_have_the_same_rows() {
    let two = [signature()[0].clone(), TensorSpec::new(DType::F32, &[None])];
    let first = || Ok(|inputs: &[Tensor]| Ok(vec![inputs[1].clone(), inputs[0].clone()]));
    let batcher = Batcher::new(&device(), &two, 1..=4, options(Duration::ZERO, 1), first).unwrap();
    let y = |count| Tensor::full(&cpu(), 7.0f32, &[count]).unwrap();
    let error = batcher.call(&[rows(&[1.0]), y(2)]).unwrap_err().to_string();
    assert_eq!(error, "the request: the inputs must have the same number of rows, got 1 and 2");
    let outputs = batcher.call(&[rows(&[1.0, 2.0]), y(2)]).unwrap();
    assert_eq!((outputs[0].dims(), outputs[1].to_vec::<f32>().unwrap()), (&[2][..], vec![1.0, -1.0, 2.0, -2.0]));
}

/// An error of the model is only that of the requests that cause it.
#[test]
fn a_request_that_the_model_refuses_fails_alone() {
    let batcher = doubling(&[1, 3], options(NEVER, 1));
    let pending = [12.0, 13.0, 15.0].map(|value| Pending::submit(&batcher, &[value]).unwrap());
    let [first, second, third] = pending.map(Pending::result);
    assert_eq!((first, third), (Ok(vec![24.0]), Ok(vec![30.0])));
    assert_eq!(second.unwrap_err().to_string(), "the model: no number may be 13");
    let statistics = batcher.statistics();
    assert_eq!((statistics.failed, statistics.latencies.count(), statistics.batch_sizes[&1]), (1, 2, 2));
}

/// A panic fails its batch, and the thread goes on.
#[test]
fn a_panic_fails_its_batch() {
    let batcher = doubling(&[2], options(NEVER, 1));
    for _ in 0..2 {
        for result in [1.0, 14.0].map(|value| Pending::submit(&batcher, &[value]).unwrap()).map(Pending::result) {
            assert_eq!(result.unwrap_err().to_string(), "the model: it panicked: no number may be 14");
        }
        assert_eq!(Pending::submit(&batcher, &[5.0, 6.0]).unwrap().result(), Ok(vec![10.0, 12.0]));
    }
    batcher.submit(&[rows(&[1.0, 2.0])], |_| panic!("a receiver may panic")).unwrap();
    assert_eq!(Pending::submit(&batcher, &[5.0, 6.0]).unwrap().result(), Ok(vec![10.0, 12.0]));
    assert_eq!(batcher.statistics().failed, 4);
}

#[test]
fn outputs_need_the_rows_of_the_batch() {
    let sum = || Ok(|inputs: &[Tensor]| Ok(vec![inputs[0].sum(&[], false)?]));
    let batcher = Batcher::new(&device(), &signature(), [2], options(Duration::ZERO, 1), sum).unwrap();
    let error = batcher.call(&[rows(&[1.0])]).unwrap_err().to_string();
    assert_eq!(error, "the model: output 0 is f32[], but a batch of 2 rows needs 2 rows of results");
}

#[test]
fn wrong_settings_are_explained() {
    let told = |signature: &[TensorSpec], sizes: &[usize], options| {
        let batcher = Batcher::new(&device(), signature, sizes.iter().copied(), options, || Ok(double));
        batcher.err().map_or("nothing".into(), |error| error.to_string())
    };
    let usual = BatchingOptions::default();
    let sizes = |sizes: &[usize]| told(&signature(), sizes, usual);
    for wrong in [&[][..], &[0, 1], &[2, 2], &[2, 1]] {
        assert_eq!(sizes(wrong), format!("the allowed batch sizes must ascend from at least 1, as 1, 8, 32; they are {wrong:?}"));
    }
    assert_eq!(told(&signature(), &[1], BatchingOptions { num_batch_threads: 0, ..usual }), "num_batch_threads must be at least 1");
    assert_eq!(told(&signature(), &[1], BatchingOptions { max_enqueued_batches: 0, ..usual }), "max_enqueued_batches must be at least 1");
    assert_eq!(told(&[], &[1], usual), "a model without inputs has no batches");
    let closed = [TensorSpec::new(DType::F32, &[Some(1), Some(2)])];
    let open = "input 0 of a batch needs an open first dimension, and no other, such as f32[?,3]";
    assert_eq!(told(&closed, &[1], usual), format!("{open}; it is f32[1,2]"));
    assert_eq!(told(&[TensorSpec::new(DType::F32, &[None, None])], &[1], usual), format!("{open}; it is f32[?,?]"));
    let failing =
        Batcher::new(&device(), &signature(), [1], usual, || Err::<fn(&[Tensor]) -> Result<Vec<Tensor>>, _>(Error::message("no model")));
    assert_eq!(failing.err(), Some(Error::message("no model")));
}
