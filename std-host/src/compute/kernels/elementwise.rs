//! Elementwise ops of floats. The compiler vectorizes their loops for the instruction set of the CPU, and all threads share a large
//! tensor. Arithmetic has the bits of the portable kernels.

use super::{math, portable};
use crate::compute::simd::dispatch;
use crate::compute::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::tensor::{Bool, Element, TensorView};
use gradlet_core::{Result, ops};

/// Number of elements that a thread computes at a time. They stay in the first cache.
const BLOCK: usize = 1 << 12;
/// Number of elements below which one thread is faster than several.
const ALONE: usize = 1 << 15;
/// Number of elements of a short row. Such rows are repeated, so that the inner loop is long.
const SHORT: usize = 64;
/// Number of bytes up to which the portable kernel is faster. It computes the same bits.
const TINY: usize = 64;

/// Returns kernels for one element type: those of comparisons and arithmetic, and more. Each is an op, a loop, and what the loop
/// computes.
macro_rules! kernels {
    ($of:ident $dtype:ident; $($more:tt)*) => {
        kernels!(all $of $dtype;
            add = binary |a, b| a + b;
            sub = binary |a, b| a - b;
            mul = binary |a, b| a * b;
            div = binary |a, b| a / b;
            minimum = binary |a, b| if a >= b { b } else if b > a { a } else { a + b };
            maximum = binary |a, b| if a <= b { b } else if b < a { a } else { a + b };
            relu_grad = binary |dy, y| if y > 0.0 { dy } else { 0.0 };
            less = compare |a, b| a < b;
            less_equal = compare |a, b| a <= b;
            equal = compare |a, b| a == b;
            not_equal = compare |a, b| a != b;
            select = select;
            relu = unary |x| if x <= 0.0 { 0.0 } else { x };
            neg = unary |x| -x;
            abs = unary |x| x.abs();
            sqrt = unary |x| x.sqrt();
            rsqrt = unary |x| 1.0 / x.sqrt();
            $($more)*
        )
    };
    (all $of:ident $dtype:ident; $($op:ident = $apply:ident $(|$($argument:ident),*| $value:expr)?;)*) => {
        &[$(Kernel {
            def: &ops::$op::DEF,
            dtype: <$of as Element>::DTYPE,
            run: |call| $apply::<$of>(call, &ops::$op::$dtype $(, #[inline(always)] |$($argument: $of),*| $value)?),
        }),*]
    };
}

/// Kernels for f32.
pub static SINGLE: &[Kernel] = kernels!(f32 F32;
    exp = unary |x| math::exp(x);
    log = unary |x| math::ln(x);
    tanh = unary |x| math::tanh(x);
    sigmoid = unary |x| math::sigmoid(x);
    erf = unary |x| math::erf(x);
);
/// Kernels for f64.
pub static DOUBLE: &[Kernel] = kernels!(f64 F64;);

/// Writes `f` of each element of input 0 to output 0. The two may share memory.
#[inline(always)]
fn unary<T: Element>(call: &mut Call<'_, '_>, _: &Kernel, f: impl Fn(T) -> T + Copy + Sync) -> Result<()> {
    let x = call.input(0)?;
    let (from, to) = (x.slice::<T>(), call.output()?.slice_mut::<T>());
    let parallel = to.len() >= ALONE;
    if x.in_place() {
        team::each(parallel, to.chunks_mut(BLOCK), |to| {
            dispatch(
                #[inline(always)]
                || to.iter_mut().for_each(|y| *y = f(*y)),
            )
        });
    } else {
        let blocks = to.chunks_mut(BLOCK).zip(from.chunks(BLOCK));
        team::each(parallel, blocks, |(to, from)| {
            dispatch(
                #[inline(always)]
                || to.iter_mut().zip(from).for_each(|(y, &x)| *y = f(x)),
            )
        });
    }
    Ok(())
}

/// Applies `f` to each pair of corresponding elements of two inputs, after broadcasting.
#[inline(always)]
fn binary<T: Element>(call: &mut Call<'_, '_>, kernel: &Kernel, f: impl Fn(T, T) -> T + Copy + Sync) -> Result<()> {
    match &*call.outputs {
        [output] if output.data.len() > TINY => many(call, kernel, f),
        _ => portable(call, kernel),
    }
}

/// [`binary`] for many elements. One input must have the shape of the result, and the axes of the other must be neighbours, apart from axes
/// of one element. Otherwise the portable kernel does it.
#[inline(never)]
fn many<T: Element>(call: &mut Call<'_, '_>, kernel: &Kernel, f: impl Fn(T, T) -> T + Copy + Sync) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let dims = output.dims();
    // An input that shares the output's memory has the shape of the result.
    if a.dims() == dims
        && let Some(b) = Spread::new(b.slice(), b.dims(), dims)
    {
        b.apply(a.slice(), output.slice_mut(), f);
    } else if b.dims() == dims
        && let Some(a) = Spread::new(a.slice(), a.dims(), dims)
    {
        a.apply(
            b.slice(),
            output.slice_mut(),
            #[inline(always)]
            |b, a| f(a, b),
        );
    } else {
        return portable(call, kernel);
    }
    Ok(())
}

/// Compares the elements of two inputs of equal shape, or of one with a number. The portable kernel compares others.
#[inline(always)]
fn compare<T: Element>(call: &mut Call<'_, '_>, kernel: &Kernel, f: impl Fn(T, T) -> bool + Copy + Sync) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let dims = output.dims();
    let (a, b, a_dims, b_dims) = (a.slice::<T>(), b.slice::<T>(), a.dims(), b.dims());
    let to = output.slice_mut::<Bool>();
    let parallel = to.len() >= ALONE;
    if a_dims == dims && b_dims == dims {
        let blocks = to.chunks_mut(BLOCK).zip(a.chunks(BLOCK).zip(b.chunks(BLOCK)));
        team::each(parallel, blocks, |(to, (a, b))| {
            dispatch(
                #[inline(always)]
                || to.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (&a, &b))| *y = f(a, b).into()),
            );
        });
    } else if a_dims == dims
        && let &[b] = b
    {
        team::each(parallel, to.chunks_mut(BLOCK).zip(a.chunks(BLOCK)), |(to, a)| {
            dispatch(
                #[inline(always)]
                || to.iter_mut().zip(a).for_each(|(y, &a)| *y = f(a, b).into()),
            );
        });
    } else {
        return portable(call, kernel);
    }
    Ok(())
}

