//! Checkpoints of all kinds, as lists of named tensors.

use super::names;
use anyhow::{Result, bail};
use bytes::Bytes;
use gradlet::DType;
use gradlet::artifact::Loaded;
use gradlet::checkpoint::bundle::{BundleReader, index_path};
use gradlet::checkpoint::latest_checkpoint;
use gradlet::io::FileError;
use gradlet::io::proto::{DataType, TrackableObjectGraph};
use gradlet::runtime::checkpoint::{Entry, FlatCheckpoint};
use gradlet::tensor::Strings;
use prost::Message;
use safetensors::tensor::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};

/// Key of the object graph.
pub use gradlet::checkpoint::OBJECT_GRAPH as GRAPH;
/// First bytes of an artifact.
const ARTIFACT: &[u8] = b"GRDL";
/// First bytes of a flat checkpoint.
const FLAT: &[u8] = b"GRDC";
/// Offset of the second copy of a flat checkpoint's header, in bytes.
const FLAT_COPY: usize = 28;

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct Item {
    /// Key in the checkpoint.
    pub key: String,
    /// Name for display: the key without TensorFlow's suffix.
    pub name: String,
    /// Other names: its paths in the object graph, and the name of its variable.
    pub aliases: Vec<String>,
    pub dtype: DataType,
    pub dims: Vec<u64>,
    /// Size of the elements in bytes.
    pub bytes: u64,
}

/// A checkpoint.
pub struct Checkpoint {
    /// Path of the checkpoint. For TensorFlow's, this is the prefix.
    pub path: PathBuf,
    pub items: Vec<Item>,
    pub content: Content,
}

/// Contents of a checkpoint, by kind.
pub enum Content {
    Bundle {
        reader: BundleReader,
        graph: Option<TrackableObjectGraph>,
    },
    Safetensors {
        file: Bytes,
        data: usize,
        places: Vec<(usize, usize)>,
    },
    Artifact(Box<Loaded>),
    /// A flat checkpoint, with the value of each item and the errors about damaged values.
    Flat {
        values: Vec<Bytes>,
        damage: Vec<String>,
        /// Number of entries, including damaged ones.
        entries: usize,
    },
}

