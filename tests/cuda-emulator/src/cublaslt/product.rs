//! The work of a product of matrices.

use super::{CublasResult, INVALID_VALUE};
use crate::driver::{Emulator, Stop};
use crate::machine::arithmetic::half::Half;
use crate::machine::arithmetic::packed::{Brain, Short};

/// Element types, as cuBLASLt numbers them.
const F32: i32 = 0;
const F16: i32 = 2;
const BF16: i32 = 14;

/// The layout of matrices that are stored column by column.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Matrix {
    pub dtype: i32,
    pub rows: u64,
    pub columns: u64,
    /// Elements from one column to the next.
    pub leading: u64,
    /// Number of matrices, and elements from one to the next.
    pub count: u64,
    pub stride: u64,
}

impl Matrix {
    /// Returns the size of an element in bytes, if the type is supported.
    pub(super) fn size(&self) -> Option<u64> {
        match self.dtype {
            F32 => Some(4),
            F16 | BF16 => Some(2),
            _ => None,
        }
    }

    /// Returns the number of elements from the first to the last one.
    fn span(&self) -> u64 {
        (self.count - 1) * self.stride + (self.columns - 1) * self.leading + self.rows
    }

    fn at(&self, matrix: u64, row: u64, column: u64) -> usize {
        (matrix * self.stride + column * self.leading + row) as usize
    }

    fn read(&self, bytes: &[u8]) -> Vec<f64> {
        let short = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
        match self.dtype {
            F32 => bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]).into()).collect(),
            F16 => bytes.chunks_exact(2).map(|pair| Half(short(pair)).value()).collect(),
            _ => bytes.chunks_exact(2).map(|pair| Brain(short(pair)).value()).collect(),
        }
    }

    fn write(&self, value: f64, to: &mut [u8]) {
        match self.dtype {
            F32 => to.copy_from_slice(&(value as f32).to_le_bytes()),
            F16 => to.copy_from_slice(&Half::rounded(value).bits().to_le_bytes()),
            _ => to.copy_from_slice(&Brain::rounded(value).bits().to_le_bytes()),
        }
    }
}

/// Products d = op(a) op(b) with a bias for each row.
pub(crate) struct Product {
    pub(super) device: usize,
    pub(super) transposed: [bool; 2],
    pub(super) matrices: [Matrix; 3],
    /// Addresses of the operands and of the result, and of the bias, if there is one.
    pub(super) places: [u64; 3],
    pub(super) bias: Option<u64>,
    /// Nanoseconds that it takes.
    pub(super) time: u64,
}

/// Fails unless the matrices fit each other.
pub(super) fn check(matrices: &[Matrix; 3], transposed: [bool; 2]) -> Result<(), CublasResult> {
    let turned = |matrix: &Matrix, turned: bool| if turned { [matrix.columns, matrix.rows] } else { [matrix.rows, matrix.columns] };
    let ([m, k], [inner, n]) = (turned(&matrices[0], transposed[0]), turned(&matrices[1], transposed[1]));
    let result = &matrices[2];
    let is_whole = |matrix: &Matrix| {
        let plain = matrix.rows > 0 && matrix.columns > 0 && matrix.leading >= matrix.rows;
        plain && matrix.size().is_some() && (matrix.dtype, matrix.count) == (result.dtype, result.count) && matrix.count > 0
    };
    let is_apart = result.count == 1 || result.stride >= result.leading * result.columns;
    let fits = k == inner && turned(result, false) == [m, n] && is_apart && matrices.iter().all(is_whole);
    if fits { Ok(()) } else { Err(INVALID_VALUE) }
}

impl Product {
    /// Returns the addresses that the work uses.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.places.into_iter().chain(self.bias).collect()
    }

    /// Returns the nanoseconds that the work takes.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// Does the work. Sums are exact, and rounded once.
    pub(crate) fn perform(&self, emulator: &mut Emulator) -> Result<(), Stop> {
        let [a, b, d] = self.matrices;
        let (size, is_wrong) = (d.size().unwrap_or(4), emulator.configuration.cublaslt_wrong);
        let mut read = |matrix: &Matrix, address: u64, elements: u64| -> Result<Vec<f64>, Stop> {
            Ok(matrix.read(emulator.memory.read(self.device, address, (elements * size) as usize)?))
        };
        let (left, right) = (read(&a, self.places[0], a.span())?, read(&b, self.places[1], b.span())?);
        let bias = self.bias.map(|address| read(&d, address, d.rows)).transpose()?;
        let result = emulator.memory.write(self.device, self.places[2], (d.span() * size) as usize)?;
        let depth = if self.transposed[0] { a.rows } else { a.columns };
        for matrix in 0..d.count {
            for (row, column) in (0..d.rows).flat_map(|row| (0..d.columns).map(move |column| (row, column))) {
                let factors = |p: u64| {
                    let in_a = if self.transposed[0] { a.at(matrix, p, row) } else { a.at(matrix, row, p) };
                    let in_b = if self.transposed[1] { b.at(matrix, column, p) } else { b.at(matrix, p, column) };
                    left[in_a] * right[in_b]
                };
                let sum = (0..depth).map(factors).sum::<f64>() + bias.as_ref().map_or(0.0, |bias| bias[row as usize]);
                let at = d.at(matrix, row, column) * size as usize;
                let fault = if is_wrong && at == 0 { 1.0 } else { 0.0 };
                d.write(sum + fault, &mut result[at..at + size as usize]);
            }
        }
        Ok(())
    }
}