/// Selects elements of input 0 where input 2 is true, and of input 1 elsewhere. The condition has the shape of the result, and each of the
/// others has it too or is a number. The portable kernel selects from others.
#[inline(always)]
fn select<T: Element>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let (x, z, condition) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let output = call.output()?;
    let dims = output.dims();
    let fits = |view: &TensorView<'_>| view.dims() == dims || view.bytes().len() == size_of::<T>();
    if condition.dims() != dims || !fits(&x) || !fits(&z) || x.in_place() && z.in_place() {
        return portable(call, kernel);
    }
    // The result is first one of the two, and then gets the elements of the other.
    let (first, other, wanted) = if z.in_place() { (z, x.slice::<T>(), true) } else { (x, z.slice::<T>(), false) };
    let (condition, to) = (condition.slice::<Bool>(), output.slice_mut::<T>());
    let (own, length) = (first.slice::<T>(), to.len());
    team::each(length >= ALONE, to.chunks_mut(BLOCK).zip(condition.chunks(BLOCK)).enumerate(), |(index, (to, condition))| {
        let at = index * BLOCK;
        match own {
            [] => {}
            &[number] => to.fill(number),
            own => to.copy_from_slice(&own[at..at + to.len()]),
        }
        let chosen = to.iter_mut().zip(condition);
        dispatch(
            #[inline(always)]
            || match other {
                &[number] => chosen.for_each(|(y, &c)| *y = if c.get() == wanted { number } else { *y }),
                other => chosen.zip(&other[at..]).for_each(|((y, &c), &z)| *y = if c.get() == wanted { z } else { *y }),
            },
        );
    });
    Ok(())
}

/// Elements of an operand that are spread over the result: each one is used for `run` neighbours, and all of them again and again.
struct Spread<'a, T: Element> {
    elements: &'a [T],
    run: usize,
}

