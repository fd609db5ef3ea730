//! The instruction sets of x86-64: AVX-512, and AVX2 with fused multiplication and addition.

use super::{Simd, WithSimd};
use std::arch::x86_64::*;

token! {
    /// Token of AVX-512, with the features of the level x86-64-v4.
    Avx512 for WithSimd::with_simd: "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt"
}

token! {
    /// Token of AVX2, with the features of the level x86-64-v3.
    Avx2 for WithSimd::with_simd: "avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt"
}

impl Simd for Avx512 {
    type Vector = __m512;
    type Mask = __mmask16;

    const LANES: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn vectorize<W: WithSimd>(self, work: W) {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { self.enter(work) }
    }

    by_intrinsics! {
        splat(value: f32) -> __m512 = _mm512_set1_ps(value);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        equal(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        not_less_or_equal(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(a, b);
        and(a: __mmask16, b: __mmask16) -> __mmask16 = _kand_mask16(a, b);
        select(mask: __mmask16, a: __m512, b: __m512) -> __m512 = _mm512_mask_blend_ps(mask, b, a);
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        let from = &from[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], vector: __m512) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), vector) }
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> __m512 {
        // SAFETY: the slice has an element for each lane of the mask. The others are not accessed.
        unsafe { _mm512_maskz_loadu_ps(self.first(from.len()), from.as_ptr()) }
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], vector: __m512) {
        // SAFETY: the slice has an element for each lane of the mask. The others are not accessed.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), self.first(to.len()), vector) }
    }
}

impl Avx512 {
    /// Returns the mask of the first `count` lanes.
    #[inline(always)]
    fn first(self, count: usize) -> __mmask16 {
        ((1u32 << count.min(Self::LANES)) - 1) as __mmask16
    }
}

impl Simd for Avx2 {
    type Vector = __m256;
    type Mask = __m256;

    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn vectorize<W: WithSimd>(self, work: W) {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { self.enter(work) }
    }

    by_intrinsics! {
        splat(value: f32) -> __m256 = _mm256_set1_ps(value);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        equal(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
        not_less_or_equal(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_NLE_UQ>(a, b);
        and(a: __m256, b: __m256) -> __m256 = _mm256_and_ps(a, b);
        select(mask: __m256, a: __m256, b: __m256) -> __m256 = _mm256_blendv_ps(b, a, mask);
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        let from = &from[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], vector: __m256) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), vector) }
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> __m256 {
        // SAFETY: the slice has an element for each lane of the mask. The others are not accessed.
        unsafe { _mm256_maskload_ps(from.as_ptr(), self.first(from.len())) }
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], vector: __m256) {
        // SAFETY: the slice has an element for each lane of the mask. The others are not accessed.
        unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), self.first(to.len()), vector) }
    }
}

impl Avx2 {
    by_intrinsics! {
        /// Returns the mask of the first `count` lanes.
        first(count: usize) -> __m256i =
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(Self::LANES) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
}
