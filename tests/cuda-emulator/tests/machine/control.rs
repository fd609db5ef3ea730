//! Branches, calls, local memory and variables.

use crate::support::load;

#[test]
fn lanes_leave_a_loop_one_by_one() {
    let mut cuda = load("control.ptx");
    let a: Vec<i32> = (1..=100).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(400));
    cuda.launch("collatz", [2, 1, 1], [64, 1, 1], &[&input, &out, &100i32]).unwrap();
    let steps = |mut n: i64| {
        let mut count = 0;
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            count += 1;
        }
        count
    };
    assert_eq!(cuda.download::<i32>(out), a.iter().map(|n| steps((*n).into())).collect::<Vec<i32>>());
}

#[test]
fn calls_in_branches() {
    let mut cuda = load("control.ptx");
    let a: Vec<f32> = (0..64).map(|i| i as f32 * 0.25 - 4.0).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(256));
    cuda.block("calls", 64, &[&input, &out]);
    let inner = |a: f32, b: f32| if a > b { a - b } else { a * b };
    for (i, (found, x)) in cuda.download::<f32>(out).into_iter().zip(a).enumerate() {
        let expected = match i % 3 {
            0 => (0..i).fold(0.0, |sum, k| sum + inner(x, k as f32)),
            1 => inner(x, 2.0),
            _ => x.max(1.0) * 10.0 + x.min(1.0) + f32::from(u8::from(x < 1.0)),
        };
        assert_eq!(found, expected, "thread {i}");
    }
}

#[test]
fn arguments_of_all_widths() {
    let mut cuda = load("control.ptx");
    let a: Vec<i32> = (0..40).map(|i| i * 12_345 - 200_000).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(8 * 40));
    cuda.block("narrow_arguments", 40, &[&input, &out]);
    let expected = |a: i32| {
        let long = i64::from(a) * 5_000_000_000;
        i64::from(a as i8) * 1000 + i64::from((a * 3) as u16) + if a & 1 == 1 { long } else { -long }
    };
    assert_eq!(cuda.download::<i64>(out), a.into_iter().map(expected).collect::<Vec<_>>());
}

#[test]
fn local_arrays() {
    let mut cuda = load("control.ptx");
    let a: Vec<i32> = (0..40).map(|i| i * i).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(4 * 48));
    cuda.block("locals", 48, &[&input, &out, &40i32]);
    for (i, found) in cuda.download::<i32>(out).into_iter().enumerate() {
        let mut histogram = [0; 8];
        a.iter().for_each(|a| histogram[(*a as usize + i) & 7] += 1);
        let expected = (0..8).fold(0, |sum, k| sum * 3 + histogram[(k * 5 + i) & 7]);
        assert_eq!(found, expected, "thread {i}");
    }
}

#[test]
fn switches_and_variables() {
    let mut cuda = load("control.ptx");
    let a: Vec<i32> = (0..32).map(|i| i % 9).collect();
    let (input, out) = (cuda.upload(&a), cuda.upload(&[1000; 32]));
    cuda.block("switches", 32, &[&input, &out]);
    let table = [10, 20, 30, 40];
    let expected: Vec<i32> = a
        .iter()
        .enumerate()
        .map(|(i, x)| match x {
            0 => 7,
            1 => 5,
            2 => table[i & 3],
            3 => -3,
            4 => 67,
            5 => 1003,
            6 => 66,
            _ => 99,
        })
        .collect();
    assert_eq!(cuda.download::<i32>(out), expected);

    let out = cuda.device.allocate(4 * 12);
    let weights = [0.5, 1.5, 2.5];
    for table in [[10, 20, 30, 40], [10, 21, 30, 40]] {
        cuda.block("variables", 12, &[&out]);
        let expected: Vec<f32> = (0..12).map(|i| table[i & 3] as f32 * weights[i % 3] + weights[i & 1]).collect();
        assert_eq!(cuda.download::<f32>(out), expected);
    }
}

#[test]
fn parameters_of_all_sizes() {
    let mut cuda = load("control.ptx");
    let out = cuda.device.allocate(8 * 6);
    let words = [100u32, 200, 300, 400, 500, 600];
    let function = cuda.module.function("structs").unwrap();
    let places: Vec<_> = function.parameters().iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!(places, [(0, 24), (24, 1), (32, 8), (40, 8)]);
    assert_eq!(function.parameter_bytes(), 48);
    struct Bytes(Vec<u8>);
    impl crate::support::Parameter for Bytes {
        fn parameter(&self) -> Vec<u8> {
            self.0.clone()
        }
    }
    let structure = Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect());
    cuda.block("structs", 6, &[&structure, &2u8, &1.5f64, &out]);
    let expected: Vec<f64> = words.iter().map(|word| f64::from(word >> 2) * 1.5).collect();
    assert_eq!(cuda.download::<f64>(out), expected);
}

#[test]
fn generic_pointers() {
    let mut cuda = load("control.ptx");
    let out = cuda.upload(&(0..32).collect::<Vec<i32>>());
    cuda.block("pointers_of_all_kinds", 32, &[&out]);
    let expected: Vec<i32> = (0..32).map(|i| [1000 + i, 1300 + i, 1000 + i][i as usize % 3]).collect();
    assert_eq!(cuda.download::<i32>(out), expected);
}
