//! Memory of the host, aligned for every element type.

use crate::base::error::{Error, Result};
use alloc::format;
use alloc::vec::Vec;
use bytemuck::{Pod, Zeroable};

/// Heap memory aligned to 16 bytes, as artifacts, arenas and tensors require.
#[derive(Clone, Default)]
pub struct AlignedBytes {
    blocks: Vec<Block>,
    length: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(16))]
struct Block([u8; 16]);

impl AlignedBytes {
    /// Allocates `length` zero bytes.
    pub fn zeroed(length: usize) -> AlignedBytes {
        AlignedBytes { blocks: bytemuck::zeroed_vec(length.div_ceil(16)), length }
    }

    /// Allocates `length` zero bytes for a copy of a remote device's memory. Fails if the host has no memory for them.
    pub fn staged(length: usize) -> Result<AlignedBytes> {
        let refused = || Error::message(format!("the host has no memory for a copy of {length} bytes"));
        AlignedBytes::try_zeroed(length).ok_or_else(refused)
    }

    /// Allocates `length` zero bytes. Returns `None` if there is no memory for them.
    pub(crate) fn try_zeroed(length: usize) -> Option<AlignedBytes> {
        Some(AlignedBytes { blocks: bytemuck::try_zeroed_vec(length.div_ceil(16)).ok()?, length })
    }

    /// Concatenates `parts`. Returns `None` if there is no memory for them.
    pub(crate) fn try_concat(parts: &[&[u8]]) -> Option<AlignedBytes> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        // If all parts are whole blocks, they are copied into new memory that need not be zeroed first.
        let whole: Option<Vec<&[Block]>> = parts.iter().map(|part| bytemuck::try_cast_slice(part).ok()).collect();
        let Some(whole) = whole else {
            let mut bytes = AlignedBytes::try_zeroed(length)?;
            bytes.join(parts);
            return Some(bytes);
        };
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(length / 16).ok()?;
        whole.into_iter().for_each(|part| blocks.extend_from_slice(part));
        Some(AlignedBytes { blocks, length })
    }

    /// Sets the bytes to `parts`, one after the other, which have the same length together.
    pub(crate) fn join(&mut self, parts: &[&[u8]]) {
        let mut rest = &mut **self;
        for part in parts {
            let (own, behind) = rest.split_at_mut(part.len());
            own.copy_from_slice(part);
            rest = behind;
        }
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> AlignedBytes {
        let mut aligned = AlignedBytes::zeroed(bytes.len());
        aligned.copy_from_slice(bytes);
        aligned
    }
}

impl core::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.length]
    }
}

impl core::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..self.length]
    }
}
