//! `ldmatrix`.

use super::{code::MatrixLoad, converged, numbers::place};
use crate::machine::{
    engine::{Engine, Outcome, stop},
    memory::{FaultKind, Memory},
    registers::{FULL, LANES, lanes},
    spaces::{Kind, ROW},
    transfer::{Pattern, Reach},
    warp::Warp,
};

/// Rows of a matrix.
const ROWS: usize = 8;

impl<M: Memory> Engine<'_, M> {
    /// Loads matrices of 8 × 8 numbers of 16 bits. Lane `8m + r` has the address of row `r` of matrix `m`.
    pub fn load_matrix(&mut self, warp: &mut Warp, load: &MatrixLoad, active: u32) -> Outcome<()> {
        converged(active)?;
        let rows = FULL >> (LANES - ROWS * load.to.len());
        let mut addresses = [0; LANES];
        Self::addresses(warp, &load.address, rows, &mut addresses)?;
        if let Some(lane) = lanes(rows).find(|lane| addresses[*lane] % ROW as u64 != 0) {
            let text = format!("a row of a matrix at {:#x}, which is no multiple of {ROW}", addresses[lane]);
            return stop(lane, FaultKind::Misaligned, text);
        }
        let reach = Reach { addresses: &addresses, length: ROW, active: rows, pattern: Pattern::Any };
        self.check_shared(warp, reach, Kind::Read)?;
        for (matrix, register) in load.to.iter().enumerate() {
            let number = |row: usize, column: usize| {
                let at = addresses[matrix * ROWS + row] as usize + 2 * column;
                u32::from(u16::from_le_bytes([self.shared.bytes[at], self.shared.bytes[at + 1]]))
            };
            let words = std::array::from_fn(|lane| {
                let (row, pair) = place(lane);
                let part = |index| if load.transposed { number(2 * pair + index, row) } else { number(row, 2 * pair + index) };
                part(0) | part(1) << 16
            });
            warp.registers.narrow.set(*register, words, FULL, FULL);
        }
        Ok(())
    }
}
