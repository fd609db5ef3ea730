extern crate std;
use super::*;
use crate::base::quantization::Quantization;
use crate::ops;
use crate::tensor::variable::Variable;
use std::format;

type Body = fn(&dyn Scope, Tensor) -> Result<Tensor>;

fn device() -> Device {
    ops::portable_cpu()
}

/// Returns `count` tensors of pseudo-random numbers from -2 to 2.
fn samples(dims: &[u32], count: u32) -> Vec<Tensor> {
    let elements = dims.iter().product::<u32>();
    let number = |at: u32| (at.wrapping_mul(2_654_435_761) >> 16) as f32 / 16384.0 - 2.0;
    let of = |sample| (0..elements).map(|at| number(at + sample * elements)).collect::<Vec<f32>>();
    (0..count).map(|sample| Tensor::new(&device(), &of(sample), dims).unwrap()).collect()
}

/// Calibrates a function on samples.
fn calibrated<F: Fn(&dyn Scope, Tensor) -> Result<Tensor> + Send + Sync + 'static>(body: F, samples: &[Tensor]) -> Calibration {
    let function = Function::new(body).named("f");
    let mut calibration = Calibration::new(&function.concrete(&Eager::new(&device()), &samples[0]).unwrap()).unwrap();
    samples.iter().for_each(|sample| calibration.observe(core::slice::from_ref(sample)).unwrap());
    calibration
}

const INT8: Options = Options { input: DType::I8, output: DType::I8, float_ops: false };

/// Returns the scales and zero points of the argument and the result.
fn interface(function: &ConcreteFunction) -> (Quantization, Quantization) {
    let graph = function.traced();
    let of = |id: usize| graph.values[id].quantization.as_ref().unwrap().single().unwrap();
    (of(graph.inputs[0]), of(graph.outputs[0]))
}

/// Returns the names of the ops of the quantized function, and the greatest error of its results as a part of their range.
fn quality(body: Body, samples: &[Tensor]) -> (Vec<&'static str>, f32) {
    let scope = Eager::new(&device());
    let quantized = calibrated(body, samples).quantize(&scope, &INT8).unwrap();
    let (x, y) = interface(&quantized);
    let (mut worst, mut range) = (0.0f32, Range::EMPTY);
    for sample in samples {
        let want = body(&scope, sample.clone()).unwrap();
        range = range.or(Range::of(&want).unwrap());
        let got = quantized.run(&[sample.quantize(DType::I8, x).unwrap()]).unwrap().remove(0);
        let errors = got.dequantize(y).unwrap().sub(&want).unwrap().abs().unwrap().to_vec::<f32>().unwrap();
        worst = errors.into_iter().fold(worst, |worst, error| if error > worst { error } else { worst });
    }
    (quantized.traced().nodes.iter().map(|node| node.op.def.name).collect(), worst / (range.quantization().scale * 255.0))
}

/// Asserts that a function becomes these ops, and that its results are near.
fn check(body: Body, dims: &[u32], want: &[&str]) {
    let (got, error) = quality(body, &samples(dims, 20));
    assert_eq!(got, want);
    assert!(error < 0.03, "{want:?}: the error is {error} of the range");
}

#[test]
fn functions_of_one_tensor_are_one_table() {
    check(|_, x| x.relu(), &[3, 4], &["lookup"]);
    check(|_, x| x.gelu(false), &[3, 4], &["lookup"]);
    check(|_, x| x.mul(&x.sigmoid()?), &[3, 4], &["lookup"]);
    check(|_, x| x.like(2.5)?.sub(&x)?.mul_scalar(0.3)?.exp()?.tanh(), &[3, 4], &["lookup"]);
    check(|_, x| x.less(&x.like(0.5)?)?.select(&x.neg()?, &x.like(1.0)?), &[3, 4], &["lookup"]);
    // A view of x with another scale has no cost.
    check(|_, x| x.mul_scalar(3.0)?.reshape(&[4, 3]), &[3, 4], &["reshape", "reshape"]);
    check(|_, x| x.mul_scalar(3.0), &[3, 4], &["reshape"]);
    check(|_, x| x.tanh()?.sigmoid()?.reshape(&[2, 6]), &[3, 4], &["lookup", "reshape"]);
}

