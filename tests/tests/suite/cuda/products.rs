//! Products of matrices on devices that are not strict, whose kernels add in another order than the portable ones. With small integers,
//! each order gives the same sums.

use gradlet::cuda::Options;
use gradlet_core::custom_op::Op;
use gradlet_core::{DType, Device, Eager, Result, Scope, Tensor, ops};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;

/// Returns a tensor of integers from -3 to 3.
pub fn integers(random: &mut Random, dims: &[u32]) -> Result<Tensor> {
    let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| random.range(0, 6) as f32 - 3.).collect();
    Tensor::new(&ops::portable_cpu(), &numbers, dims)
}

/// Returns a copy of a tensor of f32 or i64 on `device`.
fn copy(tensor: &Tensor, device: &Device) -> Result<Tensor> {
    match tensor.dtype() {
        DType::I64 => Tensor::new(device, &tensor.to_vec::<i64>()?, tensor.dims()),
        _ => Tensor::new(device, &tensor.to_vec::<f32>()?, tensor.dims()),
    }
}

/// An emulated GPU with a device that is not strict.
pub struct Fast {
    emulator: Emulator,
    device: Device,
}

impl Fast {
    /// Starts an emulator with a GPU of `multiprocessors` multiprocessors.
    pub fn new(multiprocessors: u32, workspace: u64) -> Result<Fast> {
        Fast::with(&format!("multiprocessors={multiprocessors}"), workspace)
    }

    /// Starts an emulator with these settings of its GPU.
    pub fn with(settings: &str, workspace: u64) -> Result<Fast> {
        let emulator = Emulator::with(settings)?;
        let device = emulator.gpu()?.create("GPU:0", &Options { workspace, ..Options::default() })?;
        Ok(Fast { emulator, device })
    }

    /// Starts GPUs on which the same product has different tiles, one without a workspace, and a Xavier, which copies nothing in the
    /// background.
    pub fn several() -> Result<[Fast; 4]> {
        let xavier = Fast::with("multiprocessors=8 capability=72", 8 << 20)?;
        Ok([Fast::new(1, 8 << 20)?, Fast::new(16, 0)?, Fast::new(132, 8 << 20)?, xavier])
    }

    /// Fails unless each of these kernels has run on one of the GPUs.
    pub fn have_run(gpus: &[Fast], kernels: &[&str]) {
        let lines: Vec<String> = gpus.iter().flat_map(|gpu| gpu.emulator.kernels()).collect();
        for kernel in kernels {
            assert!(lines.iter().any(|line| line.split(' ').next() == Some(kernel)), "{kernel} has not run");
        }
    }

    /// Runs an op on the CPU and on the GPU. Returns the elements of its results.
    pub fn both(&self, op: &'static Op, words: &[u32], inputs: &[&Tensor]) -> Result<[Vec<Vec<f32>>; 2]> {
        let run = |device: &Device| -> Result<Vec<Vec<f32>>> {
            let inputs: Vec<Tensor> = inputs.iter().map(|input| copy(input, device)).collect::<Result<_>>()?;
            let results = Eager::new(device).emit(op, words, &inputs.iter().collect::<Vec<_>>())?;
            results.iter().map(|result| result.to_vec::<f32>()).collect()
        };
        let results = [run(&ops::portable_cpu())?, run(&self.device)?];
        assert_eq!(self.emulator.report(), "");
        Ok(results)
    }
}

/// Returns the dimensions of a matrix, or of the transposed one.
fn matrix([rows, columns]: [u32; 2], flip: bool) -> [u32; 2] {
    if flip { [columns, rows] } else { [rows, columns] }
}

/// Sizes around those of tiles, and others.
const SIZES: [u32; 22] = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 64, 65, 96, 100, 127, 128, 130, 160, 257];

/// Batch dimensions of the operands.
const BATCHES: [[&[u32]; 2]; 6] = [[&[], &[]], [&[], &[]], [&[3], &[3]], [&[2, 1], &[3]], [&[2], &[]], [&[], &[2]]];

