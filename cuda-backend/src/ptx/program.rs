//! Programs: descriptions of kernels for elementwise ops.

use gradlet_core::custom_op::{Op, OpDef};
use gradlet_core::{DType, ops};

/// A kernel that computes the elements of its outputs from the elements of its inputs. The numbers of elements and the lengths of the axes
/// are parameters.
///
/// The elements are divided into axes, innermost first. Tensors in memory are contiguous, so an operand is described by the axes along
/// which it varies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    /// Number of axes, from 1 to 8.
    pub axes: usize,
    /// Number of neighbouring elements that a thread computes at a time: 1, 2, 4 or 8. In each tensor, they have at most 16 bytes, which
    /// are one access to memory.
    pub lanes: usize,
    /// True if the length of the innermost axis is a multiple of `lanes`.
    pub even: bool,
    /// Number of segments, which are independent sets of tensors. With several of them, there is one axis, and each block computes elements
    /// of one segment.
    pub segments: usize,
    /// The tensors that are read.
    pub loads: Vec<Load>,
    /// The functions that are called for each element, in this order.
    pub calls: Vec<Call>,
}

/// A tensor that a program reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    pub dtype: DType,
    /// The axes along which the tensor varies, as bits. Bit 0 is the innermost axis.
    pub varies: u8,
}

/// A call of a function for an element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub function: Function,
    pub arguments: Vec<Operand>,
    /// Type of the result.
    pub result: DType,
    /// True if the result is stored in an output. The outputs have the order of the calls.
    pub kept: bool,
}

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operand {
    /// The element of the tensor with this index in [`Program::loads`].
    Load(usize),
    /// The result of an earlier call.
    Call(usize),
    /// The value with this index among those that the kernel has computed, if the program is at its end.
    Given(usize),
}

/// A function of `kernels/functions.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    /// Name of the op.
    op: &'static str,
    /// Type of the first argument.
    dtype: DType,
    /// True if the function can refuse its arguments. It then takes the address of the fault word and the number of the step, too.
    pub refuses: bool,
}

/// True if the op only moves elements. In a group, its elements stay in registers.
pub(crate) fn moves(op: &OpDef) -> bool {
    [ops::code::reshape, ops::code::broadcast_to].contains(&op.code)
}

/// Returns what is known of an op of the catalogue.
pub(crate) fn known(op: &OpDef) -> Option<&'static Op> {
    ops::OPS.iter().copied().find(|known| std::ptr::eq(known.def, op))
}

impl Function {
    /// Returns the function that computes an op of the catalogue for this element type, or `None` if no function does.
    pub(crate) fn of(op: &OpDef, dtype: DType) -> Option<Function> {
        let known = known(op).filter(|known| known.elementwise || moves(op))?;
        let op = if moves(op) { ops::identity::DEF.name } else { known.def.name };
        let function = Function { op, dtype, refuses: known.may_refuse(dtype) };
        super::functions().has(&function.name(DType::F32)).then_some(function)
    }

    /// Returns the name of the function in the PTX. Only casts depend on the type of the result.
    pub(crate) fn name(&self, result: DType) -> String {
        let Function { op, dtype, .. } = self;
        if *op == ops::cast::DEF.name { format!("{op}_{dtype}_{result}") } else { format!("{op}_{dtype}") }
    }
}

impl Program {
    /// Creates a program that computes the elements one by one.
    pub(crate) fn new(axes: usize, loads: Vec<Load>, calls: Vec<Call>) -> Program {
        Program { axes, lanes: 1, even: true, segments: 1, loads, calls }
    }

    /// Returns this program with threads that compute as many elements at a time as 16 bytes of its widest tensor have. `inner` are the
    /// lengths of the innermost axis, one for each segment.
    pub(crate) fn with_lanes(mut self, inner: &[u64]) -> Program {
        let read = self.loads.iter().filter(|load| load.varies != 0).map(|load| load.dtype);
        let sizes = read.chain(self.stored().map(|call| call.result)).map(DType::size);
        self.lanes = (16 / sizes.max().unwrap_or(16)).clamp(1, 8);
        self.even = inner.iter().all(|length| length % self.lanes as u64 == 0);
        self
    }

    /// Returns the calls whose results are stored.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.kept)
    }

    /// Returns the bits of all axes.
    pub(crate) fn all_axes(&self) -> u8 {
        u8::MAX >> (8 - self.axes)
    }
}
