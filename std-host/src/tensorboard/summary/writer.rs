//! The writer of event files.

use super::queue::Queue;
use super::{audio, histogram, image, scalar::Scalar};
use crate::files;
use crate::files::{FileError, FileResult};
use crate::formats::proto::summary_metadata::PluginData;
use crate::formats::proto::{
    DataType, Event, GraphDef, SourceMetadata, Summary, SummaryMetadata, TensorProto, TensorShapeProto, event, summary,
};
use crate::formats::tensor_proto;
use crate::values::strings::Strings;
use bytes::Bytes;
use gradlet_core::runtime::format::{self, SummaryKind};
use gradlet_core::{Device, Error, Result, Tensor};
use prost::Message;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Options of a [`SummaryWriter`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum size, in bytes, of the events that wait in memory. A caller that would exceed it waits for the disk. The thread
    /// starts to write when half of it is reached. The events that the thread is writing do not count.
    pub max_queue_bytes: usize,
    /// Maximum time until an event is in the file.
    pub flush_interval: Duration,
    /// Suffix of the file name.
    pub filename_suffix: String,
}

impl Default for Options {
    fn default() -> Options {
        Options { max_queue_bytes: 8 << 20, flush_interval: Duration::from_secs(1), filename_suffix: ".v2".into() }
    }
}

/// A writer of summaries to an event file. A separate thread does the writing. Clones write to the same file.
///
/// After a crash of the program, the file contains all events that were [flushed](SummaryWriter::flush) or are older than
/// [`Options::flush_interval`]. The file is closed when the last clone is dropped. [`close`](SummaryWriter::close) does the same
/// and reports errors.
///
/// A step is a number, or `None` for the step of [`set_step`](SummaryWriter::set_step). Every method that writes fails if an
/// earlier event could not be written, or if the writer is closed.
#[derive(Clone)]
#[doc(alias = "tf.summary", alias = "FileWriter")]
pub struct SummaryWriter {
    queue: Arc<Queue>,
    /// Step of summaries that are written without a step, or [`UNSET`].
    step: Arc<AtomicI64>,
    /// Prefix of all tags.
    scope: Arc<str>,
    description: Arc<str>,
    records: bool,
}

/// Value of `step` if no step is set.
const UNSET: i64 = i64::MIN;

impl SummaryWriter {
    /// Creates a writer for a new event file in `directory`. The folder is created if it does not exist. Fails if the folder or the
    /// file cannot be created.
    pub fn with_options(directory: impl AsRef<Path>, options: Options) -> FileResult<SummaryWriter> {
        let directory = directory.as_ref();
        files::create_folder(directory)?;
        let (path, file) = create(directory, &options.filename_suffix)?;
        let writer = SummaryWriter {
            queue: Arc::new(Queue::new(&path, file, options.max_queue_bytes, options.flush_interval)?),
            step: Arc::new(AtomicI64::new(UNSET)),
            scope: "".into(),
            description: "".into(),
            records: true,
        };
        let version = Event {
            wall_time: now().floor(),
            what: Some(event::What::FileVersion("brain.Event:2".into())),
            source_metadata: Some(SourceMetadata { writer: "gradlet".into() }),
            ..Event::default()
        };
        writer.queue.push(&version).map_err(|error| FileError::model(&path, error))?;
        Ok(writer)
    }

    /// Returns the path of the event file.
    pub fn path(&self) -> &Path {
        self.queue.path()
    }

    /// Returns the folder of the run, which contains the event file.
    pub fn directory(&self) -> &Path {
        self.path().parent().unwrap_or(Path::new("."))
    }

    /// Returns a handle to this writer that records nothing if `condition` is false. TensorFlow's `tf.summary.record_if`.
    pub fn record_if(&self, condition: bool) -> SummaryWriter {
        SummaryWriter { records: self.records && condition, ..self.clone() }
    }

    /// Returns a handle to this writer whose tags begin with `name/`. TensorFlow's `tf.name_scope`.
    pub fn name_scope(&self, name: &str) -> SummaryWriter {
        SummaryWriter { scope: format!("{}{name}/", self.scope).into(), ..self.clone() }
    }

    /// Returns a handle to this writer that adds a description, in Markdown. TensorBoard shows it beside the summaries.
    pub fn described(&self, description: &str) -> SummaryWriter {
        SummaryWriter { description: description.into(), ..self.clone() }
    }

    /// Returns a handle to this writer without name scopes, for tags with a fixed name that a plugin expects.
    pub(super) fn outside(&self) -> SummaryWriter {
        SummaryWriter { scope: "".into(), ..self.clone() }
    }

