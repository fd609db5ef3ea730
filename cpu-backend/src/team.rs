//! A team of helper threads, on which fast kernels and compiled functions run parallel work.
//!
//! A training step has many short stretches of parallel work, a few microseconds apart, so a helper spins for a while before it
//! sleeps. A thread that offers work takes part in it, and withdraws the offer when nothing is left. It never waits for a helper
//! that has not started.

// The work borrows from its caller, but the helpers outlive the call: see `Team::offer`.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time that a helper spins for work before it sleeps.
const PATIENCE: Duration = Duration::from_micros(200);

static TEAM: LazyLock<Team> = LazyLock::new(|| Team::new(wanted_threads()));

/// Returns the number of threads that share work: those of the team that works here, otherwise `GRADLET_NUM_THREADS` or the number of
/// cores.
pub fn threads() -> usize {
    with_own(|team| team.threads)
}

/// Calls `work` with each of `items`. If `parallel` is true, all free threads take part. A nested call of this function runs only
/// on the thread that makes it.
pub(crate) fn each<T: Send>(parallel: bool, items: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    if !parallel || HELPING.get() || threads() < 2 {
        return items.for_each(work);
    }
    let items = Mutex::new(items);
    let next = || lock(&items).next();
    share(&|| std::iter::from_fn(next).for_each(&work));
}

/// Calls `work` on all free threads of this thread's team. [`each`] is compiled for each kind of work, and this once.
fn share(work: Work<'_>) {
    with_own(|team| team.offer(work));
}

fn wanted_threads() -> usize {
    let wanted = std::env::var("GRADLET_NUM_THREADS").ok().and_then(|wanted| wanted.parse().ok());
    wanted.filter(|&wanted| wanted > 0).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// True while this thread does work that it or another thread offered.
    static HELPING: Cell<bool> = const { Cell::new(false) };
    /// The team of [`Team::during`], while that runs.
    static OWN: Cell<Option<NonNull<Team>>> = const { Cell::new(None) };
}

/// Calls `use_team` with the team that works on this thread: that of [`Team::during`], otherwise the team of the process.
fn with_own<R>(use_team: impl FnOnce(&Team) -> R) -> R {
    match OWN.get() {
        // SAFETY: `Team::during` borrows the team for as long as the pointer is set.
        Some(team) => use_team(unsafe { team.as_ref() }),
        None => use_team(&TEAM),
    }
}

/// Sets the team of this thread, and on drop the one before.
struct Working(Option<NonNull<Team>>);

impl Working {
    fn new(team: &Team) -> Working {
        Working(OWN.replace(Some(NonNull::from(team))))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        OWN.set(self.0);
    }
}

type Work<'w> = &'w (dyn Fn() + Sync);

/// Threads that share work.
pub struct Team {
    threads: usize,
    board: Arc<Board>,
    /// Held by the thread that offers work.
    offering: Mutex<()>,
}

/// Shared state through which a thread offers work to the helpers.
struct Board {
    /// Number of the offer, the bit [`OPEN`] while it is open, and the number of helpers that work on it.
    state: AtomicU64,
    work: Mutex<Option<Work<'static>>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    asleep: AtomicUsize,
    /// True while the thread that offered work sleeps until the helpers have left.
    waiting: AtomicBool,
    /// True once the team is gone. The helpers end then.
    closed: AtomicBool,
    bed: Mutex<()>,
    bell: Condvar,
}

const OPEN: u64 = 1 << 15;
const HELPERS: u64 = OPEN - 1;
const NEXT_OFFER: u64 = 1 << 16;

