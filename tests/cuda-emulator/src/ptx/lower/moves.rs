//! `mov` and conversions of addresses.

use super::{
    Builder, Opcode,
    builder::Result,
    tables::{binary, unary},
};
use crate::{
    machine::{
        LOCAL_WINDOW, SHARED_WINDOW,
        code::{Operation, Place, Space, Special},
        registers::{Compute, Operands, Register},
    },
    ptx::{syntax::Operand, types::Type},
};

impl<'t> Builder<'_, 't> {
    /// `mov`: of a register, constant, address or special register, or of parts to and from a vector.
    pub fn mov(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let kind = op.kind()?;
        if kind == Type::Predicate {
            return self.logic(op, operands);
        }
        op.finish()?;
        match operands {
            [Operand::Vector(parts), a] => self.unpack(&op, kind, parts, a),
            [d, Operand::Vector(parts)] => self.pack(&op, kind, d, parts),
            [d, Operand::Name(name)] if special(name).is_some() => {
                let Some(special) = special(name) else { return op.unsupported() };
                let d = self.destination(d, kind)?;
                self.emit(Operation::Special(special, if kind.is_wide() { Place::Wide(d) } else { Place::Narrow(d) }));
                Ok(())
            }
            [d, a] => {
                let a = self.source(a, kind)?;
                let d = self.destination(d, kind)?;
                self.copy(kind.is_wide(), d, a);
                Ok(())
            }
            _ => op.unsupported(),
        }
    }

    /// Copies a register.
    pub fn copy(&mut self, wide: bool, d: Register, a: Register) {
        self.compute(if wide { unary!(u64, |a| a) } else { unary!(u32, |a| a) }, Operands { d, a, ..Operands::default() });
    }

    /// `mov {low, high}, a`.
    fn unpack(&mut self, op: &Opcode<'t>, kind: Type, parts: &[Operand<'t>], a: &Operand<'t>) -> Result<()> {
        let a = self.source(a, kind)?;
        let (part, functions): (Type, &[Compute]) = match (kind.bytes(), parts.len()) {
            (4, 2) => (Type::B16, &[unary!(u32, |a| a & 0xffff), unary!(u32, |a| a >> 16)]),
            (8, 2) => (Type::B32, &[unary!(u64, u32, |a| a as u32), unary!(u64, u32, |a| (a >> 32) as u32)]),
            (8, 4) => (
                Type::B16,
                &[
                    unary!(u64, u16, |a| a as u16),
                    unary!(u64, u16, |a| (a >> 16) as u16),
                    unary!(u64, u16, |a| (a >> 32) as u16),
                    unary!(u64, u16, |a| (a >> 48) as u16),
                ],
            ),
            _ => return op.unsupported(),
        };
        for (operand, f) in parts.iter().zip(functions) {
            let d = self.destination(operand, part)?;
            self.compute(*f, Operands { d, a, ..Operands::default() });
        }
        Ok(())
    }

    /// `mov d, {low, high}`.
    fn pack(&mut self, op: &Opcode<'t>, kind: Type, d: &Operand<'t>, parts: &[Operand<'t>]) -> Result<()> {
        let d = self.destination(d, kind)?;
        let halves = binary!(u16, u16, u32, |a, b| u32::from(a) | u32::from(b) << 16);
        let words = binary!(u32, u32, u64, |a, b| u64::from(a) | u64::from(b) << 32);
        let part = if kind.bytes() == 8 && parts.len() == 2 { Type::B32 } else { Type::B16 };
        let registers = parts.iter().map(|operand| self.source(operand, part)).collect::<Result<Vec<_>>>()?;
        match (kind.bytes(), &registers[..]) {
            (4, &[a, b]) => self.compute(halves, Operands { d, a, b, ..Operands::default() }),
            (8, &[a, b]) => self.compute(words, Operands { d, a, b, ..Operands::default() }),
            (8, &[a, b, c, e]) => {
                let (low, high) = (self.temporary(false)?, self.temporary(false)?);
                self.compute(halves, Operands { d: low, a, b, ..Operands::default() });
                self.compute(halves, Operands { d: high, a: c, b: e, ..Operands::default() });
                self.compute(words, Operands { d, a: low, b: high, ..Operands::default() });
            }
            _ => return op.unsupported(),
        }
        Ok(())
    }

    /// `cvta`: from an address of a space to a generic one, or back.
    pub fn convert_address(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let back = op.take("to");
        let window = match op.space() {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Global | Space::Constant => 0,
            _ => return op.unsupported(),
        };
        let (kind, [d, a]) = (op.kind()?, operands) else { return op.unsupported() };
        op.finish()?;
        if kind != Type::U64 {
            return op.unsupported();
        }
        let a = self.source(a, kind)?;
        let d = self.destination(d, kind)?;
        let window = self.bits(kind, if back { window.wrapping_neg() } else { window })?;
        self.compute(binary!(u64, |a, b| a.wrapping_add(b)), Operands { d, a, b: window, ..Operands::default() });
        Ok(())
    }

    /// `isspacep`: whether a generic address lies in a space.
    pub fn is_in_space(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let window = match op.space() {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Global => 0,
            _ => return op.unsupported(),
        };
        let [p, a] = operands else { return op.unsupported() };
        op.finish()?;
        let (a, b) = (self.source(a, Type::U64)?, self.bits(Type::U64, window)?);
        let p = self.destination(p, Type::Predicate)?;
        self.compute(|r, o, m| r.test2::<u64>(o, m, |a, b| a >> 56 == b >> 56), Operands { a, b, p, ..Operands::default() });
        Ok(())
    }
}

/// A special register by its name.
fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((base, suffix)) = name.split_once('.') {
        let axis = axis(suffix)?;
        return Some(match base {
            "%tid" => Special::Thread(axis),
            "%ntid" => Special::BlockSize(axis),
            "%ctaid" => Special::Block(axis),
            "%nctaid" => Special::GridSize(axis),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LaneEqual,
        "%lanemask_lt" => Special::LaneBelow,
        "%lanemask_le" => Special::LaneUpTo,
        "%lanemask_gt" => Special::LaneAbove,
        "%lanemask_ge" => Special::LaneFrom,
        "%clock" | "%clock64" | "%globaltimer" => Special::Clock,
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        "%smid" | "%gridid" => Special::Zero,
        "%nsmid" => Special::One,
        _ => return None,
    })
}
