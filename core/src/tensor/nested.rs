//! Conversion between nested arrays and tensors.

use crate::base::dtype::{Bool, Element};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use alloc::format;
use alloc::vec::Vec;

/// Element, or arrays or vectors of elements, nested as deep as the tensor has axes.
pub trait Nested: Sized {
    /// Element type of the tensor.
    type Element: Element;
    /// Appends the dimensions of the value to `dims`, outermost first.
    fn dims(&self, dims: &mut Vec<u32>);
    /// Appends the elements to `elements` in row-major order. `dims` are the dimensions of the value. Fails if arrays or vectors at
    /// the same level have different lengths.
    fn flatten(self, dims: &[u32], elements: &mut Vec<Self::Element>) -> Result<()>;
}

/// Arrays with dimensions fixed by their type, into which a tensor can be converted.
pub trait NestedArray: Nested {
    /// Appends the dimensions of the type to `dims`, outermost first.
    fn fixed_dims(dims: &mut Vec<u32>);
    /// Builds a value from the next elements. Returns `None` if there are too few.
    fn take(elements: &mut dyn Iterator<Item = Self::Element>) -> Option<Self>;
}

macro_rules! scalars {
    ($($ty:ty => $element:ty, $store:expr, $load:expr;)*) => {$(
        impl Nested for $ty {
            type Element = $element;
            fn dims(&self, _: &mut Vec<u32>) {}
            fn flatten(self, _: &[u32], elements: &mut Vec<$element>) -> Result<()> {
                elements.push($store(self));
                Ok(())
            }
        }

        impl NestedArray for $ty {
            fn fixed_dims(_: &mut Vec<u32>) {}
            fn take(elements: &mut dyn Iterator<Item = $element>) -> Option<$ty> {
                elements.next().map($load)
            }
        }
    )*};
    ($($ty:ty)*) => { scalars! { $($ty => $ty, |x| x, |x| x;)* } };
}
scalars! { f32 f64 half::f16 half::bf16 i8 u8 i32 i64 }
scalars! { bool => Bool, Bool::from, Bool::get; }

/// Appends the elements of all items of a list. `dims` are the dimensions of the whole list. Fails if an item has other dimensions
/// than `dims` without the first one.
fn flatten<N: Nested>(parts: impl Iterator<Item = N>, dims: &[u32], elements: &mut Vec<N::Element>) -> Result<()> {
    let inner = dims.get(1..).unwrap_or(&[]);
    for (index, part) in parts.enumerate() {
        let mut own = Vec::new();
        part.dims(&mut own);
        if own != inner {
            return Err(Error::message(format!("item 0 of a nested list has the dimensions {inner:?}, but item {index} has {own:?}")));
        }
        part.flatten(inner, elements)?;
    }
    Ok(())
}

impl<N: Nested, const COUNT: usize> Nested for [N; COUNT] {
    type Element = N::Element;
    fn dims(&self, dims: &mut Vec<u32>) {
        dims.push(COUNT as u32);
        self.iter().take(1).for_each(|part| part.dims(dims));
    }
    fn flatten(self, dims: &[u32], elements: &mut Vec<N::Element>) -> Result<()> {
        flatten(self.into_iter(), dims, elements)
    }
}

impl<N: NestedArray, const COUNT: usize> NestedArray for [N; COUNT] {
    fn fixed_dims(dims: &mut Vec<u32>) {
        dims.push(COUNT as u32);
        N::fixed_dims(dims);
    }
    fn take(elements: &mut dyn Iterator<Item = N::Element>) -> Option<[N; COUNT]> {
        let parts: Vec<N> = (0..COUNT).map_while(|_| N::take(elements)).collect();
        parts.try_into().ok()
    }
}

impl<N: Nested> Nested for Vec<N> {
    type Element = N::Element;
    fn dims(&self, dims: &mut Vec<u32>) {
        dims.push(self.len() as u32);
        self.iter().take(1).for_each(|part| part.dims(dims));
    }
    fn flatten(self, dims: &[u32], elements: &mut Vec<N::Element>) -> Result<()> {
        flatten(self.into_iter(), dims, elements)
    }
}

impl Tensor {
    /// Creates a tensor on `device` from nested arrays or vectors, like TensorFlow's `constant`.
    ///
    /// Fails if vectors at the same level have different lengths.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::constant(&device, [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// assert_eq!(x.dims(), [2, 3]);
    /// assert_eq!(x.add(&x)?.to_nested::<[[f32; 3]; 2]>()?, [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]);
    /// let mask = Tensor::constant(&device, vec![true, false])?;
    /// assert_eq!(mask.to_nested::<[bool; 2]>()?, [true, false]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn constant<N: Nested>(device: &Device, value: N) -> Result<Tensor> {
        let (mut dims, mut elements) = (Vec::new(), Vec::new());
        value.dims(&mut dims);
        value.flatten(&dims, &mut elements)?;
        Tensor::new(device, &elements, &dims)
    }

    /// Returns the value as nested arrays. Fails like [`Tensor::to_vec`], and if the arrays have other dimensions.
    pub fn to_nested<N: NestedArray>(&self) -> Result<N> {
        let mut dims = Vec::new();
        N::fixed_dims(&mut dims);
        let elements = self.to_vec::<N::Element>()?;
        let wrong = || Error::message(format!("a {} tensor cannot become nested arrays with the dimensions {dims:?}", self.tensor_type()));
        if dims != self.dims() {
            return Err(wrong());
        }
        N::take(&mut elements.into_iter()).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use crate::ops::portable_cpu;
    use crate::tensor::Tensor;
    use std::string::ToString;
    use std::vec;

    #[test]
    fn ragged_lists_and_other_shapes_are_refused() {
        let device = portable_cpu();
        let error = Tensor::constant(&device, vec![vec![1, 2], vec![3]]).unwrap_err().to_string();
        assert!(error.contains("[2]") && error.contains("item 1") && error.contains("[1]"), "{error}");
        let x = Tensor::constant(&device, [[1i64, 2]]).unwrap();
        let error = x.to_nested::<[i64; 2]>().unwrap_err().to_string();
        assert!(error.contains("i64[1,2]") && error.contains("[2]"), "{error}");
        assert!(x.to_nested::<[[i32; 2]; 1]>().is_err());
    }

    #[test]
    fn scalars_and_empty_lists() {
        let device = portable_cpu();
        assert_eq!(Tensor::constant(&device, 2.5f64).unwrap().to_nested::<f64>(), Ok(2.5));
        let empty = Tensor::constant(&device, [[0.0f32; 0]; 3]).unwrap();
        assert_eq!(empty.dims(), [3, 0]);
        assert_eq!(empty.to_nested::<[[f32; 0]; 3]>(), Ok([[]; 3]));
        assert_eq!(Tensor::constant(&device, vec![0u8; 0]).unwrap().dims(), [0]);
    }
}
