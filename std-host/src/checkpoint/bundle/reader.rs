//! Reading a checkpoint's tensors by name.

use super::crc::unmasked;
use super::data::{Data, Place};
use super::entry::{Entry, dtype_name, element_bytes, own_dtype};
use super::slices::{self, Region};
use super::table::Table;
use super::{index_path, items, shard_counts};
use crate::files::{FileError, FileResult};
use crate::formats::proto::bundle_header_proto::Endianness;
use crate::formats::proto::{BundleEntryProto, BundleHeaderProto, DataType};
use crate::values::strings::Strings;
use bytes::Bytes;
use gradlet_core::{Device, Error, Shape, Tensor, TensorType};
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What this reader is, in the format's own count of versions.
const VERSION: i32 = 1;

/// A checkpoint that is read: its index is in memory, its tensors are read when they are asked for. A clone is cheap and shares
/// both.
///
/// Every byte that is read is checked. Several data files, and tensors that are cut into slices over them, look like one.
#[derive(Clone)]
pub struct BundleReader {
    bundle: Arc<Bundle>,
}

struct Bundle {
    prefix: PathBuf,
    header: BundleHeaderProto,
    entries: BTreeMap<String, Entry>,
    slices: BTreeMap<Vec<u8>, Entry>,
    blocks: usize,
    data: Data,
    damage: Vec<FileError>,
}

impl BundleReader {
    /// Reads the index of the checkpoint with this prefix: `ckpt-1` for `ckpt-1.index`.
    ///
    /// Fails where there is none, where a byte of it is damaged, and where it is of another version or of a machine whose numbers
    /// begin with the highest byte. The data files may be damaged or missing: reading a tensor tells.
    pub fn open(prefix: &Path) -> FileResult<BundleReader> {
        let mut bundle = Bundle::read(prefix)?;
        match bundle.damage.is_empty() {
            true => Ok(BundleReader { bundle: Arc::new(bundle) }),
            false => Err(bundle.damage.remove(0)),
        }
    }

    /// As [`open`](BundleReader::open), but takes what can be read of a damaged index: [`damage`](BundleReader::damage) tells the
    /// rest. One flipped bit of a block costs nothing, as its checksum says which it is.
    pub fn open_damaged(prefix: &Path) -> FileResult<BundleReader> {
        Bundle::read(prefix).map(|bundle| BundleReader { bundle: Arc::new(bundle) })
    }

    /// What is wrong with the index; nothing, unless it was opened as damaged.
    pub fn damage(&self) -> &[FileError] {
        &self.bundle.damage
    }

    /// The prefix of the files' names.
    pub fn prefix(&self) -> &Path {
        &self.bundle.prefix
    }

    /// What stands before the entries.
    pub fn header(&self) -> &BundleHeaderProto {
        &self.bundle.header
    }

