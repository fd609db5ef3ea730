//! The instruction sets for integers of aarch64: NEON with the extension for dot products, and NEON.

use super::integers::{Integers, Scale, WithIntegers};
use std::arch::{aarch64::*, asm};

token! {
    /// Token of NEON with the extension for dot products.
    DotProd for WithIntegers::with_integers: "neon" "dotprod"
}

token! {
    /// Token of NEON, which every CPU of the target has.
    Neon for WithIntegers::with_integers: "neon"
}

/// The functions of [`Integers`] in which the two sets differ.
pub trait Products: Copy {
    fn vectorize<W: WithIntegers>(self, work: W);
    fn ordered(self, bytes: int32x4_t) -> int32x4_t;
    fn dot(self, sum: int32x4_t, x: int32x4_t, filter: int32x4_t) -> int32x4_t;
}

impl Products for DotProd {
    #[inline(always)]
    fn vectorize<W: WithIntegers>(self, work: W) {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { self.enter(work) }
    }

    #[inline(always)]
    fn ordered(self, bytes: int32x4_t) -> int32x4_t {
        bytes
    }

    by_intrinsics! {
        dot(sum: int32x4_t, x: int32x4_t, filter: int32x4_t) -> int32x4_t = sdot(sum, x, filter);
    }
}

/// Adds the products of four bytes to each element. `std` has no stable function for this instruction.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn sdot(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: whoever calls the function has the instruction. It changes only the register of the sum.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Order of the bytes of four elements: the first two bytes of each, and then the last two.
const ORDER: [u64; 2] = [0x0d0c_0908_0504_0100, 0x0f0e_0b0a_0706_0302];

impl Products for Neon {
    #[inline(always)]
    fn vectorize<W: WithIntegers>(self, work: W) {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { self.enter(work) }
    }

    by_intrinsics! {
        ordered(bytes: int32x4_t) -> int32x4_t = {
            let order = vcombine_u8(vcreate_u8(ORDER[0]), vcreate_u8(ORDER[1]));
            vreinterpretq_s32_s8(vqtbl1q_s8(vreinterpretq_s8_s32(bytes), order))
        };
        // The sum of four products may exceed 16 bits. Two at a time are added to 32 bits.
        dot(sum: int32x4_t, x: int32x4_t, filter: int32x4_t) -> int32x4_t = {
            let (x, filter) = (vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(filter));
            let sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(x), vget_low_s8(filter)));
            vpadalq_s16(sum, vmull_high_s8(x, filter))
        };
    }
}

impl<P: Products> Integers for P {
    type Vector = int32x4_t;

    const LANES: usize = 4;

    #[inline(always)]
    fn vectorize<W: WithIntegers>(self, work: W) {
        Products::vectorize(self, work);
    }

    #[inline(always)]
    fn ordered(self, bytes: int32x4_t) -> int32x4_t {
        Products::ordered(self, bytes)
    }

    #[inline(always)]
    fn dot(self, sum: int32x4_t, x: int32x4_t, filter: int32x4_t) -> int32x4_t {
        Products::dot(self, sum, x, filter)
    }

