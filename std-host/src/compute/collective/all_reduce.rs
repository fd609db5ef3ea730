//! Op that combines a tensor with those of the other replicas: `y = x₀ + x₁ + …`. It runs eagerly and in traced functions.

use super::hub::{Communicator, Exchange, ReduceOp};
use super::sum;
use gradlet_core::custom_op::{Backward, Call, Gradient, InputGradients, Kernel, Op, OpCode, OpDef, read_attributes};
use gradlet_core::replicas::reduction;
use gradlet_core::{DType, Error, Result, Scope, Tensor};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The place of this thread in a run of a strategy.
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// Place of a replica in a run.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) replicas: usize,
    pub(crate) communicator: Arc<dyn Communicator>,
}

impl Seat {
    /// Returns the place of this thread. Fails if it runs no replica.
    pub(crate) fn current() -> Result<Seat> {
        let none = || Error::message("all_reduce and all_gather need a replica: call them in the closure of MirroredStrategy::run");
        SEAT.with_borrow(Clone::clone).ok_or_else(none)
    }

    /// True if this thread runs a replica.
    pub(crate) fn is_taken() -> bool {
        SEAT.with_borrow(Option::is_some)
    }

    /// Calls `work` in this place.
    pub(crate) fn during<R>(self, work: impl FnOnce() -> R) -> R {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                SEAT.set(None);
            }
        }
        SEAT.set(Some(self));
        let _leave = Leave;
        work()
    }
}

/// Definition of the op. Its number is not in the catalogue, because artifacts have no replicas.
static DEF: OpDef = OpDef {
    code: OpCode(1000),
    name: "all_reduce",
    inputs: (1, 1),
    outputs: 1,
    infer: |inputs, attributes, outputs| {
        if read_attributes::<[u32; 1]>(attributes)?[0] > reduction::FIRST {
            return Err(Error::Attribute { index: 0 });
        }
        outputs[0] = inputs[0];
        Ok(())
    },
    in_place: &[(0, 0)],
};

/// The op. The gradient of a sum or a mean over replicas is that of the upstream gradients. The value of the first replica has none: only
/// assignments use it.
pub(crate) static OP: Op = Op { exchanges: true, ..Op::new(&DEF, "all_reduce(x)", Gradient::Rule(grad)) };

fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let word = *of.attributes.first().ok_or(Error::Internal)?;
    if word == reduction::FIRST {
        return Ok([None].into_iter().collect());
    }
    let gradient = of.if_wanted(0, || OP.emit(&[word], &[of.dy()?])?.pop().ok_or(Error::Internal))?;
    Ok([gradient].into_iter().collect())
}

/// Kernels of the op, for the devices of replicas.
pub static KERNELS: &[Kernel] = &[
    Kernel { def: &DEF, dtype: DType::F32, run },
    Kernel { def: &DEF, dtype: DType::F64, run },
    Kernel { def: &DEF, dtype: DType::I32, run },
    Kernel { def: &DEF, dtype: DType::I64, run },
];

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let [word] = call.attributes::<[u32; 1]>()?;
    let seat = Seat::current()?;
    let input = call.input(0)?;
    let dtype = input.dtype();
    let data = &mut *call.output()?.data;
    if let Some(part) = input.data {
        data.copy_from_slice(part);
    }
    let what = Exchange { name: name(word), dtype, bytes: Some(data.len()) };
    match word {
        reduction::FIRST => {
            let parts = seat.communicator.all_gather(seat.rank, what, data)?;
            data.copy_from_slice(parts.first().ok_or(Error::Internal)?);
        }
        reduction::MEAN => {
            seat.communicator.all_reduce(seat.rank, what, data)?;
            sum::divide(dtype, data, seat.replicas)?;
        }
        _ => seat.communicator.all_reduce(seat.rank, what, data)?,
    }
    Ok(())
}

/// Returns the name of a reduction, for errors.
pub(super) fn name(word: u32) -> &'static str {
    match word {
        reduction::FIRST => "broadcast",
        reduction::MEAN => "all_reduce (mean)",
        _ => "all_reduce (sum)",
    }
}

/// Returns `value`, combined with those of the other replicas, in the replica whose scope is `scope`: eagerly, or in a function that a
/// replica calls. Every replica must call it, with values of the same type. All of them get the same bits: see [`ReduceOp`]. It has a
/// gradient.
///
/// Fails outside of a replica. Fails in all replicas if one of them fails, ends without a call, or does not call in time.
pub fn all_reduce(scope: &dyn Scope, op: ReduceOp, value: &Tensor) -> Result<Tensor> {
    let replica = scope.handle().role().and_then(|role| role.rank);
    replica.ok_or_else(|| Error::message("all_reduce needs a replica: call it in the closure of MirroredStrategy::run"))?;
    let word = match op {
        ReduceOp::Sum => reduction::SUM,
        ReduceOp::Mean => reduction::MEAN,
    };
    scope.emit(&OP, &[word], &[value])?.pop().ok_or(Error::Internal)
}
