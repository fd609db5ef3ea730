//! How fast the interpreter is. Prints its figures; fails only if it has become many times slower. `N` is the size of the products.

use std::time::Instant;

use crate::support::load;

#[test]
fn products() {
    let mut cuda = load("together.ptx");
    let n = std::env::var("N").map_or(128, |n| n.parse().unwrap());
    let a: Vec<f32> = (0..n * n).map(|i| (i % 13) as f32 - 6.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 * 0.5).collect();
    let (left, right) = (cuda.upload(&a), cuda.upload(&b));
    for kernel in ["product", "tiled"] {
        let output = cuda.device.allocate(4 * n * n);
        let start = Instant::now();
        let grid = [n as u32 / 16, n as u32 / 16, 1];
        let statistics = cuda.launch(kernel, grid, [16, 16, 1], &[&left, &right, &output, &(n as i32)]).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        let rate = statistics.lane_instructions as f64 / seconds / 1e6;
        println!("{kernel}: {} instructions of {n}³ in {seconds:.3} s: {rate:.0} million a second", statistics.lane_instructions);
        let found = cuda.download::<f32>(output);
        for row in 0..n {
            for column in 0..n {
                let expected = (0..n).fold(0.0, |sum, k| sum + a[row * n + k] * b[k * n + column]);
                assert_eq!(found[row * n + column], expected, "{kernel} at {row}, {column}");
            }
        }
        assert!(rate > 1.0, "{rate} million instructions a second");
    }
}
