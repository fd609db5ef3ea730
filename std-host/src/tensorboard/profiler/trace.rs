//! A trace, from its start to its export.

use super::recording::{Observation, Recording};
use super::run_metadata::run_metadata;
use super::timeline::Timeline;
use crate::formats::proto::summary_metadata::PluginData;
use crate::formats::proto::{DataType, SummaryMetadata, TensorProto, TensorShapeProto};
use crate::tensorboard::summary::{SummaryWriter, host};
use gradlet_core::{Device, Error, Result};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Data that a trace records. As in TensorFlow, the default is the graphs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// True to record the graphs of functions that run.
    pub graph: bool,
    /// True to record the start and duration of every activity, and every change of the device's memory.
    pub profiler: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { graph: true, profiler: false }
    }
}

/// A running trace, as started by TensorFlow's `tf.summary.trace_on`. See [`trace_on`].
pub struct Trace {
    device: Device,
    options: Options,
    recording: Arc<Recording>,
}

/// Starts a trace. It records the ops that run on [`Trace::device`], a device that behaves like `device`. TensorFlow's
/// `tf.summary.trace_on`.
///
/// An eager op is recorded if its scope, or one of its input tensors, is on the trace's device. A function is recorded if it is
/// called in a scope on that device. Models and functions that were built on `device` work with both devices. The trace keeps all
/// data in memory until it is exported, so it should cover a few steps only.
///
/// With [`Options::profiler`], TensorBoard's tool Memory Profile shows the memory of the device over time, and the holders of the memory at
/// its peak. Memory that was in use when the trace began is one entry. Memory that `device` itself allocates or frees later has no entries
/// of its own, but counts in the total.
///
/// A device with its own clock, such as a GPU, measures each launch and each transfer, and the program waits for it. In the profile, such a
/// device has a plane with its stream, and the threads are in the plane of the host.
///
/// ```
/// use gradlet::{Eager, Function, Scope, Tensor, profiler, summary};
/// let folder = tempfile::tempdir()?;
/// let writer = summary::create_file_writer(folder.path())?;
/// let square = Function::new(|_: &dyn Scope, x: Tensor| x.matmul(&x)?.relu()).named("square");
///
/// let trace = profiler::trace_on(&gradlet::cpu(), profiler::Options { graph: true, profiler: true });
/// let scope = Eager::new(trace.device());
/// square.call(&scope, Tensor::full(&scope.device(), 1.0f32, &[2, 2])?)?;
/// let profile = trace.export("model_trace", 0, &writer)?.unwrap();
/// writer.close()?;
///
/// assert!(profile.starts_with(folder.path().join("plugins/profile")));
/// assert!(summary::Run::read(folder.path())?.series("model_trace").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "tf.summary.trace_on")]
pub fn trace_on(device: &Device, options: Options) -> Trace {
    let recording = Arc::new(Recording::new(device, options));
    Trace { device: device.profiling(recording.clone()), options, recording }
}

