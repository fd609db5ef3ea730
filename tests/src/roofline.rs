//! The table of the kernels' occupancy and arithmetic intensity, `cuda-backend/ptx/roofline.txt`: `cargo xtask roofline` writes it.
//!
//! The emulator counts what a kernel does in one case. The registers are those that the assembler reports (`registers.txt`).

use crate::gpu::Emulator;
use gradlet::cuda::Options;
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::{DType, Device, Differentiate, Eager, Error, Function, Result, Scope, Tensor, Variable};
use std::collections::BTreeMap;

/// Path of the committed table in the project.
pub const TABLE: &str = "cuda-backend/ptx/roofline.txt";

const REGISTERS: &str = include_str!("../../cuda-backend/ptx/registers.txt");

const HEAD: &str = "\
# Kernels in one case each: written by `cargo xtask roofline`, compared by a test.
#
# registers, shared: of a thread, and of a block in bytes with dynamic shared memory, on sm_87 and on sm_90
# occupancy: resident warps in percent of the most that a multiprocessor has
# loaded, stored: KiB that the threads loaded from and stored to global memory. A byte counts once for each thread that loads it.
# FLOP/byte: floating-point operations for each of these bytes
# Above its ridge, a kernel is bound by arithmetic, if caches serve nothing. From data sheets: Jetson AGX Orin has 204.8 GB/s, and H100 SXM
# 3,350 GB/s; the ridges are 26 and 20 FLOP/byte for f32 on CUDA cores (5.3 and 67 TFLOP/s), 208 and 295 for f16 on tensor cores (42.5 and
# 989 TFLOP/s).
";

/// A GPU's limits for a multiprocessor.
struct Limits {
    /// Column of the table of registers.
    column: usize,
    warps: u32,
    blocks: u32,
    /// Shared memory in bytes. Each block has 1 KiB more than it uses.
    shared: u32,
}

const GPUS: [Limits; 2] =
    [Limits { column: 1, warps: 48, blocks: 16, shared: 164 << 10 }, Limits { column: 2, warps: 64, blocks: 32, shared: 228 << 10 }];

impl Limits {
    /// Returns the resident warps in percent. Registers are given to warps in units of 256, by each of the 4 parts of a multiprocessor.
    fn occupancy(&self, threads: u32, registers: u32, shared: u32) -> u32 {
        let warps = threads.div_ceil(32);
        let by_registers = 4 * (16_384 / (registers * 32).next_multiple_of(256)) / warps;
        let by_shared = self.shared / (shared + 1024).next_multiple_of(128);
        let blocks = by_registers.min(by_shared).min(self.blocks).min(self.warps / warps);
        100 * blocks * warps / self.warps
    }
}

/// A case: its name, the compute capability of its GPU, whether products may use TF32, and its ops.
type Case = (&'static str, u32, bool, fn(&Device) -> Result<()>);

const CASES: [Case; 16] = [
    ("512×512 · 512×512, f32", 87, false, |device| product(device, DType::F32, [512, 512, 512])),
    ("64×64 · 64×64, f32", 87, false, |device| product(device, DType::F32, [64, 64, 64])),
    ("1×1024 · 1024×1024, f32", 87, false, |device| product(device, DType::F32, [1, 1024, 1024])),
    ("64×4096 · 4096×64, f32", 87, false, |device| product(device, DType::F32, [64, 4096, 64])),
    ("512×512 · 512×512, f16", 87, false, |device| product(device, DType::F16, [512, 512, 512])),
    ("512×512 · 512×512, f16", 90, false, |device| product(device, DType::F16, [512, 512, 512])),
    ("512×512 · 512×512, TF32", 87, true, |device| product(device, DType::F32, [512, 512, 512])),
    ("conv 3×3, 16×16×32 → 64, batch 2, gradients, f32", 87, false, |device| convolution(device, DType::F32)),
    ("conv 3×3, 16×16×32 → 64, batch 2, gradients, f16", 87, false, |device| convolution(device, DType::F16)),
    ("depthwise 3×3, 16×16×64, batch 2, gradients, f32", 87, false, |device| depthwise(device, DType::F32)),
    ("max_pool 2×2, 32×32×64, f32", 87, false, |device| {
        tensor(device, DType::F32, &[1, 32, 32, 64])?.max_pool2d([2, 2], [2, 2], Padding::Valid).map(drop)
    }),
    ("x·y + x, relu, 2^18 elements, f32", 87, false, elementwise),
    ("sum of 2^18 elements, f32", 87, false, |device| tensor(device, DType::F32, &[1 << 18])?.sum(&[], false).map(drop)),
    ("sum of 512 columns of 512, f32", 87, false, |device| tensor(device, DType::F32, &[512, 512])?.sum(&[0], false).map(drop)),
    ("softmax of 256 rows of 1024, f32", 87, false, |device| tensor(device, DType::F32, &[256, 1024])?.softmax(-1).map(drop)),
    ("layer normalisation of 256 rows of 512, f32", 87, false, normalisation),
];

/// Returns a tensor of small numbers.
fn tensor(device: &Device, dtype: DType, dims: &[u32]) -> Result<Tensor> {
    let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|index| (index % 5) as f32 - 2.0).collect();
    Tensor::new(&gradlet::portable_cpu(), &numbers, dims)?.cast(dtype)?.to(device)
}

fn product(device: &Device, dtype: DType, [m, k, n]: [u32; 3]) -> Result<()> {
    tensor(device, dtype, &[m, k])?.matmul(&tensor(device, dtype, &[k, n])?).map(drop)
}

