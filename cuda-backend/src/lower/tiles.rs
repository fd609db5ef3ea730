//! The tiles in which the kernels of `kernels/tiles.cuh` compute products, and the choice between them.

use super::Target;

/// A tile, which a block computes.
#[derive(Debug, PartialEq)]
pub(super) struct Tile {
    pub rows: u32,
    pub columns: u32,
    /// Number of threads of a block.
    pub threads: u32,
    /// Number of blocks that a multiprocessor has registers for.
    pub resident: u32,
    /// Part of the peak throughput that the loads from shared memory allow.
    pub rate: f64,
    /// True if the kernel itself ends with the steps of optimizers.
    pub steps: bool,
    /// Number of stages of shared memory through which operands come in the background, from compute capability 8.0 on. 0 if they do not.
    pub stages: u32,
}

impl Tile {
    /// Creates a tile of this number of rows and columns, without steps.
    pub(super) const fn new([rows, columns]: [u32; 2], threads: u32, resident: u32, rate: f64) -> Tile {
        Tile { rows, columns, threads, resident, rate, steps: false, stages: 0 }
    }

    /// Returns the tile with operands that come through this number of stages.
    pub(super) const fn through(self, stages: u32) -> Tile {
        Tile { stages, ..self }
    }

    /// Returns the size of the dynamic shared memory of a block in bytes. In a stage, a line is longer by four elements.
    pub(super) const fn shared(&self) -> u32 {
        self.stages * DEPTH as u32 * (self.rows + self.columns + 2 * 4) * 4
    }

    /// Returns the suffix of the names of the kernels.
    pub(super) fn name(&self) -> String {
        format!("{}x{}", self.rows, self.columns)
    }
}

/// A tile with 128 elements for each thread.
pub(super) const WIDE: Tile = Tile::new([128, 256], 256, 1, 0.97).through(3);
/// Tiles with 64 elements for each thread.
pub(super) const SQUARE: Tile = Tile::new([128, 128], 256, 2, 0.95);
pub(super) const TALL: Tile = Tile::new([128, 64], 128, 3, 0.9);
/// Tiles with 32 elements for each thread.
pub(super) const SMALL: Tile = Tile::new([64, 64], 128, 4, 0.75);
pub(super) const NARROW: Tile = Tile::new([128, 32], 128, 4, 0.75);
pub(super) const FLAT: Tile = Tile::new([32, 128], 128, 4, 0.75);

/// The size of products y[m,n] with sums of `k` elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub m: u32,
    pub n: u32,
    pub k: u64,
    /// Number of products.
    pub products: u64,
}

/// How products are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub tile: &'static Tile,
    /// Number of parts of the sums. If there are several, the workspace takes them, and another kernel adds them.
    pub parts: u32,
    /// Number of elements of the sums in each part, a multiple of [`DEPTH`].
    pub each: u64,
}

/// A multiple of the number of elements of the sums that the kernels bring to shared memory at a time.
pub(super) const DEPTH: u64 = 16;
/// Shortest part of a sum.
const SHORTEST: u64 = 64;
/// Largest number of parts.
const MOST: u32 = 64;
/// Number of fused operations in a clock cycle of a multiprocessor.
const OPERATIONS: f64 = 128.;
/// Number of warps that keep a multiprocessor busy with these kernels.
const WARPS: f64 = 8.;
/// Cycles that a block needs for its first loads and for the store of its tile.
const BLOCK: f64 = 1500.;
/// Cycles that another launch costs.
const LAUNCH: f64 = 3000.;
/// Bytes in a clock cycle that a multiprocessor exchanges with the L2 cache.
const BYTES: f64 = 16.;

impl Size {
    /// Returns the number of elements of all products.
    pub(super) fn elements(&self) -> u64 {
        u64::from(self.m).saturating_mul(self.n.into()).saturating_mul(self.products)
    }

    /// Returns the plan of the target's rank. A simple model of the GPU estimates the costs of plans. If `steps` is true, the products end
    /// with the step of an optimizer.
    pub(super) fn plan(&self, tiles: &'static [Tile], steps: bool, target: &Target) -> Plan {
        let most = (self.k / SHORTEST).min(MOST.into()).min(target.workspace / 4 / self.elements().max(1)).max(1) as u32;
        let parts = || (0..=most.ilog2()).map(|power| 1 << power);
        let all = tiles.iter().flat_map(|tile| parts().map(move |parts| self.in_parts(tile, parts)));
        let possible = all.filter(|plan| plan.parts > 1 || plan.tile.steps || !steps);
        let mut plans: Vec<(f64, Plan)> = possible.map(|plan| (self.cycles(&plan, target), plan)).collect();
        plans.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        plans.dedup();
        // One of the tiles ends with steps, so there is always a plan.
        target.pick(&plans).map_or(Plan { tile: &tiles[0], parts: 1, each: self.k }, |(_, plan)| plan)
    }

    fn in_parts(&self, tile: &'static Tile, parts: u32) -> Plan {
        let each = self.k.div_ceil(parts.into()).max(1).next_multiple_of(DEPTH);
        Plan { tile, parts: self.k.div_ceil(each).max(1) as u32, each }
    }

    /// Returns the number of tiles of a product.
    pub(super) fn tiles(&self, tile: &Tile) -> u64 {
        u64::from(self.m.div_ceil(tile.rows)) * u64::from(self.n.div_ceil(tile.columns))
    }

