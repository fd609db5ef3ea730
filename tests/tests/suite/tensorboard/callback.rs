//! Compares the TensorBoard callback with Keras's: tags, steps, types, plugins, and the losses of the same training.

use crate::tensorboard::python;
use gradlet::io::npy;
use gradlet::io::proto::GraphDef;
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::metrics::SparseCategoricalAccuracy;
use gradlet::optimizers::Adam;
use gradlet::summary::Run;
use gradlet::train::callbacks::{TensorBoard, UpdateFreq};
use gradlet::train::{Compile, Fit, Model};
use gradlet::{Eager, Tensor};
use prost::Message;
use std::collections::BTreeMap;
use std::path::Path;

const SCRIPT: &str = include_str!("callback.py");

/// Data of a run: the plugin, the steps and the numbers of each tag.
type Told = BTreeMap<String, (String, Vec<i64>, Vec<f64>)>;

fn told(folder: &Path) -> Told {
    let run = Run::read(folder).unwrap();
    let series = run.all().map(|(_, tag, series)| {
        let steps = series.points.iter().map(|point| point.step).collect();
        let numbers = series.points.iter().filter_map(|point| point.number()).collect();
        (tag.to_string(), (series.plugin().to_string(), steps, numbers))
    });
    series.collect()
}

fn model() -> Model {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let layers =
        Sequential::new().with(Conv2D::new(2, [3, 3])).with(Flatten).with(Dense::new(8).activation(Activation::Relu)).with(Dense::new(3));
    let mut model = Model::new(&scope, layers);
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    model.compile(Compile::new(Adam::new(0.01), loss).metric("accuracy", SparseCategoricalAccuracy::default())).unwrap();
    model.build(&[4, 4, 1]).unwrap();
    model
}

/// Trains with Keras and with gradlet with these settings. Returns the data of the runs `train` and `validation` of both.
fn both(settings: &str, callback: impl Fn(&Path) -> TensorBoard) -> [[Told; 2]; 2] {
    let folder = tempfile::tempdir().unwrap();
    let [keras, ours] = ["keras", "gradlet"].map(|name| folder.path().join(name));
    python(SCRIPT, &[keras.to_str().unwrap(), settings]);
    let array = |name: &str| npy::read(&keras.join(format!("{name}.npy"))).unwrap().tensor(&gradlet::cpu()).unwrap();
    let weights: Vec<Tensor> = (0..6).map(|index| array(&index.to_string())).collect();
    let [x, y] = ["x", "y"].map(array);
    let half = |tensor: &Tensor| tensor.split(2, 0).unwrap().remove(0);
    let validation = (half(&x), half(&y));
    let fit = Fit::new()
        .batch_size(5)
        .epochs(3)
        .shuffle(false)
        .validation_data((&validation.0, &validation.1))
        .verbose(gradlet::train::Verbose::Silent);
    let model = model();
    model.set_weights(&weights).unwrap();
    model.fit((&x, &y), fit.callback(callback(&ours))).unwrap();
    [keras, ours].map(|folder| ["train", "validation"].map(|run| told(&folder.join(run))))
}

#[track_caller]
fn agree(settings: &str, callback: impl Fn(&Path) -> TensorBoard) -> [Told; 2] {
    let [keras, ours] = both(settings, callback);
    for (mut wanted, mut got) in keras.into_iter().zip(ours.clone()) {
        // The JSON of Keras's layers, and a tag that only gradlet writes.
        wanted.remove("keras");
        got.retain(|tag, _| !tag.contains("images_per_second"));
        assert_eq!(got.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{settings}");
        for (tag, (plugin, steps, numbers)) in &wanted {
            let found = &got[tag];
            assert_eq!((&found.0, &found.1), (plugin, steps), "{settings}: {tag}");
            let near = |(one, other): (&f64, &f64)| tag.ends_with("per_second") || (one - other).abs() <= 1e-4 * (1.0 + other.abs());
            assert!(found.2.len() == numbers.len() && found.2.iter().zip(numbers).all(near), "{settings}: {tag}: {found:?}, {numbers:?}");
        }
    }
    ours
}

#[test]
#[ignore = "needs TensorBoard: `cargo xtask test TensorBoard` installs and runs it"]
fn tags_steps_and_losses_are_keras_s() {
    let [train, validation] = agree("{}", |folder| TensorBoard::new(folder));
    assert_eq!((train.len(), validation.len()), (3, 4));
    let settings = r#"{"histogram_freq": 1, "write_images": true, "write_steps_per_second": true, "update_freq": "batch"}"#;
    let [train, _] = agree(settings, |folder| {
        TensorBoard::new(folder).histogram_freq(1).write_images(true).write_steps_per_second(true).update_freq(UpdateFreq::Batch)
    });
    assert_eq!(train["sequential/conv2d/kernel/histogram"].1, [0, 1, 2]);
    let of = |tag: &str| train[tag].2.clone();
    let ratio = of("batch_images_per_second")[0] / of("batch_steps_per_second")[0];
    assert!((4.9..5.2).contains(&ratio), "batches are of 5: {ratio}");
    agree(r#"{"histogram_freq": 2, "update_freq": 2, "write_graph": false}"#, |folder| {
        TensorBoard::new(folder).histogram_freq(2).update_freq(UpdateFreq::Batches(2)).write_graph(false)
    });
}

/// Trains for three epochs of four steps with these settings of the callback. Returns the run `train`.
fn trained(run_eagerly: bool, settings: impl Fn(TensorBoard) -> TensorBoard) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let mut model = model();
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    model.compile(Compile::new(Adam::new(0.01), loss).run_eagerly(run_eagerly)).unwrap();
    let x = Tensor::random_uniform(model.scope(), &[20, 4, 4, 1]).unwrap();
    let y = Tensor::full(&gradlet::cpu(), 1i32, &[20]).unwrap();
    let fit = Fit::new().batch_size(5).epochs(3).verbose(gradlet::train::Verbose::Silent);
    model.fit((&x, &y), fit.callback(settings(TensorBoard::new(folder.path())))).unwrap();
    assert!(!folder.path().join("validation").exists(), "nothing was validated");
    Run::read(&folder.path().join("train")).unwrap()
}

#[test]
fn the_graph_is_that_of_the_training_step() {
    let run = trained(false, |board| board);
    let graph = GraphDef::decode(run.graph.unwrap()).unwrap();
    let names: Vec<&str> = graph.node.iter().map(|node| node.name.as_str()).collect();
    for part in ["sequential/conv2d/", "sequential/dense/", "sequential/dense_1/"] {
        assert!(names.iter().any(|name| name.starts_with(part)), "{names:?}");
    }
    assert!(trained(false, |board| board.write_graph(false)).graph.is_none());
    assert!(trained(true, |board| board).graph.is_none());
}

#[test]
fn points_of_epochs_do_not_depend_on_those_of_steps() {
    let run = trained(false, |board| board.update_freq(UpdateFreq::Batches(3)));
    let steps = |tag: &str| run.series(tag).unwrap().points.iter().map(|point| point.step).collect::<Vec<_>>();
    assert_eq!((steps("batch_loss"), steps("epoch_loss")), (vec![3, 6, 9, 12], vec![0, 1, 2]));
}
