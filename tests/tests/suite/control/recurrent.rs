//! Tests of recurrent layers: as loops in traces, with their own states, and with dropout.

use crate::control::{eager, error, f32s, floats, ints};
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Activation, Dense, GRU, LSTM, Layer, Module, RNN, RNNCell, SimpleRNN};
use gradlet_core::tensor::Bool;
use gradlet_core::{Artifact, Differentiate, Eager, Function, Program, Result, Scope, Session, Shape, Tensor, Variable, ops};
use gradlet_tests::flat::as_function;
use std::sync::Arc;

fn sample(dims: &[u32]) -> Tensor {
    let count = dims.iter().product::<u32>();
    floats(&(0..count).map(|i| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect::<Vec<_>>(), dims)
}

fn bits(tensors: &[Tensor]) -> Vec<Vec<u32>> {
    tensors.iter().map(|tensor| f32s(tensor).into_iter().map(f32::to_bits).collect()).collect()
}

/// Checks that output and states have the same bits eagerly, as a loop in a trace, unrolled in a trace, and as a loop on a device.
fn same_bits<C: RNNCell + 'static>(layer: fn() -> RNN<C>, masked: bool) -> Result<()> {
    let scope = eager();
    let x = sample(&[2, 5, 3]);
    let mask = Tensor::new(&scope.device(), &[1, 1, 0, 1, 0, 0, 1, 1, 1, 1].map(|bit| Bool::from(bit == 1)), &[2, 5])?;
    let built = layer();
    built.build(&scope, x.shape())?;
    let weights: Vec<Tensor> = built.variables().iter().map(|variable| scope.read(variable)).collect::<Result<_>>()?;
    let run = move |layer: &RNN<C>, scope: &dyn Scope, (x, mask): (Tensor, Tensor)| {
        let sequence = layer.compute(scope, weights.clone(), &x, None, masked.then_some(&mask))?;
        Ok([vec![sequence.output], sequence.states].concat())
    };
    let wanted = bits(&run(&built, &scope, (x.clone(), mask.clone()))?);
    for unroll in [false, true] {
        let (layer, run) = (layer().unroll(unroll), run.clone());
        let f = Function::new(move |scope: &dyn Scope, arguments: (Tensor, Tensor)| run(&layer, scope, arguments));
        assert_eq!(bits(&f.call(&scope, (x.clone(), mask.clone()))?), wanted, "unroll {unroll}");
        let concrete = f.concrete(&scope, &(x.clone(), mask.clone()))?;
        let loops = concrete.graph().nodes.iter().filter(|node| node.op.def.name == "while_loop").count();
        assert_eq!(loops, usize::from(!unroll));
        let outputs: Vec<String> = (0..wanted.len()).map(|index| format!("y{index}")).collect();
        let mut artifact = Artifact::new();
        let names = outputs.iter().map(String::as_str).collect::<Vec<_>>();
        artifact.signature("run", &concrete, &["x", "mask"], &names)?;
        let bytes = artifact.to_bytes()?;
        let program = Program::load(&bytes, ops::KERNELS, &["run"])?;
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        let mut session = Session::new(&program, &mut arena)?;
        let id = program.signature("run")?;
        session.input_mut(id, 0)?.copy_from_slice(&f32s(&x));
        session.input_mut(id, 1)?.copy_from_slice(&mask.to_vec::<Bool>()?);
        session.run(id)?;
        for (index, wanted) in wanted.iter().enumerate() {
            let got: Vec<u32> = session.output::<f32>(id, index)?.iter().map(|y| y.to_bits()).collect();
            assert_eq!(got, *wanted, "unroll {unroll}, output {index}");
        }
        let (lifted, _) = as_function(&bytes, &program, "run", &scope.device())?;
        assert_eq!(bits(&lifted.run(&[x.clone(), mask.clone()])?), wanted, "unroll {unroll}, as a function again");
    }
    Ok(())
}

#[test]
fn loops_have_the_bits_of_unrolled_steps() -> Result<()> {
    for masked in [false, true] {
        same_bits(|| SimpleRNN::new(4), masked)?;
        same_bits(|| SimpleRNN::new(4).return_sequences(true).go_backwards(true), masked)?;
        same_bits(|| LSTM::new(4).return_sequences(true).zero_output_for_mask(true), masked)?;
        same_bits(|| LSTM::new(4).go_backwards(true), masked)?;
        same_bits(|| GRU::new(4).return_sequences(true), masked)?;
        same_bits(|| GRU::new(4).reset_after(false), masked)?;
    }
    Ok(())
}