    /// Sets the step of summaries that are written without a step. TensorFlow's `tf.summary.experimental.set_step`.
    pub fn set_step(&self, step: i64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Returns a device that behaves like `device` and sends the summaries of its programs to this writer. These are the summaries
    /// of [`Summarize`](crate::Summarize), both eager and in functions. TensorFlow's `writer.as_default()`.
    ///
    /// Everything that is created on that device, such as a model's variables, keeps the writer open. Call
    /// [`close`](SummaryWriter::close) at the end of a run.
    ///
    /// ```
    /// use gradlet::{Eager, Function, Scope, Summarize, Tensor, summary};
    /// let folder = tempfile::tempdir()?;
    /// let writer = summary::create_file_writer(folder.path())?;
    /// let scope = Eager::new(&writer.as_default(&gradlet::cpu()));
    /// let square = Function::new(|scope: &dyn Scope, (x, step): (Tensor, Tensor)| {
    ///     let y = x.mul(&x)?;
    ///     scope.scalar("square", &y, &step)?;
    ///     Ok(y)
    /// });
    /// for step in 0..3i64 {
    ///     let device = scope.device();
    ///     square.call(&scope, (Tensor::scalar(&device, step as f32), Tensor::scalar(&device, step)))?;
    /// }
    /// writer.close()?;
    /// let run = summary::Run::read(folder.path())?;
    /// let squares: Vec<_> = run.series("square").unwrap().points.iter().filter_map(|point| point.number()).collect();
    /// assert_eq!(squares, [0.0, 1.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_default(&self, device: &Device) -> Device {
        let writer = self.clone();
        device.summarizing(move |summary| writer.told(summary))
    }

    fn told(&self, summary: &format::Summary<'_>) -> Result<()> {
        if !self.records {
            return Ok(());
        }
        let value = Tensor::from_bytes(&crate::compute::devices::cpu(), *summary.value.tensor_type, summary.value.bytes())?;
        let (tag, step) = (summary.tag, summary.step);
        match summary.kind {
            SummaryKind::Scalar => self.scalar(tag, &value, step),
            SummaryKind::Histogram => self.histogram_with(tag, &value, step, summary.parameter),
            SummaryKind::Image => self.image_with(tag, &value, step, summary.parameter),
        }
    }

    /// Writes a number, for TensorBoard's pages "Time series" and "Scalars". Fails if `value` is a tensor that is not a scalar.
    pub fn scalar(&self, tag: &str, value: impl Scalar, step: impl Into<Option<i64>>) -> Result<()> {
        if !self.records {
            return Ok(());
        }
        let tensor_content = Bytes::copy_from_slice(&value.to_f32()?.to_le_bytes());
        let tensor_shape = Some(TensorShapeProto::default());
        let tensor = TensorProto { dtype: DataType::DtFloat.into(), tensor_shape, tensor_content, ..TensorProto::default() };
        self.write(tag, tensor, Some(metadata("scalars", Bytes::new())), step)
    }

    /// Writes a histogram of the elements of a tensor, with 30 buckets of equal width, for the pages "Histograms" and
    /// "Distributions".
    pub fn histogram(&self, tag: &str, values: &Tensor, step: impl Into<Option<i64>>) -> Result<()> {
        self.histogram_with(tag, values, step, histogram::BUCKETS)
    }

    /// Works like [`histogram`](SummaryWriter::histogram), with `buckets` buckets.
    pub fn histogram_with(&self, tag: &str, values: &Tensor, step: impl Into<Option<i64>>, buckets: u32) -> Result<()> {
        if !self.records {
            return Ok(());
        }
        let tensor = tensor_proto::to_proto(&histogram::histogram(values, buckets)?)?;
        self.write(tag, tensor, Some(metadata("histograms", Bytes::new())), step)
    }

    /// Writes the first 3 of `images`, for the page "Images". The shape is `[images, height, width, channels]` with 1 (grey), 2
    /// (grey, alpha), 3 (RGB) or 4 (RGBA) channels. Elements are u8, or floats from 0 to 1.
    pub fn image(&self, tag: &str, images: &Tensor, step: impl Into<Option<i64>>) -> Result<()> {
        self.image_with(tag, images, step, image::MAX_OUTPUTS)
    }

    /// Works like [`image`](SummaryWriter::image), with at most `max_outputs` images.
    pub fn image_with(&self, tag: &str, images: &Tensor, step: impl Into<Option<i64>>, max_outputs: u32) -> Result<()> {
        if !self.records {
            return Ok(());
        }
        let tensor = tensor_proto::strings_to_proto(&image::images(images, max_outputs)?);
        self.write(tag, tensor, Some(metadata("images", Bytes::new())), step)
    }

