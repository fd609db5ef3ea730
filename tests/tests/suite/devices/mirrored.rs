//! The tutorials' program with a mirrored strategy, on two logical CPUs: it trains as on one device.

use super::two_cpus;
use gradlet::distribute::MirroredStrategy;
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, MaxPool2D, Module, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::metrics::SparseCategoricalAccuracy;
use gradlet::optimizers::Adam;
use gradlet::train::{Compile, Evaluate, Fit, Model, Verbose};
use gradlet::{Device, Eager, Result, Scope, Tensor};
use gradlet_tests::random::Random;

/// Returns random digits and their labels.
fn digits(device: &Device, count: u32) -> Result<(Tensor, Tensor)> {
    let mut random = Random::new(3);
    let pixels: Vec<f32> = (0..count * 28 * 28).map(|_| random.unit() as f32).collect();
    let labels: Vec<i32> = (0..count).map(|_| random.below(10) as i32).collect();
    Ok((Tensor::new(device, &pixels, &[count, 28, 28, 1])?, Tensor::new(device, &labels, &[count])?))
}

/// Builds and compiles the tutorial's model, with fewer features.
fn distributed_model(scope: &Eager) -> Result<Model> {
    let layers = Sequential::new()
        .with(Conv2D::new(3, [3, 3]).activation(Activation::Relu))
        .with(MaxPool2D::new([2, 2]))
        .with(Conv2D::new(4, [3, 3]).activation(Activation::Relu))
        .with(MaxPool2D::new([2, 2]))
        .with(Conv2D::new(4, [3, 3]).activation(Activation::Relu))
        .with(Flatten)
        .with(Dense::new(8).activation(Activation::Relu))
        .with(Dense::new(10).activation(Activation::Softmax));
    let mut model = Model::new(scope, layers);
    let compile = Compile::new(Adam::new(0.001), SparseCategoricalCrossentropy::default());
    model.compile(compile.metric("accuracy", SparseCategoricalAccuracy::default()))?;
    Ok(model)
}

/// Trains and evaluates a model. Returns both losses and both accuracies, and the weights.
fn trained(model: &Model, (x, y): (Tensor, Tensor)) -> Result<(Vec<f64>, Vec<Tensor>)> {
    let fit = Fit::new().epochs(1).batch_size(4).shuffle(false).verbose(Verbose::Silent);
    let history = model.fit((&x, &y), fit)?;
    let logs = model.evaluate((&x, &y), Evaluate::new().batch_size(4).verbose(Verbose::Silent))?;
    let of = |name: &str| [history.get(name)[0], logs.get(name).unwrap()];
    Ok(([of("loss"), of("accuracy")].concat(), model.get_weights()?))
}

#[test]
fn a_mirrored_model_trains_like_one_on_one_device() -> Result<()> {
    // The last batch has one sample, so a replica has none.
    const SAMPLES: u32 = 9;
    let context = two_cpus()?;
    let strategy = MirroredStrategy::new(&context, &[])?;
    assert_eq!(format!("Number of devices: {}", strategy.num_replicas_in_sync()), "Number of devices: 2");
    let model = distributed_model(&strategy.scope())?;
    let (logs, weights) = trained(&model, digits(&strategy.scope().device(), SAMPLES)?)?;
    let single = context.device("CPU:0")?;
    let (wanted_logs, wanted) = trained(&distributed_model(&Eager::new(&single))?, digits(&single, SAMPLES)?)?;
    assert!(logs.iter().zip(&wanted_logs).all(|(got, wanted)| (got - wanted).abs() < 1e-4), "{logs:?}, wanted {wanted_logs:?}");
    assert_eq!(weights.len(), wanted.len());
    for (index, (got, wanted)) in weights.iter().zip(&wanted).enumerate() {
        let (got, wanted) = (got.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
        let near = got.len() == wanted.len() && got.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-4);
        assert!(near, "weight {index}: {got:?}, wanted {wanted:?}");
    }
    for variable in [model.layer().variables(), model.optimizer()?.variables()].concat() {
        let copies = variable.copies();
        let values = copies.iter().map(|copy| strategy.scope().read(copy)).collect::<Result<Vec<Tensor>>>()?;
        let places = copies.iter().map(|copy| Ok(copy.device()?.name().to_string())).collect::<Result<Vec<String>>>()?;
        assert_eq!(places, ["CPU:0", "CPU:1"], "{variable:?}");
        assert_eq!(*values[0].bytes()?, *values[1].bytes()?, "{variable:?}");
    }
    Ok(())
}
