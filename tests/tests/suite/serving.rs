//! Sessions and batchers over one set of weights. The functions with a device also run on GPUs: see `cuda/serving.rs`.

use crate::cnn::{SIDE, bytes, layers};
use gradlet::artifact::Loaded;
use gradlet::serve::{Batcher, BatchingOptions};
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Dense, Layer, Sequential};
use gradlet_core::{Artifact, DType, Device, Eager, Function, Print, Result, Scope, Shape, Tensor, TensorSpec, Variable, ops};
use gradlet_tests::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Returns an artifact of a model for rows of these dimensions, with a signature `infer_ROWS` for each of `sizes`.
fn artifact(model: Sequential, row: &[u32], sizes: &[u32]) -> Result<AlignedBytes> {
    let scope = Eager::with_seed(&ops::portable_cpu(), 3);
    let shape = |rows: u32| Shape::new(&[&[rows], row].concat());
    model.build(&scope, &shape(1)?)?;
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x));
    let mut artifact = Artifact::new();
    for &rows in sizes {
        let x = Tensor::full(&scope.device(), 0.0f32, shape(rows)?.dims())?;
        artifact.signature(&format!("infer_{rows}"), &*infer.concrete(&scope, &x)?, &["x"], &["y"])?;
    }
    artifact.to_bytes()
}

fn images(random: &mut Random, rows: u32) -> Result<Tensor> {
    let pixels: Vec<f32> = (0..rows * SIDE * SIDE).map(|_| random.unit() as f32).collect();
    Tensor::new(&ops::portable_cpu(), &pixels, &[rows, SIDE, SIDE, 1])
}

/// `n` sessions need the memory of the weights once, and that of a run `n` times.
pub fn sessions_share_weights(device: &Device) -> Result<()> {
    let model = Sequential::new().with(Dense::new(512)).with(Dense::new(64));
    let first = Loaded::new(&artifact(model, &[64], &[2])?, None)?.on(device)?;
    let x = Tensor::full(device, 0.5f32, &[2, 64])?;
    let run = |session: &Loaded| session.signature("infer_2")?.call(std::slice::from_ref(&x)).map(drop);
    let used = || device.memory_info().current;
    run(&first)?;
    let (mut sessions, before) = (vec![first], used());
    for _ in 0..4 {
        sessions.push(sessions[0].session()?);
    }
    assert_eq!(used(), before, "a session allocates before its first run");
    run(&sessions[1])?;
    let own = used() - before;
    let weights = 4 * (64 * 512 + 512 + 512 * 64 + 64);
    assert!(own > 0 && own * 10 < weights, "a session has {own} bytes, the weights {weights}");
    for (count, session) in (2..).zip(&sessions[2..]) {
        run(session)?;
        assert_eq!(used(), before + count * own);
    }
    // Further runs allocate nothing, and a session gives its memory back.
    sessions.iter().try_for_each(run)?;
    assert_eq!(used(), before + 4 * own);
    sessions.truncate(1);
    assert_eq!(used(), before);
    Ok(())
}

/// Each of two sessions prints in the middle of its run, and waits there for the other one.
pub fn sessions_run_at_the_same_time(device: &Device) -> Result<()> {
    let portable = Eager::new(&ops::portable_cpu());
    let told = Function::new(|scope: &dyn Scope, x: Tensor| scope.print("{}", &[&x]).and(x.neg()));
    let x = Tensor::scalar(&portable.device(), 2.0f32);
    let mut artifact = Artifact::new();
    artifact.signature("told", &*told.concrete(&portable, &x)?, &["x"], &["y"])?;

    let (inside, met) = ((Mutex::new(0), Condvar::new()), Arc::new(AtomicUsize::new(0)));
    let meets = met.clone();
    let loaded = Loaded::new(&artifact.to_bytes()?, None)?.printing(move |_| {
        let (count, changed) = &inside;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let (_count, waited) = changed.wait_timeout_while(count, Duration::from_secs(20), |count| *count < 2).unwrap();
        meets.fetch_add(usize::from(!waited.timed_out()), Ordering::Relaxed);
    });
    let first = loaded.on(device)?;
    let sessions = [first.session()?, first];
    let x = x.to(device)?;
    std::thread::scope(|threads| {
        let run = |session: &Loaded| session.signature("told")?.call(std::slice::from_ref(&x))?[0].item::<f32>();
        let runs = sessions.each_ref().map(|session| threads.spawn(move || run(session)));
        runs.into_iter().for_each(|run| assert_eq!(run.join().unwrap(), Ok(-2.0)));
    });
    assert_eq!(met.load(Ordering::Relaxed), 2);
    Ok(())
}

