//! Writers of checkpoints of all kinds.

use super::source::{Checkpoint, GRAPH, Item, to_safetensors};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::ValueEnum;
use gradlet::Tensor;
use gradlet::artifact::Loaded;
use gradlet::checkpoint::bundle::{BundleReader, BundleWriter};
use gradlet::checkpoint::{variable_key, variable_path};
use gradlet::io::proto::trackable_object_graph::TrackableObject;
use gradlet::io::proto::trackable_object_graph::trackable_object::{ObjectReference, SerializedTensor};
use gradlet::io::proto::{DataType, TrackableObjectGraph};
use gradlet::io::{FileError, write_whole};
use gradlet::runtime::checkpoint::Entry;
use gradlet::tensor::Strings;
use prost::Message;
use safetensors::tensor::{TensorView, serialize};
use std::collections::HashSet;
use std::path::Path;

/// Kind of the output.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Kind {
    /// A TensorFlow checkpoint of objects
    Tensorflow,
    /// A safetensors file
    Safetensors,
    /// An artifact like the one in --like
    Artifact,
    /// A flat checkpoint (.grdc) of the artifact in --like
    Flat,
}

impl Kind {
    /// Determines the kind by the ending of the file name.
    pub fn of(path: &Path) -> Kind {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("safetensors") => Kind::Safetensors,
            Some("grdl") => Kind::Artifact,
            Some("grdc") => Kind::Flat,
            _ => Kind::Tensorflow,
        }
    }
}

/// A tensor to write: its name in the output, and its source, item number `index` of `from`.
pub struct Output<'c> {
    pub name: String,
    pub from: &'c Checkpoint,
    pub index: usize,
}

impl Output<'_> {
    fn item(&self) -> &Item {
        &self.from.items[self.index]
    }

    fn bytes(&self) -> Result<Bytes> {
        self.from.bytes(self.index)
    }

    /// Returns the path of the tensor in the object graph of the output. If the tensor's key is that of a variable in an object
    /// graph, the path comes from the key. Otherwise, it consists of the parts of the name.
    fn path(&self) -> Vec<String> {
        let item = self.item();
        let key = if self.name == item.name { &item.key } else { &self.name };
        let parts = || self.name.split('/').filter(|part| !part.is_empty()).map(String::from).collect();
        variable_path(key).unwrap_or_else(parts)
    }
}

