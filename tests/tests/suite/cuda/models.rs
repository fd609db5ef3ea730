//! Keras's loops, checkpoints and artifacts on a GPU.

use crate::cnn::{SIDE, batch, layers};
use gradlet::Dataset;
use gradlet::artifact::Loaded;
use gradlet::checkpoint::Checkpoint;
use gradlet::train::{Compile, Evaluate, Fit, Model, Verbose};
use gradlet_core::losses::SparseCategoricalCrossentropy;
use gradlet_core::metrics::SparseCategoricalAccuracy;
use gradlet_core::optimizers::Adam;
use gradlet_core::{Device, Eager, Result, Tensor, ops};
use gradlet_tests::gpu;

fn model(device: &Device, seed: u64) -> Result<Model> {
    let mut model = Model::new(&Eager::with_seed(device, seed), layers());
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    model.compile(Compile::new(Adam::new(0.01), loss).metric("accuracy", SparseCategoricalAccuracy::default()))?;
    Ok(model)
}

fn near(own: &Tensor, wanted: &Tensor) -> Result<()> {
    let pairs = own.to_vec::<f32>()?.into_iter().zip(wanted.to_vec::<f32>()?);
    let largest = pairs.map(|(own, wanted)| (own - wanted).abs()).fold(0.0, f32::max);
    assert!(largest <= 1e-4, "differs by {largest}");
    Ok(())
}

/// Trains on a dataset of the host, evaluates, and predicts.
fn trained(device: &Device) -> Result<(Model, f64, Tensor)> {
    let model = model(device, 5)?;
    let batches = Dataset::range(0..4).map(|index| batch(&gradlet::portable_cpu(), index as u64, SIDE)).unbatch().batch(5);
    model.fit(&batches, Fit::new().epochs(2).verbose(Verbose::Silent))?;
    let logs = model.evaluate(&batches, Evaluate::new().verbose(Verbose::Silent))?;
    let predicted = model.predict(&batches)?;
    Ok((model, logs.get("loss").unwrap_or(f64::NAN), predicted))
}

#[test]
fn fit_evaluate_and_predict() -> Result<()> {
    let (_, loss, predicted) = trained(&gpu::device()?)?;
    let (_, wanted, others) = trained(&ops::portable_cpu())?;
    assert!((loss - wanted).abs() < 1e-4, "{loss}, on a CPU {wanted}");
    near(&predicted, &others)
}

/// A checkpoint of a GPU continues on a CPU, and the reverse.
#[test]
fn checkpoints_move_between_gpu_and_cpu() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let devices = [gpu::device()?, ops::portable_cpu()];
    for (index, (from, to)) in [(&devices[0], &devices[1]), (&devices[1], &devices[0])].into_iter().enumerate() {
        let (own, ..) = trained(from)?;
        let prefix = Checkpoint::new().with("model", &own).write(folder.path().join(format!("ckpt-{index}"))).unwrap();
        let other = model(to, 9)?;
        let (x, _) = batch(to, 1, SIDE)?;
        other.predict(&x)?;
        Checkpoint::new().with("model", &other).read(&prefix).unwrap();
        near(&other.predict(&x)?, &own.predict(&x.to(from)?)?)?;
    }
    Ok(())
}

#[test]
fn an_artifact_trains_on_a_gpu() -> Result<()> {
    let artifact = gradlet_tests::flat::artifact(0.01)?;
    let run = |device: &Device| -> Result<Vec<f32>> {
        let loaded = Loaded::new(&artifact, None)?.on(device)?;
        let train = loaded.signature("train")?;
        let inputs = [Tensor::full(device, 0.5f32, &[1, 4])?, Tensor::new(device, &[1i32], &[1])?];
        (0..5).map(|_| train.call(&inputs)?[0].item()).collect()
    };
    let (own, wanted) = (run(&gpu::device()?)?, run(&ops::portable_cpu())?);
    assert!(own.iter().zip(&wanted).all(|(own, wanted)| (own - wanted).abs() < 1e-5), "{own:?}, on a CPU {wanted:?}");
    assert!(own[4] < own[0], "{own:?}");
    Ok(())
}
