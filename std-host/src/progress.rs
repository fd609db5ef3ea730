//! The progress of training, on stderr: a bar on a terminal, a line an epoch elsewhere.

use crate::training::Status;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// Shows how training goes. Give [`crate::training::fit`] its [`Bar::report`].
pub struct Bar {
    quiet: bool,
    bar: Option<ProgressBar>,
    epoch: usize,
    start: Instant,
}

impl Bar {
    /// A bar, or nothing at all if `quiet`. Colours obey `NO_COLOR`.
    pub fn new(quiet: bool) -> Bar {
        Bar { quiet, bar: None, epoch: 0, start: Instant::now() }
    }

    /// Takes note of a step, or of the end of an epoch.
    pub fn report(&mut self, status: &Status) {
        if self.quiet {
            return;
        }
        if status.epoch != self.epoch {
            self.begin(status);
        }
        let text = format!("loss {:.4}  accuracy {:.4}", status.train.loss, status.train.accuracy);
        match (&self.bar, status.test) {
            (Some(bar), None) => {
                bar.set_position(status.step as u64);
                bar.set_message(text);
            }
            (bar, Some(test)) => {
                if let Some(bar) = bar {
                    bar.finish_and_clear();
                }
                let (epoch, epochs, seconds) = (status.epoch, status.epochs, self.start.elapsed().as_secs_f64());
                let tested = format!("test loss {:.4}  test accuracy {:.4}", test.loss, test.accuracy);
                eprintln!("epoch {epoch}/{epochs}  {seconds:.1} s  {text}  {tested}");
            }
            (None, None) => {}
        }
    }

    fn begin(&mut self, status: &Status) {
        (self.epoch, self.start) = (status.epoch, Instant::now());
        if !std::io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::new(status.steps as u64);
        let template = "{prefix} {wide_bar:.green} {pos}/{len}  {msg}  ETA {eta}";
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(format!("epoch {}/{}", status.epoch, status.epochs));
        self.bar = Some(bar);
    }
}
