//! How training goes: a bar on a terminal, a line for each epoch elsewhere.

use gradlet::training::Status;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

pub struct Progress {
    bar: ProgressBar,
    /// Lines are wanted, but there is no terminal for a bar.
    lines: bool,
    start: Instant,
}

impl Progress {
    pub fn new(quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let bar = if coloured { "{bar:24.cyan/dim}" } else { "{bar:24}" };
        let template = format!("{{prefix}} {bar} {{pos:>4}}/{{len}} {{msg}}, {{eta}} left");
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("━╸─"));
        Progress { bar, lines: !quiet && !terminal, start: Instant::now() }
    }

    pub fn show(&mut self, status: &Status) {
        let Status { epoch, epochs, step, steps, train, test } = *status;
        let prefix = format!("epoch {epoch}/{epochs}");
        let message = format!("loss {:.4}, accuracy {:5.2} %", train.loss, train.accuracy * 100.0);
        match test {
            Some(test) => {
                let seconds = self.start.elapsed().as_secs_f64();
                let line = format!(
                    "{prefix}: {message}; on test digits loss {:.4}, accuracy {:5.2} % ({seconds:.1} s)",
                    test.loss,
                    test.accuracy * 100.0
                );
                match self.lines {
                    true => eprintln!("{line}"),
                    false => self.bar.println(line),
                }
                if epoch == epochs {
                    self.bar.finish_and_clear();
                }
            }
            None => {
                if step == 1 {
                    self.bar.set_prefix(prefix);
                }
                self.bar.set_length((epochs * steps) as u64);
                self.bar.set_position(((epoch - 1) * steps + step) as u64);
                self.bar.set_message(message);
            }
        }
    }
}