#[test]
fn ops_have_their_forms() {
    check(|_, x| x.add(&x.mean(&[1], true)?), &[3, 4], &["quantized_mean", "quantized_add"]);
    check(|_, x| x.sub(&x.max(&[0], true)?)?.relu(), &[3, 4], &["max", "quantized_add"]);
    check(|_, x| x.mul(&Tensor::new(&x.device()?, &[0.5f32, 2.0, -1.0, 0.1], &[4])?), &[3, 4], &["quantized_mul"]);
    check(|_, x| x.div(&Tensor::new(&device(), &[0.5f32, 2.0, -1.0, 0.1], &[4])?), &[3, 4], &["quantized_mul"]);
    check(|_, x| x.softmax(-1), &[3, 4], &["quantized_softmax"]);
    check(|_, x| x.sum(&[0], false), &[3, 4], &["quantized_mean"]);
    check(|_, x| x.pad(&[(1, 0), (0, 2)], ops::pad::PadMode::Constant(1.0)), &[3, 4], &["pad"]);
    check(|_, x| x.matmul(&x.transpose(&[1, 0])?), &[3, 4], &["transpose", "quantized_matmul"]);
    check(|_, x| Tensor::concat(&[x.clone(), x.reshape(&[3, 4])?.slice(&[0, 1], &[-1, 2])?], 1), &[3, 4], &["strided_slice", "concat"]);
    check(|_, x| Tensor::concat(&[x.clone(), x.mul_scalar(-3.0)?], 1), &[3, 4], &["lookup", "concat"]);
    check(|_, x| Tensor::concat(&[x.clone(), x.softmax(-1)?], 1), &[3, 4], &["quantized_softmax", "requantize", "concat"]);
    let odd: Body = |_, x| {
        let odd: Vec<i32> = (0..12).map(|at| at % 2).collect();
        let odd = Tensor::new(&device(), &odd, &[3, 4])?.equal(&Tensor::scalar(&device(), 1i32))?;
        odd.select(&x, &x.mean(&[0], true)?)
    };
    check(odd, &[3, 4], &["quantized_mean", "requantize", "requantize", "select"]);
    check(|_, x| x.minimum(&x.max(&[1], true)?.neg()?), &[3, 4], &["max", "requantize", "lookup", "requantize", "minimum"]);
    check(|_, x| x.gather(&Tensor::new(&device(), &[2, 0], &[2])?, 0)?.min(&[1], false), &[3, 4], &["gather", "min"]);
    check(|_, x| samples(&[2, 3], 1)[0].matmul(&x)?.matmul_with(&x, false, true), &[3, 4], &["quantized_matmul", "quantized_matmul"]);
    check(|_, x| x.dense(&samples(&[4, 2], 1)[0], None)?.reshape(&[2]), &[1, 1, 4], &["quantized_dense", "reshape"]);
    check(|_, x| x.dense(&samples(&[4, 2], 1)[0], None), &[4], &["quantized_dense"]);
    check(|_, x| x.maximum(&x.mean(&[1], true)?), &[3, 4], &["quantized_mean", "requantize", "requantize", "maximum"]);
    let pooled: Body =
        |_, x| x.max_pool2d([2, 2], [2, 2], ops::conv2d::Padding::Same)?.avg_pool2d([2, 2], [1, 1], ops::conv2d::Padding::Valid);
    check(pooled, &[1, 4, 6, 2], &["max_pool2d", "quantized_avg_pool2d"]);
}

