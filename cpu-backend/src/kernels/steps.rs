//! Optimizer steps, either on their own or fused with the matrix product that computes the gradient. A fused step processes the
//! variable in parts. It computes each part of the gradient and applies it immediately, while it is still in the cache.

use super::math::Elementary;
use super::matmul::{CACHED, Multiply, Part};
use super::product::Left;
use super::scratch;
use crate::simd::{dispatch, vectorized};
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{adam_step, matmul_adam, matmul_sgd, sgd_step};
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{DType, Error, Result};

/// Number of elements that a thread updates at a time.
const BLOCK: usize = 1 << 12;
/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 17;

/// Kernels of [`adam_step`], for f32 and f64.
pub static ADAM_STEP: [Kernel; 2] = [
    Kernel { def: &adam_step::DEF, dtype: DType::F32, run: run_adam_step::<f32> },
    Kernel { def: &adam_step::DEF, dtype: DType::F64, run: run_adam_step::<f64> },
];
/// Kernels of [`sgd_step`], for f32 and f64.
pub static SGD_STEP: [Kernel; 2] = [
    Kernel { def: &sgd_step::DEF, dtype: DType::F32, run: run_sgd_step::<f32> },
    Kernel { def: &sgd_step::DEF, dtype: DType::F64, run: run_sgd_step::<f64> },
];
/// Kernel of [`matmul_adam`].
pub static MATMUL_ADAM: Kernel = Kernel { def: &matmul_adam::DEF, dtype: DType::F32, run: run_matmul_adam };
/// Kernel of [`matmul_sgd`].
pub static MATMUL_SGD: Kernel = Kernel { def: &matmul_sgd::DEF, dtype: DType::F32, run: run_matmul_sgd };

fn run_adam_step<T: Elementary>(call: &mut Call<'_, '_>) -> Result<()> {
    let rule = Adam::<T>::new(call, 4)?;
    let gradient = call.input(3)?.slice::<T>();
    let state = State::of(call.inputs, call.outputs)?;
    let blocks = state.parts(BLOCK).zip(gradient.chunks(BLOCK));
    team::each(gradient.len() >= 8 * BLOCK, blocks, |(state, gradient)| rule.step(state.fetch(), gradient));
    Ok(())
}

fn run_sgd_step<T: Elementary>(call: &mut Call<'_, '_>) -> Result<()> {
    let (gradient, rate) = (call.input(1)?.slice::<T>(), call.input(2)?.scalar::<T>());
    let state = State::of(call.inputs, call.outputs)?;
    let blocks = state.parts(BLOCK).zip(gradient.chunks(BLOCK));
    team::each(gradient.len() >= 8 * BLOCK, blocks, |(state, gradient)| {
        let [w] = state.fetch();
        step_down(w, gradient, rate);
    });
    Ok(())
}

/// Subtracts `gradient`, times `rate`.
fn step_down<T: Elementary>(w: &mut [T], gradient: &[T], rate: T) {
    vectorized!({
        for (w, &g) in w.iter_mut().zip(gradient) {
            *w = *w - rate * g;
        }
    });
}

fn run_matmul_adam(call: &mut Call<'_, '_>) -> Result<()> {
    let rule = Adam::<f32>::new(call, 5)?;
    let (x, dy) = (call.input(3)?, call.input(4)?);
    with_gradient(x, dy, State::of(call.inputs, call.outputs)?, |state, gradient| rule.step(state, gradient));
    Ok(())
}

fn run_matmul_sgd(call: &mut Call<'_, '_>) -> Result<()> {
    let (x, dy, rate) = (call.input(1)?, call.input(2)?, call.input(3)?.scalar::<f32>());
    with_gradient(x, dy, State::of(call.inputs, call.outputs)?, |[w], gradient| step_down(w, gradient, rate));
    Ok(())
}

/// Computes the gradient `xᵀ · dy` in parts. Calls `step` with each part of it and the corresponding part of the state.
fn with_gradient<const N: usize>(
    x: TensorView<'_>,
    dy: TensorView<'_>,
    state: State<'_, N, f32>,
    step: impl Fn([&mut [f32]; N], &[f32]) + Sync,
) {
    let (m, k, n) = (x.dim(0), x.dim(1), dy.dim(1));
    let (x, dy) = (x.slice::<f32>(), dy.slice::<f32>());
    let parallel = m * k * n > ALONE;
    let fair = if parallel { k.div_ceil(2 * team::threads()) } else { k };
    let rows = (CACHED / 2 / n.max(1)).clamp(1, fair.max(1)).next_multiple_of(2);
    team::each(parallel, state.parts((rows * n).max(1)).enumerate(), |(index, state)| {
        let left = Left::matrix(x.get(index * rows..).unwrap_or(&[]), [1, k], m);
        let product = Multiply { left, right: dy, right_row: n, right_transposed: false, bias: None, k: m };
        scratch::with(state.new[0].len(), |gradient| {
            dispatch(Part { product, columns: n, result: gradient });
            step(state.fetch(), gradient);
        });
    });
}