/// Each of many threads gets the bits that its rows have in a batch of one caller.
pub fn every_caller_gets_its_own_rows(device: &Device, requests: usize) -> Result<()> {
    let loaded = Loaded::new(&artifact(layers(), &[SIDE, SIDE, 1], &[4])?, None)?.on(device)?;
    // The rows of the request, and the first of them again up to 4 rows.
    let alone = |x: &Tensor| -> Result<Vec<u8>> {
        let (own, row) = (bytes(x), bytes(x).len() / x.dims()[0] as usize);
        let padded: Vec<u8> = own.iter().chain(own[..row].iter().cycle()).copied().take(4 * row).collect();
        let shape = Shape::new(&[4, SIDE, SIDE, 1])?;
        let x4 = Tensor::from_bytes(device, gradlet_core::TensorType::new(DType::F32, shape), &padded)?;
        let y = bytes(&loaded.signature("infer_4")?.call(&[x4])?[0]);
        Ok(y[..y.len() / 4 * x.dims()[0] as usize].to_vec())
    };
    let options = BatchingOptions { batch_timeout: Duration::from_millis(2), ..BatchingOptions::default() };
    let batcher = Batcher::of(&loaded, &["infer_4"], options)?;
    let client = |seed: u64| -> Result<()> {
        let mut random = Random::new(seed);
        for _ in 0..requests {
            let rows = random.range(1, 4);
            let x = images(&mut random, rows)?;
            let y = batcher.call(std::slice::from_ref(&x))?;
            assert_eq!((y.len(), y[0].dims()), (1, &[rows, 3][..]));
            assert_eq!(bytes(&y[0]), alone(&x)?);
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..8).map(|seed| threads.spawn(move || client(seed))).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap())
    })?;
    let statistics = batcher.statistics();
    assert_eq!((statistics.latencies.count(), statistics.failed, statistics.refused), (8 * requests as u64, 0, 0));
    assert_eq!(statistics.batch_sizes, BTreeMap::from([(4, statistics.batches())]));
    assert!(statistics.latencies.percentile(99.0) > Duration::ZERO && statistics.requests_per_second() > 0.0);
    Ok(())
}

/// A model that the program trains itself is traced and planned for the allowed sizes only.
pub fn only_allowed_sizes_are_traced(device: &Device) -> Result<()> {
    let scope = Eager::new(device);
    let scale = Variable::new(&scope, "scale", &Tensor::scalar(device, 3.0f32))?;
    let traces = Arc::new(AtomicUsize::new(0));
    let session = || {
        let (scope, scale, traces) = (scope.clone(), scale.clone(), traces.clone());
        let infer = Function::new(move |scope: &dyn Scope, x: Tensor| {
            traces.fetch_add(1, Ordering::Relaxed);
            x.mul(&scope.read(&scale)?)
        });
        Ok(move |inputs: &[Tensor]| Ok(vec![infer.call(&scope, inputs[0].clone())?]))
    };
    let signature = [TensorSpec::new(DType::F32, &[None, Some(2)])];
    let options = BatchingOptions { batch_timeout: Duration::ZERO, num_batch_threads: 1, ..BatchingOptions::default() };
    let batcher = Batcher::new(device, &signature, [1, 4, 8], options, session)?;
    for rows in 1..=8 {
        let x = Tensor::full(&ops::portable_cpu(), rows as f32, &[rows, 2])?;
        assert_eq!(batcher.call(&[x])?[0].to_vec::<f32>()?, vec![3.0 * rows as f32; 2 * rows as usize]);
    }
    assert_eq!(traces.load(Ordering::Relaxed), 3);
    assert_eq!(batcher.statistics().batch_sizes, BTreeMap::from([(1, 1), (4, 3), (8, 4)]));
    Ok(())
}

