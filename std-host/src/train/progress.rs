//! The progress of training, on stderr: Keras's bar on a terminal, a line an epoch elsewhere.

use crate::train::model::Logs;
use crate::values::numbers::short;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How progress is shown: Keras's `verbose`. Colours obey `NO_COLOR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbose {
    /// A bar on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// Not at all: 0.
    Silent,
    /// A line for each epoch: 2.
    Lines,
}

/// The steps of an epoch, or of an evaluation.
pub(crate) struct Progress {
    verbose: Verbose,
    coloured: bool,
    bar: ProgressBar,
    steps: Option<usize>,
    step: usize,
    start: Instant,
    /// When the first step was done, in which functions are traced: it tells nothing of the others.
    traced: Option<Instant>,
}

/// The width of the bar.
const WIDTH: usize = 20;

impl Progress {
    /// Nothing is done yet, of so many steps.
    pub fn new(verbose: Verbose, steps: Option<usize>) -> Progress {
        let verbose = if verbose == Verbose::Auto && !std::io::stderr().is_terminal() { Verbose::Lines } else { verbose };
        let target = if verbose == Verbose::Auto { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let colours = if coloured { ".green/white" } else { "" };
        let template = match steps {
            Some(steps) => format!("{{pos:>{}}}/{{len}} {{bar:{WIDTH}{colours}}} {{msg}}", digits(steps)),
            None => "{pos:7}/Unknown {msg}".into(),
        };
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style.progress_chars(if coloured { "━━━" } else { "━╸─" });
        let bar = ProgressBar::with_draw_target(steps.map(|steps| steps as u64), target).with_style(style);
        Progress { verbose, coloured, bar, steps, step: 0, start: Instant::now(), traced: None }
    }

    /// A line before the bar.
    pub fn title(&self, title: &str) {
        match self.verbose {
            Verbose::Silent => (),
            Verbose::Lines => eprintln!("{title}"),
            Verbose::Auto => self.bar.println(title),
        }
    }

    /// So many steps are done.
    pub fn step(&mut self, step: usize, logs: &Logs) {
        self.step = step;
        if step == 1 {
            self.traced = Some(Instant::now());
        }
        if self.verbose == Verbose::Auto {
            let per_step = self.per_step();
            let left = self.steps.map(|steps| remaining(per_step, steps.saturating_sub(step)));
            self.bar.set_message(format!("{} {}", left.unwrap_or_else(|| seconds(self.start.elapsed())), line(per_step, logs)));
            self.bar.set_position(step as u64);
        }
    }

    /// All steps are done.
    pub fn finish(self, logs: &Logs) {
        let (step, elapsed, line) = (self.step, seconds(self.start.elapsed()), line(self.per_step(), logs));
        match self.verbose {
            Verbose::Silent => (),
            Verbose::Lines => eprintln!("{step}/{step} - {elapsed} - {line}"),
            Verbose::Auto => {
                self.bar.finish_and_clear();
                let (begin, end) = if self.coloured { ("\x1b[32m", "\x1b[0m") } else { ("", "") };
                eprintln!("{step}/{step} {begin}{}{end} {elapsed} {line}", "━".repeat(WIDTH));
            }
        }
    }

    /// How long a step takes, without the first one if there are more.
    fn per_step(&self) -> Duration {
        match self.traced {
            Some(traced) if self.step > 1 => traced.elapsed() / (self.step as u32 - 1),
            _ => self.start.elapsed() / self.step.max(1) as u32,
        }
    }
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

fn seconds(time: Duration) -> String {
    format!("{:.0}s", time.as_secs_f64())
}

/// How long so many steps will take.
fn remaining(per_step: Duration, steps: usize) -> String {
    let seconds = (per_step.as_secs_f64() * steps as f64) as u64;
    match seconds {
        ..=60 => format!("{seconds}s"),
        61..=3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// `27ms/step - accuracy: 0.9000 - loss: 0.3000`.
fn line(per_step: Duration, logs: &Logs) -> String {
    let time = match per_step.as_secs_f64() {
        time if time >= 1.0 || time == 0.0 => format!("{time:.0}s"),
        time if time >= 1e-3 => format!("{:.0}ms", time * 1e3),
        time => format!("{:.0}us", time * 1e6),
    };
    logs.iter().fold(format!("{time}/step"), |line, (name, value)| format!("{line} - {name}: {}", short(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keras_s() {
        let mut logs = Logs::default();
        logs.set("accuracy", 0.93751);
        logs.set("loss", 1.234e-5);
        assert_eq!(line(Duration::from_micros(27_400), &logs), "27ms/step - accuracy: 0.9375 - loss: 1.2340e-05");
        assert_eq!(line(Duration::from_nanos(912_000), &Logs::default()), "912us/step");
        let times = [0.5, 59.0, 61.0, 3599.0, 3700.0].map(|seconds| remaining(Duration::from_secs_f64(seconds), 1));
        assert_eq!(times, ["0s", "59s", "1:01", "59:59", "1:01:40"]);
    }
}
