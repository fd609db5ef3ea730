//! Tests of streaming: a frame at a time gives the bits of whole windows.

use super::*;
use crate::artifact::describe::Description;
use crate::artifact::inspect::multiply_accumulates;
use crate::tflite::{Rounding, TensorInfo};
use gradlet_core::device::AlignedBytes;
use gradlet_core::{Error, Program, Result, Session, ops};

fn tinyml(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tinyml").join(name)
}

/// Bytes that look random.
fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Returns a frame: numbers below 8 as floats, or any integers.
fn frame(like: &TensorInfo, seed: u64) -> Tensor {
    let dims: Vec<u32> = like.dims.iter().map(|dim| dim.unwrap()).collect();
    let bytes = noise(dims.iter().product::<u32>() as usize, seed);
    match like.dtype.unwrap() {
        DType::F32 => new(&bytes.iter().map(|&byte| f32::from(byte) / 32.0 - 4.0).collect::<Vec<_>>(), &dims),
        DType::I8 => new(&bytes.iter().map(|&byte| byte as i8).collect::<Vec<_>>(), &dims),
        other => panic!("{other}"),
    }
}

/// Returns the last column of a result of a whole window.
fn newest(whole: &Tensor, dims: &[Option<u32>]) -> Tensor {
    let Some(axis) = whole.dims().iter().zip(dims).position(|(&whole, &one)| Some(whole) != one) else { return whole.clone() };
    whole.split(whole.dims()[axis], axis as i32).unwrap().pop().unwrap()
}

/// Streams `frames` frames through a model eagerly, compiled, and exported. Each result must have the bits of the whole window, which
/// begins with frames of `zero`. Returns the number of bytes that the stream keeps.
fn streams(bytes: &[u8], axis: usize, zero: f64, frames: u64) -> Result<usize> {
    let whole = Model::from_bytes(bytes)?;
    let (eager, compiled) = (whole.streaming(axis)?, whole.streaming(axis)?);
    let scope = Eager::new(&portable_cpu());
    let function = compiled.function()?;
    let bytes = eager.export(1)?;
    let program = Program::load(&bytes, ops::KERNELS, &["infer"])?;
    let infer = program.signature("infer")?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;

    let (input, outputs) = (eager.inputs().remove(0), eager.outputs());
    let count = whole.inputs()[0].dims[axis].unwrap() as usize;
    for again in 0..2 {
        let first = frame(&input, 0);
        let silence = first.like(zero)?.broadcast_to(first.dims())?;
        let mut window = vec![silence; count];
        for at in 0..frames {
            window.remove(0);
            window.push(frame(&input, at + 1000 * again));
            let x = window.last().unwrap();
            let want = whole.call(&scope, &[&Tensor::concat(&window, axis as i32)?])?;
            let one = eager.call(&scope, &[x])?;
            let other = function.call(&scope, vec![x.clone()])?;
            session.input_bytes_mut(infer, 0)?.copy_from_slice(&x.bytes()?);
            session.run(infer)?;
            for (output, want) in want.iter().enumerate() {
                let want = newest(want, &outputs[output].dims);
                let place = format!("frame {at}, output {output}");
                assert_eq!((one[output].dims(), &*one[output].bytes()?), (want.dims(), &*want.bytes()?), "{place}");
                assert_eq!((other[output].dims(), &*other[output].bytes()?), (want.dims(), &*want.bytes()?), "{place}");
                assert_eq!(session.output_bytes(infer, output)?, &*want.bytes()?, "{place}");
            }
        }
        // The second pass begins again.
        eager.reset(&scope)?;
        compiled.reset(&scope)?;
        session.reset();
    }
    Ok(eager.variables().iter().map(|variable| variable.tensor_type().unwrap().bytes().unwrap()).sum())
}

#[test]
fn a_wake_word_is_found_frame_by_frame() {
    let bytes = std::fs::read(tinyml("str_ww_ref_model.tflite")).unwrap();
    // Two columns of 40 channels, and 4, 9 and 14 of 128.
    assert_eq!(streams(&bytes, 1, -128.0, 50).unwrap(), 2 * 40 + (4 + 9 + 14) * 128);
    let model = Model::from_bytes(bytes).unwrap();
    let products = |model: &Model| -> u64 {
        let bytes = model.export(1).unwrap();
        let signature = Description::read(&bytes).unwrap().signatures.remove(0);
        signature.walk().iter().map(|(_, one)| multiply_accumulates(one)).sum()
    };
    let (whole, step) = (products(&model), products(&model.streaming(1).unwrap()));
    assert!(step > 0 && step * 10 <= whole, "{step} of {whole}");
}

