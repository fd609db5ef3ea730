//! Frozen layers: their variables keep their bits in every form of a model, and training follows changes of the flags.

use gradlet::applications::{self, ModelSpec};
use gradlet::artifact::describe::Description;
use gradlet::artifact::export;
use gradlet::checkpoint::Checkpoint;
use gradlet::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten, Functional, Layer, MaxPool2D, Module, Padding, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::optimizers::{Adam, Optimizer, Sgd};
use gradlet::train::{Compile, Fit, Model, Verbose};
use gradlet::{Differentiate, Eager, Function, Result, Scope, Tensor, Variable};
use std::sync::Arc;

fn scope() -> Eager {
    Eager::with_seed(&gradlet::cpu(), 7)
}

/// Returns the bytes of the variables.
fn bytes(variables: &[Variable]) -> Vec<Vec<u8>> {
    variables.iter().map(|variable| variable.write(|bytes| bytes.to_vec()).unwrap()).collect()
}

fn compile(optimizer: impl Optimizer + 'static) -> Compile {
    Compile::new(optimizer, SparseCategoricalCrossentropy::default().from_logits(true))
}

/// A backbone with statistics: two convolutions with batch normalizations.
fn cnn() -> Sequential {
    let conv = |filters| Conv2D::new(filters, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
    let model = Sequential::new().with(conv(4)).with(BatchNormalization::default()).with(MaxPool2D::new([2, 2])).with(conv(8));
    model.with(BatchNormalization::default()).with(Flatten)
}

fn mobile_net() -> Functional {
    let network = applications::mobilenet_v2().input_shape([32, 32, 3]).alpha(0.35).include_top(false);
    network.pooling(applications::Pooling::Avg).build(&scope()).unwrap()
}

/// Layers as fields of a user's type.
#[derive(Module)]
struct Own {
    backbone: Box<dyn Layer>,
    head: Dense,
}

impl Layer for Own {
    fn name(&self) -> &str {
        "own"
    }
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.head.apply(scope, &self.backbone.apply(scope, x)?)
    }
}

/// Trains a model for two epochs and asserts that the bits of `backbone` stay, and that the rest is trained.
fn stays_frozen(name: &str, layer: impl Layer + 'static, backbone: &dyn Module, input: &[u32]) {
    let scope = scope();
    let mut model = Model::new(&scope, layer);
    model.build(input).unwrap();
    model.compile(compile(Adam::new(0.01))).unwrap();
    let frozen = backbone.variables();
    let head: Vec<Variable> = model.variables().into_iter().filter(|variable| !frozen.contains(variable)).collect();
    assert_eq!((model.trainable_variables(), frozen.is_empty()), (head.clone(), false), "{name}");
    let (before, head_before) = (bytes(&frozen), bytes(&head));
    let x = Tensor::random_uniform(&scope, &[&[8], input].concat()).unwrap();
    let y = Tensor::new(&scope.device(), &[0i32, 1, 2, 0, 1, 2, 0, 1], &[8]).unwrap();
    let history = model.fit((&x, &y), Fit::new().epochs(2).batch_size(4).verbose(Verbose::Silent)).unwrap();
    assert!(history.get("loss").iter().all(|loss| loss.is_finite()), "{name}");
    assert!(bytes(&frozen) == before, "{name}: the backbone changed");
    assert!(bytes(&head).iter().zip(&head_before).all(|(after, before)| after != before), "{name}: the head was not trained");
    // The iteration, the learning rate, and two slots for each variable of the head.
    assert_eq!(model.optimizer().unwrap().variables().len(), 2 + 2 * head.len(), "{name}");
}

#[test]
fn a_frozen_backbone_keeps_its_bits() {
    // By value, frozen before it is built.
    let backbone = cnn();
    backbone.set_trainable(false);
    let model = backbone.with(Dense::new(3));
    let parts: Vec<Variable> = model.layers().rev().skip(1).flat_map(|(_, layer)| layer.variables()).collect();
    stays_frozen("by value", model, &parts, &[8, 8, 1]);
    // Shared and nested. The flag is set through another handle.
    let backbone = Arc::new(cnn());
    let nested = Sequential::new().with(Box::new(Sequential::new().with(backbone.clone())) as Box<dyn Layer>).with(Dense::new(3));
    backbone.set_trainable(false);
    stays_frozen("nested", Arc::new(nested), &backbone, &[8, 8, 1]);
    // In a user's type, with a frozen application.
    let backbone = Arc::new(mobile_net());
    let own = Own { backbone: Box::new(backbone.clone()), head: Dense::new(3) };
    own.backbone.set_trainable(false);
    stays_frozen("derived", own, &backbone, &[32, 32, 3]);
}

