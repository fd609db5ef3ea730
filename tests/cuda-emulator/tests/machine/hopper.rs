//! Products of four warps, compared with loops over the layouts of the PTX ISA.

use crate::numbers::{Number, matrix, product};
use crate::support::{Loaded, Plain, load};
use gradlet_cuda_emulator::machine::{FaultKind, Statistics};

/// A layout of a matrix in shared memory, as a kernel takes it.
#[derive(Clone, Copy, Debug)]
struct Layout {
    start: u32,
    leading: u32,
    stride: u32,
    /// 0: none; 1, 2, 3: 128, 64, 32 bytes.
    swizzle: u32,
}

impl Plain for Layout {
    fn bytes(self) -> Vec<u8> {
        [self.start, self.leading, self.stride, self.swizzle].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(_: &[u8]) -> Self {
        unreachable!("layouts are only passed to kernels")
    }
}

impl Layout {
    /// Where 16 bytes are: `outer` counts the rows of atoms, `inner` 16 bytes along their width. The next atom along the width is `along`
    /// bytes away, the next one behind 8 rows is `across` bytes away.
    fn chunk(&self, outer: usize, inner: usize, along: u32, across: u32) -> usize {
        let chunks = [1, 8, 4, 2][self.swizzle as usize];
        let row = outer % 8;
        // The pattern changes with every line of 128 bytes.
        let place = (inner % chunks) ^ (row * chunks / 8);
        self.start as usize + inner / chunks * along as usize + outer / 8 * across as usize + row * chunks * 16 + place * 16
    }

    /// The byte of a number, for a matrix whose depth lies side by side.
    fn along_depth(&self, row: usize, byte: usize) -> usize {
        self.chunk(row, byte / 16, self.leading, self.stride) + byte % 16
    }

