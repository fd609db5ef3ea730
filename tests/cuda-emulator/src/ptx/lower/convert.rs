//! `cvt`: conversions, as a chain of steps.

use super::{
    Builder, Opcode,
    builder::Result,
    memory::place_of,
    tables::{floats, unary},
};
use crate::{
    machine::{
        arithmetic::{
            float::Float,
            half::Half,
            rounding::{Rounding, integer32, integer64, narrowed},
        },
        code::Place,
        registers::{Compute, Operands},
    },
    ptx::{syntax::Operand, types::Type},
};

/// A conversion for each destination, as Rust converts: integers wrap, floats to integers saturate.
macro_rules! to_each {
    ($source:ty, $to:expr) => {
        match $to {
            Type::U8 => Some(unary!($source, u8, |a| a as u8)),
            Type::S8 => Some(unary!($source, i8, |a| a as i8)),
            Type::U16 => Some(unary!($source, u16, |a| a as u16)),
            Type::S16 => Some(unary!($source, i16, |a| a as i16)),
            Type::U32 => Some(unary!($source, u32, |a| a as u32)),
            Type::S32 => Some(unary!($source, i32, |a| a as i32)),
            Type::U64 => Some(unary!($source, u64, |a| a as u64)),
            Type::S64 => Some(unary!($source, i64, |a| a as i64)),
            Type::F32 => Some(unary!($source, f32, |a| (a as f32).canonical())),
            Type::F64 => Some(unary!($source, f64, |a| (a as f64).canonical())),
            Type::F16 => Some(unary!($source, Half, |a| Half::nearest(a as f64))),
            _ => None,
        }
    };
}

macro_rules! from_integers {
    ($kind:expr, $d:ty, $f:expr) => {
        match $kind {
            Type::U8 => Some(unary!(u8, $d, $f)),
            Type::S8 => Some(unary!(i8, $d, $f)),
            Type::U16 => Some(unary!(u16, $d, $f)),
            Type::S16 => Some(unary!(i16, $d, $f)),
            Type::U32 => Some(unary!(u32, $d, $f)),
            Type::S32 => Some(unary!(i32, $d, $f)),
            Type::U64 => Some(unary!(u64, $d, $f)),
            Type::S64 => Some(unary!(i64, $d, $f)),
            _ => None,
        }
    };
}

/// A step and whether its result is 64 bits wide.
type Step = (Compute, bool);

impl<'t> Builder<'_, 't> {
    /// `cvt`.
    pub fn convert(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let (flush, saturate) = (op.take("ftz"), op.take("sat"));
        let integral = op.first(|m| ["rni", "rzi", "rmi", "rpi"].contains(&m).then_some(m));
        let rounding = op.rounding();
        let away = op.take("rna");
        let (to, from) = (op.kind()?, op.kind()?);
        op.finish()?;
        let is_plain = !flush && !saturate && integral.is_none();
        match (to, from) {
            (Type::F16x2 | Type::BF16x2, Type::F32) if is_plain && !away => return self.convert_pair(&op, to, rounding, operands),
            (Type::BF16 | Type::TF32, Type::F32) | (Type::F32, Type::BF16) if is_plain => {
                return self.convert_short(&op, (to, from), rounding, away, operands);
            }
            _ if away => return op.unsupported(),
            _ => {}
        }
        let [destination, source] = operands else { return op.unsupported() };

        let source = match source {
            Operand::Name(_) => self.loose(source, from)?,
            constant => place_of(from, self.source(constant, from)?),
        };
        let destination = self.loose(destination, to)?;
        let mut steps = Vec::new();
        if !Self::value_steps(&mut steps, (from, to), integral, rounding, (flush, saturate)) {
            return op.unsupported();
        }
        self.chain(steps, (destination, to), (source, from))
    }

    /// Emits a copy of a value of a type between registers that may be wider.
    pub fn reshape(&mut self, destination: Place, source: Place, kind: Type) -> Result<()> {
        let steps = conversion(kind, kind, None).map(|f| (f, kind.is_wide()));
        self.chain(steps.into_iter().collect(), (destination, kind), (source, kind))
    }

    /// The steps between the types. False if there is no such conversion.
    fn value_steps(
        steps: &mut Vec<Step>,
        (mut from, to): (Type, Type),
        integral: Option<&str>,
        rounding: Option<Rounding>,
        (flush, saturate): (bool, bool),
    ) -> bool {
        let before = steps.len();
        if from == Type::F16 {
            steps.push((unary!(Half, f32, |a| a.wide()), false));
            from = Type::F32;
        }
        if flush && from == Type::F32 {
            steps.push((unary!(f32, |a| a.flushed()), false));
        }
        if let Some(integral) = integral {
            let f = match integral {
                "rni" => floats!(from, unary, |a| a.round_ties_even()),
                "rmi" => floats!(from, unary, |a| a.floor()),
                "rpi" => floats!(from, unary, |a| a.ceil()),
                // To an integer, Rust's conversion truncates.
                _ if !to.is_float() => None,
                _ => floats!(from, unary, |a| a.trunc()),
            };
            steps.extend(f.map(|f| (f, from.is_wide())));
        }
        if saturate && !to.is_float() && !from.is_float() {
            let f = from_integers!(from, i64, |a| i128::from(a).min(i64::MAX.into()) as i64);
            steps.extend(f.map(|f| (f, true)));
            steps.extend(clamp(to).map(|f| (f, true)));
            from = Type::S64;
        }
        if from != to || steps.len() == before {
            let Some(f) = conversion(from, to, rounding) else { return false };
            steps.push((f, to.is_wide()));
        }
        if saturate && to.is_float() {
            let Some(f) = floats!(to, unary, |a| a.saturated()) else { return false };
            steps.push((f, to.is_wide()));
        }
        if flush && to == Type::F32 {
            steps.push((unary!(f32, |a| a.flushed()), false));
        }
        true
    }

    /// Emits steps, from a register that may be wider than its type to another such.
    fn chain(&mut self, mut steps: Vec<Step>, (destination, to): (Place, Type), (source, from): (Place, Type)) -> Result<()> {
        let mut a = match source {
            Place::Wide(register) if !from.is_wide() => {
                steps.insert(0, (unary!(u64, u32, |a| a as u32), false));
                register
            }
            Place::Wide(register) | Place::Narrow(register) => register,
            Place::Nowhere => return Err("a value is missing".into()),
        };
        let d = match destination {
            Place::Wide(register) if !to.is_wide() => {
                steps.push((if to.is_signed() { unary!(i32, i64, |a| a.into()) } else { unary!(u32, u64, |a| a.into()) }, true));
                register
            }
            Place::Wide(register) | Place::Narrow(register) => register,
            Place::Nowhere => return Ok(()),
        };
        let last = steps.len().saturating_sub(1);
        for (index, (f, wide)) in steps.into_iter().enumerate() {
            let to = if index == last { d } else { self.temporary(wide)? };
            self.compute(f, Operands { d: to, a, ..Operands::default() });
            a = to;
        }
        Ok(())
    }
}

