use super::super::testing::{Random, Value, cases, same};
use super::*;
use crate::kernels::conv2d::tests::attributes;
use crate::team::Team;
use gradlet_core::Result;
use gradlet_core::custom_op::Call;

/// Returns bytes of all values.
fn bytes(random: &mut Random, dims: &[u32]) -> Value {
    let mut value = Value::zeros(DType::I8, dims);
    value.bytes_mut().iter_mut().for_each(|byte| *byte = random.between(0, 255) as u8);
    value
}

fn integers(dims: &[u32], mut integer: impl FnMut() -> i32) -> Value {
    let mut value = Value::zeros(DType::I32, dims);
    value.bytes_mut().chunks_exact_mut(4).for_each(|bytes| bytes.copy_from_slice(&integer().to_ne_bytes()));
    value
}

/// Returns a multiplier. Unless all are usual, some are halves, some very small or large, and some not valid.
fn multiplier(random: &mut Random, all_usual: bool) -> [i32; 2] {
    if !all_usual && random.between(0, 5) == 0 {
        return [1 << 30, 0];
    }
    if all_usual {
        return [(1 << 30) | random.between(0, (1 << 30) - 1) as i32, -(random.between(1, 23) as i32)];
    }
    let usual = random.between(0, 3) > 0;
    let exponent = if usual { -(random.between(0, 14) as i32) } else { random.between(0, 63) as i32 - 32 };
    [[(1 << 30) | random.between(0, 1 << 30) as i32 & i32::MAX, 0, i32::MAX, -1][random.between(0, 9).saturating_sub(6) as usize], exponent]
}

/// Returns a bias and multipliers for `channels` channels: one for each, or one for all.
fn operands(random: &mut Random, channels: u32) -> [Value; 2] {
    let wide = random.between(0, 3) == 0;
    let bias = integers(&[channels], || random.between(0, u32::MAX - 1) as i32 >> if wide { 0 } else { 14 });
    let rows = if random.between(0, 3) == 0 { 1 } else { channels };
    let usual = random.between(0, 1) == 0;
    let mut pairs = (0..rows).flat_map(|_| multiplier(random, usual)).collect::<Vec<i32>>().into_iter();
    [bias, integers(&[rows, 2], || pairs.next().unwrap())]
}

/// Returns the words of a zero point and of a range.
fn range(random: &mut Random) -> [u32; 3] {
    let mut byte = || random.between(0, 255) as i32 - 128;
    let [zero_point, a, b] = [byte(), byte(), byte()];
    let whole = random.between(0, 1) == 0;
    [zero_point, if whole { -128 } else { a.min(b) }, if whole { 127 } else { a.max(b) }].map(|word| word as u32)
}

fn zero_point(random: &mut Random) -> u32 {
    (random.between(0, 255) as i32 - 128) as u32
}

type Run = fn(&mut Call<'_, '_>, Option<IntegerSet>) -> Result<()>;

/// A kernel with each of the first two sets of this machine, and without a set.
macro_rules! kernels {
    ($portable:expr, $run:path) => {{
        const RUN: Run = $run;
        let of = |run| Kernel { run, ..Kernel { def: $portable.def, dtype: DType::I8, run } };
        [
            of(|call: &mut Call<'_, '_>| RUN(call, IntegerSet::all().next())),
            of(|call: &mut Call<'_, '_>| RUN(call, IntegerSet::all().nth(1))),
            of(|call: &mut Call<'_, '_>| RUN(call, None)),
        ]
    }};
}

/// Compares kernels with the portable one, on one thread and on three. Returns false if the op rejects the inputs.
fn all_same(kernels: &[Kernel], portable: &Kernel, words: &[u32], inputs: &[&Value]) -> bool {
    let threads = [1, 3].map(Team::new);
    kernels.iter().all(|kernel| threads.iter().all(|team| team.during(|| same(kernel, portable, words, inputs))))
}

