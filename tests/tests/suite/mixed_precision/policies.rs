//! Policies: which layers have which, and what they cast.

use gradlet_core::layers::*;
use gradlet_core::{DType, DTypePolicy, Differentiate, Eager, Function, Result, Scope, Shape, Tensor, Variable, ops};
use std::sync::Arc;

fn scope() -> Eager {
    Eager::with_seed(&ops::portable_cpu(), 1)
}

fn ones(scope: &Eager, dims: &[u32]) -> Tensor {
    Tensor::full(&scope.device(), 1.0f32, dims).unwrap()
}

fn dtypes(module: &dyn Module) -> Vec<DType> {
    module.variables().iter().map(|variable| variable.tensor_type().unwrap().dtype).collect()
}

/// A layer whose output tells what it received: its input plus its weight plus the number of earlier calls.
#[derive(Module)]
struct Told {
    weight: Variable,
    calls: Variable,
}

impl Told {
    fn new() -> Told {
        Told { weight: Variable::deferred("weight"), calls: Variable::untrained("calls") }
    }
}

impl Layer for Told {
    fn name(&self) -> &str {
        "told"
    }

    fn build(&self, scope: &dyn Scope, _: &Shape) -> Result<()> {
        self.weight.create(scope, &Initializer::constant(0.1).call(scope, &[])?)?;
        self.calls.create(scope, &Initializer::zeros().call(scope, &[])?)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (weight, calls) = (scope.read(&self.weight)?, scope.read(&self.calls)?);
        scope.assign(&self.calls, &calls.add_scalar(1.0)?)?;
        scope.assign_add(&self.calls, &x.like(0.5)?)?;
        x.add(&weight)?.add(&calls)
    }
}

/// A user's layer needs no code for policies: inputs and variables arrive in the compute dtype, and assigned values are cast back.
#[test]
fn a_layer_of_the_user_computes_in_16_bits() {
    let scope = scope();
    for (policy, compute, variable) in [
        (DTypePolicy::Float32, DType::F32, DType::F32),
        (DTypePolicy::Float64, DType::F64, DType::F64),
        (DTypePolicy::Float16, DType::F16, DType::F16),
        (DTypePolicy::Bfloat16, DType::Bf16, DType::Bf16),
        (DTypePolicy::MixedFloat16, DType::F16, DType::F32),
        (DTypePolicy::MixedBfloat16, DType::Bf16, DType::F32),
    ] {
        let layer = Told::new().dtype(policy);
        assert_eq!((layer.dtype_policy(), layer.name(), layer.kind()), (Some(policy), "told", "Told"));
        for input in [DType::F32, DType::F64, DType::F16] {
            let x = ones(&scope, &[2]).cast(input).unwrap();
            assert_eq!(layer.apply(&scope, &x).unwrap().dtype(), compute, "{policy}");
        }
        assert_eq!(dtypes(&layer), [variable; 2], "{policy}");
        assert_eq!(scope.read(&layer.calls).unwrap().cast(DType::F32).unwrap().item::<f32>().unwrap(), 4.5);
        // Outside of the layer, the variable is as it is.
        assert_eq!(scope.with_dtype_policy(policy).read(&layer.weight).unwrap().dtype(), variable);
    }
}

/// A container's policy holds for the layers inside that have none of their own.
#[test]
fn the_innermost_policy_counts() {
    let scope = scope();
    let inner = Sequential::new().with(Dense::new(3)).with(BatchNormalization::default());
    let other = Sequential::new().with(Dense::new(3)).dtype(DTypePolicy::MixedBfloat16);
    let layers = Arc::new(Sequential::new().with(inner).with(other).with(Dense::new(2).dtype(DTypePolicy::Float32)));
    let model = layers.clone().dtype(DTypePolicy::MixedFloat16);
    assert_eq!(model.apply(&scope, &ones(&scope, &[2, 4])).unwrap().dtype(), DType::F32);
    assert_eq!(dtypes(&model), [DType::F32; 10]);
    let mixed = scope.with_dtype_policy(DTypePolicy::MixedFloat16);
    let (mut x, mut outputs) = (ones(&scope, &[2, 4]), Vec::new());
    for (name, layer) in layers.layers() {
        x = layer.apply_as(name, &mixed, &x).unwrap();
        outputs.push(x.dtype());
    }
    assert_eq!(outputs, [DType::F16, DType::Bf16, DType::F32]);
    // A policy changes neither names nor sizes.
    let names: Vec<String> = model.named_variables().into_iter().map(|(name, _)| name).collect();
    assert_eq!((names[0].as_str(), names[9].as_str()), ("sequential/dense/kernel", "dense/bias"));
    let total = model.summary(&scope, &[4]).unwrap().parameters();
    assert_eq!((total.count, total.bytes), (47, 188));
}