/// Variables of a step. `new` is their destination. `old` holds their current values if these are stored elsewhere.
struct State<'a, const N: usize, T> {
    old: [Option<&'a [T]>; N],
    new: [&'a mut [T]; N],
}

impl<'a, const N: usize, T: Elementary> State<'a, N, T> {
    /// Creates the state from the first `N` inputs and all outputs.
    fn of(inputs: &[TensorView<'a>], outputs: &'a mut [TensorViewMut<'_>]) -> Result<State<'a, N, T>> {
        let wrong = Error::Arity { got: inputs.len() as u8 };
        let old: &[TensorView<'a>; N] = inputs.first_chunk().ok_or(wrong.clone())?;
        let new: &'a mut [TensorViewMut<'_>; N] = outputs.first_chunk_mut().ok_or(wrong)?;
        Ok(State { old: old.map(|old| (!old.in_place()).then(|| old.slice())), new: new.each_mut().map(|new| new.slice_mut()) })
    }

    /// Splits the state into parts of `length` elements.
    fn parts(self, length: usize) -> impl Iterator<Item = State<'a, N, T>> + Send {
        let mut old = self.old.map(|old| old.map(|old| old.chunks(length)));
        let mut new = self.new.map(|new| new.chunks_mut(length));
        std::iter::from_fn(move || {
            let mut parts = new.each_mut().map(|new| new.next());
            parts[0].as_ref()?;
            let new = parts.each_mut().map(|part| part.take().unwrap_or_default());
            Some(State { old: old.each_mut().map(|old| old.as_mut().and_then(Iterator::next)), new })
        })
    }

    /// Copies the current values to their destination, if they are stored elsewhere, and returns the destination.
    fn fetch(self) -> [&'a mut [T]; N] {
        let State { old, mut new } = self;
        for (old, new) in old.into_iter().zip(&mut new) {
            old.into_iter().for_each(|old| new.copy_from_slice(old));
        }
        new
    }
}

/// Constants of a step of Adam.
#[derive(Clone, Copy)]
struct Adam<T> {
    rate_1: T,
    rate_2: T,
    alpha: T,
    epsilon: T,
}

impl<T: Elementary> Adam<T> {
    /// Reads the constants from the attributes of `call` and from two of its inputs: the learning rate at `scalars`, and the number
    /// of steps after it.
    fn new(call: &Call<'_, '_>, scalars: usize) -> Result<Adam<T>> {
        let adam_step::Attributes { beta_1, beta_2, epsilon, rate_1, rate_2 } = call.attributes()?;
        let [beta_1, beta_2, epsilon, rate_1, rate_2] = [beta_1, beta_2, epsilon, rate_1, rate_2].map(T::from_f32);
        let (learning_rate, iterations) = (call.input(scalars)?.scalar::<T>(), call.input(scalars + 1)?.scalar::<i64>());
        let step = T::from_f32(u32::try_from(iterations.saturating_add(1)).unwrap_or(u32::MAX) as f32);
        let alpha = learning_rate * ((T::ONE - beta_2.powf(step)).sqrt() / (T::ONE - beta_1.powf(step)));
        Ok(Adam { rate_1, rate_2, alpha, epsilon })
    }

    /// Updates variables and their moments with `gradient`.
    fn step(self, [w, m, v]: [&mut [T]; 3], gradient: &[T]) {
        let Adam { rate_1, rate_2, alpha, epsilon } = self;
        vectorized!({
            for (((w, m), v), &g) in w.iter_mut().zip(m).zip(v).zip(gradient) {
                *m = *m + (g - *m) * rate_1;
                *v = *v + (g * g - *v) * rate_2;
                *w = *w - *m * alpha / (v.sqrt() + epsilon);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, Value, same};
    use super::*;

    const ADAM: [f32; 5] = [0.9, 0.999, 1e-7, 0.1, 0.001];

    /// Returns a variable and its moments.
    fn state(random: &mut Random, dims: &[u32]) -> [Value; 3] {
        let [w, m, mut v] = [(); 3].map(|()| random.tensor(dims));
        v.floats_mut().iter_mut().for_each(|v| *v = v.abs());
        [w, m, v]
    }

    #[test]
    fn as_the_portable_kernels() {
        for (seed, count) in [(1, 0), (2, 1), (3, 100), (4, 40_000), (5, 8 * BLOCK as u32 + 3)] {
            let random = &mut Random::new(seed);
            let ([w, m, v], gradient) = (state(random, &[count]), random.tensor(&[count]));
            let (rate, iterations) = (random.tensor(&[]), Value::zeros(DType::I64, &[]));
            let words = ADAM.map(f32::to_bits);
            assert!(same(&ADAM_STEP[0], &adam_step::F32, &words, &[&w, &m, &v, &gradient, &rate, &iterations]));
            assert!(same(&SGD_STEP[0], &sgd_step::F32, &[], &[&w, &gradient, &rate]));
            let [w, m, v, gradient, rate] = [w, m, v, gradient, rate].map(|value| value.to_f64());
            assert!(same(&ADAM_STEP[1], &adam_step::F64, &words, &[&w, &m, &v, &gradient, &rate, &iterations]));
            assert!(same(&SGD_STEP[1], &sgd_step::F64, &[], &[&w, &gradient, &rate]));
        }
    }

    #[test]
    fn with_products_as_the_portable_kernels() {
        for seed in 0..60 {
            let random = &mut Random::new(seed);
            let most = if seed % 10 == 0 { 300 } else { 40 };
            let [m, k, n] = [random.between(0, most), random.between(0, most), random.between(0, most)];
            let ([w, first, second], x, dy) = (state(random, &[k, n]), random.tensor(&[m, k]), random.tensor(&[m, n]));
            let (rate, iterations) = (random.tensor(&[]), Value::zeros(DType::I64, &[]));
            let words = ADAM.map(f32::to_bits);
            assert!(same(&MATMUL_ADAM, &matmul_adam::F32, &words, &[&w, &first, &second, &x, &dy, &rate, &iterations]));
            assert!(same(&MATMUL_SGD, &matmul_sgd::F32, &[], &[&w, &x, &dy, &rate]));
        }
    }
}