#[test]
fn convolutions_as_the_portable_kernel() {
    let kernels = kernels!(quantized_conv2d::I8, conv2d::run);
    let mut tried = 0;
    for seed in 0..cases(300) {
        let random = &mut Random::new(seed);
        let large = seed % 50 == 0;
        let words = [&attributes(random)[..], &[zero_point(random)], &range(random)].concat();
        let [kh, kw] = [random.between(1, 4), random.between(1, 4)];
        let (c, co) = (random.between(0, 20).min(random.between(1, 40)), random.between(1, 70));
        let (c, co) = if seed % 3 == 0 { (c * 8, co.next_multiple_of(16)) } else { (c, co) };
        let groups = if seed % 40 == 3 { 2 } else { 1 };
        let side = if large { 40 } else { 1 };
        let mut x = [random.between(0, 3), side + random.between(0, 11), side + random.between(0, 20), c * groups];
        let kw = if seed % 11 == 2 { 1 } else { kw };
        if kw == 1 && seed % 2 == 0 {
            x[2] = 1;
        }
        let (x, filter) = (bytes(random, &x), bytes(random, &[co * groups, kh, kw, c]));
        let [bias, multipliers] = operands(random, co * groups);
        tried += u64::from(all_same(&kernels, &quantized_conv2d::I8, &words, &[&x, &filter, &bias, &multipliers]));
    }
    assert!(tried > cases(150), "{tried}");
}

#[test]
fn depthwise_convolutions_as_the_portable_kernel() {
    let kernels = kernels!(quantized_depthwise_conv2d::I8, depthwise::run);
    let mut tried = 0;
    for seed in 0..cases(300) {
        let random = &mut Random::new(seed);
        let words = [&attributes(random)[..], &[zero_point(random)], &range(random)].concat();
        let [kh, kw] = [random.between(1, 4), random.between(1, 9)];
        let (c, multiplier) = (random.between(0, 70), 1 + u32::from(seed % 8 == 0));
        let (c, multiplier) = if seed % 10 == 1 { (1, random.between(1, 40)) } else { (c, multiplier) };
        let side = if seed % 50 == 0 { 40 } else { 1 };
        let mut x = [random.between(0, 3), side + random.between(0, 11), side + random.between(0, 20), c];
        let kw = if seed % 11 == 2 { 1 } else { kw };
        if kw == 1 && seed % 2 == 0 {
            x[2] = 1;
        }
        let (x, filter) = (bytes(random, &x), bytes(random, &[1, kh, kw, c * multiplier]));
        let [bias, multipliers] = operands(random, c * multiplier);
        tried += u64::from(all_same(&kernels, &quantized_depthwise_conv2d::I8, &words, &[&x, &filter, &bias, &multipliers]));
    }
    assert!(tried > cases(150), "{tried}");
}

#[test]
fn dense_layers_as_the_portable_kernel() {
    let kernels = kernels!(quantized_dense::I8, dense::run);
    for seed in 0..cases(300) {
        let random = &mut Random::new(seed);
        let large = seed % 30 == 0;
        let mut dim = |most: u32| random.between(u32::from(large), if large { 300 } else { most });
        let [m, n, k] = [dim(5), dim(40), dim(200)];
        let words = [&[zero_point(random), random.between(1, 2)][..], &range(random)].concat();
        let (x, filter) = (bytes(random, &[m, k]), bytes(random, &[n, k]));
        let [bias, multipliers] = operands(random, n);
        assert!(all_same(&kernels, &quantized_dense::I8, &words, &[&x, &filter, &bias, &multipliers]));
    }
}

