//! Flat checkpoints: the values of an artifact's variables, for files, streams and flash.
//!
//! A device saves its trained variables with [`Session::save`](crate::Session::save) and restores them with
//! [`Session::restore`](crate::Session::restore), through any [`embedded_io`] writer and reader and without a heap.
//! [`Slots`](crate::runtime::Slots) keeps checkpoints in flash. A host reads a checkpoint with [`FlatCheckpoint`], and writes one from
//! any values with [`write()`]. `SPEC.md` specifies the format.

mod budget;
mod restoring;
mod saving;
mod session;
mod slice;

pub(crate) use budget::{Budget, Whole};
pub(crate) use restoring::{Renamed, Restoring, Target};
pub use saving::Contents;
pub(crate) use saving::Saving;
pub use slice::{Entries, FlatCheckpoint};

use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::runtime::program::{Checksum, NONE, Program, VariableRecord, checksum};
use embedded_io::{Error as _, ErrorKind, Write};

/// The first four bytes of a checkpoint.
pub const MAGIC: [u8; 4] = *b"GRDC";
/// The format version that this crate writes and reads, as (major, minor).
pub const VERSION: (u16, u16) = (1, 0);

/// Number of words in the header: magic, version, length of the artifact, checksum of the artifact, number of entries, size in bytes.
const HEADER: usize = 6;
/// Number of words in an entry's head: variable; element type and rank; size of the body in bytes.
const HEAD: usize = 3;
/// Size of the header in bytes. The header is stored twice, with a checksum each time.
const HEADER_BYTES: u32 = frame_bytes(HEADER);
/// Size of an entry without its body, in bytes: its head, and the checksum at its end.
const ENTRY_BYTES: u32 = frame_bytes(HEAD) + 4;

const fn frame_bytes(words: usize) -> u32 {
    (2 * 4 * (words + 1)) as u32
}

/// The identity of an artifact. A checkpoint stores the identity of the artifact that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Identity {
    /// Length of the artifact, in bytes.
    pub length: u32,
    /// CRC-32C of the artifact's bytes, as its header stores it.
    pub checksum: u32,
}

impl Program<'_> {
    /// Returns the identity of this artifact.
    pub fn identity(&self) -> Identity {
        Identity { length: self.header.length, checksum: self.header.checksum }
    }
}

/// The value of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    /// The variable's index in the artifact.
    pub variable: u32,
    /// The variable's type.
    pub tensor_type: TensorType,
    /// The elements, little-endian, in row-major order.
    pub data: &'a [u8],
}

/// The faults of this module. Details are kept separately, so that a fault takes much less code than an [`Error`].
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    NotACheckpoint,
    Version,
    OtherArtifact,
    Damaged,
    CutShort,
    NoSuchTensor,
    TensorType,
    InFlash,
    Worn,
    Io(ErrorKind),
    NotFinite,
}

impl Fault {
    /// Converts the fault into an error. `detail` is the variable, version, checksum of the artifact, or slot that the error names.
    #[inline(never)]
    pub(crate) fn error(self, detail: u32) -> Error {
        match self {
            Fault::NotACheckpoint => Error::NotACheckpoint,
            Fault::Version => Error::CheckpointVersion { major: detail as u16, minor: (detail >> 16) as u16 },
            Fault::OtherArtifact => Error::OtherArtifact { checksum: detail },
            Fault::Damaged => Error::Damaged { variable: (detail != NONE).then_some(detail) },
            Fault::CutShort => Error::CutShort,
            Fault::NoSuchTensor => Error::NoSuchTensor { index: detail },
            Fault::TensorType => Error::TensorType { index: detail },
            Fault::InFlash => Error::InFlash { variable: detail },
            Fault::Worn => Error::Worn { slot: detail },
            Fault::Io(kind) => Error::Io { kind },
            Fault::NotFinite => Error::VariableNotFinite { variable: detail },
        }
    }
}

/// Converts a fault that concerns no variable into an error.
fn told(outcome: Outcome) -> Result<()> {
    outcome.map_err(|fault| fault.error(NONE))
}

pub(crate) type Outcome<T = ()> = Result<T, Fault>;
/// A variable's index, its type and the bytes of its elements.
type Value<'a> = (u32, &'a TensorType, &'a [u8]);

/// A destination for bytes.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]) -> Outcome;
}

