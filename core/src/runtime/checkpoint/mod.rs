//! Flat checkpoints: the values of an artifact's variables, for files, streams and flash.
//!
//! A device saves what it learnt with [`Session::save`](crate::Session::save) and takes it back with
//! [`Session::restore`](crate::Session::restore), through any [`embedded_io`] writer and reader, without a heap; [`Slots`](crate::Slots)
//! keeps checkpoints in flash. A host reads one with [`FlatCheckpoint`] and makes one of any values with [`write()`]. `SPEC.md` has the
//! format.

mod session;
mod slice;

pub use session::Contents;
pub use slice::{Entries, FlatCheckpoint};

use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::runtime::program::{Checksum, NONE, Program, checksum};
use embedded_io::{Error as _, ErrorKind, Write};

/// The first bytes of a checkpoint.
pub const MAGIC: [u8; 4] = *b"GRDC";
/// The format version that this crate writes and reads, as (major, minor).
pub const VERSION: (u16, u16) = (1, 0);

/// The words of the header: magic, version, length and checksum of the artifact, entries, bytes.
const HEADER: usize = 6;
/// The words of an entry's head: variable, element type and rank, bytes of its body.
const HEAD: usize = 3;
/// The bytes of the header, which is written twice with a checksum each time.
const HEADER_BYTES: u32 = frame_bytes(HEADER);
/// The bytes of an entry beside its body: its head, and the checksum at its end.
const ENTRY_BYTES: u32 = frame_bytes(HEAD) + 4;

const fn frame_bytes(words: usize) -> u32 {
    (2 * 4 * (words + 1)) as u32
}

/// What tells an artifact from others: a checkpoint says which one it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(serde::Serialize, serde::Deserialize))]
pub struct Identity {
    /// The bytes of the artifact.
    pub length: u32,
    /// The CRC-32C of its bytes, as its header has it.
    pub checksum: u32,
}

impl Program<'_> {
    /// What tells this artifact from others.
    pub fn identity(&self) -> Identity {
        Identity { length: self.header.length, checksum: self.header.checksum }
    }
}

/// The value of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    /// The variable's index in the artifact.
    pub variable: u32,
    /// Its type.
    pub tensor_type: TensorType,
    /// Its elements, little-endian, in row-major order.
    pub data: &'a [u8],
}

/// What can go wrong in here: one byte, which makes for much less code than an [`Error`].
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
}

impl Fault {
    /// The error, of this variable, version, artifact or slot.
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
        }
    }
}

/// The error of a fault that is about no variable.
fn told(outcome: Outcome) -> Result<()> {
    outcome.map_err(|fault| fault.error(NONE))
}

pub(crate) type Outcome<T = ()> = Result<T, Fault>;
/// A variable with its type and its elements.
type Value<'a> = (u32, &'a TensorType, &'a [u8]);

/// What takes bytes that are to be written.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]) -> Outcome;
}

/// What fills a buffer with the next bytes.
pub(crate) trait Take {
    fn take(&mut self, bytes: &mut [u8]) -> Outcome;
}

struct Writer<'a, W>(&'a mut W);

impl<W: Write> Put for Writer<'_, W> {
    // As `write_all`, which would link a panic.
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

/// Where a checkpoint is read from.
pub(crate) struct Reading<'a> {
    bytes: &'a mut dyn Take,
    /// What a fault is about: a variable, a version, an artifact.
    detail: u32,
}

impl<'a> Reading<'a> {
    fn new(bytes: &'a mut dyn Take) -> Reading<'a> {
        Reading { bytes, detail: NONE }
    }

    /// What was read, or the error of a fault.
    fn outcome<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|fault| fault.error(self.detail))
    }
}

/// Writes a checkpoint of these values, for the artifact `artifact`.
///
/// ```
/// use gradlet_core::checkpoint::{Entry, FlatCheckpoint, Identity, write};
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
/// Fails with [`Error::NoSuchTensor`] where a variable does not come after the one before it, with [`Error::TensorType`] where data has
/// not the bytes of its type, with [`Error::TooLarge`] beyond 4 GiB, and with [`Error::Io`].
pub fn write<'v, W: Write>(writer: &mut W, artifact: Identity, entries: impl Iterator<Item = Entry<'v>> + Clone) -> Result<()> {
    let (mut next, mut count, mut bytes) = (0, 0, HEADER_BYTES);
    for Entry { variable, tensor_type, data } in entries.clone() {
        let index = variable;
        next = variable.checked_add(1).filter(|_| variable >= next).ok_or(Error::NoSuchTensor { index })?;
        if tensor_type.bytes().map(|bytes| bytes as usize) != Some(data.len()) {
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

/// Element type and rank, as a head has them, and the dimensions, which begin a body.
fn parts(tensor_type: &TensorType) -> (u32, &[u8]) {
    let dims = tensor_type.shape.dims();
    (tensor_type.dtype as u32 | (dims.len() as u32) << 8, bytemuck::cast_slice(dims))
}

/// Counts an entry, and adds its bytes to those of the checkpoint.
fn measure((_, tensor_type, data): Value<'_>, count: &mut u32, bytes: &mut u32) {
    let body = u32::try_from(parts(tensor_type).1.len() + data.len()).unwrap_or(u32::MAX);
    *bytes = bytes.saturating_add(ENTRY_BYTES).saturating_add(body);
    *count += 1;
}

fn put_header(put: &mut dyn Put, artifact: Identity, count: u32, bytes: u32) -> Outcome {
    let version = u32::from(VERSION.0) | u32::from(VERSION.1) << 16;
    put_frame(put, &[u32::from_le_bytes(MAGIC), version, artifact.length, artifact.checksum, count, bytes])
}

fn put_value(put: &mut dyn Put, (variable, tensor_type, data): Value<'_>) -> Outcome {
    let (kind, dims) = parts(tensor_type);
    let head = [variable, kind, (dims.len() + data.len()) as u32];
    put_frame(put, &head)?;
    let sum = Checksum::NEW.add(bytemuck::cast_slice(&head)).add(dims).add(data);
    for part in [dims, data, &sum.get().to_le_bytes()] {
        put.put(part)?;
    }
    Ok(())
}

/// Writes `words` twice, each time with their checksum: what was lost of one copy, the other one has.
fn put_frame(put: &mut dyn Put, words: &[u32]) -> Outcome {
    let words = bytemuck::cast_slice(words);
    let sum = checksum(words).to_le_bytes();
    for _ in 0..2 {
        put.put(words)?;
        put.put(&sum)?;
    }
    Ok(())
}

/// Reads `words` as [`put_frame`] writes them: from a copy that is whole, or the second one if none is. Gives how many are.
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

/// What a header says.
#[derive(Clone, Copy)]
struct Header {
    artifact: Identity,
    /// The number of entries.
    count: u32,
    /// The bytes of all entries.
    bytes: u32,
    /// True if both copies are whole.
    whole: bool,
}

impl Header {
    #[inline(always)]
    fn take(source: &mut Reading<'_>) -> Outcome<Header> {
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
