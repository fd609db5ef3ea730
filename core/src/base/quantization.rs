//! Scales and zero points: the real numbers for which the integers of a quantised tensor stand.

use crate::base::dtype::DType;
#[cfg(feature = "alloc")]
use crate::base::error::{Error, Result};
#[cfg(feature = "alloc")]
use crate::base::shape::{Shape, TensorType};
#[cfg(feature = "alloc")]
use alloc::{format, vec::Vec};
use core::fmt;

/// Scale and zero point of a whole tensor: an element `q` stands for the real number `scale · (q − zero_point)`.
///
/// ```
/// let of_pixels = gradlet_core::Quantization { scale: 0.5, zero_point: -128 };
/// assert_eq!(of_pixels.nearest(10.2), -108);
/// assert_eq!(of_pixels.real(-108), 10.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Quantization {
    /// Distance between the real numbers of neighbouring integers. Positive and finite.
    pub scale: f32,
    /// Integer that stands for 0.
    pub zero_point: i32,
}

impl Quantization {
    /// Returns the integer that is nearest to a real number, not limited to any element type. Ties go away from zero, and NaN gives the
    /// zero point.
    pub fn nearest(&self, real: f32) -> i32 {
        (libm::roundf(real / self.scale) as i32).saturating_add(self.zero_point)
    }

    /// Returns the real number for which an integer stands.
    pub fn real(&self, integer: i32) -> f32 {
        self.scale * integer.wrapping_sub(self.zero_point) as f32
    }

    /// Checks that elements of type `dtype` can have this scale and zero point.
    #[cfg(feature = "alloc")]
    pub(crate) fn check(self, dtype: DType) -> Result<()> {
        AffineQuantization::from(self).check(&TensorType::new(dtype, Shape::SCALAR))
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale {}, zero point {}", self.scale, self.zero_point)
    }
}

/// Returns the range of the quantised elements of a type, or `None` if its elements are not quantised.
pub(crate) fn limits(dtype: DType) -> Option<(i32, i32)> {
    Some(match dtype {
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        _ => return None,
    })
}

/// Scales and zero points of a tensor: one pair for all elements, or one for each index of an axis.
///
/// ```
/// use gradlet_core::{AffineQuantization, Quantization};
/// let whole = AffineQuantization::from(Quantization { scale: 0.5, zero_point: 3 });
/// assert_eq!(whole.to_string(), "scale 0.5, zero point 3");
/// let channels = AffineQuantization { axis: 0, scales: vec![0.5, 0.25], zero_points: vec![0, 0] };
/// assert_eq!(channels.to_string(), "2 scales along axis 0");
/// ```
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, PartialEq)]
pub struct AffineQuantization {
    /// Axis of the scales. It does not matter if there is only one.
    pub axis: u32,
    /// One scale, or one for each index of `axis`. Positive and finite.
    pub scales: Vec<f32>,
    /// As many zero points.
    pub zero_points: Vec<i32>,
}

#[cfg(feature = "alloc")]
impl AffineQuantization {
    /// Returns the scale and zero point of all elements, or `None` if there are several.
    pub fn single(&self) -> Option<Quantization> {
        match (&self.scales[..], &self.zero_points[..]) {
            (&[scale], &[zero_point]) => Some(Quantization { scale, zero_point }),
            _ => None,
        }
    }

    /// Checks that a tensor of this type can have these scales and zero points.
    pub(crate) fn check(&self, tensor_type: &TensorType) -> Result<()> {
        let (scales, zero_points) = (self.scales.len(), self.zero_points.len());
        let range = limits(tensor_type.dtype).or((tensor_type.dtype == DType::I32).then_some((i32::MIN, i32::MAX)));
        let Some((least, greatest)) = range else {
            return Err(Error::message(format!("a quantised tensor is i8, u8, i16 or i32, not {}", tensor_type.dtype)));
        };
        if scales != 1 && tensor_type.shape.dims().get(self.axis as usize) != Some(&(scales as u32)) {
            return Err(Error::message(format!("{tensor_type} cannot have {scales} scales along axis {}", self.axis)));
        }
        if zero_points != scales {
            return Err(Error::message(format!("{scales} scales need as many zero points, not {zero_points}")));
        }
        if let Some(scale) = self.scales.iter().find(|&&scale| !(scale > 0.0 && scale.is_finite())) {
            return Err(Error::message(format!("a scale must be positive and finite, not {scale}")));
        }
        match self.zero_points.iter().find(|zero_point| !(least..=greatest).contains(zero_point)) {
            Some(zero_point) => {
                let dtype = tensor_type.dtype;
                Err(Error::message(format!("the zero point of {dtype} must be from {least} to {greatest}, not {zero_point}")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(feature = "alloc")]
impl From<Quantization> for AffineQuantization {
    fn from(Quantization { scale, zero_point }: Quantization) -> AffineQuantization {
        AffineQuantization { axis: 0, scales: alloc::vec![scale], zero_points: alloc::vec![zero_point] }
    }
}

#[cfg(feature = "alloc")]
impl fmt::Display for AffineQuantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(single) => single.fmt(f),
            None => write!(f, "{} scales along axis {}", self.scales.len(), self.axis),
        }
    }
}
