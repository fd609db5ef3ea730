//! The recorder of the activities and the memory of a profiled device, with their times.

use super::memory::MemoryEvent;
use super::trace::Options;
use gradlet_core::device::{Activity, MemoryChange, NamedOp, Profiler, Transfer};
use gradlet_core::function::graph::Graph;
use gradlet_core::{Device, Variable};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Recorder of a profiled device. It keeps the data until they are taken.
pub(super) struct Recording {
    device: String,
    options: Options,
    start: Instant,
    start_ns: u64,
    /// True while activities are recorded.
    on: AtomicBool,
    state: Mutex<Option<Observation>>,
}

/// Recorded data.
#[derive(Default)]
pub(super) struct Observation {
    pub(super) threads: Vec<Thread>,
    pub(super) memory: Vec<MemoryEvent>,
    /// Names of the devices that measured their work.
    pub(super) clocks: Vec<String>,
    /// Number of activities with a time of a device.
    measured: u64,
    pub(super) functions: Vec<Traced>,
}

/// A function that ran.
pub(super) struct Traced {
    name: String,
    pub(super) traced: Graph,
    pub(super) optimized: Graph,
}

pub(super) struct Thread {
    id: ThreadId,
    pub(super) name: String,
    pub(super) events: Vec<Event>,
    /// Indices of the events that have not ended.
    open: Vec<usize>,
}

/// An activity, with times in nanoseconds since the start of the recording.
pub(super) struct Event {
    pub(super) what: What,
    around: Option<usize>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) computed: Option<Computed>,
}

/// Work that a device measured with its own clock.
#[derive(Clone, Copy)]
pub(super) struct Computed {
    /// Index of the device in `Observation::clocks`.
    device: usize,
    nanoseconds: u64,
    /// Number that no other work has.
    pub(super) number: u64,
}

pub(super) enum What {
    /// A call of a function: its name, and its index in `Observation::functions` once known.
    Function(String, Option<usize>),
    Step(String, i64),
    Scope(String),
    Ops {
        nodes: Vec<NamedOp>,
        read: u64,
        written: u64,
    },
    /// A copy of a tensor: the names of the two devices, and the number of bytes.
    Copy {
        from: String,
        to: String,
        bytes: u64,
    },
    /// A transfer from or to a device's own memory: its kind, and the number of bytes.
    Transfer(Transfer, u64),
    Gap(&'static str),
}

/// Ops of a function's last run that ran as one step: their nodes, the start in nanoseconds of Unix time, and the duration in nanoseconds.
pub(super) struct Timed<'r> {
    pub(super) nodes: &'r [NamedOp],
    pub(super) start_ns: u64,
    pub(super) duration_ns: u64,
}

impl Recording {
    pub(super) fn new(device: &Device, options: Options) -> Recording {
        let start_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let before = Some(device.memory_info()).filter(|memory| options.profiler && memory.current > 0);
        let memory = before.map(|memory| MemoryEvent::before(start_ns, memory)).into_iter().collect();
        let state = Mutex::new(Some(Observation { memory, ..Observation::default() }));
        Recording { device: device.name().into(), options, start: Instant::now(), start_ns, on: AtomicBool::new(true), state }
    }

    /// Returns the name of the device.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// Returns the start in nanoseconds of Unix time.
    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Option<Observation>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the recorded data and stops the recording. Returns `None` if the data were already taken.
    pub(super) fn take(&self) -> Option<Observation> {
        self.on.store(false, Ordering::Relaxed);
        let now = self.now();
        let mut record = self.lock().take()?;
        for thread in &mut record.threads {
            for open in thread.open.drain(..) {
                thread.events[open].end = now;
            }
        }
        Some(record)
    }

    /// Puts data back that could not be written.
    pub(super) fn give_back(&self, record: Observation) {
        *self.lock() = Some(record);
    }

    fn open(&self, what: What) {
        let mut state = self.lock();
        let Some(thread) = state.as_mut().map(Observation::thread) else { return };
        thread.open.push(thread.events.len());
        let around = thread.open.len().checked_sub(2).map(|before| thread.open[before]);
        thread.events.push(Event { what, around, start: 0, end: 0, computed: None });
        // The start time is read last, so that it excludes the work in this function.
        let now = self.now();
        thread.events.last_mut().into_iter().for_each(|event| event.start = now);
    }

    pub(super) fn step(&self, name: &str, number: i64) {
        if self.options.profiler {
            self.open(What::Step(name.into(), number));
        }
    }

    pub(super) fn step_over(&self) {
        if self.options.profiler {
            self.end();
        }
    }

    /// Returns the ops of the last run of function number `index`, with their times. Empty if no run was recorded.
    pub(super) fn last_run<'r>(&self, record: &'r Observation, index: usize) -> Vec<Timed<'r>> {
        let is_run = |event: &Event| matches!(event.what, What::Function(_, Some(of)) if of == index);
        let runs = record.threads.iter().filter_map(|thread| Some((thread, thread.events.iter().rposition(is_run)?)));
        let Some((thread, run)) = runs.max_by_key(|(thread, run)| thread.events[*run].start) else { return Vec::new() };
        let within = thread.events.iter().enumerate().skip(run).filter(|(event, _)| thread.around(*event).any(|around| around == run));
        let timed = within.filter_map(|(_, event)| match &event.what {
            What::Ops { nodes, .. } => {
                let (start, duration_ns) = event.times();
                Some(Timed { nodes, start_ns: self.start_ns + start, duration_ns })
            }
            _ => None,
        });
        timed.collect()
    }
}