/// No batch sees half of a training step that runs beside it. The two take the variables in opposite orders.
pub fn a_step_beside_the_server(device: &Device, steps: usize) -> Result<()> {
    let portable = Eager::new(&ops::portable_cpu());
    let one = Tensor::scalar(&portable.device(), 1.0f32);
    let all = (0..64).map(|index| Variable::new(&portable, &format!("w{index}"), &one)).collect::<Result<Vec<_>>>()?;
    let reversed: Vec<Variable> = all.iter().rev().cloned().collect();
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let read = all.iter().map(|variable| scope.read(variable)).collect::<Result<Vec<_>>>()?;
        read.windows(2).try_fold(x, |sum, pair| sum.add(&pair[0].sub(&pair[1])?.square()?))
    });
    let step = Function::new(move |scope: &dyn Scope, by: Tensor| {
        reversed.iter().try_for_each(|variable| scope.assign_add(variable, &by))?;
        scope.read(&reversed[0])
    });
    let mut artifact = Artifact::new();
    let x = Tensor::full(&portable.device(), 0.0f32, &[2])?;
    artifact.signature("infer", &*infer.concrete(&portable, &x)?, &["x"], &["y"])?;
    artifact.signature("step", &*step.concrete(&portable, &one)?, &["by"], &["total"])?;
    let loaded = Loaded::new(&artifact.to_bytes()?, None)?.on(device)?;

    let options = BatchingOptions { batch_timeout: Duration::ZERO, ..BatchingOptions::default() };
    let batcher = Batcher::of(&loaded, &["infer"], options)?;
    let (session, trained) = (loaded.session()?, AtomicBool::new(false));
    // The sum of the squares is not 0 if two variables differ.
    let client = |infer: &dyn Fn() -> Result<Vec<Tensor>>| -> Result<()> {
        while !trained.load(Ordering::Acquire) {
            assert_eq!(infer()?[0].to_vec::<f32>()?, [5.0; 2]);
        }
        Ok(())
    };
    let [x, here] = [&ops::portable_cpu(), device].map(|device| Tensor::full(device, 5.0f32, &[2]));
    let (x, here) = (x?, here?);
    std::thread::scope(|threads| {
        let batched = threads.spawn(|| client(&|| Ok(batcher.call(std::slice::from_ref(&x))?)));
        let alone = threads.spawn(|| client(&|| session.signature("infer")?.call(std::slice::from_ref(&here))));
        let by = Tensor::scalar(device, 1.0f32);
        let ran = (0..steps).try_for_each(|_| loaded.signature("step")?.call(std::slice::from_ref(&by)).map(drop));
        trained.store(true, Ordering::Release);
        [batched, alone].into_iter().try_for_each(|client| client.join().unwrap()).and(ran)
    })?;
    let total = 1.0 + steps as f32;
    assert_eq!((loaded.variable("w0")?.item::<f32>()?, loaded.session()?.variable("w63")?.item::<f32>()?), (total, total));
    Ok(())
}

#[test]
fn sessions_share_weights_on_a_cpu() -> Result<()> {
    sessions_share_weights(&ops::portable_cpu().limited(1 << 20))?;
    sessions_share_weights(&gradlet::cpu().limited(1 << 20))
}

#[test]
fn sessions_run_at_the_same_time_on_a_cpu() -> Result<()> {
    sessions_run_at_the_same_time(&gradlet::cpu())
}

#[test]
fn every_caller_gets_its_own_rows_on_a_cpu() -> Result<()> {
    every_caller_gets_its_own_rows(&ops::portable_cpu(), 60)?;
    every_caller_gets_its_own_rows(&gradlet::cpu(), 60)
}

#[test]
fn only_allowed_sizes_are_traced_on_a_cpu() -> Result<()> {
    only_allowed_sizes_are_traced(&gradlet::cpu())
}

#[test]
fn a_step_beside_the_server_on_a_cpu() -> Result<()> {
    a_step_beside_the_server(&gradlet::cpu(), 20_000)
}

