//! Optimizers whose step is an operation of a graph.

use super::gradients::gradients;
use super::graph::{Graph, Operation};
use crate::base::error::Result;
use crate::nn::optimizers::{Adam, LearningRate, Optimizer, Sgd};
use crate::tensor::Tensor;
use crate::tensor::variable::Variable;

/// Gives every optimizer a step that is an operation.
pub trait Minimize: Optimizer {
    /// A step that makes `loss` smaller, by all trainable variables of the graph. The optimizer's state is created here, so make the
    /// initialiser after this.
    ///
    /// Fails as [`gradients`] and [`Optimizer::apply_gradients`], which `minimize` puts together: where something is to be done with
    /// the gradients in between, call both, the latter in a [`Graph::operation`].
    fn minimize(&self, graph: &Graph, loss: &Tensor) -> Result<Operation> {
        self.minimize_by(graph, loss, &graph.trainable_variables())
    }

    /// [`Minimize::minimize`] by these variables only.
    fn minimize_by(&self, graph: &Graph, loss: &Tensor, variables: &[Variable]) -> Result<Operation> {
        let gradients = gradients(graph, loss, variables)?;
        graph.operation(|scope| self.apply_gradients(scope, &gradients))
    }
}

impl<O: Optimizer> Minimize for O {}

/// Gradient descent: `tf.compat.v1.train.GradientDescentOptimizer`.
pub struct GradientDescentOptimizer;

impl GradientDescentOptimizer {
    /// With this learning rate.
    #[expect(clippy::new_ret_no_self, reason = "Keras's optimizer is the same one")]
    pub fn new(learning_rate: impl Into<LearningRate>) -> Sgd {
        Sgd::new(learning_rate)
    }
}

/// Adam: `tf.compat.v1.train.AdamOptimizer`. Its ε is 1e-8 unless it is set, Keras's is 1e-7.
pub struct AdamOptimizer;

impl AdamOptimizer {
    /// With this learning rate.
    #[expect(clippy::new_ret_no_self, reason = "Keras's optimizer is the same one")]
    pub fn new(learning_rate: impl Into<LearningRate>) -> Adam {
        Adam::new(learning_rate).epsilon(1e-8)
    }
}
