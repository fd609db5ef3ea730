//! Models that train on a GPU: after some steps the weights are those of a CPU, and two runs have the same bits.

use crate::cnn::bytes;
use gradlet::applications::mobilenet_v2;
use gradlet::cuda::Options;
use gradlet_core::layers::{
    Activation, BatchNormalization, Conv2D, Dense, Flatten, LSTM, Layer, LayerNormalization, MaxPool2D, Module, MultiHeadAttention,
    Sequential,
};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::optimizers::{Adam, Optimizer, Sgd};
use gradlet_core::{Device, Differentiate, Eager, Function, Result, Scope, Shape, Tensor, ops};
use gradlet_tests::gpu::{self, Emulator};
use gradlet_tests::random::Random;
use std::sync::Arc;

/// A training run: a model, its optimizer, the dimensions of a batch, the number of classes, and the number of steps.
struct Training<M, O> {
    model: fn(&Eager) -> Result<M>,
    optimizer: fn() -> O,
    dims: &'static [u32],
    classes: u32,
    steps: u64,
}

impl<M: Layer + 'static, O: Optimizer + 'static> Training<M, O> {
    /// Trains on `device`. Returns the weights and the losses.
    fn on(&self, device: &Device) -> Result<(Vec<Tensor>, Vec<f32>)> {
        let scope = Eager::with_seed(device, 11);
        let (model, optimizer) = (Arc::new((self.model)(&scope)?), Arc::new((self.optimizer)()));
        model.build(&scope, &Shape::new(self.dims)?)?;
        optimizer.build(&scope, &*model)?;
        let trained = model.clone();
        let train = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
            let tape = scope.with_training(true).tape();
            let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&y, &trained.call(&tape, &x)?)?;
            optimizer.apply_gradients(scope, &tape.gradient(&loss, &trained.trainable_variables())?)?;
            Ok(loss)
        });
        let losses = (0..self.steps).map(|step| train.call(&scope, self.batch(device, step)?)?.item::<f32>());
        let losses = losses.collect::<Result<_>>()?;
        let weights = model.variables().iter().map(|variable| scope.read(variable)).collect::<Result<_>>()?;
        Ok((weights, losses))
    }

    fn batch(&self, device: &Device, step: u64) -> Result<(Tensor, Tensor)> {
        let mut random = Random::new(step);
        let numbers: Vec<f32> = (0..self.dims.iter().product::<u32>()).map(|_| random.unit() as f32 - 0.5).collect();
        let labels: Vec<i32> = (0..self.dims[0]).map(|_| random.below(self.classes as usize) as i32).collect();
        Ok((Tensor::new(device, &numbers, self.dims)?, Tensor::new(device, &labels, &[self.dims[0]])?))
    }

    /// Trains on a CPU and twice on a GPU, and compares.
    fn check(&self) -> Result<()> {
        self.check_on(gpu::device)
    }

    /// The same, on devices that `gpu` creates.
    fn check_on(&self, gpu: impl Fn() -> Result<Device>) -> Result<()> {
        let (wanted, losses) = self.on(&ops::portable_cpu())?;
        let (weights, own) = self.on(&gpu()?)?;
        let (again, _) = self.on(&gpu()?)?;
        for (index, (weight, other)) in weights.iter().zip(&again).enumerate() {
            assert!(bytes(weight) == bytes(other), "weight {index} has other bits in the second run");
        }
        for (index, (weight, wanted)) in weights.iter().zip(&wanted).enumerate() {
            let pairs = weight.to_vec::<f32>()?.into_iter().zip(wanted.to_vec::<f32>()?);
            let largest = pairs.map(|(own, wanted)| (own - wanted).abs()).fold(0.0, f32::max);
            assert!(largest <= 1e-4, "weight {index} differs by {largest}");
        }
        assert!(own.iter().zip(&losses).all(|(own, wanted)| (own - wanted).abs() <= 1e-4 * wanted.abs()), "{own:?}, on a CPU {losses:?}");
        assert!(own[0] != own[own.len() - 1], "{own:?}");
        Ok(())
    }
}

/// The demo's CNN, batch 2, 3 steps.
#[test]
fn the_demos_cnn_trains() -> Result<()> {
    let model = |_: &Eager| {
        let convolution = |filters| Conv2D::new(filters, [3, 3]).activation(Activation::Relu);
        let first = Sequential::new().with(convolution(8)).with(MaxPool2D::new([2, 2])).with(convolution(16)).with(MaxPool2D::new([2, 2]));
        Ok(first.with(Flatten).with(Dense::new(32).activation(Activation::Relu)).with(Dense::new(10)))
    };
    Training { model, optimizer: || Sgd::new(0.05), dims: &[2, 28, 28, 1], classes: 10, steps: 3 }.check()
}

/// An LSTM of 12 units over 8 steps of 6 features, batch 3, 3 steps of Adam.
#[test]
fn an_lstm_trains() -> Result<()> {
    let model = |_: &Eager| Ok(Sequential::new().with(LSTM::new(12)).with(Dense::new(4)));
    Training { model, optimizer: || Adam::new(0.01), dims: &[3, 8, 6], classes: 4, steps: 3 }.check()
}

/// Self-attention with 2 heads of 4 over 6 positions, batch 3, 3 steps of Adam.
#[test]
fn attention_trains() -> Result<()> {
    let model = |_: &Eager| Ok(Sequential::new().with(Dense::new(8)).with(MultiHeadAttention::new(2, 4)).with(Flatten).with(Dense::new(5)));
    Training { model, optimizer: || Adam::new(0.01), dims: &[3, 6, 7], classes: 5, steps: 3 }.check()
}

/// MobileNetV2 of width 0.35 for images of 32 × 32, batch 1, 2 steps.
#[test]
fn mobilenet_v2_trains() -> Result<()> {
    let model = |scope: &Eager| {
        let network = mobilenet_v2().input_shape([32, 32, 3]).alpha(0.35).classes(3);
        network.classifier_activation(Activation::Linear).build(scope)
    };
    Training { model, optimizer: || Sgd::new(0.01), dims: &[1, 32, 32, 3], classes: 3, steps: 2 }.check()
}

/// A device that is not strict ends groups with reductions: those of normalization, of a loss, and of the gradients of biases.
#[test]
fn normalization_trains_on_a_device_that_is_not_strict() -> Result<()> {
    let model = |_: &Eager| {
        let convolution = || Conv2D::new(6, [3, 3]).activation(Activation::Gelu);
        Ok(Sequential::new()
            .with(convolution())
            .with(BatchNormalization::default())
            .with(convolution())
            .with(LayerNormalization::default())
            .with(Flatten)
            .with(Dense::new(5)))
    };
    let training = Training { model, optimizer: || Sgd::new(0.05), dims: &[6, 9, 9, 2], classes: 5, steps: 3 };
    let emulator = Emulator::new()?;
    training.check_on(|| emulator.gpu()?.create("GPU:0", &Options { tf32: false, ..Options::default() }))?;
    assert!(emulator.kernels().iter().any(|line| line.contains("opening")), "{:?}", emulator.kernels());
    assert_eq!(emulator.report(), "");
    Ok(())
}