#[test]
fn normalization_becomes_part_of_the_layer_before_it() {
    let kernel = |dims: &[u32]| samples(dims, 1).remove(0);
    let body = move |_: &dyn Scope, x: Tensor| {
        let [scale, offset] = [[0.5f32, -2.0], [3.0, 0.25]].map(|numbers| Tensor::new(&device(), &numbers, &[2]));
        let y = x.conv2d(&kernel(&[2, 2, 1, 2]), None, &Default::default())?.sub(&offset?)?.mul(&scale?)?.relu6()?;
        let y = y.depthwise_conv2d(&kernel(&[1, 2, 2, 1]), None, &Default::default())?;
        let y = y.like(1.0)?.sub(&y)?.mul_scalar(0.25)?;
        let y = y.reshape_open(&[1, -1])?;
        let features = y.dims()[1];
        y.matmul(&kernel(&[features, 3]))?.add(&Tensor::new(&device(), &[1.0f32, 2.0, 3.0], &[3])?)
    };
    let samples = samples(&[1, 5, 4, 1], 20);
    let calibration = calibrated(body, &samples);
    let scope = Eager::new(&device());
    let quantized = calibration.quantize(&scope, &Options { float_ops: false, ..Options::default() }).unwrap();
    let ops: Vec<&str> = quantized.traced().nodes.iter().map(|node| node.op.def.name).collect();
    assert_eq!(ops, ["quantize", "quantized_conv2d", "quantized_depthwise_conv2d", "reshape", "quantized_dense", "dequantize"]);
    for sample in &samples {
        let want = body(&scope, sample.clone()).unwrap().to_vec::<f32>().unwrap();
        let got = quantized.run(core::slice::from_ref(sample)).unwrap()[0].to_vec::<f32>().unwrap();
        assert!(want.iter().zip(&got).all(|(want, got)| (want - got).abs() < 1.0), "{want:?} {got:?}");
    }
}

/// Returns the error of a call that must fail.
fn refused<T>(result: Result<T>) -> std::string::String {
    format!("{}", result.err().expect("this must fail"))
}

#[test]
fn ops_without_a_form_stay_in_float() {
    let samples = samples(&[3, 4], 5);
    let scope = Eager::new(&device());
    let calibration = calibrated(|_: &dyn Scope, x: Tensor| x.log_softmax(-1)?.neg()?.add(&x), &samples);
    assert_eq!(calibration.float_ops(), ["log_softmax (LogSoftmax: f32[3,4])"]);
    let function = calibration.quantize(&scope, &Options::default()).unwrap();
    let ops: Vec<&str> = function.traced().nodes.iter().map(|node| node.op.def.name).collect();
    assert_eq!(ops, ["log_softmax", "quantize", "lookup", "quantize", "quantized_add", "dequantize"]);
    let strict = Options { float_ops: false, ..Options::default() };
    let text = "ops without an int8 form:\n  log_softmax (LogSoftmax: f32[3,4])";
    assert_eq!(refused(calibration.quantize(&scope, &strict)), text);
}

#[test]
fn comparisons_of_floats_are_listed() {
    let samples = samples(&[3, 4], 5);
    let body = |_: &dyn Scope, x: Tensor| x.less(&x.like(0.5)?)?.select(&x.mean(&[0], true)?.broadcast_to(&[3, 4])?, &x.neg()?);
    let calibration = calibrated(body, &samples);
    assert_eq!(calibration.float_ops(), ["less (Less: bool[3,4])"]);
    assert!(refused(calibration.quantize(&Eager::new(&device()), &INT8)).contains("less"));
    // A function between a float argument and a float result is a table, as between integers.
    let gelu = calibrated(|_: &dyn Scope, x: Tensor| x.gelu(false), &samples);
    let function = gelu.quantize(&Eager::new(&device()), &Options { float_ops: false, ..Options::default() }).unwrap();
    let ops: Vec<&str> = function.traced().nodes.iter().map(|node| node.op.def.name).collect();
    assert_eq!(ops, ["quantize", "lookup", "dequantize"]);
}

