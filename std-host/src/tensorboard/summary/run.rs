//! The contents of a run, in the form of TensorBoard's `EventAccumulator`.

use super::reader::{EventReader, Skipped};
use crate::files::{FileError, FileResult};
use crate::formats::proto::summary;
use crate::formats::proto::summary::value;
use crate::formats::proto::{Event, HistogramProto, SummaryMetadata, TensorProto, event, session_log};
use crate::formats::tensor_proto;
use crate::values::Values;
use bytes::Bytes;
use gradlet_core::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Format in which a point was written. TensorFlow 2 writes only tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A tensor. Its plugin determines how it is shown.
    Tensor,
    /// A number, in the format of TensorFlow 1.
    Scalar,
    /// A histogram, in the format of TensorFlow 1.
    Histogram,
    /// An image, in the format of TensorFlow 1.
    Image,
    /// Audio, in the format of TensorFlow 1.
    Audio,
}

/// A value at a step.
#[derive(Clone, Debug)]
pub struct Point {
    /// The step.
    pub step: i64,
    /// Time at which the point was written, in seconds since 1970.
    pub wall_time: f64,
    /// The value.
    pub value: PointValue,
}

/// The value of a point. Boxing the largest variant would gain nothing, as nearly all points are tensors.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum PointValue {
    /// Value of a point of [`Kind::Tensor`].
    Tensor(TensorProto),
    /// Value of a point of [`Kind::Scalar`].
    Scalar(f32),
    /// Value of a point of [`Kind::Histogram`].
    Histogram(HistogramProto),
    /// Value of a point of [`Kind::Image`].
    Image(summary::Image),
    /// Value of a point of [`Kind::Audio`].
    Audio(summary::Audio),
}

impl Point {
    /// Returns the tensor of numbers or strings. Fails if the point has no tensor, or if the tensor is damaged or has an
    /// unsupported type.
    pub fn tensor(&self) -> Result<Values> {
        match &self.value {
            PointValue::Tensor(proto) => tensor_proto::from_proto(proto),
            PointValue::Scalar(number) => Ok(Values::Numbers(gradlet_core::Tensor::scalar(&crate::compute::devices::cpu(), *number))),
            _ => Err(gradlet_core::Error::message("the point holds a message of TensorFlow 1, not a tensor")),
        }
    }

    /// Returns the number, if the point is a single number.
    pub fn number(&self) -> Option<f64> {
        match self.tensor().ok()? {
            Values::Numbers(tensor) if tensor.dims().is_empty() => tensor.cast(gradlet_core::DType::F64).ok()?.item().ok(),
            _ => None,
        }
    }
}

/// The points of a tag, in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Metadata of the first point that has any: the plugin, its content, and a description.
    pub metadata: SummaryMetadata,
    /// The points.
    pub points: Vec<Point>,
}

impl Series {
    /// Returns the name of the plugin that shows the series, or "" if it is not named.
    pub fn plugin(&self) -> &str {
        self.metadata.plugin_data.as_ref().map_or("", |data| &data.plugin_name)
    }
}

/// Contents of all event files of a folder, without the damaged parts.
///
/// If a run of TensorFlow 1 was restarted and repeated some steps, only the later points of these steps are kept.
#[derive(Debug, Default)]
pub struct Run {
    series: BTreeMap<(Kind, String), Series>,
    /// The last graph: a serialized [`GraphDef`](crate::formats::proto::GraphDef).
    pub graph: Option<Bytes>,
    /// The last meta graph: a serialized `MetaGraphDef`.
    pub meta_graph: Option<Bytes>,
    /// Serialized `RunMetadata` of TensorFlow 1, by tag.
    pub run_metadata: BTreeMap<String, Bytes>,
    /// Errors about damaged regions of the files.
    pub damage: Vec<FileError>,
    /// Statistics of the skipped parts.
    pub skipped: Skipped,
    version: f32,
    latest: i64,
}

impl Run {
    /// Reads the event files of a folder in the order of their names, or a single event file. A record that is being written at the
    /// moment counts as truncated.
    ///
    /// Fails if the folder or a file cannot be read, or if there is no event file.
    pub fn read(path: &Path) -> FileResult<Run> {
        Run::read_with(path, &mut |_| ())
    }

    /// Works like [`Run::read`], and calls `progress` with the number of bytes read since its last call.
    pub fn read_with(path: &Path, progress: &mut dyn FnMut(u64)) -> FileResult<Run> {
        let mut run = Run::default();
        let files = if path.is_dir() { Run::files(path)? } else { vec![path.into()] };
        if files.is_empty() {
            return Err(FileError::new(path, "has no event file: none has \"tfevents\" in its name"));
        }
        for file in files {
            run.add(EventReader::open(&file)?, progress);
        }
        Ok(run)
    }

