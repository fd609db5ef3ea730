//! Training on a device that hides its memory: the bits are those of a CPU, and nothing moves that need not.

use crate::cnn::{Bits, Cnn, SIDE, batch, bytes, layers};
use gradlet::Dataset;
use gradlet::artifact::Loaded;
use gradlet::train::{Compile, Evaluate, Fit, History, Logs, Model, Verbose};
use gradlet_core::losses::SparseCategoricalCrossentropy;
use gradlet_core::metrics::SparseCategoricalAccuracy;
use gradlet_core::optimizers::Sgd;
use gradlet_core::{Device, Eager, Error, Result, Tensor, ops};
use gradlet_tests::hiding::Hiding;

#[test]
fn a_compiled_step_moves_a_batch_to_the_device_and_a_loss_back() -> Result<()> {
    let hiding = Hiding::new();
    let (own, other) = (Cnn::new(&hiding.device, 1)?, Cnn::new(&ops::portable_cpu(), 1)?);
    let (train, wanted) = (own.compiled(), other.compiled());
    for index in 0..6 {
        let (loss, counts) = hiding.during(|| -> Result<f32> { train.call(&own.scope, own.batch(index)?)?.item::<f32>() });
        let expected = wanted.call(&other.scope, other.batch(index)?)?.item::<f32>()?;
        assert_eq!(loss?.to_bits(), expected.to_bits(), "step {index}");
        assert_eq!(own.state(), other.state(), "step {index}");
        if index > 0 {
            let moves = (counts.uploads, counts.downloads, counts.copies, counts.fills, counts.allocations);
            assert_eq!(moves, (2, 1, 0, 0, 2), "step {index}");
        }
    }
    drop((train, own));
    assert_eq!(hiding.live(), 0);
    Ok(())
}

#[test]
fn eager_steps_have_the_bits_of_the_cpu() -> Result<()> {
    let hiding = Hiding::new();
    let (own, other) = (Cnn::new(&hiding.device, 1)?, Cnn::new(&ops::portable_cpu(), 1)?);
    assert_eq!(own.state(), other.state());
    for index in 0..3 {
        let step = |cnn: &Cnn| -> Result<Vec<u8>> {
            let (x, labels) = cnn.batch(index)?;
            Ok(bytes(&cnn.step(&cnn.scope, &x, &labels)?))
        };
        assert_eq!(step(&own)?, step(&other)?, "step {index}");
        assert_eq!(own.state(), other.state(), "step {index}");
    }
    drop(own);
    assert_eq!(hiding.live(), 0);
    Ok(())
}

/// Results of training, evaluation and prediction: losses and accuracies, and the bytes of the weights and of the outputs.
#[derive(Debug, PartialEq)]
struct Outcome {
    history: History,
    logs: Logs,
    bits: Bits,
}

impl Outcome {
    fn of(model: &Model, history: History, logs: Logs, outputs: &Tensor) -> Result<Outcome> {
        let weights = model.get_weights()?;
        Ok(Outcome { history, logs, bits: weights.iter().chain([outputs]).map(bytes).collect() })
    }
}

fn compiled_model(device: &Device) -> Result<Model> {
    let mut model = Model::new(&Eager::with_seed(device, 5), layers());
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    model.compile(Compile::new(Sgd::new(0.1).momentum(0.9), loss).metric("accuracy", SparseCategoricalAccuracy::default()))?;
    Ok(model)
}

fn fit() -> Fit<'static> {
    Fit::new().epochs(2).verbose(Verbose::Silent)
}

/// Trains on arrays that are on the device `place`.
fn from_arrays(device: &Device, place: &Device) -> Result<Outcome> {
    let (model, (x, y)) = (compiled_model(device)?, batch(place, 1, SIDE)?);
    let history = model.fit((&x, &y), fit().batch_size(4))?;
    let logs = model.evaluate((&x, &y), Evaluate::new().batch_size(4).verbose(Verbose::Silent))?;
    Outcome::of(&model, history, logs, &model.predict(&x)?)
}

