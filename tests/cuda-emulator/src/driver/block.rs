//! An allocation: its bytes, and what is known of each of them.

use super::state::Handle;
use super::status::Outcome;
use super::storage::Storage;
use crate::machine::Region;
use std::ops::Range;

/// Byte of fresh memory. As floating-point numbers, it is NaN.
pub(crate) const PATTERN: u8 = 0xFF;
/// Size of the pieces in which a device's memory gets its pattern when it is first touched.
const PAGE: usize = 1 << 16;

/// Where an allocation is, and who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory of the device.
    Device,
    /// A variable of a module.
    Module {
        /// True if kernels may only read it.
        constant: bool,
    },
    /// Memory of another part of the system, which the device has imported.
    External,
    /// Page-locked memory of the host.
    Host {
        /// True if the contexts of all devices may use it.
        portable: bool,
        /// True if kernels may use it.
        mapped: bool,
        /// True if the program owns it and has only registered it.
        registered: bool,
    },
}

impl Place {
    /// True if the host may use it as well, at any time.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Place::Host { .. })
    }
}

/// An allocation.
pub(crate) struct Block {
    /// Address of its first byte, for kernels.
    pub address: u64,
    /// Device whose context allocated it.
    pub device: usize,
    /// Where it is.
    pub place: Place,
    /// Streams that were given work with an address in it.
    pub users: Vec<Handle>,
    /// Queue of the marks that wait for these streams.
    pub marks: Option<Handle>,
    storage: Storage,
    /// A bit per page that does not have its pattern yet. Empty if all have it.
    fresh: Vec<u64>,
    /// A bit per byte that the program has freed in its own accounts. Empty if there never was one.
    banned: Vec<u64>,
    /// A byte per byte that is not zero if the byte was written. Empty if that is not checked.
    written: Vec<u8>,
}

impl Block {
    /// Creates an allocation of `bytes` bytes. Memory of the host gets its own address, other memory gets `address`.
    pub(crate) fn new(address: u64, bytes: usize, device: usize, place: Place, is_tracked: bool) -> Outcome<Block> {
        let mut storage = Storage::allocate(bytes, if place.is_host() { 4096 } else { 16 })?;
        if place.is_host() {
            // The host may read it at any time, so it gets its pattern now.
            storage.all().fill(PATTERN);
            return Ok(Block::of(storage.address(), storage, device, place));
        }
        let fresh = vec![u64::MAX; bytes.div_ceil(PAGE * 64)];
        let written = if is_tracked && place == Place::Device { vec![0; bytes] } else { Vec::new() };
        Ok(Block { fresh, written, ..Block::of(address, storage, device, place) })
    }

    /// Creates a block over bytes that exist already.
    pub(crate) fn of(address: u64, storage: Storage, device: usize, place: Place) -> Block {
        let (fresh, banned, written) = (Vec::new(), Vec::new(), Vec::new());
        Block { address, device, place, users: Vec::new(), marks: None, storage, fresh, banned, written }
    }

    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.storage.bytes
    }

    /// Returns the address after its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes() as u64
    }

    /// Returns the place of `bytes` bytes at `address`, if the allocation has them.
    pub(crate) fn range(&self, address: u64, bytes: usize) -> Option<Range<usize>> {
        let start = address.checked_sub(self.address)? as usize;
        start.checked_add(bytes).filter(|&end| end <= self.bytes()).map(|end| start..end)
    }

    /// True if the program has freed one of the bytes in its own accounts.
    pub(crate) fn is_banned(&self, range: Range<usize>) -> bool {
        !self.banned.is_empty() && words(range).any(|(word, mask)| self.banned[word] & mask != 0)
    }

    /// Forbids or allows the use of a range.
    pub(crate) fn ban(&mut self, range: Range<usize>, is_banned: bool) {
        if self.banned.is_empty() {
            self.banned = vec![0; self.bytes().div_ceil(64)];
        }
        for (word, mask) in words(range) {
            if is_banned {
                self.banned[word] |= mask;
            } else {
                self.banned[word] &= !mask;
            }
        }
    }

    /// Makes a range as it is after an allocation.
    pub(crate) fn poison(&mut self, range: Range<usize>) {
        self.ban(range.clone(), false);
        if !self.written.is_empty() {
            self.written[range.clone()].fill(0);
        }
        self.prepare(range.clone());
        self.storage.all()[range].fill(PATTERN);
    }

    /// Returns a range as the machine sees it.
    pub(crate) fn region(&mut self, range: Range<usize>) -> Region<'_> {
        self.prepare(range.clone());
        let written = (!self.written.is_empty()).then(|| &mut self.written[range.clone()]);
        Region { bytes: &mut self.storage.all()[range], written }
    }

    /// Returns the bytes of a range to read.
    pub(crate) fn read(&mut self, range: Range<usize>) -> &[u8] {
        self.region(range).bytes
    }

    /// Returns the bytes of a range to write.
    pub(crate) fn write(&mut self, range: Range<usize>) -> &mut [u8] {
        let Region { bytes, written } = self.region(range);
        if let Some(written) = written {
            written.fill(1);
        }
        bytes
    }

    /// Fills the pages of a range with the pattern, unless they have it.
    fn prepare(&mut self, range: Range<usize>) {
        if self.fresh.is_empty() || range.is_empty() {
            return;
        }
        let size = self.bytes();
        for page in range.start / PAGE..=(range.end - 1) / PAGE {
            let mask = 1 << (page % 64);
            if self.fresh[page / 64] & mask != 0 {
                self.fresh[page / 64] &= !mask;
                self.storage.all()[page * PAGE..((page + 1) * PAGE).min(size)].fill(PATTERN);
            }
        }
    }
}

/// Returns the words of 64 bits that have the bits of `range`, each with a mask of them.
fn words(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    (range.start / 64..range.end.div_ceil(64)).map(move |word| {
        let (first, last) = (range.start.max(word * 64) - word * 64, range.end.min(word * 64 + 64) - word * 64);
        (word, (u64::MAX << first) & (u64::MAX >> (64 - last)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize) -> Block {
        Block::new(1 << 48, bytes, 0, Place::Device, true).unwrap()
    }

    #[test]
    fn fresh_memory_has_the_pattern_and_keeps_what_is_written() {
        let mut block = block(3 * PAGE + 5);
        block.write(PAGE - 2..PAGE + 2).copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(block.read(PAGE - 3..PAGE + 3), [PATTERN, 1, 2, 3, 4, PATTERN]);
        assert_eq!(block.read(3 * PAGE..3 * PAGE + 5), [PATTERN; 5]);
        assert_eq!(block.region(PAGE - 3..PAGE - 1).written.unwrap(), [0, 1]);
        block.poison(PAGE..PAGE + 1);
        assert_eq!(block.read(PAGE - 1..PAGE + 2), [2, PATTERN, 4]);
    }

    #[test]
    fn bans_are_exact_to_the_byte() {
        let mut block = block(300);
        block.ban(60..200, true);
        block.ban(64..128, false);
        let banned: Vec<bool> = (0..300).map(|at| block.is_banned(at..at + 1)).collect();
        let expected: Vec<bool> = (0..300).map(|at| (60..64).contains(&at) || (128..200).contains(&at)).collect();
        assert_eq!(banned, expected);
        assert!(!block.is_banned(64..128) && block.is_banned(64..129) && block.is_banned(0..300) && !block.is_banned(5..5));
    }
}
