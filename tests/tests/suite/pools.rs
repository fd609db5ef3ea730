//! Plans for devices fuse convolutions with max pooling. The fused ops have the bits of the single ops.

use gradlet_core::artifact::describe::Description;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Padding, Sequential};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding as Pads};
use gradlet_core::optimizers::{Optimizer, Sgd};
use gradlet_core::{Artifact, Differentiate, Eager, Function, Program, Result, Scope, Session, Shape, Tensor, Variable, ops};
use gradlet_tests::flat::as_function;
use gradlet_tests::golden::runtimes::tensor_bytes;
use gradlet_tests::random::Random;
use std::sync::Arc;

const STEPS: usize = 3;

/// Returns a CNN of one or two convolutions, each with a pooling. Not all of them can be fused.
fn cnn(random: &mut Random) -> Sequential {
    let mut model = Sequential::new();
    for _ in 0..random.range(1, 2) {
        let mut size = || [random.range(1, 3), random.range(1, 3)];
        let (kernel, ksize, strides) = (size(), size(), size());
        let padding = || Padding::Same;
        let activation = random.pick(&["relu", "relu", "relu", "linear", "tanh"]).parse::<Activation>().unwrap();
        let mut conv = Conv2D::new(random.range(1, 12), kernel).activation(activation).use_bias(random.coin());
        conv = if random.coin() { conv.padding(padding()) } else { conv };
        conv = if random.below(4) == 0 { conv.strides([1, 2]) } else { conv };
        conv = if random.below(4) == 0 { conv.dilation_rate([2, random.range(1, 2)]) } else { conv };
        let mut pool = MaxPool2D::new(ksize);
        pool = if random.below(4) == 0 { pool.strides(strides) } else { pool };
        pool = if random.below(4) == 0 { pool.padding(padding()) } else { pool };
        model = model.with(conv).with(pool);
    }
    model.with(Flatten).with(Dense::new(3))
}

/// A training step: the loss and the logits.
type Step = Function<(Tensor, Tensor), (Tensor, Tensor)>;

/// Returns a step that changes `variables`.
fn step(model: &Arc<Sequential>, variables: Vec<Variable>) -> Step {
    let (model, optimizer) = (model.clone(), Sgd::new(0.1));
    Function::new(move |scope: &dyn Scope, (x, labels): (Tensor, Tensor)| {
        let tape = scope.tape();
        let logits = model.call(&tape, &x)?;
        let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&labels, &logits)?;
        optimizer.apply_gradients(scope, &tape.gradient(&loss, &variables)?)?;
        Ok((loss, logits))
    })
}

/// Exports the step, and returns the bytes of the artifact with the names of its instructions' ops.
fn exported(scope: &Eager, model: &Sequential, step: &Step, inputs: &(Tensor, Tensor)) -> Result<(AlignedBytes, Vec<String>)> {
    let mut artifact = Artifact::new();
    artifact.variables(model.named_variables());
    artifact.signature("train", &*step.concrete(scope, inputs)?, &["x", "labels"], &["loss", "logits"])?;
    let bytes = artifact.to_bytes()?;
    let instructions = Description::read(&bytes)?.signatures.remove(0).instructions;
    Ok((bytes, instructions.into_iter().map(|instruction| instruction.op.to_string()).collect()))
}

