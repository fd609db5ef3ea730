//! Tests of model checkpoints: the restored values, the time of the restore, and that a failed restore changes nothing.

use gradlet::checkpoint::Checkpoint;
use gradlet::checkpoint::bundle::data_path;
use gradlet::layers::{Activation, Add, Dense, Functional, Module, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::optimizers::Adam;
use gradlet::train::{Compile, Fit, Model};
use gradlet::{DType, Dataset, Eager, Scope, Tensor, Variable};
use std::cell::Cell;
use std::path::Path;

fn scope() -> Eager {
    Eager::with_seed(&gradlet::cpu(), 5)
}

fn variable(values: &[f32]) -> Variable {
    let scope = scope();
    Variable::new(&scope, "v", &Tensor::new(&scope.device(), values, &[values.len() as u32]).unwrap()).unwrap()
}

fn read(variable: &Variable) -> Vec<f32> {
    scope().read(variable).unwrap().to_vec().unwrap()
}

fn model() -> Model {
    let layers = Sequential::new().with(Dense::new(6).activation(Activation::Relu)).with(Dense::new(2));
    let mut model = Model::new(&scope(), layers);
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    model.compile(Compile::new(Adam::new(0.05), loss)).unwrap();
    model
}

fn data() -> (Tensor, Tensor) {
    let x = Tensor::random_uniform(&scope(), &[32, 2]).unwrap();
    let y = x.argmax(-1, DType::I32).unwrap();
    (x, y)
}

fn weights(model: &Model) -> Vec<Vec<u8>> {
    let optimizer = model.optimizer().unwrap().variables();
    let all = model.variables().into_iter().chain(optimizer);
    all.map(|variable| scope().read(&variable).unwrap().bytes().unwrap().to_vec()).collect()
}

#[test]
fn training_goes_on_as_if_it_had_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (x, y) = data();
    let fit = |model: &mut Model| model.fit((&x, &y), Fit::new().epochs(2).batch_size(8).shuffle(false)).map(|_| ()).unwrap();
    let mut first = model();
    fit(&mut first);
    // The checkpoint of a compiled model includes its optimizer, as in Keras.
    let prefix = Checkpoint::new().with("model", &first).save(folder.path().join("ckpt")).unwrap();
    fit(&mut first);

    for built in [false, true] {
        let mut second = model();
        if built {
            fit(&mut second);
        }
        Checkpoint::new().with("model", &second).restore(&prefix).unwrap();
        fit(&mut second);
        assert_eq!(weights(&first), weights(&second), "built before: {built}");
    }
}

#[test]
fn what_is_wrong_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ckpt");
    let (a, b) = (variable(&[1.0, 2.0]), variable(&[3.0]));
    Checkpoint::new().with("a", &a).with("b", &b).write(&prefix).unwrap();

    let (other, wide) = (variable(&[7.0, 8.0]), variable(&[9.0, 10.0]));
    let error = Checkpoint::new().with("a", &other).with("b", &wide).read(&prefix).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("\"b/.ATTRIBUTES/VARIABLE_VALUE\" is float32 [1], but b is float32 [2]"), "{error}");
    assert_eq!((read(&other), read(&wide)), (vec![7.0, 8.0], vec![9.0, 10.0]));

    let file = data_path(&prefix, 0, 1);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[9] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let narrow = variable(&[5.0]);
    let error = Checkpoint::new().with("a", &other).with("b", &narrow).read(&prefix).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("\"b/.ATTRIBUTES/VARIABLE_VALUE\""), "{error}");
    assert_eq!((read(&other), read(&narrow)), (vec![7.0, 8.0], vec![5.0]));
}

