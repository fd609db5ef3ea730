//! Threads that work together.

use crate::support::load;

#[test]
fn a_sum_in_shared_memory() {
    let mut cuda = load("together.ptx");
    let a: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(12));
    cuda.launch("sums", [3, 1, 1], [256, 1, 1], &[&input, &out, &1000i32]).unwrap();
    assert_eq!(cuda.download::<f32>(out), [499_500.0; 3]);
}

#[test]
fn shuffles_and_votes() {
    let mut cuda = load("together.ptx");
    let a: Vec<i32> = (0..32).map(|i| i * 7 % 50).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(32 * 8 * 4));
    cuda.block("shuffles", 32, &[&input, &out]);
    for (i, row) in cuda.download::<i32>(out).chunks(8).enumerate() {
        let ballot = (0..32).fold(0u32, |mask, lane| mask | ((a[lane] as u32 & 1) << lane));
        let same = (0..32).fold(0u32, |mask, lane| mask | (u32::from(a[lane] & 3 == a[i] & 3) << lane));
        let expected = [
            a[5],
            a[(i & !7) | ((i * 3) & 7)],
            if i >= 3 { a[i - 3] } else { a[i] },
            if i % 16 + 2 < 16 { a[i + 2] } else { a[i] },
            a[i ^ 9],
            ballot as i32,
            1,
            same as i32,
        ];
        assert_eq!(row, expected, "lane {i}");
    }
}

#[test]
fn halves_of_a_warp() {
    let mut cuda = load("together.ptx");
    let a: Vec<i32> = (0..32).map(|i| i * 11 % 37).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(128));
    cuda.block("halves", 32, &[&input, &out]);
    let odd: i32 = a.iter().skip(1).step_by(2).sum();
    let even = *a.iter().step_by(2).max().unwrap();
    assert_eq!(cuda.download::<i32>(out), [odd + even; 32]);
}

#[test]
fn atomics() {
    let mut cuda = load("together.ptx");
    let ints = cuda.upload(&[0i32; 16]);
    let (longs, floats) = (cuda.upload(&[5u64]), cuda.upload(&[0.5f32]));
    cuda.block("atomics", 100, &[&ints, &longs, &floats]);
    let found = cuda.download::<i32>(ints);
    for (k, found) in found[..8].iter().enumerate() {
        assert_eq!(*found, (0..100).filter(|i| i & 7 == k as i32).sum::<i32>());
    }
    assert_eq!(found[8..15], [-99, -1, (0..100).fold(0, |x, i| x ^ i), 0, 200, 77, 1099]);
    assert_eq!(cuda.download::<u64>(longs), [5 + (4950 << 30)]);
    assert_eq!(cuda.download::<f32>(floats), [100.5]);
}

#[test]
fn barriers_that_reduce() {
    let mut cuda = load("together.ptx");
    let a: Vec<i32> = (0..70).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(280));
    cuda.block("barriers", 70, &[&input, &out]);
    assert_eq!(cuda.download::<i32>(out), [3511; 70]);
}

#[test]
fn blocks_of_any_shape() {
    let mut cuda = load("together.ptx");
    let n = 21usize;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32).collect();
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(4 * n * n));
    cuda.launch("product", [3, 5, 1], [7, 5, 1], &[&input, &input, &out, &(n as i32)]).unwrap();
    for (i, found) in cuda.download::<f32>(out).into_iter().enumerate() {
        let expected: f32 = (0..n).map(|k| a[i / n * n + k] * a[k * n + i % n]).sum();
        assert_eq!(found, expected);
    }
}
