//! Tests of the training of imported models.

use super::*;
use crate::artifact::describe::Description;
use crate::train;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Layer, Module};
use gradlet_core::optimizers::Sgd;
use gradlet_core::{Program, Session, ops};
use std::sync::Arc;

/// Returns a sample like the input of a model.
fn picture(model: &Model, batch: u32) -> Tensor {
    let dims: Vec<u32> = model.inputs()[0].dims.iter().map(|dim| dim.unwrap_or(batch)).collect();
    let pixels: Vec<f32> = (0..dims.iter().product::<u32>()).map(|at| (at as f32 * 0.7).sin()).collect();
    new(&pixels, &dims)
}

fn open(name: &str) -> Model {
    Model::open(sample(name)).unwrap()
}

/// Trains a model for 20 steps, eagerly and as an artifact. Both must have losses with the same bits, which fall. Returns
/// the first loss.
fn falls(model: &Model, batch: u32, labels: &[i32]) -> f32 {
    const RATE: f32 = 0.05;
    let scope = Eager::new(&portable_cpu());
    let layer = Arc::new(model.trainable(&scope).unwrap());
    let all = [batch, labels.len() as u32 / batch];
    let (x, y) = (picture(model, batch), new(labels, if all[1] == 1 { &all[..1] } else { &all }));
    let infer = |model: &Model| model.call(&scope, &[&x]).unwrap().remove(0).to_vec::<f32>().unwrap();
    let before = infer(model);
    assert_eq!(infer(layer.model()), before);

    let bytes = layer.export(batch, RATE).unwrap();
    let program = Program::load(&bytes, ops::KERNELS, &["infer", "train", "set_learning_rate"]).unwrap();
    let [infers, trains, sets] = ["infer", "train", "set_learning_rate"].map(|name| program.signature(name).unwrap());
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena).unwrap();
    session.set_input(trains, 0, &x.to_vec::<f32>().unwrap()).unwrap();

    let step = train::step(&layer, Arc::new(Sgd::new(RATE)), layer.trainable_variables());
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss = step.call(&scope, (x.clone(), y.clone())).unwrap().item::<f32>().unwrap();
        session.set_input(trains, 0, &x.to_vec::<f32>().unwrap()).unwrap();
        session.set_input(trains, 1, labels).unwrap();
        session.run(trains).unwrap();
        assert_eq!(session.output::<f32>(trains, 0).unwrap(), [loss]);
        losses.push(loss);
    }
    assert!(losses[19] < 0.95 * losses[0], "{losses:?}");
    let after = infer(layer.model());
    assert_ne!(after, before);
    session.set_input(infers, 0, &x.to_vec::<f32>().unwrap()).unwrap();
    session.run(infers).unwrap();
    assert_eq!(session.output::<f32>(infers, 0).unwrap(), after);

    // The model of the file is as it was. A step with the rate 0 changes nothing.
    assert_eq!(infer(model), before);
    session.set_input(sets, 0, &[0.0f32]).unwrap();
    session.run(sets).unwrap();
    session.set_input(trains, 0, &x.to_vec::<f32>().unwrap()).unwrap();
    session.set_input(trains, 1, labels).unwrap();
    session.run(trains).unwrap();
    session.set_input(infers, 0, &x.to_vec::<f32>().unwrap()).unwrap();
    session.run(infers).unwrap();
    assert_eq!(session.output::<f32>(infers, 0).unwrap(), after);
    losses[0]
}

#[test]
fn the_loss_of_an_imported_model_falls() {
    let loss = falls(&open("digits_cnn_float32.tflite"), 1, &[4]);
    let model = Model::open(sample("digits_cnn_float32.tflite")).unwrap();
    let probability = model.call(&Eager::new(&portable_cpu()), &[&picture(&model, 1)]).unwrap()[0].to_vec::<f32>().unwrap()[4];
    assert!((loss + probability.ln()).abs() < 1e-4, "{loss} {probability}");
    falls(&open("mlp_float32.tflite"), 1, &[1]);
    falls(&open("cnn_float16.tflite"), 1, &[2]);
    falls(&open("dynamic_batch_float32.tflite"), 3, &[0, 1, 1]);
    falls(&open("residual_float32.tflite"), 1, &[2]);
    falls(&open("lstm_fused_float32.tflite"), 1, &[0, 1, 1, 0, 0, 1]);
    falls(&open("lstm_unrolled_float32.tflite"), 1, &[0]);
}

/// Eleven steps are a loop, whose gradients have the same bits eagerly and in the artifact.
#[test]
fn a_loop_is_trained() {
    let (x, list) = (new(&[0.0f32; 22], &[1, 11, 2]), |seed: f32| (0..9).map(|at| (at as f32 * seed).sin()).collect::<Vec<f32>>());
    let (of_input, recurrent, bias) = (new(&list(0.9)[..6], &[3, 2]), new(&list(1.7), &[3, 3]), new(&list(0.3)[..3], &[3]));
    let state = new(&[0.0f32; 3], &[1, 3]);
    let mut operands = vec![Input(&x)];
    for weight in [&of_input, &recurrent] {
        operands.extend([Constant(weight), Constant(weight), Constant(weight), Constant(weight)]);
    }
    operands.extend([Missing, Missing, Missing, Constant(&bias), Constant(&bias), Constant(&bias), Constant(&bias)]);
    operands.extend([Missing, Missing, Constant(&state), Constant(&state)]);
    let options = Some((71, vec![(0, Field::I8(4))]));
    let bytes = single("UNIDIRECTIONAL_SEQUENCE_LSTM", &operands, options, &[DType::F32], None);
    falls(&Model::from_bytes(bytes).unwrap(), 1, &[1; 11]);
}

