//! Reductions over some axes, and ops along one axis.

mod fast;
mod group;
pub(crate) mod moments;
pub(crate) mod normalize;

pub(crate) use group::group;

use super::array::elements;
use super::{Family, Job, Target};
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::Code;
use gradlet_core::custom_op::{OpDef, read_attributes};
use gradlet_core::ops::{argmax, code, cumsum, softmax};
use gradlet_core::tensor::MAX_RANK;
use gradlet_core::{DType, Error, Result, TensorType};

pub(super) const FAMILY: Family = Family { has_kernel, lower };

/// Number of elements up to which one thread reduces them, in the order of the portable kernels.
const IN_ORDER: u64 = 64;
/// Number of results from which one thread computes each, if neighbouring threads then read neighbouring elements.
const MANY: u64 = 1 << 16;
/// Largest number of threads of a block.
const MAX_THREADS: u64 = 1024;
/// Largest number of blocks, which loop over results.
const MAX_BLOCKS: u64 = 1 << 16;
/// Number of threads of a block of the kernels for long scans.
const LONG_SCAN: u32 = 256;

fn has_kernel(op: &OpDef, dtype: DType, target: &Target) -> bool {
    if !target.strict && fast::has_kernel(op, dtype) {
        return true;
    }
    match op.code {
        code::any | code::all => dtype == DType::Bool,
        code::mean | code::softmax | code::log_softmax | code::sparse_softmax_cross_entropy | code::sparse_softmax_cross_entropy_grad => {
            matches!(dtype, DType::F32 | DType::F64)
        }
        code::sum | code::prod | code::max | code::min | code::argmax | code::argmin | code::cumsum | code::cumprod | code::top_k => {
            !matches!(dtype, DType::F16 | DType::Bf16 | DType::Bool)
        }
        _ => false,
    }
}

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let ([x, ..], [y, ..]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
    let call = match job.op.code {
        code::argmax | code::argmin => {
            let argmax::Attributes { axis, .. } = read_attributes(job.attributes)?;
            let wide = u32::from(y.dtype == DType::I64);
            Lanes::new(x, axis)?.call(job, "reduce", &[Argument::Words(vec![wide])])
        }
        code::softmax | code::log_softmax => {
            let softmax::Attributes { axis } = read_attributes(job.attributes)?;
            let lanes = Lanes::new(x, axis)?;
            free_order(job).and_then(|job| fast::softmax(job, &lanes)).unwrap_or_else(|| lanes.call(job, "softmax", &[]))
        }
        code::cumsum | code::cumprod => scan(job, x)?,
        code::top_k => top_k(job, x)?,
        code::sparse_softmax_cross_entropy | code::sparse_softmax_cross_entropy_grad => cross_entropy(job, x)?,
        _ => return reduction(job, x, y),
    };
    Ok(vec![call])
}

/// Returns the job if its sums may have another order than those of the portable kernels.
fn free_order<'j, 'd>(job: &'j Job<'d>) -> Option<&'j Job<'d>> {
    Some(job).filter(|job| !job.target.strict)
}

/// Division of blocks into teams of threads, each of which works for one result. The fields are those of `Team` in the kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Team {
    width: u32,
    members: u32,
}

impl Team {
    /// Returns the teams for `results` results of `count` elements each. If `adjacent` is true, the elements of neighbouring results are
    /// neighbours, and otherwise those of one result are. A team of more than one member combines its elements in an order of its own.
    fn new(results: u64, count: u64, adjacent: bool) -> Team {
        let shared = |least: u64, most: u64| (count / 4).clamp(least, most).next_power_of_two() as u32;
        if count <= IN_ORDER || adjacent && results >= MANY {
            Team { width: results.clamp(32, 256).next_power_of_two() as u32, members: 1 }
        } else if adjacent {
            Team { width: 32, members: shared(8, MAX_THREADS / 32) }
        } else {
            Team { width: 1, members: shared(32, MAX_THREADS) }
        }
    }

    /// Returns the launch of a kernel that computes `results` results.
    fn call(self, results: u64, code: Code, arguments: Vec<Argument>) -> KernelCall {
        let blocks = results.div_ceil(self.width.into()).clamp(1, MAX_BLOCKS) as u32;
        KernelCall { code, grid: [blocks, 1, 1], block: [self.width * self.members, 1, 1], shared: 0, arguments }
    }

    fn argument(self) -> Argument {
        Argument::Words(vec![self.width, self.members])
    }
}

/// Names the kernel for the op and its element type.
fn kernel(job: &Job<'_>, file: &'static str) -> Code {
    Code::stored(file, format!("{}_{}", job.op.name, job.dtype()))
}

/// Returns the addresses of all inputs, and of all outputs.
fn operands(job: &Job<'_>) -> Vec<Argument> {
    (0..job.inputs.len()).map(Argument::Input).chain((0..job.outputs.len()).map(Argument::Output)).collect()
}

