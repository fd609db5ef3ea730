//! The output of a step. It is shown live if the step runs alone. Otherwise, it is kept until the step ends.

use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, Read, Write, pipe, stdout};
use std::process::{Command, Stdio};
use xtask::shell;

/// The output of a step.
pub struct Log {
    live: bool,
    text: Vec<u8>,
}

impl Log {
    /// Creates an empty log. If `live` is true, it shows text as soon as it is added.
    pub fn new(live: bool) -> Log {
        Log { live, text: Vec::new() }
    }

    /// Adds a line.
    pub fn say(&mut self, line: &str) {
        self.add(format!("{line}\n").as_bytes());
    }

    /// Runs `command` and waits for it. If it fails, returns an error that names the command.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        let (mut output, input) = pipe()?;
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
        if stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let started = command.spawn();
        // The pipe ends when all its write ends are closed. This drops the ones that `command` holds.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = started.with_context(|| format!("cannot start {}", shell::name(command)))?;
        let mut part = [0; 4096];
        while let count @ 1.. = output.read(&mut part)? {
            self.add(&part[..count]);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`{}` failed ({status})", shell::line(command));
        }
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.live {
            print(bytes);
        }
        self.text.extend(bytes);
    }

    /// Shows the kept output.
    pub fn show(&mut self) {
        if !std::mem::replace(&mut self.live, true) {
            print(&self.text);
        }
    }

    /// Returns the output so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

fn print(bytes: &[u8]) {
    let mut out = stdout();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}
