//! The builder of a kernel: names, registers, constants, memory.

use std::collections::HashMap;

use super::Opcode;
use crate::{
    machine::{
        code::{Constant, Function, Instruction, Operation, Place, Space, Word},
        registers::{Compute, Operands, Register},
    },
    ptx::{
        syntax::{File, Operand, Variable},
        types::Type,
    },
};

/// Predicate 0 is always true.
pub const TRUE: Register = 0;
/// Predicate 1 is the carry flag.
pub const CARRY: Register = 1;

/// A result, or what is wrong.
pub type Result<T> = std::result::Result<T, String>;

/// Meaning of a name.
#[derive(Clone, Copy, Debug)]
pub enum Symbol {
    Register(Type, Register),
    /// A variable at an offset of a space.
    Variable(Space, u32, u32),
    /// A parameter or result of a call that a register holds.
    Slot(Type, Register),
    /// A shared array whose size the launch says.
    Dynamic,
    /// A variable in device memory.
    Device,
}

/// The names of a pair of braces.
#[derive(Default)]
pub struct Scope<'t> {
    names: HashMap<&'t str, Symbol>,
    /// Families such as `%r<5>`: type, first register, count.
    families: HashMap<&'t str, (Type, Register, u32)>,
    /// Where the local memory of the scope begins.
    local: u32,
}

/// The kernel being built.
pub struct Builder<'f, 't> {
    pub file: &'f File<'t>,
    pub function: Function,
    pub scopes: Vec<Scope<'t>>,
    /// Whether the routine being lowered is the kernel.
    pub kernel: bool,
    pub guard: (Register, bool),
    pub line: u32,
    /// Operations on floating-point numbers of a lane, which the instruction's first operation counts.
    pub flops: u16,
    constants: HashMap<(bool, Word), Register>,
    /// Constants that are offsets from the end of static shared memory.
    dynamic: Vec<usize>,
    /// Alignment of dynamic shared memory in bytes.
    dynamic_align: u32,
    shared: HashMap<&'t str, u32>,
    local: u32,
    /// The slots of the routine, by name and width.
    slots: HashMap<(&'t str, bool), Register>,
    /// Registers for intermediate results, and how many of them the instruction uses.
    temporaries: [Vec<Register>; 2],
    used: [usize; 2],
}

impl<'f, 't> Builder<'f, 't> {
    pub fn new(file: &'f File<'t>) -> Self {
        Self {
            file,
            function: Function { predicates: 2, ..Function::default() },
            scopes: Vec::new(),
            kernel: false,
            guard: (TRUE, false),
            line: 0,
            flops: 0,
            constants: HashMap::new(),
            dynamic: Vec::new(),
            dynamic_align: 16,
            shared: HashMap::new(),
            local: 0,
            slots: HashMap::new(),
            temporaries: [Vec::new(), Vec::new()],
            used: [0, 0],
        }
    }

    /// Begins an instruction: its guard and line, and all intermediate results free.
    pub fn begin(&mut self, guard: (Register, bool), line: u32) {
        (self.guard, self.line, self.flops, self.used) = (guard, line, 0, [0, 0]);
    }

    pub fn emit(&mut self, operation: Operation) {
        let (guard, negated) = self.guard;
        let flops = std::mem::take(&mut self.flops);
        self.function.code.push(Instruction { operation, guard, negated, line: self.line, flops });
    }

    pub fn compute(&mut self, f: Compute, operands: Operands) {
        self.emit(Operation::Compute(f, operands));
    }

    pub fn open(&mut self) {
        self.scopes.push(Scope { local: self.local, ..Scope::default() });
    }

    pub fn close(&mut self) {
        if let Some(scope) = self.scopes.pop() {
            self.local = scope.local;
        }
    }

    /// Ends a routine: its names are forgotten, its memory stays its own.
    pub fn seal(&mut self) {
        self.scopes.clear();
        self.slots.clear();
        self.local = self.function.local;
    }

    /// Gives a name in the innermost scope its meaning.
    pub fn define(&mut self, name: &'t str, symbol: Symbol) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name, symbol);
        }
    }

