//! Instructions on bf16, and on pairs of f16 and bf16.

use super::{
    Builder, Opcode,
    builder::Result,
    tables::{binary, ternary, unary},
};
use crate::{
    machine::{
        arithmetic::{
            float::Float,
            half::Half,
            packed::{Brain, Packed, Pair, Short, Tf32Rounding, fused, tf32},
            rounding::Rounding,
        },
        registers::Compute,
    },
    ptx::{syntax::Operand, types::Type},
};

/// An instruction for each type.
macro_rules! each {
    ($kind:expr, $make:ident, $f:expr) => {
        match $kind {
            Type::BF16 => Some($make!(Brain, $f)),
            Type::F16x2 => Some($make!(Pair<Half>, $f)),
            Type::BF16x2 => Some($make!(Pair<Brain>, $f)),
            _ => None,
        }
    };
}

impl<'t> Builder<'_, 't> {
    /// Arithmetic of a bf16, or of a pair.
    pub fn packed(&mut self, mut op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        let is_sum = matches!(op.base, "add" | "sub" | "mul");
        self.needs(
            &op,
            if kind == Type::F16x2 {
                70
            } else if is_sum {
                90
            } else {
                80
            },
        )?;
        if op.rounding().is_some_and(|rounding| rounding != Rounding::Nearest) {
            return op.unsupported();
        }
        let (f, sources): (Option<Compute>, usize) = match op.base {
            "add" => (each!(kind, binary, |a, b| a.map2(b, |a, b| a + b)), 2),
            "sub" => (each!(kind, binary, |a, b| a.map2(b, |a, b| a - b)), 2),
            "mul" => (each!(kind, binary, |a, b| a.map2(b, |a, b| a * b)), 2),
            "fma" => (each!(kind, ternary, |a, b, c| a.map3(b, c, fused)), 3),
            "min" => (each!(kind, binary, |a, b| a.map2(b, f64::smaller)), 2),
            "max" => (each!(kind, binary, |a, b| a.map2(b, f64::larger)), 2),
            "neg" => (each!(kind, unary, |a| a.map(|a| -a)), 1),
            "abs" => (each!(kind, unary, |a| a.map(f64::abs)), 1),
            _ => (None, 0),
        };
        self.apply(&op, f, kind, &[kind; 3][..sources], operands)
    }

    /// `cvt` of two f32 to a pair: the first one becomes the upper half.
    pub fn convert_pair(&mut self, op: &Opcode<'t>, to: Type, rounding: Option<Rounding>, operands: &[Operand<'t>]) -> Result<()> {
        self.needs(op, 80)?;
        let f = match (to, rounding) {
            (Type::F16x2, Some(Rounding::Nearest)) => {
                Some(binary!(f32, f32, Pair<Half>, |a, b| Pair(Half::nearest(b.into()), Half::nearest(a.into()))))
            }
            (Type::F16x2, Some(Rounding::Zero)) => {
                Some(binary!(f32, f32, Pair<Half>, |a, b| Pair(Half::truncated(b.into()), Half::truncated(a.into()))))
            }
            (Type::BF16x2, Some(Rounding::Nearest)) => Some(binary!(f32, f32, Pair<Brain>, |a, b| Pair(nearest(b), nearest(a)))),
            (Type::BF16x2, Some(Rounding::Zero)) => {
                Some(binary!(f32, f32, Pair<Brain>, |a, b| Pair(Brain::truncated(b), Brain::truncated(a))))
            }
            _ => None,
        };
        self.apply(op, f, to, &[Type::F32; 2], operands)
    }

    /// `cvt` from f32 to bf16 or TF32, or from bf16 to f32.
    pub fn convert_short(
        &mut self,
        op: &Opcode<'t>,
        (to, from): (Type, Type),
        rounding: Option<Rounding>,
        away: bool,
        operands: &[Operand<'t>],
    ) -> Result<()> {
        let is_late = from == Type::BF16 || to == Type::TF32 && !away;
        self.needs(op, if is_late { 90 } else { 80 })?;
        let f = match (from, to, rounding) {
            (Type::F32, Type::BF16, Some(Rounding::Nearest)) => Some(unary!(f32, Brain, nearest)),
            (Type::F32, Type::BF16, Some(Rounding::Zero)) => Some(unary!(f32, Brain, Brain::truncated)),
            (Type::BF16, Type::F32, None) => Some(unary!(Brain, f32, |a| a.wide().canonical())),
            (Type::F32, Type::TF32, None) if away => Some(unary!(f32, |a| tf32(a, Tf32Rounding::Away))),
            (Type::F32, Type::TF32, Some(Rounding::Nearest)) => Some(unary!(f32, |a| tf32(a, Tf32Rounding::Even))),
            (Type::F32, Type::TF32, Some(Rounding::Zero)) => Some(unary!(f32, |a| tf32(a, Tf32Rounding::Zero))),
            _ => None,
        };
        self.apply(op, f, to, &[from], operands)
    }
}

fn nearest(value: f32) -> Brain {
    Brain::rounded(value.into())
}
