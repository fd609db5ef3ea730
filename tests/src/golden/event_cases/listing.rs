//! Runs `NAME.json`: every record of the run `NAME`, and the data that TensorBoard's `EventAccumulator` reads from it.

use super::{plugins, steps, tensors, written};
use crate::golden::checks::{Checks, hex};
use anyhow::{Context, Result, bail, ensure};
use gradlet::io::proto::summary::value::Value as Held;
use gradlet::io::proto::{Event, GraphDef, SummaryMetadata, event, summary};
use gradlet::summary::{EventReader, Kind, Point, PointValue, Run, Series};
use prost::Message;
use serde_json::{Value as Json, json};
use std::path::Path;

pub fn listing(folder: &Path, stem: &str, json: &Json, checks: &mut Checks) -> Result<()> {
    let files = json["events"].as_object().context("no events")?;
    for (file, events) in files {
        checks.check(file, || records(&folder.join(file), events));
        checks.check(&format!("{file}, written again"), || written::again(folder, stem, json, file));
    }
    checks.check(&format!("{stem}, what is accumulated"), || accumulated(&Run::read(&folder.join(stem))?, &json["event_accumulator"]));
    let known = ["files", "events", "event_accumulator"];
    for (key, case) in json.as_object().context("expected a JSON object")?.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
        checks.check(&format!("{stem} {key}"), || plugins::other(folder, stem, json, key, case));
    }
    Ok(())
}

/// Checks that the events of a file equal those of a list.
fn records(path: &Path, wanted: &Json) -> Result<()> {
    let found: Vec<Event> = EventReader::open(path)?.collect::<Result<_, _>>()?;
    let wanted = wanted.as_array().context("no list of events")?;
    ensure!(found.len() == wanted.len(), "{} events, wanted {}", found.len(), wanted.len());
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        event(found, wanted).with_context(|| format!("event {index}"))?;
    }
    Ok(())
}

fn event(found: &Event, wanted: &Json) -> Result<()> {
    ensure!(wanted["wall_time"] == found.wall_time && wanted["step"] == found.step, "time {} step {}", found.wall_time, found.step);
    if let Some(record) = wanted["record_hex"].as_str() {
        ensure!(found.encode_to_vec() == hex(record)?, "the bytes differ after the event was written again");
    }
    let writer = found.source_metadata.as_ref().map_or("", |source| &source.writer);
    ensure!(wanted["source_metadata_writer"].as_str().unwrap_or_default() == writer, "writer {writer:?}");
    let kind = wanted["kind"].as_str().context("no kind")?;
    match (&found.what, kind) {
        (Some(event::What::FileVersion(version)), "file_version") => ensure!(wanted["file_version"] == *version, "version {version:?}"),
        (Some(event::What::Summary(summary)), "summary") => {
            let wanted = wanted["values"].as_array().context("no values")?;
            ensure!(summary.value.len() == wanted.len(), "{} values", summary.value.len());
            for (found, wanted) in summary.value.iter().zip(wanted) {
                value(found, wanted).with_context(|| found.tag.clone())?;
            }
        }
        (Some(event::What::GraphDef(bytes)), "graph_def") => graph(bytes, &wanted["graph_def"])?,
        (Some(event::What::MetaGraphDef(bytes)), "meta_graph_def") => ensure!(wanted["bytes"] == bytes.len(), "{} bytes", bytes.len()),
        (Some(event::What::SessionLog(log)), "session_log") => {
            let text = format!("status: {}\n", log.status().as_str_name());
            ensure!(wanted["session_log"] == text, "{text}");
        }
        (Some(event::What::TaggedRunMetadata(_)), "tagged_run_metadata") => (),
        (found, kind) => bail!("{found:?}, wanted {kind:?}"),
    }
    Ok(())
}

fn graph(bytes: &[u8], wanted: &Json) -> Result<()> {
    let graph = GraphDef::decode(bytes)?;
    ensure!(wanted["bytes"] == bytes.len(), "{} bytes", bytes.len());
    let nodes: Json = graph.node.iter().map(|node| json!([node.name, node.op, node.input])).collect();
    ensure!(wanted["nodes"] == nodes, "{nodes}");
    Ok(())
}

