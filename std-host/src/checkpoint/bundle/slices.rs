//! Tensors that are stored in slices: the keys of the slices, and their regions of the whole tensor.
//!
//! The key of a slice consists of a zero byte, the name of the tensor, the number of dimensions, and the start and length of each
//! dimension. A length of -1 is a whole dimension. The encoding keeps the byte order of keys the same as the order of the values.

use super::Entry;
use crate::formats::proto::TensorSliceProto;
use crate::formats::proto::tensor_slice_proto::extent::HasLength;

/// Length that denotes a whole dimension.
const WHOLE: i64 = -1;

/// Returns the key of the slice of `name` with these extents: the start and the length in each dimension.
pub fn key(name: &str, extents: &[(i64, i64)]) -> Vec<u8> {
    let mut bytes = vec![0];
    for byte in name.bytes() {
        match byte {
            0 => bytes.extend([0, 0xff]),
            0xff => bytes.extend([0xff, 0]),
            byte => bytes.push(byte),
        }
    }
    bytes.extend([0, 1]);
    let dims = (extents.len() as u64).to_be_bytes();
    let dims = &dims[dims.iter().take_while(|byte| **byte == 0).count()..];
    bytes.push(dims.len() as u8);
    bytes.extend(dims);
    for (start, length) in extents {
        put_signed(&mut bytes, *start);
        put_signed(&mut bytes, *length);
    }
    bytes
}

/// Appends a number in an encoding that sorts by value: as many 1 bits as the encoding has bytes, a 0 bit, then the bits of the
/// number, highest first. For a negative number, all of these bits are inverted.
fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    let bits = 64 - (value ^ (value >> 63)).leading_zeros() as usize;
    let length = bits / 7 + 1;
    let mut encoded = [if value < 0 { 0xff } else { 0 }; 10];
    encoded[2..].copy_from_slice(&value.to_be_bytes());
    let encoded = &mut encoded[10 - length..];
    // The 1 bits and the 0 bit take as many bits as there are bytes. The 0 bit replaces the sign.
    let ones = !(u16::MAX.checked_shr(length as u32).unwrap_or(0));
    encoded[0] ^= (ones >> 8) as u8;
    if let Some(second) = encoded.get_mut(1) {
        *second ^= ones as u8;
    }
    bytes.extend_from_slice(encoded);
}

/// Returns the start and length of a slice in each dimension.
pub fn extents(slice: &TensorSliceProto) -> Vec<(i64, i64)> {
    let length = |length: &Option<HasLength>| length.as_ref().map_or(WHOLE, |HasLength::Length(length)| *length);
    slice.extent.iter().map(|extent| (extent.start, length(&extent.has_length))).collect()
}

/// Region of a whole tensor that a slice covers, as byte ranges.
#[derive(Clone, Debug)]
pub struct Region {
    /// Stride, in bytes of the whole tensor, and number of steps for each dimension outside the contiguous run. Innermost first.
    outer: Vec<(usize, usize)>,
    /// Offset of the first byte.
    start: usize,
    /// Number of bytes that are contiguous in both the slice and the whole tensor.
    run: usize,
}

impl Region {
    /// Computes the region of a slice with these extents. The whole tensor has dimensions `dims` and elements of `size` bytes.
    /// Returns `None` if the slice is not inside the tensor.
    pub fn new(extents: &[(i64, i64)], dims: &[u64], size: usize) -> Option<Region> {
        if extents.len() != dims.len() {
            return None;
        }
        let (mut outer, mut start, mut run, mut stride, mut whole) = (Vec::new(), 0usize, size, size, true);
        for (&(first, length), &dim) in extents.iter().zip(dims).rev() {
            let first = u64::try_from(first).ok()?;
            let length = if length == WHOLE { dim } else { u64::try_from(length).ok()? };
            if first.checked_add(length)? > dim {
                return None;
            }
            start = start.checked_add(stride.checked_mul(usize::try_from(first).ok()?)?)?;
            let length = usize::try_from(length).ok()?;
            match whole {
                true => run = run.checked_mul(length)?,
                false => outer.push((stride, length)),
            }
            whole &= length as u64 == dim;
            stride = stride.checked_mul(usize::try_from(dim).ok()?)?;
        }
        Some(Region { outer, start, run })
    }

