//! Batches that are uploaded while the step before them still runs.

use crate::cnn::{Cnn, bytes};
use gradlet::layers::{Dense, Sequential};
use gradlet::losses::MeanSquaredError;
use gradlet::optimizers::Sgd;
use gradlet::train::callbacks::LambdaCallback;
use gradlet::train::{Compile, Fit, Model, Verbose};
use gradlet_core::{DType, Eager, Function, Result, Scope, Tensor, Variable, ops};
use gradlet_tests::gpu::Emulator;

/// Number of elements of a batch that is large enough for a copy of its own: 64 KiB.
const ELEMENTS: u32 = 1 << 14;

/// Creates the batch with this number.
fn batch(scope: &Eager, number: u32) -> Result<Tensor> {
    let values: Vec<f32> = (0..ELEMENTS).map(|index| ((index * 7 + number * 13) % 101) as f32).collect();
    Tensor::new(&scope.device(), &values, &[ELEMENTS])
}

/// Returns a step that adds a batch to a variable and returns its sum, and the variable.
fn sums(scope: &Eager) -> Result<(Function<Tensor, Tensor>, Variable)> {
    let total = Variable::new(scope, "total", &Tensor::full(&scope.device(), 0.0f32, &[ELEMENTS])?)?;
    let own = total.clone();
    let step = Function::new(move |scope: &dyn Scope, x: Tensor| {
        scope.assign_add(&own, &x)?;
        x.sum(&[], false)
    });
    Ok((step, total))
}

/// The order of copies and steps holds although nobody waits: each step reads its own batch, and the memory of old batches is used again.
#[test]
fn steps_read_their_own_batches() -> Result<()> {
    for words in ["", "integrated=1 capability=87"] {
        let emulator = Emulator::with(words)?;
        let (own, other) = (Eager::new(&emulator.limited(8 << 20)?), Eager::new(&ops::portable_cpu()));
        let ((step, total), (wanted, expected)) = (sums(&own)?, sums(&other)?);
        let mut losses = Vec::new();
        for number in 0..12 {
            losses.push((step.call(&own, batch(&own, number)?)?, wanted.call(&other, batch(&other, number)?)?));
        }
        assert_eq!(bytes(&own.read(&total)?), bytes(&other.read(&expected)?), "{words:?}");
        for (loss, expected) in losses {
            assert_eq!(loss.item::<f32>()?, expected.item::<f32>()?, "{words:?}");
        }
    }
    Ok(())
}

/// Neither a step nor an upload waits for the GPU, except for memory that an integrated GPU still reads.
#[test]
fn a_step_does_not_wait() -> Result<()> {
    let emulator = Emulator::new()?;
    let scope = Eager::new(&emulator.device()?);
    let (step, _) = sums(&scope)?;
    let mut losses = (0..2).map(|number| step.call(&scope, batch(&scope, number)?)).collect::<Result<Vec<_>>>()?;
    let (more, counts) = emulator.during(|| (2..5).map(|number| step.call(&scope, batch(&scope, number)?)).collect::<Result<Vec<_>>>());
    // Two kernels for each step.
    assert_eq!((counts.kernel_launches, counts.uploads, counts.downloads, counts.synchronizations), (6, 3, 0, 0), "{counts:?}");
    losses.extend(more?);
    let losses = losses.iter().map(Tensor::item::<f32>).collect::<Result<Vec<_>>>()?;
    assert!(losses.iter().all(|loss| (800_000.0..840_000.0).contains(loss)), "{losses:?}");
    Ok(())
}

