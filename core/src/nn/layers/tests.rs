//! Checks that wrappers of layers forward every method, where layers are built, and which of them a summary lists.

use super::*;
use crate::autodiff::Differentiate;
use crate::base::error::Error;
use crate::base::sync::Lock;
use crate::function::Function;
use crate::nn::layers::module::Visitor;
use crate::ops::portable_cpu;
use crate::tensor::variable::Variable;
use crate::trace::eager::Eager;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// A layer that overrides every method and records the name of the called method. Its results differ from those of the default methods.
struct Own {
    visited: Variable,
    named: Variable,
    all: Variable,
    trained: Variable,
    calls: Lock<Vec<&'static str>>,
}

impl Own {
    fn new() -> Own {
        let [visited, named, all, trained] = ["visited", "named", "all", "trained"].map(Variable::deferred);
        Own { visited, named, all, trained, calls: Lock::new(Vec::new()) }
    }

    fn note(&self, method: &'static str) {
        self.calls.lock().push(method);
    }

    fn answer(&self, method: &'static str) -> Result<Tensor> {
        self.note(method);
        Ok(Tensor::scalar(&portable_cpu(), 1.0f32))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Module for Own {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.note("visit");
        visitor.module("visited", &self.visited);
    }
    fn named_variables(&self) -> Vec<(String, Variable)> {
        self.note("named_variables");
        vec![("its/name".into(), self.named.clone())]
    }
    fn variables(&self) -> Vec<Variable> {
        self.note("variables");
        vec![self.all.clone()]
    }
    fn trainable_variables(&self) -> Vec<Variable> {
        self.note("trainable_variables");
        vec![self.trained.clone()]
    }
    fn non_trainable_variables(&self) -> Vec<Variable> {
        self.note("non_trainable_variables");
        vec![self.named.clone()]
    }
    fn set_trainable(&self, _: bool) {
        self.note("set_trainable");
    }
    fn trainable(&self) -> bool {
        self.note("trainable");
        false
    }
    fn is_built(&self) -> bool {
        self.note("is_built");
        true
    }
}

#[deny(clippy::missing_trait_methods)]
impl Layer for Own {
    fn name(&self) -> &str {
        self.note("name");
        "own"
    }
    fn kind(&self) -> &str {
        self.note("kind");
        "Own"
    }
    fn dtype_policy(&self) -> Option<DTypePolicy> {
        self.note("dtype_policy");
        Some(DTypePolicy::Float16)
    }
    fn autocast(&self) -> bool {
        self.note("autocast");
        false
    }
    fn dtype(self, policy: DTypePolicy) -> WithPolicy<Own> {
        WithPolicy::new(self, policy)
    }
    fn build(&self, _: &dyn Scope, _: &Shape) -> Result<()> {
        self.note("build");
        Ok(())
    }
    fn call(&self, _: &dyn Scope, _: &Tensor) -> Result<Tensor> {
        self.answer("call")
    }
    fn apply(&self, _: &dyn Scope, _: &Tensor) -> Result<Tensor> {
        self.answer("apply")
    }
    fn ensure_built(&self, _: &dyn Scope, _: &Tensor) -> Result<()> {
        self.note("ensure_built");
        Ok(())
    }
    fn apply_as(&self, _: &str, _: &dyn Scope, _: &Tensor) -> Result<Tensor> {
        self.answer("apply_as")
    }
    fn output_type(&self, _: &dyn Scope, _: TensorType) -> Result<TensorType> {
        self.note("output_type");
        Ok(TensorType::BOOL)
    }
    fn summary(&self, _: &dyn Scope, _: &[u32]) -> Result<Summary> {
        self.note("summary");
        Err(crate::base::error::Error::message("its own"))
    }
}

/// Calls every method of `wrapper`, which contains nothing but `own`, and asserts that each call reaches the same method of `own`.
fn all_are_its_own(own: &Own, wrapper: &(impl Layer + ?Sized)) {
    let scope = Eager::new(&portable_cpu());
    let x = Tensor::scalar(&portable_cpu(), 1.0f32);
    let seen = |method: &str| {
        let calls = core::mem::take(&mut *own.calls.lock());
        assert_eq!(calls, [method]);
    };
    seen_by(own, wrapper);
    assert!(!wrapper.trainable());
    seen("trainable");
    wrapper.name();
    seen("name");
    wrapper.kind();
    seen("kind");
    assert_eq!(wrapper.dtype_policy(), Some(DTypePolicy::Float16));
    seen("dtype_policy");
    assert!(!wrapper.autocast());
    seen("autocast");
    wrapper.build(&scope, x.shape()).unwrap();
    seen("build");
    wrapper.call(&scope, &x).unwrap();
    seen("call");
    wrapper.apply(&scope, &x).unwrap();
    seen("apply");
    wrapper.ensure_built(&scope, &x).unwrap();
    seen("ensure_built");
    wrapper.apply_as("other", &scope, &x).unwrap();
    seen("apply_as");
    wrapper.output_type(&scope, x.tensor_type()).unwrap();
    seen("output_type");
    assert_eq!(wrapper.summary(&scope, &[]).unwrap_err().to_string(), "its own");
    seen("summary");
}

/// Calls every method of a module that holds `own`.
fn seen_by(own: &Own, module: &(impl Module + ?Sized)) {
    struct Finds(Vec<Variable>);
    impl Visitor for Finds {
        fn variable(&mut self, variable: &Variable) {
            self.0.push(variable.clone());
        }
        fn module(&mut self, _: &str, module: &dyn Module) {
            module.visit(self);
        }
    }
    let mut finds = Finds(Vec::new());
    module.visit(&mut finds);
    assert_eq!(finds.0, core::slice::from_ref(&own.visited));
    let named = module.named_variables();
    let [(path, variable)] = named.as_slice() else { panic!("{named:?}") };
    assert!(path.ends_with("its/name") && *variable == own.named, "{named:?}");
    assert_eq!(module.variables(), core::slice::from_ref(&own.all));
    assert_eq!(module.trainable_variables(), core::slice::from_ref(&own.trained));
    assert_eq!(module.non_trainable_variables(), core::slice::from_ref(&own.named));
    module.set_trainable(false);
    assert!(module.is_built());
    let calls = core::mem::take(&mut *own.calls.lock());
    let all = ["visit", "named_variables", "variables", "trainable_variables", "non_trainable_variables", "set_trainable", "is_built"];
    assert_eq!(calls, all);
}

#[test]
fn what_wraps_a_layer_forwards_every_method() {
    let own = Shared::new(Own::new());
    all_are_its_own(&own, &*own);
    all_are_its_own(&own, &&*own);
    all_are_its_own(&own, &own);
    all_are_its_own(&own, &Box::new(own.clone()));
    let layer: Shared<dyn Layer> = own.clone();
    all_are_its_own(&own, &layer);
    let layer: Box<dyn Layer> = Box::new(layer);
    all_are_its_own(&own, &layer);
    all_are_its_own(&own, &&layer);
}

#[test]
fn what_holds_a_module_asks_it() {
    #[derive(crate::nn::layers::Module)]
    struct Derived<M> {
        inner: M,
        width: u32,
    }
    #[derive(crate::nn::layers::Module)]
    struct Newtype<M>(M);

    let own = Shared::new(Own::new());
    seen_by(&own, &Some(own.clone()));
    seen_by(&own, &vec![own.clone()]);
    seen_by(&own, core::array::from_ref(&own));
    seen_by(&own, &(own.clone(),));
    seen_by(&own, &BTreeMap::from([(String::from("key"), own.clone())]));
    seen_by(&own, &Newtype(own.clone()));
    seen_by(&own, &Derived { inner: Newtype(own.clone()), width: 3 });
    let sequential = Sequential::new().with(own.clone());
    own.calls.lock().clear();
    seen_by(&own, &sequential);
    seen_by(&own, &Newtype(sequential));
    let mut functional = Functional::new("functional");
    functional.layer("own", own.clone(), Functional::INPUT);
    own.calls.lock().clear();
    seen_by(&own, &functional);
}

/// A layer that keeps a tensor that `build` computes in its scope.
#[derive(crate::nn::layers::Module)]
struct Offset {
    factor: Variable,
    #[module(skip)]
    offset: Lock<Option<Tensor>>,
}

impl Offset {
    fn new() -> Shared<Offset> {
        Shared::new(Offset { factor: Variable::deferred("factor"), offset: Lock::default() })
    }
}

impl Layer for Offset {
    fn name(&self) -> &str {
        "offset"
    }
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let ones = Tensor::full(&scope.device(), 1.0f32, input.dims())?;
        *self.offset.lock() = scope.emit(&crate::ops::add::OP, &[], &[&ones, &ones])?.pop();
        self.factor.create(scope, &Tensor::scalar(&scope.device(), 3.0f32))
    }
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let offset = self.offset.lock().clone().ok_or(Error::Unbuilt)?;
        x.mul(&scope.read(&self.factor)?)?.add(&offset)
    }
}

