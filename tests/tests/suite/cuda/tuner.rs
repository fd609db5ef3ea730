//! The tuner. With small integers, each plan for an op gives the same results. The emulator's time is the number of instructions.

use super::products::integers;
use gradlet::cuda::{Gpu, Options};
use gradlet_core::custom_op::Op;
use gradlet_core::{DType, Device, Eager, Function, Result, Scope, Tensor, Variable, ops};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;
use std::collections::BTreeSet;

pub fn tuned_options() -> Options {
    Options { tune: true, ..Options::default() }
}

pub fn device(emulator: &Emulator, options: &Options) -> Result<Device> {
    emulator.gpu()?.create("GPU:0", options)
}

/// An op with its operands, which the CPU has.
pub struct Case {
    op: &'static Op,
    words: Vec<u32>,
    inputs: Vec<Tensor>,
    /// The element type in which it is computed.
    dtype: DType,
}

impl Case {
    /// Creates a case with operands of f32.
    pub fn new(random: &mut Random, op: &'static Op, words: &[u32], dims: &[&[u32]]) -> Result<Case> {
        let inputs = dims.iter().map(|dims| integers(random, dims)).collect::<Result<_>>()?;
        Ok(Case { op, words: words.to_vec(), inputs, dtype: DType::F32 })
    }

    /// Returns the case in another element type.
    pub fn cast(self, dtype: DType) -> Case {
        Case { dtype, ..self }
    }

    /// Returns the line of the tuning with which a GPU computes the case by `plan`.
    pub fn line(&self, plan: &str) -> String {
        let words: Vec<String> = self.words.iter().map(u32::to_string).collect();
        let types: String = self.inputs.iter().map(|input| format!(" {}{}", self.dtype, input.tensor_type().shape)).collect();
        format!("Emulated GPU, 8 multiprocessors; {} {}{types}; {plan}; 1\n", self.op.def.name, words.join(","))
    }

    /// Fails unless the results of `device` are those of the CPU.
    pub fn check(&self, device: &Device) -> Result<()> {
        assert!(self.on(device)? == self.on(&ops::portable_cpu())?, "{}", self.line("wrong"));
        Ok(())
    }

    /// Computes on `device`, and returns the elements of the results.
    fn on(&self, device: &Device) -> Result<Vec<f32>> {
        let copy = |tensor: &Tensor| match tensor.dtype() {
            DType::I64 => Tensor::new(device, &tensor.to_vec::<i64>()?, tensor.dims()),
            _ => Tensor::new(device, &tensor.to_vec::<f32>()?, tensor.dims())?.cast(self.dtype),
        };
        let inputs: Vec<Tensor> = self.inputs.iter().map(copy).collect::<Result<_>>()?;
        let results = Eager::new(device).emit(self.op, &self.words, &inputs.iter().collect::<Vec<_>>())?;
        let results = results.iter().map(|result| result.cast(DType::F32)?.to_vec::<f32>()).collect::<Result<Vec<_>>>()?;
        Ok(results.concat())
    }

    /// Lets a GPU measure the plans for the op, forces each one in turn, and compares its results with the CPU's. Returns their kernels.
    fn check_plans(&self, emulator: &Emulator, gpu: &Gpu, options: &Options) -> Result<Vec<String>> {
        let wanted = self.on(&ops::portable_cpu())?;
        let check = |own: &[f32], plan: &str| {
            let close = |(own, wanted): (&f32, &f32)| {
                own == wanted || self.op.def.name == "matmul_adam" && (own - wanted).abs() <= 1e-5 * wanted.abs().max(1.)
            };
            let types: Vec<String> = self.inputs.iter().map(|input| input.tensor_type().to_string()).collect();
            assert!(
                own.iter().zip(&wanted).all(close) && own.len() == wanted.len(),
                "{} of {types:?} as {} by {plan}",
                self.op.def.name,
                self.dtype
            );
        };
        let known = emulator.driver().tuning();
        check(&self.on(&gpu.create("GPU:0", options)?)?, "the fastest plan");
        let tuning = emulator.driver().tuning();
        let lines: Vec<&str> = tuning.lines().filter(|line| !known.contains(line)).collect();
        let plans: Vec<(&str, &str)> = lines.iter().map(|line| line.rsplit_once("; ").unwrap()).collect();
        for (forced, _) in &plans {
            let times = plans.iter().map(|(plan, _)| format!("{plan}; {}\n", if plan == forced { 1 } else { 1_000_000 }));
            emulator.driver().add_tuning(&format!("gradlet tuning 1\n{}", times.collect::<String>()))?;
            let other = gpu.create("GPU:0", &Options { tune: false, ..*options })?;
            let (own, _) = emulator.during(|| self.on(&other));
            check(&own?, forced);
            assert_eq!(emulator.report(), "", "{forced}");
            let kernel = kernel(forced);
            assert!(
                emulator.kernels().iter().any(|line| line.starts_with(&format!("{kernel} 1 "))),
                "{kernel} has not run once: {:?}",
                emulator.kernels()
            );
        }
        Ok(plans.iter().map(|(plan, _)| kernel(plan)).collect())
    }
}

