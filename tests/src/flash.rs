//! Simulated NOR flash. A write sets bits from 1 to 0 by words, an erase sets them back to 1 by blocks, and the power can fail at any time.

use crate::random::Random;
use core::ops::Range;
use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash};

/// Flash with reads of `READ` bytes, words of `WRITE` bytes and erase blocks of `ERASE` bytes.
#[derive(Clone)]
pub struct Flash<const READ: usize, const WRITE: usize, const ERASE: usize> {
    /// Contents of the flash.
    pub bytes: Vec<u8>,
    /// Number of erases of each block.
    pub erases: Vec<u32>,
    /// For each word, true if it must be erased before it can be programmed.
    spent: Vec<bool>,
    /// Operations since the last restart: each programs a word or erases a block.
    pub log: Vec<Operation>,
    /// Number of completed operations after which the power fails, or `None` if it does not fail.
    cut: Option<usize>,
    dead: bool,
    /// Byte offsets that cannot be read, as where error correction fails.
    pub unreadable: Range<usize>,
    /// Byte offset of a worn byte: its lowest bit stays 1.
    pub worn: Option<usize>,
}

/// An operation on flash.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Programs the word at this byte offset with these bytes.
    Program(usize, Vec<u8>),
    /// Erases the block at this byte offset.
    Erase(usize),
}

/// Error of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The arguments are wrong.
    Arguments(NorFlashErrorKind),
    /// A write programs a word that was not erased.
    NotErased,
    /// The power has failed.
    Dead,
    /// The bytes cannot be read.
    Unreadable,
}

impl NorFlashError for Fault {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Fault::Arguments(kind) => *kind,
            _ => NorFlashErrorKind::Other,
        }
    }
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> Flash<READ, WRITE, ERASE> {
    /// Creates flash of `blocks` blocks with random contents.
    pub fn new(blocks: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bytes = (0..blocks * ERASE).map(|_| random.bits() as u8).collect();
        Flash::holding(bytes)
    }

    /// Creates flash with the contents `bytes`. Every word must be erased before it can be programmed.
    pub fn holding(bytes: Vec<u8>) -> Self {
        let (blocks, words) = (bytes.len() / ERASE, bytes.len() / WRITE);
        Flash {
            bytes,
            erases: vec![0; blocks],
            spent: vec![true; words],
            log: Vec::new(),
            cut: None,
            dead: false,
            unreadable: 0..0,
            worn: None,
        }
    }

    /// Makes the power fail instead of operation number `operation`. Operations count from 0, starting now.
    pub fn cut_at(&mut self, operation: usize) {
        self.cut = Some(operation);
        self.log.clear();
    }

    /// Restores the power, and clears the log.
    pub fn restart(&mut self) {
        (self.cut, self.dead) = (None, false);
        self.log.clear();
    }

    /// Writes `bytes` at byte offset `at`, as an interrupted operation might leave them. The words must be erased before they can be
    /// programmed.
    pub fn tear(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.spent[at / WRITE..(at + bytes.len()).div_ceil(WRITE)].fill(true);
    }

    /// Applies `operation`, even if the power has failed. Does not log it. Fails if it programs a word that was not erased.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Fault> {
        match operation {
            Operation::Program(at, word) => {
                let spent = &mut self.spent[at / WRITE];
                if *spent || self.bytes[*at..at + WRITE].iter().any(|&byte| byte != 0xff) {
                    return Err(Fault::NotErased);
                }
                *spent = true;
                self.bytes[*at..at + WRITE].copy_from_slice(word);
                if let Some(worn) = self.worn.filter(|worn| (*at..at + WRITE).contains(worn)) {
                    self.bytes[worn] |= 1;
                }
            }
            Operation::Erase(at) => {
                self.bytes[*at..at + ERASE].fill(0xff);
                self.spent[at / WRITE..(at + ERASE) / WRITE].fill(false);
                self.erases[at / ERASE] += 1;
            }
        }
        Ok(())
    }

    fn operate(&mut self, operation: Operation) -> Result<(), Fault> {
        self.dead |= self.cut == Some(self.log.len());
        if self.dead {
            return Err(Fault::Dead);
        }
        self.apply(&operation)?;
        self.log.push(operation);
        Ok(())
    }

    fn check(&self, offset: u32, length: usize, word: usize) -> Result<usize, Fault> {
        let offset = offset as usize;
        if self.dead {
            return Err(Fault::Dead);
        }
        if offset + length > self.bytes.len() {
            return Err(Fault::Arguments(NorFlashErrorKind::OutOfBounds));
        }
        match offset.is_multiple_of(word) && length.is_multiple_of(word) {
            true => Ok(offset),
            false => Err(Fault::Arguments(NorFlashErrorKind::NotAligned)),
        }
    }
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> ErrorType for Flash<READ, WRITE, ERASE> {
    type Error = Fault;
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> ReadNorFlash for Flash<READ, WRITE, ERASE> {
    const READ_SIZE: usize = READ;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let offset = self.check(offset, bytes.len(), READ)?;
        if offset < self.unreadable.end && self.unreadable.start < offset + bytes.len() {
            return Err(Fault::Unreadable);
        }
        bytes.copy_from_slice(&self.bytes[offset..offset + bytes.len()]);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> NorFlash for Flash<READ, WRITE, ERASE> {
    const WRITE_SIZE: usize = WRITE;
    const ERASE_SIZE: usize = ERASE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Fault> {
        let length = to.checked_sub(from).ok_or(Fault::Arguments(NorFlashErrorKind::OutOfBounds))? as usize;
        let from = self.check(from, length, ERASE)?;
        (from..from + length).step_by(ERASE).try_for_each(|block| self.operate(Operation::Erase(block)))
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Fault> {
        let offset = self.check(offset, bytes.len(), WRITE)?;
        let words = (offset..).step_by(WRITE).zip(bytes.chunks_exact(WRITE));
        words.into_iter().try_for_each(|(at, word)| self.operate(Operation::Program(at, word.to_vec())))
    }
}
