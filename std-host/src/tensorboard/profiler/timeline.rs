//! Timelines of activities and of memory. They are written as an XSpace for TensorBoard's Profile tab, and as a Chrome trace for Perfetto.

use super::memory::MemoryEvent;
use crate::files::{FileError, FileResult};
use crate::files::{create_folder, write_whole};
use crate::formats::proto;
use prost::Message;
use proto::x_event::Data;
use proto::x_stat::Value;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Name of the plane from which TensorBoard computes its statistics of ops.
pub(super) const HOST: &str = "/host:CPU";
/// Prefix of plane names that the trace viewer shows for any kind of device.
const CUSTOM: &str = "/device:CUSTOM:";
/// Number of the first line of memory. TensorBoard leaves lines in this range out of its statistics of ops, but reads their changes of
/// memory.
const MEMORY: i64 = 0xdead_beef;

/// Timeline of the devices of a host.
///
/// ```
/// use gradlet::profiler::{Line, Plane, Span, Stat, Timeline};
/// let stats = || vec![("bytes", Stat::Number(64))];
/// let op = |name: &str, start_ps, duration_ps| Span { name: name.into(), start_ps, duration_ps, stats: stats() };
/// let spans = vec![op("dense/MatMul:MatMul", 0, 40_000_000), op("dense/Relu:Relu", 41_000_000, 2_000_000)];
/// let line = Line { name: "ops".into(), start_ns: 1_700_000_000_000_000_000, spans };
/// let plane = Plane { name: "/device:CPU:0".into(), lines: vec![line], ..Plane::default() };
/// let timeline = Timeline { host: "desk".into(), planes: vec![plane] };
/// assert_eq!(timeline.xspace().planes[0].name, "/host:CPU");
/// let folder = tempfile::tempdir()?;
/// let path = timeline.write(folder.path(), "first")?;
/// assert!(path.ends_with("plugins/profile/first/desk.xplane.pb"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Name of the host. The files are named after it.
    pub host: String,
    /// The devices of the host.
    pub planes: Vec<Plane>,
}

/// Timeline of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plane {
    /// Name of the device, such as `/device:CPU:0` or `/device:Cortex-M4`. TensorBoard computes statistics only for CPUs and GPUs.
    pub name: String,
    /// Lines of the device, one for each sequence of spans.
    pub lines: Vec<Line>,
    /// Changes of the device's memory, for TensorBoard's tool Memory Profile.
    pub memory: Vec<MemoryEvent>,
}

/// A sequence of spans. Spans may be nested, but do not overlap otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name of the thread, or of the kind of spans.
    pub name: String,
    /// Start of the line, in nanoseconds of Unix time.
    pub start_ns: u64,
    /// Spans of the line.
    pub spans: Vec<Span>,
}

/// A single activity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Name of the activity. TensorBoard recognizes an op by a name such as `sequential/dense/MatMul:MatMul`: its path in the
    /// model, a colon, its type.
    pub name: String,
    /// Start, in picoseconds relative to the start of the line.
    pub start_ps: u64,
    /// Duration, in picoseconds.
    pub duration_ps: u64,
    /// Additional values, by name.
    pub stats: Vec<(&'static str, Stat)>,
}

/// An additional value of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Stat {
    /// An integer.
    Number(i64),
    /// An integer without a sign. TensorBoard expects numbers that connect activities in this form.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
}

impl Span {
    /// Creates a span that TensorBoard recognizes as training step `number`. Its overview page shows the time of each step.
    pub fn step(name: impl Into<String>, number: i64, start_ps: u64, duration_ps: u64) -> Span {
        let stats = vec![("_r", Stat::Number(1)), ("step_num", Stat::Number(number))];
        Span { name: name.into(), start_ps, duration_ps, stats }
    }
}