fn value(found: &summary::Value, wanted: &Json) -> Result<()> {
    ensure!(wanted["tag"] == found.tag, "tag {:?}", found.tag);
    metadata(&found.metadata.clone().unwrap_or_default(), wanted, "plugin_name")?;
    ensure!(wanted["display_name"] == found.metadata.as_ref().map_or("", |metadata| &metadata.display_name), "display name");
    match (&found.value, wanted["value_kind"].as_str().context("no kind")?) {
        (Some(Held::Tensor(tensor)), "tensor") => tensors::is(tensor, &wanted["tensor"]),
        (Some(Held::SimpleValue(number)), "simple_value") => {
            ensure!(wanted["simple_value"].as_f64() == Some(f64::from(*number)), "{number}");
            Ok(())
        }
        (Some(Held::Histo(_)), "histo") | (Some(Held::Image(_)), "image") | (Some(Held::Audio(_)), "audio") => Ok(()),
        (found, kind) => bail!("{found:?}, wanted {kind:?}"),
    }
}

fn metadata(found: &SummaryMetadata, wanted: &Json, plugin: &str) -> Result<()> {
    let data = found.plugin_data.clone().unwrap_or_default();
    ensure!(wanted[plugin] == data.plugin_name, "plugin {:?}", data.plugin_name);
    ensure!(hex(wanted["plugin_content_hex"].as_str().unwrap_or_default())? == data.content, "content {:?}", data.content);
    ensure!(wanted["description"] == found.summary_description, "description {:?}", found.summary_description);
    ensure!(wanted["data_class"] == found.data_class, "data class {}", found.data_class);
    Ok(())
}

/// Checks that a run equals the data of an `EventAccumulator`.
pub fn accumulated(run: &Run, wanted: &Json) -> Result<()> {
    ensure!(run.damage.is_empty(), "{:?}", run.damage);
    let tags = |kind| json!(run.all().filter(|(of, ..)| *of == kind).map(|(_, tag, _)| tag).collect::<Vec<_>>());
    let found = json!({
        "images": tags(Kind::Image),
        "audio": tags(Kind::Audio),
        "histograms": tags(Kind::Histogram),
        "scalars": tags(Kind::Scalar),
        "distributions": tags(Kind::Histogram),
        "tensors": tags(Kind::Tensor),
        "graph": run.graph.is_some() || run.meta_graph.is_some(),
        "meta_graph": run.meta_graph.is_some(),
        "run_metadata": run.run_metadata.keys().collect::<Vec<_>>(),
    });
    ensure!(found == wanted["tags"], "tags {found}, wanted {}", wanted["tags"]);
    for (kind, tag, series) in run.all() {
        let wanted = match kind {
            Kind::Tensor => &wanted["tensors"][tag],
            Kind::Scalar => &wanted["scalars"][tag],
            _ => continue,
        };
        let judged = if kind == Kind::Tensor { tensor_series(series, wanted) } else { scalar_series(series, wanted) };
        judged.with_context(|| tag.to_string())?;
    }
    Ok(())
}

fn tensor_series(found: &Series, wanted: &Json) -> Result<()> {
    metadata(&found.metadata, wanted, "plugin")?;
    let found_steps: Vec<i64> = found.points.iter().map(|point| point.step).collect();
    ensure!(found_steps == steps(&wanted["steps"])?, "steps {found_steps:?}, wanted {}", wanted["steps"]);
    let times = json!(found.points.iter().map(|point| point.wall_time).collect::<Vec<_>>());
    ensure!(times == wanted["wall_times"], "times {times}, wanted {}", wanted["wall_times"]);
    let values = wanted["values"].as_array().context("no values")?;
    ensure!(values.len() == found.points.len(), "{} values, wanted {}", found.points.len(), values.len());
    found.points.iter().zip(values).try_for_each(|(point, wanted)| match &point.value {
        PointValue::Tensor(tensor) => tensors::is(tensor, wanted),
        other => bail!("{other:?} instead of a tensor"),
    })
}

fn scalar_series(found: &Series, wanted: &Json) -> Result<()> {
    let point = |point: &Point| match point.value {
        PointValue::Scalar(number) => Ok(json!({ "step": point.step, "value": f64::from(number), "wall_time": point.wall_time })),
        ref other => bail!("{other:?} instead of a number"),
    };
    let found: Json = found.points.iter().map(point).collect::<Result<Vec<_>>>()?.into();
    ensure!(found == *wanted, "{found}, wanted {wanted}");
    Ok(())
}
