//! Elementwise ops that run as one kernel.

use crate::cnn::bytes;
use crate::hiding::groups::run;
use gradlet::cuda::Options;
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::{DType, Device, Eager, Function, Result, Scope, Tensor};
use gradlet_tests::gpu;
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;
use std::sync::Arc;

/// Compiled, random ops have the bits that they have one by one. Compared with a CPU's, only functions such as tanh differ.
#[test]
fn groups_have_the_bits_of_single_ops() -> Result<()> {
    let device = gpu::device()?;
    for seed in 0..60 {
        assert!(run(&device, seed, true)? == run(&device, seed, false)?, "seed {seed}");
    }
    Ok(())
}

#[test]
fn a_chain_is_one_kernel() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let chain = Function::new(|_: &dyn Scope, x: Tensor| x.exp()?.mul(&x)?.sub(&x)?.cast(DType::I32)?.cast(DType::F32)?.tanh());
    let x = Tensor::full(&device, 0.7f32, &[100, 50])?;
    chain.call(&Eager::new(&device), x.clone())?;
    let (result, counts) = emulator.during(|| chain.call(&Eager::new(&device), x)?.to_vec::<f32>());
    assert_eq!((counts.graph_launches, counts.kernel_launches), (0, 1), "{counts:?}");
    assert_eq!(result?, [0.0f32.tanh(); 5000]);
    Ok(())
}

/// Reductions that end groups have the bits that they have alone.
#[test]
fn groups_with_reductions_have_the_bits_of_single_ops() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.gpu()?.create("GPU:0", &Options::default())?;
    for seed in 0..60 {
        assert!(run(&device, seed, true)? == run(&device, seed, false)?, "seed {seed}");
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A tensor, and operands that are broadcast to it along some axes.
fn operands(device: &Device, random: &mut Random) -> Result<Vec<Tensor>> {
    let dims = [0; 4].map(|_| random.pick(&[1u32, 1, 2, 3, 5, 8, 17, 33]));
    // Few long rows or columns have parts.
    let long = random.pick(&[1, 1, 1, 300, 1500]);
    let dims = if random.coin() { [dims[0], dims[1] * long, 1, dims[3].min(3)] } else { dims };
    let own = |random: &mut Random, dims: &[u32]| {
        let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| 3.0 * random.unit() as f32 - 1.5).collect();
        Tensor::new(device, &numbers, dims)
    };
    let mut all = vec![own(random, &dims)?];
    for _ in 0..3 {
        let broadcast = dims.map(|dim| if random.coin() { dim } else { 1 });
        all.push(own(random, &broadcast)?);
    }
    Ok(all)
}

/// Elementwise ops with a reduction of one of their values, whose results others also read.
fn reduced(seed: u64, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let random = &mut Random::new(seed);
    let mut values = inputs[..1].to_vec();
    for _ in 0..1 + random.below(4) {
        let (a, b) = (values[random.below(values.len())].clone(), &inputs[random.below(inputs.len())]);
        values.push(match random.below(6) {
            0 => a.sub(b)?,
            1 => b.mul(&a)?,
            2 => a.square()?.add(b)?,
            3 => a.less(b)?.select(&a, &a.neg()?)?,
            4 => a.reshape(&[a.shape().elements().unwrap_or(0) as u32])?.abs()?.reshape(a.dims())?,
            _ => a.add(b)?.tanh()?,
        });
    }
    let reduce = |random: &mut Random, x: &Tensor| {
        let x = x.cast(random.pick(&[DType::F32, DType::F32, DType::F16, DType::Bf16]))?;
        let (first, last) = (random.below(4) as i32, random.below(4) as i32);
        let axes: Vec<i32> = (first.min(last)..=first.max(last)).collect();
        match random.below(3) {
            0 => x.sum(&axes, random.coin()),
            1 => x.mean(&axes, random.coin()),
            _ => x.cast(DType::F32)?.max(&axes, random.coin()),
        }
    };
    let others = [0; 2].map(|_| values[random.below(values.len())].clone());
    let mut results = vec![reduce(random, &others[0])?, reduce(random, &values[values.len() - 1])?];
    results.extend(random.coin().then(|| others[1].clone()));
    Ok(results)
}

/// Reductions of all shapes at the ends of groups have the bits that they have alone, and groups save launches.
#[test]
fn reductions_end_groups() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.gpu()?.create("GPU:0", &Options::default())?;
    let scope = Eager::new(&device);
    let (mut together, mut alone) = (0, 0);
    for seed in 0..24 {
        let inputs = operands(&device, &mut Random::new(seed))?;
        let function = Function::new(move |_: &dyn Scope, inputs: Vec<Tensor>| reduced(seed, &inputs));
        function.call(&scope, inputs.clone())?;
        let (own, counts) = emulator.during(|| function.call(&scope, inputs.clone()));
        let (wanted, single) = emulator.during(|| reduced(seed, &inputs));
        let bits = |tensors: Result<Vec<Tensor>>| Ok::<_, gradlet_core::Error>(tensors?.iter().map(bytes).collect::<Vec<_>>());
        assert!(bits(own)? == bits(wanted)?, "seed {seed}");
        together += counts.graph_kernel_nodes;
        alone += single.kernel_launches;
    }
    assert!(2 * together < alone, "{together} launches with groups, {alone} without");
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A function of some tensors.
type Compute = Arc<dyn Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync>;

