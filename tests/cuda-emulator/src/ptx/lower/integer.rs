//! Instructions on integers and bits.

use super::{
    Builder, Opcode,
    builder::{CARRY, Result},
    tables::{binary, integers, ternary, unary, widths},
};
use crate::{
    machine::{
        arithmetic::integer::{Integer, dot4, funnel_left, funnel_right, insert, lookup, permute, permute_selector},
        registers::{Compute, Operands},
    },
    ptx::{syntax::Operand, types::Type},
};

/// The type of twice the width.
fn double(kind: Type) -> Type {
    match kind {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        _ => Type::S64,
    }
}

impl<'t> Builder<'_, 't> {
    /// Emits `d = f(sources…)`, with a type for each source.
    pub fn apply(&mut self, op: &Opcode<'t>, f: Option<Compute>, d: Type, sources: &[Type], operands: &[Operand<'t>]) -> Result<()> {
        let Some(f) = f else { return op.unsupported() };
        op.finish()?;
        if operands.len() != sources.len() + 1 {
            return Err(format!("`{}` with {} operands", op.text, operands.len()));
        }
        let mut registers = [0; 3];
        for ((register, operand), kind) in registers.iter_mut().zip(&operands[1..]).zip(sources) {
            *register = self.source(operand, *kind)?;
        }
        let [a, b, c] = registers;
        let d = self.destination(&operands[0], d)?;
        self.compute(f, Operands { d, a, b, c, p: 0 });
        Ok(())
    }

    /// `add`, `sub`, `mul`, `mad` and others of an integer type.
    pub fn integer(&mut self, mut op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        if matches!(op.base, "addc" | "subc" | "madc") || op.take("cc") {
            return self.carry(op, kind, operands);
        }
        let base = op.base;
        let two = match base {
            "add" if op.take("sat") => (kind == Type::S32).then_some(binary!(i32, |a, b| a.saturating_add(b))),
            "sub" if op.take("sat") => (kind == Type::S32).then_some(binary!(i32, |a, b| a.saturating_sub(b))),
            "add" => integers!(kind, binary, |a, b| a.wrapping_add(b)),
            "sub" => integers!(kind, binary, |a, b| a.wrapping_sub(b)),
            "div" => integers!(kind, binary, |a, b| a.quotient(b)),
            "rem" => integers!(kind, binary, |a, b| a.remainder(b)),
            "min" => integers!(kind, binary, |a, b| a.min(b)),
            "max" => integers!(kind, binary, |a, b| a.max(b)),
            "mul" | "mul24" => return self.product(op, kind, operands),
            "mad" | "mad24" => return self.product_sum(op, kind, operands),
            "abs" => {
                let f = match kind {
                    Type::S16 => Some(unary!(i16, |a| a.wrapping_abs())),
                    Type::S32 => Some(unary!(i32, |a| a.wrapping_abs())),
                    Type::S64 => Some(unary!(i64, |a| a.wrapping_abs())),
                    _ => None,
                };
                return self.apply(&op, f, kind, &[kind], operands);
            }
            "neg" => {
                let f = if kind.is_signed() { integers!(kind, unary, |a| a.wrapping_neg()) } else { None };
                return self.apply(&op, f, kind, &[kind], operands);
            }
            "sad" => {
                let f = integers!(kind, ternary, |a, b, c| c.wrapping_add(if a > b { a.wrapping_sub(b) } else { b.wrapping_sub(a) }));
                return self.apply(&op, f, kind, &[kind; 3], operands);
            }
            _ => return op.unsupported(),
        };
        self.apply(&op, two, kind, &[kind; 2], operands)
    }

    fn product(&mut self, mut op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        if op.take("wide") {
            let f = match kind {
                Type::U16 => Some(binary!(u16, u16, u32, |a, b| u32::from(a) * u32::from(b))),
                Type::S16 => Some(binary!(i16, i16, i32, |a, b| i32::from(a) * i32::from(b))),
                Type::U32 => Some(binary!(u32, u32, u64, |a, b| u64::from(a) * u64::from(b))),
                Type::S32 => Some(binary!(i32, i32, i64, |a, b| i64::from(a) * i64::from(b))),
                _ => None,
            };
            return self.apply(&op, f, double(kind), &[kind; 2], operands);
        }
        let f = match (op.base, op.take("hi")) {
            ("mul", true) => integers!(kind, binary, |a, b| a.high(b)),
            ("mul", false) if op.take("lo") => integers!(kind, binary, |a, b| a.wrapping_mul(b)),
            ("mul24", false) if op.take("lo") => match kind {
                Type::U32 => Some(binary!(u32, |a, b| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff))),
                Type::S32 => Some(binary!(i32, |a, b| (a << 8 >> 8).wrapping_mul(b << 8 >> 8))),
                _ => None,
            },
            _ => None,
        };
        self.apply(&op, f, kind, &[kind; 2], operands)
    }

    fn product_sum(&mut self, mut op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        if op.take("wide") {
            let f = match kind {
                Type::U16 => Some(ternary!(u16, u16, u32, u32, |a, b, c| (u32::from(a) * u32::from(b)).wrapping_add(c))),
                Type::S16 => Some(ternary!(i16, i16, i32, i32, |a, b, c| (i32::from(a) * i32::from(b)).wrapping_add(c))),
                Type::U32 => Some(ternary!(u32, u32, u64, u64, |a, b, c| (u64::from(a) * u64::from(b)).wrapping_add(c))),
                Type::S32 => Some(ternary!(i32, i32, i64, i64, |a, b, c| (i64::from(a) * i64::from(b)).wrapping_add(c))),
                _ => None,
            };
            return self.apply(&op, f, double(kind), &[kind, kind, double(kind)], operands);
        }
        let f = match (op.base, op.take("hi")) {
            ("mad", true) => integers!(kind, ternary, |a, b, c| a.high(b).wrapping_add(c)),
            ("mad", false) if op.take("lo") => integers!(kind, ternary, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            ("mad24", false) if op.take("lo") => match kind {
                Type::U32 => Some(ternary!(u32, |a, b, c| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff).wrapping_add(c))),
                Type::S32 => Some(ternary!(i32, |a, b, c| (a << 8 >> 8).wrapping_mul(b << 8 >> 8).wrapping_add(c))),
                _ => None,
            },
            _ => None,
        };
        self.apply(&op, f, kind, &[kind; 3], operands)
    }

    /// A part of a chain of carries: the flag is read by `addc` and its like, and written with `.cc`.
    fn carry(&mut self, mut op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        let base = op.base;
        // The caller took `.cc` from an instruction that does not read the flag.
        let writes = op.take("cc");
        macro_rules! chain {
            ($f:expr, $reads:literal, $writes:literal) => {
                match kind {
                    Type::U32 | Type::B32 => Some((|r, o, mask| r.carry::<u32>(o, mask, $reads, $writes, $f)) as Compute),
                    Type::S32 => Some((|r, o, mask| r.carry::<i32>(o, mask, $reads, $writes, $f)) as Compute),
                    Type::U64 | Type::B64 => Some((|r, o, mask| r.carry::<u64>(o, mask, $reads, $writes, $f)) as Compute),
                    Type::S64 => Some((|r, o, mask| r.carry::<i64>(o, mask, $reads, $writes, $f)) as Compute),
                    _ => None,
                }
            };
            ($f:expr) => {
                match (base.ends_with('c'), writes) {
                    (false, _) => chain!($f, false, true),
                    (true, false) => chain!($f, true, false),
                    (true, true) => chain!($f, true, true),
                }
            };
        }
        let (f, sources) = match base {
            "add" | "addc" => (chain!(|a, b, _, carry| a.sum(b, carry)), 2),
            // After a subtraction the flag is set if there was no borrow: NVIDIA's own code reads it with `addc`.
            "sub" => (chain!(|a, b, _, _| a.difference(b, false)), 2),
            "subc" => (chain!(|a, b, _, carry| a.difference(b, !carry)), 2),
            "mad" | "madc" if op.take("lo") => (chain!(|a, b, c, carry| a.wrapping_mul(b).sum(c, carry)), 3),
            "mad" | "madc" if op.take("hi") => (chain!(|a, b, c, carry| a.high(b).sum(c, carry)), 3),
            _ => return op.unsupported(),
        };
        let Some(f) = f else { return op.unsupported() };
        op.finish()?;
        if operands.len() != sources + 1 {
            return Err(format!("`{}` with {} operands", op.text, operands.len()));
        }
        let a = self.source(&operands[1], kind)?;
        let b = self.source(&operands[2], kind)?;
        let c = if sources == 3 { self.source(&operands[3], kind)? } else { a };
        let d = self.destination(&operands[0], kind)?;
        self.compute(f, Operands { d, a, b, c, p: CARRY });
        Ok(())
    }

    /// Instructions on bits.
    pub fn bitwise(&mut self, mut op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        let (f, d, sources): (Option<Compute>, Type, &[Type]) = match op.base {
            "and" => (widths!(kind, binary, |a, b| a & b), kind, &[kind; 2]),
            "or" => (widths!(kind, binary, |a, b| a | b), kind, &[kind; 2]),
            "xor" => (widths!(kind, binary, |a, b| a ^ b), kind, &[kind; 2]),
            "not" => (widths!(kind, unary, |a| !a), kind, &[kind]),
            "cnot" => (widths!(kind, unary, |a| (a == 0).into()), kind, &[kind]),
            "shl" => (self.shift(kind.unsigned(), true), kind, &[kind, Type::U32]),
            "shr" => (self.shift(kind, false), kind, &[kind, Type::U32]),
            "popc" | "clz" => (counting(op.base, kind), Type::U32, &[kind]),
            "brev" => (widths!(kind, unary, |a| a.reverse_bits()), kind, &[kind]),
            "bfind" => {
                let f = if op.take("shiftamt") { integers_to_shift(kind) } else { integers_to_position(kind) };
                (f, Type::U32, &[kind])
            }
            "bfe" => {
                let f = match kind {
                    Type::U32 => Some(ternary!(u32, u32, u32, u32, |a, s, l| a.field(s, l))),
                    Type::S32 => Some(ternary!(i32, u32, u32, i32, |a, s, l| a.field(s, l))),
                    Type::U64 => Some(ternary!(u64, u32, u32, u64, |a, s, l| a.field(s, l))),
                    Type::S64 => Some(ternary!(i64, u32, u32, i64, |a, s, l| a.field(s, l))),
                    _ => None,
                };
                (f, kind, &[kind, Type::U32, Type::U32])
            }
            "bfi" => return self.insert_field(op, kind, operands),
            "shf" => {
                let f = match (op.take("l"), op.take("wrap")) {
                    (true, true) => Some(ternary!(u32, |a, b, by| funnel_left(a, b, by & 31))),
                    (true, false) if op.take("clamp") => Some(ternary!(u32, |a, b, by| funnel_left(a, b, by.min(32)))),
                    (false, true) if op.take("r") => Some(ternary!(u32, |a, b, by| funnel_right(a, b, by & 31))),
                    (false, false) if op.take("r") && op.take("clamp") => Some(ternary!(u32, |a, b, by| funnel_right(a, b, by.min(32)))),
                    _ => None,
                };
                (f, kind, &[kind; 3])
            }
            _ => return op.unsupported(),
        };
        self.apply(&op, f, d, sources, operands)
    }

    fn shift(&self, kind: Type, left: bool) -> Option<Compute> {
        macro_rules! shift {
            ($type:ty, $f:expr) => {
                binary!($type, u32, $type, $f)
            };
        }
        if left { integers!(kind, shift, |a, by| a.shifted_left(by)) } else { integers!(kind, shift, |a, by| a.shifted_right(by)) }
    }

    fn insert_field(&mut self, op: Opcode<'t>, kind: Type, operands: &[Operand<'t>]) -> Result<()> {
        let [d, a, b, start, length] = operands else { return op.unsupported() };
        op.finish()?;
        let f = match kind {
            Type::B32 => ternary!(u32, |a, b, field| insert(a.into(), b.into(), field, field >> 8, 32) as u32),
            Type::B64 => ternary!(u64, u64, u32, u64, |a, b, field| insert(a, b, field, field >> 8, 64)),
            _ => return op.unsupported(),
        };
        // Start and length travel as one operand.
        let field = self.temporary(false)?;
        let (start, length) = (self.source(start, Type::U32)?, self.source(length, Type::U32)?);
        let join = binary!(u32, |start, length| start & 255 | (length & 255) << 8);
        self.compute(join, Operands { d: field, a: start, b: length, ..Operands::default() });
        let (a, b) = (self.source(a, kind)?, self.source(b, kind)?);
        let d = self.destination(d, kind)?;
        self.compute(f, Operands { d, a, b, c: field, p: 0 });
        Ok(())
    }

    /// `prmt`, `lop3` and `dp4a`.
    pub fn bytes(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        if op.base == "dp4a" {
            let (first, second) = (op.kind()?, op.kind()?);
            let f = match (first, second) {
                (Type::U32, Type::U32) => ternary!(u32, |a, b, c| dot4(a, b, c, false, false)),
                (Type::S32, Type::U32) => ternary!(u32, |a, b, c| dot4(a, b, c, true, false)),
                (Type::U32, Type::S32) => ternary!(u32, |a, b, c| dot4(a, b, c, false, true)),
                (Type::S32, Type::S32) => ternary!(u32, |a, b, c| dot4(a, b, c, true, true)),
                _ => return op.unsupported(),
            };
            return self.apply(&op, Some(f), Type::U32, &[Type::U32; 3], operands);
        }
        if op.kind()? != Type::B32 {
            return op.unsupported();
        }
        let mode = op.first(|m| ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"].iter().position(|mode| *mode == m));
        op.finish()?;
        let (f, parameter): (Compute, u16) = match (op.base, operands) {
            ("lop3", [.., Operand::Integer(table)]) => {
                (|r, o, mask| r.map3::<u32, u32, u32, u32>(o, mask, |a, b, c| lookup(a, b, c, o.p)), *table as u16)
            }
            ("prmt", _) => match mode {
                None => (ternary!(u32, permute), 0),
                Some(mode) => {
                    (|r, o, mask| r.map3::<u32, u32, u32, u32>(o, mask, |a, b, c| permute(a, b, permute_selector(o.p, c))), mode as u16)
                }
            },
            _ => return op.unsupported(),
        };
        let expected = if op.base == "lop3" { 5 } else { 4 };
        if operands.len() != expected {
            return op.unsupported();
        }
        let [a, b, c] = [&operands[1], &operands[2], &operands[3]].map(|operand| self.source(operand, Type::B32));
        let (a, b, c) = (a?, b?, c?);
        let d = self.destination(&operands[0], Type::B32)?;
        self.compute(f, Operands { d, a, b, c, p: parameter });
        Ok(())
    }
}