impl Profiler for Recording {
    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn begin(&self, activity: &Activity<'_>) {
        if self.options.profiler && self.is_on() {
            self.open(match *activity {
                Activity::Function(name) => What::Function(name.into(), None),
                Activity::Scope(name) => What::Scope(name.into()),
                Activity::Ops(ops) => What::Ops { nodes: ops.nodes.clone(), read: ops.read, written: ops.written },
                Activity::Copy(copy) => {
                    let bytes = copy.tensor_type.bytes().unwrap_or(0) as u64;
                    What::Copy { from: copy.from.name().into(), to: copy.to.name().into(), bytes }
                }
                Activity::Transfer(kind, bytes) => What::Transfer(kind, bytes),
                Activity::Gap(name) => What::Gap(name),
            });
        }
    }

    fn end(&self) {
        let now = self.now();
        if let Some(record) = self.lock().as_mut() {
            let thread = record.thread();
            if let Some(event) = thread.open.pop().and_then(|open| thread.events.get_mut(open)) {
                event.end = now;
            }
        }
    }

    fn computed(&self, device: &Device, nanoseconds: u64) {
        let mut state = self.lock();
        let Some(record) = state.as_mut().filter(|_| self.options.profiler) else { return };
        record.measured += 1;
        let computed = Computed { device: record.clock(device.name()), nanoseconds, number: record.measured };
        let thread = record.thread();
        if let Some(event) = thread.open.last().and_then(|&open| thread.events.get_mut(open)) {
            event.computed = Some(computed);
        }
    }

    fn memory(&self, change: &MemoryChange<'_>) {
        if !self.options.profiler || !self.is_on() {
            return;
        }
        let mut state = self.lock();
        let Some(record) = state.as_mut() else { return };
        // TensorBoard sorts by time, and would mix changes of the same time.
        let next = record.memory.last().map_or(0, |last| last.time_ns + 1);
        record.memory.push(MemoryEvent::new(next.max(self.start_ns + self.now()), change));
    }

    fn function(&self, name: &str, traced: &Graph, optimized: &Graph) {
        let mut state = self.lock();
        let Some(record) = state.as_mut().filter(|_| self.options.graph) else { return };
        let alike = |known: &Traced| known.name == name && same(&known.traced, traced);
        let index = record.functions.iter().position(alike).unwrap_or_else(|| {
            record.functions.push(Traced { name: name.into(), traced: traced.clone(), optimized: optimized.clone() });
            record.functions.len() - 1
        });
        let thread = record.thread();
        let run = thread.open.iter().rev().copied().find(|&open| matches!(thread.events[open].what, What::Function(..)));
        if let Some(What::Function(_, of)) = run.map(|run| &mut thread.events[run].what) {
            *of = Some(index);
        }
    }
}

impl Observation {
    /// Returns the data of the current thread.
    fn thread(&mut self) -> &mut Thread {
        let current = thread::current();
        let index = self.threads.iter().position(|thread| thread.id == current.id()).unwrap_or_else(|| {
            let name = current.name().map_or_else(|| format!("thread {}", self.threads.len() + 1), Into::into);
            self.threads.push(Thread { id: current.id(), name, events: Vec::new(), open: Vec::new() });
            self.threads.len() - 1
        });
        &mut self.threads[index]
    }

    /// Returns the index of a device in `clocks`. Adds it if it is not there.
    fn clock(&mut self, device: &str) -> usize {
        self.clocks.iter().position(|known| known == device).unwrap_or_else(|| {
            self.clocks.push(device.into());
            self.clocks.len() - 1
        })
    }
}

impl Event {
    /// Returns the index of the device that measured the event.
    pub(super) fn device(&self) -> Option<usize> {
        self.computed.map(|computed| computed.device)
    }

    /// Returns the start and the duration, in nanoseconds. The duration is that by the device's clock, if the device measured it.
    pub(super) fn times(&self) -> (u64, u64) {
        match self.computed {
            Some(Computed { nanoseconds, .. }) => (self.end.saturating_sub(nanoseconds), nanoseconds),
            None => (self.start, self.end.saturating_sub(self.start)),
        }
    }
}

impl Thread {
    /// Returns the indices of the events that enclose an event, innermost first.
    pub(super) fn around(&self, event: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.events[event].around, |&around| self.events[around].around)
    }
}

/// True if two graphs with the same name are the same function: their inputs, variables and node names match.
fn same(one: &Graph, other: &Graph) -> bool {
    let types = |graph: &Graph| graph.inputs.iter().map(|&id| graph.values[id].tensor_type).collect::<Vec<_>>();
    let variables = |graph: &Graph| graph.captures.iter().map(|capture| capture.source.variable().map(Variable::id)).collect::<Vec<_>>();
    let names = |graph: &Graph| graph.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    types(one) == types(other) && variables(one) == variables(other) && names(one) == names(other)
}
