use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

const OPERANDS: [i32; 16] =
    [0, 1, -1, 2, -3, 127, -128, 255, -32_768, 65_535, 1 << 30, -1 << 30, i32::MAX, i32::MIN, 0x1234_5678, -0x7654_3210];

/// Runs `work` with every instruction set of this machine.
fn with_every_set<W: WithIntegers + Copy>(work: W) {
    IntegerSet::all().for_each(|set| set.run(work));
}

fn elements<S: Integers>(simd: S, vector: S::Vector) -> Vec<i32> {
    let mut elements = vec![0; S::LANES];
    simd.store(&mut elements, vector);
    elements
}

/// Returns a vector with the elements of a function of the index.
fn vector<S: Integers>(simd: S, element: impl FnMut(usize) -> i32) -> S::Vector {
    simd.load(&(0..S::LANES).map(element).collect::<Vec<i32>>())
}

/// Returns a vector of bytes, which are those of a function of the index.
fn byte_vector<S: Integers>(simd: S, byte: impl FnMut(usize) -> u8) -> S::Vector {
    simd.load_bytes(&(0..4 * S::LANES).map(byte).collect::<Vec<u8>>())
}

/// An operation on a pair of elements.
type Scalar = fn(i32, i32) -> i32;

#[derive(Clone, Copy)]
struct Pairs;

impl WithIntegers for Pairs {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let pairs: Vec<[i32; 2]> = OPERANDS.iter().flat_map(|&a| OPERANDS.map(|b| [a, b])).collect();
        for pairs in pairs.chunks_exact(S::LANES) {
            let of = |operand: fn([i32; 2]) -> i32| vector(simd, |index| operand(pairs[index]));
            let (a, b, count) = (of(|[a, _]| a), of(|[_, b]| b), of(|[_, b]| b & 31));
            let (half, factor) = (of(|[a, _]| a >> 1), of(|[_, b]| b & i32::MAX));
            let results: [(S::Vector, Scalar); 11] = [
                (simd.add(a, b), i32::wrapping_add),
                (simd.sub(a, b), i32::wrapping_sub),
                (simd.mul(a, b), i32::wrapping_mul),
                (simd.or(a, b), |a, b| a | b),
                (simd.least(a, b), i32::min),
                (simd.greatest(a, b), i32::max),
                (simd.left(a, count), |a, b| a << (b & 31)),
                (simd.right(a, count), |a, b| (a as u32 >> (b & 31)) as i32),
                (simd.right_signed(a, count), |a, b| a >> (b & 31)),
                (simd.mul_high::<false>(half, factor), |a, b| ((doubled(a, b) + (1 << 31)) >> 32) as i32),
                (simd.mul_high::<true>(half, factor), |a, b| ((doubled(a, b) - i64::from(doubled(a, b) < 0)) >> 32) as i32),
            ];
            for (operation, (result, want)) in results.into_iter().enumerate() {
                let want: Vec<i32> = pairs.iter().map(|&[a, b]| want(a, b)).collect();
                assert_eq!(elements(simd, result), want, "operation {operation} of {pairs:?}");
            }
        }
    }
}

/// Returns the product of `2 · (a / 2)`, rounded down, and `b` without its sign.
fn doubled(a: i32, b: i32) -> i64 {
    2 * i64::from(a >> 1) * i64::from(b & i32::MAX)
}

#[test]
fn operations_on_pairs() {
    with_every_set(Pairs);
}

#[derive(Clone, Copy)]
struct Scales;

impl WithIntegers for Scales {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        for value in [0, 1 << 30, 0x5a5a_5a5a, i32::MAX] {
            for exponent in -31..=30 {
                let scale = Scale::new(simd, simd.splat(value), simd.splat(exponent));
                // Sums that become ties, and their neighbours.
                let ties = (-8..8).map(|odd| (2 * odd + 1) << (-exponent).clamp(0, 27) >> 1);
                let operands: Vec<i32> = OPERANDS.into_iter().chain(ties.flat_map(|tie| [tie - 1, tie, tie + 1, 2 * tie])).collect();
                for x in operands.chunks_exact(S::LANES) {
                    let want: Vec<i32> = x.iter().map(|&x| scaled(x, value, exponent)).collect();
                    assert_eq!(elements(simd, simd.scale(simd.load(x), &scale)), want, "{x:?} · {value} / 2³¹ · 2^{exponent}");
                }
            }
        }
    }
}

fn scaled(x: i32, value: i32, exponent: i32) -> i32 {
    let product = (i64::from(x.wrapping_shl(exponent.max(0) as u32)) * i64::from(value) + (1 << 30)) >> 31;
    let right = (-exponent).max(0);
    (product.signum() * ((product.abs() + (1 << right >> 1)) >> right)) as i32
}

#[test]
fn products_with_real_numbers() {
    with_every_set(Scales);
}

#[derive(Clone, Copy)]
struct Dots;

