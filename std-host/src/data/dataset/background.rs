//! Stages with threads of their own.

use super::tune::{Setting, Tuned, Tuner};
use super::{Dataset, Elements, Stage};
use gradlet_core::Result;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many calls run at the same time, and whether their results keep the order of the elements.
#[derive(Clone, Copy, Debug)]
pub struct Parallel {
    pub(super) calls: Setting,
    pub(super) deterministic: bool,
}

impl Parallel {
    /// So many calls, or [`AUTOTUNE`](super::AUTOTUNE), in order.
    pub fn new(calls: impl Into<Setting>) -> Parallel {
        Parallel { calls: calls.into(), deterministic: true }
    }

    /// Whether results come in the order of the elements, or as they are ready.
    pub fn deterministic(self, deterministic: bool) -> Parallel {
        Parallel { deterministic, ..self }
    }

    /// How many calls run at first: with [`AUTOTUNE`](super::AUTOTUNE) one on each core.
    pub(super) fn first(&self) -> usize {
        match self.calls {
            Setting::Fixed(calls) => calls.max(1),
            Setting::Autotune => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The most calls that may run: functions that wait for a disk or a network gain from more than one on each core.
    fn most(&self) -> usize {
        match self.calls {
            Setting::Fixed(calls) => calls.max(1),
            Setting::Autotune => 4 * self.first(),
        }
    }
}

impl<S: Into<Setting>> From<S> for Parallel {
    fn from(calls: S) -> Parallel {
        Parallel::new(calls)
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// [`Dataset::map`] with several calls at the same time, each on a thread: `map_parallel(4, f)`, `map_parallel(AUTOTUNE, f)` or
    /// `map_parallel(Parallel::new(4).deterministic(false), f)`.
    ///
    /// A panic in `f` comes out where the element is used.
    pub fn map_parallel<U: Send + 'static>(
        &self,
        parallel: impl Into<Parallel>,
        f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let parallel = parallel.into();
        let f = Arc::new(f);
        self.tuned_stage("map", parallel.calls, parallel.first(), move |from, stage, tuned| {
            let f = f.clone();
            let work = move |number, element: Result<T>| element.and_then(|element| f(element).map_err(|error| stage.at(number, error)));
            let plan = Plan { calls: parallel.first(), most: parallel.most(), ahead: None, ordered: parallel.deterministic, tuned };
            Box::new(Background::new(from, Arc::new(work), plan))
        })
        .with_any_spec(None)
    }

    /// Fetches up to `buffer_size` elements ahead, on a thread of its own: what is before this stage works while the consumer does.
    pub fn prefetch(&self, buffer_size: impl Into<Setting>) -> Dataset<T> {
        let buffer_size = buffer_size.into();
        if buffer_size == Setting::Fixed(0) {
            return self.clone();
        }
        self.tuned_stage("prefetch", buffer_size, 1, move |from, _, tuned| {
            let ahead = match buffer_size {
                Setting::Fixed(size) => size,
                Setting::Autotune => 1,
            };
            Box::new(Background::new(from, Arc::new(|_, element| element), Plan { tuned, ..Plan::ahead(ahead) }))
        })
    }

    /// A stage that may have a setting to be tuned, from `first` on.
    fn tuned_stage<U: Send + 'static>(
        &self,
        name: &'static str,
        setting: Setting,
        first: usize,
        start: impl Fn(Elements<T>, Stage, Option<Arc<Tuned>>) -> Elements<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let stage = Stage { number: self.about.stage.number + 1, name };
        let tuned = (setting == Setting::Autotune).then(|| Tuned::new(stage, first));
        let own = tuned.clone();
        let mut next = self.stage(name, move |from, stage| start(from, stage, own.clone()));
        next.about.tuned.extend(tuned);
        next
    }
}

/// What the threads make of an element, which has this number.
type Work<T, U> = dyn Fn(u64, Result<T>) -> Result<U> + Send + Sync;

/// How a [`Background`] works.
pub(super) struct Plan {
    /// How many threads there are, at first.
    calls: usize,
    /// How many there may be.
    most: usize,
    /// How many elements are begun ahead, at first; twice as many as threads, if `None`.
    ahead: Option<usize>,
    ordered: bool,
    tuned: Option<Arc<Tuned>>,
}

impl Plan {
    /// One thread, and so many elements ahead.
    pub(super) fn ahead(ahead: usize) -> Plan {
        Plan { calls: 1, most: 1, ahead: Some(ahead), ordered: true, tuned: None }
    }
}

/// A pass whose elements are made by threads of its own, from the first one that is asked for until it is dropped.
pub(super) struct Background<T, U> {
    shared: Arc<Shared<T, U>>,
    threads: Vec<JoinHandle<()>>,
    started: bool,
    plan: Plan,
    tuner: Tuner,
}

struct Shared<T, U> {
    from: Mutex<Upstream<T>>,
    queue: Mutex<Queue<U>>,
    work: Arc<Work<T, U>>,
    ordered: bool,
    /// The first result is there, or all are over.
    ready: Condvar,
    /// A result was taken.
    room: Condvar,
    /// More threads are wanted.
    more: Condvar,
}

struct Upstream<T> {
    elements: Elements<T>,
    next: u64,
    /// How many elements are to be passed over.
    skip: usize,
}

impl<T> Upstream<T> {
    fn next(&mut self) -> Option<Result<T>> {
        self.elements.nth(std::mem::take(&mut self.skip))
    }
}

struct Queue<U> {
    /// What was begun and not taken; `None` while it is not done.
    slots: VecDeque<Option<Outcome<U>>>,
    /// How many were taken.
    taken: u64,
    ahead: usize,
    calls: usize,
    /// Whether a thread had to wait for room since the queue was made longer.
    was_full: bool,
    ended: bool,
    stopped: bool,
}

type Outcome<U> = Result<Result<U>, Box<dyn Any + Send>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'q, T>(bell: &Condvar, guard: MutexGuard<'q, T>) -> MutexGuard<'q, T> {
    bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + 'static, U: Send + 'static> Shared<T, U> {
    /// What thread `index` does until all is over.
    fn help(&self, index: usize) {
        while let Some((number, element)) = self.begin(index) {
            let outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(number, element)));
            let mut queue = lock(&self.queue);
            let place = match self.ordered {
                true => (number - queue.taken) as usize,
                // Whatever is done takes the first free place.
                false => queue.slots.iter().position(Option::is_none).unwrap_or(0),
            };
            if let Some(slot) = queue.slots.get_mut(place) {
                *slot = Some(outcome);
            }
            if place == 0 {
                self.ready.notify_one();
            }
        }
    }

    /// The next element, once there is room for what is made of it. One thread at a time waits and fetches.
    fn begin(&self, index: usize) -> Option<(u64, Result<T>)> {
        let mut queue = lock(&self.queue);
        while index >= queue.calls && !queue.over() {
            queue = wait(&self.more, queue);
        }
        drop(queue);
        let mut from = lock(&self.from);
        let mut queue = lock(&self.queue);
        while queue.slots.len() >= queue.ahead && !queue.over() {
            queue.was_full = true;
            queue = wait(&self.room, queue);
        }
        if queue.over() {
            return None;
        }
        drop(queue);
        let element = catch_unwind(AssertUnwindSafe(|| from.next()));
        let mut queue = lock(&self.queue);
        match element {
            Ok(Some(element)) => {
                queue.slots.push_back(None);
                let number = from.next;
                from.next += 1;
                return Some((number, element));
            }
            Ok(None) => {}
            Err(panic) => queue.slots.push_back(Some(Err(panic))),
        }
        queue.ended = true;
        self.ready.notify_all();
        self.more.notify_all();
        None
    }
}