impl Timeline {
    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.planes.iter().flat_map(|plane| &plane.lines)
    }

    /// Returns the times of the changes of memory.
    fn memory_times(&self) -> impl Iterator<Item = u64> {
        self.planes.iter().flat_map(|plane| &plane.memory).map(|event| event.time_ns)
    }

    /// Returns the start of the first line, or the time of a change of memory before it.
    fn start_ns(&self) -> u64 {
        self.lines().map(|line| line.start_ns).chain(self.memory_times()).min().unwrap_or(0)
    }

    /// Converts the timeline to the format of TensorBoard's profiler. All CPUs share the plane `/host:CPU`. Devices other than GPUs
    /// and TPUs become custom devices, because the profiler does not support other kinds. The memory of every device is in the plane
    /// `/host:CPU`, where the tool Memory Profile reads it. Lines start relative to the first one, whose absolute time is in the plane
    /// `Task Environment`.
    pub fn xspace(&self) -> proto::XSpace {
        let start_ns = self.start_ns();
        let mut planes: Vec<Builder> = Vec::new();
        for plane in &self.planes {
            let builder = Builder::of(&mut planes, shown(&plane.name));
            plane.lines.iter().for_each(|line| builder.line(line, start_ns));
            if !plane.memory.is_empty() {
                Builder::of(&mut planes, HOST.into()).memory(plane, start_ns);
            }
        }
        let mut planes: Vec<proto::XPlane> = planes.into_iter().map(Builder::finish).collect();
        planes.push(self.environment(planes.len() as i64 + 1));
        proto::XSpace { planes, hostnames: vec![self.host.clone()], ..Default::default() }
    }

    /// Builds the plane with the start and end of the profile, in nanoseconds of Unix time.
    fn environment(&self, id: i64) -> proto::XPlane {
        let end = |line: &Line| line.start_ns + line.spans.iter().map(|span| span.start_ps + span.duration_ps).max().unwrap_or(0) / 1000;
        let stop = self.lines().map(end).chain(self.memory_times()).max().unwrap_or(0);
        let times = [("profile_start_time", self.start_ns()), ("profile_stop_time", stop)];
        let mut plane = proto::XPlane { id, name: "Task Environment".into(), ..Default::default() };
        for ((name, time), id) in times.into_iter().zip(1..) {
            plane.stat_metadata.insert(id, proto::XStatMetadata { id, name: name.into(), ..Default::default() });
            plane.stats.push(proto::XStat { metadata_id: id, value: Some(Value::Uint64Value(time)) });
        }
        plane
    }

    /// Converts the timeline to JSON in Chrome's trace format. Times are in microseconds from the start of the first line. The bytes in
    /// use of a device are a counter.
    pub fn chrome_trace(&self) -> String {
        let start_ns = self.start_ns();
        let mut events = Vec::new();
        for (plane, pid) in self.planes.iter().zip(1..) {
            let process = format!("{} {}", self.host, plane.name);
            events.push(json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": process } }));
            for event in &plane.memory {
                let (ts, args) = ((event.time_ns - start_ns) as f64 / 1e3, json!({ "bytes in use": event.memory.current }));
                events.push(json!({ "ph": "C", "name": "memory", "pid": pid, "ts": ts, "args": args }));
            }
            for (line, tid) in plane.lines.iter().zip(1..) {
                events.push(json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": line.name } }));
                for span in &line.spans {
                    let start_ps = u128::from(line.start_ns - start_ns) * 1000 + u128::from(span.start_ps);
                    let (ts, dur) = (start_ps as f64 / 1e6, span.duration_ps as f64 / 1e6);
                    let args: Map<_, _> = span.stats.iter().map(|(name, stat)| (name.to_string(), stat.json())).collect();
                    events.push(json!({ "ph": "X", "name": span.name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args }));
                }
            }
        }
        json!({ "displayTimeUnit": "ns", "otherData": { "start_ns": start_ns.to_string() }, "traceEvents": events }).to_string()
    }

    /// Writes `LOGDIR/plugins/profile/RUN/HOST.xplane.pb`, where TensorBoard expects it, and returns its path. Also writes a Chrome
    /// trace to `HOST.trace.json` in the same folder.
    ///
    /// Fails if `run` or the name of the host cannot be a file name, or if the files cannot be written.
    pub fn write(&self, logdir: &Path, run: &str) -> FileResult<PathBuf> {
        let profiles = logdir.join("plugins").join("profile");
        for (what, name) in [("run", run), ("host", &self.host)] {
            let parts: Vec<Component<'_>> = Path::new(name).components().collect();
            if !matches!(parts.as_slice(), [Component::Normal(only)] if *only == name) {
                return Err(FileError::new(&profiles, format!("the {what} {name:?} cannot be the name of a file")));
            }
        }
        let folder = profiles.join(run);
        create_folder(&folder)?;
        let path = folder.join(format!("{}.xplane.pb", self.host));
        write_whole(&path, &self.xspace().encode_to_vec())?;
        write_whole(&folder.join(format!("{}.trace.json", self.host)), self.chrome_trace().as_bytes())?;
        Ok(path)
    }
}

/// Returns the name under which TensorBoard shows a plane.
fn shown(name: &str) -> String {
    let known = [CUSTOM, "/device:GPU:", "/device:TPU:", "/host:"];
    match name.strip_prefix("/device:").unwrap_or(name) {
        _ if known.iter().any(|known| name.starts_with(known)) => name.into(),
        cpu if cpu.starts_with("CPU:") => HOST.into(),
        other => format!("{CUSTOM}{other}"),
    }
}

impl Stat {
    fn json(&self) -> serde_json::Value {
        match self {
            Stat::Number(number) => json!(number),
            Stat::Unsigned(number) => json!(number),
            Stat::Float(number) => json!(number),
            Stat::Text(text) => json!(text),
        }
    }

    fn value(&self) -> Value {
        match self {
            Stat::Number(number) => Value::Int64Value(*number),
            Stat::Unsigned(number) => Value::Uint64Value(*number),
            Stat::Float(number) => Value::DoubleValue(*number),
            Stat::Text(text) => Value::StrValue(text.clone()),
        }
    }
}

/// A plane under construction. Each name is stored once and then referenced by number.
#[derive(Default)]
struct Builder {
    plane: proto::XPlane,
    events: BTreeMap<String, i64>,
    stats: BTreeMap<&'static str, i64>,
}

impl Builder {
    /// Returns the plane called `name`. Adds it if there is none.
    fn of(planes: &mut Vec<Builder>, name: String) -> &mut Builder {
        let index = planes.iter().position(|other| other.plane.name == name).unwrap_or_else(|| {
            let plane = proto::XPlane { id: planes.len() as i64 + 1, name, ..Default::default() };
            planes.push(Builder { plane, ..Builder::default() });
            planes.len() - 1
        });
        &mut planes[index]
    }

    /// Adds the line of a device's memory. It starts with the timeline, because TensorBoard reads only offsets in the line.
    fn memory(&mut self, plane: &Plane, start_ns: u64) {
        let device = plane.name.strip_prefix("/device:").unwrap_or(&plane.name);
        let number = |(name, number): (&'static str, u64)| (name, Stat::Number(i64::try_from(number).unwrap_or(i64::MAX)));
        let span = |event: &MemoryEvent| {
            let mut stats = vec![("allocator_name", Stat::Text(device.into())), ("tf_op", Stat::Text(event.holder.clone()))];
            stats.extend(event.numbers().map(number));
            Span { name: event.name().into(), start_ps: (event.time_ns - start_ns) * 1000, duration_ps: 0, stats }
        };
        let events = plane.memory.iter().map(|event| self.event(&span(event))).collect();
        let id = MEMORY + self.plane.lines.iter().filter(|line| line.id >= MEMORY).count() as i64;
        self.plane.lines.push(proto::XLine { id, name: format!("memory of {device}"), events, ..Default::default() });
    }

    fn line(&mut self, line: &Line, start_ns: u64) {
        let events = line.spans.iter().map(|span| self.event(span)).collect();
        let id = self.plane.lines.len() as i64 + 1;
        let timestamp_ns = i64::try_from(line.start_ns - start_ns).unwrap_or(i64::MAX);
        self.plane.lines.push(proto::XLine { id, name: line.name.clone(), timestamp_ns, events, ..Default::default() });
    }

    fn event(&mut self, span: &Span) -> proto::XEvent {
        let picoseconds = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let stats = span.stats.iter().map(|(name, stat)| {
            let next = self.stats.len() as i64 + 1;
            let metadata_id = *self.stats.entry(name).or_insert(next);
            proto::XStat { metadata_id, value: Some(stat.value()) }
        });
        let stats = stats.collect();
        let next = self.events.len() as i64 + 1;
        proto::XEvent {
            metadata_id: *self.events.entry(span.name.clone()).or_insert(next),
            data: Some(Data::OffsetPs(picoseconds(span.start_ps))),
            duration_ps: picoseconds(span.duration_ps),
            stats,
        }
    }

    fn finish(self) -> proto::XPlane {
        let event = |(name, id)| (id, proto::XEventMetadata { id, name, ..Default::default() });
        let stat = |(name, id): (&str, i64)| (id, proto::XStatMetadata { id, name: name.into(), ..Default::default() });
        let event_metadata = self.events.into_iter().map(event).collect();
        let stat_metadata = self.stats.into_iter().map(stat).collect();
        proto::XPlane { event_metadata, stat_metadata, ..self.plane }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(name: &str, names: &[&str]) -> Plane {
        let span = |(name, index): (&&str, u64)| Span {
            name: name.to_string(),
            start_ps: index * 1_500_000,
            duration_ps: 1_250_000,
            stats: vec![("bytes", Stat::Number(8)), ("op", Stat::Text("x".into())), ("share", Stat::Float(0.5))],
        };
        let line = Line { name: "ops".into(), start_ns: 1_700_000_000_000_000_123, spans: names.iter().zip(0..).map(span).collect() };
        Plane { name: name.into(), lines: vec![line], ..Plane::default() }
    }

    fn timeline() -> Timeline {
        let planes = vec![
            plane("/device:CPU:0", &["a/MatMul:MatMul", "b", "a/MatMul:MatMul"]),
            plane("/device:Cortex-M4", &["c"]),
            plane("/device:CPU:1", &["b"]),
            plane("/device:GPU:0", &[]),
        ];
        Timeline { host: "desk".into(), planes }
    }

    #[test]
    fn planes_have_the_names_that_tensorboard_shows() {
        let space = timeline().xspace();
        let names: Vec<&str> = space.planes.iter().map(|plane| plane.name.as_str()).collect();
        assert_eq!(names, ["/host:CPU", "/device:CUSTOM:Cortex-M4", "/device:GPU:0", "Task Environment"]);
        assert_eq!(space.hostnames, ["desk"]);
        let lines = &space.planes[0].lines;
        assert_eq!(lines.iter().map(|line| line.id).collect::<Vec<_>>(), [1, 2]);
    }

    /// Picoseconds of Unix time would overflow the profiler's numbers, so times are relative.
    #[test]
    fn times_are_told_from_the_start() {
        let mut timeline = timeline();
        timeline.planes[1].lines[0].start_ns += 5000;
        let space = timeline.xspace();
        assert_eq!(space.planes[..2].iter().map(|plane| plane.lines[0].timestamp_ns).collect::<Vec<_>>(), [0, 5000]);
        let times: Vec<_> = space.planes[3].stats.iter().filter_map(|stat| stat.value.clone()).collect();
        let start = 1_700_000_000_000_000_123;
        assert_eq!(times, [Value::Uint64Value(start), Value::Uint64Value(start + 5000 + 1250)]);
    }

    #[test]
    fn names_are_written_once() {
        let space = timeline().xspace();
        let plane = &space.planes[0];
        let names: Vec<&str> = plane.event_metadata.values().map(|metadata| metadata.name.as_str()).collect();
        assert_eq!(names, ["a/MatMul:MatMul", "b"]);
        let [first, second, third] = plane.lines[0].events.as_slice() else { panic!() };
        assert_eq!((first.metadata_id, second.metadata_id, third.metadata_id), (1, 2, 1));
        assert_eq!((third.data, third.duration_ps), (Some(Data::OffsetPs(3_000_000)), 1_250_000));
        let stats = first.stats.iter().map(|stat| (plane.stat_metadata[&stat.metadata_id].name.as_str(), stat.value.clone().unwrap()));
        let wanted = [("bytes", Value::Int64Value(8)), ("op", Value::StrValue("x".into())), ("share", Value::DoubleValue(0.5))];
        assert!(stats.eq(wanted));
    }

    #[test]
    fn the_chrome_trace_begins_at_zero() {
        let mut timeline = timeline();
        timeline.planes[1].lines[0].start_ns += 2000;
        let trace: serde_json::Value = serde_json::from_str(&timeline.chrome_trace()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let spans: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(spans.len(), 5);
        assert_eq!((&spans[1]["ts"], &spans[1]["dur"], &spans[1]["name"]), (&json!(1.5), &json!(1.25), &json!("b")));
        assert_eq!((&spans[3]["ts"], &spans[3]["pid"]), (&json!(2.0), &json!(2)));
        assert_eq!(spans[0]["args"], json!({ "bytes": 8, "op": "x", "share": 0.5 }));
    }

    #[test]
    fn both_files_are_written_and_only_below_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = timeline().write(folder.path(), "first").unwrap();
        assert_eq!(path, folder.path().join("plugins/profile/first/desk.xplane.pb"));
        let read = proto::XSpace::decode(std::fs::read(&path).unwrap().as_slice()).unwrap();
        assert_eq!(read, timeline().xspace());
        assert!(path.with_file_name("desk.trace.json").is_file());
        for run in ["", "..", "a/b", "/", "a/"] {
            let text = timeline().write(folder.path(), run).unwrap_err().to_string();
            assert!(text.contains(&format!("the run {run:?} cannot be the name of a file")), "{text}");
        }
    }
}
