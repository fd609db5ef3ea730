//! Number sequences, and masks computed by comparing with such sequences. These functions are composed of other ops.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use alloc::format;
use alloc::vec::Vec;

/// Element type of [`Tensor::range`].
pub trait Countable: Number {
    /// Returns the number of values from `start`, in steps of `step`, before `end`. The step must not be 0, and must lead towards
    /// `end`.
    fn steps(start: Self, end: Self, step: Self) -> u64;
}

macro_rules! countable {
    ($($integer:ty),*; $($float:ty),*) => {
        $(impl Countable for $integer {
            fn steps(start: Self, end: Self, step: Self) -> u64 {
                let (distance, step) = (i128::from(end) - i128::from(start), i128::from(step));
                u64::try_from(distance / step + i128::from(distance % step != 0)).unwrap_or(0)
            }
        })*
        $(impl Countable for $float {
            fn steps(start: Self, end: Self, step: Self) -> u64 {
                libm::ceil(((end - start) / step).into()) as u64
            }
        })*
    };
}
countable!(i8, u8, i32, i64; f32, f64);

impl Tensor {
    /// Returns the numbers from `start`, in steps of `step`, before `end`, as a tensor on `device`.
    ///
    /// Fails if the step is 0 or leads away from `end`. Like `tf.range`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// assert_eq!(Tensor::range(&device, 0, 7, 3)?.to_vec::<i32>()?, [0, 3, 6]);
    /// assert_eq!(Tensor::range(&device, 1.0f32, 0.0, -0.5)?.to_vec::<f32>()?, [1.0, 0.5]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn range<T: Countable>(device: &Device, start: T, end: T, step: T) -> Result<Tensor> {
        let leads = if step > T::ZERO { start <= end } else { step < T::ZERO && start >= end };
        if !leads {
            return Err(Error::message(format!("a range from {start:?} to {end:?} cannot have a step of {step:?}")));
        }
        let count = u32::try_from(T::steps(start, end, step)).map_err(|_| Error::TooLarge)?;
        let elements: Vec<T> = (0..count as usize).map(|index| start.add(T::from_count(index).mul(step))).collect();
        Tensor::new(device, &elements, &[count])
    }

    /// Returns `count` evenly spaced numbers from `self` to `stop`, both included, along a new axis. `axis` is its position in
    /// the result. A negative axis counts from the end. With a `count` of 1, the number is `self`.
    ///
    /// Fails on integers, or if the shapes do not broadcast or the axis is out of range. Like `tf.linspace`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let (start, stop) = (Tensor::scalar(&device, 1.0f32), Tensor::scalar(&device, 2.0f32));
    /// assert_eq!(start.linspace(&stop, 3, 0)?.to_vec::<f32>()?, [1.0, 1.5, 2.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn linspace(&self, stop: &Tensor, count: u32, axis: i32) -> Result<Tensor> {
        let shape = self.shape().broadcast(stop.shape())?;
        let (start, stop) = (self.broadcast_to(shape.dims())?.expand_dims(axis)?, stop.broadcast_to(shape.dims())?.expand_dims(axis)?);
        let at = self.broadcast_to(shape.dims())?.new_axis(axis)?;
        let part = |tensor: &Tensor, count| tensor.part(|index, dim| (0, if index == at { count } else { dim }));
        if count < 2 {
            return part(&start, count);
        }
        let step = stop.sub(&start)?.div(&self.like(f64::from(count - 1))?)?;
        let mut dims = [1; crate::base::shape::MAX_RANK];
        dims[at] = count - 2;
        let steps =
            Tensor::range(&self.device()?, 1.0, f64::from(count - 1), 1.0)?.cast(self.dtype())?.reshape(&dims[..shape.rank() + 1])?;
        Tensor::concat(&[start.clone(), start.add(&step.mul(&steps)?)?, stop], at as i32)
    }

    /// Returns a one-hot vector of `depth` numbers for each index in `self`, along a new axis: 1 at the index, 0 elsewhere. An
    /// index out of range gives a vector of zeros. `axis` is the position of the new axis in the result. A negative axis counts
    /// from the end.
    ///
    /// Fails on floats and booleans, or if the axis is out of range. Like `tf.one_hot`.
    ///
    /// ```
    /// # use gradlet_core::{DType, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let index = Tensor::new(&device, &[2, 0, -1], &[3])?;
    /// let hot = index.one_hot(3, -1, DType::F32)?;
    /// assert_eq!(hot.to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn one_hot(&self, depth: u32, axis: i32, dtype: DType) -> Result<Tensor> {
        self.hot_positions(depth, axis)?.cast(dtype)
    }

    /// Returns one-hot vectors like [`Tensor::one_hot`], but with the scalars `on` and `off` in place of 1 and 0. The result has
    /// the element type of these scalars.
    pub fn one_hot_of(&self, depth: u32, axis: i32, on: &Tensor, off: &Tensor) -> Result<Tensor> {
        self.hot_positions(depth, axis)?.select(on, off)
    }

    /// Returns a boolean mask for sequences whose lengths are the elements of `self`, along a new last axis of dimension `size`.
    /// For a length n, the first n elements are true, and all others are false. For integers. Like `tf.sequence_mask`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # use gradlet_core::tensor::Bool;
    /// # let device = ops::portable_cpu();
    /// let lengths = Tensor::new(&device, &[1, 3], &[2])?;
    /// let mask = lengths.sequence_mask(3)?;
    /// assert_eq!(mask.to_vec::<Bool>()?, [true, false, false, true, true, true].map(Bool::from));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn sequence_mask(&self, size: u32) -> Result<Tensor> {
        let lengths = self.cast(DType::I64)?.expand_dims(-1)?;
        Tensor::range(&self.device()?, 0, i64::from(size), 1)?.less(&lengths)
    }

    /// Returns booleans that are true where [`Tensor::one_hot`] is 1.
    fn hot_positions(&self, depth: u32, axis: i32) -> Result<Tensor> {
        if !matches!(self.dtype(), DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::I64) {
            return Err(Error::message(format!("one_hot expected integer indices, but got {}", self.tensor_type())));
        }
        let mut dims = [1; crate::base::shape::MAX_RANK];
        let at = self.new_axis(axis)?;
        let index = self.cast(DType::I64)?.expand_dims(axis)?;
        dims[at] = depth;
        let positions = Tensor::range(&self.device()?, 0, i64::from(depth), 1)?.reshape(&dims[..index.shape().rank()])?;
        index.equal(&positions)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::device;

    #[test]
    fn ranges_end_before_the_end() {
        let range = |start: i32, end, step| Tensor::range(device(), start, end, step).map(|range| range.to_vec::<i32>().unwrap());
        assert_eq!(range(5, -2, -3).unwrap(), [5, 2, -1]);
        assert_eq!(range(0, 6, 3).unwrap(), [0, 3]);
        assert_eq!(range(4, 4, 1).unwrap(), []);
        assert_eq!(range(i32::MIN, i32::MAX, i32::MAX).unwrap(), [i32::MIN, -1, i32::MAX - 1]);
        assert!(range(0, 5, 0).is_err() && range(0, 5, -1).is_err());
        assert_eq!(Tensor::range(device(), 0i8, 127, 100).unwrap().to_vec::<i8>().unwrap(), [0, 100]);
        let tenths = Tensor::range(device(), 0.0f32, 1.0, 0.1).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(tenths, (0..10).map(|i| i as f32 * 0.1).collect::<Vec<_>>());
        assert!(Tensor::range(device(), 0.0f32, f32::INFINITY, 1.0).is_err());
        assert!(Tensor::range(device(), 0.0, f64::NAN, 1.0).is_err());
    }

    #[test]
    fn spaces_have_both_ends() {
        let tensor = |elements: &[f32], dims: &[u32]| Tensor::new(device(), elements, dims).unwrap();
        let (start, stop) = (tensor(&[0.0, 5.0], &[2]), tensor(&[1.0], &[]));
        let space = |count, axis| start.linspace(&stop, count, axis).unwrap();
        assert_eq!(space(3, 0).to_vec::<f32>().unwrap(), [0.0, 5.0, 0.5, 3.0, 1.0, 1.0]);
        assert_eq!(space(3, -1).to_vec::<f32>().unwrap(), [0.0, 0.5, 1.0, 5.0, 3.0, 1.0]);
        assert_eq!((space(1, 1).dims(), space(0, 0).dims(), space(2, 0).dims()), (&[2, 1][..], &[0, 2][..], &[2, 2][..]));
        assert!(start.linspace(&stop, 3, 2).is_err() && start.linspace(&tensor(&[0.0; 3], &[3]), 3, 0).is_err());
    }

    #[test]
    fn hot_ones() {
        let index = Tensor::new(device(), &[1u8, 255, 0], &[3]).unwrap();
        assert_eq!(index.one_hot(2, 0, DType::I32).unwrap().to_vec::<i32>().unwrap(), [0, 0, 1, 1, 0, 0]);
        let wide = index.one_hot(256, -1, DType::U8).unwrap().to_vec::<u8>().unwrap();
        assert_eq!(wide.iter().map(|&hot| u32::from(hot)).sum::<u32>(), 3);
        assert_eq!(index.one_hot(0, 1, DType::F32).unwrap().dims(), [3, 0]);
        assert!(index.one_hot(2, 2, DType::F32).is_err());
        assert!(Tensor::scalar(device(), 1.0f32).one_hot(2, 0, DType::F32).is_err());
    }
}
