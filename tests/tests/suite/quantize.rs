//! Post-training quantization: the integers of TensorFlow's converter, the bits of a device, and the accuracy of a trained network.

use gradlet::datasets::digits::{self, Digits};
use gradlet::function::ConcreteFunction;
use gradlet::io::npy;
use gradlet::layers::{BatchNormalization, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, ReLU, Sequential};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::quantize::{Calibration, Options};
use gradlet::tflite::{Model, Signature, TensorInfo};
use gradlet::train;
use gradlet::{DType, Eager, Function, Program, Quantization, Result, Scope, Session, Shape, Tensor, ops, portable_cpu};
use gradlet_core::device::AlignedBytes;
use std::path::Path;
use std::sync::Arc;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/quantize");
const INT8: Options = Options { input: DType::I8, output: DType::I8, float_ops: false };

/// Models to which TensorFlow's converter gives the same integers.
const EQUAL: [&str; 7] = ["dense", "functions", "convolutions", "dilated", "normalized", "pools", "sequence"];
/// Models with other integers: TensorFlow 2.21 takes the range of a sum for that of the operand whose memory the sum reuses, changes
/// scales once more before a concatenation, and computes the parts of a normalization in another order.
const NEAR: [&str; 4] = ["residual", "branches", "attention", "recurrent"];

/// Returns the calibration of the float model `name` in a folder, and its samples.
fn calibrated(folder: &Path, name: &str) -> (Calibration, Vec<Vec<Tensor>>) {
    let model = Model::open(folder.join(format!("{name}_float32.tflite"))).unwrap();
    let mut calibration = model.calibration(1).unwrap();
    let inputs = calibration.inputs();
    let column = |at: usize| {
        let all = npy::read(&folder.join(format!("{name}_{at}.npy"))).unwrap().tensor(&portable_cpu()).unwrap();
        all.unstack(0).unwrap()
    };
    let columns: Vec<Vec<Tensor>> = (0..inputs.len()).map(column).collect();
    let samples: Vec<Vec<Tensor>> =
        (0..columns[0].len()).map(|sample| columns.iter().map(|column| column[sample].clone()).collect()).collect();
    samples.iter().for_each(|sample| calibration.observe(sample).unwrap());
    (calibration, samples)
}

/// Compares the quantized models of a folder with TensorFlow's. The integers must be equal, or the squared errors at most a quarter
/// greater.
pub fn check(folder: &Path) {
    let scope = Eager::new(&portable_cpu());
    for name in EQUAL.into_iter().chain(NEAR) {
        let (calibration, samples) = calibrated(folder, name);
        let open = |kind: &str| Model::open(folder.join(format!("{name}_{kind}.tflite"))).unwrap();
        let (float, theirs) = (open("float32"), open("int8"));
        let ours = calibration.quantize(&scope, &INT8).unwrap();
        let [Signature { inputs, outputs, .. }] = &theirs.signatures()[..] else { panic!("{name} has several signatures") };
        let scales = |list: &[TensorInfo]| list.iter().map(|one| one.quantization.as_ref()?.single()).collect::<Option<Vec<_>>>().unwrap();
        let (input_scales, output_scales) = (scales(inputs), scales(outputs));
        let [float, theirs] = [float, theirs].map(|model| model.signature_function("serving_default").unwrap());
        let (mut our_error, mut their_error) = (0.0, 0.0);
        for sample in &samples {
            let integers: Vec<Tensor> = sample.iter().zip(&input_scales).map(|(x, &scale)| x.quantize(DType::I8, scale).unwrap()).collect();
            let want = float.call(&scope, sample.clone()).unwrap();
            let got = [ours.run(&integers).unwrap(), theirs.call(&scope, integers).unwrap()];
            if EQUAL.contains(&name) {
                let [ours, theirs] = &got;
                let same = ours.iter().zip(theirs).all(|(ours, theirs)| ours.to_vec::<i8>() == theirs.to_vec::<i8>());
                assert!(same, "{name}: {ours:?}, not {theirs:?}");
            }
            our_error += error(&got[0], &want, &result_scales(&ours));
            their_error += error(&got[1], &want, &output_scales);
        }
        assert!(our_error <= 1.25 * their_error, "{name}: the squared error is {our_error}, but TensorFlow's {their_error}");
    }
}

/// Returns the scales of a function's results.
fn result_scales(function: &ConcreteFunction) -> Vec<Quantization> {
    let graph = function.traced();
    graph.outputs.iter().map(|&id| graph.values[id].quantization.as_ref().unwrap().single().unwrap()).collect()
}

/// Returns the sum of the squared errors of int8 results.
fn error(got: &[Tensor], want: &[Tensor], scales: &[Quantization]) -> f64 {
    let of = |((got, want), &scale): ((&Tensor, &Tensor), &Quantization)| {
        let reals = got.dequantize(scale).unwrap().to_vec::<f32>().unwrap();
        reals.iter().zip(want.to_vec::<f32>().unwrap()).map(|(got, want)| f64::from(got - want).powi(2)).sum::<f64>()
    };
    got.iter().zip(want).zip(scales).map(of).sum()
}