impl Checkpoint {
    /// Opens a checkpoint. Fails if its list of tensors is damaged. `artifact` provides the names of a flat checkpoint.
    pub fn open(path: &Path, artifact: Option<&Path>) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::open_with(path, artifact, BundleReader::open)?;
        match &checkpoint.content {
            Content::Flat { damage, .. } if !damage.is_empty() => bail!(FileError::new(path, damage[0].clone())),
            _ => Ok(checkpoint),
        }
    }

    /// Opens a checkpoint that may be damaged. Reads as much as possible of a TensorFlow checkpoint or a flat checkpoint. Fails
    /// if a checkpoint of another kind is damaged.
    pub fn open_damaged(path: &Path, artifact: Option<&Path>) -> Result<Checkpoint> {
        Checkpoint::open_with(path, artifact, BundleReader::open_damaged)
    }

    fn open_with(
        path: &Path,
        artifact: Option<&Path>,
        open: impl FnOnce(&Path) -> gradlet::io::FileResult<BundleReader>,
    ) -> Result<Checkpoint> {
        if let Some(prefix) = prefix(path)? {
            return Checkpoint::bundle(open(&prefix)?);
        }
        let file = gradlet::io::tfrecord::map(path)?;
        let begins = |magic: &[u8], offset: usize| file.get(offset..).is_some_and(|rest| rest.starts_with(magic));
        match () {
            () if begins(ARTIFACT, 0) => Checkpoint::artifact(path, &file),
            () if begins(FLAT, 0) || begins(FLAT, FLAT_COPY) && !begins(b"{", 8) => Checkpoint::flat(path, &file, artifact),
            () => Checkpoint::safetensors(path, file),
        }
    }

    /// Reads a flat checkpoint. It identifies variables by number; the names come from the artifact.
    fn flat(path: &Path, file: &Bytes, artifact: Option<&Path>) -> Result<Checkpoint> {
        let wrong = |error| FileError::model(path, error);
        let flat = FlatCheckpoint::parse(file).map_err(wrong)?;
        let loaded = artifact.map(gradlet::load).transpose()?;
        if let Some(loaded) = loaded.as_ref().filter(|loaded| loaded.identity() != flat.artifact()) {
            let (wanted, found) = (flat.artifact().checksum, loaded.identity().checksum);
            bail!(FileError::new(path, format!("it belongs to an artifact with checksum {wanted:08x}, but this one has {found:08x}")));
        }
        let name = |index: u32| match &loaded {
            Some(loaded) => loaded.description().variables.get(index as usize).map(|variable| variable.name.clone()),
            None => None,
        };
        let (mut items, mut values, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        for entry in flat.entries() {
            match entry {
                Ok(Entry { variable, tensor_type, data }) => {
                    let name = name(variable).unwrap_or_else(|| format!("variable {variable}"));
                    let dims = tensor_type.shape.dims().iter().map(|&dim| dim.into()).collect();
                    let (dtype, bytes) = (from_own(tensor_type.dtype), data.len() as u64);
                    items.push(Item { key: name.clone(), name, aliases: Vec::new(), dtype, dims, bytes });
                    values.push(file.slice_ref(data));
                }
                Err(error) => damage.push(error.to_string()),
            }
        }
        let entries = items.len() + damage.len();
        if let Some(error) = flat.verify().err().filter(|_| damage.is_empty()) {
            damage.push(error.to_string());
        }
        Ok(Checkpoint { path: path.into(), items, content: Content::Flat { values, damage, entries } })
    }

    fn bundle(reader: BundleReader) -> Result<Checkpoint> {
        // `verify` reports a damaged graph. Here only the aliases of variables are missing.
        let graph = reader.entry(GRAPH).and_then(|_| reader.strings(GRAPH).ok());
        let graph = graph.and_then(|graph| TrackableObjectGraph::decode(&graph.item().ok()?[..]).ok());
        let mut aliases = graph.as_ref().map(names::aliases).unwrap_or_default();
        let entries = reader.entries().filter(|(key, _)| *key != GRAPH);
        let items = entries.map(|(key, entry)| Item {
            key: key.into(),
            name: names::plain(key),
            aliases: aliases.remove(key).unwrap_or_default(),
            dtype: entry.dtype(),
            dims: entry.dims().into(),
            bytes: entry.bytes(),
        });
        Ok(Checkpoint { path: reader.prefix().into(), items: items.collect(), content: Content::Bundle { reader, graph } })
    }

    fn safetensors(path: &Path, file: Bytes) -> Result<Checkpoint> {
        let wrong = |text: String| FileError::new(path, format!("not a checkpoint, artifact or safetensors file: {text}"));
        SafeTensors::deserialize(&file).map_err(|error| wrong(error.to_string()))?;
        let (length, metadata) = SafeTensors::read_metadata(&file).map_err(|error| wrong(error.to_string()))?;
        let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
        tensors.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (mut items, mut places) = (Vec::new(), Vec::new());
        for (key, info) in tensors {
            let known = DTYPES.iter().find(|(known, _)| *known == info.dtype);
            let Some((_, dtype)) = known else { bail!(wrong(format!("tensor {key:?} has the unsupported element type {:?}", info.dtype))) };
            let dims = info.shape.iter().map(|&dim| dim as u64).collect();
            let (start, end) = info.data_offsets;
            items.push(Item { name: names::plain(&key), key, aliases: Vec::new(), dtype: *dtype, dims, bytes: (end - start) as u64 });
            places.push((start, end));
        }
        Ok(Checkpoint { path: path.into(), items, content: Content::Safetensors { data: 8 + length, file, places } })
    }

    fn artifact(path: &Path, file: &[u8]) -> Result<Checkpoint> {
        let loaded = Loaded::new(file, None).map_err(|error| FileError::model(path, error))?;
        let items = loaded.description().variables.iter().map(|variable| Item {
            key: variable.name.clone(),
            name: variable.name.clone(),
            aliases: Vec::new(),
            dtype: from_own(variable.tensor_type.dtype),
            dims: variable.tensor_type.shape.dims().iter().map(|&dim| dim.into()).collect(),
            bytes: variable.bytes.into(),
        });
        Ok(Checkpoint { path: path.into(), items: items.collect(), content: Content::Artifact(Box::new(loaded)) })
    }

    /// Returns the name of the checkpoint's kind, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.content {
            Content::Bundle { graph: Some(_), .. } => "TensorFlow checkpoint",
            Content::Bundle { .. } => "name-based TensorFlow checkpoint",
            Content::Safetensors { .. } => "safetensors file",
            Content::Artifact(_) => "artifact",
            Content::Flat { .. } => "flat checkpoint",
        }
    }

    /// Returns the elements of a numeric tensor, little-endian. If the checkpoint has a checksum of the tensor, the elements are
    /// checked against it.
    pub fn bytes(&self, index: usize) -> Result<Bytes> {
        let item = &self.items[index];
        Ok(match &self.content {
            Content::Bundle { reader, .. } => reader.bytes(&item.key)?.into(),
            Content::Safetensors { file, data, places } => file.slice(data + places[index].0..data + places[index].1),
            Content::Flat { values, .. } => values[index].clone(),
            Content::Artifact(loaded) => Bytes::copy_from_slice(&loaded.variable(&item.key)?.bytes()?),
        })
    }

    /// Returns the strings of a string tensor.
    pub fn strings(&self, index: usize) -> Result<Strings> {
        match &self.content {
            Content::Bundle { reader, .. } => Ok(reader.strings(&self.items[index].key)?),
            _ => bail!("{:?} has no strings", self.items[index].key),
        }
    }
}

