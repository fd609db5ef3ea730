//! Graphs and sessions, as in TensorFlow 1: a [`Graph`] is built first, and a [`Session`] then runs what of it is fetched.
//!
//! A graph is a scope, so tensors, layers, losses, metrics and branches work in it as in any other. What they do is put down in the
//! order in which it is done; a session runs what the fetched things need, in that order, compiled once for each set of fetches.
//! What is assigned is assigned only if its [`Operation`] is fetched, or something fetched is under its control dependency.
//!
//! ```
//! use gradlet_core::compat::v1::train::{GradientDescentOptimizer, Minimize};
//! use gradlet_core::compat::v1::{Graph, Session};
//! use gradlet_core::{DType, Eager, Scope, Tensor, Variable, ops};
//! let scope = Eager::new(&ops::portable_cpu());
//! let graph = Graph::new(&scope);
//! let x = graph.placeholder("x", DType::F32, &[2])?;
//! let w = Variable::new(&graph, "w", &Tensor::scalar(&scope.device(), 0.0f32))?;
//! let loss = graph.read(&w)?.mul(&x)?.add_scalar(-6.0)?.square()?.mean(&[], false)?;
//! let train_op = GradientDescentOptimizer::new(0.05).minimize(&graph, &loss)?;
//!
//! let session = Session::new(&graph);
//! session.run(&graph.global_variables_initializer()?, &[])?;
//! let fed = Tensor::new(&scope.device(), &[3.0f32, 3.0], &[2])?;
//! for _ in 0..20 {
//!     session.run((&train_op, &loss), &[(&x, &fed)])?;
//! }
//! assert!((session.run(&w, &[])?.item::<f32>()? - 2.0).abs() < 1e-3);
//! # Ok::<(), gradlet_core::Error>(())
//! ```
//!
//! What differs from TensorFlow: a placeholder's dimensions are fixed; a variable is the same one in and out of the graph, with one
//! value for all sessions; the initialiser sets the first value that was drawn when the variable was created, and draws no other.

mod fetch;
mod gradients;
mod graph;
mod session;
pub mod train;

pub use fetch::{Fetch, Fetched};
pub use gradients::gradients;
pub use graph::{Graph, Operation};
pub use session::Session;

#[cfg(test)]
mod tests;
