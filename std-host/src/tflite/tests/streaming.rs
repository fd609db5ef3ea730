//! Tests of streaming: a frame at a time gives the bits of whole windows.

use super::*;
use crate::artifact::describe::Description;
use crate::artifact::inspect::multiply_accumulates;
use crate::tflite::TensorInfo;
use gradlet_core::device::AlignedBytes;
use gradlet_core::{Program, Result, Session, ops};

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
    let last = whole.split(whole.dims()[axis], axis as i32).unwrap().pop().unwrap();
    last
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
    let cost = |model: &Model| {
        let bytes = model.export(1).unwrap();
        let signature = Description::read(&bytes).unwrap().signatures.remove(0);
        let products: u64 = signature.walk().iter().map(|(_, one)| multiply_accumulates(one)).sum();
        (products, signature.arena_bytes, bytes.len())
    };
    let step = model.streaming(1).unwrap();
    let (whole, step) = (cost(&model), cost(&step));
    eprintln!("{whole:?} {step:?}");
    assert!(step.0 * 10 <= whole.0, "{step:?} {whole:?}");
}
