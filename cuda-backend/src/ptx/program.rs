//! Programs: descriptions of kernels for elementwise ops.

use gradlet_core::custom_op::{Op, OpDef};
use gradlet_core::{DType, ops};

/// A kernel that computes the elements of its outputs one by one. It does not depend on any size: the numbers of elements and the lengths
/// of the axes are parameters.
///
/// The elements are divided into axes, innermost first. Tensors in memory are contiguous, so an operand is described by the axes along
/// which it varies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    /// Number of axes, from 1 to 8.
    pub axes: usize,
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

/// Returns what is known of an op of the catalogue.
pub(crate) fn known(op: &OpDef) -> Option<&'static Op> {
    ops::OPS.iter().copied().find(|known| std::ptr::eq(known.def, op))
}

impl Function {
    /// Returns the function that computes an op of the catalogue for this element type, or `None` if the op is not elementwise.
    pub(crate) fn of(op: &OpDef, dtype: DType) -> Option<Function> {
        let known = known(op).filter(|known| known.elementwise)?;
        let op = if op.code == ops::code::reshape { ops::identity::DEF.name } else { known.def.name };
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
    /// Returns the bits of all axes.
    pub(crate) fn all_axes(&self) -> u8 {
        u8::MAX >> (8 - self.axes)
    }
}