#[test]
fn a_layer_is_built_outside_of_traces_and_tapes() {
    let scope = Eager::new(&portable_cpu());
    let x = Tensor::full(&scope.device(), 1.0f32, &[2]).unwrap();
    for layer in [Offset::new(), Offset::new()] {
        let inside = layer.clone();
        let f = Function::new(move |scope: &dyn Scope, x: Tensor| inside.apply(&scope.tape(), &x));
        assert_eq!(f.call(&scope, x.clone()).unwrap().to_vec::<f32>().unwrap(), [5.0; 2]);
        assert_eq!(layer.apply(&scope, &x).unwrap().to_vec::<f32>().unwrap(), [5.0; 2]);
        assert_eq!(layer.offset.lock().as_ref().unwrap().to_vec::<f32>().unwrap(), [2.0; 2]);
    }
}

#[test]
fn a_layer_that_is_built_in_a_trace_is_named_with_the_remedy() {
    let scope = Eager::new(&portable_cpu());
    let x = |dims: &[u32]| Tensor::full(&scope.device(), 1.0f32, dims).unwrap();
    // The second trace may not create variables.
    let layer = Offset::new();
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| if x.dims() == [1] { Ok(x) } else { layer.apply(scope, &x) });
    f.call(&scope, x(&[1])).unwrap();
    let error = f.call(&scope, x(&[2])).unwrap_err().to_string();
    assert!(error.contains("layer \"offset\": variable \"factor\": variables can be created only"), "{error}");
    assert!(error.ends_with("create them, or call their layer once, before calling the function"), "{error}");
    // `build` itself takes any scope.
    let layer = Offset::new();
    let inside = layer.clone();
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| inside.build(scope, x.shape()).map(|()| x));
    f.call(&scope, x(&[2])).unwrap();
    let error = layer.apply(&scope, &x(&[2])).unwrap_err().to_string();
    assert!(error.contains("layer \"offset\": add(f32[2], f32[2]): tensor f32[2]: the tensor belongs to a trace"), "{error}");
    assert!(error.contains("let the function return it, or create it outside of the function"), "{error}");
}

