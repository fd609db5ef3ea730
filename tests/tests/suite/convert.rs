//! Functions of gradlet as files of TensorFlow Lite. The interpreter of TensorFlow runs the same files in `tensorflow/models.rs`.

use gradlet::applications;
use gradlet::function::ConcreteFunction;
use gradlet::io::npy::{self, Npy};
use gradlet::layers::{
    Activation, AveragePooling2D, BatchNormalization, Conv1D, Conv2D, Conv2DTranspose, Dense, DepthwiseConv2D, Embedding, Flatten, GRU,
    GlobalAveragePooling2D, LSTM, Layer, LayerNormalization, MaxPool2D, MultiHeadAttention, Padding, Padding1D, ReLU, Reshape, Sequential,
    Softmax, UpSampling2D,
};
use gradlet::ops::pad::PadMode;
use gradlet::ops::slicing::Index;
use gradlet::quantize::{Calibration, Options};
use gradlet::tflite::{Converter, Model};
use gradlet::{DType, Eager, Function, Result, Scope, Shape, Tensor, TensorType, control, portable_cpu};
use gradlet_tests::hiding::Hiding;
use std::path::Path;
use std::sync::Arc;

/// A function with the bits or the numbers that an interpreter must give.
struct Case {
    name: String,
    function: Arc<ConcreteFunction>,
    arguments: Vec<Tensor>,
}

/// Returns an argument of a type.
fn argument(kind: TensorType, seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761);
    let reals: Vec<f32> = (0..kind.shape.elements().unwrap())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    let reals = Tensor::new(&portable_cpu(), &reals, kind.shape.dims()).unwrap();
    match kind.dtype {
        DType::F32 => reals,
        DType::I8 => reals.mul_scalar(127.0).unwrap().cast(DType::I8).unwrap(),
        other => reals.abs().unwrap().mul_scalar(5.0).unwrap().cast(other).unwrap(),
    }
}

fn kind(dtype: DType, dims: &[u32]) -> TensorType {
    TensorType::new(dtype, Shape::new(dims).unwrap())
}

type Body = Box<dyn Fn(&dyn Scope, Tensor) -> Result<Vec<Tensor>> + Send + Sync>;

fn layers(model: impl Layer + Send + Sync + 'static) -> Body {
    Box::new(move |scope, x| Ok(vec![model.apply(scope, &x)?]))
}

fn ops(body: impl Fn(&dyn Scope, Tensor) -> Result<Vec<Tensor>> + Send + Sync + 'static) -> Body {
    Box::new(body)
}

/// Ops that move and choose elements.
fn moved(x: &Tensor) -> Result<Vec<Tensor>> {
    let backwards = Index::Slice { start: Some(-1), end: None, step: -2 };
    let (values, positions) = x.top_k(3)?;
    Ok(vec![
        x.index(&[Index::Slice { start: Some(1), end: None, step: 2 }, backwards][..])?,
        x.transpose(&[2, 0, 1])?.reverse(&[0])?,
        Tensor::concat(&[x.clone(), x.neg()?], 1)?,
        x.pad(&[(0, 0), (1, 2), (2, 0)], PadMode::Constant(1.5))?.gather(&Tensor::new(&x.device()?, &[3, 0], &[2])?, 1)?,
        x.less(&x.zeros_like()?)?.select(&x.exp()?, &x.like(2.0)?)?,
        values,
        positions,
        x.argmax(1, DType::I32)?,
        x.cumsum(1, true, true)?,
        x.broadcast_to(&[2, 4, 5, 6])?.sum(&[0, 2], true)?,
        x.clone(),
        x.index(&[Index::At(1), Index::At(-1), Index::At(2)][..])?,
        x.softmax(1)?,
        x.log_softmax(-1)?,
    ])
}

/// Functions of each element.
fn functions(x: &Tensor) -> Result<Vec<Tensor>> {
    let positive = x.abs()?.add_scalar(0.1)?;
    Ok(vec![
        x.gelu(false)?.add(&x.gelu(true)?)?,
        x.elu(1.0)?,
        x.mul_scalar(8.0)?.relu6()?,
        x.hard_silu()?,
        x.clip_by_value(-0.5, 0.5)?,
        positive.log()?.sqrt()?.add(&positive.rsqrt()?)?,
        x.sin()?.mul(&x.cos()?)?.floor()?.sub(&x.round()?)?,
        positive.pow(&x.like(1.5)?)?,
        x.sign()?.maximum(&x.tanh()?)?.minimum(&x.sigmoid()?)?,
        x.leaky_relu(0.3)?,
        x.mul_scalar(10.0)?.cast(DType::I32)?.floormod(&Tensor::scalar(&x.device()?, 3i32))?,
        x.silu()?.softmax(-1)?.argmin(-1, DType::I64)?,
        x.div(&x.like(0.3)?)?.floordiv(&positive)?,
        x.mul_scalar(90.0)?.cast(DType::I8)?.less(&x.cast(DType::I8)?)?,
        x.mul_scalar(90.0)?.cast(DType::I32)?.truncatediv(&Tensor::scalar(&x.device()?, 7i32))?,
    ])
}

