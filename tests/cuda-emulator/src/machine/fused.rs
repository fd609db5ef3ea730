//! Fused multiplication and addition, and products of matrices, by the processor's own instructions where it has them.
//!
//! This is the machine's only `unsafe`: without it each lane costs a call of the C library.

use super::{
    arithmetic::float::Float,
    matrix::{COLUMNS, DEPTH, ROWS, Tile, accumulate},
    registers::{Operands, Registers},
};

/// `d = a * b + c` of f32.
pub fn fma32(registers: &mut Registers, o: &Operands, mask: u32) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the features.
        return unsafe { fma32_x86(registers, o, mask) };
    }
    registers.map3::<f32, f32, f32, f32>(o, mask, |a, b, c| a.mul_add(b, c).canonical());
}

/// Adds the product of matrices of a depth to sums.
pub fn multiply(a: &[[f64; DEPTH]; ROWS], b: &[[f64; COLUMNS]; DEPTH], depth: usize, sums: &mut Tile) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the feature.
        return unsafe { multiply_x86(a, b, depth, sums) };
    }
    accumulate(a, b, depth, sums);
}

/// `d = a * b + c` of f64.
pub fn fma64(registers: &mut Registers, o: &Operands, mask: u32) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the features.
        return unsafe { fma64_x86(registers, o, mask) };
    }
    registers.map3::<f64, f64, f64, f64>(o, mask, |a, b, c| a.mul_add(b, c).canonical());
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma32_x86(registers: &mut Registers, o: &Operands, mask: u32) {
    registers.map3::<f32, f32, f32, f32>(o, mask, |a, b, c| a.mul_add(b, c).canonical());
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma64_x86(registers: &mut Registers, o: &Operands, mask: u32) {
    registers.map3::<f64, f64, f64, f64>(o, mask, |a, b, c| a.mul_add(b, c).canonical());
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_x86(a: &[[f64; DEPTH]; ROWS], b: &[[f64; COLUMNS]; DEPTH], depth: usize, sums: &mut Tile) {
    accumulate(a, b, depth, sums);
}