fn convolution(device: &Device, dtype: DType) -> Result<()> {
    let (x, filter) = (tensor(device, dtype, &[2, 16, 16, 32])?, tensor(device, dtype, &[3, 3, 32, 64])?);
    gradients(device, [&x, &filter], |x, filter| x.conv2d(filter, None, &Conv2DOptions::default().padding(Padding::Same)))
}

fn depthwise(device: &Device, dtype: DType) -> Result<()> {
    let (x, filter) = (tensor(device, dtype, &[2, 16, 16, 64])?, tensor(device, dtype, &[3, 3, 64, 1])?);
    let options = Conv2DOptions::default().padding(Padding::Same);
    gradients(device, [&x, &filter], |x, filter| x.depthwise_conv2d(filter, None, &options))
}

/// Computes an op of two tensors and its gradients.
fn gradients(device: &Device, [x, y]: [&Tensor; 2], op: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<()> {
    let tape = Eager::new(device).tape();
    let (x, y) = (tape.watch(x)?, tape.watch(y)?);
    let result = op(&x, &y)?;
    let (dx, dy) = tape.gradient(&result, &(x, y))?;
    dx.and(dy).ok_or(Error::Internal).map(drop)
}

fn elementwise(device: &Device) -> Result<()> {
    let scope = Eager::new(device);
    let x = tensor(device, DType::F32, &[1 << 18])?;
    Function::new(|_: &dyn Scope, x: Tensor| x.mul(&x)?.add(&x)?.relu()).call(&scope, x).map(drop)
}

fn normalisation(device: &Device) -> Result<()> {
    let scope = Eager::new(device);
    let gamma = Variable::new(&scope, "gamma", &Tensor::full(device, 1.0f32, &[512])?)?;
    let step = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let (mean, centred) = (x.mean(&[1], true)?, x.clone());
        let centred = centred.sub(&mean)?;
        let variance = centred.mul(&centred)?.mean(&[1], true)?;
        centred.mul(&variance.add(&Tensor::scalar(&scope.device(), 1e-3f32))?.rsqrt()?)?.mul(&scope.read(&gamma)?)
    });
    step.call(&scope, tensor(device, DType::F32, &[256, 512])?).map(drop)
}

/// Returns the table.
pub fn table() -> Result<String> {
    let registers = registers();
    let mut table = String::from(HEAD);
    for (case, capability, tf32, run) in CASES {
        let emulator = Emulator::with(&format!("capability={capability}"))?;
        let device = emulator.gpu()?.create("GPU:0", &Options { tf32, ..Options::default() })?;
        run(&device)?;
        device_is_done(&device)?;
        table += &format!("\n{case}, sm_{capability}\n");
        let mut lines: Vec<String> = emulator.kernels().iter().map(|line| row(line, &registers)).collect::<Result<_>>()?;
        lines.sort();
        table.extend(lines);
    }
    Ok(table)
}

/// Waits for the work of a device.
fn device_is_done(device: &Device) -> Result<()> {
    Tensor::full(device, 0.0f32, &[1])?.to_vec::<f32>().map(drop)
}

/// Returns a line of the table for a line of the emulator: name, launches, operations, bytes loaded and stored, threads and shared memory.
fn row(line: &str, registers: &BTreeMap<&str, [Option<[u32; 2]>; 4]>) -> Result<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, launches, flops, loaded, stored, threads, dynamic] = words[..] else { return Err(Error::Internal) };
    let number = |word: &str| word.parse::<u64>().map_err(|_| Error::Internal);
    let (flops, loaded, stored, threads) = (number(flops)?, number(loaded)?, number(stored)?, number(threads)? as u32);
    let dynamic = number(dynamic)? as u32;
    let cell = |limits: &Limits| match registers.get(name).and_then(|columns| columns[limits.column]) {
        Some([registers, shared]) => {
            let shared = shared + dynamic;
            format!("{registers:>5}{shared:>8}{:>5} %", limits.occupancy(threads, registers, shared))
        }
        None => format!("{:>5}{:>8}{:>5}  ", "-", "-", "-"),
    };
    let intensity = flops as f64 / (loaded + stored).max(1) as f64;
    let [orin, hopper] = GPUS.each_ref().map(cell);
    let kib = |bytes: u64| bytes.div_ceil(1024);
    Ok(format!("  {name:34}{launches:>3} × {threads:>4}{orin}{hopper}{:>9}{:>8}{intensity:>9.2} FLOP/byte\n", kib(loaded), kib(stored)))
}

/// Reads the table of registers: for each kernel and GPU, registers and bytes of shared memory.
fn registers() -> BTreeMap<&'static str, [Option<[u32; 2]>; 4]> {
    let mut kernels = BTreeMap::new();
    for line in REGISTERS.lines().skip(2) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().split('/').next_back().unwrap_or_default();
        let cells: Vec<Option<u32>> = words.map(|word| word.parse().ok()).collect();
        let cell = |gpu: usize| Some([(*cells.get(3 * gpu)?)?, (*cells.get(3 * gpu + 1)?)?]);
        kernels.insert(name, [0, 1, 2, 3].map(cell));
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_is_that_of_nvidia_s_calculator() {
        let [orin, hopper] = GPUS;
        // 128 registers: 4 warps in each part of a multiprocessor.
        assert_eq!([orin.occupancy(256, 128, 0), hopper.occupancy(256, 128, 0)], [33, 25]);
        assert_eq!([orin.occupancy(256, 32, 0), hopper.occupancy(256, 32, 0)], [100, 100]);
        // 48 KiB of shared memory: 3 and 4 blocks.
        assert_eq!([orin.occupancy(128, 32, 48 << 10), hopper.occupancy(128, 32, 48 << 10)], [25, 25]);
        // Blocks of a warp.
        assert_eq!([orin.occupancy(32, 16, 0), hopper.occupancy(32, 16, 0)], [33, 50]);
    }
}
