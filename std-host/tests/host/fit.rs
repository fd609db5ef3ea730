//! Tests that `fit`, `evaluate` and the callbacks have Keras's results, which `tests/fixtures/keras_fit.py` recorded.

use gradlet::checkpoint::{Checkpoint, latest_checkpoint};
use gradlet::layers::{Activation, Dense, Flatten, Layer, Module, Sequential, Visitor};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::metrics::{SparseCategoricalAccuracy, TopKCategoricalAccuracy};
use gradlet::optimizers::{Adam, Sgd};
use gradlet::train::callbacks::{
    CsvLogger, EarlyStopping, LambdaCallback, LearningRateScheduler, Mode, ModelCheckpoint, ReduceLROnPlateau, TerminateOnNaN,
};
use gradlet::train::{Callback, Compile, Evaluate, Fit, Logs, Model, Verbose};
use gradlet::{Eager, Result, Scope, Shape, Tensor, Variable};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

fn recorded() -> Value {
    serde_json::from_str(include_str!("../fixtures/keras_fit.json")).unwrap()
}

fn scope() -> Eager {
    Eager::with_seed(&gradlet::cpu(), 1)
}

/// Returns the same values as the function `wave` of the Python script, times `factor`.
fn wave(dims: &[u32], start: usize, factor: f64) -> Tensor {
    let count = dims.iter().product::<u32>() as usize;
    let elements: Vec<f32> = (start..start + count).map(|index| ((index as f64 * 0.7).sin() as f32) * factor as f32).collect();
    Tensor::new(&gradlet::cpu(), &elements, dims).unwrap()
}

fn layers() -> Sequential {
    Sequential::new().with(Dense::new(6).activation(Activation::Relu)).with(Dense::new(3))
}

fn compile() -> Compile {
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    Compile::new(Sgd::new(0.1), loss).metric("accuracy", SparseCategoricalAccuracy::default())
}

fn model_with(compile: Compile) -> Model {
    let mut model = Model::new(&scope(), layers());
    model.build(&[4]).unwrap();
    let weights = [wave(&[4, 6], 1, 1.0), wave(&[6], 100, 0.1), wave(&[6, 3], 200, 1.0), wave(&[3], 300, 0.1)];
    model.set_weights(&weights).unwrap();
    model.compile(compile).unwrap();
    model
}

fn model() -> Model {
    model_with(compile())
}

struct Samples {
    x: Tensor,
    y: Tensor,
    weight: Tensor,
}

fn samples() -> Samples {
    let labels: Vec<i32> = (0..23).map(|index| index * 7 % 3).collect();
    let weight = wave(&[23], 2000, 1.0).abs().unwrap();
    Samples { x: wave(&[23, 4], 1000, 1.0), y: Tensor::new(&gradlet::cpu(), &labels, &[23]).unwrap(), weight }
}

/// Returns the samples in `tensor` from index `first` to index `end`, excluding `end`.
fn part(tensor: &Tensor, first: i64, end: i64) -> Tensor {
    let rows: Vec<i64> = (first..end).collect();
    tensor.gather(&Tensor::new(&gradlet::cpu(), &rows, &[rows.len() as u32]).unwrap(), 0).unwrap()
}

fn quiet<'a>() -> Fit<'a> {
    Fit::new().verbose(Verbose::Silent).shuffle(false).batch_size(5)
}

#[track_caller]
fn assert_close(name: &str, got: &[f64], wanted: &Value) {
    let wanted: Vec<f64> = wanted.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    let close = got.len() == wanted.len() && got.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 2e-6);
    assert!(close, "{name}: {got:?} instead of {wanted:?}");
}