    /// The byte of a number, for a matrix whose rows lie side by side.
    fn along_rows(&self, byte: usize, depth: usize) -> usize {
        let (along, across) = if self.swizzle == 0 { (self.stride, self.leading) } else { (self.leading, self.stride) };
        self.chunk(depth, byte / 16, along, across) + byte % 16
    }
}

/// Writes a matrix into an image of shared memory.
fn write(image: &mut [u8], layout: Layout, transposed: bool, number: Number, rows: &[Vec<f32>]) {
    let size = number.bytes();
    for (row, values) in rows.iter().enumerate() {
        for (depth, value) in values.iter().enumerate() {
            let at = if transposed { layout.along_rows(row * size, depth) } else { layout.along_depth(row, depth * size) };
            image[at..at + size].copy_from_slice(&number.bits(*value).to_le_bytes()[..size]);
        }
    }
}

/// Row and column of number `i` of a thread's accumulator.
fn place(thread: usize, i: usize) -> (usize, usize) {
    let (warp, lane) = (thread / 32, thread % 32);
    (16 * warp + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2)
}

/// A test of one product.
struct Case {
    kernel: &'static str,
    number: Number,
    columns: usize,
    transposed: [bool; 2],
    sign: f32,
}

const BYTES: usize = 64 << 10;

fn check(cuda: &mut Loaded, case: &Case, left: Layout, right: Layout, accumulates: bool) -> Statistics {
    let depth = 32 / case.number.bytes();
    let (a, b) = (matrix(64, depth, 5), matrix(case.columns, depth, 6));
    let mut image = vec![0; BYTES];
    write(&mut image, left, case.transposed[0], case.number, &a);
    write(&mut image, right, case.transposed[1], case.number, &b);
    let negative: Vec<Vec<f32>> = a.iter().map(|row| row.iter().map(|value| value * case.sign).collect()).collect();
    let mut c = matrix(64, case.columns, 7);
    let count = case.columns / 2;
    let start: Vec<f32> = (0..128 * count).map(|index| place(index / count, index % count)).map(|(row, column)| c[row][column]).collect();
    if !accumulates {
        c.iter_mut().for_each(|row| row.fill(0.0));
    }
    let expected = product(&negative, &b, &c);
    let (image, sums) = (cuda.device.upload(&image), cuda.upload(&start));
    let (words, flag) = (BYTES as u32 / 4, u32::from(accumulates));
    let statistics = cuda.block(case.kernel, 128, &[&image, &words, &sums, &left, &right, &flag]);
    for (index, found) in cuda.download::<f32>(sums).into_iter().enumerate() {
        let (row, column) = place(index / count, index % count);
        assert_eq!(found, expected[row][column], "{}: {row}, {column} with {left:?}, {right:?}", case.kernel);
    }
    statistics
}

/// Layouts of a matrix with some lines of 16 bytes along its width, in different places.
fn layouts(first: u32, units: u32) -> [Layout; 4] {
    let start = first * 1024;
    [(0, 1), (1, 8), (2, 4), (3, 2)].map(|(swizzle, chunks)| {
        let atom = chunks * 128;
        // Without a swizzle, any multiples of 16 are offsets, as long as the parts are apart.
        let (leading, stride) = if swizzle == 0 { (1296, 144) } else { (8 * atom, atom) };
        let leading = if units <= chunks && swizzle != 0 { 0 } else { leading };
        Layout { start, leading, stride, swizzle }
    })
}

#[test]
fn products_of_four_warps() {
    let mut cuda = load("hopper.ptx");
    cuda.dynamic_shared = BYTES as u32;
    let case = |kernel, number, columns, transposed, sign| Case { kernel, number, columns, transposed, sign };
    let cases = [
        case("f16_8", Number::Half, 8, [false, false], 1.0),
        case("bf16_8_negated", Number::Brain, 8, [false, false], -1.0),
        case("tf32_8", Number::Tf32, 8, [false, false], 1.0),
        case("f16_16", Number::Half, 16, [false, false], 1.0),
        case("f16_16_left", Number::Half, 16, [true, false], 1.0),
        case("f16_16_right", Number::Half, 16, [false, true], 1.0),
        case("f16_16_both", Number::Half, 16, [true, true], -1.0),
    ];
    for (index, case) in cases.iter().enumerate() {
        for (i, left) in layouts(0, if case.transposed[0] { 8 } else { 2 }).into_iter().enumerate() {
            let right = layouts(32, 2)[(i + index) % 4];
            let statistics = check(&mut cuda, case, left, right, i % 2 == 0);
            assert_eq!(statistics.flops, (2 * 64 * case.columns * 32 / case.number.bytes()) as u64);
        }
    }
}

#[test]
fn the_left_factor_in_registers() {
    let mut cuda = load("hopper.ptx");
    cuda.dynamic_shared = BYTES as u32;
    let (a, b, c) = (matrix(64, 16, 1), matrix(16, 16, 2), matrix(64, 16, 3));
    let (mut image, right) = (vec![0; BYTES], layouts(3, 2)[2]);
    write(&mut image, right, false, Number::Half, &b);
    let half = |row: usize, column: usize| Number::Half.bits(a[row][column]);
    let word = |index: usize| {
        let (warp, lane, i) = (index / 128, index / 4 % 32, index % 4);
        let (row, column) = (16 * warp + lane / 4 + i % 2 * 8, lane % 4 * 2 + i / 2 * 8);
        half(row, column) | half(row, column + 1) << 16
    };
    let left = cuda.upload(&(0..512).map(word).collect::<Vec<u32>>());
    let at = |of: &[Vec<f32>], index: usize| {
        let (row, column) = place(index / 8, index % 8);
        of[row][column]
    };
    let sums = cuda.upload(&(0..1024).map(|index| at(&c, index)).collect::<Vec<f32>>());
    let image = cuda.device.upload(&image);
    cuda.block("f16_registers", 128, &[&image, &(BYTES as u32 / 4), &sums, &left, &right]);
    let expected = product(&a, &b, &c);
    assert!((0..1024).all(|index| cuda.download::<f32>(sums)[index] == at(&expected, index)));
}

/// Runs the pipeline with some stages. `STEPS` is its length.
fn stages(count: u32) -> Result<(), gradlet_cuda_emulator::machine::Fault> {
    let mut cuda = load("hopper.ptx");
    cuda.dynamic_shared = 4 * 144 * 128;
    let steps = std::env::var("STEPS").map_or(9, |steps| steps.parse().unwrap());
    let (a, b) = (matrix(128, 64 * steps, 1), matrix(16, 64 * steps, 2));
    let mut upload = |of: &[Vec<f32>]| {
        let bytes = of.iter().flatten().flat_map(|value| (Number::Half.bits(*value) as u16).to_le_bytes()).collect::<Vec<u8>>();
        cuda.device.upload(&bytes)
    };
    let (left, right) = (upload(&a), upload(&b));
    let out = cuda.device.allocate(256 * 8 * 4);
    let start = std::time::Instant::now();
    let statistics = cuda.launch("stages", [1; 3], [256, 1, 1], &[&left, &right, &out, &(steps as u32), &count])?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{} operations in {seconds:.3} s: {:.0} million a second", statistics.flops, statistics.flops as f64 / seconds / 1e6);
    let expected = product(&a, &b, &vec![vec![0.0; 16]; 128]);
    for (index, found) in cuda.download::<f32>(out).into_iter().enumerate() {
        let (row, column) = place(index / 8, index % 8);
        assert_eq!(found, expected[row][column]);
    }
    Ok(())
}

#[test]
fn a_pipeline_of_products() {
    stages(4).unwrap();
    let fault = stages(3).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::InFlight | FaultKind::SharedRace), "{fault}");
}

#[test]
fn one_lane_is_elected() {
    let mut cuda = load("hopper.ptx");
    let out = cuda.device.allocate(128);
    cuda.block("elected", 32, &[&out]);
    assert_eq!(cuda.download::<u32>(out), std::array::from_fn::<u32, 32, _>(|lane| u32::from(lane == 0)));
}
