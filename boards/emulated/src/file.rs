//! Files on the debugging host, through semihosting.

use crate::Failure;
use crate::semihost::{Operation, call_with};

/// Modes of [`Operation::Open`]: C's `rb`, `r+b` and `w+b`.
const READ: usize = 1;
const UPDATE: usize = 3;
const CREATE: usize = 7;

/// An open file. Dropping it closes it.
pub struct File(usize);

impl File {
    /// Opens a file for reading.
    pub fn open(path: &[u8]) -> Result<File, Failure> {
        File::with_mode(path, READ)
    }

    /// Creates a file for writing. Truncates an existing one.
    pub fn create(path: &[u8]) -> Result<File, Failure> {
        File::with_mode(path, CREATE)
    }

    /// Opens a file for writing at its end.
    pub fn append(path: &[u8]) -> Result<File, Failure> {
        // In append mode too, QEMU writes from the start of the file.
        let file = File::with_mode(path, UPDATE)?;
        // SAFETY: the handle is open.
        let sought = unsafe { call_with(Operation::Seek, [file.0, call_with(Operation::Length, [file.0])]) };
        if sought == 0 { Ok(file) } else { Err(Failure::File) }
    }

    fn with_mode(path: &[u8], mode: usize) -> Result<File, Failure> {
        let mut name = [0u8; 256];
        name.get_mut(..path.len()).filter(|_| path.len() < 256).ok_or(Failure::File)?.copy_from_slice(path);
        // SAFETY: the name ends with a zero, and its length is given.
        let handle = unsafe { call_with(Operation::Open, [name.as_ptr() as usize, mode, path.len()]) };
        if handle == usize::MAX { Err(Failure::File) } else { Ok(File(handle)) }
    }

    /// Reads the next bytes of the file into `buffer`. Returns true if they fill it, and false if the file is already at its end. Fails if
    /// the file ends before `buffer` is full.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<bool, Failure> {
        // SAFETY: the buffer and its length belong together.
        match unsafe { call_with(Operation::Read, [self.0, buffer.as_mut_ptr() as usize, buffer.len()]) } {
            0 => Ok(true),
            missing if missing == buffer.len() => Ok(false),
            _ => Err(Failure::File),
        }
    }

    /// Reads the next little-endian number. Returns `None` at the end of the file.
    pub fn read_u32(&mut self) -> Result<Option<u32>, Failure> {
        let mut bytes = [0; 4];
        Ok(self.read(&mut bytes)?.then(|| u32::from_le_bytes(bytes)))
    }

    /// Returns the length of the file in bytes.
    pub fn bytes(&self) -> u32 {
        // SAFETY: the handle is open.
        unsafe { call_with(Operation::Length, [self.0]) as u32 }
    }

    /// Skips `bytes` bytes.
    pub fn skip(&mut self, mut bytes: usize) -> Result<(), Failure> {
        let mut buffer = [0u8; 256];
        while bytes > 0 {
            let part = bytes.min(buffer.len());
            self.read(buffer.get_mut(..part).ok_or(Failure::File)?)?.then_some(()).ok_or(Failure::File)?;
            bytes -= part;
        }
        Ok(())
    }

    /// Writes all of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        // SAFETY: the buffer and its length belong together.
        match unsafe { call_with(Operation::Write, [self.0, bytes.as_ptr() as usize, bytes.len()]) } {
            0 => Ok(()),
            _ => Err(Failure::File),
        }
    }

    /// Writes a little-endian number.
    pub fn write_u32(&mut self, number: u32) -> Result<(), Failure> {
        self.write(&number.to_le_bytes())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and is not used again.
        unsafe { call_with(Operation::Close, [self.0]) };
    }
}
