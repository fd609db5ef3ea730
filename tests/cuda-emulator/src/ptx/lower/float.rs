//! Instructions on floating-point numbers.

use super::{
    Builder, Opcode,
    builder::Result,
    tables::{binary, floats, ternary, unary},
};
use crate::{
    machine::{
        arithmetic::{
            float::{Float, Property, gross, through_f64},
            half::Half,
            rounding::{self, Rounding},
        },
        fused,
        registers::{Compute, Operands, Register},
    },
    ptx::{syntax::Operand, types::Type},
};

/// An instruction for each width and direction, from the two functions of [`rounding`].
macro_rules! directed {
    ($kind:expr, $rounding:expr, $make:ident, $f32:path, $f64:path, ($($a:ident),*)) => {
        match ($kind, $rounding) {
            (Type::F32, Rounding::Zero) => Some($make!(f32, |$($a),*| $f32($($a),*, Rounding::Zero).canonical())),
            (Type::F32, Rounding::Down) => Some($make!(f32, |$($a),*| $f32($($a),*, Rounding::Down).canonical())),
            (Type::F32, Rounding::Up) => Some($make!(f32, |$($a),*| $f32($($a),*, Rounding::Up).canonical())),
            (Type::F64, Rounding::Zero) => Some($make!(f64, |$($a),*| $f64($($a),*, Rounding::Zero).canonical())),
            (Type::F64, Rounding::Down) => Some($make!(f64, |$($a),*| $f64($($a),*, Rounding::Down).canonical())),
            (Type::F64, Rounding::Up) => Some($make!(f64, |$($a),*| $f64($($a),*, Rounding::Up).canonical())),
            _ => None,
        }
    };
}

impl<'t> Builder<'_, 't> {
    /// Arithmetic of an f16, f32 or f64.
    pub fn float(&mut self, mut op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        let flush = op.take("ftz");
        let saturate = op.take("sat");
        let rounding = op.rounding();
        if kind == Type::F16 {
            return if flush || saturate { op.unsupported() } else { self.half(op, operands) };
        }
        let base = op.base;
        let f = match base {
            "add" | "sub" | "mul" | "fma" | "mad" => arithmetic(base, kind, rounding.unwrap_or(Rounding::Nearest)),
            "div" | "rcp" | "sqrt" | "rsqrt" => self.quotients(&mut op, kind, rounding),
            "ex2" | "lg2" | "sin" | "cos" | "tanh" if rounding.is_none() && op.take("approx") => approximation(base, kind),
            "min" => floats!(kind, binary, |a, b| a.smaller(b)),
            "max" => floats!(kind, binary, |a, b| a.larger(b)),
            "abs" => floats!(kind, unary, |a| a.abs()),
            "neg" => floats!(kind, unary, |a| -a),
            // The sign is the first operand's.
            "copysign" => floats!(kind, binary, |a, b| b.copysign(a)),
            _ => None,
        };
        let Some(f) = f else { return op.unsupported() };
        let sources = match op.base {
            "fma" | "mad" => 3,
            "add" | "sub" | "mul" | "div" | "min" | "max" | "copysign" => 2,
            _ => 1,
        };
        self.emit_float(op, f, kind, sources, (flush, saturate), operands)
    }

    /// Emits an instruction between the flushes and the saturation that its modifiers ask for.
    fn emit_float(
        &mut self,
        op: Opcode<'t>,
        f: Compute,
        kind: Type,
        sources: usize,
        extra: (bool, bool),
        operands: &[Operand<'t>],
    ) -> Result<()> {
        op.finish()?;
        let (flush, saturate) = (extra.0 && kind == Type::F32, extra.1);
        if operands.len() != sources + 1 {
            return Err(format!("`{}` with {} operands", op.text, operands.len()));
        }
        let mut registers = [0; 3];
        for (register, operand) in registers.iter_mut().zip(&operands[1..]) {
            *register = self.source(operand, kind)?;
            if flush {
                *register = self.flushed(*register)?;
            }
        }
        let [a, b, c] = registers;
        let d = self.destination(&operands[0], kind)?;
        self.compute(f, Operands { d, a, b, c, p: 0 });
        let again = Operands { d, a: d, ..Operands::default() };
        if flush {
            self.compute(unary!(f32, |a| a.flushed()), again);
        }
        if saturate {
            let Some(f) = floats!(kind, unary, |a| a.saturated()) else { return op.unsupported() };
            self.compute(f, again);
        }
        Ok(())
    }

    /// A register with the value, zero if it was below the normal range.
    pub fn flushed(&mut self, a: Register) -> Result<Register> {
        let d = self.temporary(false)?;
        self.compute(unary!(f32, |a| a.flushed()), Operands { d, a, ..Operands::default() });
        Ok(d)
    }

    fn quotients(&mut self, op: &mut Opcode<'t>, kind: Type, rounding: Option<Rounding>) -> Option<Compute> {
        let approximate = op.take("approx") || op.take("full");
        match (op.base, rounding, approximate, kind) {
            ("div", Some(Rounding::Nearest), false, _) | ("div", None, true, Type::F32) => {
                floats!(kind, binary, |a, b| (a / b).canonical())
            }
            ("div", Some(rounding), false, _) => directed!(kind, rounding, binary, rounding::div32, rounding::div64, (a, b)),
            ("rcp", Some(Rounding::Nearest), false, _) | ("rcp", None, true, Type::F32) => floats!(kind, unary, |a| (1.0 / a).canonical()),
            ("rcp", Some(rounding), false, _) => directed_reciprocal(kind, rounding),
            ("rcp", None, true, _) => Some(unary!(f64, |a| gross(a, |a| 1.0 / a))),
            ("sqrt", Some(Rounding::Nearest), false, _) | ("sqrt", None, true, Type::F32) => floats!(kind, unary, |a| a.sqrt().canonical()),
            ("sqrt", Some(rounding), false, _) => directed!(kind, rounding, unary, rounding::sqrt32, rounding::sqrt64, (a)),
            ("rsqrt", None, true, Type::F32) => Some(unary!(f32, |a| through_f64(a, |a| 1.0 / a.sqrt()))),
            ("rsqrt", None, true, _) => Some(unary!(f64, |a| gross(a, |a| 1.0 / a.sqrt()))),
            _ => None,
        }
    }

    /// `testp`: a predicate.
    pub fn test_property(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        macro_rules! test {
            ($property:ident) => {
                match op.kind()? {
                    Type::F32 => (Type::F32, (|r, o, m| r.test2::<f32>(o, m, |a, _| a.has(Property::$property))) as Compute),
                    Type::F64 => (Type::F64, (|r, o, m| r.test2::<f64>(o, m, |a, _| a.has(Property::$property))) as Compute),
                    _ => return op.unsupported(),
                }
            };
        }
        let (kind, f) = match op.first(Some) {
            Some("finite") => test!(Finite),
            Some("infinite") => test!(Infinite),
            Some("number") => test!(Number),
            Some("notanumber") => test!(NotANumber),
            Some("normal") => test!(Normal),
            Some("subnormal") => test!(Subnormal),
            _ => return op.unsupported(),
        };
        let [p, a] = operands else { return op.unsupported() };
        op.finish()?;
        let a = self.source(a, kind)?;
        let p = self.destination(p, Type::Predicate)?;
        self.compute(f, Operands { a, b: a, p, ..Operands::default() });
        Ok(())
    }

    /// Arithmetic of halves, which f64 does exactly before it rounds.
    fn half(&mut self, op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        macro_rules! half {
            ($make:ident, ($($a:ident),*), $f:expr) => {
                Some($make!(Half, |$($a),*| {
                    $(let $a = f64::from($a.wide());)*
                    Half::nearest($f)
                }))
            };
        }
        let (f, sources) = match op.base {
            "add" => (half!(binary, (a, b), a + b), 2),
            "sub" => (half!(binary, (a, b), a - b), 2),
            "mul" => (half!(binary, (a, b), a * b), 2),
            "fma" => (half!(ternary, (a, b, c), a * b + c), 3),
            "min" => (half!(binary, (a, b), a.smaller(b)), 2),
            "max" => (half!(binary, (a, b), a.larger(b)), 2),
            "neg" => (Some(unary!(Half, |a| Half(a.0 ^ 0x8000))), 1),
            "abs" => (Some(unary!(Half, |a| Half(a.0 & 0x7fff))), 1),
            _ => (None, 0),
        };
        self.apply(&op, f, Type::F16, &[Type::F16; 3][..sources], operands)
    }
}