    /// Returns the event files of a folder in the order of their names.
    pub fn files(folder: &Path) -> FileResult<Vec<PathBuf>> {
        let entries = folder.read_dir().map_err(|error| FileError::io(folder, error))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(|error| FileError::io(folder, error)));
        let mut paths: Vec<PathBuf> = paths.collect::<FileResult<_>>()?;
        paths.retain(|path| path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().contains("tfevents")));
        paths.sort();
        Ok(paths)
    }

    /// Finds the runs in a folder: the folder itself and all folders below it that have event files. The keys are their paths
    /// relative to `folder`, or `.` for the folder itself.
    pub fn find(folder: &Path) -> FileResult<BTreeMap<String, PathBuf>> {
        let mut runs = BTreeMap::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(path) = folders.pop() {
            let entries = path.read_dir().map_err(|error| FileError::io(&path, error))?;
            for entry in entries.flatten() {
                // Links are not followed, as they could form a cycle.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
            }
            if !Run::files(&path)?.is_empty() {
                let name: Vec<_> = path.strip_prefix(folder).unwrap_or(&path).iter().map(|part| part.to_string_lossy()).collect();
                runs.insert(if name.is_empty() { ".".into() } else { name.join("/") }, path);
            }
        }
        Ok(runs)
    }

    /// Adds all events of a file, and the errors about its damaged regions.
    fn add(&mut self, mut reader: EventReader, progress: &mut dyn FnMut(u64)) {
        let mut offset = 0;
        while let Some(event) = reader.next() {
            match event {
                Ok(event) => self.event(event),
                Err(error) => self.damage.push(error),
            }
            progress(reader.offset().saturating_sub(offset));
            offset = reader.offset();
        }
        let Skipped { places, bytes } = reader.skipped();
        self.skipped = Skipped { places: self.skipped.places + places, bytes: self.skipped.bytes + bytes };
    }

    /// Adds the contents of an event to the run.
    pub(crate) fn event(&mut self, event: Event) {
        if let Some(event::What::FileVersion(version)) = &event.what {
            self.version = version.strip_prefix("brain.Event:").and_then(|number| number.parse().ok()).unwrap_or(self.version);
        }
        self.forget(&event);
        let Event { wall_time, step, what, .. } = event;
        match what {
            Some(event::What::GraphDef(graph)) => self.graph = Some(graph),
            Some(event::What::MetaGraphDef(graph)) => self.meta_graph = Some(graph),
            Some(event::What::TaggedRunMetadata(tagged)) => {
                self.run_metadata.insert(tagged.tag, tagged.run_metadata);
            }
            Some(event::What::Summary(summary)) => summary.value.into_iter().for_each(|value| self.value(step, wall_time, value)),
            _ => (),
        }
    }

    fn value(&mut self, step: i64, wall_time: f64, found: summary::Value) {
        let (kind, value) = match found.value {
            Some(value::Value::Tensor(tensor)) => (Kind::Tensor, PointValue::Tensor(tensor)),
            Some(value::Value::SimpleValue(number)) => (Kind::Scalar, PointValue::Scalar(number)),
            Some(value::Value::Histo(histogram)) => (Kind::Histogram, PointValue::Histogram(histogram)),
            Some(value::Value::Image(image)) => (Kind::Image, PointValue::Image(image)),
            Some(value::Value::Audio(audio)) => (Kind::Audio, PointValue::Audio(audio)),
            _ => return,
        };
        let tag = if kind == Kind::Tensor && found.tag.is_empty() { found.node_name } else { found.tag };
        let series = self.series.entry((kind, tag)).or_default();
        if let Some(metadata) = found.metadata.filter(|_| series.metadata == SummaryMetadata::default()) {
            series.metadata = metadata;
        }
        series.points.push(Point { step, wall_time, value });
    }

    /// Removes the points that a restarted run will write again, as TensorBoard does.
    fn forget(&mut self, event: &Event) {
        let keeps = |series: &mut Series| series.points.retain(|point| point.step < event.step);
        if self.version >= 2.0 {
            let starts = |log: &crate::formats::proto::SessionLog| log.status() == session_log::SessionStatus::Start;
            if matches!(&event.what, Some(event::What::SessionLog(log)) if starts(log)) {
                self.series.values_mut().for_each(keeps);
            }
            return;
        }
        match &event.what {
            Some(event::What::Summary(summary)) if event.step < self.latest => {
                let again = |tag: &str| summary.value.iter().any(|value| value.tag == tag);
                self.series.iter_mut().filter(|((_, tag), _)| again(tag)).for_each(|(_, series)| keeps(series));
            }
            _ => self.latest = event.step,
        }
    }

    /// Returns the series of a tag, or `None` if the run has no such tag. If there are several kinds of series with this tag, the
    /// one with tensors is preferred.
    pub fn series(&self, tag: &str) -> Option<&Series> {
        self.all().find(|(_, known, _)| *known == tag).map(|(_, _, series)| series)
    }

    /// Returns all series, sorted by kind and then by tag.
    pub fn all(&self) -> impl Iterator<Item = (Kind, &str, &Series)> {
        self.series.iter().map(|((kind, tag), series)| (*kind, tag.as_str(), series))
    }
}
