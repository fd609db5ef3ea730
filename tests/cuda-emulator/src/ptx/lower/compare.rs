//! Comparisons, selections and logic of predicates.

use super::{
    Builder, Opcode,
    builder::{Result, TRUE},
    tables::{comparison, floats, integers, unary},
};
use crate::{
    machine::{
        arithmetic::{float::Float, half::Half},
        registers::{Compute, Operands, Register},
    },
    ptx::{syntax::Operand, types::Type},
};

const COMPARISONS: [&str; 18] =
    ["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

impl<'t> Builder<'_, 't> {
    /// `setp`: one or two predicates.
    pub fn set_predicates(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let combine = op.first(combination);
        let (test, rest) = self.comparison(&mut op, operands)?;
        op.finish()?;
        let other = match (combine, rest) {
            (Some(_), [operand]) => Some(self.predicate(operand)?),
            (None, []) => None,
            _ => return op.unsupported(),
        };
        let second = match operands[0] {
            Operand::Pair(_, second) => Some(self.destination(&Operand::Name(second), Type::Predicate)?),
            _ => None,
        };
        let first = match operands[0] {
            Operand::Pair(first, _) => self.destination(&Operand::Name(first), Type::Predicate)?,
            ref operand => self.destination(operand, Type::Predicate)?,
        };
        if second.is_none() && combine.is_none() {
            return self.emit_test(test, first);
        }
        // A destination may be an operand or the guard, so all is computed before anything is written.
        let (t, p, q) = (self.hidden(Type::Predicate)?, self.hidden(Type::Predicate)?, self.hidden(Type::Predicate)?);
        self.emit_test(test, t)?;
        let (other, negated) = other.unwrap_or((TRUE, false));
        let [straight, inverted] = combine.unwrap_or(AND).map(|f| f[usize::from(negated)]);
        self.compute(straight, Operands { d: p, a: t, b: other, ..Operands::default() });
        self.compute(inverted, Operands { d: q, a: t, b: other, ..Operands::default() });
        let mut writes = vec![(first, p)];
        writes.extend(second.map(|second| (second, q)));
        // The guard is written last.
        writes.sort_by_key(|(d, _)| *d == self.guard.0);
        for (d, a) in writes {
            self.compute(|r, o, m| r.logic(o, m, |a, _| a), Operands { d, a, b: a, ..Operands::default() });
        }
        Ok(())
    }

    /// `set`: all bits or 1.0 where a comparison holds.
    pub fn set(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let kind = op.kind()?;
        let (test, rest) = self.comparison(&mut op, operands)?;
        op.finish()?;
        if !rest.is_empty() {
            return op.unsupported();
        }
        let p = self.hidden(Type::Predicate)?;
        self.emit_test(test, p)?;
        let a = match kind {
            Type::U32 | Type::S32 => self.bits(kind, u32::MAX.into())?,
            Type::F32 => self.bits(kind, 1f32.to_bits().into())?,
            _ => return op.unsupported(),
        };
        let b = self.bits(kind, 0)?;
        let d = self.destination(&operands[0], kind)?;
        self.compute(|r, o, m| r.select::<u32>(o, m), Operands { d, a, b, p, c: 0 });
        Ok(())
    }

    /// `selp`: one of two operands.
    pub fn select(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let kind = op.kind()?;
        op.finish()?;
        let [d, a, b, p] = operands else { return op.unsupported() };
        let (a, b) = (self.source(a, kind)?, self.source(b, kind)?);
        let (p, negated) = self.predicate(p)?;
        let (a, b) = if negated { (b, a) } else { (a, b) };
        let d = self.destination(d, kind)?;
        self.compute(selection(kind), Operands { d, a, b, p, c: 0 });
        Ok(())
    }

    /// `slct`: one of two operands, by the sign of a third.
    pub fn select_by_sign(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let flush = op.take("ftz");
        let (kind, sign) = (op.kind()?, op.kind()?);
        op.finish()?;
        let [d, a, b, c] = operands else { return op.unsupported() };
        let (a, b, c) = (self.source(a, kind)?, self.source(b, kind)?, self.source(c, sign)?);
        let (p, zero) = (self.hidden(Type::Predicate)?, self.bits(sign, 0)?);
        let f = match sign {
            Type::S32 => comparison!(i32, |c, _| c >= 0),
            // A value that `.ftz` would flush is a zero to the comparison only if it is flushed.
            Type::F32 => comparison!(f32, |c, _| c >= 0.0),
            _ => return op.unsupported(),
        };
        let c = if flush { self.flushed(c)? } else { c };
        self.compute(f, Operands { a: c, b: zero, p, ..Operands::default() });
        let d = self.destination(d, kind)?;
        self.compute(selection(kind), Operands { d, a, b, p, c: 0 });
        Ok(())
    }

    /// `and`, `or`, `xor`, `not` and `mov` of predicates.
    pub fn logic(&mut self, op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        op.finish()?;
        if let ("mov", [d, Operand::Integer(value)]) = (op.base, operands) {
            let f: Compute = if *value != 0 { |r, o, m| r.logic(o, m, |a, _| a) } else { |r, o, m| r.logic(o, m, |a, _| !a) };
            let d = self.destination(d, Type::Predicate)?;
            self.compute(f, Operands { d, a: TRUE, b: TRUE, ..Operands::default() });
            return Ok(());
        }
        let f: Compute = match op.base {
            "and" => |r, o, m| r.logic(o, m, |a, b| a & b),
            "or" => |r, o, m| r.logic(o, m, |a, b| a | b),
            "xor" => |r, o, m| r.logic(o, m, |a, b| a ^ b),
            "not" => |r, o, m| r.logic(o, m, |a, _| !a),
            "mov" => |r, o, m| r.logic(o, m, |a, _| a),
            _ => return op.unsupported(),
        };
        let (d, a, b) = match operands {
            [d, a] if matches!(op.base, "not" | "mov") => (d, a, a),
            [d, a, b] if matches!(op.base, "and" | "or" | "xor") => (d, a, b),
            _ => return op.unsupported(),
        };
        let ((a, false), (b, false)) = (self.predicate(a)?, self.predicate(b)?) else { return op.unsupported() };
        let d = self.destination(d, Type::Predicate)?;
        self.compute(f, Operands { d, a, b, ..Operands::default() });
        Ok(())
    }

    /// The comparison that an opcode names, of the operands after the first; and the operands after those.
    fn comparison<'o>(&mut self, op: &mut Opcode<'t>, operands: &'o [Operand<'t>]) -> Result<(Test, &'o [Operand<'t>])> {
        let flush = op.take("ftz");
        let Some(name) = op.first(|m| COMPARISONS.contains(&m).then_some(m)) else { return op.unsupported() };
        let kind = op.kind()?;
        let [_, a, b, rest @ ..] = operands else { return op.unsupported() };
        let (mut a, mut b) = (self.source(a, kind)?, self.source(b, kind)?);
        if kind == Type::F16 {
            (a, b) = (self.widened(a)?, self.widened(b)?);
        }
        if flush && kind == Type::F32 {
            (a, b) = (self.flushed(a)?, self.flushed(b)?);
        }
        let f = if kind.is_float() { float_test(name, kind) } else { integer_test(name, kind) };
        match f {
            Some(f) => Ok((Test { f, a, b }, rest)),
            None => op.unsupported(),
        }
    }

    fn emit_test(&mut self, test: Test, p: Register) -> Result<()> {
        self.compute(test.f, Operands { a: test.a, b: test.b, p, ..Operands::default() });
        Ok(())
    }

    /// A register with a half as an f32.
    pub fn widened(&mut self, a: Register) -> Result<Register> {
        let d = self.temporary(false)?;
        self.compute(unary!(Half, f32, |a| a.wide()), Operands { d, a, ..Operands::default() });
        Ok(d)
    }
}