fn arithmetic(base: &str, kind: Type, rounding: Rounding) -> Option<Compute> {
    match (base, rounding) {
        ("add", Rounding::Nearest) => floats!(kind, binary, |a, b| (a + b).canonical()),
        ("sub", Rounding::Nearest) => floats!(kind, binary, |a, b| (a - b).canonical()),
        ("mul", Rounding::Nearest) => floats!(kind, binary, |a, b| (a * b).canonical()),
        ("fma" | "mad", Rounding::Nearest) => match kind {
            Type::F32 => Some(fused::fma32),
            Type::F64 => Some(fused::fma64),
            _ => None,
        },
        ("add", _) => directed!(kind, rounding, binary, rounding::add32, rounding::add64, (a, b)),
        ("sub", _) => directed!(kind, rounding, binary, rounding::sub32, rounding::sub64, (a, b)),
        ("mul", _) => directed!(kind, rounding, binary, rounding::mul32, rounding::mul64, (a, b)),
        _ => directed!(kind, rounding, ternary, rounding::fma32, rounding::fma64, (a, b, c)),
    }
}

fn directed_reciprocal(kind: Type, rounding: Rounding) -> Option<Compute> {
    directed!(kind, rounding, unary, rounding::rcp32, rounding::rcp64, (a))
}

/// Functions that a GPU approximates, for f32.
fn approximation(base: &str, kind: Type) -> Option<Compute> {
    if kind != Type::F32 {
        return None;
    }
    Some(match base {
        "ex2" => unary!(f32, |a| through_f64(a, f64::exp2)),
        "lg2" => unary!(f32, |a| through_f64(a, f64::log2)),
        "sin" => unary!(f32, |a| through_f64(a, f64::sin)),
        "cos" => unary!(f32, |a| through_f64(a, f64::cos)),
        _ => unary!(f32, |a| through_f64(a, f64::tanh)),
    })
}
