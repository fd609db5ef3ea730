//! The committed list of skipped cases, with reasons.
//!
//! A line is `PATTERN RUNTIME REASON`. The pattern is the id or the group of a case (`op:NAME`, or `op:NAME@TYPE` in another
//! element type). In a pattern, `*` matches any text. The runtime is a name or `*`. A listed case that passes is a failure,
//! because its line is out of date.

use crate::golden::case::Case;
use anyhow::{Context, Result, bail};

/// Text of this package's list, `skips.txt`.
pub const COMMITTED: &str = include_str!("../../skips.txt");

/// Entries of a list.
pub struct Skips(Vec<Entry>);

struct Entry {
    pattern: String,
    runtime: String,
    used: bool,
}

impl Skips {
    /// Parses a list. Fails if a line has no runtime or no reason.
    pub fn parse(text: &str) -> Result<Skips> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let entry = |(index, line): (usize, &str)| {
            let mut words = line.splitn(3, ' ').map(str::trim);
            let mut word = || words.next().filter(|word| !word.is_empty()).context("needs PATTERN RUNTIME REASON");
            let (pattern, runtime) = (word()?, word()?);
            word().with_context(|| format!("line {} of the skips: {line:?}", index + 1))?;
            if runtime != "*" && !crate::golden::runtimes::NAMES.contains(&runtime) {
                bail!("line {} of the skips: unknown runtime {runtime:?}", index + 1);
            }
            Ok(Entry { pattern: pattern.into(), runtime: runtime.into(), used: false })
        };
        Ok(Skips(lines.map(entry).collect::<Result<_>>()?))
    }

    /// True if the list skips `case` on `runtime`. Marks the matching entry as used.
    pub fn skip(&mut self, case: &Case, runtime: &str) -> bool {
        let covers = |entry: &&mut Entry| {
            let named = matches(&entry.pattern, &case.id) || matches(&entry.pattern, &case.group);
            named && matches(&entry.runtime, runtime)
        };
        let entry = self.0.iter_mut().find(covers);
        entry.map(|entry| entry.used = true).is_some()
    }

    /// Returns the patterns that skipped no case.
    pub fn unused(&self) -> Vec<&str> {
        self.0.iter().filter(|entry| !entry.used).map(|entry| entry.pattern.as_str()).collect()
    }
}

/// True if `text` matches `pattern`, in which `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            let Some(rest) = text.strip_prefix(head) else { return false };
            (0..=rest.len()).filter(|&at| rest.is_char_boundary(at)).any(|at| matches(tail, &rest[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("*", "") && matches("conv2d/*", "conv2d/3") && matches("*/nan", "equal/nan"));
        assert!(!matches("conv2d", "conv2d/3") && !matches("a*b*c", "abb"));
    }

    #[test]
    fn a_reason_is_needed() {
        assert!(Skips::parse("conv2d/3 device\n").is_err());
        assert!(Skips::parse("conv2d/3 nowhere because\n").is_err());
        assert!(Skips::parse("# a comment\n\nconv2d/3 device because\n").is_ok());
    }
}
