//! `fit`, `evaluate` and `predict` of a model in the scope of a strategy, against the same model on one device.

use super::{SEED, agreed, all_near, bits, cpus, machine, near, strategy, two};
use gradlet::config::Context;
use gradlet::distribute::MirroredStrategy;
use gradlet::layers::{Activation, BatchNormalization, Dense, Dropout, Module, Sequential};
use gradlet::losses::{BinaryCrossentropy, SparseCategoricalCrossentropy};
use gradlet::metrics::{Auc, BinaryAccuracy};
use gradlet::optimizers::Sgd;
use gradlet::train::{Compile, Evaluate, Fit, History, Logs, Model, Verbose};
use gradlet::{Dataset, Eager, Result, Scope, Tensor, Variable};
use gradlet_tests::random::Random;

/// Largest difference between replicas and one device.
const TOLERANCE: f64 = 1e-5;

/// Inputs, labels and weights of samples.
struct Data {
    x: Tensor,
    y: Tensor,
    weights: Tensor,
}

/// Returns random samples of two classes that overlap.
fn data(samples: u32) -> Result<Data> {
    let (device, mut random) = (gradlet::portable_cpu(), Random::new(3));
    let x: Vec<f32> = (0..samples * 4).map(|_| random.unit() as f32).collect();
    let y: Vec<f32> = x.chunks(4).map(|x| if x[0] + x[1] + 0.5 * random.unit() as f32 > 0.0 { 1.0 } else { 0.0 }).collect();
    let weights: Vec<f32> = (0..samples).map(|_| random.unit() as f32 + 1.5).collect();
    let tensor = |elements: &[f32], width: u32| Tensor::new(&device, elements, &[samples, width]);
    Ok(Data { x: tensor(&x, 4)?, y: tensor(&y, 1)?, weights: Tensor::new(&device, &weights, &[samples])? })
}

/// Creates a compiled classifier with metrics.
fn classifier(scope: &Eager, eager: bool) -> Result<Model> {
    let layers = Sequential::new().with(Dense::new(6).activation(Activation::Tanh));
    let mut model = Model::new(scope, layers.with(Dense::new(1).activation(Activation::Sigmoid)));
    let compile = Compile::new(Sgd::new(0.1).momentum(0.9), BinaryCrossentropy::default());
    let metrics = compile.metric("accuracy", BinaryAccuracy::default()).metric("auc", Auc::default());
    model.compile(metrics.weighted_metric("weighted", BinaryAccuracy::default()).run_eagerly(eager))?;
    Ok(model)
}

/// Returns the same classifier in the scope of a strategy, and on the first device of its context.
fn pair(context: &Context) -> Result<(MirroredStrategy, [Model; 2])> {
    let strategy = strategy(context)?;
    let alone = Eager::with_seed(&context.device("CPU:0")?, SEED);
    let models = [classifier(&strategy.scope(), false)?, classifier(&alone, false)?];
    Ok((strategy, models))
}

/// Returns options of a silent training in batches of 8.
fn options() -> Fit<'static> {
    Fit::new().epochs(3).batch_size(8).verbose(Verbose::Silent)
}

/// Returns options of a silent evaluation in batches of 8.
fn evaluation() -> Evaluate {
    Evaluate::new().batch_size(8).verbose(Verbose::Silent)
}

/// Returns the variables of a model and of its optimizer.
fn variables(model: &Model) -> Result<Vec<Variable>> {
    Ok([model.layer().variables(), model.optimizer()?.variables()].concat())
}

/// Checks that two logs have the same names, and nearly the same numbers.
fn near_logs(got: &Logs, wanted: &Logs) {
    let names = |logs: &Logs| logs.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(got), names(wanted));
    let close = got.iter().zip(wanted.iter()).all(|((_, got), (_, wanted))| (got - wanted).abs() <= TOLERANCE * (1.0 + wanted.abs()));
    assert!(close, "got {got:?}, wanted {wanted:?}");
}

fn near_histories(got: &History, wanted: &History) {
    assert_eq!(got.epochs.len(), wanted.epochs.len());
    got.epochs.iter().zip(&wanted.epochs).for_each(|((_, got), (_, wanted))| near_logs(got, wanted));
}