/// Returns the prefix of the TensorFlow checkpoint that `path` names, or `None` if it names something else.
fn prefix(path: &Path) -> Result<Option<PathBuf>> {
    if path.is_dir() {
        let latest = latest_checkpoint(path)?;
        return match latest {
            Some(prefix) => Ok(Some(prefix)),
            None => bail!(FileError::new(path, "the folder has no file `checkpoint` that names the latest checkpoint")),
        };
    }
    let named = path.to_string_lossy();
    let cut = named.strip_suffix(".index").or_else(|| Some(named.rsplit_once(".data-")?.0)).map(PathBuf::from);
    let known = [Some(path.to_path_buf()), cut].into_iter().flatten().find(|prefix| index_path(prefix).exists());
    match known {
        Some(prefix) => Ok(Some(prefix)),
        None if path.exists() => Ok(None),
        // The reader then reports the missing file.
        None => Ok(Some(path.into())),
    }
}

/// Element types that safetensors files support.
const DTYPES: [(Dtype, DataType); 16] = [
    (Dtype::BF16, DataType::DtBfloat16),
    (Dtype::BOOL, DataType::DtBool),
    (Dtype::C64, DataType::DtComplex64),
    (Dtype::F16, DataType::DtHalf),
    (Dtype::F32, DataType::DtFloat),
    (Dtype::F64, DataType::DtDouble),
    (Dtype::F8_E4M3, DataType::DtFloat8E4m3fn),
    (Dtype::F8_E5M2, DataType::DtFloat8E5m2),
    (Dtype::I16, DataType::DtInt16),
    (Dtype::I32, DataType::DtInt32),
    (Dtype::I64, DataType::DtInt64),
    (Dtype::I8, DataType::DtInt8),
    (Dtype::U16, DataType::DtUint16),
    (Dtype::U32, DataType::DtUint32),
    (Dtype::U64, DataType::DtUint64),
    (Dtype::U8, DataType::DtUint8),
];

/// Returns the element type in a safetensors file, if it is supported.
pub fn to_safetensors(dtype: DataType) -> Option<Dtype> {
    DTYPES.iter().find(|(_, known)| *known == dtype).map(|(own, _)| *own)
}

fn from_own(dtype: DType) -> DataType {
    match dtype {
        DType::F32 => DataType::DtFloat,
        DType::F64 => DataType::DtDouble,
        DType::F16 => DataType::DtHalf,
        DType::Bf16 => DataType::DtBfloat16,
        DType::I8 => DataType::DtInt8,
        DType::U8 => DataType::DtUint8,
        DType::I16 => DataType::DtInt16,
        DType::I32 => DataType::DtInt32,
        DType::I64 => DataType::DtInt64,
        DType::Bool => DataType::DtBool,
    }
}
