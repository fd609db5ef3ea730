//! Branches, calls, barriers and operations of a warp.

use super::{
    Builder, Opcode, Routines,
    builder::{Result, Symbol},
};
use crate::{
    machine::code::{Barrier, Exchange, Operation, Place, Reduction, Shuffle, Space, Vote, WarpOperation},
    ptx::{syntax::Operand, types::Type},
};

impl<'t> Builder<'_, 't> {
    /// `call`: parameters are copied into the routine's, results back.
    pub fn call(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>], routines: &Routines<'t>) -> Result<()> {
        op.take("uni");
        op.finish()?;
        let none: &[&str] = &[];
        let (results, name, arguments) = match operands {
            [Operand::List(results), Operand::Name(name), Operand::List(arguments)] => (&results[..], *name, &arguments[..]),
            [Operand::Name(name), Operand::List(arguments)] => (none, *name, &arguments[..]),
            [Operand::List(results), Operand::Name(name)] => (&results[..], *name, none),
            [Operand::Name(name)] => (none, *name, none),
            _ => return op.unsupported(),
        };
        let Some(routine) = routines.get(name) else { return Err(format!("the function `{name}` is called but not there")) };
        if arguments.len() != routine.parameters.len() || results.len() != routine.results.len() {
            let (takes, gives) = (routine.parameters.len(), routine.results.len());
            return Err(format!("`{name}` takes {takes} parameters and gives {gives} results"));
        }
        for (argument, parameter) in arguments.iter().zip(&routine.parameters) {
            let argument = self.symbol(argument)?;
            self.pass(name, argument, *parameter)?;
        }
        self.emit(Operation::Call(routine.start, routine.link));
        for (destination, result) in results.iter().zip(&routine.results) {
            let destination = self.symbol(destination)?;
            self.pass(name, *result, destination)?;
        }
        Ok(())
    }

    /// Copies what a call passes.
    fn pass(&mut self, routine: &str, from: Symbol, to: Symbol) -> Result<()> {
        match (from, to) {
            (Symbol::Slot(from_kind, a), Symbol::Slot(kind, d)) if from_kind == kind => self.copy(kind.is_wide(), d, a),
            (Symbol::Variable(Space::Local, from, size), Symbol::Variable(Space::Local, to, other)) if size == other => {
                self.emit(Operation::Copy(from, to, size));
            }
            _ => return Err(format!("a value is passed to or from `{routine}` that differs from the declared one")),
        }
        Ok(())
    }

    /// `bar`, `barrier` and what they reduce.
    pub fn barrier(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        op.take("cta");
        op.take("aligned");
        if op.take("warp") {
            let [members] = operands else { return op.unsupported() };
            return if op.take("sync") {
                self.warp(op, WarpOperation::Synchronize, members, Exchange::default())
            } else {
                op.unsupported()
            };
        }
        let (reduce, arrives) = (op.take("red"), op.take("arrive"));
        if !reduce && !arrives && !op.take("sync") {
            return op.unsupported();
        }
        let mut threads = None;
        let (number, reduction) = match operands {
            [number] if !reduce && !arrives => (number, None),
            [number, count] if !reduce => {
                threads = Some(self.source(count, Type::U32)?);
                (number, None)
            }
            [d, number, p] if reduce => {
                let kind = if op.take("popc") {
                    Vote::Count
                } else if op.take("and") {
                    Vote::All
                } else {
                    Vote::Any
                };
                let kinds = if kind == Vote::Count { Type::U32 } else { Type::Predicate };
                if kind == Vote::Any {
                    op.take("or");
                }
                if op.kind()? != kinds {
                    return op.unsupported();
                }
                let (source, negated) = self.predicate(p)?;
                let destination = self.destination(d, kinds)?;
                (number, Some(Reduction { kind, source, negated, destination }))
            }
            _ => return Err(format!("`{}`: reductions of a part of the block are not supported", op.text)),
        };
        op.finish()?;
        let number = self.source(number, Type::U32)?;
        self.emit(Operation::Barrier(Box::new(Barrier { number, count: threads, waits: !arrives, reduction })));
        Ok(())
    }

    fn warp(&mut self, op: Opcode<'t>, operation: WarpOperation, members: &Operand<'t>, exchange: Exchange) -> Result<()> {
        op.finish()?;
        let members = self.source(members, Type::B32)?;
        self.emit(Operation::Warp(operation, Box::new(Exchange { members, ..exchange })));
        Ok(())
    }

    /// `shfl.sync`.
    pub fn shuffle(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let mode = op.first(|m| {
            Some(match m {
                "up" => Shuffle::Up,
                "down" => Shuffle::Down,
                "bfly" => Shuffle::Butterfly,
                "idx" => Shuffle::Index,
                _ => return None,
            })
        });
        let ([d, a, b, c, members], Some(mode), true) = (operands, mode, op.take("sync")) else { return op.unsupported() };
        if op.kind()? != Type::B32 {
            return op.unsupported();
        }
        let (d, p) = self.with_predicate(d)?;
        let (a, b, c) = (self.source(a, Type::B32)?, self.source(b, Type::B32)?, self.source(c, Type::B32)?);
        self.warp(op, WarpOperation::Shuffle(mode), members, Exchange { d, p, a, b, c, ..Exchange::default() })
    }

    /// A narrow destination and a predicate, if one is asked for.
    fn with_predicate(&mut self, operand: &Operand<'t>) -> Result<(u16, Option<u16>)> {
        match *operand {
            Operand::Pair(d, p) => {
                let p = self.destination(&Operand::Name(p), Type::Predicate)?;
                Ok((self.destination(&Operand::Name(d), Type::B32)?, Some(p)))
            }
            ref d => Ok((self.destination(d, Type::B32)?, None)),
        }
    }

    /// `vote.sync`.
    pub fn vote(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let vote = op.first(|m| {
            Some(match m {
                "all" => Vote::All,
                "any" => Vote::Any,
                "uni" => Vote::Uniform,
                "ballot" => Vote::Ballot,
                _ => return None,
            })
        });
        let ([d, a, members], Some(vote), true) = (operands, vote, op.take("sync")) else { return op.unsupported() };
        let kind = if vote == Vote::Ballot { Type::B32 } else { Type::Predicate };
        if op.kind()? != kind {
            return op.unsupported();
        }
        let (a, negated) = self.predicate(a)?;
        let d = self.destination(d, kind)?;
        self.warp(op, WarpOperation::Vote(vote), members, Exchange { d, a, negated, ..Exchange::default() })
    }

    /// `match.sync`.
    pub fn matching(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let (all, any) = (op.take("all"), op.take("any"));
        let ([d, a, members], true, true) = (operands, all != any, op.take("sync")) else { return op.unsupported() };
        let kind = op.kind()?;
        let wide = match kind {
            Type::B32 => false,
            Type::B64 => true,
            _ => return op.unsupported(),
        };
        let (d, p) = self.with_predicate(d)?;
        let a = self.source(a, kind)?;
        let operation = if all { WarpOperation::MatchAll(wide) } else { WarpOperation::MatchAny(wide) };
        self.warp(op, operation, members, Exchange { d, p, a, ..Exchange::default() })
    }

    /// `elect.sync`.
    pub fn elect(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        self.needs(&op, 90)?;
        let ([d, members], true) = (operands, op.take("sync")) else { return op.unsupported() };
        let (d, p) = self.with_predicate(d)?;
        self.warp(op, WarpOperation::Elect, members, Exchange { d, p, ..Exchange::default() })
    }

    /// `redux.sync`.
    pub fn reduce(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        self.needs(&op, 80)?;
        let ([d, a, members], true) = (operands, op.take("sync")) else { return op.unsupported() };
        let Some(name) = op.first(Some) else { return op.unsupported() };
        let kind = op.kind()?;
        let f: fn(u32, u32) -> u32 = match (name, kind) {
            ("add", Type::U32 | Type::S32) => u32::wrapping_add,
            ("min", Type::U32) => u32::min,
            ("max", Type::U32) => u32::max,
            ("min", Type::S32) => |a, b| (a as i32).min(b as i32) as u32,
            ("max", Type::S32) => |a, b| (a as i32).max(b as i32) as u32,
            ("and", Type::B32) => |a, b| a & b,
            ("or", Type::B32) => |a, b| a | b,
            ("xor", Type::B32) => |a, b| a ^ b,
            _ => return op.unsupported(),
        };
        let (a, d) = (self.source(a, kind)?, self.destination(d, kind)?);
        self.warp(op, WarpOperation::Reduce(f), members, Exchange { d, a, ..Exchange::default() })
    }

    /// `activemask`.
    pub fn active_mask(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let ([d], Type::B32) = (operands, op.kind()?) else { return op.unsupported() };
        op.finish()?;
        let d = self.destination(d, Type::B32)?;
        self.emit(Operation::ActiveMask(d));
        Ok(())
    }

    /// The register of a `brx.idx`.
    pub fn index(&mut self, operand: &Operand<'t>) -> Result<u16> {
        match self.loose(operand, Type::U32)? {
            Place::Narrow(register) => Ok(register),
            _ => Err(format!("the index {operand:?} has no 32 bits")),
        }
    }
}
