//! Settings that find themselves.

use super::Stage;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A number, or [`AUTOTUNE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// This number.
    Fixed(usize),
    /// What keeps the consumer from waiting.
    Autotune,
}

/// Threads or elements ahead: as many as it takes to keep the consumer from waiting, measured while the pipeline runs.
pub const AUTOTUNE: Setting = Setting::Autotune;

impl From<usize> for Setting {
    fn from(number: usize) -> Setting {
        Setting::Fixed(number)
    }
}

/// What a stage with [`AUTOTUNE`] works with. It remains from pass to pass.
#[derive(Debug)]
pub struct Tuned {
    stage: String,
    value: AtomicUsize,
}

impl Tuned {
    pub(super) fn new(stage: Stage, value: usize) -> Arc<Tuned> {
        Arc::new(Tuned { stage: stage.to_string(), value: value.into() })
    }

    /// The stage, as errors name it: `stage 2 (map)`.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// How many threads a function runs on, or how many elements are fetched ahead.
    pub fn value(&self) -> usize {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: usize) {
        self.value.store(value, Ordering::Relaxed);
    }
}

/// How long the consumer is watched before anything is changed.
const PERIOD: Duration = Duration::from_millis(100);
/// How many elements it must have taken by then.
const ENOUGH: u32 = 16;
/// How many periods pass before a change that did not help is tried again.
const HOLD: u32 = 20;

/// Finds the number of threads: takes one away while the consumer never waits, and doubles it while it waits and that makes it faster.
pub(super) struct Tuner {
    most: usize,
    since: Instant,
    waited: Duration,
    delivered: u32,
    /// The elements a second before the last step up.
    before: Option<f64>,
    hold: u32,
}

impl Tuner {
    /// For up to `most`.
    pub(super) fn new(most: usize) -> Tuner {
        Tuner { most, since: Instant::now(), waited: Duration::ZERO, delivered: 0, before: None, hold: 0 }
    }

    /// An element was delivered, after the consumer waited so long. The next number, of `value` now.
    pub(super) fn observe(&mut self, waited: Duration, value: usize) -> usize {
        self.waited += waited;
        self.delivered += 1;
        let elapsed = self.since.elapsed();
        if elapsed < PERIOD || self.delivered < ENOUGH {
            return value;
        }
        let rate = f64::from(self.delivered) / elapsed.as_secs_f64();
        let share = self.waited.as_secs_f64() / elapsed.as_secs_f64();
        (self.since, self.waited, self.delivered) = (Instant::now(), Duration::ZERO, 0);
        self.decide(rate, share, value)
    }

    /// The next number, after a period with so many elements a second, in which the consumer waited for this share of the time.
    fn decide(&mut self, rate: f64, share: f64, value: usize) -> usize {
        if let Some(before) = self.before.take()
            && rate < before * 1.05
        {
            self.hold = HOLD;
            return value.div_ceil(2);
        }
        if self.hold > 0 {
            self.hold -= 1;
        } else if share > 0.05 && value < self.most {
            self.before = Some(rate);
            return (value * 2).min(self.most);
        } else if share < 0.001 && value > 1 {
            // One that turns out to be needed comes back after a while.
            self.hold = HOLD;
            return value - 1;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consumer that takes 100 elements a second at most, of threads that make `each` a second.
    fn settle(each: f64, first: usize, most: usize) -> usize {
        let (mut tuner, mut value) = (Tuner::new(most), first);
        for _ in 0..200 {
            let rate = (each * value as f64).min(100.0);
            value = tuner.decide(rate, 1.0 - rate / 100.0, value);
        }
        value
    }

    #[test]
    fn as_many_as_the_consumer_needs() {
        for first in [1, 4, 8] {
            assert_eq!(settle(200.0, first, 8), 1);
            assert!((7..=8).contains(&settle(13.0, first, 8)));
            assert_eq!(settle(30.0, first.min(2), 2), 2);
            // 30 a second each: four are needed, three are a little too few.
            assert!((3..=4).contains(&settle(30.0, first, 16)), "{}", settle(30.0, first, 16));
        }
    }

    #[test]
    fn threads_that_do_not_help_go_again() {
        let (mut tuner, mut value, mut most) = (Tuner::new(16), 1, 0);
        for _ in 0..200 {
            // The disk gives 40 a second, whatever the threads do.
            value = tuner.decide(40.0, 0.6, value);
            most = most.max(value);
        }
        assert!(value <= 2 && most <= 2, "{value} {most}");
    }
}
