//! Products of f32 matrices with tiles in shared memory, or, for a few rows, at the speed of the memory.

use super::Target;
use super::linalg::Shapes;
use super::tiles::{FLAT, NARROW, Plan, SMALL, SQUARE, Size, Tile, WIDE};
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::ptx::Code;

/// The tiles of `kernels/gemm.cu`.
pub(super) static TILES: [Tile; 4] = [SQUARE, STEPS, NARROW, FLAT];
/// The tiles of GPUs from compute capability 8.0 on. The first two are those of `kernels/gemm_80.cu`.
pub(super) static TILES_80: [Tile; 6] = [WIDE, SQUARE.through(3), SQUARE, STEPS, NARROW, FLAT];
const STEPS: Tile = Tile { steps: true, ..SMALL };
/// Largest height of a grid.
const MAX_HEIGHT: u64 = 65535;

/// Treatment of the elements of a product: the parameters of the kernels after those of the product.
#[derive(Clone)]
pub(super) struct End {
    kind: u32,
    /// The bias or the variable, the moments, the learning rate and the number of earlier steps. 0 stands for none.
    inputs: [Argument; 5],
    /// The product, or the variable and its moments.
    outputs: [Argument; 3],
    /// The attributes of Adam.
    attributes: Vec<u32>,
}

impl End {
    const NONE: Argument = Argument::Wide(0);

    /// The elements are stored, after the bias of their column was added.
    pub(super) fn stored(bias: Option<usize>, output: Argument) -> End {
        let bias = bias.map_or(End::NONE, Argument::Input);
        let inputs = [bias, End::NONE, End::NONE, End::NONE, End::NONE];
        End { kind: 0, inputs, outputs: [output, End::NONE, End::NONE], attributes: vec![0; 5] }
    }

    /// The step of `matmul_sgd`.
    pub(super) fn sgd() -> End {
        let inputs = [Argument::Input(0), End::NONE, End::NONE, Argument::Input(3), End::NONE];
        End { kind: 1, inputs, ..End::stored(None, Argument::Output(0)) }
    }

    /// The step of `matmul_adam` with its attributes.
    pub(super) fn adam(attributes: &[u32]) -> End {
        let (inputs, outputs) = ([0, 1, 2, 5, 6].map(Argument::Input), [0, 1, 2].map(Argument::Output));
        End { kind: 2, inputs, outputs, attributes: attributes.to_vec() }
    }

    /// Returns the address of the bias, or 0.
    pub(super) fn bias(&self) -> Argument {
        self.inputs[0].clone()
    }

    /// Returns the address of the result.
    pub(super) fn output(&self) -> Argument {
        self.outputs[0].clone()
    }

    fn arguments(self) -> impl Iterator<Item = Argument> {
        let kind = Argument::Words(vec![self.kind]);
        [kind].into_iter().chain(self.inputs).chain(self.outputs).chain([Argument::Words(self.attributes)])
    }
}

/// Returns the launches that compute products of operands with these shapes, of `a` and `b`.
pub(super) fn lower(target: &Target, shapes: &Shapes, [a, b]: [usize; 2], end: End) -> Vec<KernelCall> {
    let size = Size { m: shapes.m, n: shapes.n, k: shapes.k.into(), products: shapes.products() };
    let thin = if end.kind == 0 { Thin::new(shapes, target) } else { None };
    // The plans with tiles come after that of a thin product.
    let (thin, rank) = if target.rank == 0 { (thin, 0) } else { (None, target.rank - usize::from(thin.is_some())) };
    let (parts, launch): (u32, &dyn Fn(&End) -> KernelCall) = match &thin {
        Some(thin) => (thin.parts, &|end| thin.call(shapes, [a, b], end)),
        None => {
            let tiles: &[Tile] = if target.capability >= 80 { &TILES_80 } else { &TILES };
            let plan = size.plan(tiles, end.kind != 0, &Target { rank, ..*target });
            (plan.parts, &move |end| tiled(shapes, &size, &plan, [a, b], end))
        }
    };
    in_parts(parts, size.elements(), shapes.n, end, launch)
}

/// Returns the launches of a product whose sums have `parts` parts: the kernel of the product, which `launch` returns for an end, and one
/// that adds the parts in the workspace, if there are several.
pub(super) fn in_parts(parts: u32, elements: u64, columns: u32, end: End, launch: impl FnOnce(&End) -> KernelCall) -> Vec<KernelCall> {
    if parts == 1 {
        return vec![launch(&end)];
    }
    let (suffix, width) = if columns.is_multiple_of(4) { ("_4", 4) } else { ("", 1) };
    let sizes = [Argument::Words(vec![parts]), Argument::Wide(elements), Argument::Words(vec![columns])];
    let arguments = [Argument::Workspace].into_iter().chain(sizes).chain(end.arguments()).collect();
    let sum = KernelCall::over(elements / width, Code::stored("gemm", format!("gemm_sum_f32{suffix}")), arguments);
    vec![launch(&End::stored(None, Argument::Workspace)), sum]
}

