//! End-to-end tests of models of layers and of small functions. They run eagerly, as compiled functions, and as exported artifacts that are
//! loaded into sessions.

use gradlet_core::artifact::describe::Description;
use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Padding, Sequential};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::optimizers::{Adam, Optimizer, Sgd};
use gradlet_core::runtime::program::{Space, missing_kernel};
use gradlet_core::{
    Artifact, DType, Differentiate, Eager, Error, Function, Kernel, Program, Result, Scope, Session, Shape, Tensor, Variable, ops,
};
use std::sync::Arc;

type Step = Function<(Tensor, Tensor), Tensor>;

fn mlp() -> Sequential {
    Sequential::new().with(Dense::new(6).activation(Activation::Relu)).with(Dense::new(3))
}

fn cnn() -> Sequential {
    let conv = |filters| Conv2D::new(filters, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
    Sequential::new().with(conv(3)).with(MaxPool2D::new([2, 2])).with(conv(4)).with(Flatten).with(Dense::new(3))
}

fn body(model: &Sequential, optimizer: &dyn Optimizer, scope: &dyn Scope, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let tape = scope.tape();
    let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(y, &model.call(&tape, x)?)?;
    let gradients = tape.gradient(&loss, &model.trainable_variables())?;
    optimizer.apply_gradients(scope, &gradients)?;
    Ok(loss)
}

fn step(model: &Arc<Sequential>, optimizer: &Arc<dyn Optimizer>) -> Step {
    let (model, optimizer) = (model.clone(), optimizer.clone());
    Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| body(&model, &*optimizer, scope, &x, &y))
}

fn sample(scope: &Eager, dims: &[u32]) -> (Tensor, Tensor) {
    let count = Shape::new(dims).unwrap().elements().unwrap();
    let x = Tensor::new(&scope.device(), &scope.next_stream().unwrap().uniform(count), dims).unwrap();
    let labels: Vec<i32> = (0..dims[0] as i32).map(|label| label % 3).collect();
    (x, Tensor::new(&scope.device(), &labels, &[dims[0]]).unwrap())
}

fn bits(scope: &Eager, module: &dyn Module) -> Vec<Vec<u32>> {
    let float = |variable: &Variable| variable.tensor_type().unwrap().dtype == DType::F32;
    let read = |variable: Variable| scope.read(&variable).unwrap().to_vec::<f32>().unwrap();
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    module.variables().into_iter().filter(float).map(|variable| bits(read(variable))).collect()
}

/// Checks that eager, compiled and exported steps have the same losses and weights, bit for bit.
fn same_bits(model: fn() -> Sequential, optimizer: fn() -> Arc<dyn Optimizer>, dims: &[u32]) {
    let run = |mode: usize| -> (Vec<u32>, Vec<Vec<u32>>) {
        let scope = Eager::with_seed(&ops::portable_cpu(), 7);
        let (model, optimizer) = (Arc::new(model()), optimizer());
        model.build(&scope, &Shape::new(dims).unwrap()).unwrap();
        let (x, y) = sample(&scope, dims);
        let compiled = step(&model, &optimizer);
        let loss = |_| match mode {
            0 => body(&model, &*optimizer, &scope, &x, &y).unwrap(),
            _ => compiled.call(&scope, (x.clone(), y.clone())).unwrap(),
        };
        if mode < 2 {
            let losses = (0..5).map(loss).map(|loss| loss.item::<f32>().unwrap().to_bits()).collect();
            return (losses, bits(&scope, &*model));
        }
        let mut artifact = Artifact::new();
        artifact.variables(model.named_variables());
        let concrete = compiled.concrete(&scope, &(x.clone(), y.clone())).unwrap();
        artifact.signature("train", &concrete, &["x", "y"], &["loss"]).unwrap();
        let bytes = artifact.to_bytes().unwrap();
        let program = Program::load(&bytes, ops::KERNELS, &["train"]).unwrap();
        let train = program.signature("train").unwrap();
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        let mut session = Session::new(&program, &mut arena).unwrap();
        let mut losses = Vec::new();
        for _ in 0..5 {
            session.input_mut(train, 0).unwrap().copy_from_slice(&x.to_vec::<f32>().unwrap());
            session.input_mut(train, 1).unwrap().copy_from_slice(&y.to_vec::<i32>().unwrap());
            session.run(train).unwrap();
            losses.push(session.output::<f32>(train, 0).unwrap()[0].to_bits());
        }
        // Named variables come first in an artifact.
        let weights = (0..model.variables().len()).map(|index| bytemuck_words(session.variable(index).unwrap())).collect();
        (losses, weights)
    };
    let eager = run(0);
    assert_ne!(eager.0[0], eager.0[4], "nothing was learnt");
    assert_eq!(eager, run(1), "compiled");
    assert_eq!(eager, run(2), "exported");
}

