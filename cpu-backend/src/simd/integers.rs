//! Vectors of i32 and of bytes, for quantised ops. Only instruction sets with fast products of bytes have them.

#[cfg(test)]
mod tests;

#[cfg(target_arch = "aarch64")]
use super::aarch64_integers::{DotProd, Neon};
#[cfg(target_arch = "x86_64")]
use super::x86_integers::{Avx2, Vnni};

/// Number that turns an i8 into a byte of x for [`Integers::dot`], when it is added. x86-64 multiplies bytes without a sign and bytes with
/// a sign, and aarch64 bytes with a sign.
pub const OFFSET: i32 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };

/// Token of an instruction set for integers.
pub trait Integers: Copy {
    /// A vector of [`Integers::LANES`] numbers of i32, or of four times as many bytes.
    type Vector: Copy;

    /// Number of elements of a vector.
    const LANES: usize;

    /// Runs `work`, compiled with the instructions of this set.
    fn vectorize<W: WithIntegers>(self, work: W);

    /// Returns a vector whose elements are all `value`.
    fn splat(self, value: i32) -> Self::Vector;
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns the product, of which the upper half is lost.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns the smaller elements.
    fn least(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns the greater elements.
    fn greatest(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Shifts each element to the left.
    fn left(self, a: Self::Vector, by: Self::Vector) -> Self::Vector;
    /// Shifts each element to the right, as a number without a sign.
    fn right(self, a: Self::Vector, by: Self::Vector) -> Self::Vector;
    /// Shifts each element to the right, as a number with a sign.
    fn right_signed(self, a: Self::Vector, by: Self::Vector) -> Self::Vector;
    /// Returns the upper half of the product of `2 · a`, which is an i32, and `b`, which is not negative. It is rounded, and ties go up.
    /// With `DOWN`, 1 is subtracted from a negative product, and it is rounded down.
    fn mul_high<const DOWN: bool>(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns the bytes of elements in the order of [`Integers::dot`].
    #[inline(always)]
    fn ordered(self, bytes: Self::Vector) -> Self::Vector {
        bytes
    }
    /// Adds the products of four bytes of x, which have the [`OFFSET`], and four of a filter to each element. If both are not
    /// [ordered](Integers::ordered), only the total of all elements is defined.
    fn dot(self, sum: Self::Vector, x: Self::Vector, filter: Self::Vector) -> Self::Vector;
    /// Returns the product with a real number, rounded to 31 bits after the point, and then to an integer. Ties of the first rounding go
    /// up, and ties of the second away from zero.
    fn scale(self, x: Self::Vector, scale: &Scale<Self::Vector>) -> Self::Vector;
    /// Transposes blocks of four by four elements: element `4 · b + i` of vector j becomes element `4 · b + j` of vector i.
    fn transpose(self, vectors: [Self::Vector; 4]) -> [Self::Vector; 4];
    /// Adds the blocks of four elements of each vector. Block i of the result is the sum of those of vector i.
    fn add_blocks(self, vectors: [Self::Vector; 4]) -> Self::Vector;

    /// Loads the first elements of `from`. Panics if they do not fill the vector.
    fn load(self, from: &[i32]) -> Self::Vector;
    /// Stores `vector` in the first elements of `to`. Panics if `to` is shorter.
    fn store(self, to: &mut [i32], vector: Self::Vector);
    /// Loads the first bytes of `from`. Panics if they do not fill the vector.
    fn load_bytes(self, from: &[u8]) -> Self::Vector;
    /// Loads 16 bytes of every fourth row of `from`, whose length is `row`. Panics if there are too few.
    fn load_rows(self, from: &[u8], row: usize) -> Self::Vector;
    /// Loads a byte for each element, without its sign. Panics if there are too few.
    fn widen(self, from: &[u8]) -> Self::Vector;
    /// Loads a byte for each element, with its sign. Panics if there are too few.
    fn widen_signed(self, from: &[i8]) -> Self::Vector;
    /// Stores each element, limited to what a byte can hold. Panics if `to` is shorter.
    fn narrow(self, to: &mut [i8], vector: Self::Vector);
    /// Stores as many elements as `to` has room for, limited to what a byte can hold.
    fn narrow_part(self, to: &mut [i8], vector: Self::Vector);
}

/// Fixed-point numbers with which elements are multiplied.
#[derive(Clone, Copy)]
pub struct Scale<V> {
    pub value: V,
    /// Number of bits by which elements are shifted to the left before the product.
    pub left: V,
    /// Number of bits by which the product is shifted to the right.
    pub right: V,
    /// The bits that the shift to the right loses.
    pub lost: V,
    /// Half of `lost`.
    pub half: V,
}

impl<V: Copy> Scale<V> {
    /// Creates the numbers `value / 2³¹ · 2^exponent`. `value` is not negative, and `exponent` between -31 and 30.
    #[inline(always)]
    pub fn new<S: Integers<Vector = V>>(simd: S, value: V, exponent: V) -> Scale<V> {
        let (zero, one) = (simd.splat(0), simd.splat(1));
        let right = simd.greatest(simd.sub(zero, exponent), zero);
        let lost = simd.sub(simd.left(one, right), one);
        Scale { value, left: simd.greatest(exponent, zero), right, lost, half: simd.right(lost, one) }
    }
}

/// Work on integers that is compiled for each instruction set.
pub trait WithIntegers {
    /// Does the work. An implementation is `#[inline(always)]`, because only inlined code is compiled with the instructions.
    fn with_integers<S: Integers>(self, simd: S);
}

/// An instruction set for integers.
#[derive(Clone, Copy)]
pub enum IntegerSet {
    #[cfg(target_arch = "x86_64")]
    Vnni(Vnni),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "aarch64")]
    DotProd(DotProd),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl IntegerSet {
    /// Returns the sets of this machine, the best one first.
    pub fn all() -> impl Iterator<Item = IntegerSet> {
        #[cfg(target_arch = "x86_64")]
        let sets = [Vnni::detect().map(IntegerSet::Vnni), Avx2::detect().map(IntegerSet::Avx2)];
        #[cfg(target_arch = "aarch64")]
        let sets = [DotProd::detect().map(IntegerSet::DotProd), Neon::detect().map(IntegerSet::Neon)];
        sets.into_iter().flatten()
    }

    /// Returns the best set of this machine, if it has any.
    pub fn best() -> Option<IntegerSet> {
        IntegerSet::all().next()
    }

    /// Runs `work` with the instructions of this set.
    #[inline(always)]
    pub fn run<W: WithIntegers>(self, work: W) {
        match self {
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Vnni(simd) => simd.vectorize(work),
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx2(simd) => simd.vectorize(work),
            #[cfg(target_arch = "aarch64")]
            IntegerSet::DotProd(simd) => simd.vectorize(work),
            #[cfg(target_arch = "aarch64")]
            IntegerSet::Neon(simd) => simd.vectorize(work),
        }
    }
}
