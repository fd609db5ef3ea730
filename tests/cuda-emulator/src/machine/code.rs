//! The form of a kernel that the machine executes.

use super::{
    matrix::code::{MatrixLoad, Product, Warpgroup},
    registers::{Compute, Operands, Register},
};

/// A kernel, with every routine that it calls.
#[derive(Clone, Debug, Default)]
pub struct Function {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) shared: u32,
    /// Whether shared memory is accessed by bytes, not only by words of 4 bytes.
    pub(crate) shared_bytewise: bool,
    /// Bytes of local memory of a thread.
    pub(crate) local: u32,
    pub(crate) max_threads: u32,
    /// A routine stands before those that call it.
    pub(crate) code: Vec<Instruction>,
    /// The kernel's first instruction.
    pub(crate) start: u32,
    /// Registers of each bank.
    pub(crate) narrow: u32,
    pub(crate) wide: u32,
    pub(crate) predicates: u32,
    /// Registers that the PTX declares, in 32-bit words.
    pub(crate) declared: u32,
    pub(crate) constants: Vec<Constant>,
    /// The text of the instructions' lines, for faults.
    pub(crate) source: Vec<(u32, Box<str>)>,
}

/// A parameter of a kernel, in its parameter bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// First byte.
    pub offset: u32,
}

/// A register that holds the same word in all lanes and is never written.
#[derive(Clone, Debug)]
pub struct Constant {
    pub wide: bool,
    pub register: Register,
    pub value: Word,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Bits(u64),
    /// The address of a variable in device memory, with something added.
    Address(String, i64),
    /// That address, after [`crate::ptx::Module::link`].
    Linked(u64),
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    pub operation: Operation,
    /// The predicate of the lanes that execute it. Predicate 0 is always true.
    pub guard: Register,
    pub negated: bool,
    pub line: u32,
    /// Operations on floating-point numbers of a lane.
    pub flops: u16,
}

/// Function of an instruction.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Computes with registers.
    Compute(Compute, Operands),
    /// Reads a special register into a narrow or wide one.
    Special(Special, Place),
    Load(Box<Transfer>),
    Store(Box<Transfer>),
    Atomic(Box<Atomic>),
    /// Copies bytes of the thread's local memory: from, to, length. Passes parameters of calls.
    Copy(u32, u32, u32),
    Branch(u32),
    /// Branches to the target that a narrow register numbers.
    Switch(Register, Box<[u32]>),
    /// Continues at the target; the register keeps where to return.
    Call(u32, Register),
    Return(Register),
    Exit,
    Trap,
    Barrier(Box<Barrier>),
    /// Lets the warp's other lanes catch up, then computes over lanes.
    Warp(WarpOperation, Box<Exchange>),
    /// The mask of the lanes that execute it.
    ActiveMask(Register),
    /// Begins a copy from device memory to shared memory.
    CopyAsync(Box<AsyncCopy>),
    /// Makes a group of the thread's copies that are in none.
    CommitCopies,
    /// Waits for the thread's groups of copies but the last ones of a number, or for all copies.
    WaitCopies(Option<u32>),
    /// Orders the thread's accesses to shared memory before those of matrix products.
    ProxyFence,
    /// Loads matrices of 8 rows of 16 bytes from shared memory.
    LoadMatrix(Box<MatrixLoad>),
    /// Multiplies matrices of a warp.
    Product(Box<Product>),
    /// An operation of four warps, for asynchronous products of matrices.
    Warpgroup(Warpgroup),
}

/// A place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Narrow(Register),
    Wide(Register),
    /// The value is dropped.
    Nowhere,
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    GridSize(u8),
    Lane,
    Warp,
    Warps,
    /// The lanes equal to, below, up to, above, from this one.
    LaneEqual,
    LaneBelow,
    LaneUpTo,
    LaneAbove,
    LaneFrom,
    /// Instructions that the warp executed: the only clock.
    Clock,
    DynamicShared,
    TotalShared,
    Zero,
    One,
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Generic,
    Global,
    /// Device memory that no thread writes during the launch.
    Constant,
    Shared,
    Local,
    Parameter,
}