/// A model that calls its layers with more than one input.
#[derive(crate::nn::layers::Module)]
struct Recurrent {
    encoder: LSTM,
    decoder: LSTM,
    attention: MultiHeadAttention,
    cell: GRUCell,
}

impl Layer for Recurrent {
    fn name(&self) -> &str {
        "recurrent"
    }
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let encoded = self.encoder.run(scope, x, None, None)?;
        let length = Tensor::scalar(&scope.device(), 3i32);
        let decoded = self.decoder.run_first(scope, x, &length, Some(&encoded.states))?;
        let (y, _) = self.attention.attend(scope, &Attend::new(&decoded.output, x))?;
        Ok(self.cell.call(scope, &y.sum(&[1], false)?, &[encoded.output])?.0)
    }
}

/// Keras counts 128 parameters for LSTM(4) of 3 features, 140 for MultiHeadAttention(2, 4), and 120 for GRU(4) of 4 features.
#[test]
fn layers_that_are_called_with_more_than_one_input_are_rows() {
    let scope = Eager::new(&portable_cpu());
    let model = Recurrent {
        encoder: LSTM::new(4),
        decoder: LSTM::new(4).return_sequences(true),
        attention: MultiHeadAttention::new(2, 4),
        cell: GRUCell::new(4),
    };
    let model = Sequential::new().with(LSTM::new(3).return_sequences(true)).with(MultiHeadAttention::new(1, 3)).with(model);
    let summary = model.summary(&scope, &[5, 3]).unwrap();
    let of = |layer: &LayerSummary| (layer.name.clone(), layer.kind.clone(), layer.depth, layer.output, layer.parameters.count);
    let row = |name: &str, kind: &str, depth, dims: &[u32], count| (name.into(), kind.into(), depth, Shape::new(dims).unwrap(), count);
    let rows = [
        row("lstm", "LSTM", 0, &[1, 5, 3], 84),
        row("multi_head_attention", "MultiHeadAttention", 0, &[1, 5, 3], 48),
        row("recurrent", "Recurrent", 0, &[1, 4], 516),
        row("encoder", "LSTM", 1, &[1, 4], 128),
        row("decoder", "LSTM", 1, &[1, 5, 4], 128),
        row("attention", "MultiHeadAttention", 1, &[1, 5, 4], 140),
        row("cell", "GRUCell", 1, &[1, 4], 120),
    ];
    assert_eq!(summary.layers.iter().map(of).collect::<Vec<_>>(), rows);
    assert_eq!(summary.parameters().count, 84 + 48 + 516);
}

#[test]
fn an_optimizer_trains_what_a_layer_lets_it_train() {
    use crate::nn::optimizers::{Adam, Optimizer};
    #[derive(crate::nn::layers::Module)]
    struct Model(Sequential);
    struct Frozen(Dense);
    impl Module for Frozen {
        fn visit(&self, visitor: &mut dyn Visitor) {
            self.0.visit(visitor);
        }
        fn trainable_variables(&self) -> Vec<Variable> {
            Vec::new()
        }
    }
    impl Layer for Frozen {
        fn name(&self) -> &str {
            "frozen"
        }
        fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
            self.0.build(scope, input)
        }
        fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
            self.0.call(scope, x)
        }
    }
    let scope = Eager::new(&portable_cpu());
    let model = Model(Sequential::new().with(Frozen(Dense::new(2))).with(Dense::new(3)));
    let summary = model.0.summary(&scope, &[4]).unwrap();
    assert_eq!((summary.trainable.count, summary.non_trainable.count), (9, 10));
    let adam = Adam::new(0.1);
    adam.build(&scope, &model).unwrap();
    let paths: Vec<String> = adam.variables().iter().map(|variable| variable.name().to_string()).collect();
    assert!(paths.iter().any(|path| path.contains("dense_kernel")) && paths.iter().all(|path| !path.contains("frozen")), "{paths:?}");
}
