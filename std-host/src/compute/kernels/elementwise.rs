//! Elementwise ops of floats. The compiler vectorizes their loops for the instruction set of the CPU, and all threads share a large
//! tensor. Arithmetic has the bits of the portable kernels. The loops are `for` loops, because the compiler may not inline a long closure
//! of `for_each`, and then compiles it for the oldest CPU.

use super::math::{double, single};
use super::portable;
use crate::compute::simd::vectorized;
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
    sin = periodic |x| single::sin(x);
    cos = periodic |x| single::cos(x);
    pow = binary |x, y| single::pow(x, y);
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

/// [`unary`] for the sine and the cosine. The portable kernel computes them if an angle is large.
#[inline(always)]
fn periodic<T: Element + Into<f64>>(call: &mut Call<'_, '_>, kernel: &Kernel, f: impl Fn(T) -> T + Copy + Sync) -> Result<()> {
    let x = call.input(0)?;
    let angles = if x.in_place() { &*call.output()?.slice_mut::<T>() } else { x.slice::<T>() };
    let mut large = false;
    vectorized!({ large = angles.iter().fold(false, |large, &x| large | (x.into().abs() > single::MOST_RADIANS.into())) });
    if large { portable(call, kernel) } else { unary(call, kernel, f) }
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
            vectorized!({
                if let Some(whole) = whole.get(at..at + to.len()) {
                    to.copy_from_slice(whole);
                }
                if run == 1 {
                    let row = if single { elements.get(at..).unwrap_or_default() } else { elements };
                    for to in to.chunks_mut(row.len().max(1)) {
                        for (x, &y) in to.iter_mut().zip(row) {
                            *x = f(*x, y);
                        }
                    }
                } else {
                    let uses = elements.iter().cycle().skip(at / run % elements.len());
                    for (to, &y) in to.chunks_mut(run).zip(uses) {
                        for x in to {
                            *x = f(*x, y);
                        }
                    }
                }
            });
        });
    }
}

/// Returns a short row, again and again.
fn repeated<T: Element>(row: &[T]) -> [T; 2 * SHORT] {
    let mut several = [T::zeroed(); 2 * SHORT];
    several.chunks_mut(row.len().max(1)).for_each(|to| to.iter_mut().zip(row).for_each(|(to, &from)| *to = from));
    several
}

/// Rows of a result. In a row, each of two operands has neighbours, or one element again and again.
struct Rows {
    /// The axes around the rows, outermost first: the dimension, and the distance of neighbours in each operand.
    axes: Vec<[usize; 3]>,
    /// The row.
    row: [usize; 3],
}

impl Rows {
    /// Divides a result of dimensions `dims` into rows, for operands of dimensions `own`.
    fn new(dims: &[u32], own: [&[u32]; 2]) -> Rows {
        let mut strides = [1; 2];
        let mut axes: Vec<[usize; 3]> = Vec::new();
        for (axis, &dim) in dims.iter().rev().enumerate().filter(|(_, dim)| **dim != 1) {
            let mut stride = [0; 2];
            for (operand, own) in own.iter().enumerate() {
                if let Some(&dim) = own.iter().rev().nth(axis).filter(|&&dim| dim != 1) {
                    stride[operand] = strides[operand];
                    strides[operand] *= dim as usize;
                }
            }
            let dim = dim as usize;
            match axes.last_mut() {
                // The elements of this axis follow those of the axis within it, in both operands.
                Some([inner, a, b]) if [*a * *inner, *b * *inner] == stride => *inner *= dim,
                _ => axes.push([dim, stride[0], stride[1]]),
            }
        }
        axes.reverse();
        let row = axes.pop().unwrap_or([1, 0, 0]);
        Rows { axes, row }
    }

    /// Returns the position of the first element of row `index` in each operand.
    fn start(&self, mut index: usize) -> [usize; 2] {
        let mut at = [0; 2];
        for &[dim, a, b] in self.axes.iter().rev() {
            at = [at[0] + index % dim * a, at[1] + index % dim * b];
            index /= dim;
        }
        at
    }

    /// Writes `f(a, b)` to `to` for each position. The first operand is empty if its elements are in `to`.
    #[inline(always)]
    fn apply<T: Element>(&self, [a, b]: [&[T]; 2], to: &mut [T], f: impl Fn(T, T) -> T + Copy + Sync) {
        let [length, a_step, b_step] = self.row;
        let count = BLOCK.div_ceil(length.max(1));
        team::each(to.len() >= ALONE, to.chunks_mut((count * length).max(1)).enumerate(), |(block, to)| {
            vectorized!({
                for (to, index) in to.chunks_mut(length.max(1)).zip(block * count..) {
                    let [at, from] = self.start(index);
                    match a.get(at..) {
                        None | Some([]) => {}
                        Some(a) if a_step == 1 => to.copy_from_slice(&a[..to.len()]),
                        Some(a) => to.fill(a[0]),
                    }
                    match b.get(from..) {
                        None | Some([]) => {}
                        Some(b) if b_step == 1 => {
                            for (y, &b) in to.iter_mut().zip(b) {
                                *y = f(*y, b);
                            }
                        }
                        Some(&[b, ..]) => {
                            for y in to {
                                *y = f(*y, b);
                            }
                        }
                    }
                }
            });
        });
    }
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
        for kernel in SINGLE.iter().chain(DOUBLE) {
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
