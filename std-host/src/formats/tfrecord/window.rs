//! Buffer for a part of a stream.

use super::compression::Compression;
use super::error::Fault;
use super::inflate::Inflate;
use std::io::{self, Read};

/// Part of a stream that is in memory. It moves forward.
pub(super) struct Window<R> {
    source: Input<R>,
    /// Buffer. The bytes in `start..end` were read, but not yet taken.
    block: Vec<u8>,
    start: usize,
    end: usize,
    /// Position of `start` in the stream.
    offset: u64,
}

enum Input<R> {
    Plain(R),
    Deflated(Box<Inflate<R>>),
}

impl<R: Read> Window<R> {
    /// Creates an empty window on `from`, which will be read `size` bytes at a time.
    pub fn new(from: R, compression: Compression, size: usize) -> Window<R> {
        let size = size.max(64);
        let source = match compression {
            Compression::None => Input::Plain(from),
            Compression::Gzip | Compression::Zlib => Input::Deflated(Box::new(Inflate::new(from, compression, size))),
        };
        Window { source, block: vec![0; size], start: 0, end: 0, offset: 0 }
    }

    /// Returns the position of the window in the stream.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Sets the position of the window's start, for a source that begins at byte `offset` of the stream.
    pub fn begin_at(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Returns the bytes in memory that were not yet taken.
    pub fn bytes(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }

    /// Reads until at least `count` bytes are in memory, or the stream ends. Returns `count`, or the smaller number of bytes at the end.
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

    /// Makes room for at least one more byte. A full buffer doubles its size, so it never becomes much larger than the bytes that exist,
    /// whatever `count` claims.
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

    /// Takes `count` bytes that are in memory. Returns their range, which is valid until the next call.
    pub fn take(&mut self, count: usize) -> std::ops::Range<usize> {
        let from = self.start;
        self.start = self.end.min(from + count);
        self.offset += (self.start - from) as u64;
        from..self.start
    }

    /// Returns the bytes of a range that [`take`](Window::take) returned.
    pub fn taken(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.block[range]
    }

    /// False if a compressed stream is truncated. Valid once the stream has ended.
    pub fn is_whole(&self) -> bool {
        match &self.source {
            Input::Plain(_) => true,
            Input::Deflated(inflate) => inflate.is_whole(),
        }
    }

    /// Removes and returns the error of the decompressor, if there is one. It describes damage more precisely than an error in the record
    /// itself.
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
