//! Conversion of recorded activities to a timeline: a line for each thread, and one for the stream of each device that has a clock.

use super::recording::{Event, Observation, Recording, Thread, What};
use super::timeline::{HOST, Line, Plane, Span, Stat, Timeline};
use gradlet_core::device::{NamedOp, Transfer};
use gradlet_core::ops::type_name;

impl Recording {
    /// Converts the recorded data to a timeline, with a line for each thread, and the device's memory. If devices measured their work, the
    /// threads are in the plane of the host, and each of these devices has a plane with its stream.
    pub(super) fn timeline(&self, record: &Observation, host: &str) -> Timeline {
        let (mut calls, start_ns) = (0, self.start_ns());
        let own = plane_name(self.device());
        let device = |event: &Event| event.device().map_or(self.device(), |device| &record.clocks[device]);
        let mut line = |thread: &Thread| {
            let spans = thread.events.iter().enumerate().map(|(index, event)| thread.span(index, device(event), &mut calls));
            Line { name: thread.name.clone(), start_ns, spans: spans.collect() }
        };
        let lines = record.threads.iter().map(&mut line).collect();
        let name = if record.clocks.is_empty() { own.clone() } else { HOST.into() };
        let mut planes = vec![Plane { name, lines, memory: Vec::new() }];
        for (index, device) in record.clocks.iter().enumerate() {
            let line = Line { name: "Stream".into(), start_ns, spans: record.stream(index) };
            planes.push(Plane { name: plane_name(device), lines: vec![line], memory: Vec::new() });
        }
        let index = planes.iter().position(|plane| plane.name == own).unwrap_or_else(|| {
            planes.push(Plane { name: own, ..Plane::default() });
            planes.len() - 1
        });
        planes[index].memory = record.memory.clone();
        Timeline { host: host.into(), planes }
    }
}

fn plane_name(device: &str) -> String {
    format!("/device:{device}")
}

impl Observation {
    /// Returns the work that device number `device` measured, in its order. The clocks of the host and of the device differ. A span
    /// therefore ends when the host knew that the work was done, or begins when the span before it has ended, whichever is later.
    fn stream(&self, device: usize) -> Vec<Span> {
        let all = self.threads.iter().flat_map(|thread| (0..thread.events.len()).map(move |index| (thread, index)));
        let mut work: Vec<(&Thread, usize)> = all.filter(|(thread, index)| thread.events[*index].device() == Some(device)).collect();
        work.sort_by_key(|(thread, index)| thread.events[*index].end);
        let mut free = 0;
        let span = |(thread, index): (&Thread, usize)| {
            let event = &thread.events[index];
            let mut span = thread.span(index, &self.clocks[device], &mut 0);
            match &event.what {
                What::Ops { read, written, .. } => {
                    span.stats.push(("tf_op", Stat::Text(span.name.clone())));
                    span.stats.push(("kernel_details", Stat::Text(format!("bytes_accessed:{}", read + written))));
                }
                What::Transfer(kind, bytes) => {
                    let name = if *kind == Transfer::Fill { "Memset_details" } else { "memcpy_details" };
                    span.stats.push((name, Stat::Text(format!("num_bytes:{bytes}"))));
                }
                _ => (),
            }
            let (start, duration) = event.times();
            (span.start_ps, span.duration_ps) = (free.max(start * 1000), duration * 1000);
            free = span.start_ps + span.duration_ps;
            span
        };
        work.into_iter().map(span).collect()
    }
}

