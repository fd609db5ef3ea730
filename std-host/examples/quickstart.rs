//! Trains an MLP on handwritten digits within seconds, and exports it for a microcontroller.
//!
//! Run it in the project's root folder: `cargo run --release --example quickstart`.

use gradlet::datasets::digits;
use gradlet::io::write_whole;
use gradlet::layers::{Activation, Dense, Layer, Module, Sequential};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::metrics::{Metric, SparseCategoricalAccuracy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Artifact, Differentiate, Eager, Function, Scope, Tensor};
use std::{path::Path, sync::Arc};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (train, test) = digits::load(Path::new("data/mnist10k"))?;
    let scope = Eager::with_seed(&gradlet::cpu(), 0);
    let model = Arc::new(Sequential::new().with(Dense::new(32).activation(Activation::Relu)).with(Dense::new(10)));

    // gradlet traces this function once for each shape of x. The compiled step runs forward, backward and the optimizer's update.
    let (network, adam) = (model.clone(), Adam::default());
    let train_step = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.tape();
        let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&y, &network.apply(&tape, &x)?)?;
        let gradients = tape.gradient(&loss, &network.trainable_variables())?;
        adam.apply_gradients(scope, &gradients)?;
        Ok(loss)
    });
    for epoch in 1..=3 {
        let mut loss = 0.0;
        for batch in train.shuffled(scope.next_stream()?).chunks(32) {
            loss = train_step.call(&scope, train.batch(&scope.device(), batch, &[784])?)?.item::<f32>()?;
        }
        println!("epoch {epoch}: loss of the last batch {loss:.3}");
    }

    let accuracy = SparseCategoricalAccuracy::default();
    let all: Vec<usize> = (0..test.len()).collect();
    let (x, y) = test.batch(&scope.device(), &all, &[784])?;
    accuracy.update_state(&scope, &y, &model.call(&scope, &x)?)?;
    println!("accuracy on the test digits: {:.1} %", accuracy.result(&scope)?.item::<f32>()? * 100.0);

    let (one, _) = test.batch(&scope.device(), &[0], &[784])?;
    let (variables, infer) = (model.named_variables(), Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x)));
    let mut artifact = Artifact::new();
    artifact.variables(variables).signature("infer", &*infer.concrete(&scope, &one)?, &["x"], &["logits"])?;
    let path = std::env::temp_dir().join("quickstart.grdl");
    write_whole(&path, &artifact.to_bytes()?)?;
    println!("written to {}: try `gradlet inspect` on it", path.display());
    Ok(())
}
