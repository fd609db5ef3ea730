//! Instructions on matrices: `ldmatrix`, `mma` of a warp, `wgmma` of four warps.
//!
//! A product's sum is computed in f64: the factors' products, which are exact there, are added to the accumulator in ascending order of the
//! contraction index, and the sum is rounded to f32 once for each instruction. GPUs round more often, and truncate.

pub mod code;
mod descriptor;
mod load;
mod numbers;
mod product;
mod warpgroup;

pub use product::{COLUMNS, DEPTH, ROWS, Tile, accumulate};
pub use warpgroup::{Products, Warpgroups};

use super::{
    engine::{Outcome, stop},
    memory::FaultKind,
    registers::FULL,
};

/// Checks that all lanes of a warp execute an instruction together.
fn converged(active: u32) -> Outcome<()> {
    if active == FULL {
        return Ok(());
    }
    let lane = (!active).trailing_zeros() as usize;
    stop(lane, FaultKind::WarpDivergence, "it does not take part in an instruction that all lanes of the warp execute together")
}
