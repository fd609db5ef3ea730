//! Resizing of images with TensorFlow Lite's three positions of pixels.

use gradlet_core::ops::quantized_resize_bilinear::Centres;
use gradlet_core::{Result, Tensor};

/// Reads the options of an operator.
pub(super) fn centres(align_corners: bool, half_pixel_centers: bool) -> Centres {
    match (align_corners, half_pixel_centers) {
        (true, _) => Centres::Corners,
        (_, true) => Centres::Half,
        _ => Centres::Whole,
    }
}

/// Returns the distance between neighbouring pixels of the result, in pixels of the image.
fn scale(centres: Centres, from: u32, to: u32) -> f32 {
    match centres {
        Centres::Corners if to > 1 => (from.saturating_sub(1)) as f32 / (to - 1) as f32,
        _ => from as f32 / to as f32,
    }
}

/// Resizes images `[n,h,w,c]` to `size`. Each pixel is the nearest one.
pub(super) fn nearest(x: &Tensor, size: [u32; 2], centres: Centres) -> Result<Tensor> {
    let pick = |x: &Tensor, axis: i32, to: u32| {
        let from = side(x, axis);
        let scale = scale(centres, from, to);
        let at = |at: u32| match centres {
            Centres::Corners => (at as f32 * scale).round(),
            Centres::Half => ((at as f32 + 0.5) * scale).floor(),
            Centres::Whole => (at as f32 * scale).floor(),
        };
        picked(x, axis, (0..to).map(at).map(|at| within(at, from)).collect())
    };
    pick(&pick(x, 1, size[0])?, 2, size[1])
}

/// Resizes images `[n,h,w,c]` to `size`. Each pixel is a mean of the four nearest ones, weighted by distance.
pub(super) fn bilinear(x: &Tensor, size: [u32; 2], centres: Centres) -> Result<Tensor> {
    let blend = |x: &Tensor, axis: i32, to: u32| {
        let from = side(x, axis);
        let scale = scale(centres, from, to);
        let position = |at: u32| match centres {
            Centres::Half => (at as f32 + 0.5) * scale - 0.5,
            _ => at as f32 * scale,
        };
        let lower: Vec<i32> = (0..to).map(|at| within(position(at).floor(), from)).collect();
        let upper = (0..to).map(|at| within(position(at).ceil(), from)).collect();
        let parts: Vec<f32> = (0..to).zip(&lower).map(|(at, &lower)| position(at) - lower as f32).collect();
        let shape: &[u32] = if axis == 1 { &[to, 1, 1] } else { &[to, 1] };
        let part = Tensor::new(&x.device()?, &parts, shape)?;
        let (lower, upper) = (picked(x, axis, lower)?, picked(x, axis, upper)?);
        lower.add(&upper.sub(&lower)?.mul(&part)?)
    };
    blend(&blend(x, 1, size[0])?, 2, size[1])
}

fn side(x: &Tensor, axis: i32) -> u32 {
    x.dims().get(axis as usize).copied().unwrap_or(1)
}

/// Returns a position as the number of a pixel.
fn within(position: f32, count: u32) -> i32 {
    (position as i64).clamp(0, i64::from(count).saturating_sub(1).max(0)) as i32
}

fn picked(x: &Tensor, axis: i32, indices: Vec<i32>) -> Result<Tensor> {
    x.gather(&Tensor::new(&x.device()?, &indices, &[indices.len() as u32])?, axis)
}
