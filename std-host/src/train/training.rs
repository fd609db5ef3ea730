//! Training of classifiers.

use crate::train::model::{Compile, Model};
use gradlet_core::layers::Layer;
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::metrics::SparseCategoricalAccuracy;
use gradlet_core::optimizers::Optimizer;
use gradlet_core::{Differentiate, Eager, Function, Result, Scope, Tensor, Variable};
use std::sync::Arc;

/// A compiled training step: from inputs `x` and labels `y` (i32) to the mean loss.
pub type Step = Function<(Tensor, Tensor), Tensor>;

/// Creates a training step of `model`, which must output logits. A step runs the model forward, computes the softmax cross-entropy,
/// differentiates it, and lets the optimizer update `variables`. An optimizer that scales the loss does so here. The step is traced once
/// for each shape of `x`.
///
/// ```
/// use gradlet::optimizers::Sgd;
/// use gradlet::{Eager, Scope, Tensor, train};
/// use gradlet::applications::ModelSpec;
/// use gradlet::layers::Module;
/// use std::sync::Arc;
/// let scope = Eager::new(&gradlet::cpu());
/// let model = Arc::new(ModelSpec::build(&"mlp:4-2".parse()?, &scope)?);
/// let step = train::step(&model, Arc::new(Sgd::new(0.5)), model.trainable_variables());
/// let (x, y) = (Tensor::full(&scope.device(), 1.0f32, &[3, 4])?, Tensor::full(&scope.device(), 1i32, &[3])?);
/// let first = step.call(&scope, (x.clone(), y.clone()))?.item::<f32>()?;
/// let second = step.call(&scope, (x, y))?.item::<f32>()?;
/// assert!(second < first);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn step(model: &Arc<impl Layer + 'static>, optimizer: Arc<dyn Optimizer>, variables: Vec<Variable>) -> Step {
    let model = model.clone();
    Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.tape();
        let loss = loss().call(&y, &model.apply(&tape, &x)?)?;
        let gradients = tape.gradient(&optimizer.scale_loss(scope, &loss)?, &variables)?;
        optimizer.apply_gradients(scope, &gradients)?;
        Ok(loss)
    })
}

/// Returns the loss for models that output logits.
fn loss() -> SparseCategoricalCrossentropy {
    SparseCategoricalCrossentropy::default().from_logits(true)
}

/// Creates a [`Model`] of `layer`, which must output logits, and compiles it with `optimizer`. The loss is the softmax
/// cross-entropy with integer labels, and the metric is `accuracy`.
///
/// ```
/// use gradlet::optimizers::Sgd;
/// use gradlet::{Eager, applications, train};
/// let scope = Eager::new(&gradlet::cpu());
/// let model = train::classifier(&scope, applications::mlp(&[8], 2), Sgd::new(0.5))?;
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn classifier(scope: &Eager, layer: impl Layer + 'static, optimizer: impl Optimizer + 'static) -> Result<Model> {
    let mut model = Model::new(scope, layer);
    model.compile(Compile::new(optimizer, loss()).metric("accuracy", SparseCategoricalAccuracy::default()))?;
    Ok(model)
}
