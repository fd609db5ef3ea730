//! A small CNN, for the tests of devices that hide their memory and of GPUs.

use gradlet_core::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Sequential};
use gradlet_core::optimizers::{Optimizer, Sgd};
use gradlet_core::{Device, Differentiate, Eager, Function, Result, Scope, Shape, Tensor, Variable};
use gradlet_tests::random::Random;
use std::sync::Arc;

/// The bytes of several tensors.
pub type Bits = Vec<Vec<u8>>;

/// A compiled training step, from images and labels to the loss.
pub type Step = Function<(Tensor, Tensor), Tensor>;

/// Number of samples in a batch.
pub const BATCH: u32 = 6;
/// Height and width of an image.
pub const SIDE: u32 = 8;

pub fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.bytes().unwrap().to_vec()
}

/// Returns random square images and their labels.
pub fn batch(device: &Device, seed: u64, side: u32) -> Result<(Tensor, Tensor)> {
    let mut random = Random::new(seed);
    let pixels: Vec<f32> = (0..BATCH * side * side).map(|_| random.unit() as f32).collect();
    let labels: Vec<i32> = (0..BATCH).map(|_| random.below(3) as i32).collect();
    Ok((Tensor::new(device, &pixels, &[BATCH, side, side, 1])?, Tensor::new(device, &labels, &[BATCH])?))
}

/// Returns the layers of a small CNN for three classes.
pub fn layers() -> Sequential {
    let convolution = Conv2D::new(4, [3, 3]).activation(Activation::Relu);
    Sequential::new().with(convolution).with(MaxPool2D::new([2, 2])).with(Flatten).with(Dense::new(3))
}

/// A small CNN and its optimizer, in a scope of a device.
pub struct Cnn {
    pub scope: Eager,
    pub model: Sequential,
    pub optimizer: Sgd,
    pub side: u32,
}

impl Cnn {
    /// Creates a CNN with its variables. Their values depend on the seed only.
    pub fn new(device: &Device, seed: u64) -> Result<Arc<Cnn>> {
        Cnn::of_side(device, seed, SIDE)
    }

    /// Creates a CNN like [`Cnn::new`], for images of this height and width.
    pub fn of_side(device: &Device, seed: u64, side: u32) -> Result<Arc<Cnn>> {
        let cnn = Cnn { side, ..Cnn::unbuilt(device, seed) };
        cnn.build()?;
        Ok(Arc::new(cnn))
    }

    pub fn unbuilt(device: &Device, seed: u64) -> Cnn {
        Cnn { scope: Eager::with_seed(device, seed), model: layers(), optimizer: Sgd::new(0.1).momentum(0.9), side: SIDE }
    }

    pub fn build(&self) -> Result<()> {
        self.model.build(&self.scope, &Shape::new(&[1, self.side, self.side, 1])?)?;
        self.optimizer.build(&self.scope, &self.model)
    }

    /// Returns batch number `index`, on the device.
    pub fn batch(&self, index: u64) -> Result<(Tensor, Tensor)> {
        batch(&self.scope.device(), index, self.side)
    }

    /// Does one training step. Returns the loss before the update.
    pub fn step(&self, scope: &dyn Scope, x: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let tape = scope.tape();
        let logits = self.model.call(&tape, x)?;
        let loss = logits.sparse_softmax_cross_entropy(labels)?.mean(&[], false)?;
        self.optimizer.apply_gradients(scope, &tape.gradient(&loss, &self.model.trainable_variables())?)?;
        Ok(loss)
    }

    /// Returns the same step as a function.
    pub fn compiled(self: &Arc<Cnn>) -> Step {
        let own = self.clone();
        Function::new(move |scope: &dyn Scope, (x, labels): (Tensor, Tensor)| own.step(scope, &x, &labels)).named("train")
    }

    /// Returns the values of all variables, those of the optimizer included.
    pub fn values(&self) -> Vec<Tensor> {
        let variables: Vec<Variable> = [self.model.variables(), self.optimizer.variables()].concat();
        variables.iter().map(|variable| self.scope.read(variable).unwrap()).collect()
    }

    /// Returns the bytes of all variables.
    pub fn state(&self) -> Bits {
        self.values().iter().map(bytes).collect()
    }
}