/// An address: a register and an offset.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// Nowhere: the offset alone.
    pub base: Place,
    pub offset: i64,
}

/// A load or store.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub space: Space,
    pub address: Address,
    /// Bytes of an element.
    pub width: u8,
    /// Whether loaded elements are signed.
    pub signed: bool,
    /// Whether it is volatile or relaxed: such a load may meet atomic instructions.
    pub strong: bool,
    /// Elements.
    pub count: u8,
    pub places: [Place; 4],
}

/// An atomic instruction.
#[derive(Clone, Debug)]
pub struct Atomic {
    pub space: Space,
    pub address: Address,
    pub width: u8,
    /// The new value, of the old one and two operands.
    pub update: fn(u64, u64, u64) -> u64,
    pub a: Place,
    pub b: Place,
    /// Where the old value goes.
    pub old: Place,
}

/// A barrier of the block.
#[derive(Clone, Debug)]
pub struct Barrier {
    /// A narrow register: which one of the block's barriers.
    pub number: Register,
    /// A narrow register: the threads that meet there. None: all of the block.
    pub count: Option<Register>,
    /// Whether the thread waits for the others.
    pub waits: bool,
    pub reduction: Option<Reduction>,
}

/// A copy from device memory to shared memory.
#[derive(Clone, Debug)]
pub struct AsyncCopy {
    pub to: Address,
    pub from: Address,
    /// Bytes that it writes.
    pub length: u8,
    /// A narrow register: the bytes that it reads; the others are zeros. None: all.
    pub used: Option<Register>,
}

/// Value that a barrier computes over the threads of the block.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    pub kind: Vote,
    pub source: Register,
    pub negated: bool,
    /// A narrow register for a count, else a predicate.
    pub destination: Register,
}

/// A reduction of predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    All,
    Any,
    Uniform,
    /// The mask of the lanes for which the predicate holds.
    Ballot,
    /// How many threads the predicate holds for.
    Count,
}

/// How a shuffle chooses the lane that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Value that a warp computes over its lanes.
#[derive(Clone, Copy, Debug)]
pub enum WarpOperation {
    /// `bar.warp.sync`.
    Synchronize,
    Shuffle(Shuffle),
    Vote(Vote),
    /// `match.any`: the lanes with the same value; wide if the value is.
    MatchAny(bool),
    /// `match.all`.
    MatchAll(bool),
    /// The lowest lane, and whether it is this one.
    Elect,
    /// Reduces the lanes' words, in order.
    Reduce(fn(u32, u32) -> u32),
}

/// The operands of a warp's operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchange {
    /// A narrow register: the lanes that take part.
    pub members: Register,
    /// A destination, narrow, or a predicate for a vote.
    pub d: Register,
    /// The predicate of a shuffle or match.
    pub p: Option<Register>,
    /// The source: narrow, wide, or a predicate for a vote.
    pub a: Register,
    /// Whether a vote's source is negated.
    pub negated: bool,
    /// A shuffle's lane and clamp, narrow.
    pub b: Register,
    pub c: Register,
}

impl Function {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Bytes of the parameters together.
    pub fn parameter_bytes(&self) -> u32 {
        self.parameters.last().map_or(0, |p| p.offset + p.size)
    }

    /// Bytes of shared memory that the kernel declares.
    pub fn shared_bytes(&self) -> u32 {
        self.shared
    }

    /// The threads of a block that the kernel allows: `.maxntid`, or 1024.
    pub fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// Bytes of local memory of a thread.
    pub fn local_bytes(&self) -> u32 {
        self.local
    }

    /// Registers of a thread: an estimate, because PTX has as many as it likes.
    pub fn registers(&self) -> u32 {
        self.declared.clamp(1, 255)
    }
}