#[test]
fn weights_are_variables_with_the_names_of_their_tensors() {
    let scope = Eager::new(&portable_cpu());
    let layer = Model::open(sample("digits_cnn_float32.tflite")).unwrap().trainable(&scope).unwrap();
    let named = layer.named_variables();
    let dims = |name: &str| {
        let (_, variable) = named.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("{name}: {named:?}"));
        variable.tensor_type().unwrap().shape.dims().to_vec()
    };
    // The filters have the order of the kernels: no step moves their axes.
    assert_eq!(dims("sequential_7_1/conv2d_7_1/convolution"), [3, 3, 1, 8]);
    assert_eq!(dims("sequential_7_1/dense_13_1/MatMul"), [588, 10]);
    assert_eq!(dims("sequential_7_1/depthwise_conv2d_1_1/depthwise"), [3, 3, 8, 1]);
    assert_eq!((named.len(), &*named[0].0), (8, "sequential_7_1/conv2d_7_1/convolution"));
    let bytes = layer.export(1, 0.01).unwrap();
    let described = Description::read(&bytes).unwrap();
    let train = described.signatures.iter().find(|signature| signature.name == "train").unwrap();
    assert!(train.walk().iter().all(|(_, one)| one.op != "transpose" && one.op != "reshape"), "{:?}", train.walk());
    assert!(described.variables.iter().any(|variable| variable.name == "sequential_7_1/dense_13_1/MatMul" && variable.trainable));

    // A frozen weight stays as it is.
    let (_, frozen) = &named[0];
    frozen.set_trainable(false);
    let trained = Description::read(&layer.export(1, 0.01).unwrap()).unwrap();
    let flags: Vec<bool> = trained.variables.iter().map(|variable| variable.trainable).collect();
    assert_eq!(flags.iter().filter(|trainable| !**trainable).count(), 3, "the weight, and the optimizer's: {flags:?}");
}

/// The variables stay on the device on which they were created, and the artifact is traced there.
#[test]
fn weights_on_another_device_are_exported() {
    let model = Model::open(sample("digits_cnn_float32.tflite")).unwrap();
    let portable = model.trainable(&Eager::new(&portable_cpu())).unwrap().export(1, 0.01).unwrap();
    let scope = Eager::new(&crate::compute::devices::cpu());
    let layer = model.trainable(&scope).unwrap();
    assert!(*layer.export(1, 0.01).unwrap() == *portable);
    let x = Tensor::from_bytes(&crate::compute::devices::cpu(), picture(&model, 1).tensor_type(), &picture(&model, 1).bytes().unwrap())
        .unwrap();
    let (compiled, eager) = (layer.model().function().unwrap(), layer.model());
    let (one, other) = (eager.call(&scope, &[&x]).unwrap().remove(0), compiled.call(&scope, vec![x]).unwrap().remove(0));
    let far = one.sub(&other).unwrap().abs().unwrap().max(&[0, 1], false).unwrap().item::<f32>().unwrap();
    assert!(far < 1e-6, "{far}");
}

#[test]
fn a_trained_model_streams() {
    let scope = Eager::new(&portable_cpu());
    let model = Model::open(sample("mlp_float32.tflite")).unwrap();
    let layer = model.trainable(&scope).unwrap();
    let y = layer.apply(&scope, &picture(&model, 1)).unwrap();
    let step = layer.model().streaming(1).unwrap();
    let frames = picture(&model, 1).split(40, 1).unwrap();
    let results: Vec<Tensor> = frames.iter().map(|frame| step.call(&scope, &[frame]).unwrap().remove(0)).collect();
    assert_eq!(results[39].to_vec::<f32>().unwrap(), y.softmax(-1).unwrap().to_vec::<f32>().unwrap());
}

#[test]
fn models_that_cannot_be_trained_are_refused() {
    let scope = Eager::new(&portable_cpu());
    let trainable = |name: &str| Model::open(sample(name)).unwrap().trainable(&scope);
    let reason = |name: &str| trainable(name).err().unwrap().to_string();
    for name in ["digits_cnn_int8.tflite", "digits_cnn_dynamic_int8.tflite"] {
        let reason = reason(name);
        assert!(reason.contains("cannot be trained: train the float model, from which this one was quantized:\n"), "{reason}");
        assert!(reason.contains("(FULLY_CONNECTED): its tensor \"") && reason.contains(" is INT8 with a scale"), "{reason}");
    }
    let two = reason("two_in_two_out_float32.tflite");
    assert_eq!(two, "a model with 2 inputs and 2 outputs cannot be trained: it must have one each");
    assert_eq!(reason("op_ceil_float32.tflite"), "the model has no weights that can be trained");
    let sigmoid = trainable("conv1d_float32.tflite").unwrap().export(1, 0.01).err().unwrap().to_string();
    assert_eq!(sigmoid, "the model ends with a sigmoid, but the loss of a classifier needs a softmax or logits");
}
