//! The receiver of a device's [telemetry](crate::runtime::telemetry). It converts received bytes to events and timelines for
//! TensorBoard.
//!
//! `gradlet monitor` reads the bytes from a serial port, a socket or a pipe, passes them to this module, and prints the frames.

mod profile;
#[cfg(unix)]
mod serial;

#[cfg(unix)]
pub use serial::open_serial;

use crate::files::{FileError, FileResult};
use crate::formats::proto::session_log::SessionStatus;
use crate::formats::proto::{Event, SessionLog, event};
use crate::tensorboard::summary::SummaryWriter;
use gradlet_core::artifact::describe::Description;
use gradlet_core::runtime::telemetry::{Decoder, Frame, Hello, Link, Received};
use gradlet_core::{Error, Result};
use profile::Profiles;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum length of a frame, in bytes.
const LONGEST: usize = 64 << 10;

/// Converter of a device's telemetry to a TensorBoard run, while the device is running.
///
/// Scalars and texts are stored under their tags. Statistics are stored as scalars with the tags `TAG/min`, `max`, `mean`, `std` and
/// `non_finite`. The times of a signature's ops become a profile. It is named after the signature and the step, such as `train-1`.
///
/// ```
/// use gradlet::monitor::Monitor;
/// use gradlet::summary;
/// use gradlet::runtime::Telemetry;
/// let (mut line, mut buffer) = ([0; 64], [0; 64]);
/// let mut device = Telemetry::new(&mut line[..], &mut buffer);
/// device.scalar("loss", 7, 0.25);
/// device.flush().expect("room");
///
/// let folder = tempfile::tempdir()?;
/// let mut monitor = Monitor::new(summary::create_file_writer(folder.path())?);
/// monitor.feed(&line, &mut |received| println!("{:?}", received.frame))?;
/// let report = monitor.finish()?;
/// assert_eq!((report.link.frames, report.link.lost), (1, 0));
/// assert_eq!(summary::Run::read(folder.path())?.series("loss").unwrap().points[0].number(), Some(0.25));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Monitor {
    decoder: Decoder<Vec<u8>>,
    events: Events,
    bytes: u64,
}

/// Statistics of a line: the data that was received, and the data that was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of bytes received.
    pub bytes: u64,
    /// Counts of received and lost frames.
    pub link: Link,
    /// Number of frames that the device dropped because its line was too slow, as reported by the device.
    pub dropped: u64,
    /// Paths of the profiles that were written.
    pub profiles: Vec<PathBuf>,
    /// Number of profiles that could not be written because the device never described its clock.
    pub unclocked: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Link { frames, lost, before, corrupt, unknown, restarts, foreign: _ } = self.link;
        write!(f, "frames received: {frames}, lost: {lost}, corrupt pieces: {corrupt}")?;
        write!(f, ", dropped by the device: {}", self.dropped)?;
        if before > 0 {
            write!(f, ", sent before the first received one: {before}")?;
        }
        if unknown > 0 {
            write!(f, ", of unknown kinds: {unknown}")?;
        }
        if restarts > 0 {
            write!(f, "; restarts of the device: {restarts}")?;
        }
        if self.unclocked > 0 {
            write!(f, "; profiles not written because no hello frame described the clock: {}", self.unclocked)?;
        }
        Ok(())
    }
}

impl Monitor {
    /// Creates a monitor that writes events with `writer` and profiles to its folder.
    pub fn new(writer: SummaryWriter) -> Monitor {
        let profiles = Profiles::new(writer.directory());
        let events = Events { writer, profiles, latest: BTreeMap::new(), starts: BTreeSet::new(), dropped: 0, dropped_before: 0 };
        Monitor { decoder: Decoder::new(vec![0; LONGEST]), events, bytes: 0 }
    }

    /// Reads the artifact in `path`, which names the ops of profiles.
    ///
    /// Fails if the file is not an artifact. [`feed`](Monitor::feed) then fails if the device runs a different artifact.
    pub fn with_model(mut self, path: &Path) -> FileResult<Monitor> {
        let bytes = std::fs::read(path).map_err(|error| FileError::io(path, error))?;
        let description = Description::read(&bytes).map_err(|error| FileError::model(path, error))?;
        self.events.profiles.model = Some((path.into(), description));
        Ok(self)
    }