#[track_caller]
fn fits(name: &str, model: Model, fit: Fit<'_>, weighted: bool) {
    let Samples { x, y, weight } = samples();
    let history = if weighted { model.fit((&x, &y, &weight), fit) } else { model.fit((&x, &y), fit) }.unwrap();
    let recorded = recorded();
    let wanted = recorded["fits"][name].as_object().unwrap();
    let known: BTreeSet<&str> = history.epochs.iter().flat_map(|(_, logs)| logs.iter().map(|(name, _)| name)).collect();
    assert_eq!(known, wanted.keys().map(String::as_str).collect());
    for (metric, values) in wanted {
        assert_close(metric, &history.get(metric), values);
    }
}

#[test]
fn histories_are_keras_s() {
    let weighted = compile().weighted_metric("weighted", SparseCategoricalAccuracy::default());
    fits("validation_split", model(), quiet().epochs(3).validation_split(0.3).validation_freq(2).validation_batch_size(4), false);
    fits("sample_weight", model_with(weighted), quiet().epochs(2), true);
    fits("class_weight", model(), quiet().epochs(2).class_weight(&[(0, 2.0), (2, 0.5)]), false);
    fits("steps_per_epoch", model(), quiet().epochs(4).steps_per_epoch(3), false);
    fits("initial_epoch", model(), quiet().initial_epoch(2).epochs(4), false);
    let halve = LearningRateScheduler::new(|epoch, rate| if epoch > 0 { rate * 0.5 } else { rate });
    fits("scheduler", model(), quiet().epochs(4).callback(halve), false);
    fits(
        "scheduler",
        model_with(compile().run_eagerly(true)),
        quiet().epochs(4).callback(LearningRateScheduler::new(|epoch, rate| if epoch > 0 { rate * 0.5 } else { rate })),
        false,
    );

    let Samples { x, y, .. } = samples();
    let [first, rest] = [(0, 17), (17, 23)].map(|(from, to)| (part(&x, from, to), part(&y, from, to)));
    let history = model().fit((&first.0, &first.1), quiet().epochs(3).validation_data((&rest.0, &rest.1))).unwrap();
    for name in ["accuracy", "loss", "val_accuracy", "val_loss"] {
        assert_close(name, &history.get(name), &recorded()["fits"]["validation_data"][name]);
    }
}

#[test]
fn single_steps_and_evaluations_are_keras_s() {
    let Samples { x, y, .. } = samples();
    let model = model();
    let recorded = recorded();
    let evaluation = model.evaluate((&x, &y), Evaluate::new().batch_size(5).verbose(Verbose::Silent)).unwrap();
    for name in ["accuracy", "loss"] {
        assert_close(name, &[evaluation.get(name).unwrap()], &serde_json::json!([recorded["evaluation"][name]]));
    }
    for (index, (from, to)) in [(0, 5), (5, 9)].into_iter().enumerate() {
        let logs = model.train_on_batch((&part(&x, from, to), &part(&y, from, to))).unwrap();
        for name in ["accuracy", "loss"] {
            assert_close(name, &[logs.get(name).unwrap()], &serde_json::json!([recorded["steps"][index][name]]));
        }
    }
    let logs = model.test_on_batch((&x, &y)).unwrap();
    let all = model.evaluate((&x, &y), Evaluate::new().steps(1).batch_size(23)).unwrap();
    assert_eq!(logs, all);
}