/// A product or a convolution of random shape, and elementwise ops on its result and on other tensors.
fn continued(device: &Device, seed: u64) -> Result<(Vec<Tensor>, Compute)> {
    let random = &mut Random::new(seed);
    let number = |random: &mut Random, dims: &[u32]| {
        let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| random.unit() as f32).collect();
        Tensor::new(device, &numbers, dims)
    };
    let kind = random.below(4);
    let [m, k, n] = [0; 3].map(|_| random.pick(&[1u32, 3, 5, 8, 12, 32, 33, 70, 130]));
    let k = if random.below(4) == 0 { 600 } else { k };
    let (a, b, result) = match kind {
        0 => ([m, k].to_vec(), [k, n].to_vec(), [m, n].to_vec()),
        1 => ([2, m, k].to_vec(), [2, k, n].to_vec(), [2, m, n].to_vec()),
        _ => ([2, 7, 6, k.min(40)].to_vec(), [3, 3, k.min(40), n.max(32)].to_vec(), [2, 7, 6, n.max(32)].to_vec()),
    };
    let mut inputs = vec![number(random, &a)?, number(random, &b)?, number(random, &result)?];
    for _ in 0..2 {
        let dims: Vec<u32> = result.iter().map(|&dim| if random.coin() { dim } else { 1 }).collect();
        inputs.push(number(random, &dims)?);
    }
    inputs.push(number(random, &result[result.len() - 1..])?);
    let steps: Vec<(usize, usize)> = (0..1 + random.below(5)).map(|_| (random.below(8), random.below(100))).collect();
    let also = random.below(4);
    let options = Conv2DOptions::default().padding(Padding::Same);
    let compute = move |inputs: Vec<Tensor>| {
        let product = if kind < 2 { inputs[0].matmul(&inputs[1])? } else { inputs[0].conv2d(&inputs[1], None, &options)? };
        let mut values = vec![product];
        for &(op, other) in &steps {
            let (last, other) = (values[values.len() - 1].clone(), &inputs[2 + other % 4]);
            values.push(match op {
                0 => last.relu()?,
                1 => last.add(other)?,
                2 => last.mul(other)?,
                3 => last.gelu(false)?,
                4 => last.sub(other)?.tanh()?,
                5 => last.less(other)?.select(&last, &inputs[2])?,
                6 => last.cast(DType::F16)?.cast(DType::F32)?,
                _ => last.reshape(&[last.shape().elements().unwrap_or(0) as u32])?.abs()?.reshape(last.dims())?,
            });
        }
        let last = values[values.len() - 1].clone();
        Ok(match also {
            0 => vec![last, values[0].clone()],
            1 => vec![last.clone(), last.sum(&[0], false)?],
            _ => vec![last],
        })
    };
    Ok((inputs, Arc::new(compute)))
}

/// Products with large tiles, whose operands come in the background, begin groups, too.
#[test]
fn large_products_begin_groups() -> Result<()> {
    let emulator = Emulator::with("multiprocessors=1")?;
    let device = emulator.gpu()?.create("GPU:0", &Options::default())?;
    let random = &mut Random::new(7);
    let mut number = |dims: &[u32]| {
        let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| random.unit() as f32 - 0.5).collect();
        Tensor::new(&device, &numbers, dims)
    };
    for (n, kernel) in [(128, "gemm_async_128x128_f32_closing"), (256, "gemm_async_128x256_f32_closing")] {
        let inputs = [number(&[128, 40])?, number(&[40, n])?, number(&[n])?];
        let compute = |inputs: &[Tensor]| inputs[0].matmul(&inputs[1])?.add(&inputs[2])?.tanh();
        let function = Function::new(move |_: &dyn Scope, inputs: Vec<Tensor>| compute(&inputs));
        let own = function.call(&Eager::new(&device), inputs.to_vec())?;
        assert!(bytes(&own) == bytes(&compute(&inputs)?), "{n} columns");
        assert_eq!(emulator.report(), "");
        assert!(emulator.kernels().iter().any(|line| line.starts_with(kernel)), "{:?}", emulator.kernels());
    }
    Ok(())
}

/// Products at the beginnings of groups have the bits that they have alone, and groups save launches.
#[test]
fn products_begin_groups() -> Result<()> {
    let emulator = Emulator::new()?;
    let own = |workspace| emulator.gpu()?.create("GPU:0", &Options { workspace, ..Options::default() });
    for (device, has_workspace) in [(own(8 << 20)?, true), (own(0)?, false)] {
        let scope = Eager::new(&device);
        let (mut together, mut alone) = (0, 0);
        let mut kernels = Vec::new();
        for seed in 0..20 {
            let (inputs, compute) = continued(&device, seed)?;
            let same = compute.clone();
            let function = Function::new(move |_: &dyn Scope, inputs: Vec<Tensor>| same(inputs));
            function.call(&scope, inputs.clone())?;
            let (own, counts) = emulator.during(|| function.call(&scope, inputs.clone()));
            let (wanted, single) = emulator.during(|| compute(inputs.clone()));
            let bits = |tensors: Result<Vec<Tensor>>| Ok::<_, gradlet_core::Error>(tensors?.iter().map(bytes).collect::<Vec<_>>());
            assert!(bits(own)? == bits(wanted)?, "seed {seed}");
            assert_eq!(emulator.report(), "", "seed {seed}");
            kernels.extend(emulator.kernels());
            together += counts.graph_kernel_nodes;
            alone += single.kernel_launches;
        }
        assert!(2 * together < alone, "{together} launches with groups, {alone} without");
        let closes = |start: &str| kernels.iter().any(|line| line.starts_with(start) && line.contains("_closing"));
        assert!(closes("gemm_64x64") && closes("convolve_"), "{kernels:?}");
        assert_eq!(closes("gemm_sum"), has_workspace);
    }
    Ok(())
}
