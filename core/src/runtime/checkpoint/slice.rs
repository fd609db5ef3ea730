//! Checkpoints that are completely in memory, and their entries, read in place.

use super::{Entry, Fault, HEAD, HEADER_BYTES, Header, Identity, Outcome, Reading, Take, take_frame};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{MAX_RANK, Shape, TensorType};
use crate::runtime::program::Checksum;

/// A checkpoint in memory, read in place.
///
/// ```
/// # fn values(bytes: &[u8]) -> gradlet_core::Result<()> {
/// let checkpoint = gradlet_core::runtime::checkpoint::FlatCheckpoint::parse(bytes)?;
/// checkpoint.verify()?; // optional: the intact entries of a damaged checkpoint are readable too
/// for entry in checkpoint.entries() {
///     let entry = entry?;
///     println!("variable {}: {}, {} bytes", entry.variable, entry.tensor_type, entry.data.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct FlatCheckpoint<'a> {
    header: Header,
    /// The bytes after the header.
    rest: &'a [u8],
}

impl<'a> FlatCheckpoint<'a> {
    /// Reads the header. Bytes after the end of the checkpoint are ignored.
    ///
    /// Fails with [`Error::NotACheckpoint`] or [`Error::CheckpointVersion`], with [`Error::CutShort`] if the header is incomplete, and
    /// with [`Error::Damaged`] if both copies of the header are damaged.
    pub fn parse(bytes: &'a [u8]) -> Result<FlatCheckpoint<'a>> {
        let mut rest = bytes;
        let mut source = Reading::new(&mut rest);
        let header = Header::take(&mut source);
        let header = source.outcome(header)?;
        Ok(FlatCheckpoint { header, rest: rest.get(..header.bytes as usize).unwrap_or(rest) })
    }

    /// Returns the identity of the artifact that the checkpoint belongs to.
    pub fn artifact(&self) -> Identity {
        self.header.artifact
    }

    /// Returns the size of the whole checkpoint, in bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.header.bytes) + u64::from(HEADER_BYTES)
    }

    /// Returns an iterator over the entries, ascending by variable. A damaged entry is an error that names its variable
    /// ([`Error::Damaged`] or [`Error::TensorType`]), and the iterator continues with the next entry. The iterator ends where the next
    /// entry cannot be found: after an error that names no variable, after [`Error::CutShort`], and after a variable that is out of
    /// order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { rest: self.rest, left: self.header.count, next: 0, whole: true }
    }

    /// Checks every bit of the checkpoint. Fails with the first error of [`FlatCheckpoint::entries`]. Also fails with [`Error::Damaged`]
    /// if one of the two copies of the header or of a head is damaged.
    pub fn verify(&self) -> Result<()> {
        let damaged = Error::Damaged { variable: None };
        if !self.header.whole {
            return Err(damaged);
        }
        let mut entries = self.entries();
        while let Some(entry) = entries.next() {
            let variable = Some(entry?.variable);
            if !entries.whole {
                return Err(Error::Damaged { variable });
            }
        }
        match self.rest.len() < self.header.bytes as usize {
            true => Err(Error::CutShort),
            false if entries.rest.is_empty() => Ok(()),
            false => Err(damaged),
        }
    }
}

/// An iterator over the entries of a checkpoint, returned by [`FlatCheckpoint::entries`].
#[derive(Clone)]
pub struct Entries<'a> {
    rest: &'a [u8],
    left: u32,
    /// Smallest variable index that the next entry can have.
    next: u32,
    /// False if a copy of the last head was damaged.
    whole: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        self.left = self.left.checked_sub(1)?;
        let found = self.find();
        if found.is_err() {
            self.left = 0;
        }
        Some(found.and_then(|(head, body)| entry(head, body)))
    }
}

impl<'a> Entries<'a> {
    /// Returns the head of the next entry, and its body with the checksum.
    fn find(&mut self) -> Result<([u32; HEAD], &'a [u8])> {
        let mut head = [0; HEAD];
        let mut source = Reading::new(&mut self.rest);
        let copies = take_frame(&mut source, &mut head);
        let copies = source.outcome(copies)?;
        self.whole = copies == 2;
        let [variable, _, bytes] = head;
        if copies == 0 {
            return Err(Error::Damaged { variable: None });
        }
        if variable < self.next {
            return Err(Error::Damaged { variable: Some(variable) });
        }
        self.next = variable.saturating_add(1);
        let end = (bytes as usize).checked_add(4).ok_or(Error::CutShort)?;
        let (body, rest) = self.rest.split_at_checked(end).ok_or(Error::CutShort)?;
        self.rest = rest;
        Ok((head, body))
    }
}

fn entry(head: [u32; HEAD], body: &[u8]) -> Result<Entry<'_>> {
    let [variable, kind, _] = head;
    let head = Checksum::NEW.add(bytemuck::cast_slice(&head));
    let whole = body.split_last_chunk().filter(|(body, sum)| head.add(body).get().to_le_bytes() == **sum);
    let (body, _) = whole.ok_or(Error::Damaged { variable: Some(variable) })?;
    let (tensor_type, data) = typed(kind, body).ok_or(Error::TensorType { index: variable })?;
    Ok(Entry { variable, tensor_type, data })
}

/// Parses the body of an entry: the dimensions, which complete its type, and the elements after them. Returns `None` if the type or the
/// size is invalid.
fn typed(kind: u32, body: &[u8]) -> Option<(TensorType, &[u8])> {
    let (dtype, rank) = (DType::from_code(kind as u8)?, (kind >> 8) as usize);
    let (words, data) = body.split_at_checked(4 * Some(rank).filter(|&rank| rank <= MAX_RANK)?)?;
    let mut shape = Shape::SCALAR;
    for word in words.chunks_exact(4) {
        shape.push(u32::from_le_bytes(word.try_into().ok()?)).ok()?;
    }
    let tensor_type = TensorType::new(dtype, shape);
    (tensor_type.bytes()? == data.len()).then_some((tensor_type, data))
}

impl Take for &[u8] {
    fn take(&mut self, bytes: &mut [u8]) -> Outcome {
        let (taken, rest) = self.split_at_checked(bytes.len()).ok_or(Fault::CutShort)?;
        bytes.copy_from_slice(taken);
        *self = rest;
        Ok(())
    }
}
