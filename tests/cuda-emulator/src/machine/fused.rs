//! Fused multiplication and addition, by the processor's own instruction where it has one.
//!
//! This is the machine's only `unsafe`: without it each lane costs a call of the C library.

use super::{
    arithmetic::float::Float,
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
