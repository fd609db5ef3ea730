//! Loads, stores and atomic instructions.

use super::{
    Builder, Opcode,
    builder::{Result, Symbol},
};
use crate::{
    machine::code::{Address, Atomic, Operation, Place, Space, Transfer},
    ptx::{syntax::Operand, types::Type},
};

impl<'t> Builder<'_, 't> {
    /// `ld`, `ldu` and `st`.
    pub fn transfer(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let load = op.base != "st";
        let strong = op.take_ordering();
        let mut space = op.space();
        if op.take("nc") && load && space == Space::Global {
            space = Space::Constant;
        }
        let vector = if op.take("v2") {
            2
        } else if op.take("v4") {
            4
        } else {
            1
        };
        let kind = op.kind()?;
        op.finish()?;
        let (value, address) = match (operands, load) {
            ([value, Operand::Address(base, offset)], true) | ([Operand::Address(base, offset), value], false) => (value, (*base, *offset)),
            _ => return op.unsupported(),
        };
        let elements = match value {
            Operand::Vector(elements) => &elements[..],
            single => std::slice::from_ref(single),
        };
        if elements.len() != vector || kind == Type::Predicate || vector as u32 * kind.bytes() > 16 {
            return op.unsupported();
        }
        if let (Space::Parameter, Some(name), [value]) = (space, address.0, elements)
            && let Symbol::Slot(slot_kind, slot) = self.symbol(name)?
        {
            if address.1 != 0 || kind.bytes() > slot_kind.bytes() {
                return Err(format!("`{}` accesses a part of `{name}`", op.text));
            }
            return self.slot(place_of(slot_kind, slot), kind, value, load);
        }
        let (space, address) = self.resolve(space, address)?;
        if !load && matches!(space, Space::Constant | Space::Parameter) {
            return Err(format!("`{}` writes memory that is constant", op.text));
        }
        let mut places = [Place::Nowhere; 4];
        for (place, element) in places.iter_mut().zip(elements) {
            *place = match element {
                Operand::Name(_) => self.loose(element, kind)?,
                constant if !load => place_of(kind, self.source(constant, kind)?),
                _ => return op.unsupported(),
            };
        }
        self.note_width(space, kind);
        let transfer =
            Transfer { space, address, width: kind.bytes() as u8, signed: kind.is_signed(), strong, count: vector as u8, places };
        self.emit(if load { Operation::Load(Box::new(transfer)) } else { Operation::Store(Box::new(transfer)) });
        Ok(())
    }

    /// Reads or writes a parameter or result of a call that a register holds.
    fn slot(&mut self, slot: Place, kind: Type, value: &Operand<'t>, load: bool) -> Result<()> {
        let whole = if kind.is_signed() { kind } else { kind.unsigned() };
        let value = match value {
            Operand::Name(_) => self.loose(value, kind)?,
            constant => place_of(kind, self.source(constant, kind)?),
        };
        if load { self.reshape(value, slot, whole) } else { self.reshape(slot, value, whole) }
    }

    /// The space and address of an operand in brackets.
    pub fn resolve(&mut self, space: Space, (base, offset): (Option<&'t str>, i64)) -> Result<(Space, Address)> {
        let own = if space == Space::Parameter && !self.kernel { Space::Local } else { space };
        let Some(name) = base else { return Ok((own, Address { base: Place::Nowhere, offset })) };
        match self.symbol(name)? {
            Symbol::Register(Type::Predicate, _) => Err(format!("`{name}` is a predicate")),
            Symbol::Register(kind, register) if kind.bytes() >= 4 => Ok((own, Address { base: place_of(kind, register), offset })),
            Symbol::Register(..) => Err(format!("`{name}` is too narrow for an address")),
            Symbol::Slot(..) => Err(format!("`{name}` is a parameter of a call")),
            Symbol::Variable(found, start, _) => {
                let fits = found == space || space == Space::Parameter && found == Space::Local;
                if !fits {
                    return Err(format!("`{name}` is a variable of {found:?}, but the access is to {space:?}"));
                }
                Ok((found, Address { base: Place::Nowhere, offset: i64::from(start).wrapping_add(offset) }))
            }
            symbol @ (Symbol::Dynamic | Symbol::Device) => {
                let register = self.address(true, name, symbol, offset)?;
                Ok((own, Address { base: Place::Wide(register), offset: 0 }))
            }
        }
    }

    /// Notes whether shared memory may be accessed by less than words.
    fn note_width(&mut self, space: Space, kind: Type) {
        self.function.shared_bytewise |= matches!(space, Space::Shared | Space::Generic) && kind.bytes() < 4;
    }

    /// `atom` and `red`.
    pub fn atomic(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        op.take_ordering();
        op.take("noftz");
        let space = op.space();
        let Some(name) = op.first(Some) else { return op.unsupported() };
        let kind = op.kind()?;
        op.finish()?;
        let Some(update) = update(name, kind) else { return op.unsupported() };
        let (old, rest) = match (op.base, operands) {
            ("atom", [old, rest @ ..]) => (self.loose(old, kind)?, rest),
            _ => (Place::Nowhere, operands),
        };
        let (base, a, b) = match rest {
            [Operand::Address(base, offset), a] if name != "cas" => ((*base, *offset), a, a),
            [Operand::Address(base, offset), a, b] if name == "cas" => ((*base, *offset), a, b),
            _ => return op.unsupported(),
        };
        let (space, address) = self.resolve(space, base)?;
        if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return op.unsupported();
        }
        let (a, b) = (place_of(kind, self.source(a, kind)?), place_of(kind, self.source(b, kind)?));
        self.note_width(space, kind);
        self.emit(Operation::Atomic(Box::new(Atomic { space, address, width: kind.bytes() as u8, update, a, b, old })));
        Ok(())
    }
}

