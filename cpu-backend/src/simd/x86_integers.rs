//! The instruction sets for integers of x86-64: AVX-512 with VNNI, and AVX2.

use super::integers::{Integers, Scale, WithIntegers};
use std::arch::x86_64::*;

token! {
    /// Token of AVX-512 with VNNI.
    Vnni for WithIntegers::with_integers:
        "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512vnni" "avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt"
}

token! {
    /// Token of AVX2.
    Avx2 for WithIntegers::with_integers: "avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt"
}

impl Integers for Vnni {
    type Vector = __m512i;

    const LANES: usize = 16;

    #[inline(always)]
    fn vectorize<W: WithIntegers>(self, work: W) {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { self.enter(work) }
    }

    by_intrinsics! {
        splat(value: i32) -> __m512i = _mm512_set1_epi32(value);
        add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        sub(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        mul(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        least(a: __m512i, b: __m512i) -> __m512i = _mm512_min_epi32(a, b);
        greatest(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epi32(a, b);
        left(a: __m512i, by: __m512i) -> __m512i = _mm512_sllv_epi32(a, by);
        right(a: __m512i, by: __m512i) -> __m512i = _mm512_srlv_epi32(a, by);
        right_signed(a: __m512i, by: __m512i) -> __m512i = _mm512_srav_epi32(a, by);
        dot(sum: __m512i, x: __m512i, filter: __m512i) -> __m512i = _mm512_dpbusd_epi32(sum, x, filter);
        scale(x: __m512i, scale: &Scale<__m512i>) -> __m512i = {
            let (x, half) = (_mm512_sllv_epi32(x, scale.left), _mm512_set1_epi64(1 << 30));
            let odd = _mm512_mul_epi32(_mm512_srli_epi64::<32>(x), _mm512_srli_epi64::<32>(scale.value));
            let even = _mm512_srli_epi64::<31>(_mm512_add_epi64(_mm512_mul_epi32(x, scale.value), half));
            let odd = _mm512_slli_epi64::<1>(_mm512_add_epi64(odd, half));
            let product = _mm512_mask_blend_epi32(0xaaaa, even, odd);
            let ties = _mm512_add_epi32(scale.half, _mm512_srli_epi32::<31>(product));
            let above = _mm512_cmpgt_epi32_mask(_mm512_and_si512(product, scale.lost), ties);
            let shifted = _mm512_srav_epi32(product, scale.right);
            _mm512_mask_add_epi32(shifted, above, shifted, _mm512_set1_epi32(1))
        };
        add_blocks(vectors: [__m512i; 4]) -> __m512i = {
            let [a, b, c, d] = vectors;
            let halves = |a, b| _mm512_add_epi32(_mm512_shuffle_i32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b));
            let (first, second) = (halves(a, b), halves(c, d));
            halves(first, second)
        };
        transpose(vectors: [__m512i; 4]) -> [__m512i; 4] = {
            let [a, b, c, d] = vectors;
            let low = [_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d)];
            let high = [_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d)];
            [
                _mm512_unpacklo_epi64(low[0], low[1]),
                _mm512_unpackhi_epi64(low[0], low[1]),
                _mm512_unpacklo_epi64(high[0], high[1]),
                _mm512_unpackhi_epi64(high[0], high[1]),
            ]
        };
    }

    #[inline(always)]
    fn mul_high<const DOWN: bool>(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token exists, so the CPU has the instructions, here and in the closure.
        unsafe {
            let rounded =
                |product| _mm512_add_epi64(product, if DOWN { _mm512_srai_epi64::<63>(product) } else { _mm512_set1_epi64(1 << 31) });
            let a = _mm512_add_epi32(a, a);
            let even = rounded(_mm512_mul_epi32(a, b));
            let odd = rounded(_mm512_mul_epi32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b)));
            _mm512_mask_shuffle_epi32::<0b11_11_01_01>(odd, 0x5555, even)
        }
    }

    #[inline(always)]
    fn load(self, from: &[i32]) -> __m512i {
        let from = &from[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [i32], vector: __m512i) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) }
    }

    #[inline(always)]
    fn load_bytes(self, from: &[u8]) -> __m512i {
        let from = &from[..64];
        // SAFETY: the slice has as many bytes as a vector.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_rows(self, from: &[u8], row: usize) -> __m512i {
        let (a, b, c, d) = (sixteen(from), sixteen(&from[4 * row..]), sixteen(&from[8 * row..]), sixteen(&from[12 * row..]));
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe {
            let vector = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
            _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(vector, c), d)
        }
    }

    #[inline(always)]
    fn widen(self, from: &[u8]) -> __m512i {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { _mm512_cvtepu8_epi32(sixteen(from)) }
    }

    #[inline(always)]
    fn widen_signed(self, from: &[i8]) -> __m512i {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { _mm512_cvtepi8_epi32(sixteen(bytemuck::cast_slice(from))) }
    }

    #[inline(always)]
    fn narrow(self, to: &mut [i8], vector: __m512i) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(vector)) }
    }

    #[inline(always)]
    fn narrow_part(self, to: &mut [i8], vector: __m512i) {
        let first = ((1u32 << to.len().min(Self::LANES)) - 1) as __mmask16;
        // SAFETY: the slice has an element for each lane of the mask. The others are not accessed.
        unsafe { _mm512_mask_cvtsepi32_storeu_epi8(to.as_mut_ptr().cast(), first, vector) }
    }
}