/// Returns the kernel in a line of the tuning without its time.
fn kernel(plan: &str) -> String {
    plan.rsplit("; ").next().and_then(|plan| plan.split(' ').next()).unwrap_or_default().to_string()
}

/// Checks the plans for each of the cases, and that these kernels are among them.
fn check_all(emulator: &Emulator, options: &Options, cases: impl IntoIterator<Item = Result<Case>>, kernels: &[&str]) -> Result<()> {
    let gpu = emulator.gpu()?;
    // A device that keeps the compiled kernels.
    let _keeps = gpu.create("GPU:0", options)?;
    let mut found = BTreeSet::new();
    for case in cases {
        found.extend(case?.check_plans(emulator, &gpu, options)?);
    }
    assert!(kernels.iter().all(|kernel| found.contains(*kernel)), "{found:?}");
    Ok(())
}

#[test]
fn every_plan_of_products() -> Result<()> {
    let random = &mut Random::new(31);
    let mut cases = vec![Case::new(random, &ops::matmul::OP, &[0, 0], &[&[3, 200], &[200, 36]])];
    for _ in 0..6 {
        let [m, k, n] = [(); 3].map(|()| random.range(1, 70));
        let k = random.pick(&[k, 200]);
        let flips = [random.coin(), random.coin()];
        let of = |dims: [u32; 2], flip: bool| if flip { [dims[1], dims[0]] } else { dims };
        let (a, b) = (of([m, k], flips[0]), of([k, n], flips[1]));
        let a = if random.coin() { [&[2][..], &a].concat() } else { a.to_vec() };
        cases.push(Case::new(random, &ops::matmul::OP, &flips.map(u32::from), &[&a, &b]));
        cases.push(Case::new(random, &ops::dense::OP, &[flips[1].into()], &[&[m, k], &b, &[n]]));
    }
    check_all(
        &Emulator::new()?,
        &tuned_options(),
        cases,
        &["thin_across_4_f32_4", "gemm_async_128x128_f32", "gemm_64x64_f32", "gemm_128x32_f32", "gemm_32x128_f32"],
    )
}

#[test]
fn every_plan_of_gradients_with_steps() -> Result<()> {
    let random = &mut Random::new(32);
    let cpu = ops::portable_cpu();
    let adam = [0.9f32, 0.999, 1e-7, 0.1, 0.001].map(f32::to_bits);
    let mut cases = Vec::new();
    for [m, k, n] in [[40, 150, 33], [5, 20, 68]] {
        let (rate, count) = (Tensor::new(&cpu, &[0.25f32], &[])?, Tensor::new(&cpu, &[3i64], &[])?);
        let mut sgd = Case::new(random, &ops::matmul_sgd::OP, &[], &[&[m, n], &[k, m], &[k, n]])?;
        sgd.inputs.push(rate.clone());
        let mut step = Case::new(random, &ops::matmul_adam::OP, &adam, &[&[m, n], &[m, n], &[m, n], &[k, m], &[k, n]])?;
        step.inputs[2] = step.inputs[2].mul(&step.inputs[2])?;
        step.inputs.extend([rate, count]);
        cases.extend([Ok(sgd), Ok(step)]);
    }
    check_all(&Emulator::new()?, &tuned_options(), cases, &["gemm_64x64_f32", "gemm_async_128x128_f32"])
}