#[test]
fn products_of_every_shape() -> Result<()> {
    let mut random = Random::new(3);
    let gpus = Fast::several()?;
    for (index, gpu) in gpus.iter().enumerate() {
        for round in 0..32 {
            let [mut m, mut k, mut n] = [(); 3].map(|()| random.pick(&SIZES));
            match round % 4 {
                0 => m = random.range(1, 4),
                1 => n = random.range(1, 4),
                2 => [m, k, n] = [random.range(1, 70), random.pick(&[0, 500, 1000]), random.range(1, 70)],
                _ => {}
            }
            let flips = [random.coin(), random.coin()];
            let batches = random.pick(&BATCHES);
            let a = [batches[0], &matrix([m, k], flips[0])].concat();
            let b = [batches[1], &matrix([k, n], flips[1])].concat();
            let operands = [integers(&mut random, &a)?, integers(&mut random, &b)?];
            let [wanted, own] = gpu.both(&ops::matmul::OP, &flips.map(u32::from), &[&operands[0], &operands[1]])?;
            assert!(wanted == own, "GPU {index}: {a:?} · {b:?}, flipped {flips:?}");
        }
    }
    let tiles = [
        "gemm_128x128_f32",
        "gemm_async_128x128_f32",
        "gemm_async_128x256_f32",
        "gemm_64x64_f32",
        "gemm_128x32_f32",
        "gemm_32x128_f32",
        "gemm_sum_f32",
        "gemm_sum_f32_4",
    ];
    Fast::have_run(&gpus, &tiles);
    Fast::have_run(&gpus, &["thin_across_1_f32_1", "thin_along_1_f32_1"]);
    Ok(())
}

#[test]
fn dense_layers_of_every_shape() -> Result<()> {
    let mut random = Random::new(4);
    for gpu in Fast::several()? {
        for _ in 0..16 {
            let [m, k, n] = [random.pick(&[1, 1, 2, 4, 20, 150]), random.pick(&SIZES) * 4, random.pick(&SIZES)];
            let flip = random.coin();
            let x = integers(&mut random, &[m, k])?;
            let kernel = integers(&mut random, &matrix([k, n], flip))?;
            let bias = integers(&mut random, &[n])?;
            let [wanted, own] = gpu.both(&ops::dense::OP, &[flip.into()], &[&x, &kernel, &bias])?;
            assert!(wanted == own, "[{m},{k}] · [{k},{n}], flipped {flip}");
        }
    }
    Ok(())
}

/// Matrices of megabytes are divided between more blocks than a small one.
#[test]
fn a_long_matrix_times_a_vector() -> Result<()> {
    let mut random = Random::new(5);
    let gpus = Fast::several()?;
    for gpu in &gpus {
        for (dims, flip) in [([1024, 256], false), ([64, 4096], true), ([3, 100_000], true)] {
            let [k, n] = matrix(dims, flip);
            for m in [1, 3] {
                let (x, long) = (integers(&mut random, &[m, k])?, integers(&mut random, &dims)?);
                let [wanted, own] = gpu.both(&ops::matmul::OP, &[0, flip.into()], &[&x, &long])?;
                assert!(wanted == own, "[{m},{k}] · [{k},{n}], flipped {flip}");
            }
        }
    }
    Fast::have_run(&gpus, &["thin_across_1_f32_4", "thin_across_4_f32_4", "thin_along_1_f32_4", "thin_along_4_f32_4"]);
    Ok(())
}

#[test]
fn gradients_end_with_steps() -> Result<()> {
    let mut random = Random::new(6);
    let cpu = ops::portable_cpu();
    let adam = [0.9f32, 0.999, 1e-7, 0.1, 0.001].map(f32::to_bits);
    for gpu in Fast::several()? {
        for _ in 0..8 {
            let [m, k, n] = [random.pick(&SIZES), random.pick(&[0, 1, 3, 32, 300]), random.pick(&SIZES)];
            let [w, first] = [integers(&mut random, &[m, n])?, integers(&mut random, &[m, n])?];
            let second = first.mul(&first)?;
            let (x, dy) = (integers(&mut random, &[k, m])?, integers(&mut random, &[k, n])?);
            let (rate, count) = (Tensor::new(&cpu, &[0.25f32], &[])?, Tensor::new(&cpu, &[3i64], &[])?);
            let [wanted, own] = gpu.both(&ops::matmul_sgd::OP, &[], &[&w, &x, &dy, &rate])?;
            assert!(wanted == own, "sgd: [{m},{k}] · [{k},{n}]");
            let [wanted, own] = gpu.both(&ops::matmul_adam::OP, &adam, &[&w, &first, &second, &x, &dy, &rate, &count])?;
            for (wanted, own) in wanted.iter().flatten().zip(own.iter().flatten()) {
                assert!((wanted - own).abs() <= 1e-5 * wanted.abs().max(1.), "adam: [{m},{k}] · [{k},{n}]: {wanted} {own}");
            }
        }
    }
    Ok(())
}