    /// The tensors by name, in the order of their names' bytes, which is that of the file. One that is cut into slices is there once.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Entry)> {
        self.bundle.entries.iter().map(|(key, entry)| (key.as_str(), entry))
    }

    /// The slices of tensors that are cut, by their keys, in the order of the file: before all [`entries`](BundleReader::entries).
    pub fn slices(&self) -> impl ExactSizeIterator<Item = (&[u8], &Entry)> {
        self.bundle.slices.iter().map(|(key, entry)| (key.as_slice(), entry))
    }

    /// How many data blocks the table of the index has.
    pub fn index_blocks(&self) -> usize {
        self.bundle.blocks
    }

    /// What the index says of the tensor `key`, if it is there.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.bundle.entries.get(key)
    }

    /// Reads the elements of a tensor, little-endian and in row-major order, into as many bytes as they have:
    /// [`Entry::bytes`].
    ///
    /// Fails where there is no such tensor, where its elements have no fixed size, and where its bytes are missing or damaged; then
    /// `into` holds anything.
    pub fn read_into(&self, key: &str, into: &mut [u8]) -> FileResult<()> {
        let entry = self.numeric(key)?;
        if into.len() as u64 != entry.bytes() {
            return Err(self.error(format!("tensor {key:?} has {} bytes, not {}", entry.bytes(), into.len())));
        }
        let bundle = &*self.bundle;
        if entry.proto().slices.is_empty() {
            let place = place(key, entry);
            return self.compare(key, entry, bundle.data.read(place, into)?);
        }
        for (slice, region) in self.cut(key, entry)? {
            let place = place(key, slice);
            let found = match region.contiguous() {
                Some(start) => bundle.data.read(place, &mut into[start..start + region.size()])?,
                None => bundle.data.pieces(place, |at, bytes| region.scatter(at, bytes, into))?,
            };
            self.compare(key, slice, found)?;
        }
        Ok(())
    }

    /// Checks the bytes of a tensor against their checksums. Numbers are in memory only piece by piece.
    ///
    /// Fails where there is no such tensor, and where its bytes are missing or damaged.
    pub fn verify(&self, key: &str) -> FileResult<()> {
        let entry = self.known(key)?;
        match entry.dtype() {
            DataType::DtString => self.read_strings(key, entry).map(drop),
            DataType::DtVariant => {
                let sum = items::variants_checksum(&self.stored(key, entry)?, elements(entry));
                self.compare(key, entry, sum.map_err(|text| self.wrong(key, entry, text))?)
            }
            _ if entry.proto().slices.is_empty() => self.compare(key, entry, self.bundle.data.checksum(place(key, entry))?),
            _ => {
                let mut slices = self.cut(key, entry)?.into_iter();
                slices.try_for_each(|(slice, _)| self.compare(key, slice, self.bundle.data.checksum(place(key, slice))?))
            }
        }
    }

    /// The elements of a tensor, as [`read_into`](BundleReader::read_into) gives them, in memory of their own.
    pub fn bytes(&self, key: &str) -> FileResult<Vec<u8>> {
        let entry = self.numeric(key)?;
        self.backed(key, entry)?;
        let mut bytes = vec![0; entry.bytes() as usize];
        self.read_into(key, &mut bytes)?;
        Ok(bytes)
    }

    /// The strings under `key`. Fails where there is none, where it is a tensor of another type, and where its bytes are missing or
    /// damaged.
    pub fn strings(&self, key: &str) -> FileResult<Strings> {
        let entry = self.known(key)?;
        if entry.dtype() != DataType::DtString {
            return Err(self.error(format!("tensor {key:?} has elements of {}, not strings", dtype_name(entry.dtype()))));
        }
        let shape = self.shape(key, entry)?;
        let values = self.read_strings(key, entry)?;
        Strings::new(values, shape.dims()).map_err(|error| self.error(format!("tensor {key:?}: {error}")))
    }

    /// The tensor `key`, on `device`. Fails as [`read_into`](BundleReader::read_into), and where gradlet does not have the element type
    /// or the shape.
    pub fn tensor(&self, key: &str, device: &Device) -> FileResult<Tensor> {
        let entry = self.known(key)?;
        let Some(dtype) = own_dtype(entry.dtype()) else {
            let text = format!("tensor {key:?} has elements of {}, of which there are no tensors here", dtype_name(entry.dtype()));
            return Err(self.error(text));
        };
        let tensor_type = TensorType::new(dtype, self.shape(key, entry)?);
        self.backed(key, entry)?;
        let mut failed = None;
        let tensor = Tensor::written(device, tensor_type, |bytes| {
            self.read_into(key, bytes).map_err(|error| {
                failed = Some(error);
                Error::TooLarge
            })
        });
        tensor.map_err(|error| failed.unwrap_or_else(|| FileError::model(&index_path(self.prefix()), error)))
    }

    fn error(&self, text: String) -> FileError {
        FileError::new(&index_path(self.prefix()), text)
    }

    fn wrong(&self, key: &str, entry: &Entry, text: String) -> FileError {
        let place = place(key, entry);
        FileError::at(&self.bundle.data.path(place.shard), place.offset, format!("tensor {key:?}: {text}"))
    }

    fn known(&self, key: &str) -> FileResult<&Entry> {
        let damaged = if self.damage().is_empty() { "" } else { ", as far as its damaged index tells" };
        self.entry(key).ok_or_else(|| self.error(format!("the checkpoint has no tensor {key:?}{damaged}")))
    }

    fn numeric(&self, key: &str) -> FileResult<&Entry> {
        let entry = self.known(key)?;
        match element_bytes(entry.dtype()) {
            Some(_) => Ok(entry),
            None => Err(self.error(format!("tensor {key:?} has elements of {}, which have no fixed size", dtype_name(entry.dtype())))),
        }
    }

    fn shape(&self, key: &str, entry: &Entry) -> FileResult<Shape> {
        let dims: Result<Vec<u32>, _> = entry.dims().iter().map(|&dim| u32::try_from(dim)).collect();
        let shape = dims.map_err(|_| Error::TooLarge).and_then(|dims| Shape::new(&dims));
        shape.map_err(|error| self.error(format!("tensor {key:?} has the shape {:?}: {error}", entry.dims())))
    }

    /// Checks that the files have as many bytes as the tensor takes memory.
    fn backed(&self, key: &str, entry: &Entry) -> FileResult<()> {
        if entry.proto().slices.is_empty() {
            return self.bundle.data.length(place(key, entry)).map(drop);
        }
        let mut lengths = BTreeMap::new();
        for (slice, _) in self.cut(key, entry)? {
            lengths.insert(slice.proto().shard_id, self.bundle.data.length(place(key, slice))?);
        }
        let length: u64 = lengths.values().sum();
        match entry.bytes() <= length {
            true => Ok(()),
            false => Err(self.error(format!("tensor {key:?} has {} bytes, its data files have {length}", entry.bytes()))),
        }
    }

    /// The slices of a tensor, and where each lies in it.
    fn cut(&self, key: &str, entry: &Entry) -> FileResult<Vec<(&Entry, Region)>> {
        self.bundle.cut(key, entry).map_err(|text| self.error(format!("tensor {key:?}: {text}")))
    }

    fn compare(&self, key: &str, entry: &Entry, found: u32) -> FileResult<()> {
        let stored = entry.proto().crc32c;
        match stored == found {
            true => Ok(()),
            false => {
                let (stored, found) = (unmasked(stored), unmasked(found));
                Err(self.wrong(key, entry, format!("checksum does not match: stored {stored}, computed {found}")))
            }
        }
    }

    /// The bytes of an entry as they are in the file.
    fn stored(&self, key: &str, entry: &Entry) -> FileResult<Bytes> {
        let place = place(key, entry);
        self.bundle.data.length(place)?;
        let mut bytes = vec![0; place.size as usize];
        self.bundle.data.read(place, &mut bytes)?;
        Ok(bytes.into())
    }

    fn read_strings(&self, key: &str, entry: &Entry) -> FileResult<Vec<Bytes>> {
        let strings = items::strings_from_bytes(&self.stored(key, entry)?, elements(entry));
        let (values, found) = strings.map_err(|text| self.wrong(key, entry, text))?;
        self.compare(key, entry, found)?;
        Ok(values)
    }
}