/// Shortcuts join values of several types in the compute dtype. The moving statistics of a mixed model are f32, and change in f32.
#[test]
fn merged_values_have_one_type() {
    let scope = scope();
    let mut model = Functional::new("residual");
    let x = model.layer("wide", Dense::new(4).dtype(DTypePolicy::Float32), Functional::INPUT);
    let y = model.layer("normal", BatchNormalization::default().momentum(0.5), x);
    model.merge("sum", Add, &[x, y, Functional::INPUT]);
    let model = model.dtype(DTypePolicy::MixedFloat16);
    let x = Tensor::new(&scope.device(), &[0.1f32, 0.2, 0.3, 0.4], &[1, 4]).unwrap();
    assert_eq!(model.apply(&scope.with_training(true), &x).unwrap().dtype(), DType::F16);
    let moved = scope.read(&model.non_trainable_variables()[0]).unwrap().to_vec::<f32>().unwrap();
    let [kernel, ..] = &model.variables()[..] else { panic!("the model has variables") };
    let batch = x.matmul(&scope.read(kernel).unwrap()).unwrap().cast(DType::F16).unwrap().cast(DType::F32).unwrap();
    assert_eq!(moved, batch.mul_scalar(0.5).unwrap().to_vec::<f32>().unwrap());
}

/// A function is traced once for each policy. A tape and a function in a layer inherit its policy.
#[test]
fn functions_and_tapes_inherit_the_policy() {
    let scope = scope();
    let layer = Arc::new(Dense::new(3));
    let called = layer.clone();
    let f = Arc::new(Function::new(move |scope: &dyn Scope, x: Tensor| called.apply(scope, &x)));
    let x = ones(&scope, &[2, 4]);
    for policy in [DTypePolicy::Float32, DTypePolicy::MixedFloat16, DTypePolicy::MixedBfloat16, DTypePolicy::MixedFloat16] {
        assert_eq!(f.call(&scope.with_dtype_policy(policy), x.clone()).unwrap().dtype(), policy.compute_dtype());
        let tape = scope.with_dtype_policy(policy).tape();
        let y = f.call(&tape, x.clone()).unwrap();
        assert_eq!(y.dtype(), policy.compute_dtype());
        // The gradients of f32 variables are f32.
        let gradients = tape.gradient(&y, &layer.variables()).unwrap();
        assert!(gradients.iter().all(|(_, gradient)| gradient.as_ref().unwrap().dtype() == DType::F32), "{policy}");
    }
    assert_eq!(f.traces(), 3);

    struct Penalised(Arc<Function<Tensor, Tensor>>, Arc<Dense>);
    impl Module for Penalised {
        fn visit(&self, visitor: &mut dyn Visitor) {
            self.1.visit(visitor);
        }
    }
    impl Layer for Penalised {
        fn name(&self) -> &str {
            "penalised"
        }
        fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
            let tape = scope.tape();
            let x = tape.watch(x)?;
            let weight = tape.read(&self.1.variables()[0])?;
            let y = self.0.call(&tape, x.clone())?;
            assert_eq!((x.dtype(), weight.dtype(), y.dtype()), (DType::F16, DType::F16, DType::F16));
            tape.gradient(&y, &x)?.ok_or_else(|| gradlet_core::Error::message("no gradient"))
        }
    }
    let penalised = Penalised(f, layer).dtype(DTypePolicy::MixedFloat16);
    assert_eq!(penalised.apply(&scope, &x).unwrap().dtype(), DType::F16);
}

/// States of a stateful layer are variables of f32, given and returned states are of the compute dtype.
#[test]
fn states_are_kept_in_f32() {
    let scope = scope();
    let (x, state) = (ones(&scope, &[1, 3, 2]), ones(&scope, &[1, 4]));
    let layer = GRU::new(4).stateful(true).dtype(DTypePolicy::MixedFloat16);
    let first = layer.apply(&scope, &x).unwrap();
    let kept = scope.read(layer.variables().last().unwrap()).unwrap();
    assert_eq!((first.dtype(), kept.dtype()), (DType::F16, DType::F32));
    assert_eq!(first.cast(DType::F32).unwrap().to_vec::<f32>().unwrap(), kept.to_vec::<f32>().unwrap());
    let mixed = scope.with_dtype_policy(DTypePolicy::MixedFloat16);
    let sequence = layer.run(&mixed, &x, Some(std::slice::from_ref(&state)), None).unwrap();
    assert_eq!((sequence.output.dtype(), sequence.states[0].dtype()), (DType::F16, DType::F16));
    let (y, states) = layer.cell().call(&mixed, &ones(&scope, &[1, 2]), &[state]).unwrap();
    assert_eq!((y.dtype(), states[0].dtype()), (DType::F16, DType::F16));
}
