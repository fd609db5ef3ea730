//! Packing of constant filters: the constants of packed ops.

use crate::base::error::Result;
use crate::ops::shared::fixed_point::Multiplier;
use crate::ops::shared::packed::Channel;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use alloc::vec::Vec;

/// A packed op: its attribute words and its constants.
pub(crate) struct Packed {
    pub(crate) attributes: Vec<u32>,
    /// The filter and the constants of the channels, or one tensor with both.
    pub(crate) constants: Vec<Tensor>,
}

/// A node that may be packed: an op on a quantised tensor with a constant filter.
pub(crate) struct Constants<'a> {
    /// The attribute words of the op.
    pub(crate) attributes: &'a [u32],
    /// Dimensions of x and of the filter.
    pub(crate) dims: [&'a [u32]; 2],
    pub(crate) filter: &'a [i8],
    pub(crate) bias: &'a [i32],
    /// A multiplier for each channel, or one for all.
    pub(crate) multipliers: &'a [Multiplier],
    /// The device of the new constants.
    pub(crate) device: &'a Device,
}

/// How an op converts its sums.
pub(in crate::ops) struct Conversion {
    /// Zero points of x and of the result.
    pub(in crate::ops) zero_points: [i32; 2],
    /// Number of roundings: 1 or 2.
    pub(in crate::ops) roundings: u32,
    /// The sizes of a channel's weights must have a sum below this.
    pub(in crate::ops) most: i64,
}

impl Constants<'_> {
    /// Returns the constants of a channel, whose filter has these weights. Returns `None` if the packed op would not have the same bits.
    pub(in crate::ops) fn channel(&self, index: usize, weights: impl Iterator<Item = i8>, conversion: &Conversion) -> Option<Channel> {
        let ([zero, offset], bias) = (conversion.zero_points, i64::from(*self.bias.get(index)?));
        let multiplier = self.multipliers.get(index).or(self.multipliers.first()).copied();
        let multiplier = multiplier.filter(|multiplier| multiplier.is_valid() && multiplier.exponent <= 0)?;
        let (mut sum, mut size, mut least, mut greatest) = (0, 0, bias, bias);
        for weight in weights.map(i64::from) {
            let ends = [weight * i64::from(-128 - zero), weight * i64::from(127 - zero)];
            (sum, size) = (sum + weight, size + weight.abs());
            (least, greatest) = (least + ends[0].min(ends[1]), greatest + ends[0].max(ends[1]));
        }
        let (least, greatest) = (i32::try_from(least).ok()?, i32::try_from(greatest).ok()?);
        let scaled = |sum| if conversion.roundings == 1 { multiplier.once(sum) } else { multiplier.twice(sum) };
        let result = |sum| scaled(sum).saturating_add(offset).clamp(-128, 127);
        if result(least) == result(greatest) {
            return Some(Channel { bias: 0, multiplier: 0, offset: result(least) << 1, shift: 1 });
        }
        // Kernels double a sum.
        let doubled = |sum: i64| i32::try_from(sum * 2).ok();
        let (_, _, bias) = (doubled(least.into())?, doubled(greatest.into())?, doubled(bias - i64::from(zero) * sum)?);
        let shift = u32::try_from(-multiplier.exponent).ok().filter(|shift| (1..=23).contains(shift) && size < conversion.most)?;
        Some(Channel { bias, multiplier: multiplier.value, offset: (1 << (shift - 1)) + (offset << shift), shift })
    }

    /// Returns an i32 constant.
    pub(in crate::ops) fn words<T: bytemuck::NoUninit>(&self, values: &[T], dims: &[usize]) -> Result<Tensor> {
        let dims: Vec<u32> = dims.iter().map(|&dim| dim as u32).collect();
        Tensor::new::<i32>(self.device, bytemuck::cast_slice(values), &dims)
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::base::op::Kernel;
    use crate::ops::conv2d::tests::words;
    use crate::ops::quantized_conv2d::tests::integers;
    use crate::ops::shared::testing::{Value, device, run_every_way};

    /// Runs an op and its packed form on the same pseudo-random operands, whose filter has `channels` channels. Asserts that both give the
    /// same bits. Returns false if the op has no packed form. The weights are at most `size`.
    pub(in crate::ops) fn same_bits(
        [kernel, packed]: [&Kernel; 2],
        pack: fn(&Constants<'_>) -> Option<Packed>,
        attributes: impl bytemuck::Pod,
        [x_dims, filter_dims]: [&[u32]; 2],
        channels: u32,
        size: f64,
    ) -> bool {
        let narrow = |of: &[i32]| of.iter().map(|&x| x as i8).collect::<Vec<_>>();
        let (x, filter) = (narrow(&integers(x_dims, 1, 31.9)), narrow(&integers(filter_dims, 2, size / 4.0)));
        let bias = integers(&[channels], 3, 900.0);
        let multiplier = |&x: &i32| Multiplier { value: (1 << 30) | x.wrapping_abs(), exponent: -1 - (x & 15) };
        let multipliers: Vec<Multiplier> = integers(&[channels], 4, 1e8).iter().map(multiplier).collect();
        let attributes = words(attributes);
        let dims = [x_dims, filter_dims];
        let constants =
            Constants { attributes: &attributes, dims, filter: &filter, bias: &bias, multipliers: &multipliers, device: device() };
        let Some(form) = pack(&constants) else { return false };
        let x = Value::new(&x, x_dims);
        let operands = form.constants.iter().map(|constant| match constant.dtype() {
            crate::DType::I8 => Value::new(&constant.to_vec::<i8>().unwrap(), constant.dims()),
            _ => Value::new(&constant.to_vec::<i32>().unwrap(), constant.dims()),
        });
        let operands: Vec<Value> = operands.collect();
        let got = run_every_way(packed, &form.attributes, &core::iter::once(&x).chain(&operands).collect::<Vec<_>>());
        let pairs = Value::new::<i32>(bytemuck::cast_slice(&multipliers), &[channels, 2]);
        let want = run_every_way(kernel, &attributes, &[&x, &Value::new(&filter, filter_dims), &Value::new(&bias, &[channels]), &pairs]);
        assert!(got[0] == want[0], "{x_dims:?} {filter_dims:?} {attributes:?}: {:?}, not {:?}", got[0], want[0]);
        true
    }

    #[test]
    fn results_that_cannot_have_the_same_bits_are_not_packed() {
        let of = |filter: &'static [i8], exponent: i32, most: i64| {
            let multipliers = [Multiplier { value: 1 << 30, exponent }];
            let constants =
                Constants { attributes: &[], dims: [&[], &[]], filter, bias: &[7], multipliers: &multipliers, device: device() };
            constants.channel(0, filter.iter().copied(), &Conversion { zero_points: [-128, 3], roundings: 2, most })
        };
        let channel = Channel { bias: 2 * (7 + 128 * 22), multiplier: 1 << 30, offset: 4 + 3 * 8, shift: 3 };
        assert_eq!(of(&[20, 2], -3, 23), Some(channel));
        assert_eq!(of(&[20, 2], -3, 22), None);
        assert_eq!(of(&[20, 2], 0, 23), None);
        assert_eq!(of(&[20, 2], -24, 23), Some(Channel { bias: 0, multiplier: 0, offset: 3 << 1, shift: 1 }));
    }
}