/// Returns convolutions and their gradients with these numbers of channels.
fn convolutions(random: &mut Random, [channels, filters]: [u32; 2], dtype: DType) -> Vec<Result<Case>> {
    let of = |case: Result<Case>| case.map(|case| case.cast(dtype));
    let mut cases = Vec::new();
    for (size, kernel, stride) in [(7u32, 3, 1), (6, 3, 2), (5, 1, 1)] {
        let output = size.div_ceil(stride);
        let geometry = [stride, stride, 1, 1, 1, 0, 0, 0, 0];
        let (x, filter, y) = ([2, size, size, channels], [kernel, kernel, channels, filters], [2, output, output, filters]);
        let sized = |size: u32| [&geometry[..], &[size, size]].concat();
        cases.push(of(Case::new(random, &ops::conv2d::OP, &geometry, &[&x, &filter, &[filters]])));
        cases.push(of(Case::new(random, &ops::conv2d_input_grad::OP, &sized(size), &[&filter, &y])));
        cases.push(of(Case::new(random, &ops::conv2d_filter_grad::OP, &sized(kernel), &[&x, &y])));
    }
    cases
}

#[test]
fn every_plan_of_convolutions() -> Result<()> {
    let cases = convolutions(&mut Random::new(33), [16, 36], DType::F32);
    let convolve = ["convolve_128x128_f32", "convolve_128x64_f32", "convolve_128x32_f32"];
    check_all(
        &Emulator::new()?,
        &tuned_options(),
        cases,
        &[&convolve[..], &["filter_grad_128x64_f32", "filter_grad_64x64_f32", "gemm_64x64_f32"]].concat(),
    )
}

#[test]
fn every_plan_on_tensor_cores() -> Result<()> {
    let random = &mut Random::new(34);
    let mut cases = convolutions(random, [16, 24], DType::F16);
    for dtype in [DType::F16, DType::Bf16, DType::F32] {
        let case = |case: Result<Case>| case.map(|case| case.cast(dtype));
        cases.push(case(Case::new(random, &ops::matmul::OP, &[0, 0], &[&[72, 80], &[80, 104]])));
        cases.push(case(Case::new(random, &ops::dense::OP, &[1], &[&[33, 1100], &[40, 1100], &[40]])));
        cases.push(case(Case::new(random, &ops::matmul::OP, &[1, 0], &[&[45, 33], &[45, 50]])));
    }
    let kernels = ["product_f16_64x64", "product_f16_128x128", "product_bf16_unaligned", "product_f32_128x128"];
    check_all(&Emulator::with("multiprocessors=2")?, &Options { tf32: true, ..tuned_options() }, cases, &kernels)
}

#[test]
fn every_plan_of_warpgroups() -> Result<()> {
    let random = &mut Random::new(35);
    let dims: [([u32; 2], [&[u32]; 2]); 3] =
        [([0, 0], [&[96, 72], &[72, 136]]), ([0, 1], [&[72, 64], &[136, 64]]), ([1, 0], [&[64, 72], &[64, 136]])];
    let case =
        |(words, dims): ([u32; 2], [&[u32]; 2])| Ok(Case { dtype: DType::Bf16, ..Case::new(random, &ops::matmul::OP, &words, &dims)? });
    let cases: Vec<Result<Case>> = dims.into_iter().map(case).collect();
    let kernels =
        ["warpgroup_bf16_nn_128", "warpgroup_bf16_nn_256", "warpgroup_bf16_nt_256", "warpgroup_bf16_tn_128", "product_bf16_64x64"];
    check_all(&Emulator::with("capability=90")?, &tuned_options(), cases, &kernels)
}

/// A product that the model divides, because the GPU has many multiprocessors. The emulator has only one processor.
pub const LONG: [[u32; 2]; 2] = [[48, 400], [400, 56]];

pub fn long(device: &Device) -> Result<Vec<f32>> {
    Tensor::full(device, 1f32, &LONG[0])?.matmul(&Tensor::full(device, 1f32, &LONG[1])?)?.to_vec::<f32>()
}