/// Loads 16 bytes.
#[inline(always)]
fn sixteen(from: &[u8]) -> __m128i {
    let from = &from[..16];
    // SAFETY: the slice has 16 bytes. Every CPU of the target has the instruction.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// Loads eight bytes into the lower half.
#[inline(always)]
fn eight(from: &[u8]) -> __m128i {
    let from = &from[..8];
    // SAFETY: the slice has eight bytes. Every CPU of the target has the instruction.
    unsafe { _mm_loadl_epi64(from.as_ptr().cast()) }
}

impl Integers for Avx2 {
    type Vector = __m256i;

    const LANES: usize = 8;

    #[inline(always)]
    fn vectorize<W: WithIntegers>(self, work: W) {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { self.enter(work) }
    }

    by_intrinsics! {
        splat(value: i32) -> __m256i = _mm256_set1_epi32(value);
        add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        sub(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
        mul(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
        or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        least(a: __m256i, b: __m256i) -> __m256i = _mm256_min_epi32(a, b);
        greatest(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epi32(a, b);
        left(a: __m256i, by: __m256i) -> __m256i = _mm256_sllv_epi32(a, by);
        right(a: __m256i, by: __m256i) -> __m256i = _mm256_srlv_epi32(a, by);
        right_signed(a: __m256i, by: __m256i) -> __m256i = _mm256_srav_epi32(a, by);
        // The instruction for products of bytes saturates, so the bytes become 16-bit numbers.
        dot(sum: __m256i, x: __m256i, filter: __m256i) -> __m256i = {
            let (low, high) = (_mm256_and_si256(x, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(x));
            let low = _mm256_madd_epi16(low, _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(filter)));
            let high = _mm256_madd_epi16(high, _mm256_srai_epi16::<8>(filter));
            _mm256_add_epi32(sum, _mm256_add_epi32(low, high))
        };
        scale(x: __m256i, scale: &Scale<__m256i>) -> __m256i = {
            let (x, half) = (_mm256_sllv_epi32(x, scale.left), _mm256_set1_epi64x(1 << 30));
            let odd = _mm256_mul_epi32(_mm256_srli_epi64::<32>(x), _mm256_srli_epi64::<32>(scale.value));
            let even = _mm256_srli_epi64::<31>(_mm256_add_epi64(_mm256_mul_epi32(x, scale.value), half));
            let odd = _mm256_slli_epi64::<1>(_mm256_add_epi64(odd, half));
            let product = _mm256_blend_epi32::<0xaa>(even, odd);
            let ties = _mm256_add_epi32(scale.half, _mm256_srli_epi32::<31>(product));
            let above = _mm256_cmpgt_epi32(_mm256_and_si256(product, scale.lost), ties);
            _mm256_sub_epi32(_mm256_srav_epi32(product, scale.right), above)
        };
        add_blocks(vectors: [__m256i; 4]) -> __m256i = {
            let [a, b, ..] = vectors;
            _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
        };
        transpose(vectors: [__m256i; 4]) -> [__m256i; 4] = {
            let [a, b, c, d] = vectors;
            let low = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
            let high = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
            [
                _mm256_unpacklo_epi64(low[0], low[1]),
                _mm256_unpackhi_epi64(low[0], low[1]),
                _mm256_unpacklo_epi64(high[0], high[1]),
                _mm256_unpackhi_epi64(high[0], high[1]),
            ]
        };
    }

    #[inline(always)]
    fn mul_high<const DOWN: bool>(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token exists, so the CPU has the instructions, here and in the closure.
        unsafe {
            let rounded = |product| {
                _mm256_add_epi64(
                    product,
                    if DOWN { _mm256_cmpgt_epi64(_mm256_setzero_si256(), product) } else { _mm256_set1_epi64x(1 << 31) },
                )
            };
            let a = _mm256_add_epi32(a, a);
            let even = rounded(_mm256_mul_epi32(a, b));
            let odd = rounded(_mm256_mul_epi32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b)));
            _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd)
        }
    }

    #[inline(always)]
    fn load(self, from: &[i32]) -> __m256i {
        let from = &from[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [i32], vector: __m256i) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), vector) }
    }

    #[inline(always)]
    fn load_bytes(self, from: &[u8]) -> __m256i {
        let from = &from[..32];
        // SAFETY: the slice has as many bytes as a vector.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_rows(self, from: &[u8], row: usize) -> __m256i {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { _mm256_set_m128i(sixteen(&from[4 * row..]), sixteen(from)) }
    }

    #[inline(always)]
    fn widen(self, from: &[u8]) -> __m256i {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { _mm256_cvtepu8_epi32(eight(from)) }
    }

    #[inline(always)]
    fn widen_signed(self, from: &[i8]) -> __m256i {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { _mm256_cvtepi8_epi32(eight(bytemuck::cast_slice(from))) }
    }

    #[inline(always)]
    fn narrow(self, to: &mut [i8], vector: __m256i) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe {
            let words = _mm256_packs_epi32(vector, vector);
            let bytes = _mm256_packs_epi16(words, words);
            let bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            _mm_storel_epi64(to.as_mut_ptr().cast(), bytes);
        }
    }

    #[inline(always)]
    fn narrow_part(self, to: &mut [i8], vector: __m256i) {
        let mut elements = [0; Self::LANES];
        self.narrow(&mut elements, vector);
        for (to, element) in to.iter_mut().zip(elements) {
            *to = element;
        }
    }
}