    /// Returns the offset of the region if it is one contiguous run of bytes, otherwise `None`.
    pub fn contiguous(&self) -> Option<usize> {
        self.outer.iter().all(|(_, count)| *count == 1).then_some(self.start)
    }

    /// Returns the size of the region in bytes.
    pub fn size(&self) -> usize {
        self.outer.iter().fold(self.run, |size, (_, count)| size * count)
    }

    /// Copies `bytes`, which begin at offset `at` in the slice, to their places in the whole tensor.
    pub fn scatter(&self, mut at: usize, mut bytes: &[u8], whole: &mut [u8]) {
        while !bytes.is_empty() && self.run > 0 {
            let (mut row, inside) = (at / self.run, at % self.run);
            let mut place = self.start + inside;
            for (stride, count) in &self.outer {
                place += stride * (row % count);
                row /= count;
            }
            let (now, later) = bytes.split_at((self.run - inside).min(bytes.len()));
            whole[place..place + now.len()].copy_from_slice(now);
            at += now.len();
            bytes = later;
        }
    }
}

/// True if two slices of a tensor overlap.
pub fn overlap(entry: &Entry) -> bool {
    let range = |((first, length), dim): (&(i64, i64), &u64)| {
        let length = if *length == WHOLE { *dim as i64 } else { *length };
        (*first, first.saturating_add(length))
    };
    let slices = entry.proto().slices.iter().map(|slice| extents(slice).iter().zip(entry.dims()).map(range).collect());
    let slices: Vec<Vec<(i64, i64)>> = slices.collect();
    let meet = |one: &[(i64, i64)], other: &[(i64, i64)]| one.iter().zip(other).all(|(a, b)| a.0.max(b.0) < a.1.min(b.1));
    slices.iter().enumerate().any(|(index, one)| slices[..index].iter().any(|other| meet(one, other)))
}

/// Returns the slices of a tensor: the key and region of each.
pub fn of(name: &str, entry: &Entry, size: usize) -> Result<Vec<(Vec<u8>, Region)>, String> {
    let slices = entry.proto().slices.iter().map(|slice| {
        let extents = extents(slice);
        let region = Region::new(&extents, entry.dims(), size)
            .ok_or_else(|| format!("a slice {extents:?} is outside the shape {:?}", entry.dims()))?;
        Ok((key(name, &extents), region))
    });
    slices.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_their_bytes() {
        let mut numbers: Vec<i64> = (0..63).flat_map(|bit| [1i64 << bit, (1 << bit) - 1, -(1 << bit), -(1 << bit) - 1]).collect();
        numbers.extend([i64::MIN, i64::MAX, 63, 64, -64, -65]);
        numbers.sort();
        numbers.dedup();
        let encoded: Vec<Vec<u8>> = numbers.iter().map(|&number| key("", &[(number, 0)])).collect();
        assert!(encoded.is_sorted_by(|one, other| one < other));
        let mut bytes = Vec::new();
        [0, -1, 63, 64, -65, 5000].iter().for_each(|number| put_signed(&mut bytes, *number));
        assert_eq!(bytes, [0x80, 0x7f, 0xbf, 0xc0, 0x40, 0x3f, 0xbf, 0xd3, 0x88]);
    }

    #[test]
    fn regions_fill_the_whole() {
        let mut whole = [0; 24];
        let cuts = [(0, 1), (1, 2)];
        for rows in [(0, 2), (2, 2)] {
            for columns in cuts {
                let region = Region::new(&[rows, columns, (0, WHOLE)], &[4, 3, 2], 1).unwrap();
                let bytes: Vec<u8> = (0..region.size() as u8).collect();
                region.scatter(0, &bytes[..3], &mut whole);
                region.scatter(3, &bytes[3..], &mut whole);
            }
        }
        assert_eq!(whole, [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Region::new(&[(1, 2), (0, WHOLE)], &[4, 3], 4).unwrap().contiguous(), Some(12));
        assert!(Region::new(&[(3, 2)], &[4], 1).is_none());
        assert!(Region::new(&[(-1, 2)], &[4], 1).is_none());
    }
}