/// The host's fast kernels compute integers with the same bits. A stream lives on the device of its first call.
#[test]
fn a_stream_runs_on_the_fast_kernels() {
    let model = Model::open(tinyml("str_ww_ref_model.tflite")).unwrap();
    let scopes = [Eager::new(&portable_cpu()), Eager::new(&crate::compute::devices::cpu())];
    let [one, other] = [0, 1].map(|_| model.streaming(1).unwrap());
    for at in 0..35 {
        let frame = frame(&one.inputs()[0], at);
        let there = Tensor::from_bytes(&crate::compute::devices::cpu(), frame.tensor_type(), &frame.bytes().unwrap()).unwrap();
        let (want, got) = (one.call(&scopes[0], &[&frame]).unwrap().remove(0), other.call(&scopes[1], &[&there]).unwrap().remove(0));
        assert_eq!(want.to_vec::<i8>().unwrap(), got.to_vec::<i8>().unwrap());
    }
    assert!(*one.export(1).unwrap() == *other.export(1).unwrap(), "an artifact begins with the first frame");
}

/// A graph of floats under construction. Tensor 0 is the input.
struct Net(Graph);

impl Net {
    fn new(dims: &[i32]) -> Net {
        let input = Described { dims: dims.to_vec(), ..Described::of(DType::F32) };
        Net(Graph { tensors: vec![input], inputs: vec![0], ..Graph::default() })
    }

    fn constant(&mut self, tensor: &Tensor) -> i32 {
        self.0.tensors.push(Described::constant(tensor));
        self.0.tensors.len() as i32 - 1
    }

    fn weights(&mut self, dims: &[u32]) -> i32 {
        let numbers = noise(dims.iter().product::<u32>() as usize, 3).into_iter().map(|byte| f32::from(byte) / 128.0 - 1.0);
        self.constant(&new(&numbers.collect::<Vec<f32>>(), dims))
    }

    fn list(&mut self, numbers: &[i32]) -> i32 {
        self.constant(&new(numbers, &[numbers.len() as u32]))
    }

    /// Adds an operator, and returns its first output.
    fn add(&mut self, name: &'static str, inputs: &[i32], options: Options, outputs: i32) -> i32 {
        let first = self.0.tensors.len() as i32;
        self.0.tensors.extend((0..outputs).map(|_| Described::of(DType::F32)));
        self.0.operators.push(operator(name, inputs.to_vec(), (first..first + outputs).collect(), options));
        first
    }

    fn one(&mut self, name: &'static str, inputs: &[i32], fields: Options) -> i32 {
        self.add(name, inputs, fields, 1)
    }

    /// A convolution with padding `VALID` and this dilation along the time.
    fn conv(&mut self, x: i32, filter: &[u32], dilation: i32) -> i32 {
        let filter = self.weights(filter);
        let fields = [(1, 1), (2, 1), (4, 1), (5, dilation)].map(|(slot, number)| (slot, Field::I32(number)));
        self.one("CONV_2D", &[x, filter, -1], Some((1, [vec![(0, Field::I8(1))], fields.to_vec()].concat())))
    }

    fn pool(&mut self, x: i32, columns: i32) -> i32 {
        self.one("AVERAGE_POOL_2D", &[x], pooling(1, 1, columns))
    }

    /// Keeps the columns from `begin` to `end`.
    fn crop(&mut self, x: i32, begin: i32, end: i32, masks: &[(u16, i32)]) -> i32 {
        let (begin, end, step) = (self.list(&[0, begin, 0, 0]), self.list(&[0, end, 0, 0]), self.list(&[1; 4]));
        let all = [(0, 0b1101), (1, 0b1101)].iter().chain(masks).map(|&(slot, mask)| (slot, Field::I32(mask)));
        self.one("STRIDED_SLICE", &[x, begin, end, step], Some((32, all.collect())))
    }

    fn model(mut self, outputs: &[i32]) -> Vec<u8> {
        self.0.outputs = outputs.to_vec();
        model(&[self.0])
    }
}

/// Options of a pooling with a window of one row and `columns` columns.
fn pooling(padding: i8, stride: i32, columns: i32) -> Options {
    let fields = [(1, 1), (2, stride), (3, 1), (4, columns)].map(|(slot, number)| (slot, Field::I32(number)));
    Some((5, [vec![(0, Field::I8(padding))], fields.to_vec()].concat()))
}

fn number(table: u8, slot: u16, number: i32) -> Options {
    Some((table, vec![(slot, Field::I32(number))]))
}

/// Streams a model of windows `[1,6,2,3]`. It must keep this many columns of 6 floats.
fn keeps(columns: usize, build: impl Fn(&mut Net) -> Vec<i32>) {
    let mut net = Net::new(&[1, 6, 2, 3]);
    let outputs = build(&mut net);
    assert_eq!(streams(&net.model(&outputs), 1, 0.0, 15).unwrap(), columns * 6 * 4);
}

