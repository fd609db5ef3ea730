//! Tests of optimizers, losses and metrics beyond the golden vectors: names and order of the state, options, and errors.

use gradlet_core::layers::{Dense, Layer, Module, Sequential};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::metrics::{Auc, Metric, Precision, SparseCategoricalAccuracy};
use gradlet_core::optimizers::schedules::{CosineDecay, ExponentialDecay, PiecewiseConstantDecay, Schedule};
use gradlet_core::optimizers::{Adam, Gradient, Nadam, Optimizer, RMSprop, Sgd};
use gradlet_core::{DType, Eager, Function, Result, Scope, Shape, Tensor, Variable, ops};

fn scope() -> Eager {
    Eager::new(&ops::portable_cpu())
}

fn tensor(values: &[f32]) -> Tensor {
    Tensor::new(&ops::portable_cpu(), values, &[values.len() as u32]).unwrap()
}

fn weight(scope: &dyn Scope, name: &str, values: &[f32]) -> Variable {
    Variable::new(scope, name, &tensor(values)).unwrap()
}

fn values(scope: &dyn Scope, variable: &Variable) -> Vec<f32> {
    scope.read(variable).unwrap().to_vec().unwrap()
}

fn names(optimizer: &dyn Optimizer) -> Vec<String> {
    optimizer.named_variables().into_iter().map(|(name, _)| name).collect()
}

fn model(scope: &dyn Scope) -> Sequential {
    let model = Sequential::new().with(Dense::new(2)).with(Dense::new(1));
    model.build(scope, &Shape::new(&[1, 3]).unwrap()).unwrap();
    model
}

fn error<T>(result: Result<T>) -> String {
    result.err().expect("it must fail").to_string()
}

#[test]
fn state_has_the_names_and_the_order_of_keras() {
    let scope = scope();
    let adam = Adam::default().amsgrad(true).use_ema(true);
    adam.build(&scope, &model(&scope)).unwrap();
    let paths = ["dense_kernel", "dense_bias", "dense_1_kernel", "dense_1_bias"];
    let slots =
        |kinds: &[&str]| -> Vec<String> { paths.iter().flat_map(|path| kinds.iter().map(move |kind| format!("{path}_{kind}"))).collect() };
    let common = vec!["iteration".to_string(), "learning_rate".to_string()];
    assert_eq!(names(&adam), [common.clone(), slots(&["average"]), slots(&["momentum", "velocity"]), slots(&["velocity_hat"])].concat());

    let rms = RMSprop::default().momentum(0.9).centered(true);
    rms.build(&scope, &model(&scope)).unwrap();
    assert_eq!(names(&rms), [common.clone(), slots(&["velocity"]), slots(&["momentum"]), slots(&["average_gradient"])].concat());

    let nadam = Nadam::new(ExponentialDecay::new(0.1, 10, 0.5));
    nadam.build(&scope, &model(&scope)).unwrap();
    assert_eq!(names(&nadam), [vec!["iteration".to_string()], slots(&["momentum", "velocity"]), vec!["variable".to_string()]].concat());
}

#[test]
fn variables_without_paths_are_numbered() {
    let scope = scope();
    let weights = [weight(&scope, "kernel", &[1.0]), weight(&scope, "bias", &[1.0]), weight(&scope, "kernel", &[1.0])];
    let sgd = Sgd::new(0.1).momentum(0.9);
    let gradients = weights.map(|weight| (weight, Some(tensor(&[1.0]))));
    sgd.apply_gradients(&scope, &gradients).unwrap();
    assert_eq!(names(&sgd)[2..], ["kernel_momentum", "bias_momentum", "kernel_1_momentum"]);
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let scope = scope();
    let (a, b) = (weight(&scope, "a", &[1.0, 2.0]), weight(&scope, "b", &[3.0]));
    let adam = Adam::new(0.1);
    let apply = |gradients: &[(&Variable, Option<Gradient>)]| {
        let gradients: Vec<_> = gradients.iter().map(|(variable, gradient)| ((*variable).clone(), gradient.clone())).collect();
        adam.apply(&scope, &gradients)
    };
    let gradient = |values: &[f32]| Some(Gradient::from(tensor(values)));
    let none = error(apply(&[(&a, None), (&b, None)]));
    assert_eq!(none, "no gradient for any variable: the loss depends on none of a, b");
    let shape = error(apply(&[(&a, gradient(&[1.0, 1.0])), (&b, gradient(&[1.0, 1.0]))]));
    assert_eq!(shape, "the gradient of variable \"b\" must have the type f32[1], but it is f32[2]");
    let indices = Tensor::new(&scope.device(), &[0i32, 1], &[2]).unwrap();
    let rows = error(apply(&[(&b, Some(Gradient::of_rows(indices, tensor(&[1.0]))))]));
    assert_eq!(rows, "the gradient of variable \"b\" must have the type f32[1], but it is f32[1] for the rows i32[2]");
    let unknown = error(apply(&[(&weight(&scope, "c", &[1.0]), gradient(&[1.0]))]));
    assert!(unknown.starts_with("variable \"c\" is not among those that the optimizer was built for"), "{unknown}");
    assert_eq!((values(&scope, &a), values(&scope, &b)), (vec![1.0, 2.0], vec![3.0]));
    let iterations = &adam.variables()[0];
    assert_eq!(scope.read(iterations).unwrap().item::<i64>().unwrap(), 0);

    let unbuilt = error(Sgd::new(0.1).apply_gradients(&scope, &[(Variable::deferred("w"), Some(tensor(&[1.0])))]));
    assert_eq!(unbuilt, "variable \"w\": the variable has no value yet: build the layer, or call the model once");
    assert!(Sgd::new(0.1).apply_gradients(&scope, &[]).is_ok());
}