#[test]
fn a_restored_backbone_stays_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let (scope, path) = (scope(), folder.path().join("backbone"));
    let original = cnn();
    original.summary(&scope, &[8, 8, 1]).unwrap();
    Checkpoint::new().with("model", &original).write(&path).unwrap();
    let backbone = Arc::new(cnn());
    backbone.set_trainable(false);
    // The values arrive when the variables are created.
    Checkpoint::new().with("model", &backbone).read(&path).unwrap();
    stays_frozen("restored", Sequential::new().with(backbone.clone()).with(Dense::new(3)), &backbone, &[8, 8, 1]);
    assert!(bytes(&backbone.variables()) == bytes(&original.variables()));
}

#[test]
fn compiled_steps_follow_the_flags() {
    let scope = scope();
    let layer = Arc::new(Sequential::new().with(Dense::new(4)).with(BatchNormalization::default()).with(Dense::new(3)));
    let mut model = Model::new(&scope, layer.clone());
    model.build(&[5]).unwrap();
    model.compile(compile(Sgd::new(0.1))).unwrap();
    let (x, y) = (Tensor::random_uniform(&scope, &[6, 5]).unwrap(), Tensor::full(&scope.device(), 1i32, &[6]).unwrap());
    let changed = || {
        let before = bytes(&layer.variables());
        model.train_on_batch((&x, &y)).unwrap();
        let changed = bytes(&layer.variables()).iter().zip(&before).map(|(after, before)| after != before).collect::<Vec<_>>();
        // The bias before a normalization has no gradient, apart from rounding.
        [changed[0], changed[2], changed[4], changed[6]]
    };
    // Kernel, gamma, moving mean, last kernel.
    assert_eq!(changed(), [true, true, true, true]);
    layer.layer("batch_normalization").unwrap().set_trainable(false);
    assert_eq!(changed(), [true, false, false, true]);
    layer.set_trainable(false);
    assert_eq!(changed(), [false; 4]);
    layer.set_trainable(true);
    assert_eq!(changed(), [true, true, true, true]);
}

#[test]
fn an_optimizer_refuses_what_was_frozen_when_it_was_built() {
    let scope = scope();
    let layer = Arc::new(Sequential::new().with(Dense::new(4)).with(Dense::new(3)));
    layer.layer("dense").unwrap().set_trainable(false);
    let mut model = Model::new(&scope, layer.clone());
    model.compile(compile(Adam::new(0.1))).unwrap();
    let (x, y) = (Tensor::full(&scope.device(), 1.0f32, &[2, 5]).unwrap(), Tensor::full(&scope.device(), 1i32, &[2]).unwrap());
    model.train_on_batch((&x, &y)).unwrap();
    layer.set_trainable(true);
    let before = bytes(&layer.variables());
    let error = model.train_on_batch((&x, &y)).unwrap_err().to_string();
    assert!(error.contains("variable \"dense_kernel\"") && error.ends_with("after unfreezing layers create a new optimizer"), "{error}");
    assert!(bytes(&layer.variables()) == before);
    model.compile(compile(Adam::new(0.1))).unwrap();
    model.train_on_batch((&x, &y)).unwrap();
    assert!(bytes(&layer.variables()).iter().zip(&before).all(|(after, before)| after != before));
}

