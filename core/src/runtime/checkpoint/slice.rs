//! Checkpoints that are in memory whole: their entries, read in place.

use super::{Entry, Fault, HEAD, HEADER_BYTES, Header, Identity, Outcome, Reading, Take, take_frame};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{MAX_RANK, Shape, TensorType};
use crate::runtime::program::Checksum;

/// A checkpoint's bytes, read in place.
///
/// ```
/// # fn values(bytes: &[u8]) -> gradlet_core::Result<()> {
/// let checkpoint = gradlet_core::FlatCheckpoint::parse(bytes)?;
/// checkpoint.verify()?; // or not: what is whole of a damaged one can be read as well
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
    /// What follows the header.
    rest: &'a [u8],
}

impl<'a> FlatCheckpoint<'a> {
    /// Reads the header. Bytes after the checkpoint's own are ignored.
    ///
    /// Fails with [`Error::NotACheckpoint`], [`Error::CheckpointVersion`], [`Error::CutShort`] before the header's end, and
    /// [`Error::Damaged`] if both copies of the header are.
    pub fn parse(bytes: &'a [u8]) -> Result<FlatCheckpoint<'a>> {
        let mut rest = bytes;
        let mut source = Reading::new(&mut rest);
        let header = Header::take(&mut source);
        let header = source.outcome(header)?;
        Ok(FlatCheckpoint { header, rest: rest.get(..header.bytes as usize).unwrap_or(rest) })
    }

    /// The artifact that it belongs to.
    pub fn artifact(&self) -> Identity {
        self.header.artifact
    }

    /// The bytes of the whole checkpoint.
    pub fn bytes(&self) -> u64 {
        u64::from(self.header.bytes) + u64::from(HEADER_BYTES)
    }

    /// The values, by variable, ascending. A damaged one is an error that names it ([`Error::Damaged`], or [`Error::TensorType`]), and the
    /// next ones follow. After an error that names none, or [`Error::CutShort`], nothing can be found, and nothing follows.
    pub fn entries(&self) -> Entries<'a> {
        Entries { rest: self.rest, left: self.header.count, next: 0, whole: true }
    }

    /// Fails where a bit is wrong anywhere: with the first error of [`FlatCheckpoint::entries`], or with [`Error::Damaged`] also where a
    /// second copy makes up for it.
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

/// The values in a checkpoint: [`FlatCheckpoint::entries`].
#[derive(Clone)]
pub struct Entries<'a> {
    rest: &'a [u8],
    left: u32,
    /// The least variable that can follow.
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
    /// The head of the next entry, and its body with its checksum.
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

/// The type of an entry, whose dimensions begin its body, and the elements after them.
fn typed(kind: u32, body: &[u8]) -> Option<(TensorType, &[u8])> {
    let (dtype, rank) = (DType::from_code(kind as u8)?, (kind >> 8) as usize);
    let (words, data) = body.split_at_checked(4 * Some(rank).filter(|&rank| rank <= MAX_RANK)?)?;
    let mut shape = Shape::SCALAR;
    for word in words.chunks_exact(4) {
        shape.push(u32::from_le_bytes(word.try_into().ok()?)).ok()?;
    }
    let tensor_type = TensorType::new(dtype, shape);
    (tensor_type.bytes()? as usize == data.len()).then_some((tensor_type, data))
}

impl Take for &[u8] {
    fn take(&mut self, bytes: &mut [u8]) -> Outcome {
        let (taken, rest) = self.split_at_checked(bytes.len()).ok_or(Fault::CutShort)?;
        bytes.copy_from_slice(taken);
        *self = rest;
        Ok(())
    }
}