fn conversion(from: Type, to: Type, rounding: Option<Rounding>) -> Option<Compute> {
    let rounding = rounding.unwrap_or(Rounding::Nearest);
    if rounding != Rounding::Nearest {
        return directed(from, to, rounding);
    }
    match from {
        Type::U8 => to_each!(u8, to),
        Type::S8 => to_each!(i8, to),
        Type::U16 => to_each!(u16, to),
        Type::S16 => to_each!(i16, to),
        Type::U32 => to_each!(u32, to),
        Type::S32 => to_each!(i32, to),
        Type::U64 => to_each!(u64, to),
        Type::S64 => to_each!(i64, to),
        Type::F32 => to_each!(f32, to),
        Type::F64 => to_each!(f64, to),
        _ => None,
    }
}

/// A conversion that does not round to the nearest.
fn directed(from: Type, to: Type, rounding: Rounding) -> Option<Compute> {
    macro_rules! rounded {
        ($rounding:expr) => {
            match (from, to) {
                (Type::F64, Type::F32) => Some(unary!(f64, f32, |a| narrowed(a, 0.0, $rounding).canonical())),
                (_, Type::F32) => from_integers!(from, f32, |a| integer32(a.into(), $rounding)),
                (_, Type::F64) => from_integers!(from, f64, |a| integer64(a.into(), $rounding)),
                _ => None,
            }
        };
    }
    match rounding {
        Rounding::Nearest => None,
        Rounding::Zero if to == Type::F16 => match from {
            Type::F32 => Some(unary!(f32, Half, |a| Half::truncated(a.into()))),
            Type::F64 => Some(unary!(f64, Half, Half::truncated)),
            _ => None,
        },
        Rounding::Zero => rounded!(Rounding::Zero),
        Rounding::Down => rounded!(Rounding::Down),
        Rounding::Up => rounded!(Rounding::Up),
    }
}

/// An integer within the range of a type, for `.sat`.
fn clamp(to: Type) -> Option<Compute> {
    Some(match to {
        Type::U8 => unary!(i64, |a| a.clamp(0, u8::MAX.into())),
        Type::S8 => unary!(i64, |a| a.clamp(i8::MIN.into(), i8::MAX.into())),
        Type::U16 => unary!(i64, |a| a.clamp(0, u16::MAX.into())),
        Type::S16 => unary!(i64, |a| a.clamp(i16::MIN.into(), i16::MAX.into())),
        Type::U32 => unary!(i64, |a| a.clamp(0, u32::MAX.into())),
        Type::S32 => unary!(i64, |a| a.clamp(i32::MIN.into(), i32::MAX.into())),
        Type::U64 => unary!(i64, |a| a.max(0)),
        _ => return None,
    })
}