/// A branch on the sum, and a loop that stops early.
fn controlled(scope: &dyn Scope, x: &Tensor) -> Result<Vec<Tensor>> {
    let sum = x.sum(&[], false)?;
    let chosen = control::cond(scope, &sum.less(&sum.zeros_like()?)?, || x.neg(), || x.add(x))?;
    let options = control::WhileOptions { max_iterations: Some(5) };
    let grown = control::while_loop(
        scope,
        options,
        (x.clone(), sum.zeros_like()?),
        |(_, count)| count.less(&count.like(9.0)?),
        |(y, count)| Ok((y.mul(x)?.add_scalar(0.5)?, count.add_scalar(1.0)?)),
    )?;
    // The next numbers of Fibonacci: a part of the state becomes another part as it is. The swapped integers are 8 bits wide.
    let (one, other, _, small, swapped) = control::while_loop(
        scope,
        control::WhileOptions::default(),
        (x.clone(), x.zeros_like()?, sum.zeros_like()?, x.cast(DType::I8)?, x.zeros_like()?.cast(DType::I8)?),
        |(_, _, count, _, _)| count.less(&count.like(6.0)?),
        |(one, other, count, small, swapped)| Ok((one.add(&other)?, one, count.add_scalar(1.0)?, swapped, small)),
    )?;
    Ok(vec![chosen, grown.0, grown.1, one, other, small.cast(DType::I32)?.add(&swapped.cast(DType::I32)?)?])
}

fn bodies(scope: &dyn Scope) -> Vec<(&'static str, TensorType, Body)> {
    let image = |side: u32, channels: u32| kind(DType::F32, &[1, side, side, channels]);
    let cnn = Sequential::new()
        .with(Conv2D::new(6, [3, 3]).padding(Padding::Same))
        .with(BatchNormalization::default())
        .with(ReLU::default())
        .with(MaxPool2D::new([2, 2]))
        .with(DepthwiseConv2D::new([3, 3]).strides([2, 2]).padding(Padding::Same))
        .with(ReLU::default().max_value(6.0))
        .with(AveragePooling2D::new([2, 2]))
        .with(Flatten)
        .with(Dense::new(12).activation(Activation::Gelu))
        .with(Dense::new(5))
        .with(Softmax::default());
    let decoder = Sequential::new()
        .with(Dense::new(18))
        .with(Reshape::new(&[3, 3, 2]))
        .with(Conv2DTranspose::new(4, [3, 3]).strides([2, 2]).padding(Padding::Same).activation(Activation::Relu))
        .with(UpSampling2D::new([2, 2]))
        .with(Conv2D::new(1, [3, 3]).dilation_rate([2, 2]).activation(Activation::Sigmoid));
    let sequence = Sequential::new()
        .with(Conv1D::new(8, 3).padding(Padding1D::Same).activation(Activation::Relu))
        .with(LSTM::new(6).return_sequences(true))
        .with(GRU::new(5))
        .with(Dense::new(3));
    let unrolled = Sequential::new().with(LSTM::new(6).unroll(true)).with(Dense::new(3));
    let (attention, normalization) = (MultiHeadAttention::new(2, 4), LayerNormalization::default());
    let words = Sequential::new().with(Embedding::new(5, 6)).with(GRU::new(4).unroll(true)).with(Dense::new(2));
    let resnet = applications::resnet8().input_shape([16, 16, 3]).classes(4).build(scope).unwrap();
    vec![
        ("cnn", image(12, 3), layers(cnn)),
        ("decoder", kind(DType::F32, &[2, 7]), layers(decoder)),
        ("sequence", kind(DType::F32, &[1, 14, 4]), layers(sequence)),
        ("unrolled", kind(DType::F32, &[1, 5, 4]), layers(unrolled)),
        ("words", kind(DType::I32, &[1, 6]), layers(words)),
        (
            "attention",
            kind(DType::F32, &[1, 6, 8]),
            ops(move |scope, x| Ok(vec![normalization.apply(scope, &attention.apply(scope, &x)?)?])),
        ),
        ("padded", image(7, 2), {
            let pool = GlobalAveragePooling2D::default();
            let conv = Conv2D::new(3, [2, 3]);
            ops(move |scope, x| {
                let x = x.pad(&[(0, 0), (1, 0), (0, 2), (0, 0)], PadMode::Constant(0.0))?;
                Ok(vec![pool.apply(scope, &conv.apply(scope, &x.mul_scalar(1.0 / 3.0)?)?)?])
            })
        }),
        ("moved", kind(DType::F32, &[4, 5, 6]), ops(|_, x| moved(&x))),
        ("functions", kind(DType::F32, &[3, 7]), ops(|_, x| functions(&x))),
        ("controlled", kind(DType::F32, &[3]), ops(|scope, x| controlled(scope, &x))),
        ("resnet8", image(16, 3), layers(resnet)),
    ]
}

