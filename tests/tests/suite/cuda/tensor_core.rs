//! Products and convolutions on tensor cores: random shapes, compared with a CPU.

use gradlet::cuda::Options;
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::{DType, Device, Result, Tensor, ops};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;

/// Cases for each test.
const CASES: u64 = 24;

/// Returns a device of `emulator` that may use tensor cores, also for f32.
fn device(emulator: &Emulator, workspace: u64) -> Result<Device> {
    emulator.gpu()?.create("GPU:0", &Options { workspace, tf32: true, ..Options::default() })
}

/// A computation with operands of random numbers.
struct Case<'c> {
    dtype: DType,
    dims: Vec<Vec<u32>>,
    run: &'c dyn Fn(&[Tensor]) -> Result<Tensor>,
}

impl Case<'_> {
    /// Computes on `device`, with operands that `change` has changed. All devices have the same operands.
    fn on(&self, device: &Device, seed: u64, change: impl Fn(f32) -> f32) -> Result<Tensor> {
        let mut random = Random::new(seed);
        let operand = |dims: &Vec<u32>| {
            let count = dims.iter().product::<u32>() as usize;
            let values: Vec<f32> = (0..count).map(|_| change(random.below(2001) as f32 / 1000. - 1.)).collect();
            Tensor::new(device, &values, dims)?.cast(self.dtype)
        };
        let operands = self.dims.iter().map(operand).collect::<Result<Vec<_>>>()?;
        (self.run)(&operands)
    }

    /// Fails unless the device's results are those of a CPU, up to the rounding of operands and results, and twice the same.
    fn check(&self, device: &Device, seed: u64, name: &str) -> Result<()> {
        let cpu = ops::portable_cpu();
        let of = |tensor: Tensor| tensor.cast(DType::F32)?.to_vec::<f32>();
        let (got, again) = (of(self.on(device, seed, |value| value)?)?, of(self.on(device, seed, |value| value)?)?);
        let (want, sizes) = (of(self.on(&cpu, seed, |value| value)?)?, of(self.on(&cpu, seed, f32::abs)?)?);
        assert_eq!(got, again, "{name}");
        assert_eq!(got.len(), want.len(), "{name}");
        // Half a unit in the last place of the result on both sides, and the order of the sums. TF32 has 10 bits of mantissa.
        let (of_result, of_sum) = match self.dtype {
            DType::F16 => (1. / 1024., 1e-6),
            DType::Bf16 => (1. / 128., 1e-6),
            _ => (0., 1. / 1024.),
        };
        for (at, ((got, want), size)) in got.iter().zip(&want).zip(&sizes).enumerate() {
            let allowed = of_result * want.abs() + of_sum * size + 1e-6;
            assert!((got - want).abs() <= allowed, "{name} {:?}, element {at}: {got}, not {want}", self.dims);
        }
        Ok(())
    }
}

fn dtype(random: &mut Random) -> DType {
    random.pick(&[DType::F16, DType::Bf16, DType::F32])
}

/// Returns a dimension: 1, small, a multiple of a chunk, or larger than a tile.
fn dimension(random: &mut Random, most: u32) -> u32 {
    match random.below(4) {
        0 => random.range(1, 17),
        1 => 8 * random.range(1, 8),
        2 => 8 * random.range(1, most / 8),
        _ => random.range(1, most),
    }
}

fn products(emulator: &Emulator, workspace: u64, seeds: std::ops::Range<u64>) -> Result<()> {
    let device = device(emulator, workspace)?;
    for seed in seeds {
        let mut random = Random::new(seed);
        let dtype = dtype(&mut random);
        let [m, n] = [(); 2].map(|()| dimension(&mut random, 200));
        let k = if random.below(12) == 0 { 0 } else { dimension(&mut random, 300) };
        let (flip_a, flip_b) = (random.coin(), random.coin());
        let matrix = |rows, columns, flip| if flip { vec![columns, rows] } else { vec![rows, columns] };
        let (mut a, mut b) = (matrix(m, k, flip_a), matrix(k, n, flip_b));
        match random.below(5) {
            0 => (a, b) = ([vec![3], a].concat(), [vec![3], b].concat()),
            1 => (a, b) = ([vec![2, 1], a].concat(), [vec![3], b].concat()),
            2 => a = [vec![2], a].concat(),
            _ => {}
        }
        let name = format!("matmul {dtype:?} {flip_a} {flip_b}");
        Case { dtype, dims: vec![a, b], run: &|x| x[0].matmul_with(&x[1], flip_a, flip_b) }.check(&device, seed, &name)?;
    }
    Ok(())
}