struct Test {
    f: Compute,
    a: Register,
    b: Register,
}

/// Predicates with which a comparison is combined, for the first predicate and the second; each for a plain and for a negated operand.
type Combination = [[Compute; 2]; 2];

const AND: Combination = [
    [|r, o, m| r.logic(o, m, |t, c| t & c), |r, o, m| r.logic(o, m, |t, c| t & !c)],
    [|r, o, m| r.logic(o, m, |t, c| !t & c), |r, o, m| r.logic(o, m, |t, c| !t & !c)],
];
const OR: Combination = [
    [|r, o, m| r.logic(o, m, |t, c| t | c), |r, o, m| r.logic(o, m, |t, c| t | !c)],
    [|r, o, m| r.logic(o, m, |t, c| !t | c), |r, o, m| r.logic(o, m, |t, c| !t | !c)],
];
const XOR: Combination = [
    [|r, o, m| r.logic(o, m, |t, c| t ^ c), |r, o, m| r.logic(o, m, |t, c| t ^ !c)],
    [|r, o, m| r.logic(o, m, |t, c| !t ^ c), |r, o, m| r.logic(o, m, |t, c| t ^ c)],
];

fn combination(name: &str) -> Option<Combination> {
    match name {
        "and" => Some(AND),
        "or" => Some(OR),
        "xor" => Some(XOR),
        _ => None,
    }
}

