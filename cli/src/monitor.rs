//! The command `gradlet monitor`.

use crate::print;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use gradlet::monitor::{Monitor, Report};
use gradlet::runtime::telemetry::{Frame, Received};
use gradlet::summary::create_file_writer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{IsTerminal, Read};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Show the training of a device, and record it as events for TensorBoard, live
///
/// The device sends telemetry (`gradlet_core::runtime::telemetry`) over a serial port or another connection. The loss, metrics
/// and progress are shown here. `tensorboard --logdir DIR` shows their curves, and the times of ops on its Profile tab. The
/// command stops when the connection ends, or at Ctrl-C.
#[derive(Args)]
#[command(after_help = "Examples:\n  gradlet monitor --port /dev/ttyUSB0 --logdir logs/board --model cnn.grdl\n  \
    gradlet monitor --tcp localhost:4444 --logdir logs/qemu     with qemu-system-arm … -serial tcp::4444,server=on,wait=on\n  \
    cat capture.bin | gradlet monitor --stdin --logdir logs/capture")]
pub struct Watch {
    #[command(flatten)]
    line: Line,
    /// Speed of the serial port, in bits per second
    #[arg(long, value_name = "BAUD", default_value_t = 115_200, conflicts_with_all = ["tcp", "socket", "stdin"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    baud: u32,
    /// Folder for the events, in which a new file is created
    #[arg(long, value_name = "DIR")]
    logdir: PathBuf,
    /// Artifact that the device runs, for the names of its ops
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
}

/// The source of the frames.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Line {
    /// A serial port
    #[arg(long, value_name = "PATH")]
    port: Option<PathBuf>,
    /// A TCP server
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Option<String>,
    /// A Unix socket, such as QEMU's
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The standard input
    #[arg(long)]
    stdin: bool,
}

/// Maximum number of received blocks of bytes that wait to be processed.
const WAITING: usize = 64;
/// Maximum number of tags whose values are shown. These are the tags that were received first.
const NUMBERS: usize = 8;
/// Interval at which events are flushed and Ctrl-C is checked.
const TICK: Duration = Duration::from_millis(100);

impl Watch {
    pub fn run(&self, quiet: bool) -> Result<()> {
        // The line is opened first, so that an error creates no file and Ctrl-C still ends the command immediately.
        let bytes = read(self.line.open(self.baud)?);
        let mut monitor = Monitor::new(create_file_writer(&self.logdir)?);
        if let Some(model) = &self.model {
            monitor = monitor.with_model(model)?;
        }
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        ctrlc::set_handler(move || stop.store(true, Ordering::Relaxed)).context("cannot handle Ctrl-C")?;

        let mut screen = Screen::new(quiet);
        let mut flushed = Instant::now();
        let outcome = loop {
            // Data received before Ctrl-C is still processed.
            let last = stopped.load(Ordering::Relaxed);
            let taken = match bytes.recv_timeout(TICK) {
                Ok(came) => self.take(came, &mut monitor, &mut screen),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => break Ok(()),
            };
            if taken.is_err() {
                break taken;
            }
            if last {
                break bytes.try_iter().take(WAITING).try_for_each(|came| self.take(came, &mut monitor, &mut screen));
            }
            if flushed.elapsed() > TICK {
                monitor.flush()?;
                flushed = Instant::now();
            }
        };
        screen.finish();
        let report = monitor.finish()?;
        if !quiet {
            print(&format!("{report}\n"))?;
        }
        outcome.and_then(|()| self.check(&report))
    }

    fn take(&self, came: std::io::Result<Vec<u8>>, monitor: &mut Monitor, screen: &mut Screen) -> Result<()> {
        let bytes = came.with_context(|| format!("{} failed", self.line.name()))?;
        Ok(monitor.feed(&bytes, &mut |received| screen.show(received))?)
    }

    /// Fails if bytes were received, but not a single frame.
    fn check(&self, report: &Report) -> Result<()> {
        let hint = if self.line.port.is_some() { format!(": does the device send {} bits a second?", self.baud) } else { String::new() };
        ensure!(report.link.frames > 0 || report.bytes == 0, "{} bytes were received, but they contain no frame{hint}", report.bytes);
        Ok(())
    }
}

