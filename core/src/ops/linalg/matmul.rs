//! Product of matrices, `a[..,m,k] · b[..,k,n] = y[..,m,n]`. Either operand can be passed transposed. Leading dimensions are
//! batches and broadcast. Element types: f32, f64 and i32, which wraps. Like `tf.linalg.matmul`.
//!
//! Bits: each element is summed from +0 over ascending k.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::broadcast::position;
use crate::ops::shared::contraction::{Lines, Rows, add_column, add_dots, add_products, add_transposed, cost_of_dot, cost_of_row, outer};
#[cfg(feature = "alloc")]
use crate::{
    ops::shared::elementwise::unbroadcast,
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Attribute words of the op: which operands are transposed, 0 or 1 each.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// 1 if a has the shape `[..,k,m]`, and 0 if it has the shape `[..,m,k]`.
    pub transpose_a: u32,
    /// 1 if b has the shape `[..,n,k]`, and 0 if it has the shape `[..,k,n]`.
    pub transpose_b: u32,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::matmul, name: "matmul", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let ([a, b], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let Attributes { transpose_a, transpose_b } = read_attributes(attributes)?;
    if transpose_a > 1 {
        return Err(Error::Attribute { index: 0 });
    }
    if transpose_b > 1 {
        return Err(Error::Attribute { index: 1 });
    }
    if !a.dtype.is_float() && a.dtype != DType::I32 {
        return Err(Error::DType { input: 0 });
    }
    if b.dtype != a.dtype {
        return Err(Error::DType { input: 1 });
    }
    let shape = product(a, b, [transpose_a, transpose_b])?;
    *output = TensorType::new(a.dtype, shape);
    Ok(())
}

/// Returns the shape of a product of matrices. `flags` says which of them is transposed, 0 or 1 each.
pub(in crate::ops) fn product(a: &TensorType, b: &TensorType, flags: [u32; 2]) -> Result<Shape> {
    let [a_batch @ .., rows, columns] = a.shape.dims() else { return Err(Error::Rank { input: 0 }) };
    let (m, k) = if flags[0] == 0 { (rows, columns) } else { (columns, rows) };
    let [b_batch @ .., rows, columns] = b.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    let (got, n) = if flags[1] == 0 { (rows, columns) } else { (columns, rows) };
    if got != k {
        let axis = b_batch.len() as u8 + u8::from(flags[1] != 0);
        return Err(Error::Dimension { input: 1, axis, want: *k, got: *got });
    }
    let mut shape = Shape::new(a_batch)?.broadcast(&Shape::new(b_batch)?)?;
    shape.push(*m)?;
    shape.push(*n)?;
    Ok(shape)
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let ([a_batch @ .., _, columns], [b_batch @ .., b_rows, _], [batch @ .., m, n]) = (a.dims(), b.dims(), output.dims()) else {
        return Err(Error::Rank { input: 0 });
    };
    let (m, n) = (*m as usize, *n as usize);
    let k = if attributes.transpose_a == 0 {
        *columns as usize
    } else if attributes.transpose_b == 0 {
        *b_rows as usize
    } else {
        b.dims().last().map_or(0, |&dim| dim as usize)
    };
    let flipped = (attributes.transpose_a != 0, attributes.transpose_b != 0);
    // The rows of the work for one line of the product: the line itself, the terms of its sums, or its elements.
    let (of_line, cost) = match flipped {
        _ if k == 1 => (1, 5 * n + 20),
        (_, false) => (k, cost_of_row(n)),
        (_, true) => (n, cost_of_dot(k) + 2 * k),
    };
    let of_line = of_line.max(1);
    let lines = (output.data.len() / size_of::<T>()).checked_div(n).unwrap_or(0);
    let rows = call.rows(lines * of_line, cost);
    let output = call.output()?;
    let mut at = rows.start;
    while at < rows.end {
        let line = at / of_line;
        let from = at - line * of_line;
        let Some((index, i)) = line.checked_div(m).map(|index| (index, line - index * m)) else { break };
        // A part of one line, or as many whole lines of one product as there are.
        let whole = if from == 0 { ((rows.end - at) / of_line).min(m - i) } else { 0 };
        let (count, to) = if whole == 0 { (1, of_line.min(from + rows.end - at)) } else { (whole, of_line) };
        at += (count - 1) * of_line + to - from;
        let a = a.slice::<T>().get(position(index, batch, a_batch) * m * k..).and_then(|a| a.get(..m * k)).unwrap_or_default();
        let b = b.slice::<T>().get(position(index, batch, b_batch) * k * n..).and_then(|b| b.get(..k * n)).unwrap_or_default();
        let product = output.slice_mut::<T>().get_mut(line * n..(line + count) * n).unwrap_or_default();
        let lines = a.get(i * k..).unwrap_or_default();
        if k == 1 {
            outer(product, lines, b, |_, a, b| T::ZERO.add(a.mul(b)));
            continue;
        }
        let product = if flipped.1 && whole == 0 { product.get_mut(from..to).unwrap_or_default() } else { product };
        if flipped.1 || from == 0 {
            product.fill(T::ZERO);
        }
        match flipped {
            (false, false) => {
                let terms = Lines { step: k, width: to - from };
                add_products(
                    product,
                    Lines { step: n, width: n },
                    lines.get(from..).unwrap_or_default(),
                    terms,
                    Rows::new(b, n).skip(from),
                );
            }
            (true, false) if whole == 0 => {
                let terms = a.get(..to * m).and_then(|a| a.get(from * m + i..)).unwrap_or_default();
                add_column(product, terms, m, Rows::new(b, n).skip(from));
            }
            (true, false) => add_transposed(product, n, a.get(i..).unwrap_or_default(), m, k, Rows::new(b, n)),
            (false, true) => {
                let mut lines = lines.chunks(k.max(1));
                let b = Rows::new(b, k).skip(from);
                product.chunks_mut((to - from).max(1)).for_each(|row| add_dots(row, lines.next().unwrap_or_default(), b));
            }
            (true, true) => {
                for (i, row) in (i..).zip(product.chunks_mut((to - from).max(1))) {
                    // Gather the column of a in pieces, so that the dot products can share it.
                    let mut piece = [T::ZERO; 16];
                    let mut column = a.get(i..).unwrap_or(&[]).iter().step_by(m.max(1)).enumerate().peekable();
                    while let Some(&(p, _)) = column.peek() {
                        let length = piece.iter_mut().zip(&mut column).map(|(slot, (_, &x))| *slot = x).count();
                        add_dots(row, piece.get(..length).unwrap_or(&[]), Rows::new(b, k).skip(from).at_column(p));
                    }
                }
            }
        }
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32);

/// The op with its gradient: products of the upstream gradient and the other matrix, summed over the batches that were broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("MatMul"),
    ..Op::total(&DEF, "matmul(a[..,m,k], b[..,k,n]), each optionally transposed, both f32, both f64 or both i32", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let Attributes { transpose_a, transpose_b } = read_attributes(of.attributes)?;
    let (transpose_a, transpose_b) = (transpose_a != 0, transpose_b != 0);
    let ([a, b], dy) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let da = of.if_wanted(0, || {
        let da = if transpose_a { b.matmul_with(dy, transpose_b, true)? } else { dy.matmul_with(b, false, !transpose_b)? };
        unbroadcast(&da, a)
    })?;
    let db = of.if_wanted(1, || {
        let db = if transpose_b { dy.matmul_with(a, true, transpose_a)? } else { a.matmul_with(dy, !transpose_a, false)? };
        unbroadcast(&db, b)
    })?;
    Ok([da, db].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the product of matrices, `self[..,m,k] · other[..,k,n]`, of shape `[..,m,n]`. Leading dimensions are batches and
    /// broadcast. i32 wraps. Like `tf.linalg.matmul`.
    ///
    /// Fails if a rank is below 2, or if `k`, the batches or the element types do not match.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let b = Tensor::new(&device, &[10.0f32, 1.0], &[2, 1])?;
    /// assert_eq!(a.matmul(&b)?.to_vec::<f32>()?, [12.0, 34.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.matmul_with(other, false, false)
    }

    /// Returns the product like [`Tensor::matmul`]. With `transpose_a`, `self` has the shape `[..,k,m]`. With `transpose_b`,
    /// `other` has the shape `[..,n,k]`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1, 2, 3], &[1, 3])?;
    /// assert_eq!(a.matmul_with(&a, false, true)?.to_vec::<i32>()?, [14]);
    /// assert_eq!(a.matmul_with(&a, true, false)?.dims(), [3, 3]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn matmul_with(&self, other: &Tensor, transpose_a: bool, transpose_b: bool) -> Result<Tensor> {
        Tensor::emit1(&OP, &[transpose_a.into(), transpose_b.into()], &[self, other])
    }

    /// Returns the product of matrices `[..,m,k]` and vectors `[..,k]`, of shape `[..,m]`. Like `tf.linalg.matvec`. Fails as
    /// [`Tensor::matmul`] does.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.matvec(&Tensor::new(&device, &[10, 1], &[2])?)?.to_vec::<i32>()?, [12, 34]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn matvec(&self, vector: &Tensor) -> Result<Tensor> {
        self.matvec_with(vector, false)
    }

    /// Returns the product like [`Tensor::matvec`]. With `transpose`, `self` has the shape `[..,k,m]`.
    pub fn matvec_with(&self, vector: &Tensor, transpose: bool) -> Result<Tensor> {
        self.matmul_with(&vector.expand_dims(-1)?, transpose, false)?.squeeze(&[-1])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, floats, indices, numbers, position, run_every_way};
    use std::vec::Vec;

    /// Computes the product of matrices from the formula, element by element. `flags` are the attribute words, and `y` holds the
    /// dimensions of the result.
    fn naive<T: Number>(a: &Value, b: &Value, flags: [u32; 2], y: &[u32]) -> Vec<T> {
        let (left, right) = (a.elements::<T>(), b.elements::<T>());
        let (batch, k) = (y.len() - 2, a.dims()[a.dims().len() - 2 + usize::from(flags[0] == 0)]);
        let at = |operand: &Value, index: &[u32], [row, column]: [u32; 2], flipped: bool| {
            let dims = operand.dims();
            let skip = y.len() - dims.len();
            let mut position_in: Vec<u32> = (skip..batch).map(|axis| index[axis].min(dims[axis - skip] - 1)).collect();
            position_in.extend(if flipped { [column, row] } else { [row, column] });
            position(dims, &position_in)
        };
        let element = |index: Vec<u32>| {
            (0..k).fold(T::ZERO, |sum, p| {
                let x = left[at(a, &index, [index[batch], p], flags[0] == 1)];
                sum.add(x.mul(right[at(b, &index, [p, index[batch + 1]], flags[1] == 1)]))
            })
        };
        indices(y).into_iter().map(element).collect()
    }

    #[test]
    fn every_case_agrees_with_the_formula() {
        for (m, k, n) in [(1, 1, 1), (1, 7, 13), (3, 1, 20), (5, 4, 3), (2, 19, 8), (9, 33, 12), (4, 0, 3), (0, 3, 2), (2, 3, 0)] {
            for (a_batch, b_batch, batch) in [
                (&[][..], &[][..], &[][..]),
                (&[2], &[], &[2]),
                (&[], &[3], &[3]),
                (&[2, 1], &[3], &[2, 3]),
                (&[1], &[2], &[2]),
                (&[0], &[1], &[0]),
            ] {
                for flags in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                    let dims =
                        |batch: &[u32], rows, columns, flip| [batch, &if flip == 1 { [columns, rows] } else { [rows, columns] }].concat();
                    let (a, b) = (dims(a_batch, m, k, flags[0]), dims(b_batch, k, n, flags[1]));
                    let y = [batch, &[m, n]].concat();
                    let (p, q) = (floats(&a, 1), floats(&b, 2));
                    let got = run_every_way(&F32, &flags, &[&p, &q]);
                    assert!(got[0] == Value::new(&naive::<f32>(&p, &q, flags, &y), &y), "{a:?} {b:?} {flags:?}");
                    let (p, q) = (Value::new(&numbers(&a, 1), &a), Value::new(&numbers(&b, 2), &b));
                    let got = run_every_way(&F64, &flags, &[&p, &q]);
                    assert!(got[0] == Value::new(&naive::<f64>(&p, &q, flags, &y), &y), "{a:?} {b:?} {flags:?}");
                    let whole = |dims: &[u32]| numbers(dims, 3).iter().map(|&x| (x * 1e9) as i32).collect::<Vec<_>>();
                    let (p, q) = (Value::new(&whole(&a), &a), Value::new(&whole(&b), &b));
                    let got = run_every_way(&I32, &flags, &[&p, &q]);
                    assert!(got[0] == Value::new(&naive::<i32>(&p, &q, flags, &y), &y), "{a:?} {b:?} {flags:?}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let types = |a: &[u32], b: &[u32]| [a, b].map(|dims| TensorType::new(DType::F32, Shape::new(dims).unwrap()));
        let refuse = |a: &[u32], b: &[u32], flags: &[u32]| DEF.output_types(&types(a, b), flags).map(|_| ()).unwrap_err();
        assert_eq!(refuse(&[2, 3], &[4, 2], &[0, 0]), Error::Dimension { input: 1, axis: 0, want: 3, got: 4 });
        assert_eq!(refuse(&[2, 3], &[2, 4], &[0, 1]), Error::Dimension { input: 1, axis: 1, want: 3, got: 4 });
        assert_eq!(refuse(&[3], &[3, 2], &[0, 0]), Error::Rank { input: 0 });
        assert_eq!(refuse(&[2, 3], &[3], &[0, 0]), Error::Rank { input: 1 });
        assert_eq!(refuse(&[2, 3], &[3, 2], &[0, 2]), Error::Attribute { index: 1 });
        assert_eq!(refuse(&[2, 3], &[3, 2], &[0]), Error::Attribute { index: 0 });
        assert!(matches!(refuse(&[2, 2, 3], &[3, 3, 2], &[0, 0]), Error::Dimension { .. }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (a, b, flags) in [
            (&[2, 3][..], &[3, 4][..], [0, 0]),
            (&[3, 2], &[3, 4], [1, 0]),
            (&[2, 3], &[4, 3], [0, 1]),
            (&[3, 2], &[4, 3], [1, 1]),
            (&[2, 1, 2, 3], &[3, 3, 4], [0, 0]),
            (&[3, 2], &[2, 4, 3], [1, 1]),
        ] {
            check_gradient(&OP, &flags, &[tensor(a, 1), tensor(b, 2)]);
        }
    }
}