/// A step that checks its labels waits for the check once, and for nothing else.
#[test]
fn a_step_with_a_check_waits_for_the_check() -> Result<()> {
    let emulator = Emulator::new()?;
    let cnn = Cnn::new(&emulator.device()?, 1)?;
    let train = cnn.compiled();
    train.call(&cnn.scope, cnn.batch(0)?)?;
    let (x, _) = cnn.batch(1)?;
    let wrong = Tensor::full(&cnn.scope.device(), 10i32, &x.dims()[..1])?;
    let before = cnn.state();
    let error = train.call(&cnn.scope, (x, wrong)).unwrap_err().to_string();
    assert!(error.contains("10"), "{error}");
    assert_eq!(cnn.state(), before, "a step that was refused changes no variable");
    let batch = cnn.batch(2)?;
    let (loss, counts) = emulator.during(|| train.call(&cnn.scope, batch));
    assert_eq!((counts.graph_launches, counts.downloads, counts.synchronizations), (1, 0, 1), "{counts:?}");
    assert!(loss?.item::<f32>()?.is_finite());
    Ok(())
}

/// The host waits for the loss alone, with an event, while the rest of the step still runs. It does so until other work follows.
#[test]
fn a_loss_arrives_before_the_step_has_ended() -> Result<()> {
    // Downloads and synchronisations: the loss is in memory that the host sees after its event, or is copied after all work.
    for (words, [early, late]) in [("", [(0, 1), (1, 1)]), ("integrated=1 capability=87", [(0, 1); 2])] {
        let emulator = Emulator::with(words)?;
        let cnn = Cnn::new(&emulator.device()?, 1)?;
        let (train, device) = (cnn.compiled(), cnn.scope.device());
        let loss = train.call(&cnn.scope, cnn.batch(0)?)?;
        let read = |loss: &Tensor| -> Result<(f32, (u64, u64))> {
            let (value, counts) = emulator.during(|| loss.item::<f32>());
            Ok((value?, (counts.downloads, counts.synchronizations)))
        };
        let (value, counts) = read(&loss)?;
        assert_eq!(counts, early, "{words:?}");
        let other = train.call(&cnn.scope, cnn.batch(1)?)?;
        assert_eq!(read(&loss)?, (value, late), "{words:?}");
        // Other tensors have the memory of results that were dropped.
        drop(loss);
        for value in 0..20 {
            assert_eq!(Tensor::full(&device, value as f32, &[])?.item::<f32>()?, value as f32, "{words:?}");
        }
        assert!(other.item::<f32>()?.is_finite());
        assert_eq!(emulator.report(), "");
    }
    Ok(())
}

