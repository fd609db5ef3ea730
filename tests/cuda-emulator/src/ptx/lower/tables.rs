//! Macros that make an instruction for each type.

/// `d = f(a)`.
macro_rules! unary {
    ($type:ty, $f:expr) => {
        unary!($type, $type, $f)
    };
    ($a:ty, $d:ty, $f:expr) => {{
        let f: $crate::machine::registers::Compute = |r, o, mask| r.map1::<$a, $d>(o, mask, $f);
        f
    }};
}

/// `d = f(a, b)`.
macro_rules! binary {
    ($type:ty, $f:expr) => {
        binary!($type, $type, $type, $f)
    };
    ($a:ty, $b:ty, $d:ty, $f:expr) => {{
        let f: $crate::machine::registers::Compute = |r, o, mask| r.map2::<$a, $b, $d>(o, mask, $f);
        f
    }};
}

/// `d = f(a, b, c)`.
macro_rules! ternary {
    ($type:ty, $f:expr) => {
        ternary!($type, $type, $type, $type, $f)
    };
    ($a:ty, $b:ty, $c:ty, $d:ty, $f:expr) => {{
        let f: $crate::machine::registers::Compute = |r, o, mask| r.map3::<$a, $b, $c, $d>(o, mask, $f);
        f
    }};
}

/// The predicate `f(a, b)`.
macro_rules! comparison {
    ($type:ty, $f:expr) => {{
        let f: $crate::machine::registers::Compute = |r, o, mask| r.test2::<$type>(o, mask, $f);
        f
    }};
}

/// An instruction for each integer type.
macro_rules! integers {
    ($kind:expr, $make:ident, $f:expr) => {
        match $kind {
            Type::U16 | Type::B16 => Some($make!(u16, $f)),
            Type::S16 => Some($make!(i16, $f)),
            Type::U32 | Type::B32 => Some($make!(u32, $f)),
            Type::S32 => Some($make!(i32, $f)),
            Type::U64 | Type::B64 => Some($make!(u64, $f)),
            Type::S64 => Some($make!(i64, $f)),
            _ => None,
        }
    };
}

/// An instruction for each width, whatever the type.
macro_rules! widths {
    ($kind:expr, $make:ident, $f:expr) => {
        match $kind.bytes() {
            2 => Some($make!(u16, $f)),
            4 => Some($make!(u32, $f)),
            8 => Some($make!(u64, $f)),
            _ => None,
        }
    };
}

/// An instruction for each floating-point type.
macro_rules! floats {
    ($kind:expr, $make:ident, $f:expr) => {
        match $kind {
            Type::F32 => Some($make!(f32, $f)),
            Type::F64 => Some($make!(f64, $f)),
            _ => None,
        }
    };
}

pub(super) use {binary, comparison, floats, integers, ternary, unary, widths};