/// The place of a register of a type.
pub fn place_of(kind: Type, register: u16) -> Place {
    if kind.is_wide() { Place::Wide(register) } else { Place::Narrow(register) }
}

/// Change of the old value by an atomic instruction.
fn update(name: &str, kind: Type) -> Option<fn(u64, u64, u64) -> u64> {
    macro_rules! of {
        ($type:ty, $f:expr) => {
            |old, a, _| {
                let f: fn($type, $type) -> $type = $f;
                f(old as $type, a as $type) as u64
            }
        };
    }
    let narrow = kind.bytes() == 4;
    Some(match (name, kind) {
        ("and", Type::B32 | Type::B64) => |old, a, _| old & a,
        ("or", Type::B32 | Type::B64) => |old, a, _| old | a,
        ("xor", Type::B32 | Type::B64) => |old, a, _| old ^ a,
        ("exch", Type::B32 | Type::B64) => |_, a, _| a,
        ("cas", Type::B16 | Type::B32 | Type::B64) => |old, a, b| if old == a { b } else { old },
        ("add", Type::U32 | Type::S32) => of!(u32, |old, a| old.wrapping_add(a)),
        ("add", Type::U64 | Type::S64) => |old, a, _| old.wrapping_add(a),
        ("add", Type::F32) => |old, a, _| (f32::from_bits(old as u32) + f32::from_bits(a as u32)).to_bits().into(),
        ("add", Type::F64) => |old, a, _| (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
        ("inc", Type::U32) => of!(u32, |old, a| if old >= a { 0 } else { old + 1 }),
        ("dec", Type::U32) => of!(u32, |old, a| if old == 0 || old > a { a } else { old - 1 }),
        ("min", Type::U32 | Type::U64) => |old, a, _| old.min(a),
        ("max", Type::U32 | Type::U64) => |old, a, _| old.max(a),
        ("min", Type::S32 | Type::S64) if narrow => |old, a, _| (old as i32).min(a as i32) as u32 as u64,
        ("max", Type::S32 | Type::S64) if narrow => |old, a, _| (old as i32).max(a as i32) as u32 as u64,
        ("min", Type::S64) => of!(i64, |old, a| old.min(a)),
        ("max", Type::S64) => of!(i64, |old, a| old.max(a)),
        _ => return None,
    })
}
