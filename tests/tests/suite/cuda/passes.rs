//! Passes over memory of layers that wait for it. On a device that is not strict, groups of elementwise ops begin with products
//! and end with reductions.

use gradlet::cuda::Options;
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::{Device, Differentiate, Eager, Function, Result, Scope, Tensor};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;

const DIMS: [u32; 2] = [160, 256];

/// Computes a function of two tensors of [`DIMS`], a filter, and a row.
type Compute = fn(&dyn Scope, [&Tensor; 4]) -> Result<Vec<Tensor>>;

/// The kernels of a function, and the tensors of [`DIMS`] that they load and store. What all threads read, such as a mean, counts for each.
#[derive(Debug, PartialEq)]
struct Passes {
    kernels: u64,
    loaded: f64,
    stored: f64,
}

fn numbers(device: &Device, seed: u64, dims: &[u32]) -> Result<Tensor> {
    let mut random = Random::new(seed);
    let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| random.unit() as f32).collect();
    Tensor::new(device, &numbers, dims)
}

fn passes(strict: bool, compute: Compute) -> Result<Passes> {
    let emulator = Emulator::new()?;
    let device = emulator.gpu()?.create("GPU:0", &Options { strict, ..Options::default() })?;
    let function = Function::new(move |scope: &dyn Scope, inputs: Vec<Tensor>| {
        let [x, dy, filter, row] = inputs.as_slice() else { panic!("{inputs:?}") };
        compute(scope, [x, dy, filter, row])
    });
    let scope = Eager::new(&device);
    let inputs = [&DIMS[..], &DIMS, &[3, 3, 16, 256], &[256]].into_iter().zip(1..).map(|(dims, seed)| numbers(&device, seed, dims));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let call = || function.call(&scope, inputs.clone())?.iter().map(|result| result.to_vec::<f32>()).collect::<Result<Vec<_>>>();
    call()?;
    emulator.during(call).0?;
    let lines = emulator.kernels();
    let sum = |column: usize| lines.iter().map(|line| line.split(' ').nth(column).unwrap().parse::<f64>().unwrap()).sum::<f64>();
    let passes = |column: usize| (sum(column) / f64::from(DIMS[0] * DIMS[1] * 4) * 10.0).round() / 10.0;
    assert_eq!(emulator.report(), "");
    Ok(Passes { kernels: sum(1) as u64, loaded: passes(3), stored: passes(4) })
}

/// Checks the passes on a strict device and on another one.
fn check(compute: Compute, [strict, fast]: [(u64, f64, f64); 2]) -> Result<()> {
    for (is_strict, (kernels, loaded, stored)) in [(true, strict), (false, fast)] {
        assert_eq!(passes(is_strict, compute)?, Passes { kernels, loaded, stored }, "strict: {is_strict}");
    }
    Ok(())
}

/// Returns what `normalize` returns, and the gradient of its input.
fn gradient(scope: &dyn Scope, x: &Tensor, dy: &Tensor, normalize: fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let tape = scope.tape();
    let x = tape.watch(x)?;
    let y = normalize(&x)?;
    let loss = y.mul(dy)?.sum(&[], false)?;
    Ok(vec![y, tape.gradient(&loss, &x)?.expect("a gradient")])
}

fn layer_norm(x: &Tensor) -> Result<Tensor> {
    x.layer_norm(&[-1], None, None, 1e-3)
}

fn batch_norm(x: &Tensor) -> Result<Tensor> {
    let [y, ..] = x.batch_norm(-1, None, None, 1e-3)?;
    Ok(y)
}

/// One kernel has the rows. Of columns, the first one has mean and variance, the second one factor and shift. The result is the only tensor
/// that is stored.
#[test]
fn normalization_stores_its_result_only() -> Result<()> {
    check(|_, [x, ..]| Ok(vec![layer_norm(x)?]), [(5, 5.8, 2.0), (1, 1.3, 1.0)])?;
    check(|_, [x, ..]| Ok(vec![batch_norm(x)?]), [(5, 7.9, 2.0), (3, 4.3, 1.0)])
}

#[test]
fn gradients_of_normalization_have_fewer_passes() -> Result<()> {
    check(|scope, [x, dy, ..]| gradient(scope, x, dy, layer_norm), [(12, 16.8, 8.0), (5, 9.7, 5.0)])?;
    check(|scope, [x, dy, ..]| gradient(scope, x, dy, batch_norm), [(12, 21.1, 8.1), (6, 10.7, 5.1)])
}

/// A loss reads its operands once, and stores almost nothing.
#[test]
fn a_loss_is_one_pass() -> Result<()> {
    check(|_, [x, y, ..]| Ok(vec![x.sub(y)?.square()?.mean(&[], false)?]), [(2, 3.3, 1.0), (2, 2.1, 0.0)])
}

/// A dense layer with an activation. Its result has 1.6 times as many elements as `x`.
fn dense([x, dy, _, row]: [&Tensor; 4], activation: fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let x = x.reshape(&[256, 160])?;
    Ok(vec![activation(&x.matmul(dy)?.add(row)?)?])
}

/// A convolution whose result has as many elements as `x`, batch normalization as in inference, and relu.
fn convolution([x, _, filter, row]: [&Tensor; 4]) -> Result<Vec<Tensor>> {
    let options = Conv2DOptions::default().padding(Padding::Same).strides([4, 4]);
    let y = x.reshape(&[1, 160, 16, 16])?.conv2d(filter, None, &options)?;
    Ok(vec![y.batch_normalization(row, &row.square()?, Some(row), Some(row), 1e-3)?.relu()?])
}

/// The product is not stored.
#[test]
fn activations_are_part_of_products() -> Result<()> {
    check(|_, inputs| dense(inputs, Tensor::relu), [(2, 11.7, 3.2), (1, 9.7, 1.6)])?;
    check(|_, inputs| dense(inputs, |x| x.gelu(true)), [(2, 13.3, 3.2), (1, 11.3, 1.6)])?;
    // The factors of the channels are computed first. The strict device has another kernel for the convolution.
    check(|_, inputs| convolution(inputs), [(3, 183.5, 2.0), (2, 8.4, 1.0)])
}
