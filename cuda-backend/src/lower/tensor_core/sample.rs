//! Products with a known result, with which a device checks the kernels on tensor cores, and cuBLASLt, before it uses them.

use super::launches;
use super::plan::{Plan, Tile};
use super::problem::Problem;
use crate::lower::call::KernelCall;
use crate::lower::product::Product;
use crate::lower::{Job, Target, TensorCores};
use gradlet_core::ops::matmul;
use gradlet_core::{DType, Error, Result, Shape, TensorType};

/// Sizes m, k and n of the products: no multiples of a tile or of a stage.
const SIZES: [u32; 3] = [72, 104, 136];

/// A product of f16.
pub(crate) struct Sample<W> {
    /// The work that computes it.
    pub work: W,
    /// The elements of the operands.
    pub operands: [Vec<u16>; 2],
    /// The elements of the right result.
    pub result: Vec<u16>,
}

/// The kernels that a product checks, and its launches.
pub(crate) type Checked = (TensorCores, Vec<KernelCall>);

/// Returns the products that check the kernels which `target` may use, those for warps first. There are none for GPUs without tensor cores.
pub(crate) fn samples(target: &Target) -> Result<Vec<Sample<Checked>>> {
    let all = [
        (TensorCores::Warps, Tile::SMALL, [false, false]),
        (TensorCores::Warpgroups, Tile::LARGE_GROUPS, [false, false]),
        (TensorCores::Warpgroups, Tile::LARGE_GROUPS, [false, true]),
        (TensorCores::Warpgroups, Tile::LARGE_GROUPS, [true, false]),
    ];
    let wanted = all.into_iter().filter(|(level, ..)| *level <= target.tensor_cores);
    let work = |level, tile| move |job: &Job<'_>| Ok((level, launches(job, &Problem::new(job)?, Plan { tile, parts: 1 })));
    wanted.map(|(level, tile, flipped)| sample(target, flipped, work(level, tile))).collect()
}

/// Returns the products that check cuBLASLt.
pub(crate) fn products(target: &Target) -> Result<Vec<Sample<Product>>> {
    let product = |job: &Job<'_>| Product::of(job)?.ok_or(Error::Internal);
    [[false, false], [false, true], [true, false], [true, true]].into_iter().map(|flipped| sample(target, flipped, product)).collect()
}

fn sample<W>(target: &Target, flipped: [bool; 2], work: impl FnOnce(&Job<'_>) -> Result<W>) -> Result<Sample<W>> {
    let [m, k, n] = SIZES;
    let of = |dims: [u32; 2], flip: bool| Ok(TensorType::new(DType::F16, Shape::new(&if flip { [dims[1], dims[0]] } else { dims })?));
    let (inputs, outputs) = ([of([m, k], flipped[0])?, of([k, n], flipped[1])?], [of([m, n], false)?]);
    let attributes = flipped.map(u32::from);
    let job = Job { op: &matmul::DEF, attributes: &attributes, inputs: &inputs, outputs: &outputs, target: *target };
    let work = work(&job)?;
    let (a, b) = (|row: u32, p: u32| small(row * 7 + p * 3), |p: u32, column: u32| small(p * 11 + column * 5 + 1));
    let stored = |rows: u32, columns: u32, flip: bool, element: &dyn Fn(u32, u32) -> i32| {
        let (outer, inner) = if flip { (columns, rows) } else { (rows, columns) };
        let at = move |i, j| if flip { element(j, i) } else { element(i, j) };
        (0..outer).flat_map(|i| (0..inner).map(move |j| (i, j))).map(|(i, j)| f16(at(i, j))).collect::<Vec<_>>()
    };
    let result = stored(m, n, false, &|row, column| (0..k).map(|p| a(row, p) * b(p, column)).sum());
    Ok(Sample { work, operands: [stored(m, k, flipped[0], &a), stored(k, n, flipped[1], &b)], result })
}

/// Returns an integer from -2 to 2. Sums of products of such numbers are exact in f16.
fn small(seed: u32) -> i32 {
    (seed.wrapping_mul(0x9e37_79b9) >> 16) as i32 % 5 - 2
}

/// Returns the bits of an integer of at most 11 bits as f16.
fn f16(value: i32) -> u16 {
    let sign = if value < 0 { 0x8000 } else { 0 };
    match value.unsigned_abs().checked_ilog2() {
        None => 0,
        Some(power) => sign | ((15 + power) << 10) as u16 | ((value.unsigned_abs() << 10 >> power) & 0x3ff) as u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_f16() {
        assert_eq!([0, 1, -2, 3, 416, -2047].map(f16), [0, 0x3c00, 0xc000, 0x4200, 0x5e80, 0xe7ff]);
    }

    #[test]
    fn each_level_has_samples() {
        let levels =
            |tensor_cores| samples(&Target { tensor_cores, ..Target::ORIN }).unwrap().iter().map(|one| one.work.0).collect::<Vec<_>>();
        assert_eq!(levels(TensorCores::None), []);
        assert_eq!(levels(TensorCores::Warps), [TensorCores::Warps]);
        assert_eq!(levels(TensorCores::Warpgroups).len(), 4);
        let first = samples(&Target::ORIN).unwrap().remove(0);
        assert!(first.result.iter().any(|&bits| bits != first.result[0]) && first.operands[0].len() == 72 * 104);
    }
}
