//! Instructions of compute capability 8.0, compared with loops over the tables of the PTX ISA.

use crate::numbers::{Number, matrix, product};
use crate::support::{Loaded, load, random};
use gradlet_cuda_emulator::machine::FaultKind;

/// Row and column of number `i` of a lane's part of the left factor.
fn place_a(number: Number, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    match number {
        Number::Tf32 => (if i.is_multiple_of(2) { group } else { group + 8 }, if i < 2 { thread } else { thread + 4 }),
        _ => (if matches!(i, 0 | 1 | 4 | 5) { group } else { group + 8 }, thread * 2 + i % 2 + if i < 4 { 0 } else { 8 }),
    }
}

/// Row and column of number `i` of a lane's part of the right factor.
fn place_b(number: Number, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    match number {
        Number::Tf32 => (thread + 4 * i, group),
        _ => (thread * 2 + i % 2 + if i < 2 { 0 } else { 8 }, group),
    }
}

/// Row and column of number `i` of a lane's part of the accumulator.
fn place_c(lane: usize, i: usize) -> (usize, usize) {
    (if i < 2 { lane / 4 } else { lane / 4 + 8 }, lane % 4 * 2 + i % 2)
}

/// Packs the numbers of each lane into registers.
fn registers(number: Number, count: usize, value: impl Fn(usize, usize) -> f32) -> Vec<u32> {
    let per_register = 4 / number.bytes();
    let register = |lane: usize, register: usize| {
        let numbers = (0..per_register).map(|i| number.bits(value(lane, register * per_register + i)) << (16 * i));
        numbers.fold(0, |word, bits| word | bits)
    };
    (0..32 * count).map(|index| register(index / count, index % count)).collect()
}

#[test]
fn products_of_a_warp() {
    use Number::{Brain, Half, Tf32};
    let mut cuda = load("ampere.ptx");
    let forms = [
        ("product_f16_16", Half, 16),
        ("product_bf16_16", Brain, 16),
        ("product_tf32_8", Tf32, 8),
        ("product_f16_8", Half, 8),
        ("product_bf16_8", Brain, 8),
        ("product_tf32_4", Tf32, 4),
    ];
    for (seed, (kernel, number, depth)) in forms.into_iter().enumerate() {
        let (a, b, c) = (matrix(16, depth, seed as u64), matrix(8, depth, seed as u64 + 10), matrix(16, 8, seed as u64 + 20));
        let count = depth * number.bytes() / 16;
        let at = |(row, column): (usize, usize), of: &[Vec<f32>]| of[row][column];
        let left = cuda.upload(&registers(number, 2 * count, |lane, i| at(place_a(number, lane, i), &a)));
        let right = cuda.upload(&registers(number, count, |lane, i| {
            let (row, column) = place_b(number, lane, i);
            b[column][row]
        }));
        let sums = cuda.upload(&(0..128).map(|i| at(place_c(i / 4, i % 4), &c)).collect::<Vec<f32>>());
        let out = cuda.device.allocate(512);
        let statistics = cuda.block(kernel, 32, &[&left, &right, &sums, &out]);
        let expected = product(&a, &b, &c);
        for (i, found) in cuda.download::<f32>(out).into_iter().enumerate() {
            assert_eq!(found, at(place_c(i / 4, i % 4), &expected), "{kernel}: number {i}");
        }
        assert_eq!(statistics.flops, 2 * 16 * 8 * depth as u64);
    }
}

#[test]
fn a_product_needs_all_lanes() {
    let mut cuda = load("ampere.ptx");
    let words = cuda.upload(&[0u32; 128]);
    let out = cuda.device.allocate(512);
    let fault = cuda.launch("product_tf32_4", [1; 3], [31, 1, 1], &[&words, &words, &words, &out]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::WarpDivergence, "{fault}");
}

#[test]
fn tf32_ignores_the_last_bits() {
    let mut cuda = load("ampere.ptx");
    let ones = cuda.upload(&[1.0f32 + f32::EPSILON * 4096.0; 64]);
    let (zeros, out) = (cuda.upload(&[0f32; 128]), cuda.device.allocate(512));
    cuda.block("product_tf32_4", 32, &[&ones, &ones, &zeros, &out]);
    assert_eq!(cuda.download::<f32>(out), [4.0; 128]);
}