/// Returns all functions: each of floats, and quantized ones.
fn cases() -> Vec<Case> {
    let scope = Eager::with_seed(&portable_cpu(), 3);
    let mut cases = Vec::new();
    for (name, kind, body) in bodies(&scope) {
        let x = argument(kind, 1);
        let float = Function::new(move |scope: &dyn Scope, x: Tensor| body(scope, x)).named(name).concrete(&scope, &x).unwrap();
        if kind.dtype == DType::F32 && !["moved", "functions", "controlled"].contains(&name) {
            let mut calibration = Calibration::new(&float).unwrap();
            (1..5).for_each(|seed| calibration.observe(&[argument(kind, seed)]).unwrap());
            let options = Options { input: DType::I8, output: DType::I8, ..Options::default() };
            let function = calibration.quantize(&scope, &options).unwrap();
            let integers = argument(function.inputs()[0], 1);
            cases.push(Case { name: format!("{name}_int8"), function, arguments: vec![integers] });
        }
        cases.push(Case { name: name.into(), function: float, arguments: vec![x] });
    }
    cases
}

/// Returns the bytes of a file with one signature.
fn converted(function: &ConcreteFunction) -> Vec<u8> {
    let names = |prefix: &str, count: usize| (0..count).map(|at| format!("{prefix}{at}")).collect::<Vec<String>>();
    let (inputs, outputs) = (names("x", function.inputs().len()), names("y", function.outputs().len()));
    let [inputs, outputs] = [&inputs, &outputs].map(|names| names.iter().map(String::as_str).collect::<Vec<&str>>());
    let mut converter = Converter::new();
    converter.signature("serving_default", function, &inputs, &outputs).unwrap_or_else(|error| panic!("{error}"));
    converter.to_bytes().unwrap()
}

/// Writes each function as `NAME.tflite`, with its arguments and results as `NAME.xN.npy` and `NAME.yN.npy`. Returns the names.
pub fn write(folder: &Path) -> Vec<String> {
    let save = |name: String, tensor: &Tensor| {
        npy::write(&folder.join(name), &Npy::of(tensor).unwrap()).unwrap();
    };
    let write = |Case { name, function, arguments }: Case| {
        std::fs::write(folder.join(format!("{name}.tflite")), converted(&function)).unwrap();
        arguments.iter().enumerate().for_each(|(at, x)| save(format!("{name}.x{at}.npy"), x));
        function.run(&arguments).unwrap().iter().enumerate().for_each(|(at, y)| save(format!("{name}.y{at}.npy"), y));
        name
    };
    cases().into_iter().map(write).collect()
}

/// True if the elements of two tensors are equal or, if they are floats, near.
fn is_near(got: &Tensor, want: &Tensor) -> bool {
    if got.dtype() != DType::F32 {
        return got.tensor_type() == want.tensor_type() && *got.bytes().unwrap() == *want.bytes().unwrap();
    }
    let (got, want) = (got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
    got.len() == want.len()
        && got.iter().zip(&want).all(|(got, want)| (got - want).abs() <= 1e-5 * want.abs().max(1.0) || got.is_nan() && want.is_nan())
}

#[test]
fn gradlet_reads_the_files_that_it_writes() {
    let scope = Eager::new(&portable_cpu());
    for Case { name, function, arguments } in cases() {
        let model = Model::from_bytes(converted(&function)).unwrap();
        let got = model.signature_function("serving_default").unwrap().call(&scope, arguments.clone()).unwrap();
        for (at, (got, want)) in got.iter().zip(function.run(&arguments).unwrap()).enumerate() {
            assert!(is_near(got, &want), "{name}, output {at}: {got}, not {want}");
        }
    }
}

/// The constants of a function can be in memory that the host cannot address.
#[test]
fn a_remote_device_has_functions_that_can_be_converted() {
    let bytes = [Hiding::new().device, portable_cpu()].map(|device| {
        let scope = Eager::with_seed(&device, 5);
        let model = Sequential::new().with(Dense::new(4)).with(BatchNormalization::default()).with(ReLU::default());
        let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.apply(scope, &x)).named("infer");
        converted(&infer.concrete(&scope, &Tensor::full(&device, 0.5f32, &[1, 3]).unwrap()).unwrap())
    });
    assert!(bytes[0] == bytes[1]);
}
