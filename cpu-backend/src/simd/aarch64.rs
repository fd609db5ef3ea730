//! The instruction set NEON, which every CPU of the target has.

use super::{Simd, WithSimd, four};
use std::arch::aarch64::*;

#[cfg(not(target_feature = "neon"))]
compile_error!("gradlet requires NEON on aarch64");

/// Token of NEON.
#[derive(Clone, Copy)]
pub struct Neon;

impl Simd for Neon {
    type Vector = float32x4_t;
    type Mask = uint32x4_t;

    const LANES: usize = 4;
    const REGISTERS: usize = 32;

    // Not `#[inline]`, as `enter` of the other sets.
    fn vectorize<W: WithSimd>(self, work: W) {
        work.with_simd(self);
    }

    by_intrinsics! {
        splat(value: f32) -> float32x4_t = vdupq_n_f32(value);
        add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        equal(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vceqq_f32(a, b);
        not_less_or_equal(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vmvnq_u32(vcleq_f32(a, b));
        and(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t = vandq_u32(a, b);
        select(mask: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(mask, a, b);
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> float32x4_t {
        let from = &from[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { vld1q_f32(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], vector: float32x4_t) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { vst1q_f32(to.as_mut_ptr(), vector) }
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> float32x4_t {
        self.load(&four(from))
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], vector: float32x4_t) {
        let mut elements = [0.0; 4];
        self.store(&mut elements, vector);
        to.iter_mut().zip(elements).for_each(|(to, element)| *to = element);
    }
}
