//! Compiled functions on a device that prepares their steps and computes elementwise nodes together.

use crate::cnn::bytes;
use gradlet_core::{DType, Device, Eager, Function, Result, Scope, Tensor, Variable, ops};
use gradlet_tests::hiding::Hiding;
use gradlet_tests::random::Random;

const DIMS: [u32; 2] = [7, 6];

fn numbers(device: &Device, seed: u64, dims: &[u32]) -> Tensor {
    let mut random = Random::new(seed);
    let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| 3.0 * random.unit() as f32 - 1.5).collect();
    Tensor::new(device, &numbers, dims).unwrap()
}

/// Computes random elementwise ops on a matrix, a row and two variables, with some other ops between them.
fn random_ops(scope: &dyn Scope, seed: u64, variables: &[Variable; 2], (x, row): (Tensor, Tensor)) -> Result<Vec<Tensor>> {
    let mut random = Random::new(seed);
    let mut values = vec![x, row, Tensor::scalar(&scope.device(), 0.5f32), scope.read(&variables[0])?, scope.read(&variables[1])?];
    for _ in 0..10 + random.below(60) {
        let mut choose = || values[random.below(values.len())].clone();
        let (a, b) = (choose(), choose());
        let axes = random.pick(&[&[-1][..], &[0], &[]]);
        let next = match random.below(16) {
            0 => a.mul(&b),
            1 => a.sub(&b),
            2 => a.maximum(&b),
            3 => a.tanh(),
            4 => a.neg(),
            5 => a.less(&b).and_then(|less| less.select(&a, &b)),
            6 => a.cast(DType::I32).and_then(|whole| whole.cast(DType::F32)),
            7 => a.square(),
            8 => a.reshape(&[a.shape().elements().unwrap_or(1) as u32]).and_then(|flat| flat.abs()?.reshape(a.dims())),
            9 if !a.dims().is_empty() => a.sum(axes, true),
            10 if !a.dims().is_empty() => a.mean(axes, true),
            11 => a.max(&[], false),
            12 if a.dims() == DIMS && b.dims() == DIMS => a.matmul(&b.transpose(&[1, 0])?.matmul(&a)?.tanh()?),
            13 if a.dims() == DIMS => a.transpose(&[1, 0])?.reshape(&DIMS),
            14 => a.cast(DType::F16).and_then(|half| half.add(&half)?.cast(DType::F32)),
            _ => a.add(&b),
        };
        values.push(next?);
    }
    for variable in variables {
        if let Some(value) = values.iter().rev().find(|value| value.dims() == DIMS) {
            scope.assign(variable, value)?;
        }
    }
    values.retain(|value| value.dims() == DIMS);
    Ok(values.into_iter().rev().step_by(3).collect())
}

/// Computes random ops twice on `device`, compiled or one by one, and returns the bits of the results and the variables.
pub fn run(device: &Device, seed: u64, compiled: bool) -> Result<Vec<Vec<u8>>> {
    let scope = Eager::new(device);
    let variable = |stream: u64| Variable::new(&scope, "v", &numbers(device, stream, &DIMS));
    let variables = [variable(1)?, variable(2)?];
    let own = variables.clone();
    let function = Function::new(move |scope: &dyn Scope, inputs: (Tensor, Tensor)| random_ops(scope, seed, &own, inputs));
    let mut bits = Vec::new();
    for round in 0..2 {
        let inputs = (numbers(device, 3 + round, &DIMS), numbers(device, 9, &[6]));
        let results = if compiled { function.call(&scope, inputs)? } else { random_ops(&scope, seed, &variables, inputs)? };
        bits.extend(results.iter().map(bytes));
        for variable in &variables {
            bits.push(bytes(&scope.read(variable)?));
        }
    }
    Ok(bits)
}

#[test]
fn groups_have_the_bits_of_single_ops() -> Result<()> {
    let (mut alone, mut together) = (0, 0);
    for seed in 0..150 {
        let wanted = run(&ops::portable_cpu(), seed, true)?;
        let (launching, preparing) = (Hiding::launching(), Hiding::new());
        assert!(run(&launching.device, seed, true)? == wanted, "op by op, seed {seed}");
        assert!(run(&preparing.device, seed, true)? == wanted, "in groups, seed {seed}");
        alone += launching.counts().launches;
        together += preparing.counts().launches;
    }
    assert!(2 * together < alone, "{together} launches with groups, {alone} without");
    Ok(())
}

#[test]
fn a_chain_is_one_launch_and_needs_no_scratch() -> Result<()> {
    let hiding = Hiding::new();
    let scope = Eager::new(&hiding.device);
    let chain =
        Function::new(|_: &dyn Scope, (x, row): (Tensor, Tensor)| x.exp()?.mul(&x)?.sub(&row)?.cast(DType::I32)?.cast(DType::F32)?.tanh());
    let fed = (numbers(&hiding.device, 0, &[100, 50]), numbers(&hiding.device, 1, &[50]));
    chain.call(&scope, fed.clone())?;
    let (result, counts) = hiding.during(|| chain.call(&scope, fed));
    assert_eq!(counts.launches, 1);
    // The result is the only memory: the first one is free again.
    assert_eq!((counts.allocations, bytes(&result?).len()), (0, 20_000));
    Ok(())
}

#[test]
fn checks_on_the_device_copy_nothing_and_name_what_failed() -> Result<()> {
    let hiding = Hiding::new();
    let scope = Eager::new(&hiding.device);
    let total = Variable::new(&scope, "total", &Tensor::scalar(&hiding.device, 0.0f32))?;
    let own = total.clone();
    let root = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let root = x.sqrt()?;
        root.check_numerics("the root")?;
        scope.assign_add(&own, &root.sum(&[], false)?)?;
        Ok(root)
    });
    let call = |x: f32| root.call(&scope, Tensor::full(&hiding.device, x, &[3])?);
    call(4.0)?;
    let (done, counts) = hiding.during(|| call(4.0));
    assert_eq!((done.is_ok(), counts.downloads, counts.uploads), (true, 0, 0));
    let error = call(-1.0).unwrap_err().to_string();
    assert!(error.contains("the root"), "{error}");
    assert_eq!(scope.read(&total)?.item::<f32>()?, 12.0);
    Ok(())
}