    /// Writes Markdown text, for the page "Text". A tensor of several texts is shown as a table.
    pub fn text(&self, tag: &str, text: impl Into<Strings>, step: impl Into<Option<i64>>) -> Result<()> {
        if !self.records {
            return Ok(());
        }
        self.write(tag, tensor_proto::strings_to_proto(&text.into()), Some(metadata("text", Bytes::new())), step)
    }

    /// Writes the first 3 audio clips of `sounds`, for the page "Audio". `sounds` is f32 `[clips, frames, channels]` with samples
    /// from -1 to 1.
    pub fn audio(&self, tag: &str, sounds: &Tensor, sample_rate: u32, step: impl Into<Option<i64>>) -> Result<()> {
        self.audio_with(tag, sounds, sample_rate, step, audio::MAX_OUTPUTS)
    }

    /// Works like [`audio`](SummaryWriter::audio), with at most `max_outputs` audio clips.
    pub fn audio_with(&self, tag: &str, sounds: &Tensor, sample_rate: u32, step: impl Into<Option<i64>>, max_outputs: u32) -> Result<()> {
        if !self.records {
            return Ok(());
        }
        let tensor = tensor_proto::strings_to_proto(&audio::sounds(sounds, sample_rate, max_outputs)?);
        self.write(tag, tensor, Some(metadata("audio", Bytes::from_static(audio::CONTENT))), step)
    }

    /// Writes a graph, for the page "Graphs". TensorBoard shows only the last graph of a run.
    pub fn graph(&self, graph: &GraphDef) -> Result<()> {
        if !self.records {
            return Ok(());
        }
        let what = Some(event::What::GraphDef(graph.encode_to_vec().into()));
        self.write_event(&Event { wall_time: now(), what, ..Event::default() })
    }

    /// Writes any tensor. `metadata` names the plugin that shows the tensor. TensorFlow's `tf.summary.write`.
    pub fn write(&self, tag: &str, tensor: TensorProto, metadata: Option<SummaryMetadata>, step: impl Into<Option<i64>>) -> Result<()> {
        let set = || Some(self.step.load(Ordering::Relaxed)).filter(|&step| step != UNSET);
        if !self.records {
            return Ok(());
        }
        let no_step = || Error::message(format!("the summary {tag:?} has no step: pass one, or call `set_step` on the writer"));
        let step = step.into().or_else(set).ok_or_else(no_step)?;
        let describe = |metadata| SummaryMetadata { summary_description: self.description.to_string(), ..metadata };
        let metadata = if self.description.is_empty() { metadata } else { metadata.map(describe) };
        let tag = if self.scope.is_empty() { tag.to_string() } else { format!("{}{tag}", self.scope) };
        let value = summary::Value { tag, metadata, value: Some(summary::value::Value::Tensor(tensor)), ..summary::Value::default() };
        let what = Some(event::What::Summary(Summary { value: vec![value] }));
        self.write_event(&Event { wall_time: now(), step, what, ..Event::default() })
    }

    /// Writes an event unchanged. Its time is in seconds since 1970.
    pub fn write_event(&self, event: &Event) -> Result<()> {
        if self.records { self.queue.push(event) } else { Ok(()) }
    }

    /// Waits until all events so far are in the file, where other programs can see them. On a closed writer, it returns immediately.
    pub fn flush(&self) -> Result<()> {
        self.queue.flush()
    }

    /// Writes the events that are still in memory and closes the file for all handles. Closing again is not an error.
    pub fn close(&self) -> Result<()> {
        self.queue.close()
    }
}

/// Returns the time in seconds since 1970.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_secs_f64())
}

/// Returns metadata that name only the plugin and its content.
pub(super) fn metadata(plugin: &str, content: impl Into<Bytes>) -> SummaryMetadata {
    SummaryMetadata { plugin_data: Some(PluginData { plugin_name: plugin.into(), content: content.into() }), ..SummaryMetadata::default() }
}

/// Returns the name of this computer, in a form that is valid in a file name.
pub(crate) fn host() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    let name = name.replace(['/', '\\', ':'], "_");
    if name.is_empty() || name.starts_with('.') { "localhost".into() } else { name }
}

