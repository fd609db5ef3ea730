//! A histogram of durations.

use std::time::Duration;

/// Buckets for each power of two. The width of a bucket is at most 1/32 of its durations.
const STEPS: u64 = 32;
/// Number of bits of [`STEPS`].
const BITS: u32 = STEPS.trailing_zeros();

/// A histogram of durations, from which percentiles are read. Its size does not depend on their number.
///
/// ```
/// use gradlet::serve::Latencies;
/// use std::time::Duration;
/// let mut latencies = Latencies::default();
/// (1..=100).for_each(|ms| latencies.record(Duration::from_millis(ms)));
/// let p99 = latencies.percentile(99.0);
/// assert!(p99 >= Duration::from_millis(99) && p99 < Duration::from_millis(103));
/// assert_eq!(latencies.max(), Duration::from_millis(100));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// The number of durations in each bucket, up to the last bucket with one.
    buckets: Vec<u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

/// Returns the bucket of a duration. Durations below [`STEPS`] nanoseconds have a bucket each.
fn bucket(nanoseconds: u64) -> usize {
    let shift = nanoseconds.max(STEPS).ilog2() - BITS;
    (u64::from(shift) * STEPS + (nanoseconds >> shift)) as usize
}

/// Returns the longest duration of a bucket, in nanoseconds.
fn longest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    let next = u128::from(bucket - shift * STEPS + 1) << shift;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

impl Latencies {
    /// Adds a duration.
    pub fn record(&mut self, duration: Duration) {
        let index = bucket(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        self.buckets.resize(self.buckets.len().max(index + 1), 0);
        self.buckets[index] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        self.max = self.max.max(duration);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the shortest time within which `percent` percent of the durations lie, such as 99 for the p99. The result is exact or too
    /// long, by at most 1/32. It is 0 if there is no duration.
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut before = 0;
        let reached = self.buckets.iter().position(|&count| {
            before += count;
            before >= rank
        });
        reached.map_or(Duration::ZERO, |bucket| Duration::from_nanos(longest(bucket)).min(self.max))
    }

    /// Returns the mean, or 0 if there is no duration.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.sum.as_secs_f64() / self.count.max(1) as f64)
    }

    /// Returns the longest duration, or 0 if there is none.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Latencies) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, count)| *own += count);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other() {
        let mut next = 0;
        for index in 0.. {
            assert_eq!(bucket(next), index, "{next}");
            let last = longest(index);
            assert_eq!(bucket(last), index, "{last}");
            assert!(last - next <= next / STEPS, "the bucket from {next} to {last} is too wide");
            match last.checked_add(1) {
                Some(first) => next = first,
                None => return,
            }
        }
    }

    /// Percentiles are at most 1/32 above those of a sorted list.
    #[test]
    fn percentiles_are_near() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        for count in [1, 2, 3, 10, 1000] {
            let mut sorted: Vec<u64> = (0..count).map(|_| random() >> (random() % 31)).collect();
            let mut halves = [Latencies::default(), Latencies::default()];
            sorted.iter().enumerate().for_each(|(index, &nanoseconds)| halves[index % 2].record(Duration::from_nanos(nanoseconds)));
            let [mut latencies, other] = halves;
            latencies.merge(&other);
            sorted.sort_unstable();
            for percent in [0.0, 1.0, 50.0, 95.0, 99.0, 100.0] {
                let rank = ((percent / 100.0 * count as f64).ceil() as usize).max(1);
                let (exact, own) = (sorted[rank - 1], latencies.percentile(percent).as_nanos() as u64);
                assert!(own >= exact && own - exact <= exact / STEPS, "p{percent} of {count}: {own}, not {exact}");
            }
            assert_eq!((latencies.count(), latencies.max().as_nanos() as u64), (count as u64, sorted[sorted.len() - 1]));
            let mean = sorted.iter().sum::<u64>() as f64 / count as f64;
            assert!((latencies.mean().as_nanos() as f64 - mean).abs() <= 1.0);
        }
    }

    #[test]
    fn no_duration_is_zero() {
        let latencies = Latencies::default();
        assert_eq!((latencies.percentile(99.0), latencies.mean(), latencies.max()), (Duration::ZERO, Duration::ZERO, Duration::ZERO));
    }
}