#[test]
fn masked_scores_keep_their_scale() {
    fn mask() -> Tensor {
        let seen = |at: usize| if at % 4 > at / 4 { f32::from_bits(0xff00_0000) } else { 0.0 };
        Tensor::new(&device(), &core::array::from_fn::<f32, 12, _>(seen), &[3, 4]).unwrap()
    }
    let added: Body = |_, x| x.add(&x.mean(&[0], true)?)?.add(&mask())?.softmax(-1);
    let subtracted: Body = |_, x| x.add(&x.mean(&[0], true)?)?.sub(&mask().neg()?)?.softmax(-1);
    let selected: Body = |_, x| {
        let seen = mask().equal(&Tensor::scalar(&device(), 0.0f32))?;
        seen.select(&x.add(&x.mean(&[0], true)?)?, &x.like(f64::NEG_INFINITY)?.broadcast_to(&[3, 4])?)?.softmax(-1)
    };
    for body in [added, subtracted, selected] {
        let (ops, error) = quality(body, &samples(&[3, 4], 20));
        assert!(error < 0.05, "{ops:?}: the error is {error} of the range");
    }
}

#[test]
fn paddings_keep_their_value() {
    let far: Body = |_, x| x.mul(&x)?.pad(&[(1, 0), (0, 2)], ops::pad::PadMode::Constant(-9.0));
    check(far, &[3, 4], &["lookup", "requantize", "pad"]);
    let around = ops::conv2d::Padding::Explicit { top: 1, bottom: 1, left: 1, right: 1 };
    let calibration = calibrated(move |_: &dyn Scope, x: Tensor| x.max_pool2d([3, 3], [2, 2], around), &samples(&[1, 5, 5, 2], 5));
    let function = calibration.quantize(&Eager::new(&device()), &INT8).unwrap();
    let ops: Vec<&str> = function.traced().nodes.iter().map(|node| node.op.def.name).collect();
    assert_eq!(ops, ["pad", "max_pool2d"]);
    let (x, y) = interface(&function);
    for sample in samples(&[1, 5, 5, 2], 5) {
        let integers = sample.quantize(DType::I8, x).unwrap();
        let want = integers.dequantize(x).unwrap().max_pool2d([3, 3], [2, 2], around).unwrap().to_vec::<f32>();
        assert_eq!(function.run(&[integers]).unwrap()[0].dequantize(y).unwrap().to_vec::<f32>(), want);
    }
}

#[test]
fn effects_and_reciprocals_are_named() {
    let samples = samples(&[3, 4], 5);
    let kernel = Tensor::full(&device(), 0.5f32, &[4, 2]).unwrap();
    let printed = move |scope: &dyn Scope, x: Tensor| {
        let y = x.dense(&kernel, None)?;
        y.check_numerics("y")?;
        let _ = scope;
        y.relu()
    };
    let calibration = calibrated(printed, &samples);
    assert!(calibration.quantize(&Eager::new(&device()), &Options::default()).is_ok());
    let zeros = [Tensor::full(&device(), 0.0f32, &[2]).unwrap()];
    let tiny = |_: &dyn Scope, x: Tensor| x.div(&Tensor::new(&device(), &[1e-40f32, 1.0], &[2])?);
    let text = refused(calibrated(tiny, &zeros).quantize(&Eager::new(&device()), &Options::default()));
    assert!(text.starts_with("cannot quantize div (RealDiv: f32[2]): an element is inf"), "{text}");
}

#[test]
fn integers_pass_through() {
    let images: Vec<Tensor> = (0..4).map(|at| Tensor::new(&device(), &[0u8, 255, 10 + at, 128], &[1, 4]).unwrap()).collect();
    let scope = Eager::new(&device());
    let body = |_: &dyn Scope, x: Tensor| {
        let reals = x.cast(DType::F32)?.mul_scalar(1.0 / 127.5)?.add(&Tensor::scalar(&device(), -1.0f32))?;
        Tensor::concat(&[reals.argmax(-1, DType::I32)?.reshape(&[1])?, x.cast(DType::I32)?.reshape(&[4])?], 0)
    };
    let calibration = calibrated(body, &images);
    let function = calibration.quantize(&scope, &Options { input: DType::I8, ..Options::default() }).unwrap();
    assert_eq!(function.inputs()[0].dtype, DType::U8);
    let ops: Vec<&str> = function.traced().nodes.iter().map(|node| node.op.def.name).collect();
    assert_eq!(ops[..2], ["lookup", "argmax"]);
    for image in &images {
        let want = body(&scope, image.clone()).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(function.run(core::slice::from_ref(image)).unwrap()[0].to_vec::<i32>().unwrap(), want);
    }
}