/// Returns the kernels with the numbers of their launches, and the number of all instructions.
pub fn launches(emulator: &Emulator, work: impl FnOnce() -> Result<Vec<f32>>) -> Result<(Vec<(String, u64)>, u64)> {
    let (result, counts) = emulator.during(work);
    assert_eq!(result?, vec![400f32; 48 * 56]);
    let launches = |line: &String| line.split(' ').nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
    let kernels: Vec<(String, u64)> = emulator.kernels().iter().map(|line| (kernel(line), launches(line))).collect();
    assert_eq!(counts.kernel_launches + counts.graph_kernel_nodes, kernels.iter().map(|(_, count)| count).sum::<u64>());
    Ok((kernels, counts.instructions))
}

#[test]
fn the_fastest_plan_is_chosen_and_remembered() -> Result<()> {
    let emulator = Emulator::with("multiprocessors=16")?;
    let plain = device(&emulator, &Options::default())?;
    let by_model = launches(&emulator, || long(&plain))?;
    assert!(by_model.0.iter().any(|(kernel, count)| kernel == "gemm_sum_f32_4" && *count == 1), "{by_model:?}");
    assert_eq!(emulator.driver().tuning(), "gradlet tuning 1\n");

    let tuned = device(&emulator, &tuned_options())?;
    assert!(launches(&emulator, || long(&tuned))?.1 > 20 * by_model.1);
    let text = emulator.driver().tuning();
    let line = text.lines().skip(1).min_by_key(|line| line.rsplit_once("; ").unwrap().1.parse::<u64>().unwrap()).unwrap();
    assert!(line.starts_with("Emulated GPU, 16 multiprocessors; matmul 0,0 f32[48,400] f32[400,56]; "), "{line}");
    let fastest = kernel(line.rsplit_once("; ").unwrap().0);
    let steady = launches(&emulator, || long(&tuned))?;
    assert!(steady.0.iter().any(|(kernel, count)| *kernel == fastest && *count == 1) && steady.1 < by_model.1, "{steady:?}, {text}");

    // Another device of the GPU has the same choice, and so has a compiled function.
    let other = device(&emulator, &tuned_options())?;
    assert_eq!(launches(&emulator, || long(&other))?, steady);
    let ones = |dims: &[u32]| Tensor::full(&other, 1f32, dims);
    let product = Function::new(|_: &dyn Scope, (a, b): (Tensor, Tensor)| a.matmul(&b));
    let operands = (ones(&LONG[0])?, ones(&LONG[1])?);
    assert_eq!(launches(&emulator, || product.call(&Eager::new(&other), operands)?.to_vec::<f32>())?, steady);
    assert_eq!(emulator.driver().tuning(), text);

    // Another process reads the times, and measures nothing.
    let mut allocations = Vec::new();
    for options in [tuned_options(), Options::default()] {
        let emulator = Emulator::with("multiprocessors=16")?;
        emulator.driver().add_tuning(&text)?;
        let device = device(&emulator, &options)?;
        assert_eq!(launches(&emulator, || long(&device))?, steady);
        assert_eq!(emulator.driver().tuning(), text);
        allocations.push(emulator.counts().allocations);
    }
    assert_eq!(allocations[0], allocations[1]);
    // Another GPU does not use them.
    let emulator = Emulator::with("multiprocessors=16 name=Orin")?;
    emulator.driver().add_tuning(&text)?;
    let device = device(&emulator, &Options::default())?;
    assert_eq!(launches(&emulator, || long(&device))?, by_model);
    Ok(())
}

#[test]
fn a_damaged_tuning_changes_nothing() -> Result<()> {
    let emulator = Emulator::new()?;
    let error = emulator.driver().add_tuning("gradlet tuning 1\nOrin; matmul; gemm; 7\nOrin; matmul\n").unwrap_err().to_string();
    assert_eq!(error, "line 3 of the tuning is not \"GPU; op; kernel; nanoseconds\"");
    assert_eq!(emulator.driver().tuning(), "gradlet tuning 1\n");
    Ok(())
}

#[test]
fn functions_measure_when_they_are_compiled() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = device(&emulator, &tuned_options())?;
    let scope = Eager::new(&device);
    let weights = Variable::new(&scope, "weights", &Tensor::full(&device, 1f32, &[32, 40])?)?;
    let own = weights.clone();
    let step = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let y = x.matmul(&scope.read(&own)?)?;
        scope.assign_add(&own, &y)?;
        y.sum(&[], false)
    });
    let x = Tensor::full(&device, 1f32, &[32, 32])?;
    assert_eq!(step.call(&scope, x.clone())?.item::<f32>()?, 32. * 32. * 40.);
    assert!(emulator.driver().tuning().lines().count() > 3);
    let (result, counts) = emulator.during(|| step.call(&scope, x)?.item::<f32>());
    // The weights have changed once, by the function and not by the measurement.
    assert_eq!((result?, counts.graph_launches, counts.kernel_launches), (33. * 32. * 32. * 40., 1, 0), "{counts:?}");
    Ok(())
}