#[test]
fn matrices_are_loaded() {
    let mut cuda = load("ampere.ptx");
    let tile: Vec<u16> = (0..256).map(|i| i * 3 + 1).collect();
    let input = cuda.device.upload(&tile.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
    let order: Vec<u32> = (0..32).map(|row| row * 13 % 32).collect();
    let rows = cuda.upload(&order);
    for (kernel, count, transposed) in
        [("matrices_1", 1, false), ("matrices_2", 2, false), ("matrices_4", 4, false), ("transposed_1", 1, true), ("transposed_4", 4, true)]
    {
        let out = cuda.device.allocate(128 * count);
        cuda.block(kernel, 32, &[&input, &rows, &out]);
        let number = |matrix: usize, row: usize, column: usize| u32::from(tile[order[8 * matrix + row] as usize * 8 + column]);
        for (i, found) in cuda.download::<u32>(out).into_iter().enumerate() {
            let (lane, matrix) = (i / count, i % count);
            let (row, column) = (lane / 4, lane % 4 * 2);
            let of = |j| if transposed { number(matrix, column + j, row) } else { number(matrix, row, column + j) };
            assert_eq!(found, of(0) | of(1) << 16, "{kernel}: lane {lane}, matrix {matrix}");
        }
    }
}

fn run(cuda: &mut Loaded, kernel: &str, threads: u32, count: usize, input: &[f32], words: &[u32]) -> Vec<f32> {
    let (input, out) = (cuda.upload(input), cuda.device.allocate(4 * count));
    match words {
        [a, b] => cuda.block(kernel, threads, &[&input, &out, a, b]),
        _ => cuda.block(kernel, threads, &[&input, &out]),
    };
    cuda.download(out)
}

#[test]
fn copies_arrive() {
    let mut cuda = load("ampere.ptx");
    let input: Vec<f32> = (0..64 * 7).map(|i| i as f32 + 1.0).collect();
    cuda.dynamic_shared = 3 * 256;
    let found = run(&mut cuda, "pipeline", 16, input.len(), &input, &[7, 8]);
    for (i, found) in found.into_iter().enumerate() {
        let (step, at) = (i / 64, (i + 5) % 64);
        let expected = if step == 6 && at % 4 >= 2 { 0.0 } else { input[64 * step + at] };
        assert_eq!(found, expected, "{i}");
    }
    cuda.dynamic_shared = 0;
    let found = run(&mut cuda, "small_copies", 32, 96, &input[..96], &[]);
    assert!(found.iter().rev().eq(&input[..96]), "{found:?}");
}

#[test]
fn barriers_of_some_warps() {
    let mut cuda = load("ampere.ptx");
    let input: Vec<f32> = (0..160).map(|i| i as f32).collect();
    let found = run(&mut cuda, "groups", 160, 128, &input, &[]);
    for (i, found) in found.into_iter().enumerate() {
        let (group, at) = (i / 64, i % 64);
        assert_eq!(found, (64 * group + 63 - at) as f32 + group as f32 + (128 + i % 32) as f32, "{i}");
    }
}

/// The nearest of numbers with some bits of fraction and a largest exponent, ties to even; as f64.
fn nearest(value: f64, fraction: i32, least: i32, most: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = (value.abs().log2().floor() as i32).max(least);
    let unit = 2f64.powi(exponent - fraction);
    let rounded = (value / unit).round_ties_even() * unit;
    if rounded.abs() > most { f64::INFINITY.copysign(value) } else { rounded }
}

fn half(value: f64) -> f64 {
    nearest(value, 10, -14, 65_504.0)
}

fn brain(value: f64) -> f64 {
    nearest(value, 7, -126, 2f64.powi(127) * (2.0 - 2f64.powi(-7)))
}

/// The value of an f16's bits.
fn half_of(bits: u32) -> f64 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = ((bits >> 10 & 31) as i32, f64::from(bits & 0x3ff) / 1024.0);
    sign * match exponent {
        0 => fraction * 2f64.powi(-14),
        31 => f64::INFINITY,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

fn brain_of(bits: u32) -> f64 {
    f32::from_bits(bits << 16).into()
}

#[test]
fn numbers_of_16_bits() {
    let mut cuda = load("ampere.ptx");
    let mut next = random(3);
    let mut value =
        || (next() % 2_000_001) as f32 / 1e6 * 2f32.powi((next() % 20) as i32 - 12) * if next().is_multiple_of(2) { 1.0 } else { -1.0 };
    for _ in 0..50 {
        let input: Vec<f32> = (0..96).map(|_| value()).collect();
        let (address, out) = (cuda.upload(&input), cuda.device.allocate(2048));
        // One of the words stays unwritten for a lane's third and second last place.
        cuda.block("packed", 32, &[&address, &out]);
        let bytes = cuda.device.bytes(out);
        let word = |lane: usize, i: usize| u32::from_le_bytes(bytes[64 * lane + 4 * i..][..4].try_into().unwrap());
        for (lane, triple) in input.chunks(3).enumerate() {
            let [a, b, c] = [0, 1, 2].map(|i| f64::from(triple[i]));
            let pair = |i: usize, of: fn(u32) -> f64, upper: f64, lower: f64| {
                let found = word(lane, i);
                assert_eq!((of(found >> 16), of(found & 0xffff)), (upper, lower), "word {i} of {triple:?}");
            };
            let (ha, hb, hc) = (half(a), half(b), half(c));
            let (ba, bb, bc) = (brain(a), brain(b), brain(c));
            pair(0, half_of, ha, hb);
            pair(1, brain_of, ba, bb);
            pair(2, half_of, half(ha + hb), half(hb + hc));
            pair(3, half_of, half(ha * hb), half(hb * hc));
            pair(4, half_of, half(ha * hb + hc), half(hb * hc + ha));
            pair(5, brain_of, brain(ba * bb + bc), brain(bb * bc + ba));
            pair(6, brain_of, ba.max(bb), bb.max(bc));
            pair(7, brain_of, -ba, -bb);
            let tf32 = f64::from(f32::from_bits(word(lane, 8)));
            assert!((tf32 - a).abs() <= a.abs() * 2f64.powi(-11) && word(lane, 8) & 0x1fff == 0, "{tf32} for {a}");
            assert_eq!(brain_of(word(lane, 9)), ba);
            assert_eq!(word(lane, 10), triple[0].to_bits() >> 16);
            assert_eq!(word(lane, 11) as i32, input.chunks(3).map(|triple| triple[0] as i32).max().unwrap());
            assert_eq!(word(lane, 12), (0..32).fold(0, |all, lane| all ^ word(lane, 1)));
            // Towards zero: no step of an f16 lies between the value and the result.
            for (value, bits) in [(a, word(lane, 13) >> 16), (b, word(lane, 13) & 0xffff)] {
                assert!(half_of(bits).abs() <= value.abs() && value.abs() < half_of((bits & 0x7fff) + 1), "{value} as {bits:#x}");
            }
        }
    }
}

#[test]
fn a_tiled_product() {
    let mut cuda = load("ampere.ptx");
    let depth = std::env::var("DEPTH").map_or(96, |depth| depth.parse().unwrap());
    let (a, b) = (matrix(128, depth, 1), matrix(128, depth, 2));
    let bits =
        |of: &[Vec<f32>]| of.iter().flatten().flat_map(|value| (Number::Brain.bits(*value) as u16).to_le_bytes()).collect::<Vec<u8>>();
    let (left, right, out) = (cuda.device.upload(&bits(&a)), cuda.device.upload(&bits(&b)), cuda.device.allocate(65_536));
    cuda.dynamic_shared = 2 * 3 * 128 * 40 * 2;
    let start = std::time::Instant::now();
    let statistics = cuda.block("tiled_product", 128, &[&left, &right, &out, &(depth as u32)]);
    let seconds = start.elapsed().as_secs_f64();
    println!("{} operations in {seconds:.3} s: {:.0} million a second", statistics.flops, statistics.flops as f64 / seconds / 1e6);
    assert_eq!(
        cuda.download::<f32>(out),
        product(&a, &b, &matrix(128, 128, 0).iter().map(|r| vec![0.0; r.len()]).collect::<Vec<_>>()).concat()
    );
    assert_eq!(statistics.flops, 2 * 128 * 128 * depth as u64);
    assert_eq!((statistics.loaded, statistics.stored), (2 * 2 * 128 * depth as u64, 4 * 128 * 128));
}
