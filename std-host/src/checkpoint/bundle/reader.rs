//! The reader of a checkpoint's tensors.

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

/// Version of the format that this reader supports.
const VERSION: i32 = 1;

/// Reader of a checkpoint. It keeps the index in memory and reads tensors on demand. A clone is cheap and shares the index and
/// the open file.
///
/// The reader checks every byte that it reads. A tensor whose data is in several files, or in slices, looks like any other.
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
    /// Opens the checkpoint with this prefix and reads its index: `ckpt-1` for `ckpt-1.index`.
    ///
    /// Fails if there is no index, if any byte of it is damaged, if its version is not supported, or if it is from a big-endian
    /// machine. Missing or damaged data files are only found when a tensor is read.
    pub fn open(prefix: &Path) -> FileResult<BundleReader> {
        let mut bundle = Bundle::read(prefix)?;
        match bundle.damage.is_empty() {
            true => Ok(BundleReader { bundle: Arc::new(bundle) }),
            false => Err(bundle.damage.remove(0)),
        }
    }

    /// Works like [`open`](BundleReader::open), but accepts a damaged index and reads as much of it as possible.
    /// [`damage`](BundleReader::damage) lists the errors. A single flipped bit in a block loses nothing, because the checksum identifies
    /// the bit.
    pub fn open_damaged(prefix: &Path) -> FileResult<BundleReader> {
        Bundle::read(prefix).map(|bundle| BundleReader { bundle: Arc::new(bundle) })
    }

    /// Returns the errors in the index. Always empty after [`open`](BundleReader::open).
    pub fn damage(&self) -> &[FileError] {
        &self.bundle.damage
    }

    /// Returns the prefix of the file names.
    pub fn prefix(&self) -> &Path {
        &self.bundle.prefix
    }

    /// Returns the header of the index.
    pub fn header(&self) -> &BundleHeaderProto {
        &self.bundle.header
    }

    /// Returns the tensors by name, in byte order of the names, which is also the order of the file. A tensor in slices appears once.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Entry)> {
        self.bundle.entries.iter().map(|(key, entry)| (key.as_str(), entry))
    }

    /// Returns the slices of tensors by key, in the order of the file. In the file they come before all
    /// [`entries`](BundleReader::entries).
    pub fn slices(&self) -> impl ExactSizeIterator<Item = (&[u8], &Entry)> {
        self.bundle.slices.iter().map(|(key, entry)| (key.as_slice(), entry))
    }

    /// Returns the number of data blocks in the index.
    pub fn index_blocks(&self) -> usize {
        self.bundle.blocks
    }

    /// Returns the index entry of the tensor `key`, if there is one.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.bundle.entries.get(key)
    }

    /// Reads the elements of a tensor, little-endian and in row-major order, into a buffer of [`Entry::bytes`] bytes.
    ///
    /// Fails if there is no such tensor, if its elements have no fixed size, or if its bytes are missing or damaged. The contents
    /// of `into` are then unspecified.
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

    /// Checks the bytes of a tensor against their checksums. Numeric tensors are read in pieces, so this needs little memory.
    ///
    /// Fails if there is no such tensor, or if its bytes are missing or damaged.
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

    /// Returns the elements of a tensor in a new buffer, in the format of [`read_into`](BundleReader::read_into).
    pub fn bytes(&self, key: &str) -> FileResult<Vec<u8>> {
        let entry = self.numeric(key)?;
        self.backed(key, entry)?;
        let mut bytes = vec![0; entry.bytes() as usize];
        self.read_into(key, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the strings under `key`. Fails if there are none, if the tensor has another type, or if its bytes are missing or damaged.
    pub fn strings(&self, key: &str) -> FileResult<Strings> {
        let entry = self.known(key)?;
        if entry.dtype() != DataType::DtString {
            return Err(self.error(format!("tensor {key:?} has elements of {}, not strings", dtype_name(entry.dtype()))));
        }
        let shape = self.shape(key, entry)?;
        let values = self.read_strings(key, entry)?;
        Strings::new(values, shape.dims()).map_err(|error| self.error(format!("tensor {key:?}: {error}")))
    }

    /// Reads the tensor `key` into a tensor on `device`. Fails in the same cases as [`read_into`](BundleReader::read_into), or if
    /// gradlet does not support the element type or the shape.
    pub fn tensor(&self, key: &str, device: &Device) -> FileResult<Tensor> {
        let entry = self.known(key)?;
        let Some(dtype) = own_dtype(entry.dtype()) else {
            let text = format!("tensor {key:?} has elements of {}, which gradlet's tensors do not support", dtype_name(entry.dtype()));
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
        let damaged = if self.damage().is_empty() { "" } else { ", but its index is damaged" };
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

    /// Checks that the data files are at least as long as the tensor, before memory is allocated for it.
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
            false => Err(self.error(format!("tensor {key:?} has {} bytes, but its data files only have {length}", entry.bytes()))),
        }
    }

    /// Returns the slices of a tensor, each with its region of the whole tensor.
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

    /// Reads the bytes of an entry as they are stored.
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

/// Returns the number of elements.
fn elements(entry: &Entry) -> usize {
    entry.elements().unwrap_or(u64::MAX) as usize
}

impl Bundle {
    /// Reads as much of an index as possible, and collects the damage.
    fn read(prefix: &Path) -> FileResult<Bundle> {
        let path = index_path(prefix);
        let file = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => FileError::new(
                &path,
                "there is no such file: give the prefix of a checkpoint, with its number and without an ending, as in `ckpt-1`",
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
                damage.push(FileError::new(&path, "the index has no header"));
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
        let proto = BundleEntryProto::decode(value).map_err(|error| format!("tensor {name:?} has an invalid entry: {error}"))?;
        let entry = Entry::new(proto, shards).map_err(|text| format!("tensor {name:?}: {text}"))?;
        if key.first() == Some(&0) {
            self.slices.insert(key, entry);
            return Ok(());
        }
        let key = String::from_utf8(key).map_err(|_| format!("the name {name:?} is not UTF-8"))?;
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Returns the slices of a tensor, each with its region of the whole tensor. The list is empty if the tensor is not stored in
    /// slices. Fails if the slices do not cover the whole tensor.
    fn cut(&self, key: &str, entry: &Entry) -> Result<Vec<(&Entry, Region)>, String> {
        if entry.proto().slices.is_empty() {
            return Ok(Vec::new());
        }
        let size = element_bytes(entry.dtype()).ok_or("slices of elements without a fixed size are not supported")?;
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
            false => Err(format!("its slices have {total} bytes, but the whole tensor has {}", entry.bytes())),
        }
    }
}

fn check(header: &BundleHeaderProto) -> Result<(), String> {
    if header.endianness != Endianness::Little as i32 {
        return Err("the checkpoint is from a big-endian machine: only little-endian ones are supported".into());
    }
    if header.num_shards < 0 {
        return Err(format!("the header states an invalid number of data files: {}", header.num_shards));
    }
    let version = header.version.clone().unwrap_or_default();
    if version.min_consumer > VERSION || version.bad_consumers.contains(&VERSION) {
        return Err(format!("the file needs a reader of version {} or later, but this one has version {VERSION}", version.min_consumer));
    }
    Ok(())
}