/// A tensor whose elements are reduced along some axes.
#[derive(Debug, PartialEq)]
struct Groups {
    /// Dimensions, outermost first, and whether the axes are kept. Neighbouring axes that are all reduced or all kept are one.
    axes: Vec<(u32, bool)>,
    /// The innermost reduced axis. The elements along it are a run.
    run: Option<usize>,
}

impl Groups {
    fn new(dims: &[u32], reduced: &[u32]) -> Groups {
        let mut axes: Vec<(u32, bool)> = Vec::new();
        for (axis, &dim) in (0..).zip(dims).filter(|&(_, &dim)| dim != 1) {
            let kept = !reduced.contains(&axis);
            match axes.last_mut().map(|last| (last.0.checked_mul(dim), last)) {
                Some((Some(merged), last)) if last.1 == kept => last.0 = merged,
                _ => axes.push((dim, kept)),
            }
        }
        let run = axes.iter().rposition(|axis| !axis.1);
        Groups { axes, run }
    }

    /// Returns the product of the dimensions of the axes that are chosen.
    fn product(&self, chosen: impl Fn(usize, bool) -> bool) -> u64 {
        self.axes.iter().enumerate().filter(|&(at, axis)| chosen(at, axis.1)).map(|(_, axis)| u64::from(axis.0)).product()
    }

    /// Returns the number of runs that are reduced to a result.
    fn runs(&self) -> u64 {
        // A run without elements is none.
        if self.extent() == 0 { 0 } else { self.product(|at, kept| !kept && Some(at) != self.run) }
    }

    /// Returns the number of elements of a run.
    fn extent(&self) -> u32 {
        self.run.map_or(1, |run| self.axes[run].0)
    }

    /// Returns the distance between the elements of a run.
    fn stride(&self) -> u64 {
        self.product(|at, _| self.run.is_some_and(|run| at > run))
    }

    /// Returns the words of the kernels' structure.
    fn words(&self) -> Vec<u32> {
        let kept = (0..).zip(&self.axes).map(|(at, axis)| u32::from(axis.1) << at).sum();
        let run = self.run.unwrap_or(MAX_RANK) as u32;
        let mut words = vec![self.axes.len() as u32, kept, run, self.extent().max(1)];
        words.extend(self.axes.iter().map(|axis| axis.0).chain([0; MAX_RANK]).take(MAX_RANK));
        words
    }
}

/// Lowers sums, products, extremes, any and all.
fn reduction(job: &Job<'_>, x: &TensorType, y: &TensorType) -> Result<Vec<KernelCall>> {
    let groups = Groups::new(x.shape.dims(), job.attributes.get(1..).unwrap_or(&[]));
    if let Some(job) = free_order(job)
        && let Some(calls) = fast::reduction(job, &groups, y)?
    {
        return Ok(calls);
    }
    let (results, runs) = (elements(y)?, groups.runs());
    let adjacent = groups.axes.last().is_some_and(|axis| axis.1);
    let team = Team::new(results, runs.saturating_mul(groups.extent().into()), adjacent);
    let mut arguments = vec![Argument::Input(0), Argument::Output(0), Argument::Words(groups.words())];
    arguments.extend([results, runs, groups.stride()].map(Argument::Wide));
    arguments.push(team.argument());
    Ok(vec![team.call(results, kernel(job, "reduce"), arguments)])
}

/// A tensor as lanes along one axis.
struct Lanes {
    count: u64,
    stride: u64,
    extent: u32,
}

impl Lanes {
    /// Returns the lanes of `x` along `axis`.
    fn new(x: &TensorType, axis: u32) -> Result<Lanes> {
        let (outer, rest) = x.shape.dims().split_at_checked(axis as usize).ok_or(Error::Internal)?;
        let (&extent, inner) = rest.split_first().ok_or(Error::Internal)?;
        let [outer, stride] = [outer, inner].map(|dims| dims.iter().map(|&dim| u64::from(dim)).product::<u64>());
        Ok(Lanes { count: outer * stride, stride, extent })
    }

    /// Returns the rows of `x`, the lanes along the last axis.
    fn rows(x: &TensorType) -> Result<Lanes> {
        Lanes::new(x, x.shape.rank().wrapping_sub(1) as u32)
    }

    fn team(&self) -> Team {
        Team::new(self.count, self.extent.into(), self.stride > 1)
    }

    fn arguments(&self) -> [Argument; 3] {
        [Argument::Wide(self.count), Argument::Wide(self.stride), Argument::Words(vec![self.extent])]
    }

    /// Returns the launch of a kernel whose teams compute lanes. Its `last` arguments stand after the team.
    fn call(&self, job: &Job<'_>, file: &'static str, last: &[Argument]) -> KernelCall {
        let mut arguments = operands(job);
        arguments.extend(self.arguments());
        arguments.push(self.team().argument());
        arguments.extend_from_slice(last);
        self.team().call(self.count, kernel(job, file), arguments)
    }
}