/// Calls `fit` with both models of a context. They must then have nearly the same history, weights, evaluation and outputs.
fn compare(context: &Context, data: &Data, fit: impl Fn(&Model) -> Result<History>) -> Result<()> {
    let (strategy, [own, alone]) = pair(context)?;
    near_histories(&fit(&own)?, &fit(&alone)?);
    agreed(&strategy, &variables(&own)?)?;
    all_near(&own.get_weights()?, &alone.get_weights()?, TOLERANCE as f32)?;
    let Data { x, y, weights } = data;
    near_logs(&own.evaluate((x, y), evaluation())?, &alone.evaluate((x, y), evaluation())?);
    near_logs(&own.evaluate((x, y, weights), evaluation())?, &alone.evaluate((x, y, weights), evaluation())?);
    near(&own.predict(x)?, &alone.predict(x)?, TOLERANCE as f32)
}

/// Returns contexts of two and three CPUs, portable and fast ones.
fn contexts() -> Result<Vec<Context>> {
    [(true, 2), (true, 3), (false, 2), (false, 3)].into_iter().map(|(portable, count)| cpus(portable, count)).collect()
}

#[test]
fn fit_has_the_results_of_one_device() -> Result<()> {
    // The last batch has 7 samples.
    let data = data(23)?;
    for context in contexts()? {
        compare(&context, &data, |model| model.fit((&data.x, &data.y), options()))?;
        compare(&context, &data, |model| model.fit((&data.x, &data.y), options().shuffle(false)))?;
    }
    Ok(())
}

#[test]
fn a_replica_without_samples_adds_nothing() -> Result<()> {
    // The last batch has 1 sample, or 2.
    for samples in [25, 26] {
        let data = data(samples)?;
        for context in contexts()? {
            compare(&context, &data, |model| model.fit((&data.x, &data.y, &data.weights), options()))?;
            compare(&context, &data, |model| model.fit((&data.x, &data.y), options().class_weight(&[(0, 0.25)])))?;
        }
    }
    Ok(())
}

#[test]
fn weights_of_samples_and_classes_count_as_on_one_device() -> Result<()> {
    let data = data(23)?;
    for context in contexts()? {
        compare(&context, &data, |model| model.fit((&data.x, &data.y, &data.weights), options()))?;
        compare(&context, &data, |model| model.fit((&data.x, &data.y), options().class_weight(&[(0, 0.5), (1, 2.0)])))?;
    }
    Ok(())
}

#[test]
fn validation_and_numeric_checks_work_in_replicas() -> Result<()> {
    let data = data(23)?;
    let context = cpus(true, 2)?;
    compare(&context, &data, |model| {
        let history = model.fit((&data.x, &data.y), options().validation_split(0.25))?;
        assert_eq!(history.get("val_auc").len(), 3);
        Ok(history)
    })?;
    compare(&context, &data, |model| model.fit((&data.x, &data.y), options().check_numerics(true)))?;
    compare(&context, &data, |model| model.fit((&data.x, &data.y), options().steps_per_epoch(2)))
}

#[test]
fn datasets_are_divided_by_fit() -> Result<()> {
    let data = data(23)?;
    let batches = Dataset::from_tensor_slices((data.x.clone(), data.y.clone())).batch(8);
    compare(&cpus(true, 3)?, &data, |model| model.fit(&batches, Fit::new().epochs(3).verbose(Verbose::Silent)))
}

#[test]
fn single_batches_work_in_replicas() -> Result<()> {
    let (context, data) = (cpus(true, 2)?, data(5)?);
    let (strategy, [own, alone]) = pair(&context)?;
    for _ in 0..3 {
        near_logs(&own.train_on_batch((&data.x, &data.y))?, &alone.train_on_batch((&data.x, &data.y))?);
        near_logs(&own.test_on_batch((&data.x, &data.y, &data.weights))?, &alone.test_on_batch((&data.x, &data.y, &data.weights))?);
    }
    near(&own.predict_on_batch(&data.x)?, &alone.predict_on_batch(&data.x)?, TOLERANCE as f32)?;
    agreed(&strategy, &variables(&own)?).map(drop)
}

