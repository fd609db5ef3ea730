//! String tensors, as TensorFlow has them.

use bytes::Bytes;
use gradlet_core::{Error, Result, Shape};

/// A tensor of byte strings, in row-major order. A clone shares the memory of the strings.
///
/// ```
/// use gradlet::tensor::Strings;
/// let names = Strings::vector(["cat", "dog"]);
/// assert_eq!(names.dims(), [2]);
/// assert_eq!(&names.values()[1][..], b"dog");
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "tf.strings")]
pub struct Strings {
    shape: Shape,
    values: Vec<Bytes>,
}

impl Strings {
    /// Creates a tensor of the shape `dims`. Fails if the shape does not have as many elements as there are strings.
    pub fn new(values: Vec<Bytes>, dims: &[u32]) -> Result<Strings> {
        let shape = Shape::new(dims)?;
        match shape.elements() == Some(values.len()) {
            true => Ok(Strings { shape, values }),
            false => Err(Error::message(format!("{} strings do not make a tensor of strings {shape}", values.len()))),
        }
    }

    /// Creates a scalar from one string.
    pub fn scalar(value: impl Into<Bytes>) -> Strings {
        Strings { shape: Shape::SCALAR, values: vec![value.into()] }
    }

    /// Creates a tensor of one dimension.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 2^32 - 1 strings.
    pub fn vector(values: impl IntoIterator<Item = impl Into<Bytes>>) -> Strings {
        let values: Vec<Bytes> = values.into_iter().map(Into::into).collect();
        let count = u32::try_from(values.len()).expect("fewer than 2^32 strings");
        Strings { shape: Shape::new(&[count]).unwrap_or(Shape::SCALAR), values }
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        self.shape.dims()
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the strings, in row-major order.
    pub fn values(&self) -> &[Bytes] {
        &self.values
    }

    /// Returns the strings, in row-major order.
    pub fn into_values(self) -> Vec<Bytes> {
        self.values
    }

    /// Returns the only string. Fails if there is not exactly one.
    pub fn item(&self) -> Result<&Bytes> {
        match self.values.as_slice() {
            [item] => Ok(item),
            _ => Err(Error::message(format!("item() needs exactly one string, but the shape is {}", self.shape))),
        }
    }
}

impl From<&str> for Strings {
    fn from(text: &str) -> Strings {
        Strings::scalar(text.to_string())
    }
}

impl From<String> for Strings {
    fn from(text: String) -> Strings {
        Strings::scalar(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_and_shape_must_agree() {
        let two = || vec![Bytes::from_static(b"a"), Bytes::new()];
        assert_eq!(Strings::new(two(), &[2, 1]).unwrap().dims(), [2, 1]);
        assert!(Strings::new(two(), &[3]).is_err());
        assert!(Strings::new(two(), &[u32::MAX, u32::MAX]).is_err());
        assert!(Strings::vector(two()).item().is_err());
        assert_eq!(Strings::scalar("x").item().unwrap(), "x");
    }
}
