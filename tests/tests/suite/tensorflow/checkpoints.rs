//! Checkpoints of models and optimizers. TensorFlow continues the training that gradlet saved, and gradlet continues TensorFlow's.

use super::python;
use gradlet::checkpoint::Checkpoint;
use gradlet::checkpoint::bundle::BundleReader;
use gradlet::layers::*;
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::schedules::ExponentialDecay;
use gradlet::optimizers::*;
use gradlet::{DType, Differentiate, Eager, Result, Scope, Tensor, Variable};
use std::collections::BTreeMap;
use std::path::Path;

/// A layer whose fields are other layers, like a subclassed model in Keras. Optimizers refer to variables by number, and Keras numbers a
/// layer's own variables first.
#[derive(Module)]
struct Subclassed {
    scale: Variable,
    flatten: Flatten,
    dense1: Dense,
    blocks: Vec<Dense>,
}

impl Layer for Subclassed {
    fn name(&self) -> &str {
        "subclassed"
    }

    fn build(&self, scope: &dyn Scope, _: &Shape) -> Result<()> {
        self.scale.create(scope, &Tensor::full(&scope.device(), 1.5f32, &[3])?)
    }

    fn ensure_built(&self, scope: &dyn Scope, x: &Tensor) -> Result<()> {
        self.build(scope, x.shape())
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let x = self.dense1.apply(scope, &self.flatten.apply(scope, x)?)?;
        let x = self.blocks.iter().try_fold(x, |x, block| block.apply(scope, &x))?;
        x.mul(&scope.read(&self.scale)?)
    }
}

use gradlet::Shape;

/// A model with a shortcut that is created before the layer to which it is added. The creation order therefore differs from the
/// order of Keras's operations.
fn shortcut() -> Functional {
    let mut model = Functional::new("shortcut");
    let x = model.layer("wide", Dense::new(6).activation(Activation::Tanh), Functional::INPUT);
    let short = model.layer("short", Dense::new(5), Functional::INPUT);
    let y = model.layer("second", Dense::new(5), x);
    let z = model.layer("third", Dense::new(5), y);
    let sum = model.merge("sum", Add, &[z, short]);
    model.layer("out", Dense::new(3), sum);
    model
}

