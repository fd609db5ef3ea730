//! Selection of elements by a mask. The shapes of the results depend on the values in the mask. These functions therefore run
//! eagerly, or under a tape over an eager scope, but cannot be traced.

use crate::base::dtype::{Bool, DType};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::format;
use alloc::vec::Vec;

impl Tensor {
    /// Returns the indices of all elements that are not 0 or false, in row-major order, as i64 `[count, rank]`.
    ///
    /// Fails in a trace, where the values of `self` and therefore the shape of the result are unknown. Like `tf.where` with one
    /// argument.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[0, 7, 8, 0], &[2, 2])?;
    /// assert_eq!(x.where_index()?.to_vec::<i64>()?, [0, 1, 1, 0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn where_index(&self) -> Result<Tensor> {
        self.known()?.ok_or_else(|| shape_depends_on_data("where_index"))?;
        let mut indices: Vec<i64> = Vec::new();
        let mut count = 0u32;
        for (position, _) in self.cast(DType::Bool)?.to_vec::<Bool>()?.iter().enumerate().filter(|(_, truth)| truth.get()) {
            let first = indices.len();
            let mut rest = position;
            for &dim in self.dims().iter().rev() {
                indices.push((rest % dim as usize) as i64);
                rest /= dim as usize;
            }
            indices[first..].reverse();
            count = count.checked_add(1).ok_or(Error::TooLarge)?;
        }
        Tensor::new(&self.device()?, &indices, &[count, self.shape().rank() as u32])
    }

    /// Returns the slices of `self` where the boolean `mask` is true. The dimensions of `mask` must equal those of `self` from
    /// `axis` on. In the result, one axis replaces these axes. A negative axis counts from the end.
    ///
    /// Fails if the dimensions differ, or if the mask is a scalar. Fails in a trace if the mask is traced, because the shape of
    /// the result is then unknown. Like `tf.boolean_mask`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # use gradlet_core::tensor::Bool;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[3, 2])?;
    /// let mask = Tensor::new(&device, &[true, false, true].map(Bool::from), &[3])?;
    /// assert_eq!(x.boolean_mask(&mask, 0)?.to_vec::<i32>()?, [1, 2, 5, 6]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn boolean_mask(&self, mask: &Tensor, axis: i32) -> Result<Tensor> {
        let at = crate::ops::shared::reduce::axis(self, axis)? as usize;
        let (before, rest) = self.dims().split_at(at);
        let after = rest.strip_prefix(mask.dims()).filter(|_| mask.dtype() == DType::Bool && mask.shape().rank() > 0);
        let Some(after) = after else {
            let (x, mask) = (self.tensor_type(), mask.tensor_type());
            return Err(Error::message(format!(
                "the mask {mask} does not fit {x} from axis {at} on: expected bool, with the dimensions of these axes"
            )));
        };
        mask.known()?.ok_or_else(|| shape_depends_on_data("boolean_mask"))?;
        let mask = mask.reshape_open(&[-1])?;
        let chosen = mask.where_index()?;
        let flat = self.reshape(&[before, mask.dims(), after].concat())?;
        flat.gather(&chosen.reshape(&[chosen.dims()[0]])?, at as i32)
    }
}

fn shape_depends_on_data(name: &str) -> Error {
    Error::message(format!("the shape of the result of {name} depends on data, so it cannot be traced: call it outside the function"))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{device, tensor};

    fn mask(elements: &[u8], dims: &[u32]) -> Tensor {
        Tensor::new(device(), &elements.iter().copied().map(Bool).collect::<Vec<_>>(), dims).unwrap()
    }

    #[test]
    fn indices_of_what_is_true() {
        let indices = |x: Tensor| x.where_index().map(|y| (y.dims().to_vec(), y.to_vec::<i64>().unwrap())).unwrap();
        assert_eq!(indices(mask(&[0, 1, 9, 0, 0, 1], &[1, 3, 2])), ([3, 3].to_vec(), [0, 0, 1, 0, 1, 0, 0, 2, 1].to_vec()));
        assert_eq!(indices(mask(&[1], &[])), ([1, 0].to_vec(), [].to_vec()));
        assert_eq!(indices(mask(&[], &[2, 0])), ([0, 2].to_vec(), [].to_vec()));
        let floats = Tensor::new(device(), &[f32::NAN, 0.0, -0.0, -1.0], &[4]).unwrap();
        assert_eq!(indices(floats), ([2, 1].to_vec(), [0, 3].to_vec()));
    }

    #[test]
    fn masks_of_some_axes() {
        let x = tensor(&[2, 3, 2], 1);
        assert_eq!(x.boolean_mask(&mask(&[1, 0, 0, 1, 1, 0], &[2, 3]), 0).unwrap().dims(), [3, 2]);
        assert_eq!(x.boolean_mask(&mask(&[1, 0, 0, 1, 1, 0], &[3, 2]), -2).unwrap().dims(), [2, 3]);
        assert_eq!(x.boolean_mask(&mask(&[0, 0, 0], &[3]), 1).unwrap().dims(), [2, 0, 2]);
        assert!(x.boolean_mask(&mask(&[1, 0], &[2]), 1).is_err());
        assert!(x.boolean_mask(&mask(&[1], &[]), 0).is_err());
        assert!(x.boolean_mask(&Tensor::new(device(), &[1u8, 1], &[2]).unwrap(), 0).is_err());
    }

    /// Under a tape, the mask has a value, and gradients flow. In a trace, a traced mask has no value, so the function fails.
    #[test]
    fn in_every_scope() {
        use crate::{Differentiate, Eager, Function, Scope};
        let scope = Eager::new(device());
        let (x, mask) = (tensor(&[3], 1), mask(&[1, 0, 1], &[3]));
        let tape = scope.tape();
        let watched = tape.watch(&x).unwrap();
        let y = watched.boolean_mask(&mask, 0).unwrap();
        assert_eq!(tape.gradient(&y, &watched).unwrap().unwrap().to_vec::<f64>().unwrap(), [1.0, 0.0, 1.0]);
        let known = mask.clone();
        let chosen = Function::new(move |_: &dyn Scope, x: Tensor| x.boolean_mask(&known, 0));
        assert_eq!(chosen.call(&scope, x.clone()).unwrap().dims(), [2]);
        let unknown = Function::new(|_: &dyn Scope, (x, mask): (Tensor, Tensor)| x.boolean_mask(&mask, 0));
        let refused = unknown.call(&scope, (x, mask)).unwrap_err();
        assert_eq!(
            std::format!("{refused}"),
            "the shape of the result of boolean_mask depends on data, so it cannot be traced: call it outside the function"
        );
    }
}