fn counting(base: &str, kind: Type) -> Option<Compute> {
    Some(match (base, kind) {
        ("popc", Type::B32) => unary!(u32, |a| a.count_ones()),
        ("popc", Type::B64) => unary!(u64, u32, |a| a.count_ones()),
        ("clz", Type::B32) => unary!(u32, |a| a.leading_zeros()),
        ("clz", Type::B64) => unary!(u64, u32, |a| a.leading_zeros()),
        _ => return None,
    })
}

fn integers_to_position(kind: Type) -> Option<Compute> {
    macro_rules! position {
        ($type:ty, $f:expr) => {
            unary!($type, u32, $f)
        };
    }
    integers!(kind, position, |a| a.highest())
}

fn integers_to_shift(kind: Type) -> Option<Compute> {
    Some(match kind {
        Type::U32 => unary!(u32, u32, |a| shift_amount(a.highest(), 31)),
        Type::S32 => unary!(i32, u32, |a| shift_amount(a.highest(), 31)),
        Type::U64 => unary!(u64, u32, |a| shift_amount(a.highest(), 63)),
        Type::S64 => unary!(i64, u32, |a| shift_amount(a.highest(), 63)),
        _ => return None,
    })
}

/// How far to shift left, so that the highest bit comes to the top.
fn shift_amount(position: u32, top: u32) -> u32 {
    if position == u32::MAX { position } else { top - position }
}