impl Line {
    fn name(&self) -> String {
        let path = self.port.as_ref().or(self.socket.as_ref()).map(|path| path.display().to_string());
        path.or(self.tcp.clone()).unwrap_or("the standard input".into())
    }

    fn open(&self, baud: u32) -> Result<Box<dyn Read + Send>> {
        let context = || format!("cannot connect to {}", self.name());
        Ok(match self {
            Line { tcp: Some(address), .. } => Box::new(TcpStream::connect(address).with_context(context)?),
            #[cfg(unix)]
            Line { socket: Some(path), .. } => Box::new(std::os::unix::net::UnixStream::connect(path).with_context(context)?),
            #[cfg(unix)]
            Line { port: Some(path), .. } => Box::new(gradlet::monitor::open_serial(path, baud)?),
            Line { stdin: true, .. } => Box::new(std::io::stdin()),
            _ => bail!("{} at {baud} baud: this system supports only --tcp and --stdin", self.name()),
        })
    }
}

/// Reads the line on a separate thread, because a read cannot be interrupted. The receiver returns the blocks of bytes in the
/// order in which they arrive. An error is the last item.
fn read(mut line: Box<dyn Read + Send>) -> Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let read = match line.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => Ok(buffer[..count].to_vec()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if sender.send(read).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// The display. On a terminal it is a bar with the last value of each tag. Otherwise, it prints a line per epoch, and the texts
/// of the device.
struct Screen {
    bar: Option<ProgressBar>,
    quiet: bool,
    numbers: BTreeMap<String, f32>,
    epoch: Option<u32>,
}

impl Screen {
    fn new(quiet: bool) -> Screen {
        let shown = !quiet && std::io::stderr().is_terminal();
        let bar = shown.then(|| {
            let colours = if std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) { ".green/white" } else { "" };
            let style = ProgressStyle::with_template(&format!("{{pos}}/{{len}} {{bar:20{colours}}} {{msg}}"));
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
        });
        Screen { bar, quiet, numbers: BTreeMap::new(), epoch: None }
    }

    fn show(&mut self, received: &Received<'_>) {
        match received.frame {
            Frame::Hello(hello) => self.say(&format!("{}: the clock counts {}, {} per second", hello.sender, hello.clock, hello.hz)),
            Frame::Scalar { tag, value, .. } => {
                let tag = clean(tag);
                if self.numbers.len() < NUMBERS || self.numbers.contains_key(&tag) {
                    self.numbers.insert(tag, value);
                }
            }
            Frame::Text { tag, step, text } => self.say(&format!("{tag} at step {step}: {text}")),
            Frame::Progress { step, of, epoch } => self.progress(step, of, epoch),
            _ => {}
        }
    }

    fn progress(&mut self, step: u32, of: u32, epoch: u32) {
        let line = self.line();
        match &self.bar {
            Some(bar) => {
                bar.set_length(of.into());
                bar.set_position(step.into());
                bar.set_message(format!("epoch {} {line}", u64::from(epoch) + 1));
            }
            None if step == of || self.epoch != Some(epoch) => self.say(&format!("epoch {}: {step}/{of} {line}", u64::from(epoch) + 1)),
            None => {}
        }
        self.epoch = Some(epoch);
    }

    /// Formats the values, such as `- accuracy: 0.9000 - loss: 0.3000 `.
    fn line(&self) -> String {
        self.numbers.iter().fold(String::new(), |mut line, (tag, value)| {
            let _ = write!(line, "- {tag}: {value:.4} ");
            line
        })
    }

    fn say(&self, text: &str) {
        let text = clean(text);
        match &self.bar {
            Some(bar) => bar.println(text),
            None if self.quiet => {}
            None => eprintln!("{text}"),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if !self.numbers.is_empty() {
            self.say(self.line().trim_start_matches("- "));
        }
    }
}

/// Replaces control characters, so that a device cannot send commands to the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
