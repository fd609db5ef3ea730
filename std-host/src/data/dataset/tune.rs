//! Settings that tune themselves while the pipeline runs.

use super::Stage;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of threads or of buffered elements: fixed, or [`AUTOTUNE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A fixed number.
    Fixed(usize),
    /// A number that the stage tunes while the pipeline runs.
    Autotune,
}

/// Tunes the number of threads, or of elements fetched ahead, while the pipeline runs. The stage measures how long the consumer waits, and
/// uses as many as are needed to keep it from waiting.
pub const AUTOTUNE: Setting = Setting::Autotune;

impl From<usize> for Setting {
    fn from(number: usize) -> Setting {
        Setting::Fixed(number)
    }
}

/// Current value of a setting with [`AUTOTUNE`]. It is kept from pass to pass.
#[derive(Debug)]
pub struct Tuned {
    stage: String,
    value: AtomicUsize,
}

impl Tuned {
    pub(super) fn new(stage: Stage, value: usize) -> Arc<Tuned> {
        Arc::new(Tuned { stage: stage.to_string(), value: value.into() })
    }

    /// Returns the stage as error messages name it: `stage 2 (map)`.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// Returns the number of threads that run the function, or of elements fetched ahead.
    pub fn value(&self) -> usize {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: usize) {
        self.value.store(value, Ordering::Relaxed);
    }
}

/// Minimum duration of a measurement, after which the number of threads may change.
const PERIOD: Duration = Duration::from_millis(100);
/// Minimum number of elements that the consumer takes during a measurement.
const ENOUGH: u32 = 16;
/// Number of measurements without a change after an increase that did not help, or after the removal of a thread.
const HOLD: u32 = 20;

/// Searches for the best number of threads. It removes one if the consumer never waits. It doubles the number while the consumer waits, as
/// long as that increases the rate.
pub(super) struct Tuner {
    most: usize,
    since: Instant,
    waited: Duration,
    delivered: u32,
    /// Elements per second before the number of threads was increased. `None` unless the last measurement led to an increase.
    before: Option<f64>,
    hold: u32,
}

impl Tuner {
    /// Creates a tuner for at most `most` threads.
    pub(super) fn new(most: usize) -> Tuner {
        Tuner { most, since: Instant::now(), waited: Duration::ZERO, delivered: 0, before: None, hold: 0 }
    }

    /// Records a delivered element, for which the consumer waited for `waited`. Returns the new number of threads; `value` is the current
    /// one.
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

    /// Returns the new number of threads after a period. `rate` is in elements per second, and `share` is the fraction of the time that the
    /// consumer waited.
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
            // A thread that turns out to be needed is added again after a while.
            self.hold = HOLD;
            return value - 1;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a consumer that takes at most 100 elements per second from threads that each produce `each` per second.
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
            // With 30 per second each, four threads are needed; three are slightly too few.
            assert!((3..=4).contains(&settle(30.0, first, 16)), "{}", settle(30.0, first, 16));
        }
    }

    #[test]
    fn threads_that_do_not_help_go_again() {
        let (mut tuner, mut value, mut most) = (Tuner::new(16), 1, 0);
        for _ in 0..200 {
            // The disk delivers 40 per second for any number of threads.
            value = tuner.decide(40.0, 0.6, value);
            most = most.max(value);
        }
        assert!(value <= 2 && most <= 2, "{value} {most}");
    }
}