pub fn safetensors(path: &Path, outputs: &[Output<'_>]) -> Result<()> {
    let values = outputs.iter().map(Output::bytes).collect::<Result<Vec<_>>>()?;
    let views = outputs.iter().zip(&values).map(|(output, bytes)| {
        let dtype = to_safetensors(output.item().dtype).context("safetensors files do not support this element type")?;
        let dims = output.item().dims.iter().map(|&dim| dim as usize).collect();
        Ok((output.name.as_str(), TensorView::new(dtype, dims, bytes)?))
    });
    let views = views.collect::<Result<Vec<_>>>()?;
    Ok(write_whole(path, &serialize(views, None)?)?)
}

/// Writes the artifact `like` with other initial values.
pub fn artifact(path: &Path, like: &Loaded, outputs: &[Output<'_>]) -> Result<()> {
    let mut values = Vec::new();
    for output in outputs {
        let variable = like.description().variables.iter().find(|variable| variable.name == output.name);
        let tensor_type = variable.with_context(|| format!("the artifact has no variable {:?}", output.name))?.tensor_type;
        values.push((output.name.as_str(), Tensor::from_bytes(&gradlet::cpu(), tensor_type, &output.bytes()?)?));
    }
    Ok(write_whole(path, &like.with_values(&values).map_err(|error| FileError::model(path, error))?)?)
}

/// Writes a flat checkpoint of the artifact `like`.
pub fn flat(path: &Path, like: &Loaded, outputs: &[Output<'_>]) -> Result<()> {
    let mut values = Vec::new();
    for output in outputs {
        let index = like.description().variables.iter().position(|variable| variable.name == output.name);
        let index = index.with_context(|| format!("the artifact has no variable {:?}", output.name))?;
        values.push((index as u32, like.description().variables[index].tensor_type, output.bytes()?));
    }
    values.sort_by_key(|(index, ..)| *index);
    let entries = values.iter().map(|(variable, tensor_type, data)| Entry { variable: *variable, tensor_type: *tensor_type, data });
    // The header and the description of each value are smaller than this.
    let most = values.iter().map(|(.., data)| data.len() + 128).sum::<usize>() + 128;
    let mut file = vec![0; most];
    let mut rest = &mut file[..];
    gradlet::runtime::checkpoint::write(&mut rest, like.identity(), entries).map_err(|error| FileError::model(path, error))?;
    let length = most - rest.len();
    Ok(write_whole(path, &file[..length])?)
}

/// Writes a TensorFlow checkpoint with the objects and names of `like`.
pub fn like_bundle(prefix: &Path, like: &BundleReader, outputs: &[Output<'_>]) -> Result<()> {
    let mut writer = BundleWriter::create(prefix)?;
    outputs.iter().try_for_each(|output| write(&mut writer, output))?;
    if like.entry(GRAPH).is_some() {
        writer.strings(GRAPH, &like.strings(GRAPH)?)?;
    }
    Ok(writer.finish()?)
}

/// Writes a TensorFlow checkpoint with the objects of another one. Objects whose values are not among `outputs` have no value in
/// the new checkpoint.
pub fn same_objects(prefix: &Path, mut graph: TrackableObjectGraph, outputs: &[Output<'_>]) -> Result<()> {
    let mut writer = BundleWriter::create(prefix)?;
    let written: HashSet<&str> = outputs.iter().map(|output| output.item().key.as_str()).collect();
    for output in outputs {
        write(&mut writer, &Output { name: output.item().key.clone(), from: output.from, index: output.index })?;
    }
    for node in &mut graph.nodes {
        node.attributes.retain(|attribute| written.contains(attribute.checkpoint_key.as_str()));
    }
    writer.strings(GRAPH, &Strings::scalar(graph.encode_to_vec()))?;
    Ok(writer.finish()?)
}

/// Writes a TensorFlow checkpoint in which the parts of names are nested objects.
pub fn bundle(prefix: &Path, outputs: &[Output<'_>]) -> Result<()> {
    let mut writer = BundleWriter::create(prefix)?;
    let mut graph = TrackableObjectGraph { nodes: vec![object()] };
    for output in outputs {
        let path = output.path();
        let Some(last) = path.last() else { bail!("a tensor without a name cannot be part of an object graph") };
        let key = variable_key(path.iter().map(String::as_str));
        let node = path.iter().fold(0, |node, part| child(&mut graph, node, part));
        let attribute = SerializedTensor { name: "VARIABLE_VALUE".into(), full_name: last.to_string(), checkpoint_key: key.clone() };
        graph.nodes[node].attributes.push(attribute);
        write(&mut writer, &Output { name: key, from: output.from, index: output.index })?;
    }
    writer.strings(GRAPH, &Strings::scalar(graph.encode_to_vec()))?;
    Ok(writer.finish()?)
}

fn object() -> TrackableObject {
    TrackableObject { has_checkpoint_values: Some(true), ..TrackableObject::default() }
}

/// Returns the number of the child `name` of a node. Adds the child if it does not exist.
fn child(graph: &mut TrackableObjectGraph, node: usize, name: &str) -> usize {
    if let Some(known) = graph.nodes[node].children.iter().find(|child| child.local_name == name) {
        return known.node_id as usize;
    }
    let id = graph.nodes.len();
    graph.nodes.push(object());
    graph.nodes[node].children.push(ObjectReference { node_id: id as i32, local_name: name.into() });
    id
}

fn write(writer: &mut BundleWriter, output: &Output<'_>) -> Result<()> {
    let item = output.item();
    match item.dtype {
        DataType::DtString => writer.strings(&output.name, &output.from.strings(output.index)?)?,
        dtype => writer.tensor(&output.name, dtype, &item.dims, &output.bytes()?)?,
    }
    Ok(())
}
