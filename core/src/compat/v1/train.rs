//! Optimizers whose step is an operation of a graph.

use super::gradients::gradients;
use super::graph::{Graph, Operation};
use crate::base::error::Result;
use crate::nn::optimizers::{Adam, LearningRate, Optimizer, Sgd};
use crate::tensor::Tensor;
use crate::tensor::variable::Variable;

/// Adds methods to every optimizer that create its step as an operation.
pub trait Minimize: Optimizer {
    /// Returns an operation that reduces `loss` by one step for all trainable variables of the graph. This method also creates the
    /// optimizer's state, so create the initializer after it.
    ///
    /// Fails like [`gradients`] and [`Optimizer::apply_gradients`], which this method combines. To change the gradients in between, call
    /// both of them yourself, the latter within [`Graph::operation`].
    fn minimize(&self, graph: &Graph, loss: &Tensor) -> Result<Operation> {
        self.minimize_by(graph, loss, &graph.trainable_variables())
    }

    /// Returns an operation like [`Minimize::minimize`], for these variables only.
    fn minimize_by(&self, graph: &Graph, loss: &Tensor, variables: &[Variable]) -> Result<Operation> {
        let gradients = gradients(graph, loss, variables)?;
        graph.operation(|scope| self.apply_gradients(scope, &gradients))
    }
}

impl<O: Optimizer> Minimize for O {}

/// Gradient descent: `tf.compat.v1.train.GradientDescentOptimizer`.
pub struct GradientDescentOptimizer;

impl GradientDescentOptimizer {
    /// Creates the optimizer with this learning rate.
    #[expect(clippy::new_ret_no_self, reason = "Keras's optimizer is the same one")]
    pub fn new(learning_rate: impl Into<LearningRate>) -> Sgd {
        Sgd::new(learning_rate)
    }
}

/// Adam: `tf.compat.v1.train.AdamOptimizer`. Its ε is 1e-8 by default; Keras's is 1e-7.
pub struct AdamOptimizer;

impl AdamOptimizer {
    /// Creates the optimizer with this learning rate.
    #[expect(clippy::new_ret_no_self, reason = "Keras's optimizer is the same one")]
    pub fn new(learning_rate: impl Into<LearningRate>) -> Adam {
        Adam::new(learning_rate).epsilon(1e-8)
    }
}
