//! Collective operations between the replicas of a process.

// A sum in borrowed memory: see `Loan::add`.
#![allow(unsafe_code)]

use super::loan::Loan;
use gradlet_core::device::AlignedBytes;
use gradlet_core::{DType, Error, Result};
use std::any::Any;
use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Operation that combines the values of replicas: TensorFlow's `tf.distribute.ReduceOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// The sum. Its order is that of the replicas, unless NCCL adds the values of three or more GPUs.
    Sum,
    /// The sum, divided by the number of replicas.
    Mean,
}

impl FromStr for ReduceOp {
    type Err = Error;

    fn from_str(name: &str) -> Result<ReduceOp> {
        match name.to_ascii_uppercase().as_str() {
            "SUM" => Ok(ReduceOp::Sum),
            "MEAN" => Ok(ReduceOp::Mean),
            _ => Err(Error::message(format!("{name:?} is not a reduction: write SUM or MEAN"))),
        }
    }
}

/// Collective operations between the replicas of one run of a strategy. This crate's own works between threads. A communicator between
/// GPUs or processes implements the same trait.
///
/// All replicas call the same operations in the same order. Each call returns when all replicas have made it. If one of them fails, leaves
/// or does not arrive in time, all of them get an error, and so does every later call of the run.
pub trait Communicator: Send + Sync {
    /// Returns the parts of all replicas, in the order of the replicas. `what` describes the call. It must be the same in all replicas.
    fn all_gather(&self, rank: usize, what: Exchange, part: &[u8]) -> Result<Arc<[AlignedBytes]>>;

    /// Replaces `data`, the part of this replica, by the elementwise sum of the parts of all replicas, in the order of the replicas. All
    /// get the same bits.
    fn all_reduce(&self, rank: usize, what: Exchange, data: &mut [u8]) -> Result<()> {
        let parts = self.all_gather(rank, what, data)?;
        super::sum::ordered(what.dtype, &parts, data)
    }

    /// Combines tensors in the memory of the replicas' devices, without the host's, and returns true. Otherwise returns false, in all
    /// replicas, and their tensors come through [`all_reduce`](Communicator::all_reduce) and [`all_gather`](Communicator::all_gather). The
    /// default returns false.
    fn combine(&self, rank: usize, what: Exchange, part: DevicePart) -> Result<bool> {
        let _ = (rank, what, part);
        Ok(false)
    }

    /// Reports that a replica has ended: successfully, or with this error.
    fn leave(&self, rank: usize, error: Option<&str>);
}

/// The part of a replica in the memory of its device, which the host does not address. A communicator that wraps another one passes it on.
pub struct DevicePart(pub(super) Box<dyn Any + Send>);

/// Combination of tensors in the memory of devices.
pub(super) trait Reducer: Send + Sync {
    /// Combines the parts of all replicas. A replica whose part is in memory of the host has none here. Returns false, and has done
    /// nothing, if the host must combine the parts.
    fn combine(&self, parts: &[Option<&(dyn Any + Send)>]) -> Result<bool>;
}

/// Description of a collective call. It is the same in all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Name of the operation, for errors.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Number of bytes of a part, or `None` if the parts may differ in size.
    pub bytes: Option<usize>,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            Some(bytes) => write!(f, "{} of {} elements {}", self.name, bytes / self.dtype.size(), self.dtype),
            None => write!(f, "{} of elements {}", self.name, self.dtype),
        }
    }
}

/// Maker of communicators, one for each run of a strategy: TensorFlow's `tf.distribute.CrossDeviceOps`.
pub trait CrossDeviceOps: Send + Sync {
    /// Returns a communicator for a run of `replicas` replicas, which wait for each other no longer than `limit`.
    fn begin(&self, replicas: usize, limit: Duration) -> Result<Arc<dyn Communicator>>;
}

/// Exchange of data between threads of this process: in memory of the host, or by kernels if all devices are logical devices of one GPU.
/// The results are the same. TensorFlow has `ReductionToOneDevice` for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl CrossDeviceOps for InProcess {
    fn begin(&self, replicas: usize, limit: Duration) -> Result<Arc<dyn Communicator>> {
        #[cfg(feature = "cuda")]
        let reducer: Option<Arc<dyn Reducer>> = Some(Arc::new(super::gpus::Kernels));
        #[cfg(not(feature = "cuda"))]
        let reducer = None;
        Ok(Arc::new(Hub::new(replicas, limit, reducer)))
    }
}

/// Place where the threads of a run meet.
pub(super) struct Hub {
    limit: Duration,
    reducer: Option<Arc<dyn Reducer>>,
    meeting: Mutex<Meeting>,
    bell: Condvar,
}