impl<'a, T: Element> Spread<'a, T> {
    /// Returns the elements of an operand of dimensions `own`, spread over a result of dimensions `dims`. Returns `None` for other kinds of
    /// broadcasting, if there are no elements, and for an operand that shares the output's memory.
    fn new(elements: &'a [T], own: &[u32], dims: &[u32]) -> Option<Spread<'a, T>> {
        let count = |dims: &[u32]| dims.iter().map(|&dim| dim as usize).product::<usize>();
        // The axes between the outer and the inner ones of one element must be those of the result.
        let [outer, inner] = [own.iter().take_while(|&&dim| dim == 1).count(), own.iter().rev().take_while(|&&dim| dim == 1).count()];
        let core = own.get(outer..own.len() - inner).unwrap_or_default();
        let end = if core.is_empty() { 0 } else { dims.len() - inner };
        let run = count(&dims[end..]);
        if dims[..end].iter().rev().zip(core.iter().rev()).any(|(dim, own)| dim != own)
            || elements.is_empty()
            || elements.len() != count(core)
        {
            return None;
        }
        Some(Spread { elements, run })
    }

    /// Writes `f(whole, element)` to `to` for each position. `whole` is empty if its elements are in `to`.
    #[inline(always)]
    fn apply(self, whole: &[T], to: &mut [T], f: impl Fn(T, T) -> T + Copy + Sync) {
        let (run, parallel) = (self.run, to.len() >= ALONE);
        let several;
        let elements = if run == 1 && self.elements.len() < SHORT && to.len() > SHORT {
            several = repeated(self.elements);
            &several[..2 * SHORT / self.elements.len() * self.elements.len()]
        } else {
            self.elements
        };
        // Each block begins with the first use of an element, and in rows with the first element of a row.
        let period = if run == 1 { elements.len() } else { run };
        let single = period >= to.len();
        let block = if single { BLOCK } else { BLOCK.next_multiple_of(period) };
        team::each(parallel, to.chunks_mut(block).enumerate(), |(index, to)| {
            let at = index * block;
            dispatch(
                #[inline(always)]
                || {
                    if let Some(whole) = whole.get(at..at + to.len()) {
                        to.copy_from_slice(whole);
                    }
                    if run == 1 {
                        let row = if single { elements.get(at..).unwrap_or_default() } else { elements };
                        to.chunks_mut(row.len().max(1)).for_each(|to| to.iter_mut().zip(row).for_each(|(x, &y)| *x = f(*x, y)));
                    } else {
                        let uses = elements.iter().cycle().skip(at / run % elements.len());
                        to.chunks_mut(run).zip(uses).for_each(|(to, &y)| to.iter_mut().for_each(|x| *x = f(*x, y)));
                    }
                },
            );
        });
    }
}

/// Returns a short row, again and again.
fn repeated<T: Element>(row: &[T]) -> [T; 2 * SHORT] {
    let mut several = [T::zeroed(); 2 * SHORT];
    several.chunks_mut(row.len().max(1)).for_each(|to| to.iter_mut().zip(row).for_each(|(to, &from)| *to = from));
    several
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, same};
    use super::*;

    /// Shapes of two operands: equal ones, scalars, rows, columns, axes in the middle, and those that only the portable kernel supports.
    const SHAPES: [[&[u32]; 2]; 20] = [
        [&[], &[]],
        [&[7], &[7]],
        [&[0, 3], &[3]],
        [&[5, 1], &[5, 1]],
        [&[3, 41], &[]],
        [&[3, 41], &[1, 1]],
        [&[50_000], &[1]],
        [&[5, 3], &[3]],
        [&[700, 63], &[63]],
        [&[12, 4099], &[4099]],
        [&[2, 40_000], &[1, 40_000]],
        [&[90, 7, 70], &[90, 7, 70]],
        [&[9, 5], &[9, 1]],
        [&[3, 30_000], &[3, 1]],
        [&[4, 6, 5], &[6, 1]],
        [&[40, 6, 500], &[1, 6, 1]],
        [&[4, 6, 5], &[4, 1, 1]],
        [&[4, 6, 5], &[4, 1, 5]],
        [&[4, 1], &[1, 6]],
        [&[2, 1, 3, 1], &[3, 1]],
    ];

    #[test]
    fn as_the_portable_kernels() {
        let random = &mut Random::new(1);
        for kernel in SINGLE.iter().chain(DOUBLE) {
            let reference = ops::KERNELS.iter().find(|other| other.def.code == kernel.def.code && other.dtype == kernel.dtype).unwrap();
            for [a, b] in SHAPES {
                let (x, y) = (random.numbers(kernel.dtype, a, 1), random.numbers(kernel.dtype, b, 1));
                let accepted = match kernel.def.inputs.0 {
                    1 => same(kernel, reference, &[], &[&x]),
                    2 => same(kernel, reference, &[], &[&x, &y]) && same(kernel, reference, &[], &[&y, &x]),
                    _ => {
                        let conditions = [a, b].map(|dims| random.booleans(dims));
                        conditions.iter().all(|c| same(kernel, reference, &[], &[&x, &y, c]) && same(kernel, reference, &[], &[&y, &x, c]))
                    }
                };
                assert!(accepted || kernel.def.name == "relu_grad");
            }
        }
    }
}
