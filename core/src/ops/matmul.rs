//! The product of matrices, `a[..,m,k] · b[..,k,n] = y[..,m,n]`, where either can be given transposed and leading
//! dimensions are batches that broadcast. f32, f64 and i32 (which wraps). As `tf.linalg.matmul`.
//!
//! Bits: each element is summed from +0 over ascending k.

use super::contraction::{Rows, add_dots, add_rows, outer};
use super::elementwise::BroadcastIndex;
use crate::dtype::{DType, Number};
use crate::error::{Error, Result};
use crate::op::{Call, Kernel, OpDef, read_attributes};
use crate::shape::{Shape, TensorType};
#[cfg(feature = "alloc")]
use crate::{
    ops::elementwise::unbroadcast,
    scope::{Backward, Gradient, InputGradients, Op},
    tensor::Tensor,
};

/// The attributes: which matrices are given transposed, 0 or 1 each.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// 1 if a is given as `[..,k,m]`.
    pub transpose_a: u32,
    /// 1 if b is given as `[..,n,k]`.
    pub transpose_b: u32,
}

/// The op.
pub static DEF: OpDef = OpDef { code: super::code::matmul, name: "matmul", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

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
    let [a_batch @ .., rows, columns] = a.shape.dims() else { return Err(Error::Rank { input: 0 }) };
    let (m, k) = if transpose_a == 0 { (rows, columns) } else { (columns, rows) };
    let [b_batch @ .., rows, columns] = b.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    let (got, n) = if transpose_b == 0 { (rows, columns) } else { (columns, rows) };
    if got != k {
        let axis = b_batch.len() as u8 + u8::from(transpose_b != 0);
        return Err(Error::Dimension { input: 1, axis, want: *k, got: *got });
    }
    let mut shape = Shape::new(a_batch)?.broadcast(&Shape::new(b_batch)?)?;
    shape.push(*m)?;
    shape.push(*n)?;
    *output = TensorType::new(a.dtype, shape);
    Ok(())
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let ([a_batch @ .., _, columns], [b_batch @ .., b_rows, _], [batch @ .., m, n]) = (a.dims, b.dims, output.dims) else {
        return Err(Error::Rank { input: 0 });
    };
    let (m, n) = (*m as usize, *n as usize);
    let k = if attributes.transpose_a == 0 {
        *columns as usize
    } else if attributes.transpose_b == 0 {
        *b_rows as usize
    } else {
        b.dims.last().map_or(0, |&dim| dim as usize)
    };
    let mut index = BroadcastIndex::new(batch, a_batch, b_batch);
    for product in output.slice_mut::<T>().chunks_mut((m * n).max(1)) {
        let (i, j) = index.advance();
        let a = a.slice::<T>().get(i * m * k..).unwrap_or(&[]);
        let b = b.slice::<T>().get(j * k * n..).unwrap_or(&[]);
        let (a, b) = (a.get(..m * k).unwrap_or(&[]), b.get(..k * n).unwrap_or(&[]));
        if k == 1 {
            outer(product, a, b, |_, a, b| T::ZERO.add(a.mul(b)));
            continue;
        }
        product.fill(T::ZERO);
        for (i, row) in product.chunks_mut(n.max(1)).enumerate() {
            match (attributes.transpose_a == 0, attributes.transpose_b == 0) {
                (true, true) => add_rows(row, Rows::new(a.get(i * k..(i + 1) * k).unwrap_or(&[]), 1), Rows::new(b, n)),
                (false, true) => add_rows(row, Rows::new(a, m).from_column(i), Rows::new(b, n)),
                (true, false) => add_dots(row, a.get(i * k..(i + 1) * k).unwrap_or(&[]), Rows::new(b, k)),
                (false, false) => {
                    // The column of a is gathered in pieces, so that the dot products can share it.
                    let mut piece = [T::ZERO; 16];
                    let mut column = a.get(i..).unwrap_or(&[]).iter().step_by(m.max(1)).enumerate().peekable();
                    while let Some(&(p, _)) = column.peek() {
                        let length = piece.iter_mut().zip(&mut column).map(|(slot, (_, &x))| *slot = x).count();
                        add_dots(row, piece.get(..length).unwrap_or(&[]), Rows::new(b, k).from_column(p));
                    }
                }
            }
        }
    }
    Ok(())
}

super::kernels!(run: F32 = f32, F64 = f64, I32 = i32);

/// The op with its gradient: products of the upstream and the other matrix, summed over batches that were broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    def: &DEF,
    usage: "matmul(a[..,m,k], b[..,k,n]), either transposed on demand, of one element type: f32, f64 or i32",
    grad: Gradient::Rule(grad),
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
    /// The product of matrices, `self[..,m,k] · other[..,k,n]`: `[..,m,n]`. Leading dimensions are batches and broadcast.
    /// i32 wraps. As `tf.linalg.matmul`.
    ///
    /// Fails where a rank is below 2, where `k` or the batches do not fit, and where the element types differ.
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

    /// [`Tensor::matmul`] with `self` given as `[..,k,m]` if `transpose_a`, `other` as `[..,n,k]` if `transpose_b`.
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
}