    /// Returns the estimated number of clock cycles of a plan.
    fn cycles(&self, plan: &Plan, target: &Target) -> f64 {
        let Plan { tile, parts, each } = plan;
        let multiprocessors = f64::from(target.multiprocessors.max(1));
        let blocks = self.tiles(tile) as f64 * self.products as f64 * f64::from(*parts);
        let of_each = (blocks / multiprocessors).ceil();
        // A multiprocessor has 1 KiB more than a block may have, and takes 1 KiB for each block.
        let room = (target.shared + 1024) / (tile.shared() + 1024);
        let resident = of_each.min(tile.resident.min(room.max(1)).into());
        let busy = (resident * f64::from(tile.threads) / 32. / WARPS).min(1.);
        let operations = of_each * f64::from(tile.rows) * f64::from(tile.columns) * (*each).min(self.k.next_multiple_of(8)) as f64;
        let products = operations / (OPERATIONS * tile.rate * busy) + BLOCK * (of_each / resident).ceil();
        let sums = LAUNCH + self.elements() as f64 * f64::from(parts + 1) * 4. / (BYTES * multiprocessors);
        if *parts > 1 { products + sums } else { products }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gemm::{TILES, TILES_80};
    use super::*;

    /// Returns the tile and the number of parts on a GPU with this number of multiprocessors, which copies nothing in the background.
    fn plan([m, k, n]: [u32; 3], products: u64, multiprocessors: u32) -> (String, u32) {
        let target = Target { multiprocessors, ..Target::ORIN };
        let plan = Size { m, n, k: k.into(), products }.plan(&TILES, false, &target);
        assert!(plan.each * u64::from(plan.parts) >= k.into() && plan.each.is_multiple_of(DEPTH), "{plan:?}");
        (plan.tile.name(), plan.parts)
    }

    #[test]
    fn large_products_have_large_tiles() {
        for size in [1024, 2048, 4096, 8192] {
            assert_eq!(plan([size; 3], 1, 16), ("128x128".into(), 1));
        }
        assert_eq!(plan([8192; 3], 1, 132), ("128x128".into(), 1));
        assert_eq!(plan([128, 64, 128], 256, 16), ("128x128".into(), 1));
    }

    /// Returns the tile and its stages on a GPU that copies in the background, and has so many KiB of shared memory for a block.
    fn staged([m, k, n]: [u32; 3], multiprocessors: u32, shared: u32) -> (String, u32) {
        let target = Target { multiprocessors, shared: shared << 10, ..Target::ORIN };
        let tile = Size { m, n, k: k.into(), products: 1 }.plan(&TILES_80, false, &target).tile;
        (tile.name(), tile.stages)
    }

    #[test]
    fn operands_of_large_products_come_through_stages() {
        assert_eq!([2048, 4096, 8192].map(|size| staged([size; 3], 132, 227)), [(); 3].map(|()| ("128x256".to_string(), 3)));
        assert_eq!(staged([4096, 64, 128], 16, 163), ("128x128".into(), 3));
        // Two blocks with stages would not fit into a multiprocessor.
        assert_eq!(staged([4096, 64, 128], 16, 99), ("128x128".into(), 0));
        assert_eq!(staged([64, 64, 64], 16, 163), ("64x64".into(), 0));
    }

    #[test]
    fn a_few_rows_or_columns_have_flat_tiles() {
        assert_eq!(plan([32, 256, 65536], 1, 16), ("32x128".into(), 1));
        assert_eq!(plan([65536, 256, 10], 1, 16), ("128x32".into(), 1));
    }

    #[test]
    fn long_sums_of_few_results_are_divided() {
        assert_eq!(plan([64, 100_000, 64], 1, 16), ("64x64".into(), 32));
        let (_, parts) = plan([32, 1024, 1024], 1, 16);
        assert!(parts > 1, "{parts}");
        assert_eq!(plan([64, 100, 64], 1, 16).1, 1);
        let none = Target { workspace: 0, ..Target::ORIN };
        assert_eq!(Size { m: 64, n: 64, k: 100_000, products: 1 }.plan(&TILES, false, &none).parts, 1);
    }

    #[test]
    fn each_rank_has_a_plan_of_its_own_until_the_first_one_returns() {
        let size = Size { m: 64, n: 256, k: 300, products: 1 };
        let plans: Vec<Plan> = (0..20).map(|rank| size.plan(&TILES, false, &Target { rank, ..Target::ORIN })).collect();
        // Four tiles, with sums in 1, 2 and 4 parts.
        assert_eq!(plans.iter().rposition(|plan| *plan != plans[0]), Some(11));
        assert!((0..12).all(|rank| !plans[..rank].contains(&plans[rank])), "{plans:?}");
        let cost = |plan: &Plan| size.cycles(plan, &Target::ORIN);
        assert!(plans[..12].is_sorted_by(|one, other| cost(one) <= cost(other)));
        let steps = |rank| size.plan(&TILES, true, &Target { workspace: 0, rank, ..Target::ORIN });
        assert_eq!([0, 1].map(|rank| steps(rank).tile.name()), ["64x64", "64x64"]);
    }

    #[test]
    fn only_some_tiles_end_with_steps() {
        let size = Size { m: 8192, n: 8192, k: 1024, products: 1 };
        assert_eq!(size.plan(&TILES, true, &Target::ORIN).tile.name(), "64x64");
        assert_eq!(Size { m: 1024, n: 1024, k: 0, products: 1 }.plan(&TILES, true, &Target::ORIN).parts, 1);
    }
}