fn bytemuck_words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn mlp_with_sgd_has_the_same_bits_everywhere() {
    same_bits(mlp, || Arc::new(Sgd::new(0.1)), &[1, 5]);
    same_bits(mlp, || Arc::new(Sgd::new(0.1)), &[4, 5]);
}

#[test]
fn mlp_with_adam_has_the_same_bits_everywhere() {
    same_bits(mlp, || Arc::new(Adam::new(0.01)), &[4, 5]);
}

#[test]
fn cnn_has_the_same_bits_everywhere() {
    same_bits(cnn, || Arc::new(Sgd::new(0.1)), &[1, 6, 6, 2]);
    same_bits(cnn, || Arc::new(Adam::new(0.01)), &[3, 6, 6, 2]);
}

/// Exports an MLP's `infer` and `train` as an artifact.
fn exported() -> AlignedBytes {
    let scope = Eager::new(&ops::portable_cpu());
    let (model, sgd) = (Arc::new(mlp()), Arc::new(Sgd::new(0.1)) as Arc<dyn Optimizer>);
    model.build(&scope, &Shape::new(&[1, 5]).unwrap()).unwrap();
    let (x, y) = sample(&scope, &[1, 5]);
    let called = model.clone();
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| called.call(scope, &x));
    let mut artifact = Artifact::new();
    artifact.variables(model.named_variables());
    artifact.signature("infer", &infer.concrete(&scope, &x).unwrap(), &["x"], &["logits"]).unwrap();
    artifact.signature("train", &step(&model, &sgd).concrete(&scope, &(x, y)).unwrap(), &["x", "y"], &["loss"]).unwrap();
    artifact.to_bytes().unwrap()
}

#[test]
fn export_is_reproducible() {
    assert!(*exported() == *exported());
}

#[test]
fn variables_stay_in_flash_until_a_loaded_signature_assigns_them() {
    let bytes = exported();
    let infer = Program::load(&bytes, ops::KERNELS, &["infer"]).unwrap().arena_bytes();
    let both = Program::load(&bytes, ops::KERNELS, &["infer", "train"]).unwrap().arena_bytes();
    let weights = 4 * (5 * 6 + 6 + 6 * 3 + 3);
    assert!(both >= infer + weights, "{infer} and {both}");
    assert!(infer < weights);
}

#[test]
fn the_arena_is_as_planned() {
    let bytes = exported();
    let program = Program::load(&bytes, ops::KERNELS, &["infer", "train"]).unwrap();
    let planned = program.arena_bytes();
    let mut arena = AlignedBytes::zeroed(planned + 64);
    let touched = [0x55u8, 0xaa].map(|paint| {
        arena.fill(paint);
        let mut session = Session::new(&program, &mut arena).unwrap();
        for name in ["infer", "train"] {
            let signature = program.signature(name).unwrap();
            session.input_mut::<f32>(signature, 0).unwrap().fill(0.3);
            if name == "train" {
                session.input_mut::<i32>(signature, 1).unwrap().fill(2);
            }
            session.run(signature).unwrap();
        }
        arena.iter().rposition(|&byte| byte != paint).unwrap() + 1
    });
    assert_eq!(touched.iter().max(), Some(&planned), "the last planned byte is used, and none after it");
    let short = Session::new(&program, &mut arena[..planned - 1]).map(drop).unwrap_err();
    assert_eq!(short, Error::ArenaTooSmall { needed: planned as u32, got: planned as u32 - 1 });
    assert_eq!(Session::new(&program, &mut arena[1..]).map(drop).unwrap_err(), Error::Misaligned);
}

