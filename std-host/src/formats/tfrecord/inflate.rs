//! Inflates a stream in the steps in which TensorFlow does it: so an error is met where it meets one.

use super::BLOCK;
use super::compression::Compression;
use super::error::Fault;
use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, Read};

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
        Inflate {
            from,
            compression,
            inflater: inflater(compression),
            input: vec![0; input].into(),
            input_at: 0,
            input_end: 0,
            consumed: 0,
            output: Vec::with_capacity(BLOCK),
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

fn inflater(compression: Compression) -> Decompress {
    match compression {
        Compression::Gzip => Decompress::new_gzip(15),
        Compression::Zlib | Compression::None => Decompress::new(true),
    }
}
