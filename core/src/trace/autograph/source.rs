//! Values over which a `for` can iterate.

use super::carry::{Dynamic, Kind, Plain};
use super::operators::Host;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::ScopeHandle;
use alloc::format;

/// Value over which a `for` can iterate: a Rust iterable, a tensor (along its first axis), or a [`range`].
#[diagnostic::on_unimplemented(
    message = "`for` cannot iterate over `{Self}`",
    label = "neither an iterator nor a tensor",
    note = "for the numbers below a tensor's value, write `for i in range(&n)`"
)]
pub trait Iterable {
    /// Iterator type.
    type LoopItems: LoopItems;
    /// Returns the iterator. Fails for a tensor without axes.
    fn source(self) -> Result<Self::LoopItems>;
}

/// Iterator of a loop's items.
pub trait LoopItems {
    /// Kind of the loop's condition: plain or a tensor.
    type Kind: Kind;
    /// Item that an iteration receives.
    type Item;
    #[doc(hidden)]
    fn next(&mut self) -> Result<Option<Self::Item>>;
    /// Returns the scope that traces the loop if a traced tensor determines the number of iterations, otherwise `None`.
    #[doc(hidden)]
    fn scope(&self) -> Result<Option<ScopeHandle>> {
        Ok(None)
    }
    #[doc(hidden)]
    fn most(&self) -> Option<u32> {
        None
    }
    #[doc(hidden)]
    fn first(&self) -> Result<Tensor> {
        Err(Error::Internal)
    }
    #[doc(hidden)]
    fn holds(&self, _: &Tensor) -> Result<Tensor> {
        Err(Error::Internal)
    }
    #[doc(hidden)]
    fn item(&self, _: &Tensor) -> Result<Self::Item> {
        Err(Error::Internal)
    }
    #[doc(hidden)]
    fn advance(&self, _: &Tensor) -> Result<Tensor> {
        Err(Error::Internal)
    }
}

/// Items of a Rust iterator.
pub struct Items<I>(I);

impl<I: IntoIterator> Iterable for I {
    type LoopItems = Items<I::IntoIter>;
    fn source(self) -> Result<Items<I::IntoIter>> {
        Ok(Items(self.into_iter()))
    }
}

impl<I: Iterator> LoopItems for Items<I> {
    type Kind = Plain;
    type Item = I::Item;
    fn next(&mut self) -> Result<Option<I::Item>> {
        Ok(self.0.next())
    }
}

/// Slices of a tensor along its first axis.
pub struct Rows {
    tensor: Tensor,
    count: u32,
    next: u32,
}

impl Iterable for &Tensor {
    type LoopItems = Rows;
    fn source(self) -> Result<Rows> {
        let Some(&count) = self.dims().first() else {
            return Err(Error::message(format!("`for` cannot iterate over {}: it has no axis", self.tensor_type())));
        };
        Ok(Rows { tensor: self.clone(), count, next: 0 })
    }
}

impl Iterable for Tensor {
    type LoopItems = Rows;
    fn source(self) -> Result<Rows> {
        (&self).source()
    }
}

impl LoopItems for Rows {
    type Kind = Dynamic;
    type Item = Tensor;
    fn next(&mut self) -> Result<Option<Tensor>> {
        let row = self.next;
        if row >= self.count {
            return Ok(None);
        }
        self.next += 1;
        self.item(&Tensor::scalar(&self.tensor.device()?, row as i32)).map(Some)
    }
    fn scope(&self) -> Result<Option<ScopeHandle>> {
        traced(&self.tensor)
    }
    fn most(&self) -> Option<u32> {
        Some(self.count)
    }
    fn first(&self) -> Result<Tensor> {
        Ok(Tensor::scalar(&self.tensor.device()?, 0i32))
    }
    fn holds(&self, row: &Tensor) -> Result<Tensor> {
        row.less(&row.like(self.count.into())?)
    }
    fn item(&self, row: &Tensor) -> Result<Tensor> {
        self.tensor.gather(row, 0)
    }
    fn advance(&self, row: &Tensor) -> Result<Tensor> {
        row.add_scalar(1.0)
    }
}

/// Limit of a [`range`]: a tensor or a number.
pub trait Limit {
    #[doc(hidden)]
    fn tensor(&self) -> Option<Tensor>;
    #[doc(hidden)]
    fn like(&self, tensor: &Tensor) -> Result<Tensor>;
}

impl Limit for Tensor {
    fn tensor(&self) -> Option<Tensor> {
        Some(self.clone())
    }
    fn like(&self, _: &Tensor) -> Result<Tensor> {
        Ok(self.clone())
    }
}

impl Limit for &Tensor {
    fn tensor(&self) -> Option<Tensor> {
        Some((*self).clone())
    }
    fn like(&self, _: &Tensor) -> Result<Tensor> {
        Ok((*self).clone())
    }
}