fn place<'k>(key: &'k str, entry: &Entry) -> Place<'k> {
    let proto = entry.proto();
    Place { key, shard: proto.shard_id as u32, offset: proto.offset as u64, size: proto.size as u64 }
}

/// How many elements there are.
fn elements(entry: &Entry) -> usize {
    entry.elements().unwrap_or(u64::MAX) as usize
}

impl Bundle {
    /// Reads an index, whatever of it can be read.
    fn read(prefix: &Path) -> FileResult<Bundle> {
        let path = index_path(prefix);
        let file = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => FileError::new(
                &path,
                "there is no such file: a checkpoint is named without its ending, and with its number, as in `ckpt-1`",
            ),
            _ => FileError::io(&path, error),
        })?;
        let table = Table::read(&file);
        let mut damage: Vec<FileError> = table.faults.iter().map(|(offset, text)| FileError::at(&path, *offset, text)).collect();
        let mut records = table.records.into_iter().peekable();
        let first = records.next_if(|(key, _)| key.is_empty());
        let header = match first.as_ref().map(|(_, value)| BundleHeaderProto::decode(&value[..])) {
            Some(Ok(header)) => header,
            _ => {
                damage.push(FileError::new(&path, "it has no header"));
                BundleHeaderProto { num_shards: shard_counts(prefix).into_iter().next().unwrap_or(1) as i32, ..Default::default() }
            }
        };
        check(&header).map_err(|text| FileError::new(&path, text))?;
        let shards = header.num_shards as u32;
        let data = Data::new(prefix, shards);
        let (entries, slices) = (BTreeMap::new(), BTreeMap::new());
        let mut bundle = Bundle { prefix: prefix.into(), header, entries, slices, blocks: table.blocks, data, damage };
        for (key, value) in records {
            bundle.add(key, &value, shards).unwrap_or_else(|text| bundle.damage.push(FileError::new(&path, text)));
        }
        let keys: Vec<String> = bundle.entries.keys().cloned().collect();
        for key in keys {
            let entry = &bundle.entries[&key];
            let cut = bundle.cut(&key, entry).map(drop);
            let cut = cut.and_then(|()| if slices::overlap(entry) { Err("two of its slices overlap".into()) } else { Ok(()) });
            if let Err(text) = cut {
                bundle.damage.push(FileError::new(&path, format!("tensor {key:?}: {text}")));
                bundle.entries.remove(&key);
            }
        }
        Ok(bundle)
    }

    fn add(&mut self, key: Vec<u8>, value: &[u8], shards: u32) -> Result<(), String> {
        let name = String::from_utf8_lossy(&key).into_owned();
        let proto = BundleEntryProto::decode(value).map_err(|error| format!("tensor {name:?} has no entry: {error}"))?;
        let entry = Entry::new(proto, shards).map_err(|text| format!("tensor {name:?}: {text}"))?;
        if key.first() == Some(&0) {
            self.slices.insert(key, entry);
            return Ok(());
        }
        let key = String::from_utf8(key).map_err(|_| format!("the name {name:?} is not UTF-8"))?;
        self.entries.insert(key, entry);
        Ok(())
    }

    /// The slices of a tensor, and where each lies in it; none if it is not cut. Fails where they do not make a whole.
    fn cut(&self, key: &str, entry: &Entry) -> Result<Vec<(&Entry, Region)>, String> {
        if entry.proto().slices.is_empty() {
            return Ok(Vec::new());
        }
        let size = element_bytes(entry.dtype()).ok_or("slices of elements of no fixed size are not read")?;
        let mut slices = Vec::new();
        for (key, region) in slices::of(key, entry, size)? {
            let slice = self.slices.get(&key).ok_or("one of its slices has no entry")?;
            if slice.dtype() != entry.dtype() || slice.bytes() != region.size() as u64 || !slice.proto().slices.is_empty() {
                return Err("one of its slices is of another type or shape".into());
            }
            slices.push((slice, region));
        }
        let total = slices.iter().fold(0u64, |total, (slice, _)| total.saturating_add(slice.bytes()));
        match total == entry.bytes() {
            true => Ok(slices),
            false => Err(format!("its slices have {total} bytes, it has {}", entry.bytes())),
        }
    }
}

fn check(header: &BundleHeaderProto) -> Result<(), String> {
    if header.endianness != Endianness::Little as i32 {
        return Err("the checkpoint is of a big-endian machine: only little-endian ones are read".into());
    }
    if header.num_shards < 0 {
        return Err(format!("it has {} data files", header.num_shards));
    }
    let version = header.version.clone().unwrap_or_default();
    if version.min_consumer > VERSION || version.bad_consumers.contains(&VERSION) {
        return Err(format!("it is for readers of version {} on; this one is of version {VERSION}", version.min_consumer));
    }
    Ok(())
}
