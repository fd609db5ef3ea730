//! The progress of training, on stderr: a bar on a terminal, a line an epoch elsewhere.

use crate::training::Status;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// Shows how training goes: give [`crate::training::fit`] its [`Bar::report`].
///
/// ```
/// use gradlet::progress::Bar;
/// use gradlet::training::{Evaluation, Status};
/// let mut bar = Bar::new(true);
/// bar.report(&Status { epoch: 1, epochs: 1, step: 1, steps: 2, train: Evaluation::default(), test: None });
/// ```
pub struct Bar {
    bar: ProgressBar,
    /// Lines are wanted, but there is no terminal for a bar.
    lines: bool,
    start: Instant,
}

impl Bar {
    /// A bar, or nothing at all if `quiet`. Colours obey `NO_COLOR`.
    pub fn new(quiet: bool) -> Bar {
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let bar = if coloured { "{bar:24.cyan/dim}" } else { "{bar:24}" };
        let template = format!("{{prefix}} {bar} {{pos}}/{{len}}  {{msg}}  {{eta}} left");
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("━╸─"));
        Bar { bar, lines: !quiet && !terminal, start: Instant::now() }
    }

    /// Takes note of a step, or of the end of an epoch.
    pub fn report(&mut self, status: &Status) {
        let Status { epoch, epochs, step, steps, train, test } = *status;
        let prefix = format!("epoch {epoch}/{epochs}");
        let message = format!("loss {:.4}  accuracy {:5.2} %", train.loss, train.accuracy * 100.0);
        let Some(test) = test else {
            self.bar.set_length((epochs * steps) as u64);
            self.bar.set_position(((epoch - 1) * steps + step) as u64);
            self.bar.set_prefix(prefix);
            return self.bar.set_message(message);
        };
        let tested = format!("test loss {:.4}  test accuracy {:5.2} %", test.loss, test.accuracy * 100.0);
        let line = format!("{prefix}  {:5.1} s  {message}  {tested}", self.start.elapsed().as_secs_f64());
        match self.lines {
            true => eprintln!("{line}"),
            false => self.bar.println(line),
        }
        if epoch == epochs {
            self.bar.finish_and_clear();
        }
    }
}
