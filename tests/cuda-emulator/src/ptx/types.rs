//! Types and state spaces.

pub use crate::machine::code::Space;

impl Space {
    /// A space by its modifier, as `global`.
    pub fn named(name: &str) -> Option<Space> {
        Some(match name {
            "global" => Space::Global,
            "const" => Space::Constant,
            "shared" | "shared::cta" => Space::Shared,
            "local" => Space::Local,
            "param" | "param::entry" | "param::func" => Space::Parameter,
            _ => return None,
        })
    }
}

/// The type of an instruction or register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Predicate,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    /// Two f16.
    F16x2,
    BF16,
    /// Two bf16.
    BF16x2,
    /// An f32 with fewer bits of fraction.
    TF32,
    F32,
    F64,
}

impl Type {
    /// A type by its modifier, as `u32`.
    pub fn named(name: &str) -> Option<Type> {
        Some(match name {
            "pred" => Type::Predicate,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::BF16,
            "bf16x2" => Type::BF16x2,
            "tf32" => Type::TF32,
            "f32" => Type::F32,
            "f64" => Type::F64,
            _ => return None,
        })
    }

    /// Its bytes. A predicate has none.
    pub fn bytes(self) -> u32 {
        match self {
            Type::Predicate => 0,
            Type::B8 | Type::U8 | Type::S8 => 1,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::BF16 => 2,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::BF16x2 | Type::TF32 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
        }
    }

    /// Whether a register of this type is 64 bits wide.
    pub fn is_wide(self) -> bool {
        self.bytes() == 8
    }

    /// Whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2 | Type::TF32 | Type::F32 | Type::F64)
    }

    /// The untyped integer of the same size as an unsigned one.
    pub fn unsigned(self) -> Type {
        match self {
            Type::B8 | Type::S8 => Type::U8,
            Type::B16 | Type::S16 | Type::F16 | Type::BF16 => Type::U16,
            Type::B32 | Type::S32 | Type::F32 | Type::F16x2 | Type::BF16x2 | Type::TF32 => Type::U32,
            Type::B64 | Type::S64 | Type::F64 => Type::U64,
            other => other,
        }
    }
}
