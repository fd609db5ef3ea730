//! Strings in a shape: what TensorFlow calls a tensor of strings.

use bytes::Bytes;
use gradlet_core::{Error, Result, Shape};

/// Byte strings in a shape, in row-major order: a tensor of strings. A clone shares the memory of its strings.
///
/// ```
/// use gradlet::Strings;
/// let names = Strings::vector(["cat", "dog"]);
/// assert_eq!(names.dims(), [2]);
/// assert_eq!(&names.values()[1][..], b"dog");
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strings {
    shape: Shape,
    values: Vec<Bytes>,
}

impl Strings {
    /// Strings in the shape `dims`. Fails where the shape does not have as many elements as there are strings.
    pub fn new(values: Vec<Bytes>, dims: &[u32]) -> Result<Strings> {
        let shape = Shape::new(dims)?;
        match shape.elements() {
            Some(elements) if elements as usize == values.len() => Ok(Strings { shape, values }),
            _ => Err(Error::message(format!("{} strings do not make a tensor of strings {shape}", values.len()))),
        }
    }

    /// One string, without dimensions.
    pub fn scalar(value: impl Into<Bytes>) -> Strings {
        Strings { shape: Shape::SCALAR, values: vec![value.into()] }
    }

    /// Strings in one dimension.
    ///
    /// # Panics
    ///
    /// Panics where there are more than 2^32 - 1 of them.
    pub fn vector(values: impl IntoIterator<Item = impl Into<Bytes>>) -> Strings {
        let values: Vec<Bytes> = values.into_iter().map(Into::into).collect();
        let count = u32::try_from(values.len()).expect("fewer than 2^32 strings");
        Strings { shape: Shape::new(&[count]).unwrap_or(Shape::SCALAR), values }
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        self.shape.dims()
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The strings, in row-major order.
    pub fn values(&self) -> &[Bytes] {
        &self.values
    }

    /// The strings, in row-major order.
    pub fn into_values(self) -> Vec<Bytes> {
        self.values
    }

    /// The only string. Fails where there is not exactly one.
    pub fn item(&self) -> Result<&Bytes> {
        match self.values.as_slice() {
            [item] => Ok(item),
            _ => Err(Error::message(format!("item() needs one element, there are strings {}", self.shape))),
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
