//! Elementwise ops of floats. The compiler vectorizes their loops for the instruction set of the CPU, and all threads share a large
//! tensor. Arithmetic has the bits of the portable kernels. The loops are `for` loops, because the compiler may not inline a long closure
//! of `for_each`, and then compiles it for the oldest CPU.

use super::broadcast::{Rows, Spread};
use super::math::{double, greater, single, smaller};
use super::portable;
use crate::simd::vectorized;
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::tensor::{Bool, Element, TensorView};
use gradlet_core::{DType, Result, ops};

/// Number of elements that a thread computes at a time. They stay in the first cache.
pub(super) const BLOCK: usize = 1 << 12;
/// Number of elements below which one thread is faster than several.
pub(super) const ALONE: usize = 1 << 15;
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
            minimum = binary |a, b| smaller(a, b);
            maximum = binary |a, b| greater(a, b);
            relu_grad = binary |dy, y| if y > 0.0 { dy } else { 0.0 };
            less = compare |a, b| a < b;
            less_equal = compare |a, b| a <= b;
            equal = compare |a, b| a == b;
            not_equal = compare |a, b| a != b;
            select = select;
            relu = unary |x| if x <= 0.0 { 0.0 } else { x };
            neg = unary |x| -x;
            abs = unary |x| x.abs();
            floor = unary |x| x.floor();
            ceil = unary |x| x.ceil();
            round = unary |x| x.round_ties_even();
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
    exp = unary |x| single::exp(x);
    expm1 = unary |x| single::expm1(x);
    log = unary |x| single::ln(x);
    log1p = unary |x| single::log1p(x);
    softplus = unary |x| single::softplus(x);
    tanh = unary |x| single::tanh(x);
    sigmoid = unary |x| single::sigmoid(x);
    erf = unary |x| single::erf(x);
    pow = always |x, y| single::pow(x, y);
);
/// Kernels for f64.
pub static DOUBLE: &[Kernel] = kernels!(f64 F64;
    exp = unary |x| double::exp(x);
    expm1 = unary |x| double::expm1(x);
    log = unary |x| double::ln(x);
    log1p = unary |x| double::log1p(x);
    softplus = unary |x| double::softplus(x);
    tanh = unary |x| double::tanh(x);
    sigmoid = unary |x| double::sigmoid(x);
);

/// Kernels of the sine and the cosine of f32.
#[expect(clippy::redundant_closure, reason = "a function is not always inlined, a closure with the attribute is")]
pub static PERIODIC: [Kernel; 2] = [
    Kernel {
        def: &ops::sin::DEF,
        dtype: DType::F32,
        run: |call| {
            periodic(
                call,
                #[inline(always)]
                |x| single::sin(x),
                f32::sin,
            )
        },
    },
    Kernel {
        def: &ops::cos::DEF,
        dtype: DType::F32,
        run: |call| {
            periodic(
                call,
                #[inline(always)]
                |x| single::cos(x),
                f32::cos,
            )
        },
    },
];

/// Writes `f` of each element of input 0 to output 0, but `exact` if a block of elements has a large angle.
#[inline(always)]
fn periodic(call: &mut Call<'_, '_>, f: impl Fn(f32) -> f32 + Copy + Sync, exact: fn(f32) -> f32) -> Result<()> {
    let x = call.input(0)?;
    let (from, to) = (x.slice::<f32>(), call.output()?.slice_mut::<f32>());
    team::each(to.len() >= ALONE, to.chunks_mut(BLOCK).enumerate(), |(block, to)| {
        let at = block * BLOCK;
        if let Some(from) = from.get(at..at + to.len()) {
            to.copy_from_slice(from);
        }
        let mut large = false;
        vectorized!({ large = to.iter().fold(false, |large, x| large | (x.abs() > single::MOST_RADIANS)) });
        if large {
            return to.iter_mut().for_each(|y| *y = exact(*y));
        }
        vectorized!({
            for y in to {
                *y = f(*y);
            }
        });
    });
    Ok(())
}