/// A device runs the artifacts with packed filters, a host the functions with plain ones.
#[test]
fn a_device_computes_the_bits_of_the_host() {
    let (folder, scope) = (Path::new(FIXTURES), Eager::new(&portable_cpu()));
    for name in EQUAL.into_iter().chain(NEAR) {
        let (calibration, samples) = calibrated(folder, name);
        let model = Model::open(folder.join(format!("{name}_float32.tflite"))).unwrap();
        for options in [Options::default(), INT8] {
            let bytes = model.export_quantized(&calibration, &options).unwrap();
            let function = calibration.quantize(&scope, &options).unwrap();
            let program = Program::load(&bytes, ops::KERNELS, &["infer"]).unwrap();
            let (mut arena, infer) = (AlignedBytes::zeroed(program.arena_bytes()), program.signature("infer").unwrap());
            let mut session = Session::new(&program, &mut arena).unwrap();
            for sample in &samples {
                let argument = |(at, x): (usize, &Tensor)| match session.input_quantization(infer, at).unwrap() {
                    Some(quantization) => x.quantize(DType::I8, quantization).unwrap(),
                    None => x.clone(),
                };
                let arguments: Vec<Tensor> = sample.iter().enumerate().map(argument).collect();
                for (at, x) in arguments.iter().enumerate() {
                    session.input_bytes_mut(infer, at).unwrap().copy_from_slice(&x.bytes().unwrap());
                }
                session.run(infer).unwrap();
                for (at, want) in function.run(&arguments).unwrap().iter().enumerate() {
                    assert_eq!(session.output_bytes(infer, at).unwrap(), &*want.bytes().unwrap(), "{name}, output {at}");
                }
            }
        }
    }
}

/// A network that has learnt digits keeps its accuracy within half a point.
#[test]
fn digits_in_int8() -> Result<()> {
    let (train, test) = digits::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k"))).unwrap();
    let scope = Eager::with_seed(&portable_cpu(), 4);
    let images = |digits: &Digits, from: usize, count: usize| {
        let pixels = digits.images[from * 784..(from + count) * 784].iter().map(|&pixel| f32::from(pixel) / 255.0).collect::<Vec<f32>>();
        Tensor::new(&scope.device(), &pixels, &[count as u32, 28, 28, 1])
    };
    let normalized = |layers: Sequential, filters, stride| {
        let layers = layers.with(Conv2D::new(filters, [3, 3]).strides([stride, stride]));
        layers.with(BatchNormalization::default().momentum(0.8)).with(ReLU::default())
    };
    let layers = normalized(Sequential::new(), 6, 2).with(MaxPool2D::new([2, 2]));
    let model = Arc::new(normalized(layers, 12, 1).with(Flatten).with(Dense::new(10)));
    model.build(&scope, &Shape::new(&[1, 28, 28, 1])?)?;
    let adam = Arc::new(Adam::new(0.01));
    adam.build(&scope, &*model)?;
    let step = train::step(&model, adam, model.trainable_variables());
    for batch in 0..60 {
        let from = batch % 50 * 32;
        let labels: Vec<i32> = train.labels[from..from + 32].iter().map(|&label| label.into()).collect();
        let labels = Tensor::new(&scope.device(), &labels, &[32])?;
        step.call(&scope.with_training(true), (images(&train, from, 32)?, labels))?;
    }

    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x)).named("infer");
    let float = infer.concrete(&scope, &images(&test, 0, 100)?)?;
    let mut calibration = Calibration::new(&float)?;
    calibration.observe(&[images(&train, 0, 100)?])?;
    let int8 = calibration.quantize(&scope, &Options { float_ops: false, ..Options::default() })?;
    let ops: Vec<&str> = int8.traced().nodes.iter().map(|node| node.op.def.name).collect();
    let layers = ["quantized_conv2d", "max_pool2d", "quantized_conv2d", "reshape", "quantized_dense"];
    assert_eq!(ops, [&["quantize"], &layers[..], &["dequantize"]].concat());
    let accuracy = |function: &ConcreteFunction| -> Result<f64> {
        let mut right = 0;
        for from in (0..1000).step_by(100) {
            let classes = function.run(&[images(&test, from, 100)?])?[0].argmax(-1, DType::I32)?.to_vec::<i32>()?;
            right += classes.iter().zip(&test.labels[from..]).filter(|(class, label)| **class == i32::from(**label)).count();
        }
        Ok(right as f64 / 10.0)
    };
    let (float, int8) = (accuracy(&float)?, accuracy(&int8)?);
    assert!(float > 85.0 && (float - int8).abs() <= 0.5, "{float} % in float, {int8} % in int8");
    Ok(())
}

#[test]
fn quantized_models_are_those_of_tensorflow() {
    check(Path::new(FIXTURES));
}

/// A product with a positive number changes only the scale, so the result is a view of the argument.
#[test]
fn a_changed_scale_costs_nothing() -> Result<()> {
    let scope = Eager::new(&portable_cpu());
    let x = Tensor::new(&scope.device(), &[-1.0f32, 0.5, 1.0, 0.25], &[4])?;
    let triple = Function::new(|_: &dyn Scope, x: Tensor| x.mul_scalar(3.0));
    let mut calibration = Calibration::new(&*triple.concrete(&scope, &x)?)?;
    calibration.observe(&[x])?;
    let mut artifact = gradlet::Artifact::new();
    artifact.signature("infer", &*calibration.quantize(&scope, &INT8)?, &["x"], &["y"])?;
    let bytes = artifact.to_bytes()?;
    let program = Program::load(&bytes, ops::KERNELS, &["infer"])?;
    let (mut arena, infer) = (AlignedBytes::zeroed(program.arena_bytes()), program.signature("infer")?);
    let mut session = Session::new(&program, &mut arena)?;
    session.input_mut::<i8>(infer, 0)?.copy_from_slice(&[-128, 0, 5, 127]);
    session.run(infer)?;
    assert_eq!(session.output::<i8>(infer, 0)?, [-128, 0, 5, 127]);
    let scales = [session.input_quantization(infer, 0)?.unwrap(), session.output_quantization(infer, 0)?.unwrap()];
    assert!((scales[1].scale / scales[0].scale - 3.0).abs() < 1e-5 && scales[0].zero_point == scales[1].zero_point, "{scales:?}");
    Ok(())
}
