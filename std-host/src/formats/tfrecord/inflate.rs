//! Decompression of a stream in the same steps as TensorFlow, so that errors occur at the same position.

use super::BLOCK;
use super::compression::Compression;
use super::error::Fault;
use flate2::{Decompress, FlushDecompress, Status};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Message of zlib-rs 0.6 for damage that its fast loop detects. The fast loop loses the cause. The slow loop keeps it, but takes three
/// times as long.
const LOST: &str = "repeated call with bad state";
/// Causes that the fast loop may have lost.
const CAUSES: &str = "invalid literal/length code, invalid distance code or invalid distance too far back";
/// Output size that forces the slow loop. The fast loop needs room for 260 bytes of output.
const SLOW: usize = 128;

/// Decompressed bytes of a compressed stream. A truncated stream ends without an error where its bytes end.
pub(super) struct Inflate<R> {
    from: R,
    compression: Compression,
    inflater: Decompress,
    /// Compressed bytes. Those in `input_at..input_end` are unused.
    input: Box<[u8]>,
    input_at: usize,
    input_end: usize,
    /// Number of compressed bytes read so far, up to `input_end`.
    consumed: u64,
    /// Output of the last step. Its first `output_at` bytes have been read.
    output: Vec<u8>,
    output_at: usize,
    begins: Option<Compression>,
    failed: Option<Fault>,
    ended: bool,
    complete: bool,
}

impl<R: Read> Inflate<R> {
    pub fn new(from: R, compression: Compression, input: usize) -> Inflate<R> {
        Inflate::with_room(from, compression, input, BLOCK)
    }

    /// Creates a decompressor like [`new`](Inflate::new), with room for `output` bytes at a time.
    fn with_room(from: R, compression: Compression, input: usize, output: usize) -> Inflate<R> {
        Inflate {
            from,
            compression,
            inflater: inflater(compression),
            input: vec![0; input].into(),
            input_at: 0,
            input_end: 0,
            consumed: 0,
            output: Vec::with_capacity(output),
            output_at: 0,
            begins: None,
            failed: None,
            ended: false,
            complete: false,
        }
    }

    /// Removes and returns the error that ends the stream, if there is one. It can be available before the output of the last step has
    /// been read.
    pub fn take_failure(&mut self) -> Option<Fault> {
        self.failed.take()
    }

    /// False if the compressed stream is truncated. Valid once the stream has ended.
    pub fn is_whole(&self) -> bool {
        self.complete || self.inflater.total_in() == 0
    }

    /// Decompresses until there is output, an error, or the end of the stream.
    fn step(&mut self) -> io::Result<()> {
        self.output.clear();
        self.output_at = 0;
        while self.output.is_empty() && !self.ended {
            let before = self.inflater.total_in();
            let result = self.inflater.decompress_vec(&self.input[self.input_at..self.input_end], &mut self.output, FlushDecompress::Sync);
            let used = (self.inflater.total_in() - before) as usize;
            self.input_at += used;
            match result {
                Err(error) => {
                    let offset = self.consumed - (self.input_end - self.input_at) as u64;
                    let text = error.message().unwrap_or("the stream is not deflated data").to_string();
                    // In a stream with an invalid header, the position is its beginning.
                    let offset = if self.inflater.total_out() == 0 && offset <= 2 { 0 } else { offset };
                    let begins = self.begins.unwrap_or_default();
                    self.failed = Some(Fault::Inflate { offset, text, compression: self.compression, begins });
                    self.ended = true;
                }
                // The file may consist of several concatenated streams.
                Ok(Status::StreamEnd) if self.compression == Compression::Gzip => self.inflater = inflater(self.compression),
                Ok(Status::StreamEnd) => (self.ended, self.complete) = (true, true),
                Ok(_) if self.output.is_empty() && self.input_at == self.input_end => self.refill()?,
                Ok(_) => (),
            }
        }
        Ok(())
    }

    fn refill(&mut self) -> io::Result<()> {
        let read = loop {
            match self.from.read(&mut self.input) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                read => break read?,
            }
        };
        (self.input_at, self.input_end) = (0, read);
        self.consumed += read as u64;
        self.ended = read == 0;
        self.begins.get_or_insert_with(|| Compression::of(&self.input[..read]));
        Ok(())
    }
}

impl<R: Read> Read for Inflate<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.output_at == self.output.len() {
            self.step()?;
        }
        let read = (&self.output[self.output_at..]).read(into)?;
        self.output_at += read;
        Ok(read)
    }
}

/// Restores the cause that zlib-rs lost, by decompressing the file at `path` again.
pub(super) fn explained(fault: Fault, path: Option<&Path>) -> Fault {
    match fault {
        Fault::Inflate { offset, text, compression, begins } if text == LOST => {
            let text = path.and_then(|path| cause(path, compression, offset)).unwrap_or_else(|| CAUSES.into());
            Fault::Inflate { offset, text, compression, begins }
        }
        fault => fault,
    }
}

/// Returns the cause of the error at byte `wanted` of a compressed file, or `None` if it cannot be determined.
fn cause(path: &Path, compression: Compression, wanted: u64) -> Option<String> {
    let file = path.is_file().then(|| File::open(path).ok())??;
    let mut again = Inflate::with_room(file, compression, BLOCK, SLOW);
    io::copy(&mut again, &mut io::sink()).ok()?;
    match again.take_failure()? {
        Fault::Inflate { offset, text, .. } if offset == wanted && text != LOST => Some(text),
        _ => None,
    }
}

/// Decompressed bytes of a stream, for readers that cannot use parts of a damaged one. Damage or truncation is a read error.
pub(crate) struct Inflated<R> {
    inflate: Inflate<R>,
    path: Option<PathBuf>,
}

impl<R: Read> Inflated<R> {
    /// Decompresses `from`. `path` is its file, if there is one.
    pub fn new(from: R, compression: Compression, path: Option<&Path>) -> Inflated<R> {
        Inflated { inflate: Inflate::new(from, compression, BLOCK), path: path.map(Path::to_path_buf) }
    }
}

impl<R: Read> Read for Inflated<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inflate.read(into)?;
        if read > 0 || into.is_empty() {
            return Ok(read);
        }
        if let Some(fault) = self.inflate.take_failure() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, explained(fault, self.path.as_deref()).to_string()));
        }
        match self.inflate.is_whole() {
            true => Ok(0),
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the compressed file is cut short")),
        }
    }
}

fn inflater(compression: Compression) -> Decompress {
    match compression {
        Compression::Gzip => Decompress::new_gzip(15),
        Compression::Zlib | Compression::None => Decompress::new(true),
    }
}
