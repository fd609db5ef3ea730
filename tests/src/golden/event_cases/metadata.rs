//! Runs `NAME_run_metadata.json`: the graphs that a trace exported to the run `NAME`.

use crate::golden::checks::Checks;
use anyhow::{Context, Result, ensure};
use gradlet::io::proto::{GraphDef, RunMetadata};
use gradlet::summary::Run;
use prost::Message;
use serde_json::{Value as Json, json};
use std::path::Path;

pub fn metadata(folder: &Path, stem: &str, wanted: &Json, checks: &mut Checks) -> Result<()> {
    let name = stem.strip_suffix("_run_metadata").context("the file name does not contain the name of a run")?;
    checks.check(stem, || {
        let run = Run::read(&folder.join(name))?;
        let tag = wanted["tag"].as_str().context("no tag")?;
        let series = run.series(tag).with_context(|| format!("no series {tag:?}"))?;
        ensure!(wanted["plugin"] == series.plugin(), "plugin {:?}", series.plugin());
        let value = series.points.first().context("no point")?.tensor()?;
        let metadata = RunMetadata::decode(&value.strings()?.item()?[..])?;
        let graphs = wanted["function_graphs"].as_array().context("no list of graphs")?;
        ensure!(metadata.function_graphs.len() == graphs.len(), "{} graphs", metadata.function_graphs.len());
        for (found, wanted) in metadata.function_graphs.iter().zip(graphs) {
            let pre = found.pre_optimization_graph.clone().unwrap_or_default();
            let post = found.post_optimization_graph.clone().unwrap_or_default();
            ensure!(nodes(&pre) == wanted["pre_optimization_nodes"], "{}", nodes(&pre));
            ensure!(nodes(&post) == wanted["post_optimization_nodes"], "{}", nodes(&post));
            ensure!(wanted["partition_graphs"] == found.partition_graphs.len(), "{} partitions", found.partition_graphs.len());
        }
        let again = RunMetadata::decode(&metadata.encode_to_vec()[..])?;
        ensure!(again == metadata, "the metadata differs after it was written and read again");
        Ok(())
    });
    Ok(())
}

fn nodes(graph: &GraphDef) -> Json {
    graph.node.iter().map(|node| json!([node.name, node.op])).collect()
}