#[test]
fn products_of_matrices() -> Result<()> {
    products(&Emulator::new()?, 8 << 20, 0..CASES)
}

#[test]
fn products_without_a_workspace() -> Result<()> {
    products(&Emulator::new()?, 0, 1000..1008)
}

#[test]
fn long_sums_are_divided() -> Result<()> {
    let device = device(&Emulator::new()?, 8 << 20)?;
    for (seed, dtype, [m, k, n]) in [
        (1, DType::F16, [1, 1100, 40]),
        (2, DType::Bf16, [33, 1030, 65]),
        (3, DType::F32, [64, 1024, 72]),
        (4, DType::F16, [130, 2048, 136]),
    ] {
        let bias = vec![n];
        let run = |x: &[Tensor]| x[0].dense(&x[1], Some(&x[2]));
        Case { dtype, dims: vec![vec![m, k], vec![k, n], bias], run: &run }.check(&device, seed, "dense")?;
    }
    Ok(())
}

/// A random convolution, with the dimensions of the images, the filter and the result.
fn convolution(random: &mut Random) -> Result<(Conv2DOptions, [Vec<u32>; 3])> {
    loop {
        let (kernel, strides) = ([random.range(1, 5), random.range(1, 5)], [random.range(1, 3), random.range(1, 3)]);
        let dilations = if random.below(3) == 0 { [random.range(1, 3), random.range(1, 3)] } else { [1; 2] };
        let pads = [(); 4].map(|()| random.range(0, 3));
        let explicit = Padding::Explicit { top: pads[0], bottom: pads[1], left: pads[2], right: pads[3] };
        let padding = random.pick(&[Padding::Same, Padding::Valid, explicit]);
        let options = Conv2DOptions::default().strides(strides).dilations(dilations).padding(padding);
        let channels = |random: &mut Random| match random.below(3) {
            0 => random.range(1, 9),
            _ => 8 * random.range(1, 10),
        };
        let (c, filters) = (channels(random), channels(random));
        let images = vec![random.range(1, 3), random.range(1, 14), random.range(1, 14), c];
        let filter = vec![kernel[0], kernel[1], c, filters];
        let cpu = ops::portable_cpu();
        let zeros = |dims: &[u32]| Tensor::full(&cpu, 0f32, dims);
        if let Ok(y) = zeros(&images)?.conv2d(&zeros(&filter)?, None, &options)
            && y.dims().iter().all(|&dim| dim > 0)
        {
            return Ok((options, [images, filter, y.dims().to_vec()]));
        }
    }
}

#[test]
fn convolutions() -> Result<()> {
    let device = device(&Emulator::new()?, 8 << 20)?;
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let (dtype, (options, [images, filter, _])) = (dtype(&mut random), convolution(&mut random)?);
        let bias = vec![filter[3]];
        let run = |x: &[Tensor]| x[0].conv2d(&x[1], Some(&x[2]), &options);
        Case { dtype, dims: vec![images, filter, bias], run: &run }.check(&device, seed, &format!("{dtype:?} {options:?}"))?;
    }
    Ok(())
}

#[test]
fn gradients_of_images() -> Result<()> {
    let device = device(&Emulator::new()?, 8 << 20)?;
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let (dtype, (options, [images, filter, result])) = (dtype(&mut random), convolution(&mut random)?);
        let run = |x: &[Tensor]| x[1].conv2d_input_grad(&x[0], &options, [images[1], images[2]]);
        Case { dtype, dims: vec![filter, result], run: &run }.check(&device, seed, &format!("{dtype:?} {options:?}"))?;
    }
    Ok(())
}

#[test]
fn gradients_of_filters() -> Result<()> {
    let device = device(&Emulator::new()?, 8 << 20)?;
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let (dtype, (options, [images, filter, result])) = (dtype(&mut random), convolution(&mut random)?);
        let run = |x: &[Tensor]| x[0].conv2d_filter_grad(&x[1], &options, [filter[0], filter[1]]);
        Case { dtype, dims: vec![images, result], run: &run }.check(&device, seed, &format!("{dtype:?} {options:?}"))?;
    }
    Ok(())
}

