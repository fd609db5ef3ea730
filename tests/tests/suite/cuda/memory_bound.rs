//! Kernels that wait for memory: threads that compute several elements at a time, launches for several variables, and sums in an order of
//! their own.

use gradlet::cuda::Options;
use gradlet_core::ops::pad::PadMode;
use gradlet_core::optimizers::{Adam, Nadam, Optimizer, RMSprop, Sgd};
use gradlet_core::{DType, Device, Eager, Function, Result, Scope, Tensor, Variable, ops};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;

/// The emulator's GPU has 8 multiprocessors, whose threads compute one element each up to this number.
const MANY: u32 = 8 * 1024;

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.bytes().unwrap().to_vec()
}

fn numbers(device: &Device, random: &mut Random, dims: &[u32], dtype: DType) -> Result<Tensor> {
    let count: u32 = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|_| (100.0 * random.unit() as f32).round() / 8.0).collect();
    Tensor::new(device, &numbers, dims)?.cast(dtype)
}

/// Dimensions of an output of at least [`MANY`] elements, and those of an operand that is broadcast to it.
fn broadcast(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let inner = random.pick(&[1u32, 2, 3, 4, 5, 7, 8, 12, 16, 62, 64, 1023, 1024, 1025, 8191, 8193, 8200]);
    let outer = MANY.div_ceil(inner) + random.range(0, 3);
    let middle = random.pick(&[1, 2, 3, 4]);
    let output = vec![outer.div_ceil(middle), middle, inner];
    let own = match random.below(4) {
        0 => vec![],
        1 => vec![inner],
        2 => output.clone(),
        _ => output.iter().map(|&dim| if random.coin() { dim } else { 1 }).collect(),
    };
    (output, own)
}

