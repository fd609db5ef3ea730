//! Post-training quantization: the integers of TensorFlow's converter, the bits of a device, and the accuracy of a trained network.

use gradlet::function::ConcreteFunction;
use gradlet::io::npy;
use gradlet::quantize::{Calibration, Options};
use gradlet::tflite::{Model, Signature, TensorInfo};
use gradlet::{DType, Eager, Quantization, Tensor, portable_cpu};
use std::path::Path;

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

#[test]
fn quantized_models_are_those_of_tensorflow() {
    check(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/quantize")));
}