/// No instruction overwrites scratch bytes of a value that a later instruction reads.
#[test]
fn no_two_live_tensors_overlap() {
    for signature in Description::read(&exported()).unwrap().signatures {
        for (index, instruction) in signature.instructions.iter().enumerate() {
            for written in instruction.outputs.iter().filter(|operand| operand.space == Space::Scratch) {
                let end = |operand: &gradlet_core::artifact::describe::OperandInfo| operand.location + operand.bytes;
                for later in &signature.instructions[index + 1..] {
                    let overlaps = |read: &&gradlet_core::artifact::describe::OperandInfo| {
                        read.space == Space::Scratch && read.location < end(written) && written.location < end(read)
                    };
                    for read in later.inputs.iter().filter(overlaps) {
                        assert_eq!((read.location, read.bytes), (written.location, written.bytes), "{}: {}", signature.name, later.op);
                    }
                    if later
                        .outputs
                        .iter()
                        .any(|output| output.space == Space::Scratch && output.location < end(written) && written.location < end(output))
                    {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_bad_label_changes_no_weight() {
    let bytes = exported();
    let program = Program::load(&bytes, ops::KERNELS, &["train"]).unwrap();
    let train = program.signature("train").unwrap();
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena).unwrap();
    let all = |session: &Session<'_, '_>| {
        (0..session.variable_count()).map(|index| session.variable(index).unwrap().to_vec()).collect::<Vec<_>>()
    };
    let before = all(&session);
    session.input_mut::<i32>(train, 1).unwrap().fill(3);
    let error = session.run(train).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 0, value: 3, limit: 3, .. }), "{error}");
    assert_eq!(before, all(&session));
}

#[test]
fn a_missing_kernel_is_named() {
    let bytes = exported();
    let kernels: Vec<&Kernel> = ops::KERNELS.iter().copied().filter(|kernel| kernel.def.name != "relu").collect();
    let Err(Error::MissingKernel { kernel }) = Program::load(&bytes, &kernels, &["infer"]).map(drop) else { panic!("it loads") };
    assert_eq!(missing_kernel(&bytes, kernel), Some(("relu", DType::F32)));
}

#[test]
fn functions_are_cached_by_type_and_host_value() {
    let scope = Eager::new(&ops::portable_cpu());
    let scaled = Function::new(|scope: &dyn Scope, (x, factor): (Tensor, f32)| x.mul(&Tensor::scalar(&scope.device(), factor)));
    let x = |dims: &[u32]| Tensor::full(&ops::portable_cpu(), 2.0f32, dims).unwrap();
    for (dims, factor, traces) in [(&[2][..], 3.0, 1), (&[2], 3.0, 1), (&[2], 4.0, 2), (&[1, 2], 3.0, 3)] {
        let y = scaled.call(&scope, (x(dims), factor)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [2.0 * factor; 2]);
        assert_eq!(scaled.traces(), traces);
    }
}

#[test]
fn variables_can_be_created_in_the_first_trace_only() {
    let scope = Eager::new(&ops::portable_cpu());
    let create = Function::new(|scope: &dyn Scope, x: Tensor| {
        let variable = Variable::new(scope, "v", &Tensor::scalar(&scope.device(), 1.0f32))?;
        scope.read(&variable)?.add(&x)
    });
    let x = |dims: &[u32]| Tensor::full(&ops::portable_cpu(), 2.0f32, dims).unwrap();
    assert_eq!(create.call(&scope, x(&[])).unwrap().item::<f32>().unwrap(), 3.0);
    assert_eq!(create.call(&scope, x(&[1])).unwrap_err().root(), &Error::LateVariable);
}

/// Runs a function on two variables. Returns its result and the variables' values after it.
fn variables(body: impl Fn(&dyn Scope, &Variable, &Variable) -> Result<Tensor> + Send + Sync + 'static) -> [f32; 3] {
    let scope = Eager::new(&ops::portable_cpu());
    let variable = |value: f32| Variable::new(&scope, "v", &Tensor::scalar(&scope.device(), value)).unwrap();
    let (a, b) = (variable(1.0), variable(2.0));
    let (in_a, in_b) = (a.clone(), b.clone());
    let result = Function::new(move |scope: &dyn Scope, (): ()| body(scope, &in_a, &in_b)).call(&scope, ()).unwrap();
    [result, scope.read(&a).unwrap(), scope.read(&b).unwrap()].map(|tensor| tensor.item().unwrap())
}

#[test]
fn variables_are_versioned() {
    let swapped = variables(|scope, a, b| {
        let (old_a, old_b) = (scope.read(a)?, scope.read(b)?);
        scope.assign(a, &old_b)?;
        scope.assign(b, &old_a)?;
        scope.read(a)
    });
    assert_eq!(swapped, [2.0, 2.0, 1.0]);
    let old_value_is_returned = variables(|scope, a, b| {
        let old = scope.read(a)?;
        scope.assign(a, &old.add(&scope.read(b)?)?)?;
        Ok(old)
    });
    assert_eq!(old_value_is_returned, [1.0, 3.0, 2.0]);
    let crossed = variables(|scope, a, b| {
        let (old_a, old_b) = (scope.read(a)?, scope.read(b)?);
        scope.assign(a, &old_b.mul(&old_b)?)?;
        scope.assign(b, &old_a.add(&old_a)?)?;
        old_a.add(&old_b)
    });
    assert_eq!(crossed, [3.0, 4.0, 2.0]);
    let twice = variables(|scope, a, b| {
        scope.assign(a, &scope.read(b)?)?;
        scope.assign(a, &scope.read(a)?.add(&scope.read(a)?)?)?;
        scope.assign(b, &scope.read(a)?)?;
        scope.read(b)
    });
    assert_eq!(twice, [4.0, 4.0, 4.0]);
}

#[test]
fn gradients_have_gradients() {
    let scope = Eager::new(&ops::portable_cpu());
    let outer = scope.tape();
    let x = outer.watch(&Tensor::scalar(&scope.device(), 3.0f32)).unwrap();
    let inner = outer.tape();
    let y = inner.watch(&x).unwrap();
    let cube = y.mul(&y).unwrap().mul(&y).unwrap();
    let first = inner.gradient(&cube, &y).unwrap().unwrap();
    assert_eq!(first.item::<f32>().unwrap(), 27.0);
    assert_eq!(outer.gradient(&first, &x).unwrap().unwrap().item::<f32>().unwrap(), 18.0);
}

#[test]
fn a_missing_gradient_is_an_error_and_not_zero() {
    let scope = Eager::new(&ops::portable_cpu());
    let tape = scope.tape();
    let x = tape.watch(&Tensor::full(&scope.device(), 1.0f32, &[2]).unwrap()).unwrap();
    let rate = Tensor::scalar(&scope.device(), 0.5f32);
    let stepped = tape.emit(&ops::sgd_step::OP, &[], &[&x, &x, &rate]).unwrap().remove(0);
    let error = tape.gradient(&stepped, &x).unwrap_err().to_string();
    assert!(error.contains("sgd_step has no gradient"), "{error}");
}

#[test]
fn a_tape_is_spent_by_its_gradient_and_a_persistent_one_is_not() {
    let scope = Eager::new(&ops::portable_cpu());
    let x = Tensor::scalar(&scope.device(), 3.0f32);
    let tape = scope.tape();
    let watched = tape.watch(&x).unwrap();
    let y = watched.mul(&watched).unwrap();
    assert!(tape.gradient(&y, &x).unwrap().is_none(), "x itself is not watched");
    assert_eq!(tape.gradient(&y, &watched).unwrap_err(), Error::SpentTape);
    let tape = scope.persistent_tape();
    let watched = tape.watch(&x).unwrap();
    let y = watched.mul(&watched).unwrap();
    for _ in 0..2 {
        assert_eq!(tape.gradient(&y, &watched).unwrap().unwrap().item::<f32>().unwrap(), 6.0);
    }
}

#[test]
fn a_tape_sees_what_others_assign() {
    let scope = Eager::new(&ops::portable_cpu());
    let scalar = |value: f32| Tensor::scalar(&scope.device(), value);
    let w = Variable::new(&scope, "w", &scalar(1.0)).unwrap();
    let tape = scope.persistent_tape();
    let before = tape.read(&w).unwrap();
    assert_eq!(before.item::<f32>().unwrap(), 1.0);
    scope.assign(&w, &scalar(5.0)).unwrap();
    let after = tape.read(&w).unwrap();
    assert_eq!(after.item::<f32>().unwrap(), 5.0);
    let gradient = tape.gradient(&before.mul(&after).unwrap(), &w).unwrap().unwrap();
    assert_eq!(gradient.item::<f32>().unwrap(), 6.0, "both reads count");
}

#[test]
fn watching_twice_keeps_the_chain() {
    let scope = Eager::new(&ops::portable_cpu());
    let tape = scope.tape();
    let x = tape.watch(&Tensor::scalar(&scope.device(), 3.0f32)).unwrap();
    let y = tape.watch(&x.mul(&x).unwrap()).unwrap();
    let gradient = tape.gradient(&y.mul(&y).unwrap(), &x).unwrap().unwrap();
    assert_eq!(gradient.item::<f32>().unwrap(), 108.0);
}

#[test]
fn a_refused_gradient_leaves_the_tape_whole() {
    let scope = Eager::new(&ops::portable_cpu());
    let tape = scope.tape();
    let x = tape.watch(&Tensor::scalar(&scope.device(), 3.0f32)).unwrap();
    let y = x.mul(&x).unwrap();
    assert!(tape.gradient(&Tensor::scalar(&scope.device(), 1i32), &x).is_err());
    let wrong = Tensor::full(&scope.device(), 1.0f32, &[2]).unwrap();
    assert!(tape.gradient_of(&[(&y, Some(&wrong))], &x).is_err());
    assert_eq!(tape.gradient(&y, &x).unwrap().unwrap().item::<f32>().unwrap(), 6.0);
}

#[test]
fn a_function_of_watched_tensors_is_recorded() {
    let scope = Eager::new(&ops::portable_cpu());
    let square = Function::new(|_: &dyn Scope, x: Tensor| x.mul(&x));
    let tape = scope.tape();
    let x = tape.watch(&Tensor::scalar(&scope.device(), 3.0f32)).unwrap();
    let y = square.call(&scope, x.clone()).unwrap();
    assert_eq!(tape.gradient(&y, &x).unwrap().unwrap().item::<f32>().unwrap(), 6.0);
    assert_eq!(square.traces(), 1);
}

#[test]
fn optimizers_take_f64_variables() {
    let scope = Eager::new(&ops::portable_cpu());
    for optimizer in [Box::new(Sgd::new(0.5)) as Box<dyn Optimizer>, Box::new(Adam::new(0.5))] {
        let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 3.0f64)).unwrap();
        let tape = scope.tape();
        let x = tape.read(&w).unwrap();
        let gradients = tape.gradient(&x.mul(&x).unwrap(), std::slice::from_ref(&w)).unwrap();
        optimizer.apply_gradients(&scope, &gradients).unwrap();
        assert!(scope.read(&w).unwrap().item::<f64>().unwrap() < 3.0);
    }
}

#[test]
fn a_concrete_function_wants_all_its_inputs() {
    let scope = Eager::new(&ops::portable_cpu());
    let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
    let concrete = double.concrete(&scope, &Tensor::scalar(&scope.device(), 1.0f32)).unwrap();
    assert_eq!(concrete.run(&[]).unwrap_err().to_string(), "the function takes 1 tensors, but got 0");
}

#[test]
fn errors_say_what_was_wrong_and_what_is_right() {
    let scope = Eager::new(&ops::portable_cpu());
    let tensor = |dims: &[u32]| Tensor::full(&scope.device(), 1.0f32, dims).unwrap();
    let error = tensor(&[2, 3]).matmul(&tensor(&[4, 5])).unwrap_err().to_string();
    assert!(error.starts_with("matmul(f32[2,3], f32[4,5]): dimension 0 of input 1 must be 3, not 4; usage: matmul("), "{error}");
    let variable = Variable::new(&scope, "w", &tensor(&[2])).unwrap();
    let error = scope.assign(&variable, &tensor(&[3])).unwrap_err().to_string();
    assert_eq!(error, "variable \"w\" is f32[2], so it cannot be set to f32[3]");
}