#[test]
fn a_limit_stays_exact() -> Result<()> {
    for words in ["", "integrated=1"] {
        let emulator = Emulator::with(words)?;
        let limit = 4 * (48 * 400 + 400 * 56 + 48 * 56);
        let device = device(&emulator, &Options { memory_limit: Some(limit), workspace: 0, ..tuned_options() })?;
        let (result, counts) = emulator.during(|| long(&device));
        assert_eq!(result?, vec![400f32; 48 * 56]);
        assert_eq!((device.memory_info().peak, counts.allocations), (limit, counts.frees), "{counts:?}");
        assert!(counts.allocations > 0 && emulator.driver().tuning().lines().count() > 3);
    }
    Ok(())
}

#[test]
fn without_memory_the_model_chooses() -> Result<()> {
    let emulator = Emulator::with("multiprocessors=16")?;
    let plain = device(&emulator, &Options::default())?;
    let by_model = launches(&emulator, || long(&plain))?;
    let tuned = device(&emulator, &tuned_options())?;
    let [a, b] = LONG.map(|dims| Tensor::full(&tuned, 1f32, &dims).unwrap());
    drop(Tensor::full(&tuned, 1f32, &[48, 56])?);
    for _ in 0..2 {
        emulator.control("refuse-allocation-after 0");
        assert_eq!(launches(&emulator, || a.matmul(&b)?.to_vec::<f32>())?, by_model);
        emulator.control("none");
    }
    assert_eq!(emulator.driver().tuning(), "gradlet tuning 1\n");
    Ok(())
}

#[test]
fn a_kernel_that_the_driver_refuses_is_no_plan() -> Result<()> {
    let emulator = Emulator::new()?;
    let tuned = device(&emulator, &tuned_options())?;
    emulator.control("refuse-module gemm_async_128x128_f32");
    assert_eq!(long(&tuned)?, vec![400f32; 48 * 56]);
    let text = emulator.driver().tuning();
    assert!(text.contains("gemm_64x64_f32") && !text.contains("gemm_async_128x128_f32"), "{text}");
    Ok(())
}

#[test]
fn a_lost_gpu_is_an_error() -> Result<()> {
    let emulator = Emulator::new()?;
    let tuned = device(&emulator, &tuned_options())?;
    let [a, b] = LONG.map(|dims| Tensor::full(&tuned, 1f32, &dims).unwrap());
    emulator.control("fail-launch-after 5");
    assert!(a.matmul(&b).is_err());
    Ok(())
}

#[test]
fn strict_devices_never_tune() -> Result<()> {
    let emulator = Emulator::new()?;
    device(&emulator, &tuned_options()).and_then(|tuned| long(&tuned))?;
    let text = emulator.driver().tuning();
    let other = Emulator::new()?;
    for times in ["gradlet tuning 1\n", text.as_str()] {
        other.driver().add_tuning(times)?;
        let strict = device(&other, &Options { strict: true, ..tuned_options() })?;
        assert_eq!(launches(&other, || long(&strict))?.0, [("matmul_small_f32".to_string(), 1)]);
        assert_eq!(other.driver().tuning(), times);
    }
    Ok(())
}

/// Threads that first use the same shape at the same time measure it once.
#[test]
fn threads_measure_once() -> Result<()> {
    let measured = |threads: usize| -> Result<u64> {
        let emulator = Emulator::new()?;
        let devices: Vec<Device> = (0..threads).map(|_| device(&emulator, &tuned_options())).collect::<Result<_>>()?;
        let (results, counts) = emulator.during(|| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = devices.iter().map(|device| scope.spawn(|| long(device))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect::<Result<Vec<_>>>()
            })
        });
        results?;
        Ok(counts.kernel_launches)
    };
    let (one, three) = (measured(1)?, measured(3)?);
    assert!(three > one && three <= one + 4, "{one} and {three} launches");
    Ok(())
}
