//! Sums over replicas. Their order is that of the replicas, so all of them get the same bits.

use gradlet_core::device::AlignedBytes;
use gradlet_core::{DType, Error, Result};

/// Element type that replicas add.
pub(super) trait Number: bytemuck::Pod {
    /// Returns the sum of two elements. Integers wrap around.
    fn plus(self, other: Self) -> Self;
    /// Returns the element divided by a number of replicas. Integers are rounded towards zero.
    fn over(self, count: usize) -> Self;
}

macro_rules! numbers {
    ($($ty:ty: $plus:expr),*) => {
        $(impl Number for $ty {
            fn plus(self, other: $ty) -> $ty {
                $plus(self, other)
            }
            fn over(self, count: usize) -> $ty {
                self / count as $ty
            }
        })*
    };
}
numbers!(f32: |a, b| a + b, f64: |a, b| a + b, i32: i32::wrapping_add, i64: i64::wrapping_add);

/// Evaluates an expression with the element type of `$dtype` as `$T`. Fails for types that replicas do not add.
macro_rules! with_number {
    ($dtype:expr, $T:ident => $work:expr) => {
        match $dtype {
            DType::F32 => $crate::compute::collective::sum::with_number!(type f32, $T => $work),
            DType::F64 => $crate::compute::collective::sum::with_number!(type f64, $T => $work),
            DType::I32 => $crate::compute::collective::sum::with_number!(type i32, $T => $work),
            DType::I64 => $crate::compute::collective::sum::with_number!(type i64, $T => $work),
            dtype => Err(Error::message(format!("replicas cannot combine tensors of {dtype}: cast them to f32"))),
        }
    };
    (type $ty:ty, $T:ident => $work:expr) => {{
        type $T = $ty;
        $work
    }};
}
pub(super) use with_number;

/// Sets `sum` to the elementwise sum of `parts`.
pub(super) fn ordered(dtype: DType, parts: &[AlignedBytes], sum: &mut [u8]) -> Result<()> {
    let Some((first, others)) = parts.split_first() else { return Err(Error::Internal) };
    if parts.iter().any(|part| part.len() != sum.len()) {
        return Err(Error::Internal);
    }
    sum.copy_from_slice(first);
    with_number!(dtype, T => {
        let sum: &mut [T] = bytemuck::try_cast_slice_mut(sum).map_err(|_| Error::Internal)?;
        others.iter().try_for_each(|part| numbers_of(part).map(|part| add(sum, part)))
    })
}

fn numbers_of<T: Number>(part: &[u8]) -> Result<&[T]> {
    bytemuck::try_cast_slice(part).map_err(|_| Error::Internal)
}

/// Adds the elements of `part` to those of `sum`.
pub(super) fn add<T: Number>(sum: &mut [T], part: &[T]) {
    sum.iter_mut().zip(part).for_each(|(sum, &part)| *sum = sum.plus(part));
}

/// Divides the elements by the number of replicas.
pub(super) fn divide(dtype: DType, sum: &mut [u8], count: usize) -> Result<()> {
    with_number!(dtype, T => {
        let sum: &mut [T] = bytemuck::try_cast_slice_mut(sum).map_err(|_| Error::Internal)?;
        sum.iter_mut().for_each(|sum| *sum = sum.over(count));
        Ok(())
    })
}
