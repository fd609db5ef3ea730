//! Loops over the slices of tensors: [`scan`], [`foldl`], [`map_fn`].

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::scope::Scope;
use crate::tensor::structure::Structure;
use crate::trace::control::{WhileOptions, while_loop};
use crate::trace::tensor_array::TensorArray;
use alloc::format;
use alloc::vec::Vec;

/// Largest number of steps that a trace for a device with memory of its own has one by one.
const UNROLLED: u32 = 128;

/// True if a trace for `device` should have the ops of each of `steps` steps, and false if it should have a loop. A CPU runs a loop of two
/// steps or more. A GPU runs up to 128 steps in one launch without a loop.
///
/// ```
/// use gradlet_core::{control::unrolls, ops};
/// assert!(unrolls(&ops::portable_cpu(), 1) && !unrolls(&ops::portable_cpu(), 2));
/// ```
pub fn unrolls(device: &Device, steps: u32) -> bool {
    steps == 1 || steps <= UNROLLED && device.remote().is_some()
}

/// Options of [`scan`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanOptions {
    /// True to scan from the last slice to the first. The results stay in the order of the slices.
    pub reverse: bool,
}

/// Applies `f` to a state and each slice of `elements` along the first axis, in order. Returns all states, stacked along a new first
/// axis, like TensorFlow's `scan`. The first call receives `initial`, each later call the previous state.
///
/// ```
/// use gradlet_core::control::{ScanOptions, scan};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::new(&scope.device(), &[1, 2, 3, 4], &[4])?;
/// let sums = |reverse| scan(&scope, ScanOptions { reverse }, &x, Tensor::scalar(&scope.device(), 0), |sum, x| sum.add(&x));
/// assert_eq!(sums(false)?.to_vec::<i32>()?, [1, 3, 6, 10]);
/// assert_eq!(sums(true)?.to_vec::<i32>()?, [10, 9, 7, 4]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Fails if the elements differ in the number of slices, if `f` changes the types of the state, or if `f` fails.
pub fn scan<E: Structure, S: Structure>(
    scope: &dyn Scope,
    options: ScanOptions,
    elements: &E,
    initial: S,
    f: impl Fn(S, E) -> Result<S>,
) -> Result<S> {
    let mut arrays = Vec::new();
    let count = count(elements)?;
    for tensor in tensors(&initial) {
        arrays.push(TensorArray::zeros(scope, tensor.tensor_type(), count)?);
    }
    let body = |state: S, mut arrays: Vec<TensorArray>, index: &Tensor| {
        let state = f(state, slice(elements, index)?)?;
        for (array, value) in arrays.iter_mut().zip(tensors(&state)) {
            *array = array.write(index, &value)?;
        }
        Ok((state, arrays))
    };
    let (state, arrays) = each(scope, count, options.reverse, (initial, arrays), |(state, arrays), index| body(state, arrays, index))?;
    let mut arrays = arrays.iter();
    replace(&state, |_| arrays.next().ok_or(Error::Internal)?.stack())
}

/// Applies `f` like [`scan`] and returns only the last state, like TensorFlow's `foldl`.
///
/// Fails like [`scan`].
pub fn foldl<E: Structure, S: Structure>(scope: &dyn Scope, elements: &E, initial: S, f: impl Fn(S, E) -> Result<S>) -> Result<S> {
    each(scope, count(elements)?, false, initial, |state, index| f(state, slice(elements, index)?))
}

/// Applies `f` to each slice of `elements` along the first axis and stacks the results along a new first axis, like TensorFlow's
/// `map_fn`. All results have the element type `dtype` and the same shape.
///
/// ```
/// use gradlet_core::control::map_fn;
/// use gradlet_core::{DType, Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::new(&scope.device(), &[1, 2, 3, 4], &[2, 2])?;
/// let sums = map_fn(&scope, DType::I32, &x, |x| x.sum(&[], false))?;
/// assert_eq!(sums.to_vec::<i32>()?, [3, 7]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Fails if the elements differ in the number of slices, if `f` returns tensors of different types, or if `f` fails.
pub fn map_fn<E: Structure>(scope: &dyn Scope, dtype: DType, elements: &E, f: impl Fn(E) -> Result<Tensor>) -> Result<Tensor> {
    let count = count(elements)?;
    let results = TensorArray::new(scope, dtype, count, false);
    each(scope, count, false, results, |results, index| results.write(index, &f(slice(elements, index)?)?))?.stack()
}

/// Calls `body` with the state and each index below `count`, in descending order if `reverse` is true. Each call returns the next
/// state. Returns the last one.
fn each<S: Structure>(scope: &dyn Scope, count: u32, reverse: bool, state: S, body: impl Fn(S, &Tensor) -> Result<S>) -> Result<S> {
    let device = scope.device();
    let number = |value: i64| Tensor::scalar(&device, value as i32);
    let (first, end, step) = if reverse { (i64::from(count) - 1, -1, -1) } else { (0, i64::from(count), 1) };
    let (end, step) = (number(end), number(step));
    let options = WhileOptions { max_iterations: Some(count) };
    let body = |(index, state): (Tensor, S)| Ok((index.add(&step)?, body(state, &index)?));
    let (_, state) = while_loop(scope, options, (number(first), state), |(index, _)| index.not_equal(&end), body)?;
    Ok(state)
}

/// Returns the number of slices along the first axis. Fails if it is not the same for all tensors of the elements.
fn count(elements: &impl Structure) -> Result<u32> {
    let all = tensors(elements);
    let counts: Vec<Option<u32>> = all.iter().map(|tensor| tensor.dims().first().copied()).collect();
    match counts.first() {
        Some(&Some(count)) if counts.iter().all(|other| *other == Some(count)) => Ok(count),
        _ => {
            let types: Vec<_> = all.iter().map(Tensor::tensor_type).collect();
            Err(Error::message(format!("the elements of a scan must have the same number of slices along their first axes, not {types:?}")))
        }
    }
}

fn slice<E: Structure>(elements: &E, index: &Tensor) -> Result<E> {
    replace(elements, |tensor| tensor.gather(index, 0))
}

fn tensors(structure: &impl Structure) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    structure.tensors(&mut |tensor| tensors.push(tensor.clone()));
    tensors
}

/// Returns the structure with `f` applied to each tensor.
fn replace<S: Structure>(structure: &S, f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<S> {
    let made = tensors(structure).iter().map(f).collect::<Result<Vec<_>>>()?;
    let mut next = 0;
    Ok(structure.with(&mut || {
        next += 1;
        made[next - 1].clone()
    }))
}