impl WithIntegers for Dots {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        const BYTES: [i8; 8] = [-128, -127, -1, 0, 1, 2, 126, 127];
        for seed in 0..1000 {
            // The first ones have the same bytes everywhere, the largest ones among them.
            let byte = |seed: usize, at: usize| match seed < 64 {
                true => BYTES[seed % 8],
                false => BYTES[((seed * (at + 1) * 0x9e37_79b9) >> 7) % 8],
            };
            let (x, filter) = (|at| i32::from(byte(seed, at)) + OFFSET, |at| byte(seed / 8 + seed / 64 * 5, at));
            let start = vector(simd, |index| OPERANDS[(seed + index) % OPERANDS.len()]);
            let (x_bytes, filter_bytes) = (byte_vector(simd, |at| x(at) as u8), byte_vector(simd, |at| filter(at) as u8));
            let want: Vec<i32> = elements(simd, start)
                .into_iter()
                .enumerate()
                .map(|(index, start)| (4 * index..).take(4).fold(start, |sum, at| sum.wrapping_add(x(at) * i32::from(filter(at)))))
                .collect();
            assert_eq!(elements(simd, simd.dot(start, simd.ordered(x_bytes), simd.ordered(filter_bytes))), want, "{seed}");

            let total = |elements: Vec<i32>| elements.into_iter().fold(0, i32::wrapping_add);
            assert_eq!(total(elements(simd, simd.dot(start, x_bytes, filter_bytes))), total(want), "{seed}");
        }
    }
}

#[test]
fn sums_of_products_of_bytes() {
    with_every_set(Dots);
}

#[derive(Clone, Copy)]
struct Moves;

impl WithIntegers for Moves {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let (bytes, blocks) = ((0..=255).collect::<Vec<u8>>().repeat(4), S::LANES / 4);
        let as_elements =
            |bytes: &[u8]| bytes.chunks_exact(4).map(|of| i32::from_le_bytes([of[0], of[1], of[2], of[3]])).collect::<Vec<i32>>();
        assert_eq!(elements(simd, simd.load_bytes(&bytes[3..])), as_elements(&bytes[3..][..4 * S::LANES]));
        let rows: Vec<u8> = (0..blocks).flat_map(|block| bytes[5 + 4 * block * 19..][..16].to_vec()).collect();
        assert_eq!(elements(simd, simd.load_rows(&bytes[5..], 19)), as_elements(&rows));
        assert_eq!(elements(simd, simd.splat(-7)), [-7; 16][..S::LANES]);

        let vectors = [0, 100, 200, 300].map(|base| vector(simd, |index| base + index as i32));
        for (i, transposed) in simd.transpose(vectors).into_iter().enumerate() {
            let want: Vec<i32> = (0..S::LANES).map(|at| 100 * (at % 4) as i32 + (at / 4 * 4 + i) as i32).collect();
            assert_eq!(elements(simd, transposed), want);
        }
        let want = (0..S::LANES).map(|at| (0..blocks).map(|block| 100 * (at / 4) as i32 + (4 * block + at % 4) as i32).sum());
        assert_eq!(elements(simd, simd.add_blocks(vectors)), want.collect::<Vec<i32>>());

        let from = &bytes[120..];
        assert_eq!(elements(simd, simd.widen(from)), from[..S::LANES].iter().map(|&byte| byte.into()).collect::<Vec<i32>>());
        let from: &[i8] = bytemuck::cast_slice(from);
        assert_eq!(elements(simd, simd.widen_signed(from)), from[..S::LANES].iter().map(|&byte| byte.into()).collect::<Vec<i32>>());
    }
}

#[test]
fn loads_and_rearrangements() {
    with_every_set(Moves);
}

#[derive(Clone, Copy)]
struct Narrow;

impl WithIntegers for Narrow {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        for numbers in OPERANDS.chunks_exact(S::LANES) {
            let limited: Vec<i8> = numbers.iter().map(|&number| number.clamp(-128, 127) as i8).collect();
            for length in 0..S::LANES + 3 {
                let held = length.min(S::LANES);
                let (mut to, mut want) = ([9; 24], [9; 24]);
                want[1..][..held].copy_from_slice(&limited[..held]);
                simd.narrow_part(&mut to[1..][..length], simd.load(numbers));
                assert_eq!(to, want);
                if length >= S::LANES {
                    to.fill(9);
                    simd.narrow(&mut to[1..][..length], simd.load(numbers));
                    assert_eq!(to, want);
                }
            }
        }
    }
}

#[test]
fn elements_become_bytes() {
    with_every_set(Narrow);
}

#[derive(Clone, Copy)]
struct Short;

impl WithIntegers for Short {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        fn panics<R>(work: impl FnOnce() -> R) -> bool {
            catch_unwind(AssertUnwindSafe(|| _ = work())).is_err()
        }
        let (bytes, mut numbers, mut narrow) = (vec![0; 4 * S::LANES - 1], vec![0; S::LANES - 1], vec![0; S::LANES - 1]);
        assert!(panics(|| simd.load(&numbers)));
        assert!(panics(|| simd.load_bytes(&bytes)));
        assert!(panics(|| simd.load_rows(&bytes[..16 * (S::LANES / 4) - 1], 16 / 4)));
        assert!(panics(|| simd.widen(&bytes[..S::LANES - 1])));
        assert!(panics(|| simd.widen_signed(&narrow)));
        assert!(panics(|| simd.store(&mut numbers, simd.splat(1))));
        assert!(panics(|| simd.narrow(&mut narrow, simd.splat(1))));
        assert!(numbers.iter().all(|&number| number == 0) && narrow.iter().all(|&number| number == 0));
    }
}

#[test]
fn short_slices_panic() {
    with_every_set(Short);
}