#[test]
fn depthwise_convolutions() -> Result<()> {
    let device = device(&Emulator::new()?, 8 << 20)?;
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let dtype = random.pick(&[DType::F16, DType::Bf16]);
        let (options, [images, filter, result]) = convolution(&mut random)?;
        let multiplier = random.pick(&[1, 1, 3]);
        let filter = vec![filter[0], filter[1], filter[2], multiplier];
        let result = vec![result[0], result[1], result[2], filter[2] * multiplier];
        let (size, window, bias) = ([images[1], images[2]], [filter[0], filter[1]], vec![result[3]]);
        let name = format!("{dtype:?} {options:?}");
        let case = |dims: &[&Vec<u32>], run: &dyn Fn(&[Tensor]) -> Result<Tensor>| {
            Case { dtype, dims: dims.iter().map(|&dims| dims.clone()).collect(), run }.check(&device, seed, &name)
        };
        case(&[&images, &filter, &bias], &|x| x[0].depthwise_conv2d(&x[1], Some(&x[2]), &options))?;
        case(&[&filter, &result], &|x| x[1].depthwise_conv2d_input_grad(&x[0], &options, size))?;
        case(&[&images, &result], &|x| x[0].depthwise_conv2d_filter_grad(&x[1], &options, window))?;
    }
    // Enough pixels for several parts.
    let (images, result) = (vec![2, 20, 20, 8], vec![2, 20, 20, 8]);
    let options = Conv2DOptions::default().padding(Padding::Same);
    let run = |x: &[Tensor]| x[0].depthwise_conv2d_filter_grad(&x[1], &options, [3, 3]);
    Case { dtype: DType::F16, dims: vec![images, result], run: &run }.check(&device, 1, "parts")
}

/// Products of rows of whole chunks, in all three ways in which Hopper's kernels take them, and convolutions with one tap.
#[test]
fn products_of_warpgroups() -> Result<()> {
    let emulator = Emulator::with("capability=90")?;
    let device = device(&emulator, 8 << 20)?;
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let dtype = random.pick(&[DType::F16, DType::Bf16]);
        let [m, n] = [(); 2].map(|()| 8 * random.range(9, 40));
        let k = 8 * random.range(1, 40);
        let (flip_a, flip_b) = random.pick(&[(false, false), (false, true), (true, false)]);
        let matrix = |rows, columns, flip| if flip { vec![columns, rows] } else { vec![rows, columns] };
        let (mut a, mut b) = (matrix(m, k, flip_a), matrix(k, n, flip_b));
        if random.coin() {
            (a, b) = ([vec![2, 1], a].concat(), [vec![2], b].concat());
        }
        let name = format!("matmul {dtype:?} {flip_a} {flip_b}");
        Case { dtype, dims: vec![a, b], run: &|x| x[0].matmul_with(&x[1], flip_a, flip_b) }.check(&device, seed, &name)?;
    }
    let (images, filter, bias) = (vec![2, 9, 7, 64], vec![1, 1, 64, 128], vec![128]);
    let run = |x: &[Tensor]| x[0].conv2d(&x[1], Some(&x[2]), &Conv2DOptions::default());
    Case { dtype: DType::F16, dims: vec![images.clone(), filter, bias], run: &run }.check(&device, 1, "conv2d")?;
    let run = |x: &[Tensor]| x[0].conv2d_filter_grad(&x[1], &Conv2DOptions::default(), [1, 1]);
    Case { dtype: DType::Bf16, dims: vec![images, vec![2, 9, 7, 128]], run: &run }.check(&device, 1, "conv2d_filter_grad")?;
    assert!(emulator.kernels().iter().any(|name| name.starts_with("warpgroup_bf16")), "{:?}", emulator.kernels());
    Ok(())
}

/// Returns the kernels that multiply two matrices of f16 on the first device of `emulator`.
fn kernels_of_a_product(emulator: &Emulator) -> Result<String> {
    let device = emulator.gpu()?.create("GPU:0", &Options::default())?;
    let ones = |dims| Tensor::full(&device, 1f32, dims)?.cast(DType::F16);
    let y = ones(&[128, 64])?.matmul(&ones(&[64, 128])?)?;
    assert_eq!(y.cast(DType::F32)?.to_vec::<f32>()?, vec![64f32; 128 * 128]);
    Ok(emulator.kernels().join("\n"))
}

/// Kernels that fail their check before the first use are not used.
#[test]
fn kernels_are_checked_before_their_first_use() -> Result<()> {
    let emulator = Emulator::with("capability=90")?;
    emulator.control("refuse-module wgmma");
    let kernels = kernels_of_a_product(&emulator)?;
    assert!(!kernels.contains("warpgroup") && kernels.contains("product_f16_64x64 2 "), "{kernels}");

    let emulator = Emulator::new()?;
    emulator.control("refuse-module mma.sync");
    let kernels = kernels_of_a_product(&emulator)?;
    assert!(!kernels.contains("product_f16") && kernels.contains("gemm_"), "{kernels}");
    Ok(())
}