#[test]
fn the_interface_can_be_int8() {
    let (scope, samples) = (Eager::new(&device()), samples(&[3, 4], 5));
    let calibration = calibrated(|_: &dyn Scope, x: Tensor| x.add(&x.mean(&[0], true)?), &samples);
    let float = calibration.quantize(&scope, &Options::default()).unwrap();
    let int8 = calibration.quantize(&scope, &INT8).unwrap();
    let (x, y) = interface(&int8);
    for sample in &samples {
        let integers = int8.run(&[sample.quantize(DType::I8, x).unwrap()]).unwrap().remove(0);
        let reals = float.run(core::slice::from_ref(sample)).unwrap().remove(0);
        assert_eq!(integers.dequantize(y).unwrap().to_vec::<f32>(), reals.to_vec::<f32>());
    }
}

#[test]
fn absurd_calls_are_refused() {
    let (scope, samples) = (Eager::new(&device()), samples(&[2, 2], 2));
    let function = Function::new(|_: &dyn Scope, x: Tensor| x.log()).named("f");
    let mut calibration = Calibration::new(&function.concrete(&scope, &samples[0]).unwrap()).unwrap();
    let text = "f has no ranges yet: observe samples first";
    assert_eq!(refused(calibration.quantize(&scope, &Options::default())), text);
    let other = Tensor::scalar(&device(), 1.0f32);
    assert_eq!(refused(calibration.observe(&[other.clone(), other])), "sample 0 has (f32[], f32[]), but f takes (f32[2,2])");
    let zeros = samples[0].zeros_like().unwrap();
    let text = "cannot quantize log (Log: f32[2,2]): an element is -inf, which has no int8";
    assert_eq!(refused(calibration.observe(&[zeros])), text);
    let infinite = Tensor::full(&device(), f32::INFINITY, &[2, 2]).unwrap();
    assert_eq!(refused(calibration.observe(&[infinite])), "cannot quantize an input: an element is inf, which has no int8");
    calibration.observe(&[Tensor::full(&device(), 1.0f32, &[2, 2]).unwrap()]).unwrap();
    let text = "the arguments and results of a quantized function are f32 or i8, not u8";
    assert_eq!(refused(calibration.quantize(&scope, &Options { input: DType::U8, ..Options::default() })), text);

    let variable = Variable::new(&scope, "total", &samples[0]).unwrap();
    let counts = Function::new(move |scope: &dyn Scope, x: Tensor| {
        scope.assign(&variable, &scope.read(&variable)?.add(&x)?)?;
        Ok(x)
    });
    let counts = counts.named("counts").concrete(&scope, &samples[0]).unwrap();
    let text = "counts changes the variable total: only a function that changes none can be frozen";
    assert_eq!(refused(Calibration::new(&counts)), text);
}

#[test]
fn variables_are_constants() {
    let scope = Eager::new(&device());
    let kernel = Variable::new(&scope, "kernel", &samples(&[4, 2], 1)[0]).unwrap();
    let read = kernel.clone();
    let inputs = samples(&[3, 4], 5);
    let calibration = calibrated(move |scope: &dyn Scope, x: Tensor| x.matmul(&scope.read(&read)?), &inputs);
    let function = calibration.quantize(&scope, &Options::default()).unwrap();
    let before = function.run(&inputs[..1]).unwrap()[0].to_vec::<f32>().unwrap();
    scope.assign(&kernel, &samples(&[4, 2], 1)[0].neg().unwrap()).unwrap();
    assert_eq!(function.run(&inputs[..1]).unwrap()[0].to_vec::<f32>().unwrap(), before);
    assert!(function.variables().is_empty());
}
