//! Benchmarks of the kernels that dominate training, on the fast and on the portable device, at the sizes of the TensorFlow handbook's CNN.

use criterion::{BenchmarkId, Criterion, Throughput};
use gradlet::ops::conv2d::{Conv2DOptions, Padding};
use gradlet::{Device, Result, Tensor, cpu, portable_cpu};

const BATCH: u32 = 8;

fn tensor(device: &Device, dims: &[u32]) -> Tensor {
    let elements: Vec<f32> = (0..dims.iter().product()).map(|index: u32| (index % 17) as f32 * 0.1 - 0.8).collect();
    Tensor::new(device, &elements, dims).expect("as many elements as the dimensions say")
}

/// Times `op` on inputs of shapes `dims` on both devices. `operations` is the number of multiplications and additions in one run.
fn kernel(criterion: &mut Criterion, name: &str, operations: u64, dims: &[&[u32]], op: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(operations)).sample_size(10);
    for (label, device) in [("fast", cpu()), ("portable", portable_cpu())] {
        let inputs: Vec<Tensor> = dims.iter().map(|dims| tensor(&device, dims)).collect();
        group.bench_function(BenchmarkId::from_parameter(label), |bencher| bencher.iter(|| op(&inputs).expect("the inputs fit the op")));
    }
    group.finish();
}

fn kernels(criterion: &mut Criterion) {
    let same = Conv2DOptions::default().padding(Padding::Same);
    let (x, filter, y): ([u32; 4], [u32; 4], [u32; 4]) = ([BATCH, 14, 14, 32], [5, 5, 32, 64], [BATCH, 14, 14, 64]);
    let convolution = 2 * u64::from(BATCH * 14 * 14) * 25 * 32 * 64;
    kernel(criterion, "conv2d", convolution, &[&x, &filter], |v| v[0].conv2d(&v[1], None, &same));
    kernel(criterion, "conv2d_input_grad", convolution, &[&y, &filter], |v| v[0].conv2d_input_grad(&v[1], &same, [14, 14]));
    kernel(criterion, "conv2d_filter_grad", convolution, &[&x, &y], |v| v[0].conv2d_filter_grad(&v[1], &same, [5, 5]));
    let dense = 2 * u64::from(BATCH) * 3136 * 1024;
    kernel(criterion, "dense", dense, &[&[BATCH, 3136], &[3136, 1024]], |v| v[0].dense(&v[1], None));
    kernel(criterion, "max_pool2d", u64::from(BATCH * 28 * 28 * 32), &[&[BATCH, 28, 28, 32]], |v| {
        v[0].max_pool2d([2, 2], [2, 2], Padding::Valid)
    });
    kernel(criterion, "relu", u64::from(BATCH * 28 * 28 * 32), &[&[BATCH, 28, 28, 32]], |v| v[0].relu());
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    kernels(&mut criterion);
    criterion.final_summary();
}