impl<U> Queue<U> {
    /// Whether nothing more is to be begun.
    fn over(&self) -> bool {
        self.ended || self.stopped
    }
}

impl<T: Send + 'static, U: Send + 'static> Background<T, U> {
    pub(super) fn new(elements: Elements<T>, work: Arc<Work<T, U>>, plan: Plan) -> Background<T, U> {
        let tuned = plan.tuned.as_ref().map(|tuned| tuned.value());
        let calls = tuned.filter(|_| plan.ahead.is_none()).unwrap_or(plan.calls);
        let ahead = plan.ahead.map_or(2 * calls, |ahead| tuned.unwrap_or(ahead));
        let queue = Queue { slots: VecDeque::new(), taken: 0, ahead, calls, was_full: false, ended: false, stopped: false };
        let shared = Arc::new(Shared {
            from: Mutex::new(Upstream { elements, next: 0, skip: 0 }),
            queue: Mutex::new(queue),
            work,
            ordered: plan.ordered,
            ready: Condvar::new(),
            room: Condvar::new(),
            more: Condvar::new(),
        });
        let tuner = Tuner::new(plan.most);
        Background { shared, threads: Vec::new(), started: false, plan, tuner }
    }

    /// Starts threads until there are so many. Where the system gives none, those that are there go on.
    fn employ(&mut self, count: usize) {
        self.started = true;
        while self.threads.len() < count {
            let (shared, index) = (self.shared.clone(), self.threads.len());
            match std::thread::Builder::new().name("gradlet-data".into()).spawn(move || shared.help(index)) {
                Ok(thread) => self.threads.push(thread),
                Err(_) => break,
            }
        }
    }