/// With the portable kernels, a row has the same bits in batches of every size.
#[test]
fn the_size_of_a_batch_keeps_the_bits() -> Result<()> {
    let loaded = Loaded::new(&artifact(layers(), &[SIDE, SIDE, 1], &[1, 2, 5])?, None)?.on(&ops::portable_cpu())?;
    let options = BatchingOptions { batch_timeout: Duration::from_secs(3600), num_batch_threads: 1, ..BatchingOptions::default() };
    let batcher = Batcher::of(&loaded, &["infer_5", "infer_1", "infer_2"], options)?;
    assert_eq!((batcher.allowed_batch_sizes(), batcher.max_batch_size()), (&[1, 2, 5][..], 5));
    let x = images(&mut Random::new(7), 5)?;
    let y = bytes(&batcher.call(std::slice::from_ref(&x))?[0]);
    let (inputs, outputs) = (bytes(&x), y.chunks(y.len() / 5));
    for (input, output) in inputs.chunks(inputs.len() / 5).zip(outputs) {
        let row = Tensor::from_bytes(&ops::portable_cpu(), images(&mut Random::new(7), 1)?.tensor_type(), input)?;
        assert_eq!(bytes(&loaded.signature("infer_1")?.call(&[row])?[0]), output);
    }
    Ok(())
}

#[test]
fn signatures_that_cannot_be_served_are_explained() -> Result<()> {
    let told = |loaded: &Loaded, names: &[&str]| {
        let batcher = Batcher::of(loaded, names, BatchingOptions::default());
        batcher.err().map_or("nothing".into(), |error| error.to_string())
    };
    let bytes = artifact(layers(), &[SIDE, SIDE, 1], &[1, 4])?;
    let only_loaded = Loaded::new(&bytes, None)?;
    let error = "an artifact that was only loaded has one session: choose a device for it with `on`, then call `session`";
    assert_eq!(only_loaded.session().err().unwrap().to_string(), error);
    assert_eq!(told(&only_loaded, &["infer_1"]), error);
    let loaded = only_loaded.on(&ops::portable_cpu())?;
    assert_eq!(told(&loaded, &[]), "name at least one signature to serve");
    assert_eq!(told(&loaded, &["infer_2"]), "there is no signature \"infer_2\"; the artifact has infer_1, infer_4");
    let twice = "the signatures \"infer_4\" and \"infer_4\" both have 4 rows: name one of them";
    assert_eq!(told(&loaded, &["infer_4", "infer_1", "infer_4"]), twice);

    let scope = Eager::new(&ops::portable_cpu());
    let tensor = |dims: &[u32]| Tensor::full(&scope.device(), 1.0f32, dims);
    let (neg, sum) = (Function::new(|_: &dyn Scope, x: Tensor| x.neg()), Function::new(|_: &dyn Scope, x: Tensor| x.sum(&[], false)));
    let total = Variable::new(&scope, "total", &tensor(&[2])?)?;
    let adds = Function::new(move |scope: &dyn Scope, x: Tensor| scope.assign_add(&total, &x).and(scope.read(&total)));
    let mut others = Artifact::new();
    others.signature("narrow", &*neg.concrete(&scope, &tensor(&[1, 2])?)?, &["x"], &["y"])?;
    others.signature("wide", &*neg.concrete(&scope, &tensor(&[2, 3])?)?, &["x"], &["y"])?;
    others.signature("sum", &*sum.concrete(&scope, &tensor(&[2, 3])?)?, &["x"], &["y"])?;
    others.signature("adds", &*adds.concrete(&scope, &tensor(&[2])?)?, &["x"], &["total"])?;
    let others = Loaded::new(&others.to_bytes()?, None)?.on(&ops::portable_cpu())?;
    let differ = "the signatures \"narrow\" and \"wide\" must differ in the number of rows only";
    assert_eq!(told(&others, &["wide", "narrow"]), differ);
    assert_eq!(told(&others, &["sum"]), "\"y\" of signature \"sum\" is f32[], but the first input has 2 rows");
    let assigns = "signature \"adds\" assigns the variable \"total\", so rows of padding would change it";
    assert_eq!(told(&others, &["adds"]), assigns);
    Ok(())
}