/// Single ops with every broadcasting, and all element types, have the bits of the CPU's.
#[test]
fn vectors_of_elements_have_the_bits_of_single_ones() -> Result<()> {
    let emulator = Emulator::new()?;
    let compute = |device: &Device, seed: u64| {
        let random = &mut Random::new(seed);
        let (dims, other) = broadcast(random);
        let dtype = random.pick(&[DType::F32, DType::F64, DType::I8, DType::U8, DType::I32, DType::I64]);
        let (a, b) = (numbers(device, random, &dims, dtype)?, numbers(device, random, &other, dtype)?);
        let swapped = random.coin();
        let (a, b) = if swapped { (&b, &a) } else { (&a, &b) };
        let result = match random.below(6) {
            0 => a.add(b),
            1 => a.mul(b),
            2 => a.less(b),
            3 => a.less(b)?.select(b, a),
            4 => a.maximum(b)?.cast(random.pick(&[DType::F16, DType::Bf16, DType::Bool, DType::F64, DType::I8])),
            _ => a.cast(DType::Bf16)?.cast(DType::F16)?.add(&b.cast(DType::F16)?),
        };
        Ok::<_, gradlet_core::Error>((bytes(&result?), format!("{dims:?} and {other:?} of {dtype}")))
    };
    let device = emulator.device()?;
    for seed in 0..120 {
        let (own, case) = compute(&device, seed)?;
        assert!(own == compute(&ops::portable_cpu(), seed)?.0, "seed {seed}: {case}");
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// Groups with several types, biases and results in the place of inputs have the bits of the CPU's.
#[test]
fn groups_of_vectors_have_the_bits_of_single_ops() -> Result<()> {
    let emulator = Emulator::new()?;
    let compute = |device: &Device, columns: u32, half: DType| {
        let (scope, random) = (Eager::new(device), &mut Random::new(columns.into()));
        let dims = [MANY.div_ceil(columns) + 1, columns];
        let x = numbers(device, random, &dims, half)?;
        let bias = numbers(device, random, &[columns], DType::F32)?;
        let variable = Variable::new(&scope, "w", &numbers(device, random, &dims, DType::F32)?)?;
        let own = variable.clone();
        let step = Function::new(move |scope: &dyn Scope, (x, bias): (Tensor, Tensor)| {
            let (w, wide) = (scope.read(&own)?, x.cast(DType::F32)?.add(&bias)?);
            scope.assign(&own, &w.sub(&wide.mul(&w)?)?)?;
            let positive = wide.less(&w)?.select(&wide, &w)?;
            Ok(vec![positive.cast(half)?, positive.cast(DType::I8)?, x.add(&x)?])
        });
        let mut results = step.call(&scope, (x, bias))?;
        results.push(scope.read(&variable)?);
        Ok::<_, gradlet_core::Error>(results.iter().map(bytes).collect::<Vec<_>>())
    };
    let device = emulator.device()?;
    for columns in [1, 3, 4, 8, 10, 64, 1023, 9001] {
        for half in [DType::F16, DType::Bf16] {
            assert!(compute(&device, columns, half)? == compute(&ops::portable_cpu(), columns, half)?, "{columns} columns, {half}");
        }
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// Sizes of variables around those of vectors and blocks.
const SIZES: [u32; 12] = [1, 2, 3, 4, 5, 255, 256, 1023, 1025, 4096, 9001, 30];

/// Three compiled steps of an optimizer on variables of different sizes. Returns their bits, the optimizer's too, and the number of kernels
/// of the last step on an emulator.
fn steps(device: &Device, emulator: Option<&Emulator>, optimizer: impl Optimizer + 'static, compiled: bool) -> Result<(Vec<Vec<u8>>, u64)> {
    let (scope, random) = (Eager::new(device), &mut Random::new(5));
    let mut new = |dims: &[u32]| numbers(device, random, dims, DType::F32);
    let variables = SIZES.map(|size| Variable::new(&scope, "w", &new(&[size]).unwrap()).unwrap());
    let gradients = SIZES.iter().map(|&size| new(&[size])).collect::<Result<Vec<Tensor>>>()?;
    let (own, optimizer) = (variables.to_vec(), std::sync::Arc::new(optimizer));
    let descend = optimizer.clone();
    let apply = move |scope: &dyn Scope, gradients: Vec<Tensor>| {
        let pairs: Vec<_> = own.iter().cloned().zip(gradients.into_iter().map(Some)).collect();
        descend.apply_gradients(scope, &pairs)
    };
    let function = Function::new(apply.clone());
    let mut kernels = 0;
    for _ in 0..3 {
        let step = || if compiled { function.call(&scope, gradients.clone()) } else { apply(&scope, gradients.clone()) };
        kernels = match emulator {
            Some(emulator) => {
                let (done, counts) = emulator.during(step);
                done.map(|()| counts.graph_kernel_nodes)?
            }
            None => step().map(|()| 0)?,
        };
    }
    let all = variables.into_iter().chain(optimizer.variables());
    Ok((all.map(|variable| Ok(bytes(&scope.read(&variable)?))).collect::<Result<_>>()?, kernels))
}

/// Compares the compiled steps of an optimizer with eager ones. A compiled step has at most `most` kernels.
fn check_steps<O: Optimizer + 'static>(optimizer: fn() -> O, most: u64) -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let (merged, kernels) = steps(&device, Some(&emulator), optimizer(), true)?;
    let (apart, _) = steps(&device, None, optimizer(), false)?;
    assert!(merged == apart);
    println!("{kernels} kernels of {most}");
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// An optimizer updates all variables in one launch. Other kernels compute what is the same for all of them.
#[test]
fn optimizers_update_all_variables_at_once() -> Result<()> {
    check_steps(|| Adam::new(0.01), 2)?;
    check_steps(|| Sgd::new(0.01), 2)?;
    check_steps(|| Sgd::new(0.01).momentum(0.9), 2)?;
    check_steps(|| RMSprop::new(0.01), 2)?;
    check_steps(|| Nadam::new(0.01), 12)
}

/// Returns the largest difference of two tensors, relative to the largest of 1 and the wanted values.
fn difference(own: &Tensor, wanted: &Tensor) -> Result<f32> {
    let [own, wanted] = [own, wanted].map(|tensor| tensor.cast(DType::F32)?.to_vec::<f32>());
    let (own, wanted) = (own?, wanted?);
    assert_eq!(own.len(), wanted.len());
    Ok(own
        .iter()
        .zip(&wanted)
        .map(|(own, wanted)| if own.to_bits() == wanted.to_bits() { 0.0 } else { (own - wanted).abs() / wanted.abs().max(1.0) })
        .fold(0.0, f32::max))
}

/// A reduction, softmax or cross entropy of random shape. Returns its result, and the description of the case.
fn reduced(device: &Device, seed: u64) -> Result<(Tensor, String)> {
    let random = &mut Random::new(seed);
    let size = |random: &mut Random| random.pick(&[1u32, 2, 3, 7, 8, 9, 31, 33, 64, 100, 257, 1000, 2049, 5000]);
    let inner = size(random).min(257);
    let dims = [size(random).min(300), size(random), inner];
    let dims = if dims.iter().product::<u32>() > 60_000 { [3, dims[1].min(300), inner.min(64)] } else { dims };
    let dtype = random.pick(&[DType::F32, DType::F32, DType::F16, DType::Bf16]);
    let axes: &[i32] = random.pick(&[&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]]);
    let count: u32 = dims.iter().product();
    let unit: Vec<f32> = (0..count).map(|_| random.unit() as f32).collect();
    let x = Tensor::new(device, &unit, &dims)?.cast(dtype)?;
    let rows = [dims[0] * dims[1], dims[2]];
    let labels = Tensor::new(device, &(0..rows[0]).map(|row| (row % dims[2]) as i32).collect::<Vec<_>>(), &[rows[0]])?;
    let axis = axes[0];
    let case = format!("{dims:?} of {dtype}, {axes:?}, seed {seed}");
    let result = match random.below(10) {
        0 => x.sum(axes, false),
        1 => x.mean(axes, true),
        2 => x.max(axes, false),
        3 => x.less(&x.neg()?)?.any(axes, false)?.cast(DType::F32),
        4 => x.less(&x.abs()?.add(&x)?)?.all(axes, false)?.cast(DType::F32),
        5 => x.softmax(axis),
        6 => x.log_softmax(axis),
        7 => x.cast(DType::F32)?.cumsum(axis, random.coin(), random.coin()),
        8 => x.reshape(&rows)?.sparse_softmax_cross_entropy(&labels),
        _ => x.reshape(&rows)?.mul(&Tensor::scalar(device, 30.0f32).cast(dtype)?)?.softmax(-1),
    };
    Ok((result?, case))
}

/// Sums in another order are near those of the CPU, and have the same bits in every run.
#[test]
fn sums_in_another_order_are_near() -> Result<()> {
    let emulator = Emulator::new()?;
    let own = |workspace| emulator.gpu()?.create("GPU:0", &Options { workspace, ..Options::default() });
    let (device, without) = (own(8 << 20)?, own(0)?);
    for seed in 0..250 {
        let ((result, case), (wanted, _)) = (reduced(&device, seed)?, reduced(&ops::portable_cpu(), seed)?);
        let limit = match result.dtype() {
            DType::F16 => 1e-3,
            DType::Bf16 => 8e-3,
            _ => 2e-5,
        };
        let difference = difference(&result, &wanted)?;
        assert!(difference <= limit, "{difference}: {case}");
        assert!(bytes(&result) == bytes(&reduced(&device, seed)?.0), "another run: {case}");
        assert!(self::difference(&reduced(&without, seed)?.0, &wanted)? <= limit, "without a workspace: {case}");
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// Infinities and NaN in rows of several lengths.
#[test]
fn rows_with_infinities_and_nan() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.gpu()?.create("GPU:0", &Options::default())?;
    let compute = |device: &Device, extent: u32, special: &[f32]| {
        let mut numbers: Vec<f32> = (0..2 * extent).map(|index| (index % 13) as f32).collect();
        for (index, number) in numbers.iter_mut().enumerate().take(extent as usize) {
            if index % 5 < 3 || special.len() == 1 {
                *number = special[index % special.len()];
            }
        }
        let x = Tensor::new(device, &numbers, &[2, extent])?;
        Ok::<_, gradlet_core::Error>([x.softmax(-1)?, x.log_softmax(-1)?, x.max(&[1], false)?, x.sum(&[1], false)?])
    };
    let (infinity, nan) = (f32::INFINITY, f32::NAN);
    for extent in [1, 2, 10, 257, 2100, 5000] {
        for special in [&[-infinity][..], &[infinity], &[nan], &[-infinity, -infinity, -infinity, 1.0], &[nan, infinity]] {
            for (own, wanted) in compute(&device, extent, special)?.iter().zip(&compute(&ops::portable_cpu(), extent, special)?) {
                let (own, wanted) = (own.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
                let near = |(own, wanted): (&f32, &f32)| {
                    own == wanted || own.is_nan() && wanted.is_nan() || (own - wanted).abs() <= 1e-5 * wanted.abs().max(1.0)
                };
                assert!(own.iter().zip(&wanted).all(near), "{special:?}, {extent}");
            }
        }
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// Elements that move several at a time, and rows that indices select.
#[test]
fn moved_pieces_are_whole() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let compute = |device: &Device, seed: u64| {
        let random = &mut Random::new(seed);
        let dims = [random.range(1, 6), random.pick(&[1u32, 2, 4, 5, 8, 12, 16]), random.pick(&[1u32, 2, 3, 4, 6, 8, 16, 24])];
        let dtype = random.pick(&[DType::U8, DType::F16, DType::F32, DType::F64]);
        let x = numbers(device, random, &dims, dtype)?;
        let at = |random: &mut Random, dim: u32| random.below(dim as usize) as u32;
        let begin = [0, at(random, dims[1]), at(random, dims[2])];
        let rows = Tensor::new(device, &[0i32, 0, dims[0] as i32 - 1, 0, 0, 0, 0], &[7])?;
        let result = match random.below(6) {
            0 => Tensor::concat(&[&x, &x.neg().unwrap_or(x.clone())], random.pick(&[0, 1, 2])),
            1 => x.slice(&begin, &[-1, -1, -1]),
            2 => x.broadcast_to(&[3, dims[0], dims[1], dims[2]]),
            3 => x.gather(&rows, 0),
            4 => x.cast(DType::F32)?.gather(&rows, 0)?.scatter_nd(&rows.reshape(&[7, 1])?, &dims),
            _ => x.pad(&[(1, 0), (random.range(0, 2), 2), (random.range(0, 4), random.range(0, 4))], PadMode::Constant(0.0)),
        };
        Ok::<_, gradlet_core::Error>((bytes(&result?), format!("{dims:?} of {dtype}, from {begin:?}")))
    };
    for seed in 0..200 {
        let (own, case) = compute(&device, seed)?;
        assert!(own == compute(&ops::portable_cpu(), seed)?.0, "seed {seed}: {case}");
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}