    /// Whether the next element, or the end, is there already.
    pub(super) fn is_ready(&mut self) -> bool {
        self.start();
        let queue = lock(&self.shared.queue);
        queue.ended || queue.slots.front().is_some_and(Option::is_some)
    }

    fn start(&mut self) {
        if !self.started {
            let calls = lock(&self.shared.queue).calls;
            self.employ(calls);
        }
    }

    /// Changes what is tuned, after the consumer waited so long.
    fn tune(&mut self, waited: Duration) {
        let Some(tuned) = self.plan.tuned.clone() else { return };
        if self.plan.ahead.is_some() {
            let mut queue = lock(&self.shared.queue);
            if !waited.is_zero() && queue.was_full && queue.ahead < MOST_AHEAD {
                queue.ahead *= 2;
                queue.was_full = false;
                tuned.set(queue.ahead);
            }
            return;
        }
        let calls = self.tuner.observe(waited, tuned.value());
        if calls != tuned.value() {
            tuned.set(calls);
            self.employ(calls);
            let mut queue = lock(&self.shared.queue);
            (queue.calls, queue.ahead) = (calls, 2 * calls);
            self.shared.more.notify_all();
            self.shared.room.notify_all();
        }
    }
}

/// The most elements that a prefetch which tunes itself holds.
const MOST_AHEAD: usize = 32;

impl<T: Send + 'static, U: Send + 'static> Iterator for Background<T, U> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        self.start();
        if self.threads.is_empty() {
            // The system has no thread for us: this one does the work.
            let mut from = lock(&self.shared.from);
            let (element, number) = (from.next()?, from.next);
            from.next += 1;
            return Some((self.shared.work)(number, element));
        }
        let mut queue = lock(&self.shared.queue);
        let mut since = None;
        let outcome = loop {
            if let Some(Some(_)) = queue.slots.front() {
                queue.taken += 1;
                break queue.slots.pop_front().flatten();
            }
            if queue.ended && queue.slots.is_empty() {
                break None;
            }
            since.get_or_insert_with(Instant::now);
            queue = wait(&self.shared.ready, queue);
        };
        drop(queue);
        self.shared.room.notify_one();
        self.tune(since.map_or(Duration::ZERO, |since| since.elapsed()));
        Some(outcome?.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// What is skipped before the threads start is not computed.
    fn nth(&mut self, skip: usize) -> Option<Result<U>> {
        if self.started {
            self.by_ref().take(skip).for_each(drop);
        } else {
            let mut from = lock(&self.shared.from);
            from.skip += skip;
            from.next += skip as u64;
            lock(&self.shared.queue).taken = from.next;
        }
        self.next()
    }
}

impl<T, U> Drop for Background<T, U> {
    fn drop(&mut self) {
        lock(&self.shared.queue).stopped = true;
        [&self.shared.ready, &self.shared.room, &self.shared.more].into_iter().for_each(Condvar::notify_all);
        for thread in self.threads.drain(..) {
            // It caught every panic of the work; there is nothing to be told.
            let _ = thread.join();
        }
    }
}
