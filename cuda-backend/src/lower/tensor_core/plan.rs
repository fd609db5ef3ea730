//! How products on tensor cores are computed: by which kernel, and in how many parts.

use super::problem::{Kind, Problem};
use crate::lower::{Target, TensorCores};

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    pub rows: u32,
    pub columns: u32,
    /// True if warpgroups multiply, false if warps do.
    pub by_warpgroups: bool,
    /// Number of blocks that a multiprocessor runs at a time.
    resident: u32,
}

impl Tile {
    pub(super) const SMALL: Tile = Tile { rows: 64, columns: 64, by_warpgroups: false, resident: 4 };
    const LARGE: Tile = Tile { rows: 128, columns: 128, by_warpgroups: false, resident: 2 };
    const GROUPS: Tile = Tile { rows: 128, columns: 128, by_warpgroups: true, resident: 1 };
    pub(super) const LARGE_GROUPS: Tile = Tile { rows: 128, columns: 256, by_warpgroups: true, resident: 1 };

    /// Returns the size of the shared memory of a block in bytes: four stages of 64 bytes of each line, or of 128 bytes.
    pub(super) fn shared(&self) -> u32 {
        4 * (self.rows + self.columns) * if self.by_warpgroups { 128 } else { 64 }
    }

    /// Returns the number of threads of a block.
    pub(super) fn threads(&self) -> u32 {
        if self.by_warpgroups { 256 } else { 128 }
    }
}

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub(super) tile: Tile,
    /// Number of parts of the sums. If there are several, the workspace takes them, and another kernel adds them.
    pub(super) parts: u32,
}

impl Plan {
    /// Largest number of parts.
    const MOST: u64 = 64;

    /// Returns the plan of the target's rank for a product. After the one that seems best, larger tiles come first, in parts before whole.
    pub(super) fn new(problem: &Problem, target: &Target) -> Plan {
        let best = Plan::best(problem, target);
        let tiles = [Tile::LARGE_GROUPS, Tile::GROUPS, Tile::LARGE, Tile::SMALL].into_iter();
        let possible = tiles.filter(|tile| *tile == Tile::SMALL || tile.is_for(problem, target));
        let others = possible.flat_map(|tile| [Plan::of(problem, tile, target), Plan { tile, parts: 1 }]).filter(|plan| *plan != best);
        let mut plans: Vec<Plan> = [best].into_iter().chain(others).collect();
        plans.dedup();
        target.pick(&plans).unwrap_or(best)
    }

    /// Returns the plan that seems best: the largest tiles that keep enough multiprocessors busy, if need be with sums in parts. Small
    /// tiles load each operand more often, but there are more of them. Those of warpgroups pay even if a part of the GPU has no work.
    fn best(problem: &Problem, target: &Target) -> Plan {
        let plans = [(Tile::LARGE_GROUPS, 3, 4), (Tile::GROUPS, 1, 4), (Tile::LARGE, 1, 1)]
            .map(|(tile, busy, of)| (tile, target.multiprocessors * busy / of));
        let fits = |&(tile, busy): &(Tile, u32)| {
            let plan = Plan::of(problem, tile, target);
            (tile.is_for(problem, target) && problem.blocks(&plan) >= busy.into()).then_some(plan)
        };
        plans.iter().find_map(fits).unwrap_or_else(|| Plan::of(problem, Tile::SMALL, target))
    }

    /// Returns the plan with tiles of this size. It has as many parts as the GPU runs blocks at a time, if the sums are long enough: the
    /// parts of a tile shall not take more memory than a quarter of its operands.
    pub(super) fn of(problem: &Problem, tile: Tile, target: &Target) -> Plan {
        let room = u64::from(target.multiprocessors) * u64::from(tile.resident);
        let shortest = 16 * tile.rows * tile.columns / (tile.rows + tile.columns);
        let workspace = target.workspace / 4 / problem.results.max(1);
        let most = u64::from(problem.k / shortest).min(Plan::MOST).min(workspace);
        let parts = (room / problem.blocks(&Plan { tile, parts: 1 })).min(most).max(1) as u32;
        Plan { tile, parts }
    }
}