#[test]
fn a_kernel_keeps_the_columns_that_it_spans() {
    keeps(3, |net| vec![net.conv(0, &[4, 2, 2, 3], 3)]);
    keeps(2, |net| vec![net.pool(0, 3)]);
    keeps(0, |net| vec![net.conv(0, &[4, 1, 2, 3], 2)]);
    // A window of all frames needs no stride of 1.
    keeps(5, |net| vec![net.one("MAX_POOL_2D", &[0], pooling(1, 6, 6))]);
    // Two kernels share the columns. The newest columns of what they compute belong together.
    keeps(3, |net| {
        let (short, long) = (net.conv(0, &[4, 2, 2, 3], 1), net.conv(0, &[4, 4, 2, 3], 1));
        let short = net.crop(short, 2, 5, &[]);
        vec![net.one("ADD", &[short, long], None)]
    });
}

#[test]
fn a_part_of_a_window_ends_before_the_newest_column() {
    keeps(2, |net| {
        let (pool, centre) = (net.pool(0, 3), net.crop(0, 1, -1, &[]));
        vec![net.one("MUL", &[pool, centre], None)]
    });
    keeps(0, |net| vec![net.crop(0, -1, 0, &[(4, 0b10)])]);
    keeps(2, |net| vec![net.crop(0, 3, 0, &[(4, 0b10)])]);
    keeps(2, |net| {
        let (begin, size) = (net.list(&[0, 1, 0, 0]), net.list(&[-1, 3, -1, -1]));
        vec![net.one("SLICE", &[0, begin, size], None)]
    });
    // A part of the channels is not a part of the time.
    keeps(5, |net| {
        let (begin, size) = (net.list(&[0, 1, 0, 1]), net.list(&[-1, 3, -1, 2]));
        vec![net.one("SLICE", &[0, begin, size], None)]
    });
}

#[test]
fn other_axes_keep_nothing() {
    keeps(0, |net| {
        let shape = net.list(&[6, 6]);
        let rows = net.one("RESHAPE", &[0, shape], None);
        let weights = net.weights(&[4, 6]);
        let dense = net.one("FULLY_CONNECTED", &[rows, weights, -1], Some((8, vec![(2, Field::Bool(true))])));
        let soft = net.one("SOFTMAX", &[dense], Some((9, vec![(0, Field::F32(0.5))])));
        let order = net.list(&[1, 0]);
        vec![net.one("TRANSPOSE", &[soft, order], None)]
    });
    keeps(0, |net| {
        let weights = net.weights(&[4, 3]);
        let axes = net.list(&[2]);
        let sums = net.one("SUM", &[0, axes], None);
        let dense = net.one("FULLY_CONNECTED", &[sums, weights], None);
        let bias = net.weights(&[4]);
        vec![net.one("PRELU", &[dense, bias], None), sums]
    });
    keeps(0, |net| {
        let axis = net.constant(&new(&[3], &[]));
        let first = net.add("SPLIT", &[axis, 0], number(35, 0, 3), 3);
        let joined = net.one("CONCATENATION", &[first + 2, first, first + 1], number(10, 0, -1));
        let parts = net.add("UNPACK", &[joined], Some((64, vec![(0, Field::I32(2)), (1, Field::I32(2))])), 2);
        let packed = net.one("PACK", &[parts, parts + 1], Some((59, vec![(0, Field::I32(2)), (1, Field::I32(0))])));
        let paddings = net.constant(&new(&[0, 0, 0, 0, 0, 0, 1, 2], &[4, 2]));
        let padded = net.one("PAD", &[packed, paddings], None);
        let axes = net.list(&[-1]);
        vec![padded, net.one("REDUCE_MAX", &[padded, axes], Some((27, vec![(0, Field::Bool(true))])))]
    });
}

#[test]
fn some_operators_need_the_whole_window() {
    let mean = |net: &mut Net, keep| {
        let axes = net.list(&[1]);
        net.one("MEAN", &[0, axes], Some((27, vec![(0, Field::Bool(keep))])))
    };
    keeps(5, |net| vec![mean(net, false)]);
    keeps(5, |net| {
        let weights = net.weights(&[2, 36]);
        vec![net.one("FULLY_CONNECTED", &[0, weights, -1], None), mean(net, true)]
    });
    // Each column has a weight of its own.
    keeps(5, |net| {
        let weights = net.weights(&[6, 1, 1]);
        let weighted = net.one("MUL", &[0, weights], None);
        vec![net.pool(weighted, 2)]
    });
    // Each window has weights of its own, so the columns of the last window are of no use.
    keeps(5, |net| {
        let mean = mean(net, true);
        let weighted = net.one("MUL", &[0, mean], None);
        vec![net.pool(weighted, 2)]
    });
    // The softmax over the time of its transposed input.
    keeps(5, |net| {
        let order = net.list(&[0, 3, 2, 1]);
        let turned = net.one("TRANSPOSE", &[0, order], None);
        vec![net.one("SOFTMAX", &[turned], Some((9, vec![(0, Field::F32(1.0))])))]
    });
}

