//! The instruction set of every CPU: plain Rust, which the compiler may vectorize.

use super::{Simd, WithSimd, four};
use std::array::from_fn;

/// Token of the portable set.
#[derive(Clone, Copy)]
pub struct Portable;

impl Simd for Portable {
    type Vector = [f32; 4];
    type Mask = [bool; 4];

    const LANES: usize = 4;
    const REGISTERS: usize = 16;

    // Not `#[inline]`, as `enter` of the other sets.
    fn vectorize<W: WithSimd>(self, work: W) {
        work.with_simd(self);
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; 4] {
        [value; 4]
    }

    #[inline(always)]
    fn add(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|lane| a[lane] + b[lane])
    }

    // `f32::mul_add` is a slow call on a CPU without the instruction.
    #[inline(always)]
    fn mul_add(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    fn equal(self, a: [f32; 4], b: [f32; 4]) -> [bool; 4] {
        from_fn(|lane| a[lane] == b[lane])
    }

    // The negation is true for NaN.
    #[allow(clippy::neg_cmp_op_on_partial_ord)]
    #[inline(always)]
    fn not_less_or_equal(self, a: [f32; 4], b: [f32; 4]) -> [bool; 4] {
        from_fn(|lane| !(a[lane] <= b[lane]))
    }

    #[inline(always)]
    fn and(self, a: [bool; 4], b: [bool; 4]) -> [bool; 4] {
        from_fn(|lane| a[lane] && b[lane])
    }

    #[inline(always)]
    fn select(self, mask: [bool; 4], a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|lane| if mask[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> [f32; 4] {
        four(&from[..4])
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], vector: [f32; 4]) {
        to[..4].copy_from_slice(&vector);
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> [f32; 4] {
        four(from)
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], vector: [f32; 4]) {
        to.iter_mut().zip(vector).for_each(|(to, element)| *to = element);
    }
}