/// A source of bytes.
pub(crate) trait Take {
    /// Fills `bytes` with the next bytes of the source.
    fn take(&mut self, bytes: &mut [u8]) -> Outcome;
}

struct Writer<'a, W>(&'a mut W);

impl<W: Write> Put for Writer<'_, W> {
    // Like `write_all`, which would link a panic.
    fn put(&mut self, mut bytes: &[u8]) -> Outcome {
        while !bytes.is_empty() {
            let written = self.0.write(bytes).map_err(|error| Fault::Io(error.kind()))?;
            bytes = bytes.get(written..).filter(|_| written > 0).ok_or(Fault::Io(ErrorKind::WriteZero))?;
        }
        Ok(())
    }
}

impl<W: Write> Writer<'_, W> {
    fn flush(&mut self) -> Outcome {
        self.0.flush().map_err(|error| Fault::Io(error.kind()))
    }
}

/// A source from which a checkpoint is read.
pub(crate) struct Reading<'a> {
    bytes: &'a mut dyn Take,
    /// The variable, version or artifact that a fault refers to; [`NONE`] if there is none.
    detail: u32,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(bytes: &'a mut dyn Take) -> Reading<'a> {
        Reading { bytes, detail: NONE }
    }

    /// Converts the fault of `outcome` into an error about [`Reading::detail`].
    pub(crate) fn outcome<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|fault| fault.error(self.detail))
    }
}

/// Writes a checkpoint of `entries` for the artifact `artifact`.
///
/// ```
/// use gradlet_core::runtime::checkpoint::{Entry, FlatCheckpoint, Identity, write};
/// use gradlet_core::{DType, Shape, TensorType};
/// let bias = Entry { variable: 1, tensor_type: TensorType::new(DType::U8, Shape::new(&[2])?), data: &[7, 9] };
/// let artifact = Identity { length: 1024, checksum: 0x1234_5678 };
/// let mut bytes = [0; 98];
/// write(&mut &mut bytes[..], artifact, [bias].into_iter())?;
/// let read = FlatCheckpoint::parse(&bytes)?;
/// assert_eq!(read.artifact(), artifact);
/// assert_eq!(read.entries().next(), Some(Ok(bias)));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Fails with [`Error::NoSuchTensor`] if the variables are not in ascending order, with [`Error::TensorType`] if the length of an entry's
/// data does not match its type, with [`Error::TooLarge`] if the checkpoint exceeds 4 GiB, and with [`Error::Io`] if the writer does.
pub fn write<'v, W: Write>(writer: &mut W, artifact: Identity, entries: impl Iterator<Item = Entry<'v>> + Clone) -> Result<()> {
    let (mut next, mut count, mut bytes) = (0, 0, HEADER_BYTES);
    for Entry { variable, tensor_type, data } in entries.clone() {
        let index = variable;
        next = variable.checked_add(1).filter(|_| variable >= next).ok_or(Error::NoSuchTensor { index })?;
        if tensor_type.bytes() != Some(data.len()) {
            return Err(Error::TensorType { index });
        }
        measure((variable, &tensor_type, data), &mut count, &mut bytes);
    }
    if bytes == u32::MAX {
        return Err(Error::TooLarge);
    }
    let mut writer = Writer(writer);
    told(put_header(&mut writer, artifact, count, bytes))?;
    for entry in entries {
        told(put_value(&mut writer, (entry.variable, &entry.tensor_type, entry.data)))?;
    }
    told(writer.flush())
}

/// Returns the element type and rank as an entry's head stores them, and the dimensions, which begin its body.
fn parts(tensor_type: &TensorType) -> (u32, &[u8]) {
    let dims = tensor_type.shape.dims();
    (tensor_type.dtype as u32 | (dims.len() as u32) << 8, bytemuck::cast_slice(dims))
}

/// Adds one to the number of entries, and the entry's size to the size of the checkpoint.
fn measure((_, tensor_type, data): Value<'_>, count: &mut u32, bytes: &mut u32) {
    let body = u32::try_from(parts(tensor_type).1.len() + data.len()).unwrap_or(u32::MAX);
    *bytes = bytes.saturating_add(ENTRY_BYTES).saturating_add(body);
    *count += 1;
}

