//! Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

#[cfg(feature = "alloc")]
use alloc::vec::Vec;

/// Stream of random numbers. The numbers depend only on the key and the stream number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "tf.random.Generator")]
pub struct Stream {
    /// The seed.
    pub key: u64,
    /// Number of the stream among the streams of the seed.
    pub stream: u64,
}

impl Stream {
    /// Returns block `index` of the stream. A block consists of four random words.
    pub fn block(&self, index: u64) -> [u32; 4] {
        let mut key = [self.key as u32, (self.key >> 32) as u32];
        let mut counter = [index as u32, (index >> 32) as u32, self.stream as u32, (self.stream >> 32) as u32];
        for _ in 0..10 {
            let product = |factor: u32, word: u32| u64::from(factor) * u64::from(word);
            let (a, b) = (product(0xd251_1f53, counter[0]), product(0xcd9e_8d57, counter[2]));
            counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        counter
    }

    /// Returns `count` uniformly distributed numbers in [0, 1), each a multiple of 2⁻²⁴.
    #[cfg(feature = "alloc")]
    pub fn uniform(&self, count: usize) -> Vec<f32> {
        let words = (0..count.div_ceil(4) as u64).flat_map(|index| self.block(index));
        words.take(count).map(unit).collect()
    }

    /// Returns a permutation of the numbers below `count`, shuffled by the Fisher–Yates algorithm.
    #[cfg(feature = "alloc")]
    pub fn permutation(&self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        let mut words = (0..).flat_map(|index| self.block(index));
        for last in (1..count).rev() {
            // The high half of word × (last + 1) is a number from 0 to `last`.
            let word = words.next().unwrap_or(0);
            order.swap(last, ((u64::from(word) * (last as u64 + 1)) >> 32) as usize);
        }
        order
    }
}

/// Converts a random word to a number in [0, 1) that is a multiple of 2⁻²⁴.
pub(crate) fn unit(word: u32) -> f32 {
    (word >> 8) as f32 / 16_777_216.0
}

#[cfg(test)]
mod tests {
    use super::Stream;

    #[test]
    fn every_place_is_as_likely() {
        let mut first = [0; 4];
        (0..4000).for_each(|stream| first[Stream { key: 0, stream }.permutation(4)[0]] += 1);
        assert!(first.iter().all(|count| (880..1120).contains(count)), "{first:?}");
        let mut order = Stream { key: 1, stream: 0 }.permutation(9);
        order.sort();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// Test vectors that come with the authors' Random123 library.
    #[test]
    fn known_answers() {
        assert_eq!(Stream { key: 0, stream: 0 }.block(0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = Stream { key: u64::MAX, stream: u64::MAX };
        assert_eq!(ones.block(u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