impl Team {
    /// Starts a team of `threads` threads, including the one that offers work.
    pub fn new(threads: usize) -> Team {
        let board = Arc::new(Board {
            state: AtomicU64::new(0),
            work: Mutex::new(None),
            panic: Mutex::new(None),
            asleep: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            bed: Mutex::new(()),
            bell: Condvar::new(),
        });
        let start = |index: usize| {
            let board = board.clone();
            let named = std::thread::Builder::new().name(format!("gradlet-{index}"));
            named.spawn(move || board.help()).is_ok()
        };
        let started = (1..threads.min(HELPERS as usize)).take_while(|&index| start(index)).count();
        Team { threads: started + 1, board, offering: Mutex::new(()) }
    }

    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work`, whose kernels share their work on this team.
    pub(crate) fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        let working = Working::new(self);
        let result = work();
        drop(working);
        result
    }

    /// Calls `work` on this thread, and on every helper that joins before the call on this thread returns. If another thread is
    /// using the helpers, only this thread calls `work`. Returns when all calls have returned.
    fn offer(&self, work: Work<'_>) {
        let offering = match self.offering.try_lock() {
            Ok(offering) => offering,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is using the helpers.
            Err(TryLockError::WouldBlock) => return work(),
        };
        // SAFETY: helpers use the work only between `Board::join` and `Board::leave`. `Offer` keeps this frame alive, even during a
        // panic, until the offer is closed and all helpers have left.
        let lasting = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
        let offer = Offer::open(&self.board, lasting);
        HELPING.set(true);
        let result = catch_unwind(AssertUnwindSafe(work));
        HELPING.set(false);
        drop(offer);
        let panic = lock(&self.board.panic).take();
        drop(offering);
        if let Some(panic) = result.err().or(panic) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.board.closed.store(true, Ordering::SeqCst);
        drop(lock(&self.board.bed));
        self.board.bell.notify_all();
    }
}

/// Offer of work on the board. Dropping it closes the offer, waits until all helpers have left, and removes the work.
struct Offer<'b>(&'b Board);

impl<'b> Offer<'b> {
    fn open(board: &'b Board, work: Work<'static>) -> Offer<'b> {
        *lock(&board.work) = Some(work);
        let last = board.state.load(Ordering::Relaxed);
        board.state.store((last & !(OPEN | HELPERS)).wrapping_add(NEXT_OFFER) | OPEN, Ordering::SeqCst);
        if board.asleep.load(Ordering::SeqCst) > 0 {
            drop(lock(&board.bed));
            board.bell.notify_all();
        }
        Offer(board)
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!OPEN, Ordering::SeqCst);
        let (mut spins, mut start) = (0, None);
        while self.0.state.load(Ordering::Acquire) & HELPERS > 0 {
            spins += 1;
            if spins % 1024 == 0 {
                if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    self.0.sleep_until_left();
                    break;
                }
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        *lock(&self.0.work) = None;
    }
}

impl Board {
    /// Runs a helper's loop until the team is gone.
    fn help(&self) {
        HELPING.set(true);
        let mut last = 0;
        while let Some(next) = self.next_offer(last) {
            last = next;
            if !self.join(last) {
                continue;
            }
            let work = *lock(&self.work);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work.map(|work| work()))) {
                *lock(&self.panic) = Some(panic);
            }
            self.leave();
        }
    }

    /// Waits until there is an open offer whose number is not `last`, and returns its number. Returns `None` if
    /// the team is gone.
    fn next_offer(&self, last: u64) -> Option<u64> {
        let new = || {
            Some(self.state.load(Ordering::SeqCst))
                .filter(|state| state & OPEN > 0)
                .map(|state| state / NEXT_OFFER)
                .filter(|&offer| offer != last)
        };
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            for _ in 0..32 {
                if let Some(offer) = new() {
                    return Some(offer);
                }
                std::hint::spin_loop();
            }
        }
        let mut bed = lock(&self.bed);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let offer = loop {
            match new() {
                Some(offer) => break Some(offer),
                None if self.closed.load(Ordering::SeqCst) => break None,
                None => bed = self.bell.wait(bed).unwrap_or_else(PoisonError::into_inner),
            }
        };
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        offer
    }

    /// Joins the offer with the number `offer`. Returns true if it was still open, and false otherwise.
    fn join(&self, offer: u64) -> bool {
        let stands = |state: u64| state / NEXT_OFFER == offer && state & OPEN > 0;
        let more = |state: u64| stands(state).then_some(state + 1);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    fn leave(&self) {
        self.state.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) {
            drop(lock(&self.bed));
            self.bell.notify_all();
        }
    }

    /// Sleeps until no helper works on the offer.
    fn sleep_until_left(&self) {
        let mut bed = lock(&self.bed);
        self.waiting.store(true, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) & HELPERS > 0 {
            bed = self.bell.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once() {
        for count in [0, 1, 2, 3, 100] {
            let mut done = vec![0; count];
            for _ in 0..200 {
                each(true, done.iter_mut(), |done| *done += 1);
            }
            assert_eq!(done, vec![200; count]);
        }
    }

    #[test]
    fn work_within_work_and_beside_it() {
        let sum = AtomicUsize::new(0);
        let add = || {
            each(true, 0..10usize, |outer| {
                each(true, 0..10usize, |inner| {
                    sum.fetch_add(outer * inner, Ordering::Relaxed);
                })
            })
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| (0..50).for_each(|_| add())))));
        assert_eq!(sum.into_inner(), 4 * 50 * 45 * 45);
    }

    #[test]
    fn helpers_wake_up() {
        let mut done = [0; 2];
        for _ in 0..5 {
            std::thread::sleep(4 * PATIENCE);
            each(true, done.iter_mut(), |done| *done += 1);
        }
        assert_eq!(done, [5; 2]);
    }

    #[cfg(unix)]
    #[test]
    fn who_waits_for_a_helper_sleeps() {
        use rustix::time::{ClockId, clock_gettime};
        let (team, owner, begun) = (Team::new(2), std::thread::current().id(), AtomicBool::new(false));
        let before = clock_gettime(ClockId::ThreadCPUTime);
        team.offer(&|| {
            let own = std::thread::current().id() == owner;
            while own && !begun.load(Ordering::SeqCst) {
                std::thread::sleep(PATIENCE);
            }
            if !own {
                begun.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        let after = clock_gettime(ClockId::ThreadCPUTime);
        let nanoseconds = |time: rustix::time::Timespec| time.tv_sec as i128 * 1_000_000_000 + time.tv_nsec as i128;
        let computed = nanoseconds(after) - nanoseconds(before);
        assert!(computed < 30_000_000, "{computed} ns");
    }

    #[test]
    fn a_panic_comes_to_the_caller() {
        for wrong in 0..4 {
            let work = || each(true, 0..4, |item| assert_ne!(item, wrong));
            assert!(catch_unwind(work).is_err());
        }
        everything_is_done_once();
    }
}
