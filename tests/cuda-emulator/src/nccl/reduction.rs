//! The work of a collective operation.

use crate::driver::{Emulator, Stop};

/// Effect of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Adds the operands of all ranks.
    AllReduce,
    /// Copies the operand of this rank.
    Broadcast(usize),
}

/// The operand of a rank, and the place of its result.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub device: usize,
    pub from: u64,
    pub to: u64,
    pub elements: usize,
    pub dtype: i32,
}

/// An operation, with the operands of all ranks.
pub(crate) struct Reduction {
    pub(super) kind: Kind,
    pub(super) operands: Vec<Operand>,
}

impl Operand {
    /// True if both have elements of the same type and number.
    pub(super) fn fits(&self, other: &Operand) -> bool {
        (self.elements, self.dtype) == (other.elements, other.dtype)
    }
}

/// Adds the bytes of an element to those of another one.
type Add = fn(&mut [u8], &[u8]);

/// Returns the size of an element type that NCCL numbers so, and its sum.
pub(super) fn element(dtype: i32) -> Option<(usize, Add)> {
    macro_rules! adds {
        ($ty:ty, $add:expr) => {
            Some((size_of::<$ty>(), |sum, next| {
                let [a, b] = [&*sum, next].map(|bytes| <$ty>::from_le_bytes(bytes.try_into().unwrap_or_default()));
                let add: fn($ty, $ty) -> $ty = $add;
                sum.copy_from_slice(&add(a, b).to_le_bytes());
            }))
        };
    }
    match dtype {
        2 => adds!(i32, i32::wrapping_add),
        4 => adds!(i64, i64::wrapping_add),
        7 => adds!(f32, |a, b| a + b),
        8 => adds!(f64, |a, b| a + b),
        _ => None,
    }
}

impl Reduction {
    /// Returns the addresses that the work uses.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.operands.iter().flat_map(|operand| [operand.from, operand.to]).collect()
    }

    /// Does the work.
    pub(crate) fn perform(&self, emulator: &mut Emulator) -> Result<(), Stop> {
        let Some((first, (size, add))) = self.operands.first().and_then(|first| Some((first, element(first.dtype)?))) else {
            return Ok(());
        };
        let bytes = first.elements * size;
        let parts = self.operands.iter().map(|operand| Ok(emulator.memory.read(operand.device, operand.from, bytes)?.to_vec()));
        let parts = parts.collect::<Result<Vec<Vec<u8>>, Stop>>()?;
        let result = match self.kind {
            Kind::Broadcast(root) => parts.get(root).cloned().unwrap_or_default(),
            Kind::AllReduce => ring(&parts, size, add),
        };
        for operand in &self.operands {
            emulator.memory.write(operand.device, operand.to, bytes)?.copy_from_slice(&result);
        }
        Ok(())
    }
}

/// Adds the parts of all ranks. As in a ring, the sum of each share of the elements begins with another rank.
fn ring(parts: &[Vec<u8>], size: usize, add: Add) -> Vec<u8> {
    let (ranks, mut sum) = (parts.len(), Vec::new());
    let elements = parts[0].len() / size;
    for element in 0..elements {
        let begin = element * ranks / elements + 1;
        let of = |rank: usize| &parts[rank % ranks][element * size..][..size];
        let mut total = of(begin).to_vec();
        (begin + 1..begin + ranks).for_each(|rank| add(&mut total, of(rank)));
        sum.extend(total);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_adds_in_the_order_of_its_shares() {
        let parts = [1.0f32, 1e8, -1e8].map(|value| [value; 3].map(f32::to_le_bytes).concat());
        let (size, add) = element(7).unwrap();
        let sum = ring(&parts, size, add);
        let sum: Vec<f32> = sum.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(sum, [1.0, 0.0, 0.0]);
    }
}
