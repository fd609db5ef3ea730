//! The bit-exact reference of 16-bit floats. It is a device that computes each op with the f32 kernels of another device, and
//! rounds the results once to a 16-bit type. The rounded results are stored as f32, so any body runs on it. It does not use
//! gradlet's own 16-bit types.

use crate::golden::case::ulp;
use crate::random::Random;
use gradlet_core::custom_op::{Call, Kernel, OpDef, Slice};
use gradlet_core::device::{AlignedBytes, Backend};
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{DType, Device, Error, Result};
use std::sync::Mutex;

/// Returns a device with the kernels of `device`, which rounds every f32 element to the nearest float of type `to`.
pub fn rounded(device: &Device, to: DType) -> Device {
    Device::new(Rounded { device: device.clone(), to, dice: None })
}

/// Like [`rounded`], but rounds each result randomly up or down. The change of an output shows the effect of rounding on it.
pub fn jittered(device: &Device, to: DType, seed: u64) -> Device {
    Device::new(Rounded { device: device.clone(), to, dice: Some(Mutex::new(Random::new(seed))) })
}

struct Rounded {
    device: Device,
    to: DType,
    dice: Option<Mutex<Random>>,
}

impl Backend for Rounded {
    fn name(&self) -> &str {
        "rounded CPU:0"
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        let dtype = call.inputs.first().map(|view| view.dtype()).or(call.outputs.first().map(|view| view.dtype()));
        let dtype = dtype.ok_or(Error::Arity { got: 0 })?;
        let fits = |kernel: &&&Kernel| kernel.def.code == def.code && kernel.dtype == dtype;
        let kernel = self.device.kernels().iter().find(fits).ok_or(Error::NoKernel { op: def.name, dtype })?;
        // Round the inputs too, because constants come from elsewhere.
        let narrow = |view: &TensorView<'_>| match view.dtype() {
            DType::F32 => view.data.map(|bytes| self.narrowed(bytes)),
            _ => view.data.map(AlignedBytes::from),
        };
        let owned: Vec<Option<AlignedBytes>> = call.inputs.iter().map(narrow).collect();
        let views = call.inputs.iter().zip(&owned);
        let inputs: Vec<_> = views.map(|(view, bytes)| TensorView { tensor_type: view.tensor_type, data: bytes.as_deref() }).collect();
        let outputs = call.outputs.iter_mut().map(|output| TensorViewMut { tensor_type: output.tensor_type, data: &mut *output.data });
        let mut outputs: Vec<_> = outputs.collect();
        (kernel.run)(&mut Call { attributes: call.attributes, inputs: &inputs, outputs: &mut outputs, slice: &mut Slice::all() })?;
        for output in outputs.iter_mut().filter(|output| output.dtype() == DType::F32) {
            output.slice_mut::<f32>().iter_mut().for_each(|x| *x = self.result(*x));
        }
        Ok(())
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.device.has_kernel(def, dtype)
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.device.kernels()
    }
}

impl Rounded {
    fn result(&self, x: f32) -> f32 {
        let nearest = round(self.to, x);
        let Some(Ok(mut dice)) = self.dice.as_ref().map(Mutex::lock) else { return nearest };
        if nearest == x || !nearest.is_finite() || dice.coin() {
            return nearest;
        }
        // The other neighbour is on the other side of x, one unit away.
        let unit = ulp(self.to, nearest.into()) as f32;
        if nearest < x { nearest + unit } else { nearest - unit }
    }

    fn narrowed(&self, bytes: &[u8]) -> AlignedBytes {
        let mut copy = AlignedBytes::from(bytes);
        bytemuck::cast_slice_mut::<u8, f32>(&mut copy).iter_mut().for_each(|x| *x = round(self.to, *x));
        copy
    }
}

/// Rounds `x` to the nearest float of type `to`, with ties to even. The code is independent of gradlet's casts.
pub fn round(to: DType, x: f32) -> f32 {
    // Bits of the fraction, smallest exponent, largest number.
    let (digits, least, greatest) = match to {
        DType::F16 => (10, -14, 65504.0),
        DType::Bf16 => (7, -126, f64::from(f32::from_bits(0x7f7f_0000))),
        _ => return x,
    };
    let wide = f64::from(x);
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    let unit = f64::powi(2.0, (wide.abs().log2().floor() as i32).max(least) - digits);
    let nearest = (wide / unit).round_ties_even() * unit;
    let infinite = nearest.abs() > greatest;
    if infinite { f32::INFINITY.copysign(x) } else { (nearest as f32).copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn rounds_as_the_types_do() {
        let mut bits = 0u32;
        // About 140,000 bit patterns of all magnitudes, and the patterns at and next to ties.
        while let Some(next) = bits.checked_add(30_211) {
            for near in [bits, bits & !0x1fff | 0x1000, bits & !0xffff | 0x8000, (bits & !0xffff | 0x8000) + 1] {
                let x = f32::from_bits(near);
                for (to, wanted) in [(DType::F16, f16::from_f32(x).to_f32()), (DType::Bf16, bf16::from_f32(x).to_f32())] {
                    let got = round(to, x);
                    assert!(got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan(), "{x:e} to {to}: {got:e}, {wanted:e}");
                }
            }
            bits = next;
        }
    }
}