#[test]
fn a_variable_without_a_gradient_stays() {
    let scope = scope();
    let (a, b) = (weight(&scope, "a", &[1.0]), weight(&scope, "b", &[1.0]));
    let sgd = Sgd::new(0.5).weight_decay(0.5);
    sgd.apply_gradients(&scope, &[(a.clone(), Some(tensor(&[1.0]))), (b.clone(), None)]).unwrap();
    assert_eq!((values(&scope, &a), values(&scope, &b)), (vec![0.25], vec![1.0]));
}

#[test]
fn options_that_contradict_are_refused() {
    let scope = scope();
    let step = |optimizer: Sgd| optimizer.apply_gradients(&scope, &[(weight(&scope, "w", &[1.0]), Some(tensor(&[1.0])))]);
    assert_eq!(error(step(Sgd::new(0.1).clipnorm(1.0).clipvalue(1.0))), "only one of clipnorm, global_clipnorm and clipvalue can be set");
    assert_eq!(error(step(Sgd::new(0.1).momentum(1.5))), "momentum must be between 0 and 1, not 1.5");
    assert_eq!(error(step(Sgd::new(0.1).use_ema(true).ema_momentum(-1.0))), "ema_momentum must be between 0 and 1, not -1");
    assert_eq!(error(step(Sgd::new(0.1).ema_overwrite_frequency(0))), "ema_overwrite_frequency must be at least 1, not 0");
    let schedule = error(step(Sgd::new(CosineDecay::new(0.1, 0))));
    assert_eq!(schedule, "the learning rate: decay_steps must be more than 0, but it is 0");
    let falling = PiecewiseConstantDecay::new(&[3, 1], &[0.1, 0.2, 0.3]).rate(&Tensor::scalar(&scope.device(), 0i64));
    assert_eq!(error(falling), "the boundaries [3, 1] are not in increasing order");
    let short = PiecewiseConstantDecay::new(&[3], &[0.1]).rate(&Tensor::scalar(&scope.device(), 0i64));
    assert_eq!(error(short), "there must be 2 values, one more than boundaries, not 1");
}

#[test]
fn decay_can_leave_variables_out() {
    let scope = scope();
    let (kernel, bias) = (weight(&scope, "kernel", &[1.0]), weight(&scope, "bias", &[1.0]));
    let sgd = Sgd::new(0.5).weight_decay(1.0).exclude_from_weight_decay(&["bias"]);
    let zero = Some(tensor(&[0.0]));
    sgd.apply_gradients(&scope, &[(kernel.clone(), zero.clone()), (bias.clone(), zero)]).unwrap();
    assert_eq!((values(&scope, &kernel), values(&scope, &bias)), (vec![0.5], vec![1.0]));
}

#[test]
fn averages_are_put_in_place_at_the_end() {
    let scope = scope();
    let w = weight(&scope, "w", &[1.0]);
    let sgd = Sgd::new(1.0).use_ema(true).ema_momentum(0.5);
    for _ in 0..2 {
        sgd.apply_gradients(&scope, &[(w.clone(), Some(tensor(&[1.0])))]).unwrap();
    }
    assert_eq!(values(&scope, &w), [-1.0]);
    sgd.finalize_variable_values(&scope).unwrap();
    assert_eq!(values(&scope, &w), [-0.5]);
}

#[test]
fn the_learning_rate_can_be_set_also_of_a_compiled_step() {
    let scope = scope();
    let w = weight(&scope, "w", &[1.0]);
    let (stepped, sgd) = (w.clone(), std::sync::Arc::new(Sgd::new(0.5)));
    let optimizer = sgd.clone();
    let step = Function::new(move |scope: &dyn Scope, gradient: Tensor| {
        optimizer.apply_gradients(scope, &[(stepped.clone(), Some(gradient.clone()))])?;
        Ok(gradient)
    });
    assert_eq!(sgd.learning_rate(&scope).unwrap().item::<f32>().unwrap(), 0.5);
    step.call(&scope, tensor(&[1.0])).unwrap();
    sgd.set_learning_rate(&scope, 0.25).unwrap();
    step.call(&scope, tensor(&[1.0])).unwrap();
    assert_eq!(values(&scope, &w), [0.25]);
    assert_eq!(step.traces(), 1);

    let scheduled = Sgd::new(ExponentialDecay::new(0.5, 1, 0.5));
    assert_eq!(scheduled.learning_rate(&scope).unwrap().item::<f32>().unwrap(), 0.5);
    assert_eq!(error(scheduled.set_learning_rate(&scope, 0.1)), "the optimizer has a schedule, so its learning rate cannot be set");
}