/// A model and an optimizer, each in Python and in Rust.
struct Case {
    name: &'static str,
    model: (&'static str, fn() -> Box<dyn Layer>),
    optimizer: (&'static str, fn() -> Box<dyn Optimizer>),
    /// Dimensions of an input. If `indices` is true, the elements are integers below 7.
    input: &'static [u32],
    indices: bool,
}

macro_rules! case {
    ($name:literal, $input:expr, $python:literal, $model:expr, $python_optimizer:literal, $optimizer:expr $(, $indices:literal)?) => {
        Case {
            name: $name,
            model: ($python, || Box::new($model)),
            optimizer: ($python_optimizer, || Box::new($optimizer)),
            input: $input,
            indices: false $(|| $indices)?,
        }
    };
}

fn cases() -> Vec<Case> {
    vec![
        case!(
            "mlp_adam",
            &[5],
            // No bias, because the gradient of a bias before a normalization is only rounding noise. Adam would scale it up.
            "Sequential([L.Dense(7, activation='relu', use_bias=False), L.BatchNormalization(), L.Dense(3)])",
            Sequential::new()
                .with(Dense::new(7).activation(Activation::Relu).use_bias(false))
                .with(BatchNormalization::default())
                .with(Dense::new(3)),
            "O.Adam(0.01)",
            Adam::new(0.01)
        ),
        case!(
            "cnn_momentum",
            &[8, 8, 2],
            "Sequential([L.Conv2D(3, 3, activation='relu'), L.MaxPooling2D(2), L.DepthwiseConv2D(2), L.Flatten(), L.Dense(3)])",
            Sequential::new()
                .with(Conv2D::new(3, [3, 3]).activation(Activation::Relu))
                .with(MaxPooling2D::new([2, 2]))
                .with(DepthwiseConv2D::new([2, 2]))
                .with(Flatten)
                .with(Dense::new(3)),
            "O.SGD(0.05, momentum=0.9)",
            Sgd::new(0.05).momentum(0.9)
        ),
        case!(
            "words_sgd",
            &[6],
            "Sequential([L.Embedding(7, 4), L.LSTM(5), L.LayerNormalization(), L.Dense(3)])",
            Sequential::new().with(Embedding::new(7, 4)).with(LSTM::new(5)).with(LayerNormalization::default()).with(Dense::new(3)),
            // SGD, because TensorFlow's gradient of an embedding consists of rows. Other optimizers sum the squares of
            // duplicate rows one by one.
            "O.SGD(0.1)",
            Sgd::new(0.1),
            true
        ),
        case!(
            "frozen_adam",
            &[6, 6, 2],
            "frozen(Sequential([L.Conv2D(3, 3), L.BatchNormalization(), L.Flatten(), L.Dense(5, activation='tanh'), L.Dense(3)]))",
            frozen(
                Sequential::new()
                    .with(Conv2D::new(3, [3, 3]))
                    .with(BatchNormalization::default())
                    .with(Flatten)
                    .with(Dense::new(5).activation(Activation::Tanh))
                    .with(Dense::new(3))
            ),
            "O.Adam(0.01)",
            Adam::new(0.01)
        ),
        case!("shortcut_amsgrad", &[4], "shortcut()", shortcut(), "O.Adam(0.01, amsgrad=True)", Adam::new(0.01).amsgrad(true)),
        case!(
            "subclassed_nadam",
            &[2, 3],
            "Subclassed()",
            Subclassed {
                flatten: Flatten,
                dense1: Dense::new(4),
                blocks: vec![Dense::new(3), Dense::new(3)],
                scale: Variable::deferred("scale")
            },
            "O.Nadam(0.01)",
            Nadam::new(0.01)
        ),
        case!(
            "nested_schedule",
            &[4],
            "Sequential([Sequential([L.Dense(4), L.Dense(4)]), L.Dense(3)])",
            Sequential::new().with(Sequential::new().with(Dense::new(4)).with(Dense::new(4))).with(Dense::new(3)),
            "O.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9))",
            Sgd::new(ExponentialDecay::new(0.1, 1, 0.9))
        ),
        case!(
            "gru_adamax",
            &[5, 2],
            "Sequential([L.GRU(4), L.Dense(3)])",
            Sequential::new().with(GRU::new(4)).with(Dense::new(3)),
            "O.Adamax(0.01)",
            Adamax::new(0.01)
        ),
        case!(
            "conv1d_rmsprop",
            &[5, 2],
            "Sequential([L.Conv1D(4, 2), L.Flatten(), L.Dense(3)])",
            Sequential::new().with(Conv1D::new(4, 2)).with(Flatten).with(Dense::new(3)),
            "O.RMSprop(0.01, momentum=0.5, centered=True)",
            RMSprop::new(0.01).momentum(0.5).centered(true)
        ),
        case!("adagrad", &[4], "Sequential([L.Dense(3)])", Sequential::new().with(Dense::new(3)), "O.Adagrad(0.1)", Adagrad::new(0.1)),
        case!("adadelta", &[4], "Sequential([L.Dense(3)])", Sequential::new().with(Dense::new(3)), "O.Adadelta(0.5)", Adadelta::new(0.5)),
        case!("adamw", &[4], "Sequential([L.Dense(3)])", Sequential::new().with(Dense::new(3)), "O.AdamW(0.01)", AdamW::new(0.01)),
        case!(
            "averages",
            &[4],
            "Sequential([L.Dense(3)])",
            Sequential::new().with(Dense::new(3)),
            "O.Adam(0.01, use_ema=True)",
            Adam::new(0.01).use_ema(true)
        ),
    ]
}

/// Freezes all layers but the last.
fn frozen(model: Sequential) -> Sequential {
    model.layers().rev().skip(1).for_each(|(_, layer)| layer.set_trainable(false));
    model
}

const PRELUDE: &str = r#"
import json, sys, numpy as np
import tensorflow as tf, keras
from keras import layers as L, optimizers as O
from keras import Sequential
folder = sys.argv[1]
keras.utils.set_random_seed(1)
def frozen(model):
    for layer in model.layers[:-1]: layer.trainable = False
    return model
def shortcut():
    i = keras.Input((4,))
    short = L.Dense(5)
    x = L.Dense(6, activation='tanh')(i)
    z = L.Dense(5)(L.Dense(5)(x))
    return keras.Model(i, L.Dense(3)(L.Add()([z, short(i)])))
class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.flatten, self.dense1, self.blocks = L.Flatten(), L.Dense(4), [L.Dense(3), L.Dense(3)]
        self.scale = self.add_weight(shape=(3,), name='scale', initializer=keras.initializers.Constant(1.5))
    def call(self, x):
        x = self.dense1(self.flatten(x))
        for block in self.blocks: x = block(x)
        return x * self.scale
def step(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, model(x, training=True))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
for case in json.load(open(folder + '/cases.json')):
    at = folder + '/' + case['name'] + '/'
    x = np.fromfile(at + 'x', np.float32).reshape(case['dims'])
    x = x.astype(np.int32) if case['indices'] else x
    y = np.fromfile(at + 'y', np.int32)
    new = lambda: (eval(case['model']), eval(case['optimizer']))
    # gradlet's, with everything built; and once more, with nothing built before it is restored.
    model, optimizer = new()
    model(x); optimizer.build(model.trainable_variables)
    tf.train.Checkpoint(model=model, optimizer=optimizer).restore(at + 'gradlet-1').assert_consumed()
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(at + 'echo')
    step(model, optimizer, x, y)
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(at + 'gradlet_next')
    # TensorFlow's own.
    model, optimizer = new()
    for _ in range(3): step(model, optimizer, x, y)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    checkpoint.save(at + 'tensorflow')
    step(model, optimizer, x, y)
    checkpoint.write(at + 'tensorflow_next')
"#;

/// Returns the data of a case: six random samples, with labels of three classes.
fn data(case: &Case, scope: &Eager) -> Result<(Tensor, Tensor)> {
    const SAMPLES: u32 = 6;
    let dims = [&[SAMPLES], case.input].concat();
    let x = Tensor::random_uniform(scope, &dims)?;
    let x = if case.indices { x.mul_scalar(7.0)?.cast(DType::I32)? } else { x.add_scalar(-0.5)? };
    Ok((x, Tensor::new(&scope.device(), &[0i32, 1, 2, 2, 1, 0], &[SAMPLES])?))
}

fn step(scope: &Eager, model: &dyn Layer, optimizer: &dyn Optimizer, [x, y]: [&Tensor; 2]) -> Result<()> {
    let tape = scope.with_training(true).tape();
    let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(y, &model.apply(&tape, x)?)?;
    optimizer.apply_gradients(scope, &tape.gradient(&loss, &model.trainable_variables())?)
}

/// Returns all values of a checkpoint except for the save counter and the object graph.
fn values(prefix: &Path) -> BTreeMap<String, Vec<u8>> {
    let reader = BundleReader::open(prefix).unwrap();
    let keys: Vec<String> = reader.entries().map(|(key, _)| key.to_string()).collect();
    let values = keys.into_iter().filter(|key| !key.starts_with("save_counter") && !key.starts_with('_'));
    values.map(|key| (key.clone(), reader.bytes(&key).unwrap())).collect()
}

/// Checks that two checkpoints have the same values, bit for bit.
#[track_caller]
fn equal(name: &str, one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>) {
    assert!(one.keys().eq(other.keys()), "{name}: {:?}\n{:?}", one.keys(), other.keys());
    let differs = one.iter().find(|(key, bytes)| **bytes != other[*key]);
    assert!(differs.is_none(), "{name}: {differs:?}");
}

/// Checks that two checkpoints have the same values up to rounding.
#[track_caller]
fn near(name: &str, one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>) {
    assert!(one.keys().eq(other.keys()), "{name}: {:?}\n{:?}", one.keys(), other.keys());
    for (key, bytes) in one {
        if key.contains("_iterations") {
            assert_eq!(bytes, &other[key], "{name}: {key}");
            continue;
        }
        let [one, other] = [bytes, &other[key]].map(|bytes| bytemuck::pod_collect_to_vec::<u8, f32>(bytes));
        let largest = one.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let far = one.iter().zip(&other).find(|(one, other)| (**one - **other).abs() > 2e-6 + 2e-5 * largest);
        assert!(one.len() == other.len() && far.is_none(), "{name}: {key}: {far:?}");
    }
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn models_and_optimizers_go_on_on_the_other_side() {
    let folder = tempfile::tempdir().unwrap();
    let scope = Eager::with_seed(&gradlet::cpu(), 7);
    let mut told = Vec::new();
    for case in cases() {
        let at = folder.path().join(case.name);
        std::fs::create_dir(&at).unwrap();
        let (x, y) = data(&case, &scope).unwrap();
        std::fs::write(at.join("x"), x.cast(DType::F32).unwrap().bytes().unwrap()).unwrap();
        std::fs::write(at.join("y"), y.bytes().unwrap()).unwrap();
        let (model, optimizer) = ((case.model.1)(), (case.optimizer.1)());
        (0..3).try_for_each(|_| step(&scope, &*model, &*optimizer, [&x, &y])).unwrap();
        Checkpoint::new().with("model", &model).with("optimizer", &optimizer).save(at.join("gradlet")).unwrap();
        told.push(serde_json::json!({
            "name": case.name, "model": case.model.0, "optimizer": case.optimizer.0, "dims": x.dims(), "indices": case.indices,
        }));
    }
    std::fs::write(folder.path().join("cases.json"), serde_json::to_string(&told).unwrap()).unwrap();
    python(PRELUDE, &[folder.path().to_str().unwrap()]);
    for case in cases() {
        let at = folder.path().join(case.name);
        let ours = values(&at.join("gradlet-1"));
        equal(&format!("{}: what TensorFlow restored", case.name), &ours, &values(&at.join("echo")));
        let dims = [&[6], case.input].concat();
        let read = |name: &str| std::fs::read(at.join(name)).unwrap();
        let x = Tensor::new(&scope.device(), &bytemuck::pod_collect_to_vec::<u8, f32>(&read("x")), &dims).unwrap();
        let x = if case.indices { x.cast(DType::I32).unwrap() } else { x };
        let y = Tensor::new(&scope.device(), &bytemuck::pod_collect_to_vec::<u8, i32>(&read("y")), &[6]).unwrap();

        for (from, next) in [("gradlet-1", "gradlet_next"), ("tensorflow-1", "tensorflow_next")] {
            // Restore before the variables are built, and after.
            for built in [false, true] {
                let (model, optimizer) = ((case.model.1)(), (case.optimizer.1)());
                let checkpoint = Checkpoint::new().with("model", &model).with("optimizer", &optimizer);
                if built {
                    step(&scope, &*model, &*optimizer, [&x, &y]).unwrap();
                }
                let status = checkpoint.restore(at.join(from)).unwrap();
                model.apply(&scope, &x).unwrap();
                optimizer.build(&scope, &model).unwrap();
                status.assert_consumed().unwrap();
                let echo = checkpoint.write(at.join("own_echo")).unwrap();
                equal(&format!("{}: {from}, built: {built}", case.name), &values(&echo), &values(&at.join(from)));
                step(&scope, &*model, &*optimizer, [&x, &y]).unwrap();
                let own_next = checkpoint.write(at.join("own_next")).unwrap();
                near(&format!("{} from {from}", case.name), &values(&own_next), &values(&at.join(next)));
            }
        }
    }
}

/// A module with all kinds of fields that a `tf.Module` may have.
#[derive(Module)]
struct Holder {
    list: Vec<Variable>,
    pair: (Variable, Variable),
    map: BTreeMap<String, Variable>,
    shared: Variable,
    child: Child,
    epoch: std::sync::atomic::AtomicI64,
}

#[derive(Module)]
struct Child {
    again: Variable,
    own: Variable,
}

const MODULES: &str = r#"
import sys
import tensorflow as tf
folder = sys.argv[1]
zero = lambda shape, dtype: tf.Variable(tf.zeros(shape, dtype))
m = tf.Module()
types = tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int32, tf.int64, tf.bool, tf.int16
m.list = [zero((2, 2), t) for t in types]
m.pair = (zero((), tf.float32), zero((0, 3), tf.float32))
m.map = {'plain': zero((1,), tf.float32), 'a/b': zero((1,), tf.float32), 'dot.ted': zero((1,), tf.float32), 'ключ': zero((1,), tf.float32)}
m.shared = zero((3,), tf.int32)
m.child = tf.Module()
m.child.again, m.child.own, m.epoch = m.shared, zero((1,), tf.int64), tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(module=m, root_step=tf.Variable(0.0))
checkpoint.restore(folder + '/gradlet-2').assert_consumed()
assert int(checkpoint.save_counter) == 2 and int(m.epoch) == 77
print(checkpoint.save(folder + '/tensorflow'))
"#;

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn modules_of_all_element_types_arrive_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let scope = Eager::with_seed(&gradlet::cpu(), 3);
    let new = || {
        let one = |dtype: DType, dims: &[u32]| {
            let value = Tensor::random_uniform(&scope, dims).unwrap().mul_scalar(100.0).unwrap().cast(dtype).unwrap();
            Variable::new(&scope, "v", &value).unwrap()
        };
        let shared = one(DType::I32, &[3]);
        Holder {
            list: DType::ALL.into_iter().map(|dtype| one(dtype, &[2, 2])).collect(),
            pair: (one(DType::F32, &[]), one(DType::F32, &[0, 3])),
            map: ["plain", "a/b", "dot.ted", "ключ"].map(|name| (name.to_string(), one(DType::F32, &[1]))).into(),
            child: Child { again: shared.clone(), own: one(DType::I64, &[1]) },
            shared,
            epoch: 77.into(),
        }
    };
    let (module, step) = (new(), std::cell::Cell::new(2.5f32));
    let checkpoint = Checkpoint::new().with("module", &module).with("root_step", &step);
    checkpoint.save(folder.path().join("gradlet")).unwrap();
    checkpoint.save(folder.path().join("gradlet")).unwrap();
    let saved = python(MODULES, &[folder.path().to_str().unwrap()]);
    assert!(saved.trim().ends_with("tensorflow-3"), "{saved}");
    equal("modules", &values(&folder.path().join("gradlet-2")), &values(&folder.path().join("tensorflow-3")));

    let (other, other_step) = (new(), std::cell::Cell::new(0.0f32));
    other.epoch.store(0, std::sync::atomic::Ordering::Relaxed);
    let restored = Checkpoint::new().with("module", &other).with("root_step", &other_step);
    restored.restore(folder.path().join("tensorflow-3")).unwrap().assert_consumed().unwrap();
    assert_eq!((other_step.get(), other.epoch.load(std::sync::atomic::Ordering::Relaxed)), (2.5, 77));
    assert_eq!(restored.save_counter().unwrap(), 3);
    for (one, other) in module.variables().iter().zip(other.variables()) {
        assert_eq!(scope.read(one).unwrap().bytes().unwrap(), scope.read(&other).unwrap().bytes().unwrap());
    }
}
