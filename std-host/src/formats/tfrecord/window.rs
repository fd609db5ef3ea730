//! The part of a stream that is in memory.

use super::compression::Compression;
use super::error::Fault;
use super::inflate::Inflate;
use std::io::{self, Read};

/// A part of a stream, which moves on.
pub(super) struct Window<R> {
    source: Input<R>,
    /// Of this, `start..end` was read and not yet taken.
    block: Vec<u8>,
    start: usize,
    end: usize,
    /// Where `start` is in the stream.
    offset: u64,
}

enum Input<R> {
    Plain(R),
    Deflated(Box<Inflate<R>>),
}

impl<R: Read> Window<R> {
    /// Nothing is read yet of what `from` gives, which will be read `size` bytes at a time.
    pub fn new(from: R, compression: Compression, size: usize) -> Window<R> {
        let size = size.max(64);
        let source = match compression {
            Compression::None => Input::Plain(from),
            Compression::Gzip | Compression::Zlib => Input::Deflated(Box::new(Inflate::new(from, compression, size))),
        };
        Window { source, block: vec![0; size], start: 0, end: 0, offset: 0 }
    }

    /// Where the window begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Says that the stream begins at `offset` of another one.
    pub fn begin_at(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The bytes in memory.
    pub fn bytes(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }

    /// Reads until `count` bytes are in memory; they are fewer only if the stream ends. Gives how many there are.
    pub fn want(&mut self, count: usize) -> Result<usize, Fault> {
        while self.end - self.start < count {
            self.make_room(count);
            match self.source.read(&mut self.block[self.end..]) {
                Ok(0) => return self.failure().map_or(Ok(self.end - self.start), Err),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(Fault::Io(error)),
            }
        }
        Ok(count)
    }

    /// Room for one more byte at least. A block that is full of what was wanted doubles: whatever `count` claims, it is
    /// never much more than what was there to be read.
    fn make_room(&mut self, count: usize) {
        if count <= self.block.len() - self.start {
            return;
        }
        self.block.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.block.len() {
            self.block.resize(count.min(2 * self.end), 0);
        }
    }

    /// Takes `count` bytes that are in memory. Gives where they are, up to the next call.
    pub fn take(&mut self, count: usize) -> std::ops::Range<usize> {
        let from = self.start;
        self.start = self.end.min(from + count);
        self.offset += (self.start - from) as u64;
        from..self.start
    }

    /// What was taken.
    pub fn taken(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.block[range]
    }

    /// False if a compressed stream ended before its end.
    pub fn is_whole(&self) -> bool {
        match &self.source {
            Input::Plain(_) => true,
            Input::Deflated(inflate) => inflate.is_whole(),
        }
    }

    /// Why a stream is damaged at what was read last, if that is known better than by what is in it.
    pub fn failure(&mut self) -> Option<Fault> {
        match &mut self.source {
            Input::Plain(_) => None,
            Input::Deflated(inflate) => inflate.take_failure(),
        }
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(from) => from.read(into),
            Input::Deflated(inflate) => inflate.read(into),
        }
    }
}