#[test]
fn gradients_through_the_loop() -> Result<()> {
    let scope = eager();
    let x = sample(&[2, 6, 3]);
    let layer = Arc::new(LSTM::new(4).return_sequences(true));
    layer.build(&scope, x.shape())?;
    let gradients = |layer: Arc<LSTM>| {
        move |scope: &dyn Scope, x: Tensor| {
            let tape = scope.tape();
            let x = tape.watch(&x)?;
            let loss = layer.call(&tape, &x)?.square()?.sum(&[], false)?;
            let sources: Vec<Variable> = layer.variables();
            let found = tape.gradient(&loss, sources.as_slice())?.into_iter().map(|found| found.1.expect("a gradient"));
            Ok([loss].into_iter().chain(found).collect::<Vec<_>>())
        }
    };
    let wanted = gradients(layer.clone())(&scope, x.clone())?;
    let got = Function::new(gradients(layer)).call(&scope, x)?;
    assert_eq!(wanted.len(), 4);
    for (got, wanted) in got.iter().zip(&wanted) {
        for (got, wanted) in f32s(got).into_iter().zip(f32s(wanted)) {
            assert!((got - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{got} {wanted}");
        }
    }
    Ok(())
}

#[test]
fn shorter_sequences_in_one_program() -> Result<()> {
    let scope = eager();
    let x = sample(&[2, 6, 3]);
    for backwards in [false, true] {
        let layer = Arc::new(GRU::new(4).return_sequences(true).go_backwards(backwards));
        layer.build(&scope, x.shape())?;
        let inner = layer.clone();
        let f = Function::new(move |scope: &dyn Scope, (x, length): (Tensor, Tensor)| {
            let sequence = inner.run_first(scope, &x, &length, None)?;
            Ok([vec![sequence.output], sequence.states].concat())
        });
        for length in [0, 1, 4, 6, 9] {
            let at_once = layer.run_first(&scope, &x, &ints(&[length], &[]), None)?;
            let wanted = bits(&[vec![at_once.output], at_once.states].concat());
            assert_eq!(bits(&f.call(&scope, (x.clone(), ints(&[length], &[])))?), wanted, "{length} {backwards}");
            if length > 0 {
                let cut = layer.run(&scope, &x.index((.., ..length.min(6)))?, None, None)?;
                assert_eq!(wanted[1], bits(&cut.states)[0], "{length} {backwards}");
            }
        }
        assert_eq!(f.traces(), 1);
        assert!(error(layer.run_first(&scope, &x, &floats(&[1.0], &[]), None)).contains("takes a length of type i32[], not f32[]"));
    }
    Ok(())
}

#[test]
fn dropout_draws_once_for_all_steps() -> Result<()> {
    let x = sample(&[3, 4, 5]);
    let layer = || SimpleRNN::new(6).return_sequences(true).activation(Activation::Linear);
    let trained = |layer: &SimpleRNN, seed: u64| {
        let scope = Eager::with_seed(&ops::portable_cpu(), seed);
        layer.build(&scope, x.shape())?;
        // Another scope with the same seed, which built the same layer, draws the same random numbers as the layer.
        let other = Eager::with_seed(&ops::portable_cpu(), seed);
        SimpleRNN::new(6).build(&other, x.shape())?;
        let y = layer.call(&scope.with_training(true), &x)?;
        Ok::<_, gradlet_core::Error>((y, other, layer.call(&scope, &x)?))
    };
    let (y, other, plain) = trained(&layer().dropout(0.5), 3)?;
    let kept = floats(&[1.0; 15], &[3, 1, 5]).dropout(&other, 0.5, &[3, 1, 5])?;
    let same = layer();
    same.build(&Eager::with_seed(&ops::portable_cpu(), 3), x.shape())?;
    assert_eq!(f32s(&y), f32s(&same.call(&other, &x.mul(&kept)?)?));
    assert_ne!(f32s(&y), f32s(&plain));

    // If all of the recurrent kernel's input is dropped, the state has no effect. The first step has no previous state in any case.
    let (y, _, plain) = trained(&layer().recurrent_dropout(1.0), 3)?;
    let alone = same.run(&eager(), &x.index((.., 1..2))?, None, None)?.output;
    assert_eq!(f32s(&y.index((.., 1))?), f32s(&alone.index((.., 0))?));
    assert_eq!(f32s(&y.index((.., 0))?), f32s(&plain.index((.., 0))?));

    // Eager and traced calls drop the same elements.
    for layer in [GRU::new(4).dropout(0.25).recurrent_dropout(0.5), GRU::new(4).recurrent_dropout(0.5).reset_after(false)] {
        let (a, b) = (Eager::with_seed(&ops::portable_cpu(), 5), Eager::with_seed(&ops::portable_cpu(), 5));
        layer.build(&a, x.shape())?;
        b.next_stream()?;
        b.next_stream()?;
        let at_once = layer.call(&a.with_training(true), &x)?;
        let layer = Arc::new(layer);
        let inner = layer.clone();
        let traced = Function::new(move |scope: &dyn Scope, x: Tensor| inner.call(scope, &x)).call(&b.with_training(true), x.clone())?;
        let at_once = bits(&[at_once]);
        assert_eq!(at_once, bits(&[traced]));
        assert_ne!(at_once, bits(&[layer.call(&a, &x)?]));
    }
    Ok(())
}

/// A keyword spotter that receives one frame after another.
#[derive(Module)]
struct Spotter {
    recurrent: GRU,
    classes: Dense,
}

impl Spotter {
    /// Feeds frames of shape `[1, frames, features]` to the spotter. Returns the class probabilities after the last one.
    fn infer(&self, scope: &dyn Scope, frames: &Tensor) -> Result<Tensor> {
        self.classes.apply(scope, &self.recurrent.apply(scope, frames)?)
    }
}

#[test]
fn a_keyword_spotter_fed_frame_by_frame() -> Result<()> {
    let scope = eager();
    let (frames, features) = (12, 10);
    let sound = sample(&[1, frames, features]);
    let spotter = Arc::new(Spotter { recurrent: GRU::new(8).stateful(true), classes: Dense::new(4).activation(Activation::Softmax) });
    let frame = |at: u32| sound.index((.., at as i32..at as i32 + 1));
    spotter.recurrent.build(&scope, &Shape::new(&[1, 1, features])?)?;
    spotter.classes.build(&scope, &Shape::new(&[1, 8])?)?;
    let names: Vec<String> = spotter.named_variables().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[3..], ["recurrent/rnn_state_0", "classes/kernel", "classes/bias"]);
    assert_eq!(spotter.trainable_variables().len(), 5);

    // All frames together, with a layer without its own state.
    let weights = spotter.recurrent.cell().variables().iter().map(|variable| scope.read(variable)).collect::<Result<_>>()?;
    let whole = GRU::new(8).return_sequences(true).compute(&scope, weights, &sound, None, None)?.output;
    let wanted = bits(&spotter.classes.call(&scope, &whole)?.unstack(1)?);

    let (inner, outer) = (spotter.clone(), spotter.clone());
    let infer = Function::new(move |scope: &dyn Scope, frame: Tensor| inner.infer(scope, &frame));
    let reset = Function::new(move |scope: &dyn Scope, ()| outer.recurrent.reset_states(scope));
    let mut artifact = Artifact::new();
    artifact.variables(spotter.named_variables());
    artifact.signature("infer", &*infer.concrete(&scope, &frame(0)?)?, &["frame"], &["probabilities"])?;
    artifact.signature("reset", &*reset.concrete(&scope, &())?, &[], &[])?;
    let bytes = artifact.to_bytes()?;

    for _ in 0..2 {
        for (at, wanted) in (0..frames).zip(&wanted) {
            assert_eq!(bits(&[infer.call(&scope, frame(at)?)?])[0], *wanted, "frame {at}");
        }
        reset.call(&scope, ())?;
    }

    let program = Program::load(&bytes, ops::KERNELS, &["infer", "reset"])?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    let (infer, reset) = (program.signature("infer")?, program.signature("reset")?);
    for _ in 0..2 {
        for (at, wanted) in (0..frames).zip(&wanted) {
            session.input_mut(infer, 0)?.copy_from_slice(&f32s(&frame(at)?));
            session.run(infer)?;
            let got: Vec<u32> = session.output::<f32>(infer, 0)?.iter().map(|y| y.to_bits()).collect();
            assert_eq!(got, *wanted, "frame {at}");
        }
        session.run(reset)?;
    }
    Ok(())
}
