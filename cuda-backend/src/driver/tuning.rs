//! The times of the plans that compute ops, as GPUs have measured them, and their form as a text.

use gradlet_core::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first line of the text.
const HEADER: &str = "gradlet tuning 1";
/// Text between the parts of a line.
const SEPARATOR: &str = "; ";

/// The GPU, the op with its attributes and types, and the plan.
pub(crate) type Key = [String; 3];

/// Times in nanoseconds.
#[derive(Default)]
pub(crate) struct Tuning {
    times: Mutex<BTreeMap<Key, u64>>,
    /// Held during a measurement, so that no other one disturbs it or measures the same.
    turn: Mutex<()>,
}

impl Tuning {
    fn times(&self) -> MutexGuard<'_, BTreeMap<Key, u64>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for other measurements, until the guard is dropped.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if no time is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.times().is_empty()
    }

    /// Returns the time of a plan, if it is known.
    pub(crate) fn time(&self, key: &Key) -> Option<u64> {
        self.times().get(key).copied()
    }

    /// Keeps the time of a plan.
    pub(crate) fn keep(&self, key: Key, time: u64) {
        self.times().insert(key, time);
    }

    /// Returns a line for each time.
    pub(super) fn text(&self) -> String {
        let line = |([gpu, op, plan], time): (&Key, &u64)| [gpu, op, plan, time.to_string().as_str()].join(SEPARATOR);
        [HEADER.to_string()].into_iter().chain(self.times().iter().map(line)).fold(String::new(), |text, line| text + &line + "\n")
    }

    /// Adds the times of such a text, or none if a line is damaged.
    pub(super) fn add(&self, text: &str) -> Result<()> {
        let mut lines = (1..).zip(text.lines());
        let header = lines.next().map_or("", |(_, line)| line);
        if header != HEADER {
            return Err(Error::message(format!("line 1 of the tuning is {header:?}, not {HEADER:?}")));
        }
        let damaged = |number| Error::message(format!("line {number} of the tuning is not \"GPU; op; kernel; nanoseconds\""));
        let parsed = lines.map(|(number, line)| parse(line).ok_or_else(|| damaged(number))).collect::<Result<Vec<(Key, u64)>>>()?;
        self.times().extend(parsed);
        Ok(())
    }
}

fn parse(line: &str) -> Option<(Key, u64)> {
    let parts: Vec<&str> = line.split(SEPARATOR).collect();
    let [gpu, op, plan, time] = parts[..] else { return None };
    Some(([gpu, op, plan].map(String::from), time.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_written() {
        let tuning = Tuning::default();
        assert!(tuning.is_empty() && tuning.text() == "gradlet tuning 1\n");
        let key = |plan: &str| ["Orin, 16 multiprocessors", "matmul 0,0 f32[4,8] f32[8,4]", plan].map(String::from);
        tuning.keep(key("gemm_64x64_f32 1x1x2"), 2500);
        tuning.keep(key("gemm_64x64_f32 1x1x1"), 1200);
        let text = tuning.text();
        let first = "Orin, 16 multiprocessors; matmul 0,0 f32[4,8] f32[8,4]; gemm_64x64_f32 1x1x1; 1200";
        assert_eq!(text.lines().nth(1), Some(first));
        let other = Tuning::default();
        other.add(&text).unwrap();
        assert_eq!((other.text(), other.time(&key("gemm_64x64_f32 1x1x2"))), (text, Some(2500)));
    }

    #[test]
    fn a_damaged_line_is_named_and_nothing_is_added() {
        let tuning = Tuning::default();
        let error = |text: &str| tuning.add(text).unwrap_err().to_string();
        let good = "gradlet tuning 1\nOrin; matmul; gemm; 7\n";
        assert_eq!(error("gradlet tuning 2\n"), "line 1 of the tuning is \"gradlet tuning 2\", not \"gradlet tuning 1\"");
        assert!(error("").contains("line 1"));
        for line in ["Orin; matmul; gemm", "Orin; matmul; gemm; 7; 8", "Orin; matmul; gemm; -7", ""] {
            assert!(error(&format!("{good}{line}\n")).contains("line 3 of the tuning is not"), "{line:?}");
        }
        assert!(tuning.is_empty());
        tuning.add(good).unwrap();
        assert!(!tuning.is_empty());
    }
}
