use super::portable::Portable;
use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// Operands whose products are exact, or too small for any sum. It then does not matter how often a set rounds.
const OPERANDS: [f32; 12] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 1.0, -1.0, 2.0, -4.0, 8.0, f32::MIN_POSITIVE, 1e-45];

/// Runs `work` with every instruction set that this machine has, except the portable one.
fn with_fast_sets<W: WithSimd + Copy>(work: W) {
    #[cfg(target_arch = "x86_64")]
    {
        x86::Avx512::detect().into_iter().for_each(|simd| simd.vectorize(work));
        x86::Avx2::detect().into_iter().for_each(|simd| simd.vectorize(work));
    }
    #[cfg(target_arch = "aarch64")]
    Baseline.vectorize(work);
}

fn with_every_set<W: WithSimd + Copy>(work: W) {
    Portable.vectorize(work);
    with_fast_sets(work);
}

/// Computes every primitive of all triples of operands, and adds the results to the list.
#[derive(Clone, Copy)]
struct Primitives<'a>(&'a Mutex<Vec<Vec<u32>>>);

impl WithSimd for Primitives<'_> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let pairs = OPERANDS.iter().flat_map(|&a| OPERANDS.map(|b| [a, b]));
        let triples: Vec<[f32; 3]> = pairs.flat_map(|[a, b]| OPERANDS.map(|c| [a, b, c])).collect();
        assert_eq!(triples.len() % 16, 0);
        let mut results: [Vec<u32>; 6] = Default::default();
        for triples in triples.chunks_exact(S::LANES) {
            let operand = |index: usize| simd.load(&triples.iter().map(|triple| triple[index]).collect::<Vec<f32>>());
            let [a, b, c] = [0, 1, 2].map(operand);
            let vectors = [
                simd.add(a, b),
                simd.mul_add(a, b, c),
                simd.select(simd.equal(a, b), a, c),
                simd.select(simd.not_less_or_equal(a, b), a, c),
                simd.select(simd.and(simd.equal(a, b), simd.not_less_or_equal(b, c)), a, c),
                simd.splat(1e-45),
            ];
            for (result, vector) in results.iter_mut().zip(vectors) {
                let mut elements = vec![0.0; S::LANES];
                simd.store(&mut elements, vector);
                // The bits of a computed NaN depend on the CPU.
                result.extend(elements.iter().map(|x| if x.is_nan() { f32::NAN } else { *x }.to_bits()));
            }
        }
        self.0.lock().unwrap().push(results.concat());
    }
}

#[test]
fn as_the_portable_set() {
    let results = Mutex::new(Vec::new());
    with_every_set(Primitives(&results));
    let results = results.into_inner().unwrap();
    assert_eq!(results[0].len(), 6 * OPERANDS.len().pow(3));
    assert!(results.iter().all(|result| *result == results[0]));
}

#[derive(Clone, Copy)]
struct Parts;

impl WithSimd for Parts {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let from: Vec<f32> = (1..40).map(|index| index as f32).collect();
        for start in 0..4 {
            for length in 0..S::LANES + 4 {
                let held = length.min(S::LANES);
                let (mut loaded, mut want) = (vec![-1.0; S::LANES], vec![0.0; S::LANES]);
                want[..held].copy_from_slice(&from[start..][..held]);
                simd.store(&mut loaded, simd.load_part(&from[start..][..length]));
                assert_eq!(loaded, want, "{length} of {}", S::LANES);

                let (mut stored, mut want) = (vec![-1.0; 40], vec![-1.0; 40]);
                want[start..][..held].copy_from_slice(&from[..held]);
                simd.store_part(&mut stored[start..][..length], simd.load(&from));
                assert_eq!(stored, want, "{length} of {}", S::LANES);
            }
        }
    }
}

#[test]
fn parts_of_every_length() {
    with_every_set(Parts);
}

#[derive(Clone, Copy)]
struct Short;

impl WithSimd for Short {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut short = vec![0.0; S::LANES - 1];
        assert!(catch_unwind(AssertUnwindSafe(|| _ = simd.load(&short))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| simd.store(&mut short, simd.splat(1.0)))).is_err());
        assert!(short.iter().all(|&element| element == 0.0));
    }
}

#[test]
fn short_slices_panic() {
    with_every_set(Short);
}

#[derive(Clone, Copy)]
struct Rounding;

impl WithSimd for Rounding {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (a, b) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON);
        let mut sum = vec![0.0; S::LANES];
        simd.store(&mut sum, simd.mul_add(simd.splat(a), simd.splat(b), simd.splat(-1.0)));
        assert!(sum.iter().all(|&sum| sum == -f32::EPSILON * f32::EPSILON), "{sum:?}");
    }
}

#[test]
fn fused_products_round_once() {
    with_fast_sets(Rounding);
}