/// Returns the launch of a kernel of `kernels/gemm.cu` or `kernels/gemm_80.cu`.
fn tiled(shapes: &Shapes, size: &Size, plan: &Plan, [a, b]: [usize; 2], end: &End) -> KernelCall {
    let Plan { tile, parts, each } = plan;
    let sizes = [size.products as u32, *each as u32];
    let operands = [Argument::Input(a), Argument::Input(b), Argument::Words(shapes.words())];
    let sizes = sizes.map(|size| Argument::Words(vec![size]));
    let arguments = operands.into_iter().chain(sizes).chain(end.clone().arguments()).collect();
    let grid = [size.tiles(tile) as u32, size.products.min(MAX_HEIGHT) as u32, *parts];
    let (file, name) = if tile.stages > 0 { ("gemm_80", "gemm_async") } else { ("gemm", "gemm") };
    let code = Code::stored(file, format!("{name}_{}_f32", tile.name()));
    KernelCall { code, grid, block: [tile.threads, 1, 1], shared: tile.shared(), arguments }
}

/// A product with at most [`ROWS`] rows, or columns: see `kernels/thin.cu`.
#[derive(Debug, PartialEq)]
struct Thin {
    /// True if the columns are few, so that a is the long operand.
    swapped: bool,
    /// True if the lines of the long operand are contiguous.
    along: bool,
    /// Numbers of rows and of neighbouring elements that a thread computes or loads at a time.
    rows: u32,
    width: u32,
    /// Number of warps that share a line, if the lines are contiguous.
    team: u32,
    /// Number of blocks for all lines of a product.
    blocks: u32,
    parts: u32,
    each: u32,
}

/// Largest number of rows of a thin product.
const ROWS: u32 = 4;

impl Thin {
    /// Returns how to compute such a product. Returns `None` if it has more rows and columns, or several rows and a size that is no
    /// multiple of 4.
    fn new(shapes: &Shapes, target: &Target) -> Option<Thin> {
        // Number of bytes of the long operand from which another launch for several parts costs less than it gains.
        const LONG: u64 = 1 << 20;
        const WARPS: u32 = BLOCK / 32;
        let Shapes { m, k, n, flipped, .. } = *shapes;
        let (swapped, rows, lines) = if n < m { (true, n, m) } else { (false, m, n) };
        let along = if swapped { !flipped[0] } else { flipped[1] };
        let width = if k.is_multiple_of(4) && (along || lines.is_multiple_of(4)) { 4 } else { 1 };
        if rows > ROWS || rows > 1 && width == 1 {
            return None;
        }
        let wanted = u64::from(target.multiprocessors) * 2;
        let of_product = |of_block: u32| lines.div_ceil(of_block);
        let enough = |blocks: u32| u64::from(blocks) * shapes.products() >= wanted;
        let team = if along && !enough(of_product(2 * WARPS)) { WARPS } else { 1 };
        let blocks = of_product(if along { 2 * WARPS / team } else { 32 * width });
        // A warp has at least 4 loads under way in each part.
        let shortest = if along { 2 * 32 * width * team } else { 4 * WARPS * 4 };
        let long = u64::from(k) * u64::from(lines) * 4 >= LONG;
        let room = target.workspace / 4 / (u64::from(rows) * u64::from(lines) * shapes.products());
        let most = if long { u64::from(k / shortest).min(room).max(1) } else { 1 };
        let parts = wanted.div_ceil(u64::from(blocks) * shapes.products()).min(most);
        let each = k.div_ceil(parts as u32).max(1).next_multiple_of(4);
        Some(Thin { swapped, along, rows: if rows > 1 { ROWS } else { 1 }, width, team, blocks, parts: k.div_ceil(each).max(1), each })
    }

    fn call(&self, shapes: &Shapes, [a, b]: [usize; 2], end: &End) -> KernelCall {
        let Thin { swapped, along, rows, width, team, blocks, parts, each } = *self;
        let operands = [Argument::Input(a), Argument::Input(b), end.bias(), end.output()];
        let sizes = [shapes.words(), vec![shapes.products() as u32], vec![each], vec![swapped.into()], vec![team]];
        let arguments = operands.into_iter().chain(sizes.map(Argument::Words)).collect();
        let direction = if along { "along" } else { "across" };
        let code = Code::stored("thin", format!("thin_{direction}_{rows}_f32_{width}"));
        let grid = [blocks, shapes.products().min(MAX_HEIGHT) as u32, parts];
        KernelCall { code, grid, block: [BLOCK, 1, 1], shared: 0, arguments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thin([m, k, n]: [u32; 3], flipped: [bool; 2]) -> Option<(bool, bool, u32, u32, u32)> {
        let thin = Thin::new(&Shapes { m, k, n, flipped, batch: Vec::new() }, &Target::ORIN)?;
        assert!(thin.each * thin.parts >= k, "{thin:?}");
        Some((thin.swapped, thin.along, thin.rows, thin.width, thin.parts))
    }

    #[test]
    fn a_dense_layer_for_one_example_reads_its_matrix_once() {
        assert_eq!(thin([1, 1024, 1024], [false; 2]), Some((false, false, 1, 4, 4)));
        assert_eq!(thin([1, 1024, 1024], [false, true]), Some((false, true, 1, 4, 1)));
        assert_eq!(thin([1, 784, 10], [false; 2]), Some((false, false, 1, 1, 1)));
        assert_eq!(thin([1, 0, 10], [false; 2]), Some((false, false, 1, 1, 1)));
    }

    #[test]
    fn few_columns_are_like_few_rows() {
        assert_eq!(thin([4096, 64, 1], [false; 2]), Some((true, true, 1, 4, 1)));
        assert_eq!(thin([4096, 64, 3], [true, false]), Some((true, false, 4, 4, 1)));
    }

    #[test]
    fn more_rows_have_tiles() {
        assert_eq!([thin([8, 1024, 1024], [false; 2]), thin([2, 1023, 1024], [false; 2])], [None, None]);
    }
}