#[test]
fn eager_steps_train_like_compiled_ones() -> Result<()> {
    let data = data(25)?;
    for strategy in [two()?, strategy(&machine(2).0)?] {
        let [eager, compiled] = [classifier(&strategy.scope(), true)?, classifier(&two()?.scope(), false)?];
        let fit = |model: &Model| model.fit((&data.x, &data.y, &data.weights), options());
        near_histories(&fit(&eager)?, &fit(&compiled)?);
        agreed(&strategy, &variables(&eager)?)?;
        all_near(&eager.get_weights()?, &compiled.get_weights()?, 1e-6)?;
    }
    Ok(())
}

#[test]
fn fit_on_hidden_gpus_has_the_bits_of_portable_cpus() -> Result<()> {
    let data = data(25)?;
    for count in [2, 3] {
        let (hidden, portable) = (strategy(&machine(count).0)?, strategy(&cpus(true, count)?)?);
        let [own, other] = [classifier(&hidden.scope(), false)?, classifier(&portable.scope(), false)?];
        let fit = |model: &Model| model.fit((&data.x, &data.y), options());
        assert_eq!(fit(&own)?, fit(&other)?);
        assert_eq!(own.evaluate((&data.x, &data.y), evaluation())?, other.evaluate((&data.x, &data.y), evaluation())?);
        assert_eq!(agreed(&hidden, &variables(&own)?)?, agreed(&portable, &variables(&other)?)?);
        assert_eq!(bits(&own.predict(&data.x)?)?, bits(&other.predict(&data.x)?)?);
    }
    Ok(())
}

/// Each replica normalises by the statistics of its own part, and has its own moving averages.
#[test]
fn batch_normalization_has_the_mean_of_the_replicas_statistics() -> Result<()> {
    let data = data(24)?;
    for strategy in [two()?, strategy(&cpus(false, 3)?)?, strategy(&machine(2).0)?] {
        let norm = BatchNormalization::default().momentum(0.5);
        let layers = Sequential::new().with(Dense::new(6)).with(norm).with(Dropout::new(0.1));
        let mut model = Model::new(&strategy.scope(), layers.with(Dense::new(1).activation(Activation::Sigmoid)));
        model.compile(Compile::new(Sgd::new(0.2), BinaryCrossentropy::default()))?;
        let history = model.fit((&data.x, &data.y), options().epochs(20))?;
        assert!(history.get("loss")[19] < history.get("loss")[0], "{history:?}");
        let named = model.layer().named_variables();
        let (moving, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|(name, _)| name.contains("moving"));
        assert_eq!(moving.len(), 2);
        for (name, variable) in &moving {
            let copies = variable.copies().iter().map(|copy| strategy.scope().read(copy)?.to_vec::<f32>()).collect::<Result<Vec<_>>>()?;
            assert!(copies[0] != copies[1] && copies.concat().iter().all(|value| value.is_finite()), "{name}: {copies:?}");
            let count = copies.len() as f32;
            let mean: Vec<f32> = (0..6).map(|column| copies.iter().map(|copy| copy[column]).sum::<f32>() / count).collect();
            let value = strategy.scope().read(variable)?;
            near(&value, &Tensor::new(&value.device()?, &mean, &[6])?, 1e-6)?;
        }
        agreed(&strategy, &others.into_iter().map(|(_, variable)| variable).collect::<Vec<_>>())?;
        let loss = model.evaluate((&data.x, &data.y), evaluation())?.get("loss").unwrap();
        assert!(loss.is_finite());
        assert!(model.predict(&data.x)?.to_vec::<f32>()?.iter().all(|y| (0.0..=1.0).contains(y)));
    }
    Ok(())
}

/// The position of a label in a replica's part is not its position in the batch.
#[test]
fn a_label_out_of_range_names_its_sample() -> Result<()> {
    let context = cpus(true, 2)?;
    let data = data(16)?;
    let labels: Vec<i32> = (0..16).map(|sample| if sample == 13 { 9 } else { sample % 3 }).collect();
    let labels = Tensor::new(&gradlet::portable_cpu(), &labels, &[16])?;
    for scope in [Eager::new(&context.device("CPU:0")?), strategy(&context)?.scope()] {
        let mut model = Model::new(&scope, Dense::new(3));
        model.compile(Compile::new(Sgd::new(0.1), SparseCategoricalCrossentropy::default().from_logits(true)))?;
        let error = model.fit((&data.x, &labels), options().shuffle(false)).unwrap_err().to_string();
        assert!(error.contains("step 2") && error.contains("sample 13"), "{error}");
    }
    Ok(())
}
