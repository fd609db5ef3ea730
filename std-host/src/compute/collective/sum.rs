//! Sums of the parts of replicas. The order of the replicas is the order of the sum, so all of them get the same bits.

use gradlet_core::device::AlignedBytes;
use gradlet_core::{DType, Error, Result};

/// Sets `sum` to the elementwise sum of `parts`.
pub(super) fn ordered(dtype: DType, parts: &[AlignedBytes], sum: &mut [u8]) -> Result<()> {
    let Some((first, others)) = parts.split_first().filter(|_| parts.iter().all(|part| part.len() == sum.len())) else {
        return Err(Error::Internal);
    };
    sum.copy_from_slice(first);
    for part in others {
        match dtype {
            DType::F32 => add::<f32>(sum, part, |a, b| a + b)?,
            DType::F64 => add::<f64>(sum, part, |a, b| a + b)?,
            DType::I32 => add::<i32>(sum, part, i32::wrapping_add)?,
            DType::I64 => add::<i64>(sum, part, i64::wrapping_add)?,
            _ => return Err(Error::message(format!("replicas cannot add tensors of {dtype}: cast them to f32"))),
        }
    }
    Ok(())
}

fn add<T: bytemuck::Pod>(sum: &mut [u8], part: &[u8], add: impl Fn(T, T) -> T) -> Result<()> {
    let sum = bytemuck::try_cast_slice_mut::<u8, T>(sum).map_err(|_| Error::Internal)?;
    let part = bytemuck::try_cast_slice::<u8, T>(part).map_err(|_| Error::Internal)?;
    sum.iter_mut().zip(part).for_each(|(sum, &part)| *sum = add(*sum, part));
    Ok(())
}

/// Divides the elements by the number of replicas. Integers are rounded towards zero.
pub(super) fn divide(dtype: DType, sum: &mut [u8], count: usize) -> Result<()> {
    fn each<T: bytemuck::Pod>(sum: &mut [u8], divide: impl Fn(T) -> T) -> Result<()> {
        let sum = bytemuck::try_cast_slice_mut::<u8, T>(sum).map_err(|_| Error::Internal)?;
        sum.iter_mut().for_each(|sum| *sum = divide(*sum));
        Ok(())
    }
    match dtype {
        DType::F32 => each::<f32>(sum, |sum| sum / count as f32),
        DType::F64 => each::<f64>(sum, |sum| sum / count as f64),
        DType::I32 => each::<i32>(sum, |sum| sum / count as i32),
        DType::I64 => each::<i64>(sum, |sum| sum / count as i64),
        _ => Err(Error::message(format!("replicas cannot average tensors of {dtype}: cast them to f32"))),
    }
}