fn selection(kind: Type) -> Compute {
    if kind.is_wide() { |r, o, m| r.select::<u64>(o, m) } else { |r, o, m| r.select::<u32>(o, m) }
}

fn integer_test(name: &str, kind: Type) -> Option<Compute> {
    let unsigned = matches!(kind, Type::U16 | Type::U32 | Type::U64);
    let ordered = unsigned || kind.is_signed();
    match name {
        "eq" => integers!(kind, comparison, |a, b| a == b),
        "ne" => integers!(kind, comparison, |a, b| a != b),
        "lt" if ordered => integers!(kind, comparison, |a, b| a < b),
        "le" if ordered => integers!(kind, comparison, |a, b| a <= b),
        "gt" if ordered => integers!(kind, comparison, |a, b| a > b),
        "ge" if ordered => integers!(kind, comparison, |a, b| a >= b),
        "lo" if unsigned => integers!(kind, comparison, |a, b| a < b),
        "ls" if unsigned => integers!(kind, comparison, |a, b| a <= b),
        "hi" if unsigned => integers!(kind, comparison, |a, b| a > b),
        "hs" if unsigned => integers!(kind, comparison, |a, b| a >= b),
        _ => None,
    }
}

/// The comparisons without `u` do not hold if an operand is a NaN; those with it do.
fn float_test(name: &str, kind: Type) -> Option<Compute> {
    let kind = if kind == Type::F16 { Type::F32 } else { kind };
    match name {
        "eq" => floats!(kind, comparison, |a, b| a == b),
        "ne" => floats!(kind, comparison, |a, b| a != b && a.is_ordered(b)),
        "lt" => floats!(kind, comparison, |a, b| a < b),
        "le" => floats!(kind, comparison, |a, b| a <= b),
        "gt" => floats!(kind, comparison, |a, b| a > b),
        "ge" => floats!(kind, comparison, |a, b| a >= b),
        "equ" => floats!(kind, comparison, |a, b| a == b || !a.is_ordered(b)),
        "neu" => floats!(kind, comparison, |a, b| a != b),
        "ltu" => floats!(kind, comparison, |a, b| a < b || !a.is_ordered(b)),
        "leu" => floats!(kind, comparison, |a, b| a <= b || !a.is_ordered(b)),
        "gtu" => floats!(kind, comparison, |a, b| a > b || !a.is_ordered(b)),
        "geu" => floats!(kind, comparison, |a, b| a >= b || !a.is_ordered(b)),
        "num" => floats!(kind, comparison, |a, b| a.is_ordered(b)),
        "nan" => floats!(kind, comparison, |a, b| !a.is_ordered(b)),
        _ => None,
    }
}