#[test]
fn a_place_holds_one_value() {
    #[derive(Module)]
    struct Twice {
        #[module(name = "x")]
        one: Variable,
        #[module(name = "x")]
        two: Variable,
    }
    let folder = tempfile::tempdir().unwrap();
    let twice = Twice { one: variable(&[1.0]), two: variable(&[2.0]) };
    let error = Checkpoint::new().with("t", &twice).write(folder.path().join("ckpt")).unwrap_err().to_string();
    assert!(error.contains("object \"t/x\"") && error.contains("two values"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn names_of_what_is_missing_and_left_over() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (variable(&[1.0]), variable(&[2.0]));
    let prefix = Checkpoint::new().with("a", &a).with("b", &b).save(folder.path().join("ckpt")).unwrap();
    let late = Variable::deferred("late");
    let extra = variable(&[3.0]);
    let checkpoint = Checkpoint::new().with("b", &late).with("extra", &extra);
    let status = checkpoint.restore(&prefix).unwrap();
    assert_eq!(status.left_over().unwrap(), ["(root).a", "(root).b"]);
    assert_eq!(status.missing().unwrap(), ["extra"]);
    late.create(&scope(), &Tensor::new(&gradlet::cpu(), &[0.0f32], &[1]).unwrap()).unwrap();
    assert_eq!(read(&late), [2.0]);
    assert_eq!(status.left_over().unwrap(), ["(root).a"]);
    assert!(status.assert_consumed().unwrap_err().to_string().contains("(root).a"));
    assert!(status.assert_existing_objects_matched().unwrap_err().to_string().contains("extra"));

    let wrong = Variable::deferred("wrong");
    let _ = Checkpoint::new().with("a", &wrong).restore(&prefix).unwrap();
    let two = Tensor::new(&gradlet::cpu(), &[0.0f32; 2], &[2]).unwrap();
    let error = wrong.create(&scope(), &two).unwrap_err().to_string();
    assert!(error.contains("float32 [1]") && error.contains("float32 [2]"), "{error}");
}

#[test]
fn checkpoints_by_names_are_restored_too() {
    #[derive(Module)]
    struct Scoped {
        w: Variable,
    }
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/checkpoint/saver_v1/g_v1_saver/model-5");
    let zeros = |dims: &[u32], dtype: DType| {
        let value = Tensor::full(&gradlet::cpu(), 0.0f32, dims).unwrap().cast(dtype).unwrap();
        Variable::new(&scope(), "v", &value).unwrap()
    };
    let (scoped, b, part) = (Scoped { w: zeros(&[2, 3], DType::F32) }, zeros(&[2], DType::F32), zeros(&[4, 2], DType::F32));
    let step = Cell::new(-1i64);
    let checkpoint = Checkpoint::new().with("scope", &scoped).with("b", &b).with("part", &part).with("global_step", &step);
    checkpoint.read(&fixture).unwrap().assert_consumed().unwrap();
    assert_eq!(step.get(), 5);
    assert!(read(&part).iter().chain(&read(&scoped.w)).any(|&value| value != 0.0));
}

#[test]
fn iterators_go_on_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::range(0..50).shuffle(16).batch(4).repeat();
    let mut iterator = dataset.iter();
    let checkpoint = Checkpoint::new().with("batches", iterator.tracked());
    iterator.nth(17);
    let prefix = checkpoint.save(folder.path().join("ckpt")).unwrap();
    let next = |iterator: &mut gradlet::data::Iter<Tensor>| -> Vec<Vec<i64>> {
        iterator.take(20).map(|batch| batch.unwrap().to_vec().unwrap()).collect()
    };
    let wanted = next(&mut iterator);
    checkpoint.restore(&prefix).unwrap();
    assert_eq!(next(&mut iterator), wanted);
    // This pipeline stands for the same program in another process.
    let mut other = Dataset::range(0..50).shuffle(16).batch(4).repeat().iter();
    Checkpoint::new().with("batches", other.tracked()).restore(&prefix).unwrap().assert_consumed().unwrap();
    assert_eq!(next(&mut other), wanted);

    let plain = Dataset::range(0..3).iter();
    assert!(Checkpoint::new().with("batches", plain.tracked()).restore(&prefix).is_err());
}

#[test]
fn operations_are_in_the_order_of_keras() {
    let mut model = Functional::new("shortcut");
    let wide = model.layer("wide", Dense::new(6), Functional::INPUT);
    let short = model.layer("short", Dense::new(5), Functional::INPUT);
    let _ = model.layer("unused", Dense::new(5), wide);
    let second = model.layer("second", Dense::new(5), wide);
    let sum = model.merge("sum", Add, &[second, short]);
    model.layer("out", Dense::new(3), sum);
    let kernels: Vec<String> = model.named_variables().into_iter().map(|(path, _)| path).filter(|path| path.ends_with("kernel")).collect();
    assert_eq!(kernels, ["wide/kernel", "second/kernel", "short/kernel", "out/kernel", "unused/kernel"]);
}

#[test]
fn a_graph_that_goes_round_ends() {
    use gradlet::checkpoint::OBJECT_GRAPH;
    use gradlet::checkpoint::bundle::BundleWriter;
    use gradlet::io::proto::TrackableObjectGraph;
    use gradlet::io::proto::trackable_object_graph::TrackableObject;
    use gradlet::io::proto::trackable_object_graph::trackable_object::ObjectReference;
    use prost::Message;
    let folder = tempfile::tempdir().unwrap();
    let child = |name: &str, node_id| ObjectReference { node_id, local_name: name.into() };
    let root = TrackableObject { children: vec![child("model", 1)], ..Default::default() };
    let model = TrackableObject { children: vec![child("_functional", 1)], ..Default::default() };
    let graph = TrackableObjectGraph { nodes: vec![root, model] };
    let prefix = folder.path().join("ckpt");
    let mut writer = BundleWriter::create(&prefix).unwrap();
    writer.strings(OBJECT_GRAPH, &gradlet::tensor::Strings::scalar(graph.encode_to_vec())).unwrap();
    writer.finish().unwrap();
    let mut model = Functional::new("model");
    model.layer("dense", Dense::new(1), Functional::INPUT);
    for object in [&model as &dyn Module, &Sequential::new().with(Dense::new(1))] {
        Checkpoint::new().with("model", object).read(&prefix).unwrap().assert_consumed().unwrap();
    }
}

#[test]
fn a_state_that_refuses_its_value_leaves_the_variables() {
    let folder = tempfile::tempdir().unwrap();
    let (a, wrong) = (variable(&[1.0]), Variable::deferred("wrong"));
    // Two words, like the position of a dataset without random stages, but with an invalid version.
    wrong.create(&scope(), &Tensor::new(&gradlet::cpu(), &[99i64, 0], &[2]).unwrap()).unwrap();
    let prefix = Checkpoint::new().with("a", &a).with("batches", &wrong).save(folder.path().join("ckpt")).unwrap();
    let (other, iterator) = (variable(&[7.0]), Dataset::range(0..3).iter());
    let checkpoint = Checkpoint::new().with("a", &other).with("batches", iterator.tracked());
    assert!(checkpoint.restore(&prefix).is_err());
    assert_eq!(read(&other), [7.0]);
}
