//! The TensorFlow handbook's program that trains with a graph and a session, as in TensorFlow 1. The batch size is open.
//!
//! `cargo run --release -p gradlet --example session`

/// The model.
#[allow(dead_code)]
#[path = "mlp.rs"]
mod mlp;

use gradlet::compat::v1::train::{AdamOptimizer, Minimize};
use gradlet::compat::v1::{Graph, Session};
use gradlet::datasets::{Digits, digits};
use gradlet::layers::Layer;
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::metrics::{Metric, SparseCategoricalAccuracy};
use gradlet::{DType, Eager, Scope};
use mlp::{Mlp, PICTURE, get_batch};
use std::error::Error;
use std::io::Write;
use std::path::Path;

const BATCH_SIZE: usize = 50;
const TEST_BATCH_SIZE: usize = 300;
const LEARNING_RATE: f32 = 0.001;

/// Trains for `num_epochs` epochs, and prints the test accuracy.
pub fn run((train, test): (&Digits, &Digits), num_epochs: usize, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let model = Mlp::default();
    let optimizer = AdamOptimizer::new(LEARNING_RATE);
    let sparse_categorical_accuracy = SparseCategoricalAccuracy::default();
    let num_batches = train.len() / BATCH_SIZE * num_epochs;

    // Build the graph.
    let (graph, (x_placeholder, y_placeholder, loss, train_op, update_op, accuracy)) = Graph::build(&scope, move |graph| {
        let x_placeholder = graph.placeholder("X", DType::F32, &[None, Some(28), Some(28), Some(1)])?;
        let y_placeholder = graph.placeholder("y", DType::I32, &[None::<u32>])?;
        let y_pred = model.apply(graph, &x_placeholder)?;
        let loss = SparseCategoricalCrossentropy::default().call(&y_placeholder, &y_pred)?;
        let train_op = optimizer.minimize(graph, &loss)?;
        let update_op = graph.operation(|scope| sparse_categorical_accuracy.update_state(scope, &y_placeholder, &y_pred))?;
        let accuracy = sparse_categorical_accuracy.result(graph)?;
        Ok((x_placeholder, y_placeholder, loss, train_op, update_op, accuracy))
    })?;

    // Run it.
    let sess = Session::new(&graph);
    sess.run(&graph.global_variables_initializer()?, &[])?;
    for batch_index in 0..num_batches {
        let (x, y) = get_batch(&scope, train, BATCH_SIZE)?;
        let ((), loss_value) = sess.run((&train_op, &loss), &[(&x_placeholder, &x), (&y_placeholder, &y)])?;
        writeln!(out, "batch {batch_index}: loss {:.6}", loss_value.item::<f32>()?)?;
    }

    let all: Vec<usize> = (0..test.len()).collect();
    for indices in all.chunks(TEST_BATCH_SIZE) {
        let (x, y) = test.batch(&scope.device(), indices, PICTURE)?;
        sess.run(&update_op, &[(&x_placeholder, &x), (&y_placeholder, &y)])?;
    }
    writeln!(out, "test accuracy: {:.6}", sess.run(&accuracy, &[])?.item::<f32>()?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (train, test) = digits::load(Path::new("data/mnist10k"))?;
    run((&train, &test), 5, &mut std::io::stdout())
}
