//! Inflates a stream in the steps in which TensorFlow does it: so an error is met where it meets one.

use super::BLOCK;
use super::compression::Compression;
use super::error::Fault;
use flate2::{Decompress, FlushDecompress, Status};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// zlib-rs 0.6's message for damage met by its fast loop, which loses the cause. Its slow loop takes three times as long, and keeps it.
const LOST: &str = "repeated call with bad state";
/// The causes that the fast loop may have lost.
const CAUSES: &str = "invalid literal/length code, invalid distance code or invalid distance too far back";
/// The fast loop needs room for 260 bytes of output.
const SLOW: usize = 128;

/// The inflated bytes of a compressed stream. One that is cut short ends where its bytes do.
pub(super) struct Inflate<R> {
    from: R,
    compression: Compression,
    inflater: Decompress,
    /// Compressed bytes, of which `input_at..input_end` are not used yet.
    input: Box<[u8]>,
    input_at: usize,
    input_end: usize,
    /// All compressed bytes before `input_end`.
    consumed: u64,
    /// What the last step gave, of which the first `output_at` bytes were read.
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

    /// As [`new`](Inflate::new), with room for `output` bytes at a time.
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

    /// Why no more follows what was read, or what can still be read of the last step, if that is an error.
    pub fn take_failure(&mut self) -> Option<Fault> {
        self.failed.take()
    }

    /// True unless bytes are missing from a stream that has ended.
    pub fn is_whole(&self) -> bool {
        self.complete || self.inflater.total_in() == 0
    }

    /// Inflates until there is output, an error, or the end.
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
                    // Nothing is used of a stream that does not begin as it should.
                    let offset = if self.inflater.total_out() == 0 && offset <= 2 { 0 } else { offset };
                    let begins = self.begins.unwrap_or_default();
                    self.failed = Some(Fault::Inflate { offset, text, compression: self.compression, begins });
                    self.ended = true;
                }
                // Files that were put together of several.
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

/// The fault, with the cause that zlib-rs lost: found in the file at `path`, if it was met there.
pub(super) fn explained(fault: Fault, path: Option<&Path>) -> Fault {
    match fault {
        Fault::Inflate { offset, text, compression, begins } if text == LOST => {
            let text = path.and_then(|path| cause(path, compression, offset)).unwrap_or_else(|| CAUSES.into());
            Fault::Inflate { offset, text, compression, begins }
        }
        fault => fault,
    }
}

/// Why a file cannot be inflated at byte `wanted`.
fn cause(path: &Path, compression: Compression, wanted: u64) -> Option<String> {
    let file = path.is_file().then(|| File::open(path).ok())??;
    let mut again = Inflate::with_room(file, compression, BLOCK, SLOW);
    io::copy(&mut again, &mut io::sink()).ok()?;
    match again.take_failure()? {
        Fault::Inflate { offset, text, .. } if offset == wanted && text != LOST => Some(text),
        _ => None,
    }
}

/// The inflated bytes of a stream, for who has no use for those of a damaged one: reading it fails, and says what is wrong.
pub(crate) struct Inflated<R> {
    inflate: Inflate<R>,
    path: Option<PathBuf>,
}

impl<R: Read> Inflated<R> {
    /// Inflates `from`, which is the file at `path`, if that is given.
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