#[test]
fn a_head_is_trained_on_features_that_were_computed_once() {
    let scope = scope();
    let whole = Arc::new(applications::mobilenet_v2().input_shape([32, 32, 3]).alpha(0.35).classes(3).build(&scope).unwrap());
    let (features, head) = whole.cut("global_average_pooling2d").unwrap();
    let x = Tensor::random_uniform(&scope, &[6, 32, 32, 3]).unwrap();
    let computed = features.call(&scope, &x).unwrap();
    assert_eq!((computed.dims(), head.trainable_variables().len()), (&[6, 1280][..], 2));
    let before = bytes(&features.variables());
    let optimizer = Sgd::new(0.5);
    let step = |scope: &Eager| {
        let tape = scope.tape();
        let loss = head.call(&tape, &computed)?.softmax(-1)?.square()?.sum(&[], false)?;
        optimizer.apply_gradients(scope, &tape.gradient(&loss, &head.trainable_variables())?)
    };
    (0..3).try_for_each(|_| step(&scope)).unwrap();
    // The whole model has the trained head.
    assert_eq!(whole.call(&scope, &x).unwrap().to_vec::<f32>(), head.call(&scope, &computed).unwrap().to_vec::<f32>());
    assert!(bytes(&features.variables()) == before);
    let error = |name: &str| whole.cut(name).err().unwrap().to_string();
    assert_eq!(
        error("block_2_project_BN"),
        "a cut after \"block_2_project_BN\" is not possible, because layer \"block_2_add\" also uses the output of \"block_1_project_BN\""
    );
    assert!(error("predictions").ends_with("leaves nothing for the second part"));
    assert!(error("top").starts_with("there is no layer \"top\"; the model has Conv1, bn_Conv1, "));
}

#[test]
fn functions_trace_again_after_a_change() {
    let scope = scope();
    let layer = Arc::new(Dense::new(2));
    layer.build(&scope, &gradlet::Shape::new(&[1, 3]).unwrap()).unwrap();
    let called = layer.clone();
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let tape = scope.tape();
        let loss = called.call(&tape, &x)?.sum(&[], false)?;
        let gradients = tape.gradient(&loss, &called.variables())?;
        Ok(Tensor::scalar(&scope.device(), gradients.iter().filter(|(_, gradient)| gradient.is_some()).count() as i32))
    });
    let x = Tensor::full(&scope.device(), 1.0f32, &[1, 3]).unwrap();
    let found = || f.call(&scope, x.clone()).unwrap().item::<i32>().unwrap();
    assert_eq!(found(), 2);
    layer.variables()[0].set_trainable(false);
    assert_eq!(found(), 1);
    layer.set_trainable(true);
    assert_eq!((found(), f.traces()), (2, 1));
}

#[test]
fn frozen_variables_stay_in_flash() {
    let scope = scope();
    let spec: ModelSpec = "cnn".parse().unwrap();
    let model = Arc::new(spec.build(&scope).unwrap());
    let exported = |train: &[&str]| {
        let train = train.iter().map(|name| name.to_string()).collect();
        let options = export::Options { train, signatures: vec!["infer".into(), "train".into()], ..export::Options::default() };
        export::artifact(&scope, &model, &spec, &options)
    };
    let in_ram = |train: &[&str]| {
        let description = Description::read(&exported(train).unwrap()).unwrap();
        let model = description.variables.iter().filter(|variable| !variable.name.starts_with("sgd/"));
        let of =
            |variables: Vec<&gradlet::artifact::describe::VariableInfo>| variables.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        let (ram, flash): (Vec<_>, Vec<_>) = model.partition(|variable| !variable.assigned_by.is_empty());
        assert!(ram.iter().all(|variable| variable.trainable) && flash.iter().all(|variable| !variable.trainable));
        of(ram)
    };
    assert_eq!(in_ram(&[]).len(), 8);
    assert_eq!(in_ram(&["last:2"]), ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]);
    assert_eq!(in_ram(&["conv2d*", "dense_1"]).len(), 6);
    assert_eq!(in_ram(&["last:1"]), ["dense_1/kernel", "dense_1/bias"]);
    let error = |train: &str| exported(&[train]).err().unwrap().to_string();
    assert_eq!(error("last:5"), "\"last:5\" selects no layers: the number must be from 1 to 4");
    assert_eq!(error("flat*"), "no layer with variables has the name \"flat*\"; the model has conv2d, conv2d_1, dense, dense_1");
    assert!(model.trainable_variables().len() == 8, "the model itself is as before");
}