#[test]
fn random_cnns_have_the_bits_of_the_host() {
    let (mut fused, mut single, mut divided) = (0, 0, 0);
    for seed in 0..150 {
        let random = &mut Random::new(seed);
        let scope = Eager::with_seed(&ops::portable_cpu(), seed);
        let model = Arc::new(cnn(random));
        let dims = [random.range(1, 3), random.range(5, 13), random.range(5, 13), random.range(1, 3)];
        // A window may be too large for an image.
        if model.build(&scope, &Shape::new(&dims).unwrap()).is_err() {
            continue;
        }
        // Frozen variables need no gradient, so some nodes of the gradient are missing.
        let trained: Vec<Variable> = model.variables().into_iter().filter(|_| random.below(5) > 0).collect();
        let step = step(&model, trained);
        let elements: Vec<f32> = (0..dims.iter().product()).map(|_| (4.0 * random.unit()).round() as f32 / 4.0).collect();
        let labels: Vec<i32> = (0..dims[0]).map(|_| random.below(3) as i32).collect();
        let inputs = (Tensor::new(&scope.device(), &elements, &dims).unwrap(), Tensor::new(&scope.device(), &labels, &dims[..1]).unwrap());
        let Ok((bytes, found)) = exported(&scope, &model, &step, &inputs) else { continue };
        fused += found.iter().filter(|op| op.starts_with("conv2d_max_pool2d")).count();
        single += found.iter().filter(|op| op.starts_with("max_pool2d")).count();

        let program = Program::load(&bytes, ops::KERNELS, &["train"]).unwrap();
        let train = program.signature("train").unwrap();
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        let mut session = Session::new(&program, &mut arena).unwrap();
        let (lifted, variables) = as_function(&bytes, &program, "train", &scope.device()).unwrap();
        divided += lifted.graph().nodes.iter().filter(|node| node.op.def.name == "max_pool2d").count();
        // Winners without elements have no place in memory, so nothing tells which gradient reads them.
        let empty = lifted.graph().values.iter().any(|value| value.tensor_type.bytes() == Some(0));
        assert!(empty || lifted.graph().nodes.iter().all(|node| !node.op.def.name.starts_with("conv2d_max_pool2d")), "seed {seed}");
        for number in 0..STEPS {
            let (loss, logits) = step.call(&scope, inputs.clone()).unwrap();
            session.input_mut(train, 0).unwrap().copy_from_slice(&elements);
            session.input_mut(train, 1).unwrap().copy_from_slice(&labels);
            session.run(train).unwrap();
            let again = lifted.run(&[inputs.0.clone(), inputs.1.clone()]).unwrap();
            for (index, want) in [loss, logits].into_iter().enumerate() {
                assert_eq!(tensor_bytes(&again[index]).unwrap(), tensor_bytes(&want).unwrap(), "seed {seed}, as a function again");
                assert_eq!(session.output_bytes(train, index).unwrap(), tensor_bytes(&want).unwrap(), "seed {seed}, step {number}");
            }
            // Named variables come first in an artifact.
            for (index, variable) in model.variables().iter().enumerate() {
                let want = scope.read(variable).unwrap();
                let name = variable.name();
                assert_eq!(session.variable(index).unwrap(), tensor_bytes(&want).unwrap(), "seed {seed}, step {number}, {name}");
                let again = scope.read(&variables[index]).unwrap();
                assert_eq!(again.bytes().unwrap(), want.bytes().unwrap(), "seed {seed}, step {number}, {name}, as a function again");
            }
        }
    }
    assert!(divided > 50, "{divided} poolings of fused ops");
    assert!(fused > 150 && single > 50, "{fused} fused and {single} single instructions");
}

/// Returns the names of the instructions' ops for a function of images and a filter.
fn planned<O: gradlet_core::function::Structure + 'static>(
    function: impl Fn(&Tensor, &Tensor) -> Result<O> + Send + Sync + 'static,
    outputs: &[&str],
) -> Vec<String> {
    let scope = Eager::new(&ops::portable_cpu());
    let [x, filter] = [&[1u32, 8, 8, 2][..], &[3, 3, 2, 4]].map(|dims| Tensor::full(&scope.device(), 0.5f32, dims).unwrap());
    let function = Function::new(move |_: &dyn Scope, (x, filter): (Tensor, Tensor)| function(&x, &filter));
    let mut artifact = Artifact::new();
    artifact.signature("f", &function.concrete(&scope, &(x, filter)).unwrap(), &["x", "filter"], outputs).unwrap();
    let instructions = Description::read(&artifact.to_bytes().unwrap()).unwrap().signatures.remove(0).instructions;
    instructions.into_iter().map(|instruction| instruction.op.to_string()).collect()
}

#[test]
fn only_values_that_nobody_else_reads_disappear() {
    let conv = |x: &Tensor, filter: &Tensor| x.conv2d(filter, None, &Conv2DOptions::default());
    let pool = |x: &Tensor| x.max_pool2d([2, 2], [2, 2], Pads::Valid);
    assert_eq!(planned(move |x, filter| pool(&conv(x, filter)?.relu()?), &["y"]), ["conv2d_max_pool2d"]);
    assert_eq!(planned(move |x, filter| pool(&conv(x, filter)?), &["y"]), ["conv2d_max_pool2d"]);
    let single = ["conv2d", "relu", "max_pool2d"];
    let with_result = planned(
        move |x, filter| {
            let y = conv(x, filter)?.relu()?;
            Ok((pool(&y)?, y))
        },
        &["y", "full"],
    );
    assert_eq!(with_result, single);
    assert_eq!(planned(move |x, filter| conv(x, filter)?.relu()?.max_pool2d([3, 3], [2, 2], Pads::Valid), &["y"]), single);
    assert_eq!(planned(move |x, filter| conv(x, filter)?.relu()?.max_pool2d([4, 4], [4, 4], Pads::Same), &["y"]), single);
    assert_eq!(planned(move |x, filter| conv(x, filter)?.relu()?.max_pool2d([3, 3], [3, 3], Pads::Same), &["y"]), ["conv2d_max_pool2d"]);
}