#[derive(Default)]
struct Meeting {
    /// Number of the meeting, counted from 0.
    number: u64,
    /// The call and the part of each replica that has arrived.
    arrived: Vec<Option<(Exchange, Part)>>,
    /// The parts of the last meeting.
    parts: Option<Parts>,
    /// Number of meetings after which no replica uses a loan any more.
    done: u64,
    /// Number of replicas that have finished the work of the meeting after those.
    finished: usize,
    /// Replicas that have ended.
    ended: Vec<bool>,
    /// Reason why the run has failed.
    failed: Option<String>,
}

/// Contribution of a replica to a meeting.
enum Part {
    Copy(AlignedBytes),
    Loan(Loan),
    Device(DevicePart),
}

impl Part {
    fn on_device(&self) -> Option<&(dyn Any + Send)> {
        if let Part::Device(DevicePart(part)) = self { Some(&**part) } else { None }
    }
}

/// Contributions of all replicas, in their order.
#[derive(Clone)]
enum Parts {
    Copies(Arc<[AlignedBytes]>),
    Loans(Arc<[Loan]>),
    /// Some parts were in the memory of devices, and were combined there or not.
    Devices {
        are_combined: bool,
    },
}

/// Time that a thread looks for the others before it sleeps. The replicas of a training step arrive within this time, and waking a thread
/// would take longer.
const PATIENCE: Duration = Duration::from_millis(2);