impl Thread {
    /// Returns the scopes that enclose an event, outermost first, each followed by `/`.
    fn path(&self, event: usize) -> String {
        let scopes = self.around(event).filter_map(|around| match &self.events[around].what {
            What::Scope(name) => Some(format!("{name}/")),
            _ => None,
        });
        scopes.collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// Converts event number `index`, which happened on `device`, to a span with the host's times. `calls` is the number of training steps
    /// so far.
    fn span(&self, index: usize, device: &str, calls: &mut i64) -> Span {
        let event = &self.events[index];
        let (start_ps, duration_ps) = (event.start * 1000, event.end.saturating_sub(event.start) * 1000);
        let within_step = || self.around(index).any(|around| matches!(self.events[around].what, What::Step(..) | What::Function(..)));
        let plain = |name: String| Span { name, start_ps, duration_ps, stats: Vec::new() };
        let moved = |name: String, bytes: u64| Span { stats: vec![("bytes_accessed", Stat::Number(bytes as i64))], ..plain(name) };
        let mut span = match &event.what {
            What::Step(name, number) => Span::step(name, *number, start_ps, duration_ps),
            What::Function(name, _) if within_step() => plain(name.clone()),
            What::Function(name, _) => {
                *calls += 1;
                Span::step(name, *calls - 1, start_ps, duration_ps)
            }
            What::Scope(name) => plain(format!("{}{name}", self.path(index))),
            What::Gap(name) => plain(name.to_string()),
            What::Copy { from, to, bytes } => moved(format!("copy {from} to {to}"), *bytes),
            What::Transfer(kind, bytes) => moved(transfer_name(*kind).into(), *bytes),
            What::Ops { nodes, read, written } => {
                let stats = ops_stats(nodes, plane_name(device), *read, *written);
                Span { stats, ..plain(label(nodes, &self.path(index))) }
            }
        };
        // TensorBoard connects the work on a device by this number with the activity that launched it, and so with the training step.
        span.stats.extend(event.computed.map(|computed| ("correlation_id", Stat::Unsigned(computed.number))));
        span
    }
}

fn ops_stats(nodes: &[NamedOp], device: String, read: u64, written: u64) -> Vec<(&'static str, Stat)> {
    let mut stats = vec![
        ("device", Stat::Text(device)),
        ("bytes_accessed", Stat::Number((read + written) as i64)),
        ("bytes_read", Stat::Number(read as i64)),
        ("bytes_written", Stat::Number(written as i64)),
    ];
    if let Some(output) = nodes.last().and_then(|node| node.output) {
        stats.push(("output", Stat::Text(output.to_string())));
    }
    if nodes.len() > 1 {
        let names: Vec<String> = nodes.iter().map(|node| node_name(node, "")).collect();
        stats.push(("fused", Stat::Text(names.join(", "))));
    }
    stats
}

/// Returns the name of a transfer. By the names of copies, TensorBoard counts their time as input and output of the training step.
fn transfer_name(kind: Transfer) -> &'static str {
    match kind {
        Transfer::Upload => "MemcpyHToD",
        Transfer::Download => "MemcpyDToH",
        Transfer::Copy => "MemcpyDToD",
        Transfer::Fill => "Memset",
    }
}

fn node_name(node: &NamedOp, path: &str) -> String {
    node.name.as_deref().map_or_else(|| format!("{path}{}", type_name(node.op)), Into::into)
}

/// Returns the label of an op in the form that TensorBoard parses: the name, a colon, the type. Ops that run as one step have the
/// name of the last op and all types.
pub(super) fn label(nodes: &[NamedOp], path: &str) -> String {
    let types: Vec<String> = nodes.iter().map(|node| type_name(node.op)).collect();
    let name = nodes.last().map_or_else(String::new, |node| node_name(node, path));
    format!("{name}:{}", types.join("_"))
}

#[cfg(test)]
mod tests {
    use super::super::trace::Options;
    use super::*;
    use gradlet_core::device::{Activity, Ops, Profiler};
    use gradlet_core::function::graph::Graph;

    /// An hour in nanoseconds, far longer than the test.
    const HOUR: u64 = 3600 * 1_000_000_000;

    fn recording() -> Recording {
        Recording::new(&crate::cpu(), Options { graph: true, profiler: true })
    }

    fn measured(recording: &Recording, activity: &Activity<'_>, nanoseconds: u64) {
        recording.begin(activity);
        recording.computed(&crate::cpu().limited(64), nanoseconds);
        recording.end();
    }

    /// By a clock that is too fast, the work would begin before the trace, and each piece before the last one has ended.
    #[test]
    fn work_on_a_stream_does_not_overlap() {
        let recording = recording();
        for (kind, hours) in [(Transfer::Upload, 1), (Transfer::Fill, 3), (Transfer::Download, 2)] {
            measured(&recording, &Activity::Transfer(kind, 8), hours * HOUR);
        }
        let timeline = recording.timeline(&recording.take().unwrap(), "desk");
        let spans = &timeline.planes[1].lines[0].spans;
        let times: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.start_ps, span.duration_ps)).collect();
        let hour = HOUR * 1000;
        assert_eq!(times, [("MemcpyHToD", 0, hour), ("Memset", hour, 3 * hour), ("MemcpyDToH", 4 * hour, 2 * hour)]);
        assert!(timeline.planes[0].lines[0].spans.iter().all(|span| span.duration_ps < hour));
    }

    #[test]
    fn the_nodes_of_a_graph_have_the_times_of_the_device() {
        let recording = recording();
        let node = NamedOp { name: Some("a".into()), op: gradlet_core::ops::OPS[0].def, output: None };
        recording.begin(&Activity::Function("f"));
        recording.function("f", &Graph::default(), &Graph::default());
        measured(&recording, &Activity::Ops(&Ops { nodes: vec![node], read: 4, written: 4 }), HOUR);
        recording.end();
        let record = recording.take().unwrap();
        assert_eq!(recording.last_run(&record, 0).iter().map(|timed| timed.duration_ns).collect::<Vec<_>>(), [HOUR]);
    }
}