#[test]
fn compiled_and_eager_training_have_the_same_bits_and_so_have_two_with_one_seed() {
    let Samples { x, y, .. } = samples();
    let weights = |eager, seed| {
        let scope = Eager::with_seed(&gradlet::cpu(), seed);
        let mut model = Model::new(&scope, layers());
        let loss = SparseCategoricalCrossentropy::default().from_logits(true);
        model.compile(Compile::new(Adam::new(0.01), loss).run_eagerly(eager)).unwrap();
        model.fit((&x, &y), Fit::new().epochs(3).batch_size(4).verbose(Verbose::Silent)).unwrap();
        model.get_weights().unwrap().iter().flat_map(|weight| weight.to_vec::<f32>().unwrap()).map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(weights(false, 3), weights(true, 3));
    assert_ne!(weights(false, 3), weights(false, 4));
}

#[test]
fn predictions_are_the_model_s_in_order() {
    let Samples { x, .. } = samples();
    let model = model();
    let all = model.predict_on_batch(&x).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(model.predict_in_batches(&x, 5).unwrap().to_vec::<f32>().unwrap(), all);
    assert_eq!(model.predict(&x).unwrap().to_vec::<f32>().unwrap(), all);
}

/// Runs one epoch for each of these values, until the callback stops the training. The callback receives the value as the log `watched`.
/// Calls `each` after each epoch. Returns the number of epochs.
fn watch(callback: &mut dyn Callback, model: &Model, values: &Value, mut each: impl FnMut(&Model)) -> usize {
    callback.on_train_begin(model).unwrap();
    for (epoch, value) in values.as_array().unwrap().iter().enumerate() {
        let mut logs = Logs::default();
        logs.set("watched", value.as_f64().unwrap());
        let flow = callback.on_epoch_end(model, epoch, &mut logs).unwrap();
        each(model);
        if flow.is_break() {
            return epoch + 1;
        }
    }
    values.as_array().unwrap().len()
}

fn mode(arguments: &Value) -> Mode {
    if arguments["mode"] == "min" { Mode::Min } else { Mode::Max }
}

#[test]
fn early_stopping_stops_where_keras_s_does() {
    for case in recorded()["stops"].as_array().unwrap() {
        let arguments = &case["arguments"];
        let number = |name: &str| arguments[name].as_u64().unwrap_or(0) as usize;
        let mut stop = EarlyStopping::new().monitor("watched").mode(mode(arguments)).patience(number("patience"));
        stop = stop.min_delta(arguments["min_delta"].as_f64().unwrap_or(0.0)).start_from_epoch(number("start_from_epoch"));
        if let Some(baseline) = arguments["baseline"].as_f64() {
            stop = stop.baseline(baseline);
        }
        let mut stop = stop.restore_best_weights(true);
        let epochs = watch(&mut stop, &model(), &case["values"], |_| ());
        assert_eq!((epochs as u64, stop.best_epoch() as u64), (case["epochs"].as_u64().unwrap(), case["best"].as_u64().unwrap()), "{case}");
    }
}

#[test]
fn early_stopping_brings_the_best_weights_back() {
    let Samples { x, y, .. } = samples();
    let model = model();
    let mut kept = Vec::new();
    let mut stop = EarlyStopping::new().monitor("loss").mode(Mode::Max).patience(2).restore_best_weights(true);
    let keep = KeepWeights(&mut kept);
    let history = model.fit((&x, &y), quiet().epochs(9).callback(keep).callback(&mut stop)).unwrap();
    assert_eq!((history.epochs.len(), stop.best_epoch(), stop.stopped_epoch()), (3, 0, Some(2)));
    assert_eq!(model.get_weights().unwrap()[0].to_vec::<f32>().unwrap(), kept[0]);
    assert_ne!(kept[0], kept[2]);
}

struct KeepWeights<'a>(&'a mut Vec<Vec<f32>>);

impl Callback for KeepWeights<'_> {
    fn on_epoch_end(&mut self, model: &Model, _: usize, _: &mut Logs) -> Result<std::ops::ControlFlow<()>> {
        self.0.push(model.get_weights()?[0].to_vec()?);
        Ok(std::ops::ControlFlow::Continue(()))
    }
}