impl Trace {
    /// Returns the device whose ops are recorded.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Marks the ops until the returned guard is dropped as training step `number`, for the overview of the profile. TensorFlow's
    /// `tf.profiler.experimental.Trace`. Outside of such a guard, each call of a function counts as a step.
    ///
    /// ```
    /// use gradlet::{Tensor, profiler};
    /// let trace = profiler::trace_on(&gradlet::cpu(), profiler::Options { profiler: true, ..Default::default() });
    /// for number in 0..2 {
    ///     let _step = trace.step("train", number);
    ///     Tensor::scalar(trace.device(), 2.0f32).sqrt()?;
    /// }
    /// let timeline = trace.timeline()?;
    /// let names: Vec<&str> = timeline.planes[0].lines[0].spans.iter().map(|span| span.name.as_str()).collect();
    /// assert_eq!(names, ["train", "Sqrt:Sqrt", "train", "Sqrt:Sqrt"]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn step(&self, name: &str, number: i64) -> Step<'_> {
        self.recording.step(name, number);
        Step(self)
    }

    /// Ends the trace and writes it. The graphs become a summary `name` in the writer's file. The profile is written below the
    /// writer's folder, and its path is returned. If [`Options::profiler`] is false, there is no profile, and `None` is returned.
    /// TensorFlow's `tf.summary.trace_export`.
    ///
    /// Fails if the trace was already ended by [`Trace::off`] or an export, or if a file cannot be written. In the second case, the
    /// trace can be exported again with another writer.
    pub fn export(&self, name: &str, step: i64, writer: &SummaryWriter) -> Result<Option<PathBuf>> {
        let record = self.take("export")?;
        let written = self.write(&record, name, step, writer);
        if written.is_err() {
            self.recording.give_back(record);
        }
        written
    }

    fn write(&self, record: &Observation, name: &str, step: i64, writer: &SummaryWriter) -> Result<Option<PathBuf>> {
        let Options { graph, profiler } = self.options;
        if graph || profiler {
            let metadata = run_metadata(record, &self.recording, profiler);
            let plugin_name = if profiler { "graph_run_metadata" } else { "graph_run_metadata_graph" };
            let plugin_data = Some(PluginData { plugin_name: plugin_name.into(), content: b"1".as_slice().into() });
            let about = SummaryMetadata { plugin_data, ..SummaryMetadata::default() };
            writer.write(name, bytes_proto(metadata.encode_to_vec()), Some(about), step)?;
        }
        if !profiler {
            return Ok(None);
        }
        let timeline = self.recording.timeline(record, &host());
        Ok(Some(timeline.write(writer.directory(), &new_run(writer.directory(), SystemTime::now()))?))
    }

    /// Ends the trace and returns its timeline. Fails if the trace was already ended.
    pub fn timeline(&self) -> Result<Timeline> {
        Ok(self.recording.timeline(&self.take("timeline")?, &host()))
    }

    /// Ends the trace and discards its data: TensorFlow's `tf.summary.trace_off`.
    pub fn off(&self) {
        drop(self.recording.take());
    }

    fn take(&self, what: &str) -> Result<Observation> {
        let over = || {
            Error::message(format!("must enable trace before {what}: this one was exported or turned off; start a new one with trace_on"))
        };
        self.recording.take().ok_or_else(over)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.off();
    }
}

/// A guard for a training step. The step ends when the guard is dropped.
#[must_use = "the step ends when this is dropped"]
pub struct Step<'t>(&'t Trace);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.recording.step_over();
    }
}

/// Converts bytes to a scalar string tensor.
fn bytes_proto(bytes: Vec<u8>) -> TensorProto {
    let (dtype, tensor_shape) = (DataType::DtString.into(), Some(TensorShapeProto::default()));
    TensorProto { dtype, tensor_shape, string_val: vec![bytes.into()], ..TensorProto::default() }
}

/// Returns a name for a profile that does not exist yet.
fn new_run(logdir: &Path, time: SystemTime) -> String {
    let name = run_name(time);
    let numbered = (1..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !logdir.join("plugins/profile").join(name).exists()).unwrap_or(name)
}

/// Formats a time as the name of a profile, in TensorFlow's format: `2024_01_31_23_59_59`, in UTC.
fn run_name(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Years begin in March here, and eras have 400 years, as in Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
    let (days, second) = (seconds / 86400 + 719_468, seconds % 86400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}_{month:02}_{day:02}_{:02}_{:02}_{:02}", era * 400 + year, second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn runs_are_named_after_the_time() {
        let named = |seconds| run_name(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(named(0), "1970_01_01_00_00_00");
        assert_eq!(named(951_868_799), "2000_02_29_23_59_59");
        assert_eq!(named(1_704_067_199), "2023_12_31_23_59_59");
        assert_eq!(named(4_107_542_400), "2100_03_01_00_00_00");
    }
}