fn put_header(put: &mut dyn Put, artifact: Identity, count: u32, bytes: u32) -> Outcome {
    let version = u32::from(VERSION.0) | u32::from(VERSION.1) << 16;
    put_frame(put, &[u32::from_le_bytes(MAGIC), version, artifact.length, artifact.checksum, count, bytes])
}

fn put_value(put: &mut dyn Put, value: Value<'_>) -> Outcome {
    let (_, _, data) = value;
    let sum = put_head(put, value)?.add(data);
    put.put(data)?;
    put.put(&sum.get().to_le_bytes())
}

/// Writes the part of an entry before its elements. Returns the checksum of the entry so far.
fn put_head(put: &mut dyn Put, (variable, tensor_type, data): Value<'_>) -> Outcome<Checksum> {
    let (kind, dims) = parts(tensor_type);
    let head = [variable, kind, (dims.len() + data.len()) as u32];
    put_frame(put, &head)?;
    put.put(dims)?;
    Ok(Checksum::NEW.add(bytemuck::cast_slice(&head)).add(dims))
}

/// Writes `words` twice, each time with their checksum, so that a reader can use the second copy if the first is damaged.
fn put_frame(put: &mut dyn Put, words: &[u32]) -> Outcome {
    let words = bytemuck::cast_slice(words);
    let sum = checksum(words).to_le_bytes();
    for _ in 0..2 {
        put.put(words)?;
        put.put(&sum)?;
    }
    Ok(())
}

/// Reads `words` as [`put_frame`] writes them. They come from a copy with the right checksum; if neither copy has it, they come from the
/// second one. Returns the number of intact copies.
#[inline(never)]
fn take_frame(source: &mut Reading<'_>, words: &mut [u32]) -> Outcome<u8> {
    let (mut copy, mut sum, mut whole) = ([0; HEADER], [0; 4], 0);
    let copy = copy.get_mut(..words.len()).unwrap_or_default();
    for _ in 0..2 {
        source.bytes.take(bytemuck::cast_slice_mut(copy))?;
        source.bytes.take(&mut sum)?;
        let fits = checksum(bytemuck::cast_slice(copy)).to_le_bytes() == sum;
        if fits || whole == 0 {
            words.iter_mut().zip(&*copy).for_each(|(word, copy)| *word = *copy);
        }
        whole += u8::from(fits);
    }
    Ok(whole)
}

/// The contents of a header.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) artifact: Identity,
    /// Number of entries.
    count: u32,
    /// Size of all entries, in bytes.
    bytes: u32,
    /// True if both copies of the header are intact.
    whole: bool,
}

impl Header {
    pub(crate) fn take(source: &mut Reading<'_>) -> Outcome<Header> {
        let mut words = [0; HEADER];
        let copies = take_frame(source, &mut words)?;
        let [magic, version, length, checksum, count, bytes] = words;
        if magic != u32::from_le_bytes(MAGIC) {
            return Err(Fault::NotACheckpoint);
        }
        if version as u16 != VERSION.0 || (version >> 16) as u16 > VERSION.1 {
            source.detail = version;
            return Err(Fault::Version);
        }
        let bytes = bytes.checked_sub(HEADER_BYTES).filter(|_| copies > 0).ok_or(Fault::Damaged)?;
        Ok(Header { artifact: Identity { length, checksum }, count, bytes, whole: copies == 2 })
    }
}

/// Returns the record and the type of a variable, or `None` if there is no variable with this index.
#[inline(never)]
fn find<'p>(program: &'p Program<'_>, variable: u32) -> Option<(&'p VariableRecord, &'p TensorType)> {
    let record = program.variables.get(variable as usize)?;
    let tensor = program.tensors.get(record.tensor as usize)?;
    Some((record, program.types.get(usize::from(tensor.tensor_type))?))
}

/// True if the bytes of a variable's initial value, from `at` on, begin with `bytes`.
#[inline(never)]
fn is_initial(program: &Program<'_>, record: &VariableRecord, at: usize, bytes: &[u8]) -> bool {
    match program.initial(record) {
        [] => bytes.iter().all(|&byte| byte == 0),
        initial => initial.get(at..).and_then(|rest| rest.get(..bytes.len())).is_some_and(|initial| same(initial, bytes)),
    }
}

/// True if the bytes are equal. Faster than `==`, which compares byte by byte.
#[inline(never)]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    a.len() == b.len() && words.iter().zip(other_words).all(|(word, other)| word == other) && rest == other_rest
}
