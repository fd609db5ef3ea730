//! Warns about functions that are traced too often.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

/// Number of traces among the last [`CALLS`] calls that causes a warning.
const MANY: usize = 5;
/// Number of recent calls that are considered.
const CALLS: usize = 10;
/// Maximum number of warnings for each function.
const WARNINGS: usize = 2;

/// Counts the recent calls of a function and the traces among them, by TensorFlow's rule.
#[derive(Default)]
pub(super) struct Retracing {
    /// Number of calls from each trace, including it, up to the next trace.
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

    /// Counts a call that traced, and returns a warning if function `name` was traced too often, otherwise `None`.
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
            "warning: {traces} of the last {calls} calls of {name} traced it again, which is slow. Create the Function once, outside of \
             loops. Pass numbers that change as tensors instead of host values. If the shapes of tensors change, set a signature \
             (with_signature) or call reduce_retracing.\n"
        ))
    }
}
