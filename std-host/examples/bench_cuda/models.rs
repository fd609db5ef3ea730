//! Training steps and inference of models.

use super::{Request, Step, answered, numbers, once, random};
use gradlet::layers::{
    Activation, Add, Conv2D, Dense, Flatten, Functional, GlobalAveragePooling1D, LSTM, Layer, LayerNormalization, MaxPool2D,
    MultiHeadAttention, Padding, Sequential,
};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{DType, DTypePolicy, Differentiate, Eager, Function, Result, Scope, Shape, Tensor, applications};
use std::sync::Arc;

/// Number of classes where a request has no number for it.
const CLASSES: u32 = 10;

/// A model for batches with these dimensions.
struct Subject {
    model: Arc<dyn Layer>,
    dims: Vec<u32>,
    classes: u32,
}

/// Returns the measurement of a request, if it is for a model.
pub fn step(request: &Request<'_>, scope: &Eager) -> Result<Option<Step>> {
    let (name, is_inference) = request.work.strip_suffix("_infer").map_or((request.work, false), |name| (name, true));
    let Some(subject) = subject(name, &request.sizes, scope)? else { return Ok(None) };
    Ok(Some(match (is_inference, name) {
        (true, _) => inference(subject, scope, request.policy),
        (false, "batch_to_loss") => batch_to_loss(subject, scope, request.policy),
        (false, _) => training(subject, scope, request.policy)?,
    }))
}

fn subject(name: &str, sizes: &[u32], scope: &Eager) -> Result<Option<Subject>> {
    let mut classes = CLASSES;
    let (model, dims): (Arc<dyn Layer>, Vec<u32>) = match (name, sizes) {
        ("cnn", &[batch, filters, units]) => (Arc::new(cnn(filters, units)), vec![batch, 28, 28, 1]),
        ("lstm", &[batch, steps, features, units]) => {
            (Arc::new(Sequential::new().with(LSTM::new(units)).with(Dense::new(classes))), vec![batch, steps, features])
        }
        ("transformer", &[batch, positions, width, heads]) if heads > 0 => {
            (Arc::new(transformer(width, heads)), vec![batch, positions, width])
        }
        ("batch_to_loss", &[batch, features, units]) => (Arc::new(applications::mlp(&[units], classes)), vec![batch, features]),
        ("resnet8" | "mobilenet_v2", &[batch, side, percent, outputs]) => {
            classes = outputs;
            let network = if name == "resnet8" { applications::resnet8() } else { applications::mobilenet_v2() };
            let network = network.input_shape([side, side, 3]).alpha(f64::from(percent) / 100.0).classes(classes);
            (Arc::new(network.classifier_activation(Activation::Linear).build(scope)?), vec![batch, side, side, 3])
        }
        _ => return Ok(None),
    };
    model.build(scope, &Shape::new(&dims)?)?;
    Ok(Some(Subject { model, dims, classes }))
}

/// The book's CNN has 32 filters and 1024 units.
fn cnn(filters: u32, units: u32) -> Sequential {
    let conv = |filters| Conv2D::new(filters, [5, 5]).padding(Padding::Same).activation(Activation::Relu);
    Sequential::new()
        .with(conv(filters))
        .with(MaxPool2D::new([2, 2]))
        .with(conv(2 * filters))
        .with(MaxPool2D::new([2, 2]))
        .with(Flatten)
        .with(Dense::new(units).activation(Activation::Relu))
        .with(Dense::new(CLASSES))
}

/// A block with self-attention and an MLP of four times the width, each after a layer normalization and beside a shortcut. The mean over
/// the positions is classified.
fn transformer(width: u32, heads: u32) -> Functional {
    let (mut block, x) = (Functional::new("transformer"), Functional::INPUT);
    let normalized = block.layer("layer_normalization", LayerNormalization::default(), x);
    let attended = block.layer("attention", MultiHeadAttention::new(heads, width / heads), normalized);
    let x = block.merge("add", Add, &[x, attended]);
    let normalized = block.layer("layer_normalization", LayerNormalization::default(), x);
    let hidden = block.layer("hidden", Dense::new(4 * width).activation(Activation::Relu), normalized);
    let hidden = block.layer("output", Dense::new(width), hidden);
    let x = block.merge("add", Add, &[x, hidden]);
    let mean = block.layer("mean", GlobalAveragePooling1D::default(), x);
    block.layer("logits", Dense::new(CLASSES), mean);
    block
}

type Training = Function<(Tensor, Tensor), Tensor>;

/// Returns the compiled training step of a model.
fn traced(model: Arc<dyn Layer>, policy: DTypePolicy) -> Training {
    let adam = Adam::new(1e-3);
    Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.with_dtype_policy(policy).with_training(true).tape();
        let logits = model.call(&tape, &x)?.cast(DType::F32)?;
        let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&y, &logits)?;
        adam.apply_gradients(scope, &tape.gradient(&loss, &model.trainable_variables())?)?;
        Ok(loss)
    })
}

impl Subject {
    fn labels(&self) -> Vec<i32> {
        (0..self.dims[0]).map(|index| (index % self.classes) as i32).collect()
    }

    fn pixels(&self) -> Vec<f32> {
        numbers(self.dims.iter().product::<u32>() as usize)
    }
}

/// Returns the measurement of a training step whose batch is on the GPU.
fn training(subject: Subject, scope: &Eager, policy: DTypePolicy) -> Result<Step> {
    let device = scope.device();
    let y = Tensor::new(&device, &subject.labels(), &subject.dims[..1])?;
    let x = random(&device, &subject.dims)?;
    let (train, scope_of_calls) = (traced(subject.model, policy), scope.clone());
    Ok(once(scope, move || train.call(&scope_of_calls, (x.clone(), y.clone())).map(drop)))
}

/// Returns the measurement of a training step from a batch in memory of the host to the loss there.
fn batch_to_loss(subject: Subject, scope: &Eager, policy: DTypePolicy) -> Step {
    let (pixels, labels) = (subject.pixels(), subject.labels());
    let (train, scope_of_calls, dims) = (traced(subject.model, policy), scope.clone(), subject.dims);
    answered(scope, move || {
        let device = scope_of_calls.device();
        let (x, y) = (Tensor::new(&device, &pixels, &dims)?, Tensor::new(&device, &labels, &dims[..1])?);
        train.call(&scope_of_calls, (x, y))?.item::<f32>().map(drop)
    })
}

/// Returns the measurement of an inference from a picture in memory of the host to the logits there.
fn inference(subject: Subject, scope: &Eager, policy: DTypePolicy) -> Step {
    let pixels = subject.pixels();
    let (model, scope_of_calls, dims) = (subject.model, scope.clone(), subject.dims);
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(&scope.with_dtype_policy(policy), &x)?.cast(DType::F32));
    once(scope, move || {
        let x = Tensor::new(&scope_of_calls.device(), &pixels, &dims)?;
        infer.call(&scope_of_calls, x)?.to_vec::<f32>().map(drop)
    })
}