/// Trains on a dataset whose elements are on the device `place`.
fn from_dataset(device: &Device, place: &Device) -> Result<Outcome> {
    let (model, place) = (compiled_model(device)?, place.clone());
    let batches = Dataset::range(0..4).map(move |index| batch(&place, index as u64, SIDE)).unbatch().batch(4);
    let history = model.fit(&batches, fit())?;
    let logs = model.evaluate(&batches, Evaluate::new().verbose(Verbose::Silent))?;
    Outcome::of(&model, history, logs, &model.predict(&batches)?)
}

#[test]
fn fit_on_data_of_the_device_has_the_bits_of_the_cpu() -> Result<()> {
    let (hiding, cpu) = (Hiding::new(), gradlet::portable_cpu());
    assert_eq!(from_arrays(&hiding.device, &hiding.device)?, from_arrays(&cpu, &cpu)?);
    assert_eq!(from_dataset(&hiding.device, &hiding.device)?, from_dataset(&cpu, &cpu)?);
    assert_eq!(hiding.live(), 0);
    Ok(())
}

/// Files, known datasets and batches of numbers are on `cpu()`, wherever the model is.
#[test]
fn fit_copies_the_batches_of_a_dataset_to_its_device() -> Result<()> {
    let (hiding, cpu) = (Hiding::new(), gradlet::portable_cpu());
    let wanted = from_dataset(&cpu, &cpu)?;
    assert_eq!(from_dataset(&hiding.device, &gradlet::cpu())?, wanted);
    assert_eq!(from_dataset(&cpu, &gradlet::cpu())?, wanted);
    assert_eq!(hiding.live(), 0);
    Ok(())
}

#[test]
fn fit_copies_the_batches_of_arrays_to_its_device() -> Result<()> {
    let (hiding, cpu) = (Hiding::new(), gradlet::portable_cpu());
    assert_eq!(from_arrays(&hiding.device, &gradlet::cpu())?, from_arrays(&cpu, &cpu)?);
    assert_eq!(hiding.live(), 0);
    Ok(())
}

#[test]
fn a_refused_fit_is_an_error() -> Result<()> {
    let cpu = gradlet::portable_cpu();
    let wanted = from_arrays(&cpu, &cpu)?;
    super::at_every_place(|hiding, place| {
        hiding.refuse_after(Some(place));
        let (outcome, counts) = hiding.during(|| from_arrays(&hiding.device, &cpu));
        match outcome {
            Ok(outcome) => assert_eq!(outcome, wanted),
            Err(error) => assert!(matches!(error.root(), Error::OutOfMemory(_)), "place {place}: {error}"),
        }
        Ok(counts.allocations > place)
    })
}

/// An artifact that is loaded on the device: refused at every place, then whole.
#[test]
fn a_refused_load_is_an_error() -> Result<()> {
    let artifact = gradlet_tests::flat::artifact(0.01)?;
    let values =
        |device: &Device| -> Result<[Tensor; 2]> { Ok([Tensor::full(device, 0.5f32, &[1, 4])?, Tensor::new(device, &[1i32], &[1])?]) };
    let run = |device: &Device| -> Result<(f32, Vec<u8>)> {
        let loaded = Loaded::new(&artifact, None)?.on(device)?;
        let train = loaded.signature("train")?;
        let inputs = values(device)?;
        train.call(&inputs)?;
        Ok((train.call(&inputs)?[0].item()?, loaded.to_bytes()?.to_vec()))
    };
    let wanted = run(&gradlet::portable_cpu())?;
    super::at_every_place(|hiding, place| {
        hiding.refuse_after(Some(place));
        let (outcome, counts) = hiding.during(|| run(&hiding.device));
        match outcome {
            Ok(outcome) => assert!(outcome == wanted),
            Err(error) => assert!(matches!(error.root(), Error::OutOfMemory(_)), "place {place}: {error}"),
        }
        Ok(counts.allocations > place)
    })
}
