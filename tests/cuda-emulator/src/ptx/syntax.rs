//! The form of a PTX file before registers and names are resolved.

use super::types::{Space, Type};

/// A file.
#[derive(Default)]
pub struct File<'t> {
    pub version: (u32, u32),
    pub target: u32,
    /// The letter behind the number of a target that is for one architecture only.
    pub letter: Option<char>,
    pub variables: Vec<Variable<'t>>,
    pub routines: Vec<Routine<'t>>,
}

/// A variable: `.global`, `.const`, `.shared`, `.local`, `.param`.
#[derive(Clone, Debug)]
pub struct Variable<'t> {
    pub space: Space,
    pub name: &'t str,
    pub align: u32,
    pub size: u32,
    /// A single element, no array.
    pub scalar: bool,
    /// An `.extern .shared` array, whose size the launch says.
    pub dynamic: bool,
    pub initial: Vec<Initial<'t>>,
    pub line: u32,
}

/// A part of an initial value.
#[derive(Clone, Debug)]
pub enum Initial<'t> {
    /// Bytes, little endian.
    Bytes([u8; 8], u8),
    /// The address of another variable, with something added.
    Address(&'t str, i64),
}

/// An `.entry` or a `.func`.
pub struct Routine<'t> {
    pub name: &'t str,
    pub kernel: bool,
    pub results: Vec<Variable<'t>>,
    pub parameters: Vec<Variable<'t>>,
    /// The most threads of a block, if the kernel says so.
    pub max_threads: Option<u32>,
    pub body: Vec<Item<'t>>,
    pub line: u32,
}

/// An element of a body.
pub enum Item<'t> {
    Open,
    Close,
    /// `.reg .b32 %r<5>` or `.reg .b32 name`: with the count of a numbered family.
    Registers(Type, &'t str, Option<u32>),
    Variable(Variable<'t>),
    Label(&'t str, u32),
    /// The labels of a `brx.idx`.
    Targets(Vec<&'t str>),
    Statement(Statement<'t>),
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Statement<'t> {
    pub line: u32,
    /// The predicate, and whether it is negated.
    pub guard: Option<(&'t str, bool)>,
    pub opcode: &'t str,
    pub operands: Vec<Operand<'t>>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<'t> {
    /// A register, special register, variable or label.
    Name(&'t str),
    /// `!%p1`.
    Not(&'t str),
    /// `variable+4`.
    Offset(&'t str, i64),
    Integer(u64),
    Single(u32),
    Double(u64),
    /// `[name+4]` or `[4]`.
    Address(Option<&'t str>, i64),
    /// `{a, b}`.
    Vector(Vec<Operand<'t>>),
    /// `%p1|%p2`.
    Pair(&'t str, &'t str),
    /// `(a, b)` of a call.
    List(Vec<&'t str>),
}
