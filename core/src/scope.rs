//! Scopes: where an op goes when user code calls it.
//!
//! There is no global state. A scope computes now (`Eager`), computes and records (`Tape`), or only records (`Trace`);
//! layers, losses and optimizers are written once against [`Scope`]. A tensor knows the scope it came from, so
//! `x.matmul(&w)` needs no scope argument.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::op::{MAX_INPUTS, MAX_OUTPUTS, OpDef};
use crate::random::Stream;
use crate::sync::{Shared, ThreadSafe};
use crate::tensor::Tensor;
use crate::variable::Variable;

/// An op as user code emits it: its definition, and how gradients go through it.
pub struct Op {
    /// What it computes.
    pub def: &'static OpDef,
    /// What it takes and gives, for error texts: `matmul(a[..,m,k], b[..,k,n]) -> [..,m,n]`.
    pub usage: &'static str,
    /// Its gradient.
    pub grad: Gradient,
}

/// How gradients go through an op.
pub enum Gradient {
    /// A rule that emits forward ops; so it serves tapes and traces, and has gradients itself.
    Rule(fn(&Backward<'_>) -> Result<InputGradients>),
    /// None flows: the op is constant almost everywhere, or its result is not a float. With the reason.
    None(&'static str),
    /// There would be one, but the op does not have it, for this reason: asking for it is an error.
    Missing(&'static str),
}

/// A gradient for each input of an op; `None` where none flows.
pub type InputGradients = heapless::Vec<Option<Tensor>, MAX_INPUTS>;

/// The outputs of an op.
pub type Outputs = heapless::Vec<Tensor, MAX_OUTPUTS>;

/// What a gradient rule is given of the op that ran.
pub struct Backward<'a> {
    /// The attribute words.
    pub attributes: &'a [u32],
    /// The inputs.
    pub inputs: &'a [Tensor],
    /// The outputs.
    pub outputs: &'a [Tensor],
    /// The gradient of the target with respect to each output; `None` is zero.
    pub upstream: &'a [Option<Tensor>],
    /// Whether the gradient of each input is asked for.
    pub wanted: &'a [bool],
}

impl Backward<'_> {
    /// The gradient of output 0. A rule is called only if one of its outputs has a gradient, so an op with one output has it.
    pub fn dy(&self) -> Result<&Tensor> {
        self.upstream.first().and_then(Option::as_ref).ok_or(Error::Arity { got: 0 })
    }

    /// `gradient()` if input `index` wants one.
    pub fn if_wanted(&self, index: usize, gradient: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        if self.wanted.get(index).copied().unwrap_or(false) { gradient().map(Some) } else { Ok(None) }
    }
}

/// What stands behind a scope.
pub trait Recorder: ThreadSafe {
    /// Computes or records `op`.
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs>;
    /// The value of `variable` at this moment.
    fn read(&self, variable: &Variable) -> Result<Tensor>;
    /// Sets `variable`.
    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()>;
    /// The device that new tensors are made on.
    fn device(&self) -> &Device;
    /// The scope that this one stands in.
    fn parent(&self) -> Option<&ScopeHandle>;
    /// False once the scope is over; its tensors then count as the parent's.
    fn recording(&self) -> bool;
    /// Whether variables can be created.
    fn may_create(&self) -> bool;
    /// A stream of random numbers that was not given before.
    fn next_stream(&self) -> Stream;
}

/// A scope, shared.
#[derive(Clone)]
pub struct ScopeHandle(pub(crate) Shared<dyn Recorder>);

impl ScopeHandle {
    /// The scope that `recorder` implements.
    pub fn new(recorder: Shared<dyn Recorder>) -> ScopeHandle {
        ScopeHandle(recorder)
    }

    fn is(&self, other: &ScopeHandle) -> bool {
        core::ptr::addr_eq(Shared::as_ptr(&self.0), Shared::as_ptr(&other.0))
    }

    fn depth(&self) -> usize {
        self.0.parent().map_or(0, |parent| parent.depth() + 1)
    }

    /// The one of two scopes that stands deeper; `self`, if neither does.
    pub(crate) fn deeper(self, other: ScopeHandle) -> ScopeHandle {
        if other.depth() > self.depth() { other } else { self }
    }

    /// True if `other` is this scope or one that it stands in.
    fn stands_in(&self, other: &ScopeHandle) -> bool {
        self.is(other) || self.0.parent().is_some_and(|parent| parent.stands_in(other))
    }
}

/// What layers, losses and optimizers are written against: [`Eager`](crate::eager::Eager), a tape or a trace.
pub trait Scope {
    /// The scope, shared.
    fn handle(&self) -> ScopeHandle;

    /// Computes or records `op` on `inputs`. Most ops have a method of [`Tensor`] that is shorter.
    ///
    /// Fails, before any work is done, where the inputs or attributes do not fit the op.
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        self.handle().0.emit(op, attributes, inputs)
    }

    /// The value of `variable` at this moment: later assignments do not change it.
    ///
    /// Fails with [`Error::Unbuilt`] if the variable was not created yet.
    fn read(&self, variable: &Variable) -> Result<Tensor> {
        self.handle().0.read(variable)
    }

    /// Sets `variable` to `value`. Fails if the element type or the shape is another one.
    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.handle().0.assign(variable, value)
    }

    /// A stream of random numbers that was not given before. It depends on the seed of the scope at the bottom, and on how
    /// many streams were taken.
    fn next_stream(&self) -> Stream {
        self.handle().0.next_stream()
    }

    /// The device that new tensors are made on.
    fn device(&self) -> Device {
        self.handle().0.device().clone()
    }
}

impl Scope for ScopeHandle {
    fn handle(&self) -> ScopeHandle {
        self.clone()
    }
}

/// The innermost scope that the inputs come from; `None` if all were computed outside of any.
pub(crate) fn innermost(inputs: &[&Tensor]) -> Result<Option<ScopeHandle>> {
    let mut inner: Option<ScopeHandle> = None;
    for tensor in inputs {
        let Some(scope) = tensor.scope()? else { continue };
        inner = match inner {
            None => Some(scope),
            Some(inner) if inner.is(&scope) => Some(inner),
            Some(inner) => {
                let (deep, shallow) = if inner.depth() >= scope.depth() { (inner, scope) } else { (scope, inner) };
                Some(deep).filter(|deep| deep.stands_in(&shallow)).ok_or(Error::UnrelatedScopes)?.into()
            }
        };
    }
    Ok(inner)
}