    /// Processes received bytes. Calls `show` with each frame.
    ///
    /// Fails if an event cannot be written, if the device uses another version of the protocol, or if it runs a different model
    /// than [`with_model`](Monitor::with_model) read.
    pub fn feed(&mut self, bytes: &[u8], show: &mut dyn FnMut(&Received<'_>)) -> Result<()> {
        self.bytes += bytes.len() as u64;
        let mut outcome = Ok(());
        self.decoder.feed(bytes, &mut |received| {
            show(&received);
            if outcome.is_ok() {
                outcome = self.events.take(&received);
            }
        });
        match self.decoder.link().foreign {
            Some(version) => {
                let own = gradlet_core::runtime::telemetry::VERSION;
                Err(Error::message(format!("the device sends version {version} of the telemetry, but this gradlet reads version {own}")))
            }
            None => outcome,
        }
    }

    /// Waits until all events so far are in the event file.
    pub fn flush(&self) -> Result<()> {
        self.events.writer.flush()
    }

    /// Returns the statistics so far.
    pub fn report(&self) -> Report {
        let Events { dropped, dropped_before, profiles, .. } = &self.events;
        Report {
            bytes: self.bytes,
            link: *self.decoder.link(),
            dropped: dropped_before + dropped,
            profiles: profiles.written.clone(),
            unclocked: profiles.unclocked(),
        }
    }

    /// Writes the profiles that are not written yet, including incomplete ones, and closes the event file. Returns the
    /// statistics.
    pub fn finish(mut self) -> Result<Report> {
        self.events.profiles.finish()?;
        self.events.writer.close()?;
        Ok(self.report())
    }
}

/// Writer of the events and profiles of received frames.
struct Events {
    writer: SummaryWriter,
    profiles: Profiles,
    /// The latest step of each tag.
    latest: BTreeMap<String, u32>,
    /// Tags that have had no new value since the device restarted.
    starts: BTreeSet<String>,
    /// Number of frames that the device dropped since its last restart; `dropped_before` counts the earlier ones.
    dropped: u64,
    dropped_before: u64,
}

impl Events {
    fn take(&mut self, received: &Received<'_>) -> Result<()> {
        if received.restarted {
            self.starts = self.latest.keys().cloned().collect();
            self.dropped_before += std::mem::take(&mut self.dropped);
        }
        match received.frame {
            Frame::Hello(hello) => self.hello(&hello),
            Frame::Scalar { tag, step, value } => {
                self.step(tag, step)?;
                self.writer.scalar(tag, value, i64::from(step))
            }
            Frame::Statistics { tag, step, statistics } => {
                self.step(tag, step)?;
                let numbers = [
                    ("min", statistics.min),
                    ("max", statistics.max),
                    ("mean", statistics.mean),
                    ("std", statistics.variance.sqrt()),
                    ("non_finite", statistics.non_finite as f32),
                ];
                numbers.iter().try_for_each(|(name, value)| self.writer.scalar(&format!("{tag}/{name}"), *value, i64::from(step)))
            }
            Frame::Text { tag, step, text } => {
                self.step(tag, step)?;
                self.writer.text(tag, text, i64::from(step))
            }
            Frame::Counts { signature, step, total, first, of, at, ticks } => {
                let part = profile::Part { step, total, first, of, at, ticks };
                Ok(self.profiles.add(signature, part)?)
            }
            Frame::Dropped { frames } => {
                self.dropped = frames.into();
                Ok(())
            }
            // These frames are only shown.
            _ => Ok(()),
        }
    }

    fn hello(&mut self, hello: &Hello<'_>) -> Result<()> {
        self.profiles.hello(hello)?;
        let Hello { sender, clock, hz, .. } = hello;
        self.writer.text("device", format!("{sender}: the clock counts {clock}, {hz} per second"), 0)
    }

    /// Updates the latest step of a tag. After a restart, a device can repeat steps of a tag. An event then makes TensorBoard
    /// discard all values from that step on. TensorFlow writes the same event.
    fn step(&mut self, tag: &str, step: u32) -> Result<()> {
        if self.starts.remove(tag) && self.latest.get(tag).is_some_and(|latest| step <= *latest) {
            let status = SessionLog { status: SessionStatus::Start.into(), ..SessionLog::default() };
            let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_secs_f64());
            let what = Some(event::What::SessionLog(status));
            self.writer.write_event(&Event { wall_time, step: step.into(), what, ..Event::default() })?;
            match step.checked_sub(1) {
                Some(before) => self.latest.values_mut().for_each(|latest| *latest = before.min(*latest)),
                None => self.latest.clear(),
            }
        }
        match self.latest.get_mut(tag) {
            Some(latest) => *latest = step.max(*latest),
            None => drop(self.latest.insert(tag.into(), step)),
        }
        Ok(())
    }
}