/// Creates an event file with TensorFlow's kind of name: time, host, process number, and a number that makes it unique.
fn create(directory: &Path, suffix: &str) -> FileResult<(PathBuf, File)> {
    let begins = format!("events.out.tfevents.{:010}.{}.{}", now() as u64, host(), std::process::id());
    for number in 0.. {
        let path = directory.join(format!("{begins}.{number}{suffix}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(FileError::io(&path, error)),
        }
    }
    Err(FileError::new(directory, "every possible name of an event file is taken"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensorboard::summary::{EventReader, Run, create_file_writer};

    fn steps(folder: &Path, tag: &str) -> Vec<i64> {
        Run::read(folder).unwrap().series(tag).map_or(Vec::new(), |series| series.points.iter().map(|point| point.step).collect())
    }

    #[test]
    fn only_what_is_flushed_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { flush_interval: Duration::from_secs(3600), ..Options::default() };
        let writer = SummaryWriter::with_options(folder.path(), options).unwrap();
        writer.scalar("x", 0.5, 0).unwrap();
        assert_eq!(steps(folder.path(), "x"), [0; 0]);
        writer.flush().unwrap();
        writer.scalar("x", 0.5, 1).unwrap();
        assert_eq!(steps(folder.path(), "x"), [0]);
        drop(writer);
        assert_eq!(steps(folder.path(), "x"), [0, 1]);
    }

    #[test]
    fn an_event_is_in_the_file_after_the_interval() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { flush_interval: Duration::from_millis(20), ..Options::default() };
        let writer = SummaryWriter::with_options(folder.path(), options).unwrap();
        writer.scalar("x", 0.5, 7).unwrap();
        let begun = std::time::Instant::now();
        while steps(folder.path(), "x").is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing came");
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.close().unwrap();
    }

    #[test]
    fn all_arrive_from_many_threads_through_a_short_queue() {
        let folder = tempfile::tempdir().unwrap();
        let writer = SummaryWriter::with_options(folder.path(), Options { max_queue_bytes: 300, ..Options::default() }).unwrap();
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let writer = writer.name_scope(&format!("thread{thread}"));
                threads.spawn(move || (0..500).for_each(|step| writer.scalar("x", step, step).unwrap()));
            }
        });
        writer.close().unwrap();
        for thread in 0..4 {
            assert_eq!(steps(folder.path(), &format!("thread{thread}/x")), (0..500).collect::<Vec<_>>());
        }
    }

    #[test]
    fn settings_are_those_of_the_handle() {
        let folder = tempfile::tempdir().unwrap();
        let writer = create_file_writer(folder.path()).unwrap();
        let error = writer.scalar("x", 1, None).unwrap_err().to_string();
        assert!(error.contains("\"x\" has no step"), "{error}");
        writer.set_step(42);
        writer.scalar("x", 1, None).unwrap();
        writer.record_if(false).scalar("x", 1, None).unwrap();
        writer.name_scope("a").name_scope("b").described("*why*").scalar("x", true, 1).unwrap();
        writer.close().unwrap();
        writer.close().unwrap();
        assert!(writer.scalar("x", 1, 1).unwrap_err().to_string().contains("already closed"));
        let run = Run::read(folder.path()).unwrap();
        assert_eq!(run.series("x").unwrap().points.len(), 1);
        assert_eq!(run.series("a/b/x").unwrap().metadata.summary_description, "*why*");
    }

    #[test]
    fn two_writers_in_a_second_have_a_file_each() {
        let folder = tempfile::tempdir().unwrap();
        let writers = [create_file_writer(folder.path()).unwrap(), create_file_writer(folder.path()).unwrap()];
        assert_ne!(writers[0].path(), writers[1].path());
        writers[0].scalar("x", 0, 0).unwrap();
        writers[1].scalar("x", 1, 1).unwrap();
        drop(writers);
        assert_eq!(steps(folder.path(), "x"), [0, 1]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_of_later_calls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let queue = Queue::new(&path, file, 4, Duration::from_secs(3600)).unwrap();
        queue.push(&Event::default()).unwrap();
        let error = queue.flush().unwrap_err().to_string();
        assert!(error.contains("full: events cannot be written"), "{error}");
        assert!(queue.push(&Event::default()).is_err());
        assert!(queue.close().is_err());
    }

    #[test]
    fn the_file_is_tensorflows() {
        let folder = tempfile::tempdir().unwrap();
        let writer = create_file_writer(folder.path()).unwrap();
        writer.scalar("loss", 1.5f32, 1).unwrap();
        writer.close().unwrap();
        let events: Vec<Event> = EventReader::open(writer.path()).unwrap().map(|event| event.unwrap()).collect();
        assert!(matches!(&events[0].what, Some(event::What::FileVersion(version)) if version == "brain.Event:2"));
        let bytes = Event { wall_time: 0.0, ..events[1].clone() }.encode_to_vec();
        assert_eq!(
            bytes,
            b"\x10\x01\x2a\x21\x0a\x1f\x0a\x04loss\x42\x0a\x08\x01\x12\x00\x22\x04\0\0\xc0\x3f\x4a\x0b\x0a\x09\x0a\x07scalars"
        );
    }
}
