//! Listings of checkpoints: keys and entries, values, and the object graph.

use super::graph;
use crate::golden::checks::{Checks, hex_field, json};
use crate::golden::fixtures::text;
use crate::golden::parsed_json;
use anyhow::{Context, Result, ensure};
use gradlet::checkpoint::bundle::{
    BundleReader, BundleWriter, Entry, data_path, dtype_name, element_bytes, extents, index_path, slice_key, table,
};
use gradlet::io::proto::bundle_header_proto::Endianness;
use gradlet::io::proto::{DataType, TrackableObjectGraph};
use prost::Message;
use safetensors::SafeTensors;
use serde_json::{Map, Value as Json, json};
use std::fs;
use std::path::Path;

/// Key of the object graph.
pub const GRAPH: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";

/// Runs `STEM.json`, with `STEM.safetensors` and `STEM.graph.pbtxt`.
pub fn listing(folder: &Path, stem: &str, checks: &mut Checks) -> Result<()> {
    let wanted = json(folder, &format!("{stem}.json"))?;
    let prefix = folder.join(text(&wanted, "prefix")?);
    let open = || BundleReader::open(&prefix);
    checks.check(&format!("{stem}: index"), || index(folder, &prefix, &open()?, &wanted));
    checks.check(&format!("{stem}: strings"), || strings(&open()?, &wanted));
    checks.check(&format!("{stem}: values"), || values(&open()?, &folder.join(format!("{stem}.safetensors"))));
    checks.check(&format!("{stem}: written again"), || again(&prefix, &open()?));
    checks.check(&format!("{stem}: object graph"), || object_graph(&open()?, &folder.join(format!("{stem}.graph.pbtxt")), &wanted));
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares the header, the keys and the entries.
fn index(folder: &Path, prefix: &Path, reader: &BundleReader, wanted: &Json) -> Result<()> {
    let header = reader.header();
    let version = header.version.clone().context("no version")?;
    let endianness = Endianness::try_from(header.endianness)?.as_str_name();
    let version = json!({ "producer": version.producer, "min_consumer": version.min_consumer });
    let header = json!({ "num_shards": header.num_shards, "endianness": endianness, "version": version });
    ensure!(header == wanted["header"], "the header is {header}");
    let shards = reader.header().num_shards as u32;
    let mut files: Vec<_> = (0..shards).map(|shard| data_path(prefix, shard, shards)).collect();
    files.push(index_path(prefix));
    let files: Vec<_> = files.iter().map(|path| Ok(path.strip_prefix(folder)?.display().to_string())).collect::<Result<_>>()?;
    ensure!(json!(files) == wanted["files"], "the files are {files:?}");
    ensure!(wanted["index_data_blocks"] == reader.index_blocks(), "{} blocks in the index", reader.index_blocks());
    let slices = reader.slices().map(|(key, entry)| (format!("slice:{}", hex(key)), entry));
    let all: Vec<(String, &Entry)> = slices.chain(reader.entries().map(|(key, entry)| (key.to_string(), entry))).collect();
    let keys: Vec<&str> = all.iter().map(|(key, _)| key.as_str()).collect();
    ensure!(json!(keys) == wanted["keys_in_file_order"], "the keys are {keys:?}");
    // The listing of a checkpoint with thousands of tensors has only names.
    if let Some(wanted) = wanted.get("entries").filter(|entries| **entries != json!({})) {
        ensure!(wanted.as_object().is_some_and(|wanted| wanted.len() == all.len()), "{} entries", all.len());
        all.iter().try_for_each(|(key, found)| entry(found, &wanted[key]).with_context(|| key.clone()))?;
    }
    Ok(())
}

fn entry(found: &Entry, wanted: &Json) -> Result<()> {
    let proto = found.proto();
    let mut fields = Map::new();
    fields.insert("dtype".into(), json!(dtype_name(found.dtype())));
    fields.insert("shape".into(), json!(found.dims()));
    fields.insert("shard_id".into(), json!(proto.shard_id));
    fields.insert("offset".into(), json!(proto.offset));
    fields.insert("size".into(), json!(proto.size));
    fields.insert("crc32c_masked".into(), json!(proto.crc32c));
    let mut wanted = wanted.as_object().context("no entry")?.clone();
    let slices = wanted.remove("slices").unwrap_or_else(|| json!([]));
    let slices = parsed_json::list(&slices)?.iter().map(said).collect::<Result<Vec<_>>>()?;
    let own: Vec<_> = proto.slices.iter().map(extents).collect();
    ensure!(own == slices, "its slices are {own:?}");
    if let Some(slice) = wanted.remove("slice_key") {
        let key = slice_key(text(&slice, "name")?, &said(&slice["extents"])?);
        ensure!(key == hex_field(&slice)?, "the key of the slice is {}", hex(&key));
    }
    ensure!(fields == wanted, "it is {}, wanted {}", Json::from(fields), Json::from(wanted));
    Ok(())
}

/// Reads a slice as the start and the length in each dimension. The length -1 stands for the complete dimension.
fn said(slice: &Json) -> Result<Vec<(i64, i64)>> {
    let number = |extent: &Json, name: &str, default| extent[name].as_i64().unwrap_or(default);
    Ok(parsed_json::list(slice)?.iter().map(|extent| (number(extent, "start", 0), number(extent, "length", -1))).collect())
}

/// Compares the string tensors, except for the object graph.
fn strings(reader: &BundleReader, wanted: &Json) -> Result<()> {
    let wanted = wanted["string_values"].as_object().context("no \"string_values\"")?;
    let is_string = |entry: &Entry| entry.dtype() == DataType::DtString;
    let keys: Vec<&str> = reader.entries().filter(|(key, entry)| is_string(entry) && *key != GRAPH).map(|(key, _)| key).collect();
    ensure!(keys.len() == wanted.len(), "the string tensors are {keys:?}");
    for key in keys {
        let wanted = wanted.get(key).with_context(|| format!("{key:?} is not a string"))?;
        let found = reader.strings(key)?;
        ensure!(wanted["shape"] == json!(found.dims()), "{key:?} has the shape {:?}", found.dims());
        let values = parsed_json::list(&wanted["data"])?.iter().map(parsed_json::bytes).collect::<Result<Vec<_>>>()?;
        ensure!(values == found.values(), "the strings of {key:?} differ");
    }
    Ok(())
}

/// Compares the numeric tensors bit for bit, with each function that reads them.
fn values(reader: &BundleReader, path: &Path) -> Result<()> {
    let file = fs::read(path).with_context(|| path.display().to_string())?;
    let wanted = SafeTensors::deserialize(&file)?;
    let numeric: Vec<(&str, &Entry)> = reader.entries().filter(|(_, entry)| element_bytes(entry.dtype()).is_some()).collect();
    reader.entries().try_for_each(|(key, _)| reader.verify(key))?;
    ensure!(numeric.len() == wanted.len(), "{} numeric tensors, wanted {}", numeric.len(), wanted.len());
    for (key, entry) in numeric {
        let wanted = wanted.tensor(key)?;
        let dims: Vec<u64> = wanted.shape().iter().map(|&dim| dim as u64).collect();
        ensure!(dims == entry.dims(), "{key:?} has the shape {:?}", entry.dims());
        ensure!(reader.bytes(key)? == wanted.data(), "the values of {key:?} differ");
        match (parsed_json::dtype(&dtype_name(entry.dtype())), reader.tensor(key, &gradlet::cpu())) {
            (Ok(dtype), Ok(tensor)) => {
                ensure!(tensor.dtype() == dtype, "the tensor {key:?} has the element type {}", tensor.dtype());
                ensure!(tensor.bytes()? == wanted.data(), "the elements of the tensor {key:?} differ");
            }
            (Err(_), Err(error)) => ensure!(error.to_string().contains(&dtype_name(entry.dtype())), "{error}"),
            (Ok(_), Err(error)) => return Err(error.into()),
            (Err(_), Ok(tensor)) => ensure!(false, "{key:?} became {}", tensor.tensor_type()),
        }
    }
    Ok(())
}

/// Writes the checkpoint's contents with gradlet, and checks that the files have the same bytes. If there are several data files, only the
/// index is compared.
fn again(prefix: &Path, reader: &BundleReader) -> Result<()> {
    let header = [(Vec::new(), reader.header().encode_to_vec())];
    let slices = reader.slices().map(|(key, entry)| (key.to_vec(), entry.proto().encode_to_vec()));
    let entries = reader.entries().map(|(key, entry)| (key.as_bytes().to_vec(), entry.proto().encode_to_vec()));
    let written = table(header.into_iter().chain(slices).chain(entries));
    ensure!(written == fs::read(index_path(prefix))?, "the index files differ");
    if reader.header().num_shards > 1 || reader.slices().len() > 0 {
        return Ok(());
    }
    let mut entries: Vec<_> = reader.entries().collect();
    entries.sort_by_key(|(_, entry)| (entry.proto().offset, entry.proto().size));
    let folder = std::env::temp_dir().join(format!("gradlet-golden-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let own = folder.join("again");
    let mut writer = BundleWriter::create(&own)?;
    for (key, entry) in entries {
        match entry.dtype() {
            DataType::DtString => writer.strings(key, &reader.strings(key)?)?,
            dtype => writer.tensor(key, dtype, entry.dims(), &reader.bytes(key)?)?,
        }
    }
    writer.finish()?;
    let same = |path: fn(&Path) -> std::path::PathBuf| Ok::<_, std::io::Error>(fs::read(path(&own))? == fs::read(path(prefix))?);
    let same = [same(index_path), same(|prefix| data_path(prefix, 0, 1))];
    fs::remove_dir_all(&folder)?;
    let [index, data] = same;
    ensure!(index? && data?, "the index or data files differ");
    Ok(())
}

/// Compares the object graph as JSON and as text, if the checkpoint has one.
fn object_graph(reader: &BundleReader, path: &Path, wanted: &Json) -> Result<()> {
    if reader.entry(GRAPH).is_none() {
        ensure!(wanted.get("object_graph").is_none() && !path.exists(), "the checkpoint has no object graph");
        return Ok(());
    }
    let found = TrackableObjectGraph::decode(&reader.strings(GRAPH)?.item()?[..])?;
    let json = graph::to_json(&found);
    ensure!(json == wanted["object_graph"], "the object graph is {json}");
    let wanted = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let found = graph::to_text(&found);
    let line = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted);
    ensure!(found == wanted, "the text of the object graph differs from line {line:?} on");
    Ok(())
}