#[test]
fn products_of_matrices_as_the_portable_kernel() {
    let kernels = kernels!(quantized_matmul::I8, matmul::run);
    for seed in 0..cases(300) {
        let random = &mut Random::new(seed);
        let large = seed % 30 == 0;
        let mut dim = |most: u32| random.between(u32::from(large), if large { 150 } else { most });
        let [m, n, k, batch] = [dim(5), dim(40), dim(70), dim(3) % 4];
        let flags = [u32::from(seed % 10 == 3), random.between(0, 1)];
        let dims = |rows, columns, flag| if flag == 0 { [batch, rows, columns] } else { [batch, columns, rows] };
        let (left, right) = (dims(m, k, flags[0]), dims(k, n, flags[1]));
        let multiplier = multiplier(random, seed % 2 == 0);
        if multiplier[0] >= 0 && (-31..=30).contains(&multiplier[1]) {
            let zero_points = [zero_point(random), if seed % 3 == 0 { 0 } else { zero_point(random) }];
            let words = [&zero_points[..], &range(random), &multiplier.map(|word| word as u32), &flags].concat();
            let (a, b) = (bytes(random, &left), bytes(random, if seed % 4 == 0 { &right[1..] } else { &right }));
            assert!(all_same(&kernels, &quantized_matmul::I8, &words, &[&a, &b]), "{left:?} {right:?} {words:?}");
        }
    }
}

/// Sums up to the largest ones that the fast conversion takes, and beyond.
#[test]
fn the_largest_sums_as_the_portable_kernel() {
    let [dense, convolution] = [kernels!(quantized_dense::I8, dense::run), kernels!(quantized_conv2d::I8, conv2d::run)];
    let filled = |dims: &[u32], byte: u8| {
        let mut value = Value::zeros(DType::I8, dims);
        value.bytes_mut().fill(byte);
        value
    };
    let (n, zero_point, range) = (17, 127u32, [-128i32, -128, 127].map(|word| word as u32));
    for (k, weight, bias, exponent) in [(32_000, 0x80, 1, -1), (32_000, 0x7f, -1, -23), (32_896, 0x80, 1, -23), (33_000, 0x7f, -1, -1)] {
        let bias = integers(&[n], || bias * 29_000_000);
        let multipliers = integers(&[1, 2], {
            let mut words = [i32::MAX, exponent].into_iter();
            move || words.next().unwrap()
        });
        let inputs = [filled(&[1, k], 0x80), filled(&[n, k], weight)];
        for roundings in [1, 2] {
            let words = [&[zero_point, roundings][..], &range].concat();
            assert!(all_same(&dense, &quantized_dense::I8, &words, &[&inputs[0], &inputs[1], &bias, &multipliers]), "{k}");
        }
        let inputs = [filled(&[1, 1, 1, k], 0x80), filled(&[n, 1, 1, k], weight)];
        let words = [&[1, 1, 1, 1, 0, 0, 0, 0, 0, zero_point][..], &range].concat();
        assert!(all_same(&convolution, &quantized_conv2d::I8, &words, &[&inputs[0], &inputs[1], &bias, &multipliers]), "{k}");
    }
}

#[test]
fn pairs_as_the_portable_kernel() {
    let sums = kernels!(quantized_add::I8, add::run);
    let products = kernels!(quantized_mul::I8, mul::run);
    let squares = kernels!(quantized_squared_difference::I8, squared_difference::run);
    let mut tried = 0;
    for seed in 0..cases(200) {
        let random = &mut Random::new(seed);
        let dims = [random.between(0, 3), random.between(1, if seed % 20 == 0 { 40_000 } else { 70 })];
        let shapes: [&[u32]; 5] = [&dims, &dims[1..], &[dims[0], 1], &[1, dims[1]], &[]];
        let (left, right) = (shapes[(seed % 5) as usize], shapes[(seed / 5 % 5) as usize]);
        let (a, b) = (bytes(random, left), bytes(random, right));
        let zero_points = [zero_point(random), zero_point(random)];
        let multipliers = [(); 3].map(|()| multiplier(random, false).map(|word| word as u32)).concat();
        let output = range(random);
        let words = |rest: &[u32]| [&zero_points[..], &output, rest].concat();
        tried += u64::from(all_same(&products, &quantized_mul::I8, &words(&multipliers[..2]), &[&a, &b]));
        tried += u64::from(all_same(&squares, &quantized_squared_difference::I8, &words(&multipliers), &[&a, &b]));
        let subtract = [&multipliers[..], &[random.between(0, 1)]].concat();
        tried += u64::from(all_same(&sums, &quantized_add::I8, &words(&subtract), &[&a, &b]));
    }
    assert!(tried > cases(240), "{tried}");
}
