//! Division of a region of device memory into blocks.

use alloc::collections::{BTreeMap, BTreeSet};

/// Allocator of a region of addresses: it hands out blocks and takes them back. It touches no memory, so a device with any kind of memory
/// can use it. A request gets the smallest free block that is large enough, and neighbouring free blocks become one. Every operation takes
/// time logarithmic in the number of free blocks.
///
/// ```
/// use gradlet_core::device::Blocks;
/// let mut blocks = Blocks::new(4096, 1024, 256);
/// let first = blocks.allocate(300).unwrap();
/// assert_eq!((first, blocks.free_bytes(), blocks.largest()), (4096, 512, 512));
/// assert_eq!(blocks.allocate(513), None);
/// blocks.free(first, 300);
/// assert_eq!(blocks.largest(), 1024);
/// ```
pub struct Blocks {
    /// Size of the smallest block, a power of two. Every block begins at a multiple of it and has a multiple of it.
    grain: u64,
    free_bytes: u64,
    /// Free blocks: their addresses with their sizes.
    by_address: BTreeMap<u64, u64>,
    /// Free blocks: sizes and addresses.
    by_size: BTreeSet<(u64, u64)>,
}

impl Blocks {
    /// Creates an allocator of the `bytes` bytes from address `start` on, of which it uses whole blocks. Sizes are rounded up to multiples
    /// of `grain`, which is rounded up to a power of two.
    pub fn new(start: u64, bytes: u64, grain: u64) -> Blocks {
        let grain = grain.max(1).next_power_of_two();
        let mut blocks = Blocks { grain, free_bytes: 0, by_address: BTreeMap::new(), by_size: BTreeSet::new() };
        let first = start.next_multiple_of(grain);
        let end = start.saturating_add(bytes) / grain * grain;
        if end > first {
            blocks.insert(first, end - first);
        }
        blocks
    }

    /// Allocates a block of at least `bytes` bytes and returns its address. Returns `None` if no free block is large enough.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let size = self.size(bytes)?;
        let &(whole, address) = self.by_size.range((size, 0)..).next()?;
        self.remove(address, whole);
        if whole > size {
            self.insert(address + size, whole - size);
        }
        Some(address)
    }

    /// Frees the block at `address` that was allocated for `bytes` bytes.
    pub fn free(&mut self, address: u64, bytes: u64) {
        let Some(mut size) = self.size(bytes) else { return };
        let mut start = address;
        if let Some((&before, &length)) = self.by_address.range(..address).next_back()
            && before + length == address
        {
            self.remove(before, length);
            (start, size) = (before, length + size);
        }
        if let Some(&length) = self.by_address.get(&(start + size)) {
            self.remove(start + size, length);
            size += length;
        }
        self.insert(start, size);
    }

    /// Returns the number of free bytes.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Returns the size of the largest free block. A request that is not larger succeeds.
    pub fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |&(size, _)| size)
    }

    /// Returns the size of a block for `bytes` bytes, or `None` if it exceeds all addresses.
    fn size(&self, bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(self.grain)
    }

    fn insert(&mut self, address: u64, size: u64) {
        self.by_address.insert(address, size);
        self.by_size.insert((size, address));
        self.free_bytes += size;
    }

    fn remove(&mut self, address: u64, size: u64) {
        self.by_address.remove(&address);
        self.by_size.remove(&(size, address));
        self.free_bytes -= size;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::random::Stream;
    use std::vec::Vec;

    /// Allocates and frees at random, and compares with a list of all live blocks.
    #[test]
    fn blocks_never_overlap_and_whatever_fits_is_given() {
        let (start, bytes, grain) = (5000u64, 1 << 20, 64u64);
        let mut blocks = Blocks::new(start, bytes, grain);
        let whole = blocks.free_bytes();
        let mut live: Vec<(u64, u64)> = Vec::new();
        let random = Stream { key: 7, stream: 0 }.uniform(60_000);
        for pair in random.chunks_exact(2) {
            if pair[0] < 0.55 {
                let request = (pair[1] * pair[1] * 20_000.0) as u64;
                let largest = blocks.largest();
                match blocks.allocate(request) {
                    Some(address) => {
                        let end = address + request.max(1).next_multiple_of(grain);
                        assert!(address.is_multiple_of(grain) && address >= start && end <= start + bytes);
                        assert!(live.iter().all(|&(other, size)| end <= other || other + size <= address), "overlap");
                        live.push((address, end - address));
                    }
                    None => assert!(request > largest, "{request} bytes fit into {largest}"),
                }
            } else if !live.is_empty() {
                let (address, size) = live.swap_remove((pair[1] * live.len() as f32) as usize);
                blocks.free(address, size);
            }
            assert_eq!(blocks.free_bytes() + live.iter().map(|block| block.1).sum::<u64>(), whole);
        }
        live.drain(..).for_each(|(address, size)| blocks.free(address, size));
        assert_eq!((blocks.free_bytes(), blocks.largest()), (whole, whole));
    }

    #[test]
    fn the_end_of_the_addresses_is_no_overflow() {
        let mut blocks = Blocks::new(u64::MAX - 100, u64::MAX, 16);
        assert_eq!(blocks.allocate(u64::MAX), None);
        assert!(blocks.allocate(16).is_some());
        assert_eq!(Blocks::new(1, 14, 16).allocate(1), None);
    }
}