/// Writes `f` of each element of input 0 to output 0. The two may share memory.
#[inline(always)]
fn unary<T: Element>(call: &mut Call<'_, '_>, _: &Kernel, f: impl Fn(T) -> T + Copy + Sync) -> Result<()> {
    let x = call.input(0)?;
    let (from, to) = (x.slice::<T>(), call.output()?.slice_mut::<T>());
    let parallel = to.len() >= ALONE;
    if x.in_place() {
        team::each(parallel, to.chunks_mut(BLOCK), |to| {
            vectorized!({
                for y in to {
                    *y = f(*y);
                }
            })
        });
    } else {
        let blocks = to.chunks_mut(BLOCK).zip(from.chunks(BLOCK));
        team::each(parallel, blocks, |(to, from)| {
            vectorized!({
                for (y, &x) in to.iter_mut().zip(from) {
                    *y = f(x);
                }
            })
        });
    }
    Ok(())
}

/// Applies `f` to each pair of corresponding elements of two inputs, after broadcasting.
#[inline(always)]
fn binary<T: Element>(call: &mut Call<'_, '_>, kernel: &Kernel, f: impl Fn(T, T) -> T + Copy + Sync) -> Result<()> {
    match &*call.outputs {
        [output] if output.data.len() > TINY => many(call, f),
        _ => portable(call, kernel),
    }
}

/// [`binary`] for an op of which the portable kernel computes other bits.
#[inline(always)]
fn always<T: Element>(call: &mut Call<'_, '_>, _: &Kernel, f: impl Fn(T, T) -> T + Copy + Sync) -> Result<()> {
    many(call, f)
}

/// [`binary`] for many elements.
#[inline(never)]
fn many<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> T + Copy + Sync) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let dims = output.dims();
    // An input that shares the output's memory has the shape of the result.
    if a.in_place() && b.in_place() {
        let to = output.slice_mut::<T>();
        team::each(to.len() >= ALONE, to.chunks_mut(BLOCK), |to| {
            vectorized!({
                for y in to {
                    *y = f(*y, *y);
                }
            });
        });
    } else if a.dims() == dims
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
    } else if b.in_place() {
        let rows = Rows::new(dims, [b.dims(), a.dims()]);
        rows.apply(
            [b.slice(), a.slice()],
            output.slice_mut(),
            #[inline(always)]
            |b, a| f(a, b),
        );
    } else {
        Rows::new(dims, [a.dims(), b.dims()]).apply([a.slice(), b.slice()], output.slice_mut(), f);
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
            vectorized!({ to.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (&a, &b))| *y = f(a, b).into()) });
        });
    } else if a_dims == dims
        && let &[b] = b
    {
        team::each(parallel, to.chunks_mut(BLOCK).zip(a.chunks(BLOCK)), |(to, a)| {
            vectorized!({ to.iter_mut().zip(a).for_each(|(y, &a)| *y = f(a, b).into()) });
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
        vectorized!({
            match other {
                &[number] => chosen.for_each(|(y, &c)| *y = if c.get() == wanted { number } else { *y }),
                other => chosen.zip(&other[at..]).for_each(|((y, &c), &z)| *y = if c.get() == wanted { z } else { *y }),
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, same};
    use super::*;

    /// Shapes of two operands: equal ones, scalars, rows, columns, axes in the middle, and those in which both are repeated.
    const SHAPES: [[&[u32]; 2]; 24] = [
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
        [&[300, 1], &[1, 400]],
        [&[7, 1, 5, 1, 9], &[3, 1, 8, 1]],
        [&[4, 1, 30, 40], &[6, 1, 40]],
        [&[0, 1, 3], &[5, 1]],
    ];

    #[test]
    fn as_the_portable_kernels() {
        let random = &mut Random::new(1);
        for kernel in SINGLE.iter().chain(DOUBLE).chain(&PERIODIC) {
            let reference = ops::KERNELS.iter().find(|other| other.def.code == kernel.def.code && other.dtype == kernel.dtype).unwrap();
            for [a, b] in SHAPES {
                let (x, y) = (random.numbers(kernel.dtype, a, 1), random.numbers(kernel.dtype, b, 1));
                let accepted = match kernel.def.inputs.0 {
                    1 => same(kernel, reference, &[], &[&x]),
                    2 => [[&x, &y], [&y, &x], [&x, &x]].iter().all(|inputs| same(kernel, reference, &[], inputs)),
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