#[test]
fn models_that_cannot_be_streamed_are_refused() {
    let reason = |path: PathBuf, axis: usize| Model::open(path).unwrap().streaming(axis).unwrap_err().to_string();
    let kws = reason(tinyml("kws_ref_model.tflite"), 1);
    assert!(
        kws.contains("prevent streaming:\n  subgraph 0: operator 0 (CONV_2D): its stride along the time, axis 1, is 2, not 1"),
        "{kws}"
    );
    assert!(kws.contains("(DEPTHWISE_CONV_2D): its padding along the time, axis 1, is SAME, not VALID"), "{kws}");
    let axes = reason(tinyml("kws_ref_model.tflite"), 4);
    assert!(axes.ends_with(", has no axis 4"), "{axes}");
    assert!(reason(tinyml("str_ww_ref_model.tflite"), 2).ends_with("has 1 frames along axis 2, not two or more"));
    assert!(reason(tinyml("str_ww_ref_model.tflite"), 0).ends_with("has no fixed number of frames along axis 0"));
    let step = Model::open(tinyml("str_ww_ref_model.tflite")).unwrap().streaming(1).unwrap();
    let late = step.with_rounding(Rounding::Tflm).unwrap_err().to_string();
    assert_eq!(late, "a streaming model has its rounding already: set it before the model becomes streaming");
    assert_eq!(reason(sample("two_in_two_out_float32.tflite"), 1), "a model with 2 inputs cannot be streamed: it must have one");
    let stateful = reason(sample("lstm_while_float32.tflite"), 1);
    assert!(stateful.contains("(WHILE): a model with variables, branches or loops cannot be streamed"), "{stateful}");
    let padded = |paddings: &[i32]| {
        let mut net = Net::new(&[1, 6, 2, 3]);
        let paddings = net.constant(&new(paddings, &[4, 2]));
        let output = net.one("PAD", &[0, paddings], None);
        Model::from_bytes(net.model(&[output])).unwrap().streaming(1)
    };
    let error = padded(&[0, 0, 2, 0, 0, 0, 0, 0]).unwrap_err().to_string();
    assert!(error.ends_with("operator 0 (PAD): it pads the time, axis 1, with 2 columns before it and 0 after it"), "{error}");
    let again = padded(&[0; 8]).unwrap().streaming(1).unwrap_err().to_string();
    assert_eq!(again, "the model is a step for each frame already");
}

/// A damaged model is streamed or refused, without a panic.
#[test]
fn damaged_models_are_streamed_or_refused() {
    let mut net = Net::new(&[1, 6, 2, 3]);
    let (conv, centre) = (net.conv(0, &[3, 3, 1, 3], 1), net.crop(0, 1, -1, &[]));
    let sum = net.one("ADD", &[conv, centre], None);
    let (order, shape, axes) = (net.list(&[1, 0, 2, 3]), net.list(&[4, 6]), net.list(&[1]));
    let turned = net.one("TRANSPOSE", &[sum, order], None);
    let rows = net.one("RESHAPE", &[turned, shape], None);
    let mean = net.one("MEAN", &[rows, axes], None);
    let bytes = net.model(&[rows, mean]);
    assert_eq!(streams(&bytes, 1, 0.0, 3).unwrap(), 2 * 6 * 4);
    let (mut streamed, mut refused, mut random) = (0, 0, noise(12_000, 1).into_iter().map(usize::from));
    for _ in 0..1_000 {
        let mut bytes = bytes.clone();
        for _ in 0..2 {
            let at = (random.next().unwrap() << 8 | random.next().unwrap()) % bytes.len();
            bytes[at] = random.next().unwrap() as u8;
        }
        let model = Model::from_bytes(bytes);
        let small = |info: &TensorInfo| info.dims.iter().map(|dim| u64::from(dim.unwrap_or(1))).product::<u64>() < 1_000;
        match model.and_then(|model| if model.inputs().iter().all(small) { model.streaming(1) } else { Err(Error::Internal) }) {
            Ok(step) if step.call(&Eager::new(&portable_cpu()), &[&frame(&step.inputs()[0], 1)]).is_ok() => streamed += 1,
            _ => refused += 1,
        }
    }
    assert!(streamed > 50 && refused > 50, "{streamed} {refused}");
}