/// Lowers cumulative sums and products. A thread accumulates a lane. The elements of long lanes reach it through shared memory.
fn scan(job: &Job<'_>, x: &TensorType) -> Result<KernelCall> {
    let cumsum::Attributes { axis, exclusive, reverse } = read_attributes(job.attributes)?;
    let lanes = Lanes::new(x, axis)?;
    let mut arguments = operands(job);
    arguments.extend(lanes.arguments());
    arguments.push(Argument::Words(vec![exclusive, reverse]));
    if u64::from(lanes.extent) > IN_ORDER && (lanes.stride == 1 || lanes.count < MANY) {
        let together = free_order(job).is_some() && job.op.code == code::cumsum;
        let together = together && matches!(job.dtype(), DType::F32 | DType::I32 | DType::I64);
        let how = if together { "together" } else { "long" };
        let code = Code::stored("scan", format!("{}_{how}_{}", job.op.name, job.dtype()));
        return Ok(KernelCall {
            code,
            grid: [lanes.count.clamp(1, MAX_BLOCKS) as u32, 1, 1],
            block: [LONG_SCAN, 1, 1],
            shared: 0,
            arguments,
        });
    }
    Ok(KernelCall::over(lanes.count, kernel(job, "scan"), arguments))
}

fn top_k(job: &Job<'_>, x: &TensorType) -> Result<KernelCall> {
    let &[k] = job.attributes else { return Err(Error::Internal) };
    let rows = Lanes::rows(x)?;
    let mut arguments = operands(job);
    arguments.extend([Argument::Wide(rows.count), Argument::Words(vec![rows.extent]), Argument::Words(vec![k]), rows.team().argument()]);
    Ok(rows.team().call(rows.count, kernel(job, "top_k"), arguments))
}

/// Lowers the cross entropy and its gradient.
fn cross_entropy(job: &Job<'_>, logits: &TensorType) -> Result<KernelCall> {
    let rows = Lanes::rows(logits)?;
    let wide = job.inputs.get(1).is_some_and(|labels| labels.dtype == DType::I64);
    let wide = Argument::Words(vec![wide.into()]);
    if let Some(call) = free_order(job).and_then(|job| fast::cross_entropy(job, &rows, wide.clone())) {
        return Ok(call);
    }
    let mut arguments = operands(job);
    arguments.extend([Argument::Wide(rows.count), Argument::Words(vec![rows.extent]), rows.team().argument(), wide]);
    Ok(rows.team().call(rows.count, kernel(job, "softmax"), arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_axes_of_one_kind_are_one() {
        let groups = Groups::new(&[2, 1, 3, 4, 5], &[2, 3]);
        assert_eq!(groups, Groups { axes: vec![(2, true), (12, false), (5, true)], run: Some(1) });
        assert_eq!((groups.runs(), groups.extent(), groups.stride()), (1, 12, 5));
        assert_eq!(groups.words(), [3, 0b101, 1, 12, 2, 12, 5, 0, 0, 0, 0, 0]);
        let groups = Groups::new(&[2, 3, 4, 5], &[0, 1, 3]);
        assert_eq!((groups.runs(), groups.extent(), groups.stride()), (6, 5, 1));
        let large = Groups::new(&[1 << 20, 1 << 20], &[0, 1]);
        assert_eq!((large.axes.len(), large.runs(), large.extent(), large.stride()), (2, 1 << 20, 1 << 20, 1));
    }

    #[test]
    fn nothing_may_be_reduced() {
        let none = Groups::new(&[2, 3], &[]);
        assert_eq!((none.runs(), none.extent(), none.words()[..5].to_vec()), (1, 1, vec![1, 1, MAX_RANK as u32, 1, 6]));
        for dims in [&[2, 0, 3][..], &[2, 3, 1, 0], &[0]] {
            let reduced: Vec<u32> = (1.min(dims.len() as u32 - 1)..dims.len() as u32).collect();
            let empty = Groups::new(dims, &reduced);
            assert_eq!((empty.runs(), empty.words()[3]), (0, 1), "{dims:?}");
        }
    }

    #[test]
    fn blocks_of_teams_are_within_the_limits() {
        assert_eq!(Team::new(10, 64, false), Team { width: 32, members: 1 });
        assert_eq!(Team::new(1000, 64, true), Team { width: 256, members: 1 });
        assert_eq!(Team::new(1, 65, false), Team { width: 1, members: 32 });
        assert_eq!(Team::new(1, u64::MAX, false), Team { width: 1, members: 1024 });
        assert_eq!(Team::new(100, 100, true), Team { width: 32, members: 32 });
        assert_eq!(Team::new(100, u64::MAX, true), Team { width: 32, members: 32 });
        assert_eq!(Team::new(1 << 20, 100, true), Team { width: 256, members: 1 });
    }
}