impl Hub {
    pub(super) fn new(replicas: usize, limit: Duration, reducer: Option<Arc<dyn Reducer>>) -> Hub {
        let arrived = (0..replicas).map(|_| None).collect();
        let meeting = Meeting { arrived, ended: vec![false; replicas], ..Meeting::default() };
        Hub { limit, reducer, meeting: Mutex::new(meeting), bell: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until meeting `number` is complete, and returns its parts.
    fn wait(&self, number: u64, what: Exchange) -> Result<Parts> {
        let start = Instant::now();
        // On a busy machine, a thread that yields may not run again for milliseconds.
        while start.elapsed() < PATIENCE.min(self.limit) {
            if let Some(result) = self.lock().result(number) {
                return result;
            }
            std::thread::yield_now();
        }
        let mut meeting = self.lock();
        loop {
            if let Some(result) = meeting.result(number) {
                return result;
            }
            let left = self.limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                let missing = meeting.missing();
                let text = format!("{missing} did not arrive at {what} within {:?}", self.limit);
                let error = meeting.fail(text);
                self.bell.notify_all();
                return Err(error);
            }
            meeting = self.bell.wait_timeout(meeting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Meeting {
    /// Returns the parts of meeting `number` if it is complete, or the error if the run has failed.
    fn result(&self, number: u64) -> Option<Result<Parts>> {
        if self.number > number {
            return self.parts.clone().map(Ok);
        }
        self.failed.as_ref().map(|text| Err(Error::message(text.clone())))
    }

    /// Makes the run fail, if it has not failed before. Returns its error. Nobody uses the parts that have arrived after that.
    fn fail(&mut self, text: String) -> Error {
        self.arrived.iter_mut().for_each(|arrived| *arrived = None);
        Error::message(self.failed.get_or_insert(text).clone())
    }

    /// Returns the names of the replicas that have not arrived.
    fn missing(&self) -> String {
        let missing = self.arrived.iter().enumerate().filter(|(_, arrived)| arrived.is_none());
        missing.map(|(rank, _)| format!("replica {rank}")).collect::<Vec<_>>().join(", ")
    }
}

impl Hub {
    /// Returns the parts of all replicas, once all of them have arrived.
    fn meet(&self, rank: usize, what: Exchange, part: Part) -> Result<Parts> {
        let mut meeting = self.lock();
        if let Some(text) = &meeting.failed {
            return Err(Error::message(text.clone()));
        }
        if let Some(gone) = meeting.ended.iter().position(|&ended| ended) {
            let error = meeting.fail(format!("replica {gone} has ended without {what}, which replica {rank} calls"));
            self.bell.notify_all();
            return Err(error);
        }
        // A replica that calls twice at once would have two loans, but one share of the sum.
        if meeting.arrived[rank].is_some() || meeting.done != meeting.number {
            let error = meeting.fail(format!("replica {rank} calls {what} while another call of this replica has not returned"));
            self.bell.notify_all();
            return Err(error);
        }
        let kind = discriminant(&part);
        let others = meeting.arrived.iter().enumerate().filter_map(|(other, arrived)| Some((other, arrived.as_ref()?)));
        // Parts of devices that do not fit meet again on the host.
        let mut others = others.filter(|(_, (_, theirs))| part.on_device().or(theirs.on_device()).is_none());
        let different = others.find(|(_, (theirs, part))| (*theirs, discriminant(part)) != (what, kind));
        let different = different.map(|(other, (theirs, _))| (other, *theirs));
        if let Some((other, theirs)) = different {
            let error = meeting.fail(format!("replica {rank} calls {what}, but replica {other} calls {theirs}"));
            self.bell.notify_all();
            return Err(error);
        }
        let number = meeting.number;
        meeting.arrived[rank] = Some((what, part));
        if meeting.arrived.iter().any(Option::is_none) {
            drop(meeting);
            return self.wait(number, what);
        }
        let all = meeting.arrived.iter_mut().filter_map(Option::take).map(|(_, part)| part).collect();
        let parts = match self.joined(all) {
            Ok(parts) => parts,
            Err(error) => {
                let error = meeting.fail(error.to_string());
                self.bell.notify_all();
                return Err(error);
            }
        };
        meeting.number += 1;
        if !matches!(parts, Parts::Loans(_)) {
            meeting.done = meeting.number;
        }
        meeting.parts = Some(parts.clone());
        drop(meeting);
        self.bell.notify_all();
        Ok(parts)
    }

    /// Joins the parts of all replicas. If some are in the memory of devices, tries to combine them there.
    fn joined(&self, all: Vec<Part>) -> Result<Parts> {
        let parts: Vec<_> = all.iter().map(Part::on_device).collect();
        if parts.iter().any(Option::is_some) {
            let are_combined = self.reducer.as_ref().map_or(Ok(false), |reducer| reducer.combine(&parts))?;
            return Ok(Parts::Devices { are_combined });
        }
        let (mut copies, mut loans) = (Vec::new(), Vec::new());
        for part in all {
            match part {
                Part::Copy(copy) => copies.push(copy),
                Part::Loan(loan) => loans.push(loan),
                Part::Device(_) => return Err(Error::Internal),
            }
        }
        Ok(if loans.is_empty() { Parts::Copies(copies.into()) } else { Parts::Loans(loans.into()) })
    }

    /// Returns the parts of all replicas, as [`Hub::meet`]. If they could not be combined in the memory of devices, all meet again.
    fn meet_on_host(&self, rank: usize, what: Exchange, mut part: impl FnMut() -> Part) -> Result<Parts> {
        loop {
            match self.meet(rank, what, part())? {
                Parts::Devices { .. } => (),
                parts => return Ok(parts),
            }
        }
    }

    /// Waits until all replicas have finished the work of the last meeting.
    fn finish(&self) {
        let mut meeting = self.lock();
        let done = meeting.done;
        meeting.finished += 1;
        if meeting.finished == meeting.arrived.len() {
            (meeting.finished, meeting.done) = (0, done + 1);
            drop(meeting);
            return self.bell.notify_all();
        }
        drop(meeting);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.lock().done > done {
                return;
            }
            std::thread::yield_now();
        }
        let mut meeting = self.lock();
        while meeting.done == done {
            meeting = self.bell.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Communicator for Hub {
    fn all_gather(&self, rank: usize, what: Exchange, part: &[u8]) -> Result<Arc<[AlignedBytes]>> {
        match self.meet_on_host(rank, what, || Part::Copy(AlignedBytes::from(part)))? {
            Parts::Copies(parts) => Ok(parts),
            _ => Err(Error::Internal),
        }
    }

    /// Each replica adds its share of the elements, and writes it for all of them.
    fn all_reduce(&self, rank: usize, what: Exchange, data: &mut [u8]) -> Result<()> {
        let parts = self.meet_on_host(rank, what, || Part::Loan(Loan::new(data)))?;
        let Parts::Loans(loans) = parts else { return Err(Error::Internal) };
        // SAFETY: a meeting takes one call of each replica, and no other meeting begins before this one is done. `finish` waits for all of
        // them, and `data` is borrowed until then. A call that fails before has no loan in a meeting that takes place.
        unsafe { Loan::add(&loans, rank, what.dtype, || self.finish()) }
    }

    fn combine(&self, rank: usize, what: Exchange, part: DevicePart) -> Result<bool> {
        let parts = self.meet(rank, what, Part::Device(part))?;
        Ok(matches!(parts, Parts::Devices { are_combined: true }))
    }

    fn leave(&self, rank: usize, error: Option<&str>) {
        let mut meeting = self.lock();
        meeting.ended[rank] = true;
        let waiting = meeting.arrived.iter().position(Option::is_some);
        match (error, waiting) {
            (Some(error), _) => drop(meeting.fail(format!("replica {rank} failed: {error}"))),
            (None, Some(other)) => {
                let what = meeting.arrived[other].as_ref().map_or(String::new(), |(what, _)| what.to_string());
                drop(meeting.fail(format!("replica {rank} has ended without {what}, which replica {other} calls")));
            }
            (None, None) => (),
        }
        drop(meeting);
        self.bell.notify_all();
    }
}
