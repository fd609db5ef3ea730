//! Memory of the host that was freed and waits for reuse.
//!
//! A program that computes op by op allocates the same sizes in every step. The system would take back large blocks, and clear their pages
//! again for the next allocation. The pool keeps them. It holds no more than the difference between the memory in use and its peak, so it
//! never raises the peak.

use crate::tensor::device::aligned::AlignedBytes;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Size of the smallest pieces that the pool keeps, in bytes. The system's allocator is as fast for smaller ones.
pub(crate) const LEAST: usize = 4096;

/// Pieces of memory by their size.
#[derive(Default)]
pub(crate) struct Pool {
    pieces: BTreeMap<usize, Vec<AlignedBytes>>,
    bytes: u64,
}

impl Pool {
    /// Takes a piece of exactly `bytes` bytes, with arbitrary content.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<AlignedBytes> {
        let piece = self.pieces.get_mut(&bytes)?.pop()?;
        self.bytes -= bytes as u64;
        Some(piece)
    }

    /// Keeps `piece` if the pool then holds at most `room` bytes, and returns it otherwise.
    pub(crate) fn keep(&mut self, piece: AlignedBytes, room: u64) -> Option<AlignedBytes> {
        let bytes = piece.len();
        if self.bytes + bytes as u64 > room {
            return Some(piece);
        }
        self.bytes += bytes as u64;
        self.pieces.entry(bytes).or_default().push(piece);
        None
    }

    /// True if the pool holds more than `room` bytes.
    #[inline]
    pub(crate) fn exceeds(&self, room: u64) -> bool {
        self.bytes > room
    }

    /// Takes pieces, the largest first, until the pool holds at most `room` bytes.
    pub(crate) fn shrink(&mut self, room: u64) -> Vec<AlignedBytes> {
        let mut taken = Vec::new();
        while self.bytes > room
            && let Some(mut largest) = self.pieces.last_entry()
        {
            match largest.get_mut().pop() {
                Some(piece) => {
                    self.bytes -= piece.len() as u64;
                    taken.push(piece);
                }
                None => drop(largest.remove()),
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_what_fits_and_gives_back_the_exact_size() {
        let mut pool = Pool::default();
        let piece = |bytes: usize| AlignedBytes::zeroed(bytes);
        assert!(pool.keep(piece(8192), 8191).is_some(), "no room");
        for bytes in [8192, 8192, 5000] {
            assert!(pool.keep(piece(bytes), 1 << 20).is_none());
        }
        assert!(pool.take(8000).is_none() && pool.take(5001).is_none());
        assert_eq!(pool.take(5000).map(|piece| piece.len()), Some(5000));
        assert!(pool.take(5000).is_none());
        assert_eq!(pool.shrink(10_000).len(), 1);
        assert_eq!(pool.shrink(0).len(), 1);
        assert!(pool.shrink(0).is_empty() && pool.take(8192).is_none());
    }
}