/// Returns the sorted names of the files in a folder.
fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The expected names are those of Keras 3.15.
#[test]
fn models_are_saved_when_keras_saves_them() {
    let folder = tempfile::tempdir().unwrap();
    let Samples { x, y, .. } = samples();
    let save = ModelCheckpoint::new(folder.path().join("often/{epoch:02d}-{batch}.safetensors")).save_freq(4);
    model().fit((&x, &y), quiet().epochs(3).callback(save)).unwrap();
    assert_eq!(names(&folder.path().join("often")), ["01-4.safetensors", "02-3.safetensors", "03-2.safetensors"]);

    let save = ModelCheckpoint::new(folder.path().join("best/{epoch}-{watched:.1f}.safetensors")).monitor("watched").mode(Mode::Min);
    let (mut save, model, mut saved) = (save.save_best_only(true), model(), Vec::new());
    for (epoch, value) in [3.0, 2.0, 2.5, 1.0, 1.0].into_iter().enumerate() {
        let mut logs = Logs::default();
        logs.set("watched", value);
        save.on_epoch_begin(&model, epoch).unwrap();
        assert!(save.on_epoch_end(&model, epoch, &mut logs).unwrap().is_continue());
        saved = names(&folder.path().join("best"));
    }
    assert_eq!(saved, ["1-3.0.safetensors", "2-2.0.safetensors", "4-1.0.safetensors"]);
    assert_eq!(save.best(), Some(1.0));
}

/// Interrupted training continues with the state of its optimizer.
#[test]
fn training_goes_on_from_a_saved_model() {
    let Samples { x, y, .. } = samples();
    let adam = || Compile::new(Adam::new(0.01), SparseCategoricalCrossentropy::default().from_logits(true));
    let whole = model_with(adam());
    whole.fit((&x, &y), quiet().epochs(4)).unwrap();

    let folder = tempfile::tempdir().unwrap();
    model_with(adam()).fit((&x, &y), quiet().epochs(2).callback(ModelCheckpoint::new(folder.path().join("ckpt")))).unwrap();
    let latest = latest_checkpoint(folder.path()).unwrap().unwrap();
    assert_eq!(names(folder.path()), ["checkpoint", "ckpt.data-00000-of-00002", "ckpt.index"]);
    let model = model_with(adam());
    let checkpoint = Checkpoint::new().with("model", &model).with("optimizer", model.optimizer().unwrap());
    let status = checkpoint.read(latest).unwrap();
    model.fit((&x, &y), quiet().epochs(4).initial_epoch(2)).unwrap();
    status.assert_consumed().unwrap();
    let weights = |model: &Model| model.get_weights().unwrap().iter().map(|weight| weight.to_vec::<f32>().unwrap()).collect::<Vec<_>>();
    assert_eq!(weights(&model), weights(&whole));
}

#[test]
fn rates_are_reduced_as_keras_s_are() {
    for case in recorded()["reductions"].as_array().unwrap() {
        let arguments = &case["arguments"];
        let mut reduce = ReduceLROnPlateau::new().monitor("watched").mode(mode(arguments));
        reduce = reduce.patience(arguments["patience"].as_u64().unwrap() as usize).factor(arguments["factor"].as_f64().unwrap_or(0.1));
        reduce = reduce.cooldown(arguments["cooldown"].as_u64().unwrap_or(0) as usize).min_lr(arguments["min_lr"].as_f64().unwrap_or(0.0));
        reduce = reduce.min_delta(arguments["min_delta"].as_f64().unwrap_or(1e-4));
        let mut rates = Vec::new();
        let rate = |model: &Model| model.optimizer().unwrap().learning_rate(model.scope()).unwrap().item::<f32>().unwrap();
        watch(&mut reduce, &model(), &case["values"], |model| rates.push(rate(model)));
        let wanted: Vec<f32> = case["rates"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap() as f32).collect();
        assert_eq!(rates, wanted, "{case}");
    }
}