impl Tile {
    /// True if the kernel computes the product, and more than half of a tile is used.
    fn is_for(&self, problem: &Problem, target: &Target) -> bool {
        let kernel = !self.by_warpgroups || target.tensor_cores == TensorCores::Warpgroups && problem.kind().is_some();
        let used = problem.m > self.rows / 2 && problem.n > self.columns / 2;
        kernel && used && problem.is_aligned() && self.shared() <= target.shared
    }
}

impl Kind {
    /// Returns the part of the kernels' names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Plain => "nn",
            Kind::FlippedB => "nt",
            Kind::FlippedA => "tn",
        }
    }
}

impl Problem {
    /// Returns the number of blocks.
    pub(super) fn blocks(&self, plan: &Plan) -> u64 {
        let tiles = u64::from(self.m.div_ceil(plan.tile.rows)) * u64::from(self.n.div_ceil(plan.tile.columns));
        tiles * u64::from(self.products) * u64::from(plan.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::Job;
    use gradlet_core::ops::matmul;
    use gradlet_core::{DType, Shape, TensorType};

    const H100: Target =
        Target { capability: 90, multiprocessors: 132, shared: 227 << 10, tensor_cores: TensorCores::Warpgroups, ..Target::ORIN };

    fn plan([m, k, n]: [u32; 3], target: &Target) -> (Tile, u32) {
        let of = |dims: [u32; 2]| TensorType::new(DType::F16, Shape::new(&dims).unwrap());
        let (inputs, outputs) = ([of([m, k]), of([k, n])], [of([m, n])]);
        let job = Job { op: &matmul::DEF, attributes: &[0, 0], inputs: &inputs, outputs: &outputs, target: *target };
        let Plan { tile, parts } = Plan::new(&Problem::new(&job).unwrap(), target);
        (tile, parts)
    }

    #[test]
    fn large_products_have_large_tiles() {
        assert_eq!([2048, 4096, 8192].map(|side| plan([side; 3], &H100)), [(Tile::LARGE_GROUPS, 1); 3]);
        assert_eq!(plan([1024; 3], &H100), (Tile::GROUPS, 1));
        assert_eq!(plan([256; 3], &H100), (Tile::SMALL, 1));
        assert_eq!(plan([4096; 3], &Target { tensor_cores: TensorCores::Warps, ..H100 }), (Tile::LARGE, 1));
        assert_eq!([plan([1024; 3], &Target::ORIN), plan([512; 3], &Target::ORIN)], [(Tile::LARGE, 1); 2]);
        assert_eq!([plan([64, 4096, 4096], &Target::ORIN), plan([256; 3], &Target::ORIN)], [(Tile::SMALL, 1); 2]);
        // Rows of 1001 elements are not aligned.
        assert_eq!(plan([4096, 4096, 1001], &H100), (Tile::SMALL, 1));
    }

    #[test]
    fn each_rank_has_a_plan_of_its_own_until_the_first_one_returns() {
        let of = |sizes, target: Target| [0, 1, 2, 3, 4, 5, 6].map(|rank| plan(sizes, &Target { rank, ..target }));
        let (groups, large_groups, large, small) = (Tile::GROUPS, Tile::LARGE_GROUPS, Tile::LARGE, Tile::SMALL);
        let first = (groups, 1);
        let all = [first, (large_groups, 1), (large, 1), (small, 2), (small, 1), first, first];
        assert_eq!(of([1024; 3], H100), all);
        let few = (small, 4);
        assert_eq!(of([1, 4096, 1000], Target::ORIN), [few, (small, 1), few, few, few, few, few]);
    }

    #[test]
    fn long_sums_of_few_results_are_divided() {
        assert_eq!(plan([1, 4096, 1000], &Target::ORIN), (Tile::SMALL, 4));
        assert_eq!(plan([256, 65536, 256], &Target::ORIN), (Tile::LARGE, 8));
        assert_eq!(plan([256, 65536, 256], &Target { workspace: 0, ..Target::ORIN }), (Tile::SMALL, 1));
        assert_eq!(plan([1, 0, 1], &Target::ORIN), (Tile::SMALL, 1));
    }
}
