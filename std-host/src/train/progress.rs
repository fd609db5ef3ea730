//! Progress of training, shown on stderr: Keras's bar on a terminal, otherwise one line per epoch.

use crate::train::model::{Logs, Results};
use crate::values::numbers::short;
use gradlet_core::Result;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Style of the progress display: Keras's `verbose`. Colours obey `NO_COLOR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbose {
    /// A bar on a terminal, lines otherwise.
    #[default]
    Auto,
    /// No output: Keras's 0.
    Silent,
    /// One line per epoch: Keras's 2.
    Lines,
}

/// Progress of an epoch or an evaluation.
pub(crate) struct Progress {
    verbose: Verbose,
    coloured: bool,
    steps: Option<usize>,
    step: usize,
    start: Instant,
    /// Time of the last drawing of the bar.
    drawn: Option<Instant>,
    /// Time at which the first step was done. Functions are traced in that step, so it does not predict the time of later ones.
    traced: Option<Instant>,
}

/// Width of the bar, in columns.
const WIDTH: usize = 20;
/// Shortest time between two drawings of the bar.
const PERIOD: Duration = Duration::from_millis(50);

impl Progress {
    /// Starts the display for `steps` steps, or for an unknown number of steps if `steps` is `None`.
    pub fn new(verbose: Verbose, steps: Option<usize>) -> Progress {
        let verbose = if verbose == Verbose::Auto && !std::io::stderr().is_terminal() { Verbose::Lines } else { verbose };
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Progress { verbose, coloured, steps, step: 0, start: Instant::now(), drawn: None, traced: None }
    }

    /// Prints a line above the bar.
    pub fn message(&mut self, message: &str) {
        // A bar that is already shown is erased, and drawn again below the message.
        let erase = if self.drawn.take().is_some() { "\r\x1b[2K" } else { "" };
        match self.verbose {
            Verbose::Silent => (),
            Verbose::Lines | Verbose::Auto => eprintln!("{erase}{message}"),
        }
    }

    /// Shows that `step` steps are done. Waits for their results only if the bar is drawn now.
    pub fn step(&mut self, step: usize, results: &Results<'_>) -> Result<()> {
        self.step = step;
        if step == 1 {
            self.traced = Some(Instant::now());
        }
        let recent = self.drawn.is_some_and(|drawn| drawn.elapsed() < PERIOD) && Some(step) != self.steps;
        if self.verbose == Verbose::Auto && !recent {
            self.drawn = Some(Instant::now());
            let per_step = self.per_step();
            let left = self.steps.map(|steps| remaining(per_step, steps.saturating_sub(step)));
            let message = format!("{} {}", left.unwrap_or_else(|| seconds(self.start.elapsed())), line(per_step, results.logs()?));
            let (width, mut error) = (columns(), std::io::stderr().lock());
            // Training continues even if the bar cannot be shown.
            let _ = write!(error, "\r\x1b[2K{}", self.bar(&message, width)).and_then(|()| error.flush());
        }
        Ok(())
    }

    /// Draws the bar with a message, cut to `width` columns so that the next bar can overwrite it.
    fn bar(&self, message: &str, width: usize) -> String {
        let Some(steps) = self.steps else {
            return format!("{:>7}/Unknown {message}", self.step).chars().take(width).collect();
        };
        let done = WIDTH * self.step.min(steps) / steps.max(1);
        let count = format!("{:>1$}/{steps} ", self.step, digits(steps));
        let Some(room) = width.checked_sub(count.len() + WIDTH + 1) else {
            return format!("{count}{message}").chars().take(width).collect();
        };
        let message: String = message.chars().take(room).collect();
        match self.coloured {
            true => format!("{count}\x1b[32m{}\x1b[37m{}\x1b[0m {message}", "━".repeat(done), "━".repeat(WIDTH - done)),
            false => format!("{count}{}{} {message}", "━".repeat(done), "─".repeat(WIDTH - done)),
        }
    }

    /// Shows that all steps are done.
    pub fn finish(mut self, logs: &Logs) {
        self.drawn = None;
        let (step, elapsed, line) = (self.step, seconds(self.start.elapsed()), line(self.per_step(), logs));
        match self.verbose {
            Verbose::Silent => (),
            Verbose::Lines => eprintln!("{step}/{step} - {elapsed} - {line}"),
            Verbose::Auto => {
                let (begin, end) = if self.coloured { ("\x1b[32m", "\x1b[0m") } else { ("", "") };
                eprintln!("\r\x1b[2K{step}/{step} {begin}{}{end} {elapsed} {line}", "━".repeat(WIDTH));
            }
        }
    }

    /// Returns the mean time of a step. The first step is excluded, if there are more.
    fn per_step(&self) -> Duration {
        match self.traced {
            Some(traced) if self.step > 1 => traced.elapsed() / (self.step as u32 - 1),
            _ => self.start.elapsed() / self.step.max(1) as u32,
        }
    }
}

impl Drop for Progress {
    /// Ends the line of an unfinished bar, so that an error message begins on a new line.
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = writeln!(std::io::stderr());
        }
    }
}

/// Returns the number of columns of the terminal on stderr, less one for the cursor.
fn columns() -> usize {
    #[cfg(unix)]
    let width = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    #[cfg(not(unix))]
    let width = 0;
    if width == 0 { 79 } else { width - 1 }
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

fn seconds(time: Duration) -> String {
    format!("{:.0}s", time.as_secs_f64())
}

/// Formats the time that `steps` steps will take.
fn remaining(per_step: Duration, steps: usize) -> String {
    let seconds = (per_step.as_secs_f64() * steps as f64) as u64;
    match seconds {
        ..=60 => format!("{seconds}s"),
        61..=3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// Formats a line such as `27ms/step - accuracy: 0.9000 - loss: 0.3000`.
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

    #[test]
    fn a_bar_fits_into_its_line() {
        let mut progress = Progress::new(Verbose::Silent, Some(200));
        (progress.coloured, progress.step) = (false, 50);
        assert_eq!(progress.bar("3s 20ms/step - loss: 0.5000", 79), " 50/200 ━━━━━─────────────── 3s 20ms/step - loss: 0.5000");
        for width in [0, 5, 20, 29, 30, 40] {
            assert!(progress.bar("3s 20ms/step - loss: 0.5000", width).chars().count() <= width, "{width}");
        }
        progress.coloured = true;
        assert_eq!(progress.bar("3s", 79), " 50/200 \x1b[32m━━━━━\x1b[37m━━━━━━━━━━━━━━━\x1b[0m 3s");
        progress.steps = None;
        assert_eq!(progress.bar("3s", 79), "     50/Unknown 3s");
    }
}