/// Returns the CSV text that a logger writes for these runs. A run is a list of epochs, and an epoch a list of names with values. All runs
/// write to the same file. `logger` sets the logger's options.
fn table(logger: impl Fn(CsvLogger) -> CsvLogger, runs: &[&[&[(&str, f64)]]]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    for run in runs {
        let mut logger = logger(CsvLogger::new(&path));
        logger.on_train_begin(&model()).unwrap();
        for (epoch, entries) in run.iter().enumerate() {
            let mut logs = Logs::default();
            entries.iter().for_each(|(name, value)| logs.set(name, *value));
            assert!(logger.on_epoch_end(&model(), epoch, &mut logs).unwrap().is_continue());
        }
        logger.on_train_end(&model()).unwrap();
    }
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn tables_are_keras_s() {
    let first: &[&[(&str, f64)]] = &[&[("loss", 0.1), ("accuracy", 1e-5)], &[("loss", f64::NAN), ("accuracy", 1.0), ("val_loss", 2.5)]];
    let second: &[&[(&str, f64)]] = &[&[("loss", 3.0), ("val_loss", 1e22), ("a,b", 0.25)]];
    let recorded = recorded();
    assert_eq!(table(|logger| logger, &[first]), recorded["csv"].as_str().unwrap());
    assert_eq!(table(|logger| logger.append(true).separator(';'), &[first, second]), recorded["csv_appended"].as_str().unwrap());
    assert_eq!(table(|logger| logger, &[second]), recorded["csv_quoted"].as_str().unwrap());
}

#[test]
fn functions_can_be_callbacks() {
    let Samples { x, y, .. } = samples();
    let calls = std::cell::RefCell::new(String::new());
    let say = |text: String| calls.borrow_mut().push_str(&text);
    let callback = LambdaCallback::new()
        .on_train_begin(|| say("begin".into()))
        .on_epoch_begin(|epoch| say(format!(" {epoch}:")))
        .on_batch_end(|step, _| say(step.to_string()))
        .on_epoch_end(|epoch, logs| say(format!(";{epoch}{}", logs.get("loss").is_some())))
        .on_train_end(|| say(" end".into()));
    model().fit((&x, &y), quiet().epochs(2).callback(callback)).unwrap();
    assert_eq!(calls.into_inner(), "begin 0:01234;0true 1:01234;1true end");
}

#[test]
fn summaries_count_the_optimizer_s_state() {
    let mut model = Model::new(&scope(), Sequential::new().with(Flatten).with(layers()));
    assert!(model.summary().unwrap_err().to_string().contains("the model is not built: call build()"));
    model.compile(compile()).unwrap();
    let Samples { x, y, .. } = samples();
    model.train_on_batch((&x.reshape(&[23, 2, 2]).unwrap(), &y)).unwrap();
    let text = model.summary().unwrap().to_string();
    // The two parameters are the number of iterations, an i64, and the learning rate, an f32.
    assert!(text.contains("│ (None, 4) ") && text.ends_with(" Optimizer params: 2 (12.00 B)\n"), "{text}");
}

#[test]
fn the_first_bad_number_stops_training_and_is_named() {
    let Samples { x, y, .. } = samples();
    let model = model();
    let mut numbers = x.to_vec::<f32>().unwrap();
    numbers[4 * 8] = f32::INFINITY;
    let bad = Tensor::new(&gradlet::cpu(), &numbers, x.dims()).unwrap();
    let error = model.fit((&bad, &y), quiet().epochs(2).check_numerics(true)).unwrap_err().to_string();
    let wanted = r#"epoch 1: step 2: layer "sequential": layer "dense": dense(f32[5,4], f32[4,6], f32[6]): returned "#;
    assert!(error.starts_with(wanted) && error.contains("; input 0 already has inf at position 12"), "{error}");
    // Without the callback, training continues.
    let history = model.fit((&bad, &y), quiet().epochs(2)).unwrap();
    assert!(history.get("loss").iter().all(|loss| loss.is_nan()));
    assert_eq!(history.stop_reason, None);
    let history = model.fit((&bad, &y), quiet().epochs(2).callback(TerminateOnNaN::new())).unwrap();
    assert_eq!(history.epochs.len(), 1);
    assert_eq!(history.stop_reason.as_deref(), Some("Batch 0: Invalid loss, terminating training"));
    let strict = TerminateOnNaN::new().raise_error(true);
    let error = model.fit((&bad, &y), quiet().callback(strict)).unwrap_err().to_string();
    assert!(error.contains("the loss is NaN after step 1"), "{error}");
}

#[track_caller]
fn fails<T>(result: Result<T>, text: &str) {
    let error = result.err().expect("an error").to_string();
    assert!(error.contains(text), "{error}");
}

#[test]
fn errors_say_what_does_not_fit() {
    let Samples { x, y, weight } = samples();
    let model = model();
    let fit = || quiet().epochs(2);
    fails(model.fit((&part(&x, 0, 3), &y), fit()), "the first dimensions must be the same: x is f32[3,4], y is i32[23]");
    fails(model.fit((&x, &y, &part(&weight, 0, 3)), fit()), "y is i32[23], sample_weight is f32[3]");
    fails(model.fit((&part(&x, 0, 0), &part(&y, 0, 0)), fit()), "there are no samples: x is f32[0,4], y is i32[0]");
    fails(model.train_on_batch((&part(&x, 0, 0), &part(&y, 0, 0))), "there are no samples");
    fails(model.predict(&part(&x, 0, 0)), "there are no samples");
    fails(model.fit((&x, &y), fit().batch_size(0)), "batch_size must be at least 1");
    fails(model.fit((&x, &y), fit().validation_split(0.99)), "leaves none for training or none for validation");
    fails(model.fit((&x, &y, &weight), fit().class_weight(&[(0, 1.0)])), "sample weights and class weights cannot be combined");
    let wide = x.reshape(&[23, 2, 2]).unwrap();
    fails(model.fit((&wide, &y), fit()), r#"epoch 1: step 1: layer "sequential": layer "dense""#);
    fails(model.fit((&x, &y), fit().validation_data((&wide, &y))), "epoch 1: evaluation step 1: ");
    let mut labels = y.to_vec::<i32>().unwrap();
    labels[7] = 3;
    let labels = Tensor::new(&gradlet::cpu(), &labels, &[23]).unwrap();
    let before = model.get_weights().unwrap()[0].to_vec::<f32>().unwrap();
    let text = "epoch 1: step 1: sample 7: the label or index at position";
    fails(model.fit((&x, &labels), fit().batch_size(23).shuffle(true)), text);
    fails(model.fit((&x, &labels), fit().batch_size(23)), "is 3, but must be at least 0 and less than 3");
    assert_eq!(model.get_weights().unwrap()[0].to_vec::<f32>().unwrap(), before, "a failed step changes nothing");

    let weights = model.get_weights().unwrap();
    fails(model.set_weights(&weights[1..]), "the model has 4 variables, but got 3 weights");
    let swapped: Vec<Tensor> = [1, 0, 2, 3].map(|index: usize| weights[index].clone()).into();
    fails(model.set_weights(&swapped), r#"variable "dense/kernel" is f32[4,6], but its weight is f32[6]"#);
    let mut unbuilt = Model::new(&scope(), layers());
    fails(unbuilt.fit((&x, &y), fit()), "the model is not compiled: call compile() first");
    fails(unbuilt.get_weights(), "the model is not built: call build()");
    fails(unbuilt.load_weights("none").map_err(Into::into), "none: the model is not built");
    fails(unbuilt.compile(compile().metric("accuracy", TopKCategoricalAccuracy::default())), r#"two metrics have the name "accuracy""#);
    let callback = EarlyStopping::new().monitor("val_strange");
    let strange = compile().metric("strange", SparseCategoricalAccuracy::default());
    let validation = || fit().validation_data((&x, &y));
    fails(model_with(strange).fit((&x, &y), validation().callback(callback)), "set a mode");
    let factor = ReduceLROnPlateau::new().factor(1.0);
    fails(model.fit((&x, &y), fit().callback(factor)), "the factor of ReduceLROnPlateau must be less than 1, not 1");
}

/// A file name with the ending of another format is refused, and no file is written.
#[test]
fn weights_of_other_formats_are_refused() {
    let Samples { x, y, .. } = samples();
    let folder = tempfile::tempdir().unwrap();
    let model = model();
    for name in ["x.h5", "x.weights.h5", "x.keras", "x.npz", "x.bin", "x", "x.safetensors.h5"] {
        let path = folder.path().join(name);
        let error = model.save_weights(&path).unwrap_err().to_string();
        assert!(error.ends_with(".safetensors; checkpoint::Checkpoint saves TensorFlow checkpoints"), "{error}");
    }
    for name in ["{epoch}.keras", "best.weights.h5", "x.NPZ"] {
        let callback = ModelCheckpoint::new(folder.path().join(name));
        let error = model_with(compile()).fit((&x, &y), quiet().callback(callback)).unwrap_err().to_string();
        assert!(error.contains("models cannot be saved as ."), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let path = folder.path().join("x.h5");
    for (begin, kind) in [(&b"\x89HDF\r\n\x1a\n"[..], "it is an HDF5 file"), (b"PK\x03\x04", "it is a ZIP file, like Keras's .keras")] {
        std::fs::write(&path, [begin, &[0; 100]].concat()).unwrap();
        let error = model.load_weights(&path).unwrap_err().to_string();
        assert!(error.contains("not a safetensors file") && error.contains(kind), "{error}");
    }
}

#[test]
fn weights_are_saved_and_loaded() {
    let Samples { x, .. } = samples();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let (one, other) = (model(), Model::new(&scope(), layers()));
    one.save_weights(&path).unwrap();
    other.build(&[4]).unwrap();
    other.load_weights(&path).unwrap();
    assert_eq!(one.predict(&x).unwrap().to_vec::<f32>().unwrap(), other.predict(&x).unwrap().to_vec::<f32>().unwrap());
    let wider = Model::new(&scope(), Sequential::new().with(Dense::new(7)).with(Dense::new(3)));
    wider.build(&[4]).unwrap();
    let error = wider.load_weights(&path).unwrap_err().to_string();
    assert!(error.ends_with(r#"tensor "dense/kernel" is f32[4,6], but the model's is f32[4,7]"#), "{error}");
    assert_eq!(Module::variables(&wider).len(), 4);
    assert_eq!(wider.layer().name(), "sequential");
}

/// A layer whose kernel is not trainable.
struct BiasOnly(Dense);

impl Module for BiasOnly {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.0.visit(visitor);
    }
    fn trainable_variables(&self) -> Vec<Variable> {
        self.0.variables().into_iter().filter(|variable| variable.name() == "bias").collect()
    }
}

impl Layer for BiasOnly {
    fn name(&self) -> &str {
        "bias_only"
    }
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        self.0.build(scope, input)
    }
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.0.call(scope, x)
    }
}

#[test]
fn what_a_layer_leaves_out_is_not_trained() {
    let own = || Arc::new(BiasOnly(Dense::new(3)));
    let alone = Model::new(&scope(), own());
    let nested = Model::new(&scope(), Arc::new(Sequential::new().with(Box::new(own()) as Box<dyn Layer>)));
    for mut model in [alone, nested] {
        model.build(&[4]).unwrap();
        model.compile(compile()).unwrap();
        let names = |variables: Vec<Variable>| variables.iter().map(|variable| variable.name().to_string()).collect::<Vec<_>>();
        assert_eq!((names(model.trainable_variables()), model.variables().len()), (vec!["bias".to_string()], 2));
        let before: Vec<Vec<f32>> = model.get_weights().unwrap().iter().map(|weight| weight.to_vec().unwrap()).collect();
        let data = samples();
        model.fit((&data.x, &data.y), Fit::new().verbose(Verbose::Silent)).unwrap();
        let after: Vec<Vec<f32>> = model.get_weights().unwrap().iter().map(|weight| weight.to_vec().unwrap()).collect();
        assert!(before[0] == after[0] && before[1] != after[1], "the kernel stays, the bias is trained");
    }
}
