//! A small training step, written as in user code.

use gradlet_core::optimizers::{Optimizer, Sgd};
use gradlet_core::{Differentiate, Eager, Result, Scope, Tensor, Variable};

/// An MLP 4-3-2 and its optimizer.
pub struct Mlp {
    /// Kernel and bias of the first layer, then of the second.
    pub variables: Vec<Variable>,
    optimizer: Box<dyn Optimizer>,
}

impl Mlp {
    /// Creates an MLP with fixed weights, and gradient descent as its optimizer.
    pub fn new(scope: &Eager) -> Result<Mlp> {
        Mlp::with(scope, Box::new(Sgd::new(0.1)))
    }

    /// Creates an MLP with fixed weights, and with `optimizer`.
    pub fn with(scope: &Eager, optimizer: Box<dyn Optimizer>) -> Result<Mlp> {
        let shapes: [(&str, &[u32]); 4] = [("kernel_1", &[4, 3]), ("bias_1", &[3]), ("kernel_2", &[3, 2]), ("bias_2", &[2])];
        let variables = shapes.iter().map(|(name, dims)| weights(scope, name, dims)).collect::<Result<_>>()?;
        Ok(Mlp { variables, optimizer })
    }

    /// Does one training step on `x[n,4]` with `labels[n]`. Returns the loss before the update.
    pub fn step(&self, scope: &dyn Scope, x: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let tape = scope.tape();
        let read = self.variables.iter().map(|variable| tape.read(variable)).collect::<Result<Vec<_>>>()?;
        let hidden = x.dense(&read[0], Some(&read[1]))?.relu()?;
        let logits = hidden.dense(&read[2], Some(&read[3]))?;
        let loss = logits.sparse_softmax_cross_entropy(labels)?.mean(&[], false)?;
        self.optimizer.apply_gradients(scope, &tape.gradient(&loss, &self.variables)?)?;
        Ok(loss)
    }
}

/// Creates a variable with fixed positive and negative values.
pub fn weights(scope: &Eager, name: &str, dims: &[u32]) -> Result<Variable> {
    let count = dims.iter().product::<u32>();
    let values: Vec<f32> = (0..count).map(|index| (index * 5 % 7) as f32 * 0.25 - 0.75).collect();
    Variable::new(scope, name, &Tensor::new(&scope.device(), &values, dims)?)
}
