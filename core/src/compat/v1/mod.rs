//! Graphs and sessions of TensorFlow 1. The program first builds a [`Graph`]; a [`Session`] then runs the parts of it that are fetched.
//!
//! A graph is a scope, so tensors, layers, losses, metrics and branches work in it as in any other scope. The graph records their ops in
//! order. A session runs the ops that the fetched values need, in that order, and compiles them once for each set of fetches. An
//! assignment takes effect only if its [`Operation`] is fetched, or if it is a control dependency of a fetched value.
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
//! Three things differ from TensorFlow. A graph with open dimensions is recorded by [`Graph::build`], again for each size. A variable is
//! the same inside and outside the graph, and has one value for all sessions. The initializer sets the initial value that was drawn when
//! the variable was created; it never draws a new one.

mod fetch;
mod gradients;
mod graph;
mod program;
mod session;
pub mod train;

pub use fetch::{Fetch, Fetched};
pub use gradients::gradients;
pub use graph::{Graph, Operation};
pub use session::Session;

#[cfg(test)]
mod tests;