    /// Declares a register, or a family of them.
    pub fn declare(&mut self, kind: Type, name: &'t str, count: Option<u32>) -> Result<()> {
        let first = self.allocate(kind, count.unwrap_or(1))?;
        self.function.declared += count.unwrap_or(1) * kind.bytes().div_ceil(4);
        match count {
            None => self.define(name, Symbol::Register(kind, first)),
            Some(count) => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.families.insert(name, (kind, first, count));
                }
            }
        }
        Ok(())
    }

    fn allocate(&mut self, kind: Type, count: u32) -> Result<Register> {
        let bank = match kind {
            Type::Predicate => &mut self.function.predicates,
            _ if kind.is_wide() => &mut self.function.wide,
            _ => &mut self.function.narrow,
        };
        let first = *bank;
        *bank = bank.saturating_add(count);
        if *bank > 1 << 16 { Err("more than 65536 registers".into()) } else { Ok(first as Register) }
    }

    /// A register that no name stands for.
    pub fn hidden(&mut self, kind: Type) -> Result<Register> {
        self.allocate(kind, 1)
    }

    /// A register for an intermediate result of the instruction.
    pub fn temporary(&mut self, wide: bool) -> Result<Register> {
        let bank = usize::from(wide);
        if self.used[bank] == self.temporaries[bank].len() {
            let register = self.hidden(if wide { Type::B64 } else { Type::B32 })?;
            self.temporaries[bank].push(register);
        }
        self.used[bank] += 1;
        Ok(self.temporaries[bank][self.used[bank] - 1])
    }

    /// Gives a variable of a body or signature its place.
    pub fn place(&mut self, variable: &Variable<'t>) -> Result<Symbol> {
        let symbol = match variable.space {
            Space::Shared if variable.dynamic => self.place_dynamic(variable),
            Space::Shared => Symbol::Variable(Space::Shared, self.place_shared(variable)?, variable.size),
            Space::Parameter if variable.scalar && matches!(variable.size, 4 | 8) => {
                let kind = if variable.size == 8 { Type::B64 } else { Type::B32 };
                let register = match self.slots.get(&(variable.name, kind.is_wide())) {
                    Some(register) => *register,
                    None => self.hidden(kind)?,
                };
                self.slots.insert((variable.name, kind.is_wide()), register);
                Symbol::Slot(kind, register)
            }
            Space::Local | Space::Parameter => {
                let offset = self.local.next_multiple_of(variable.align);
                self.local =
                    offset.checked_add(variable.size).filter(|end| *end <= 512 << 10).ok_or("more than 512 KiB of local memory")?;
                self.function.local = self.function.local.max(self.local.next_multiple_of(16));
                Symbol::Variable(Space::Local, offset, variable.size)
            }
            _ => return Err(format!("`{}`: variables of device memory stand outside of functions", variable.name)),
        };
        self.define(variable.name, symbol);
        Ok(symbol)
    }

    fn place_dynamic(&mut self, variable: &Variable<'t>) -> Symbol {
        self.dynamic_align = self.dynamic_align.max(variable.align);
        Symbol::Dynamic
    }

    fn place_shared(&mut self, variable: &Variable<'t>) -> Result<u32> {
        let offset = self.function.shared.next_multiple_of(variable.align);
        let end = offset.checked_add(variable.size).filter(|end| *end <= 48 << 10);
        self.function.shared = end.ok_or_else(|| format!("`{}`: more than 48 KiB of static shared memory", variable.name))?;
        Ok(offset)
    }

    /// Meaning of a name.
    pub fn symbol(&mut self, name: &'t str) -> Result<Symbol> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let index = name[prefix.len()..].parse::<u32>().ok();
        for scope in self.scopes.iter().rev() {
            if let Some(symbol) = scope.names.get(name) {
                return Ok(*symbol);
            }
            if let (Some(index), Some((kind, first, count))) = (index, scope.families.get(prefix))
                && index < *count
            {
                return Ok(Symbol::Register(*kind, first + index as Register));
            }
        }
        let file = self.file;
        let variable = file.variables.iter().find(|v| v.name == name).ok_or_else(|| format!("`{name}` is not declared"))?;
        match variable.space {
            Space::Shared if variable.dynamic => Ok(self.place_dynamic(variable)),
            Space::Shared => {
                let offset = match self.shared.get(name) {
                    Some(offset) => *offset,
                    None => self.place_shared(variable)?,
                };
                self.shared.insert(name, offset);
                Ok(Symbol::Variable(Space::Shared, offset, variable.size))
            }
            _ => Ok(Symbol::Device),
        }
    }

    /// Checks that the file is for GPUs that have an instruction: all from a number on, as 80 for `sm_80`.
    pub fn needs(&self, op: &Opcode<'t>, target: u32) -> Result<()> {
        if self.file.target >= target { Ok(()) } else { Err(format!("`{}` needs `.target sm_{target}`", op.text)) }
    }

    /// The register that holds a constant.
    pub fn constant(&mut self, wide: bool, value: Word) -> Result<Register> {
        let key = (wide, value);
        if let Some(register) = self.constants.get(&key) {
            return Ok(*register);
        }
        let register = self.hidden(if wide { Type::B64 } else { Type::B32 })?;
        self.function.constants.push(Constant { wide, register, value: key.1.clone() });
        self.constants.insert(key, register);
        Ok(register)
    }

    /// The register that holds bits of a type.
    pub fn bits(&mut self, kind: Type, bits: u64) -> Result<Register> {
        let mask = u64::MAX >> (64 - 8 * kind.bytes().max(1));
        self.constant(kind.is_wide(), Word::Bits(bits & mask))
    }

    /// The register that holds the address of a variable, in its space.
    pub fn address(&mut self, wide: bool, name: &'t str, symbol: Symbol, offset: i64) -> Result<Register> {
        match symbol {
            Symbol::Register(..) | Symbol::Slot(..) => Err(format!("`{name}` has no address")),
            Symbol::Variable(_, start, _) => self.constant(wide, Word::Bits(i64::from(start).wrapping_add(offset) as u64)),
            Symbol::Dynamic => {
                self.dynamic.push(self.function.constants.len());
                let register = self.hidden(if wide { Type::B64 } else { Type::B32 })?;
                self.function.constants.push(Constant { wide, register, value: Word::Bits(offset as u64) });
                Ok(register)
            }
            Symbol::Device if wide => self.constant(true, Word::Address(name.to_string(), offset)),
            Symbol::Device => Err(format!("the address of `{name}` has 64 bits")),
        }
    }

    /// Puts dynamic shared memory behind the static one.
    pub fn finish_shared(&mut self) {
        self.function.shared = self.function.shared.next_multiple_of(if self.dynamic.is_empty() { 1 } else { self.dynamic_align });
        for index in &self.dynamic {
            if let Word::Bits(bits) = &mut self.function.constants[*index].value {
                *bits = bits.wrapping_add(self.function.shared.into());
            }
        }
    }

    /// The register of a source operand of a type.
    pub fn source(&mut self, operand: &Operand<'t>, kind: Type) -> Result<Register> {
        match *operand {
            Operand::Name("WARP_SZ") => self.bits(kind, 32),
            Operand::Name(name) => match self.symbol(name)? {
                Symbol::Register(found, register) if found.bytes() == kind.bytes() => Ok(register),
                Symbol::Register(found, _) => Err(format!("`{name}` is a register of type {found:?} where {kind:?} is asked for")),
                symbol => self.address(kind.is_wide(), name, symbol, 0),
            },
            Operand::Offset(name, offset) => {
                let symbol = self.symbol(name)?;
                self.address(kind.is_wide(), name, symbol, offset)
            }
            Operand::Integer(value) if !kind.is_float() => self.bits(kind, value),
            Operand::Single(bits) if kind.bytes() == 4 => self.bits(kind, bits.into()),
            Operand::Double(bits) if kind.bytes() == 8 => self.bits(kind, bits),
            Operand::Double(bits) if kind == Type::F32 => self.bits(kind, (f64::from_bits(bits) as f32).to_bits().into()),
            _ => Err(format!("the operand {operand:?} where {kind:?} is asked for")),
        }
    }

    /// A predicate, and whether it is negated.
    pub fn predicate(&mut self, operand: &Operand<'t>) -> Result<(Register, bool)> {
        let (name, negated) = match *operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            _ => return Err(format!("the operand {operand:?} where a predicate is asked for")),
        };
        match self.symbol(name)? {
            Symbol::Register(Type::Predicate, register) => Ok((register, negated)),
            _ => Err(format!("`{name}` is no predicate")),
        }
    }

    /// A register by its name, of any type.
    pub fn register(&mut self, operand: &Operand<'t>) -> Result<(Type, Register)> {
        match *operand {
            Operand::Name(name) => match self.symbol(name)? {
                Symbol::Register(kind, register) => Ok((kind, register)),
                _ => Err(format!("`{name}` is no register")),
            },
            _ => Err(format!("the operand {operand:?} where a register is asked for")),
        }
    }

    /// The register of a destination of a type. `_` drops the result.
    pub fn destination(&mut self, operand: &Operand<'t>, kind: Type) -> Result<Register> {
        if *operand == Operand::Name("_") {
            return if kind == Type::Predicate { self.hidden(kind) } else { self.temporary(kind.is_wide()) };
        }
        match self.register(operand)? {
            (found, register) if found.bytes() == kind.bytes() => Ok(register),
            (found, _) => Err(format!("the register {operand:?} is of type {found:?} where {kind:?} is asked for")),
        }
    }

    /// The place of a register whose width may be larger than that of the type, as loads, stores and conversions allow.
    pub fn loose(&mut self, operand: &Operand<'t>, kind: Type) -> Result<Place> {
        if *operand == Operand::Name("_") {
            return Ok(Place::Nowhere);
        }
        match self.register(operand)? {
            (found, _) if found.bytes() < kind.bytes() => Err(format!("the register {operand:?} is too narrow for {kind:?}")),
            (found, register) if found.is_wide() => Ok(Place::Wide(register)),
            (_, register) => Ok(Place::Narrow(register)),
        }
    }
}
