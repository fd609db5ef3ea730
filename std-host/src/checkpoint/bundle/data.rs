//! The data files of a checkpoint. Ranges of bytes are read together with their checksums.

use super::crc::Crc;
use super::data_path;
use crate::files::{FileError, FileResult};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Size, in bytes, of the pieces that are read at a time. A piece is still in the CPU's cache when its checksum is computed.
const PIECE: usize = 256 << 10;
/// Minimum size, in bytes, of a range that two threads read together.
const LARGE: usize = 8 << 20;

/// The data files of a checkpoint, opened on demand.
pub struct Data {
    prefix: PathBuf,
    shards: u32,
    /// The data file that was used last, with its number.
    last: Mutex<Option<(u32, Arc<File>)>>,
}

/// Location of the bytes of a tensor.
#[derive(Clone, Copy)]
pub struct Place<'k> {
    pub key: &'k str,
    pub shard: u32,
    pub offset: u64,
    pub size: u64,
}

impl Data {
    pub fn new(prefix: &Path, shards: u32) -> Data {
        Data { prefix: prefix.into(), shards, last: Mutex::default() }
    }

    pub fn path(&self, shard: u32) -> PathBuf {
        data_path(&self.prefix, shard, self.shards)
    }

    fn io(&self, place: Place<'_>, error: &std::io::Error) -> FileError {
        FileError::new(&self.path(place.shard), format!("tensor {:?}: {error}", place.key))
    }

    /// Opens the data file and checks that it contains all of `place`. Returns the file and its length.
    fn file(&self, place: Place<'_>) -> FileResult<(Arc<File>, u64)> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &*last {
            Some((shard, file)) if *shard == place.shard => file.clone(),
            _ => Arc::new(File::open(self.path(place.shard)).map_err(|error| self.io(place, &error))?),
        };
        *last = Some((place.shard, file.clone()));
        drop(last);
        let length = file.metadata().map_err(|error| self.io(place, &error))?.len();
        if place.offset + place.size > length {
            let missing = place.offset + place.size - length;
            let text = format!("tensor {:?}: the file ends at byte {length}, {missing} bytes too early", place.key);
            return Err(FileError::at(&self.path(place.shard), place.offset, text));
        }
        Ok((file, length))
    }

    /// Returns the length of the data file, after a check that it contains all of `place`. Callers check this before they allocate memory.
    pub fn length(&self, place: Place<'_>) -> FileResult<u64> {
        self.file(place).map(|(_, length)| length)
    }

    /// Reads the bytes at `place` into `into`, which has the same length. Returns the masked checksum.
    pub fn read(&self, place: Place<'_>, into: &mut [u8]) -> FileResult<u32> {
        let (file, _) = self.file(place)?;
        let read = |into: &mut [u8], mut offset: u64| {
            let mut crc = Crc::new();
            for piece in into.chunks_mut(PIECE) {
                read_at(&file, piece, offset)?;
                crc.update(piece);
                offset += piece.len() as u64;
            }
            Ok(crc)
        };
        let half = into.len() / 2;
        let crc = match into.len() < LARGE {
            true => read(into, place.offset),
            false => {
                let (first, second) = into.split_at_mut(half);
                both(|| read(first, place.offset), || read(second, place.offset + half as u64))
            }
        };
        crc.map(|crc| crc.masked()).map_err(|error| self.io(place, &error))
    }

    /// Calls `take` for each piece of the bytes at `place`, with the offset of the piece in `place`. Returns the masked checksum.
    pub fn pieces(&self, place: Place<'_>, mut take: impl FnMut(usize, &[u8])) -> FileResult<u32> {
        let (file, _) = self.file(place)?;
        let crc = pieces(&file, place.offset, place.size, &mut take);
        crc.map(|crc| crc.masked()).map_err(|error| self.io(place, &error))
    }

    /// Returns the masked checksum of the bytes at `place`. Holds only one piece of them in memory at a time.
    pub fn checksum(&self, place: Place<'_>) -> FileResult<u32> {
        let (file, _) = self.file(place)?;
        let sum = |offset, size| pieces(&file, offset, size, &mut |_, _| ());
        let half = place.size / 2;
        let crc = match place.size < LARGE as u64 {
            true => sum(place.offset, place.size),
            false => both(|| sum(place.offset, half), || sum(place.offset + half, place.size - half)),
        };
        crc.map(|crc| crc.masked()).map_err(|error| self.io(place, &error))
    }
}

fn pieces(file: &File, offset: u64, size: u64, take: &mut dyn FnMut(usize, &[u8])) -> std::io::Result<Crc> {
    let (mut buffer, mut crc, mut at) = (vec![0; size.min(PIECE as u64) as usize], Crc::new(), 0);
    while at < size {
        let piece = &mut buffer[..(size - at).min(PIECE as u64) as usize];
        read_at(file, piece, offset + at)?;
        crc.update(piece);
        take(at as usize, piece);
        at += piece.len() as u64;
    }
    Ok(crc)
}

/// Computes the checksums of two adjacent parts on two threads, and combines them.
fn both(first: impl FnOnce() -> std::io::Result<Crc> + Send, second: impl FnOnce() -> std::io::Result<Crc> + Send) -> std::io::Result<Crc> {
    thread::scope(|threads| {
        let second = threads.spawn(second);
        let mut crc = first()?;
        let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        crc.append(&second);
        Ok(crc)
    })
}

#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut into: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                into = &mut into[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}
