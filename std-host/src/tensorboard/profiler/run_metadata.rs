//! TensorFlow's `RunMetadata` for TensorBoard's Graphs tab: the graphs of functions, and the times of their nodes.

use super::graph_def::graph_def;
use super::recording::{Observation, Recording, Timed};
use super::spans::label;
use crate::formats::proto::run_metadata::FunctionGraphs;
use crate::formats::proto::{DeviceStepStats, NodeExecStats, RunMetadata, StepStats};

/// Builds the metadata: the graphs of the recorded functions and, if `profiler` is true, the times of each function's last run.
pub(super) fn run_metadata(record: &Observation, recording: &Recording, profiler: bool) -> RunMetadata {
    let graphs = record.functions.iter().map(|function| FunctionGraphs {
        pre_optimization_graph: Some(graph_def(&function.traced, recording.device())),
        post_optimization_graph: Some(graph_def(&function.optimized, recording.device())),
        ..FunctionGraphs::default()
    });
    let function_graphs: Vec<FunctionGraphs> = graphs.collect();
    let stats = (0..function_graphs.len()).flat_map(|index| {
        // TensorBoard combines several graphs into one, in which each has a scope.
        let scope = if function_graphs.len() > 1 { format!("graph_{}/", index + 1) } else { String::new() };
        let timed = recording.last_run(record, index).into_iter();
        timed.filter_map(move |timed| node_stats(&timed, &scope))
    });
    let node_stats = if profiler { stats.collect() } else { Vec::new() };
    let device = DeviceStepStats { device: format!("/device:{}", recording.device()), node_stats, ..DeviceStepStats::default() };
    let step_stats = profiler.then(|| StepStats { dev_stats: vec![device] });
    RunMetadata { step_stats, function_graphs, ..RunMetadata::default() }
}

/// Returns the times of one op, or of several ops that ran as one step, for `RunMetadata`. They are assigned to the last node
/// that has a name. Returns `None` if no node has a name.
fn node_stats(timed: &Timed<'_>, scope: &str) -> Option<NodeExecStats> {
    let name = timed.nodes.iter().rev().find_map(|node| node.name.as_deref())?;
    let (start, nanos) = (timed.start_ns as i64, timed.duration_ns as i64);
    let micros = (nanos + 999) / 1000;
    Some(NodeExecStats {
        node_name: format!("{scope}{name}"),
        all_start_micros: start / 1000,
        op_end_rel_micros: micros,
        all_end_rel_micros: micros,
        all_start_nanos: start,
        op_end_rel_nanos: nanos,
        all_end_rel_nanos: nanos,
        timeline_label: label(timed.nodes, ""),
        ..NodeExecStats::default()
    })
}
