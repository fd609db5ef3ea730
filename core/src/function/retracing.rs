//! Warns of functions that are traced again and again.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

/// So many traces are warned of,
const MANY: usize = 5;
/// among so many calls,
const CALLS: usize = 10;
/// so often.
const WARNINGS: usize = 2;

/// Counts the last calls of a function, and those that traced, by TensorFlow's rule.
#[derive(Default)]
pub(super) struct Retracing {
    /// The calls from one trace to the next.
    spans: VecDeque<usize>,
    calls: usize,
    warnings: usize,
}

impl Retracing {
    pub(super) fn called(&mut self) {
        if self.spans.is_empty() {
            self.spans.push_back(0);
        }
        if let Some(span) = self.spans.back_mut() {
            *span += 1;
            self.calls += 1;
        }
    }

    /// A warning for function `name`, if this trace was one too many.
    pub(super) fn traced(&mut self, name: &str) -> Option<String> {
        self.calls += 1;
        self.spans.push_back(1);
        while let Some(first) = self.spans.front().copied().filter(|first| self.calls - first > CALLS) {
            self.calls -= first;
            self.spans.pop_front();
        }
        let traces = self.spans.len();
        if traces < MANY || self.warnings == WARNINGS {
            return None;
        }
        self.warnings += 1;
        let calls = self.calls;
        Some(format!(
            "warning: {traces} of the last {calls} calls of {name} traced it again, which is slow. Make the Function once, outside of \
             loops; pass numbers that change as tensors, not as host values; and give tensors that change their shape a signature \
             (with_signature), or let it be found (reduce_retracing).\n"
        ))
    }
}