impl<H: Host> Limit for H {
    fn tensor(&self) -> Option<Tensor> {
        None
    }
    fn like(&self, tensor: &Tensor) -> Result<Tensor> {
        self.constant(tensor)
    }
}

/// Limits of a [`range`]: the end; the start and the end; or the start, the end and the step.
pub trait Limits {
    #[doc(hidden)]
    fn range(self) -> Result<Range>;
}

impl<E: Limit> Limits for E {
    fn range(self) -> Result<Range> {
        Range::new(&0, &self, None)
    }
}

impl<S: Limit, E: Limit> Limits for (S, E) {
    fn range(self) -> Result<Range> {
        Range::new(&self.0, &self.1, None)
    }
}

impl<S: Limit, E: Limit, D: Limit> Limits for (S, E, D) {
    fn range(self) -> Result<Range> {
        Range::new(&self.0, &self.1, Some(&self.2))
    }
}

/// Numbers from a start to an end, at least one of them a tensor. A `for` can iterate over it.
pub struct Range {
    next: Tensor,
    end: Tensor,
    step: Option<Tensor>,
}

/// Returns the numbers from a start up to but not including an end, like TensorFlow's `range`. It is for a `for` in a function with
/// [`autograph`](crate::trace::autograph::autograph).
///
/// `limits` is the end, a pair of start and end, or a triple of start, end and step. The default start is 0, the default step 1. Each
/// limit is a scalar tensor or a number. At least one is a tensor, whose element type is that of the numbers.
///
/// ```
/// use gradlet_core::autograph::{autograph, range};
/// use gradlet_core::{Result, Tensor, ops};
///
/// #[autograph]
/// fn sum(n: &Tensor) -> Result<Tensor> {
///     let mut sum = n.like(0.0)?;
///     for i in range((1, n))? {
///         sum += i;
///     }
///     Ok(sum)
/// }
/// assert_eq!(sum(&Tensor::scalar(&ops::portable_cpu(), 5))?.item::<i32>()?, 10);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Fails if no limit is a tensor (use a Rust range instead), or if a limit is not a scalar.
pub fn range(limits: impl Limits) -> Result<Range> {
    limits.range()
}

impl Range {
    fn new(start: &dyn Limit, end: &dyn Limit, step: Option<&dyn Limit>) -> Result<Range> {
        let all = [Some(start), Some(end), step];
        let like = all.iter().flatten().find_map(|limit| limit.tensor());
        let like = like.ok_or_else(|| Error::message("none of the range's limits is a tensor: for numbers, write `start..end`"))?;
        let scalar = |limit: &dyn Limit| {
            let limit = limit.like(&like)?;
            let wrong = || Error::message(format!("a range's limits must be scalars, not {}", limit.tensor_type()));
            if limit.dims().is_empty() { Ok(limit) } else { Err(wrong()) }
        };
        Ok(Range { next: scalar(start)?, end: scalar(end)?, step: step.map(scalar).transpose()? })
    }
}

impl Iterable for Range {
    type LoopItems = Range;
    fn source(self) -> Result<Range> {
        Ok(self)
    }
}

impl LoopItems for Range {
    type Kind = Dynamic;
    type Item = Tensor;
    fn next(&mut self) -> Result<Option<Tensor>> {
        let item = self.next.clone();
        if !self.holds(&item)?.item::<crate::base::dtype::Bool>()?.get() {
            return Ok(None);
        }
        self.next = self.advance(&item)?;
        Ok(Some(item))
    }
    fn scope(&self) -> Result<Option<ScopeHandle>> {
        for limit in [Some(&self.next), Some(&self.end), self.step.as_ref()].into_iter().flatten() {
            if let Some(scope) = traced(limit)? {
                return Ok(Some(scope));
            }
        }
        Ok(None)
    }
    fn first(&self) -> Result<Tensor> {
        Ok(self.next.clone())
    }
    fn holds(&self, number: &Tensor) -> Result<Tensor> {
        let up = number.less(&self.end)?;
        let Some(step) = &self.step else { return Ok(up) };
        let zero = step.like(0.0)?;
        let down = number.greater(&self.end)?.logical_and(&step.less(&zero)?)?;
        up.logical_and(&step.greater(&zero)?)?.logical_or(&down)
    }
    fn item(&self, number: &Tensor) -> Result<Tensor> {
        Ok(number.clone())
    }
    fn advance(&self, number: &Tensor) -> Result<Tensor> {
        match &self.step {
            Some(step) => number.add(step),
            None => number.add_scalar(1.0),
        }
    }
}

/// Returns the scope that traces `tensor`, if there is one.
pub(super) fn traced(tensor: &Tensor) -> Result<Option<ScopeHandle>> {
    Ok(tensor.scope()?.filter(|scope| scope.recorder.traces()))
}