    by_intrinsics! {
        splat(value: i32) -> int32x4_t = vdupq_n_s32(value);
        add(a: int32x4_t, b: int32x4_t) -> int32x4_t = vaddq_s32(a, b);
        sub(a: int32x4_t, b: int32x4_t) -> int32x4_t = vsubq_s32(a, b);
        mul(a: int32x4_t, b: int32x4_t) -> int32x4_t = vmulq_s32(a, b);
        or(a: int32x4_t, b: int32x4_t) -> int32x4_t = vorrq_s32(a, b);
        least(a: int32x4_t, b: int32x4_t) -> int32x4_t = vminq_s32(a, b);
        greatest(a: int32x4_t, b: int32x4_t) -> int32x4_t = vmaxq_s32(a, b);
        // A shift to the left by a negative number is one to the right.
        left(a: int32x4_t, by: int32x4_t) -> int32x4_t = vshlq_s32(a, by);
        right(a: int32x4_t, by: int32x4_t) -> int32x4_t = {
            vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vnegq_s32(by)))
        };
        right_signed(a: int32x4_t, by: int32x4_t) -> int32x4_t = vshlq_s32(a, vnegq_s32(by));
        scale(x: int32x4_t, scale: &Scale<int32x4_t>) -> int32x4_t = {
            let product = vqrdmulhq_s32(vshlq_s32(x, scale.left), scale.value);
            let ties = vsraq_n_u32::<31>(vreinterpretq_u32_s32(scale.half), vreinterpretq_u32_s32(product));
            let above = vcgtq_s32(vandq_s32(product, scale.lost), vreinterpretq_s32_u32(ties));
            vsubq_s32(vshlq_s32(product, vnegq_s32(scale.right)), vreinterpretq_s32_u32(above))
        };
        transpose(vectors: [int32x4_t; 4]) -> [int32x4_t; 4] = {
            let [a, b, c, d] = vectors;
            let pairs = |a, b| [vreinterpretq_s64_s32(vtrn1q_s32(a, b)), vreinterpretq_s64_s32(vtrn2q_s32(a, b))];
            let ([even, odd], [even_below, odd_below]) = (pairs(a, b), pairs(c, d));
            [
                vreinterpretq_s32_s64(vzip1q_s64(even, even_below)),
                vreinterpretq_s32_s64(vzip1q_s64(odd, odd_below)),
                vreinterpretq_s32_s64(vzip2q_s64(even, even_below)),
                vreinterpretq_s32_s64(vzip2q_s64(odd, odd_below)),
            ]
        };
    }

    #[inline(always)]
    fn mul_high<const DOWN: bool>(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: the token exists, so the CPU has the instructions, here and in the closure.
        unsafe {
            if !DOWN {
                return vqrdmulhq_s32(a, b);
            }
            let below = |product| vreinterpretq_s32_s64(vsraq_n_s64::<63>(product, product));
            vuzp2q_s32(below(vqdmull_s32(vget_low_s32(a), vget_low_s32(b))), below(vqdmull_high_s32(a, b)))
        }
    }

    #[inline(always)]
    fn add_blocks(self, [block, ..]: [int32x4_t; 4]) -> int32x4_t {
        block
    }

    #[inline(always)]
    fn load(self, from: &[i32]) -> int32x4_t {
        let from = &from[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { vld1q_s32(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [i32], vector: int32x4_t) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has an element for each lane.
        unsafe { vst1q_s32(to.as_mut_ptr(), vector) }
    }

    #[inline(always)]
    fn load_bytes(self, from: &[u8]) -> int32x4_t {
        let from = &from[..16];
        // SAFETY: the slice has as many bytes as a vector.
        unsafe { vreinterpretq_s32_u8(vld1q_u8(from.as_ptr())) }
    }

    #[inline(always)]
    fn load_rows(self, from: &[u8], _: usize) -> int32x4_t {
        self.load_bytes(from)
    }

    #[inline(always)]
    fn widen(self, from: &[u8]) -> int32x4_t {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four(from)))))) }
    }

    #[inline(always)]
    fn widen_signed(self, from: &[i8]) -> int32x4_t {
        // SAFETY: the token exists, so the CPU has the instructions.
        unsafe { vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four(bytemuck::cast_slice(from)))))) }
    }

    #[inline(always)]
    fn narrow(self, to: &mut [i8], vector: int32x4_t) {
        to[..Self::LANES].copy_from_slice(&bytes(vector));
    }

    #[inline(always)]
    fn narrow_part(self, to: &mut [i8], vector: int32x4_t) {
        to.iter_mut().zip(bytes(vector)).for_each(|(to, element)| *to = element);
    }
}

/// Returns the first four bytes. Panics if there are fewer.
#[inline(always)]
fn four(from: &[u8]) -> u64 {
    u32::from_le_bytes(from.as_chunks().0[0]).into()
}

/// Returns the elements, limited to what a byte can hold.
#[inline(always)]
fn bytes(vector: int32x4_t) -> [i8; 4] {
    // SAFETY: every CPU of the target has the instructions.
    let bytes = unsafe {
        let words = vqmovn_s32(vector);
        vget_lane_s32::<0>(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))))
    };
    bytes.to_le_bytes().map(|byte| byte as i8)
}