/// Small results of all types arrive without a download, from buffers that change with each call.
#[test]
fn small_results_arrive_from_new_buffers() -> Result<()> {
    let emulator = Emulator::new()?;
    let (own, other) = (Eager::new(&emulator.device()?), Eager::new(&ops::portable_cpu()));
    let results = |_: &dyn Scope, x: Tensor| -> Result<(Tensor, Tensor, Tensor, Tensor)> {
        let sums = x.cumsum(0, false, false)?.sum(&[0], false)?;
        let wide = sums.sum(&[], false)?.cast(DType::I64)?;
        let signs = sums.less(&sums.like(7.0)?)?;
        let last = x.mul(&wide.cast(DType::F32)?)?.cumsum(1, false, false)?;
        Ok((sums, wide, signs, last))
    };
    let (step, wanted) = (Function::new(results), Function::new(results));
    let mut kept = Vec::new();
    for round in 0..4u32 {
        let batch = |scope: &Eager| Tensor::new(&scope.device(), &[round as f32, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3]);
        let (found, expected) = (step.call(&own, batch(&own)?)?, wanted.call(&other, batch(&other)?)?);
        let (read, counts) =
            emulator.during(|| -> Result<_> { Ok((found.0.to_vec::<f32>()?, found.1.item::<i64>()?, found.2.bytes()?.to_vec())) });
        let expected = (expected.0.to_vec::<f32>()?, expected.1.item::<i64>()?, expected.2.bytes()?.to_vec());
        assert_eq!(read?, expected);
        assert_eq!((counts.downloads, counts.synchronizations), (0, 3), "{counts:?}");
        kept.push((found, expected));
    }
    // Older results come from their own memory.
    for ((sums, wide, signs, _), expected) in &kept {
        assert_eq!((sums.to_vec::<f32>()?, wide.item::<i64>()?, signs.bytes()?.to_vec()), *expected);
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A large batch has no stream of its own while the GPU does nothing.
#[test]
fn an_idle_gpu_needs_no_other_stream() -> Result<()> {
    let emulator = Emulator::new()?;
    let scope = Eager::new(&emulator.device()?);
    let (step, total) = sums(&scope)?;
    for number in 0..3 {
        let loss = step.call(&scope, batch(&scope, number)?)?;
        // The end of the work is marked when memory is freed.
        drop(loss);
        scope.device().synchronize()?;
        let (copy, counts) = emulator.during(|| batch(&scope, number));
        assert_eq!((counts.uploads, counts.synchronizations), (1, 0), "{counts:?}");
        assert_eq!(bytes(&copy?), bytes(&batch(&Eager::new(&ops::portable_cpu()), number)?));
    }
    let expected: Vec<f32> = (0..ELEMENTS).map(|index| (0..3).map(|number| ((index * 7 + number * 13) % 101) as f32).sum()).collect();
    assert_eq!(scope.read(&total)?.to_vec::<f32>()?, expected);
    Ok(())
}

/// A scalar that a function changes several times has its last value, although the host does not wait for the rest of the function.
#[test]
fn a_scalar_arrives_with_its_last_value() -> Result<()> {
    let emulator = Emulator::new()?;
    let scope = Eager::new(&emulator.device()?);
    let scalar = |value: f32| Tensor::full(&scope.device(), value, &[]);
    let (total, other) = (Variable::new(&scope, "total", &scalar(0.0)?)?, Variable::new(&scope, "other", &scalar(0.0)?)?);
    let own = [total.clone(), other];
    let step = Function::new(move |scope: &dyn Scope, x: Tensor| {
        for round in 0..3 {
            scope.assign_add(&own[0], &x.cumsum(round % 2, false, false)?.sum(&[], false)?)?;
            scope.assign(&own[1], &scope.read(&own[0])?.cos()?)?;
        }
        x.cumsum(0, false, false)?.cumsum(1, false, false)?.sum(&[], false)
    });
    let mut expected = 0.0;
    for round in 1..4u32 {
        let x = Tensor::full(&scope.device(), round as f32, &[2, 2])?;
        step.call(&scope, x)?;
        expected += 3.0 * 6.0 * round as f32;
        assert_eq!(scope.read(&total)?.item::<f32>()?, expected, "round {round}");
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// `fit` reads the results of an epoch at its end, unless a callback wants those of each step.
#[test]
fn fit_reads_results_when_somebody_looks() -> Result<()> {
    let emulator = Emulator::new()?;
    let scope = Eager::new(&emulator.device()?);
    let mut model = Model::new(&scope, Sequential::new().with(Dense::new(1)));
    model.compile(Compile::new(Sgd::new(0.01), MeanSquaredError))?;
    let data = |rows: u32| -> Result<(Tensor, Tensor)> {
        let x: Vec<f32> = (0..rows * 3).map(|index| (index % 7) as f32 / 7.0).collect();
        let x = Tensor::new(&gradlet::cpu(), &x, &[rows, 3])?;
        Ok((x.clone(), x.sum(&[1], true)?))
    };
    let options = || Fit::new().epochs(1).batch_size(4).shuffle(false).verbose(Verbose::Silent);
    let ((x, y), (first_x, first_y)) = (data(40)?, data(8)?);
    model.fit((&first_x, &first_y), options())?;
    let (history, counts) = emulator.during(|| model.fit((&x, &y), options()));
    assert_eq!((counts.graph_launches, counts.downloads), (10, 1), "{counts:?}");
    let mut losses = Vec::new();
    let callback = LambdaCallback::new().on_batch_end(|_, logs| losses.extend(logs.get("loss")));
    let last = model.fit((&x, &y), options().callback(callback))?.get("loss");
    assert!(losses.len() == 10 && losses.last() == last.first() && last < history?.get("loss"), "{losses:?}");
    Ok(())
}
