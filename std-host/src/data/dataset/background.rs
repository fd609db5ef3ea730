//! Stages that run on background threads.

use super::tune::{Setting, Tuned, Tuner};
use super::{Dataset, Elements, Stage};
use gradlet_core::Result;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of concurrent calls of a parallel stage, and the order of their results.
#[derive(Clone, Copy, Debug)]
pub struct Parallel {
    pub(super) calls: Setting,
    pub(super) deterministic: bool,
}

impl Parallel {
    /// Runs `calls` calls concurrently and keeps the order of the elements. With [`AUTOTUNE`](super::AUTOTUNE) the stage chooses the number
    /// itself.
    pub fn new(calls: impl Into<Setting>) -> Parallel {
        Parallel { calls: calls.into(), deterministic: true }
    }

    /// If true, which is the default, the results keep the order of the elements. If false, they arrive in the order in which they are
    /// ready.
    pub fn deterministic(self, deterministic: bool) -> Parallel {
        Parallel { deterministic, ..self }
    }

    /// Returns the initial number of concurrent calls. With [`AUTOTUNE`](super::AUTOTUNE) it is the number of cores.
    pub(super) fn first(&self) -> usize {
        match self.calls {
            Setting::Fixed(calls) => calls.max(1),
            Setting::Autotune => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Returns the maximum number of concurrent calls. With [`AUTOTUNE`](super::AUTOTUNE) it is four per core, because functions that wait
    /// for a disk or a network benefit from more than one per core.
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
    /// Applies a function to each element, like [`Dataset::map`], with several concurrent calls on background threads: `map_parallel(4,
    /// f)`, `map_parallel(AUTOTUNE, f)` or `map_parallel(Parallel::new(4).deterministic(false), f)`.
    ///
    /// A panic in `f` resumes in the thread that consumes the element.
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

    /// Fetches up to `buffer_size` elements ahead on a background thread. The earlier stages thus compute while the consumer works. A size
    /// of 0 adds no stage.
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

    /// Appends a stage whose `setting` may be tuned. If it is, `first` is its initial value.
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

/// Function that the threads call with the number of an element and the element.
type Work<T, U> = dyn Fn(u64, Result<T>) -> Result<U> + Send + Sync;

/// Configuration of a [`Background`].
pub(super) struct Plan {
    /// Initial number of threads.
    calls: usize,
    /// Maximum number of threads.
    most: usize,
    /// Initial number of elements that may be in progress or ready. `None` means twice the number of threads.
    ahead: Option<usize>,
    ordered: bool,
    tuned: Option<Arc<Tuned>>,
}

impl Plan {
    /// Creates a plan with one thread that works up to `ahead` elements ahead.
    pub(super) fn ahead(ahead: usize) -> Plan {
        Plan { calls: 1, most: 1, ahead: Some(ahead), ordered: true, tuned: None }
    }
}

/// Iterator whose elements are computed by background threads. The threads start at the first call of `next` and end when the iterator is
/// dropped.
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
    /// Signals that the first result is ready or that the input has ended.
    ready: Condvar,
    /// Signals that the consumer took a result.
    room: Condvar,
    /// Signals that the number of active threads has grown.
    more: Condvar,
}

struct Upstream<T> {
    elements: Elements<T>,
    next: u64,
    /// Number of elements to skip before the next one.
    skip: usize,
}

impl<T> Upstream<T> {
    fn next(&mut self) -> Option<Result<T>> {
        self.elements.nth(std::mem::take(&mut self.skip))
    }
}

struct Queue<U> {
    /// Results that were started but not yet taken, in order. `None` marks one that is not finished.
    slots: VecDeque<Option<Outcome<U>>>,
    /// Number of results taken.
    taken: u64,
    ahead: usize,
    calls: usize,
    /// True if a thread had to wait for room since the queue was last enlarged.
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
    /// Runs the loop of thread `index` until the input has ended or the iterator is dropped.
    fn help(&self, index: usize) {
        while let Some((number, element)) = self.begin(index) {
            let outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(number, element)));
            let mut queue = lock(&self.queue);
            let place = match self.ordered {
                true => (number - queue.taken) as usize,
                // Without ordering, a finished result takes the first free slot.
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

    /// Fetches the next element and its number, once the queue has room for its result. Returns `None` if the input has ended or the
    /// iterator was dropped. Only one thread at a time waits and fetches.
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
    /// True if no further element may be fetched.
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

    /// Starts threads until there are `count` of them. If the system refuses to create a thread, the existing ones continue.
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

    /// True if the next element, or the end, is available without waiting.
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

    /// Adjusts the tuned setting after the consumer has waited for `waited`.
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

/// Maximum buffer size of a prefetch stage that tunes itself.
const MOST_AHEAD: usize = 32;

impl<T: Send + 'static, U: Send + 'static> Iterator for Background<T, U> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        self.start();
        if self.threads.is_empty() {
            // The system could not create any thread, so this thread does the work.
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

    /// Skips elements. Those skipped before the threads start are not computed.
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
            // The thread caught every panic of the work, so joining returns no error to report.
            let _ = thread.join();
        }
    }
}
