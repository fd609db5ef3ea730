//! A model that is built and trained eagerly with a tape. The same source runs on the microcontroller and on the host, which compares the
//! results.

use alloc::vec::Vec;
use gradlet_core::layers::{Activation, Dense, Layer, Module, Sequential};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::optimizers::{Adam, Optimizer};
use gradlet_core::{Differentiate, Eager, Result, Scope, Tensor, ops};

const SEED: u64 = 1;
const BATCH: u32 = 4;
const FEATURES: u32 = 64;
const CLASSES: u32 = 10;

/// Trains for `steps` steps. Passes the bytes of every step's loss to `log`, then the bytes of every variable. `around` receives each step
/// as a function, which it must call once.
pub fn learn(steps: u32, mut around: impl FnMut(&mut dyn FnMut()), mut log: impl FnMut(&[u8])) -> Result<()> {
    let scope = Eager::with_seed(&ops::portable_cpu(), SEED);
    let model = Sequential::new().with(Dense::new(32).activation(Activation::Relu)).with(Dense::new(CLASSES));
    let (loss, optimizer) = (SparseCategoricalCrossentropy::default().from_logits(true), Adam::default());
    for step in 0..steps {
        let mut result = Ok(0.0);
        around(&mut || result = train_step(&scope, &model, &loss, &optimizer, step));
        log(&result?.to_le_bytes());
    }
    for variable in model.variables().iter().chain(&optimizer.variables()) {
        let value = scope.read(variable)?;
        match value.to_vec::<f32>() {
            Ok(elements) => elements.iter().for_each(|element| log(&element.to_le_bytes())),
            Err(_) => value.to_vec::<i64>()?.iter().for_each(|element| log(&element.to_le_bytes())),
        }
    }
    Ok(())
}

fn train_step(scope: &Eager, model: &Sequential, loss: &dyn Loss, optimizer: &dyn Optimizer, step: u32) -> Result<f32> {
    let (x, y) = batch(scope, step)?;
    let tape = scope.with_training(true).tape();
    let loss = loss.call(&y, &model.call(&tape, &x)?)?;
    let gradients = tape.gradient(&loss, &model.trainable_variables())?;
    optimizer.apply_gradients(scope, &gradients)?;
    loss.item()
}

/// Returns synthetic images and labels. An image has eight equal parts; the label is the index of the bright one.
fn batch(scope: &Eager, step: u32) -> Result<(Tensor, Tensor)> {
    let labels: Vec<i32> = (0..BATCH).map(|example| ((step * BATCH + example) % 8) as i32).collect();
    let noise = Tensor::random_uniform(scope, &[BATCH, FEATURES])?.to_vec::<f32>()?;
    let bright = |index: usize| labels[index / FEATURES as usize] as usize == index % FEATURES as usize / 8;
    let pixels: Vec<f32> = noise.iter().enumerate().map(|(index, noise)| noise * 0.5 + if bright(index) { 0.5 } else { 0.0 }).collect();
    let device = scope.device();
    Ok((Tensor::new(&device, &pixels, &[BATCH, FEATURES])?, Tensor::new(&device, &labels, &[BATCH])?))
}