#[test]
fn a_compiled_step_follows_its_schedule() {
    let scope = scope();
    let w = weight(&scope, "w", &[0.0]);
    let (stepped, sgd) = (w.clone(), Sgd::new(ExponentialDecay::new(1.0, 1, 0.5)));
    let step = Function::new(move |scope: &dyn Scope, gradient: Tensor| {
        sgd.apply_gradients(scope, &[(stepped.clone(), Some(gradient.clone()))])?;
        Ok(gradient)
    });
    (0..4).for_each(|_| drop(step.call(&scope, tensor(&[-1.0])).unwrap()));
    assert_eq!(values(&scope, &w), [1.875]);
}

#[test]
fn gradients_of_rows_are_added() {
    let scope = scope();
    let w = Variable::new(&scope, "w", &Tensor::full(&scope.device(), 1.0f32, &[3, 2]).unwrap()).unwrap();
    let indices = Tensor::new(&scope.device(), &[2i64, 0, 2], &[3]).unwrap();
    let rows = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
    Sgd::new(1.0).apply(&scope, &[(w.clone(), Some(Gradient::of_rows(indices, rows)))]).unwrap();
    assert_eq!(values(&scope, &w), [-2.0, -3.0, 1.0, 1.0, -5.0, -7.0]);
}

#[test]
fn a_label_out_of_range_is_named() {
    let scope = scope();
    let labels = Tensor::new(&scope.device(), &[0i32, 7], &[2]).unwrap();
    let y_pred = Tensor::full(&scope.device(), 0.5f32, &[2, 3]).unwrap();
    let text = error(SparseCategoricalCrossentropy::default().call(&labels, &y_pred));
    assert!(text.contains("at position 1 is 7, but must be at least 0 and less than 3"), "{text}");
}

#[test]
fn losses_of_small_floats_are_f32() {
    let scope = scope();
    let labels = Tensor::new(&scope.device(), &[1i32], &[1]).unwrap();
    let y_pred = Tensor::new(&scope.device(), &[0.0f32, 0.0], &[1, 2]).unwrap().cast(DType::F16).unwrap();
    let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&labels, &y_pred).unwrap();
    assert_eq!(loss.item::<f32>().unwrap(), std::f32::consts::LN_2);
}

#[test]
fn metrics_run_traced() {
    let scope = scope();
    let metrics = std::sync::Arc::new((SparseCategoricalAccuracy::default(), Precision::default(), Auc::default()));
    let traced = metrics.clone();
    let update = Function::new(move |scope: &dyn Scope, (y_true, y_pred): (Tensor, Tensor)| {
        traced.1.update_state(scope, &y_true, &y_pred)?;
        traced.2.update_state(scope, &y_true, &y_pred)?;
        let both = Tensor::stack(&[y_pred.like(1.0)?.sub(&y_pred)?, y_pred.clone()], -1)?;
        traced.0.update_state(scope, &y_true, &both)?;
        Tensor::stack(&[traced.0.result(scope)?, traced.1.result(scope)?, traced.2.result(scope)?], 0)
    });
    let batch = |labels: &[f32], predictions: &[f32]| update.call(&scope, (tensor(labels), tensor(predictions))).unwrap();
    assert_eq!(batch(&[0.0, 1.0], &[0.25, 0.75]).to_vec::<f32>().unwrap(), [1.0, 1.0, 1.0]);
    assert_eq!(batch(&[1.0, 0.0], &[0.375, 0.625]).to_vec::<f32>().unwrap(), [0.5, 0.5, 0.75]);
    metrics.0.reset_state(&scope).unwrap();
    assert_eq!(metrics.0.result(&scope).unwrap().item::<f32>().unwrap(), 0.0);
}

#[test]
fn metrics_refuse_what_they_cannot_count() {
    let scope = scope();
    let update = |metric: &dyn Metric| metric.update_state(&scope, &tensor(&[1.0]), &tensor(&[0.5]));
    assert_eq!(error(update(&Precision::default().thresholds(&[0.5, 1.5]))), "thresholds must be between 0 and 1, not [0.5, 1.5]");
    assert_eq!(
        error(update(&Precision::default().class_id(2))),
        "class_id 2 needs predictions of shape [samples, classes] with more than 2 classes, not [1]"
    );
    assert_eq!(error(update(&Auc::default().num_thresholds(1))), "num_thresholds must be more than 1, not 1");
}
