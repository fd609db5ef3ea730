//! Products, memory-bound kernels, and launches.

use super::{Request, Step, random, repeated, time};
use gradlet::layers::Padding;
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Eager, Function, Result, Scope, Tensor, Variable};

/// Returns the measurement of a request, if it is for a kernel.
pub fn step(request: &Request<'_>, scope: &Eager) -> Result<Option<Step>> {
    let input = || random(&request.device, &request.sizes);
    let step = match (request.work, &request.sizes[..]) {
        ("gemm", &[side]) => {
            let [a, b] = [random(&request.device, &[side, side])?, random(&request.device, &[side, side])?];
            let inputs = vec![a.cast(request.dtype)?, b.cast(request.dtype)?];
            compiled(scope, inputs, |x| x[0].matmul(&x[1]))?
        }
        ("copy", [_, _]) => {
            let x = input()?;
            repeated(scope, move || x.identity().map(drop))
        }
        ("chain", [_, _]) => compiled(scope, vec![input()?], |x| x[0].mul_scalar(1.5)?.add_scalar(0.5)?.relu()?.sqrt()?.neg())?,
        ("sum_all", [_, _]) => compiled(scope, vec![input()?], |x| x[0].sum(&[], false))?,
        ("sum_rows", [_, _]) => compiled(scope, vec![input()?], |x| x[0].sum(&[1], false))?,
        ("sum_columns", [_, _]) => compiled(scope, vec![input()?], |x| x[0].sum(&[0], false))?,
        ("softmax", [_, _]) => compiled(scope, vec![input()?], |x| x[0].softmax(-1))?,
        ("layer_norm", &[_, columns]) => {
            compiled(scope, with_scale(input()?, columns)?, |x| x[0].layer_norm(&[-1], Some(&x[1]), Some(&x[2]), 1e-3))?
        }
        ("batch_norm", &[_, _, _, channels]) => compiled(scope, with_scale(input()?, channels)?, |x| {
            let [y, ..] = x[0].batch_norm(-1, Some(&x[2]), Some(&x[1]), 1e-3)?;
            Ok(y)
        })?,
        ("max_pool", [_, _, _, _]) => compiled(scope, vec![input()?], |x| x[0].max_pool2d([2, 2], [2, 2], Padding::Valid))?,
        ("adam", &[variables, rows, columns]) => adam(scope, variables, &[rows, columns])?,
        ("launch", &[short, long]) if short < long => launch(scope, short, long)?,
        _ => return Ok(None),
    };
    Ok(Some(step))
}

/// Returns `x` with a scale and an offset for its last dimension.
fn with_scale(x: Tensor, last: u32) -> Result<Vec<Tensor>> {
    let device = x.device()?;
    Ok(vec![x, random(&device, &[last])?, random(&device, &[last])?])
}

/// Returns the measurement of a compiled function.
fn compiled(scope: &Eager, inputs: Vec<Tensor>, body: fn(&[Tensor]) -> Result<Tensor>) -> Result<Step> {
    let concrete = Function::new(move |_: &dyn Scope, x: Vec<Tensor>| body(&x)).concrete(scope, &inputs)?;
    Ok(repeated(scope, move || concrete.run(&inputs).map(drop)))
}

/// Returns the measurement of an update of all variables by Adam. The gradients are on the GPU.
fn adam(scope: &Eager, variables: u32, dims: &[u32]) -> Result<Step> {
    let device = scope.device();
    let new = |index| Variable::new(scope, &format!("variable_{index}"), &random(&device, dims)?);
    let variables = (0..variables).map(new).collect::<Result<Vec<_>>>()?;
    let gradients = variables.iter().map(|_| random(&device, dims)).collect::<Result<Vec<_>>>()?;
    let adam = Adam::new(1e-3);
    let update = Function::new(move |scope: &dyn Scope, gradients: Vec<Tensor>| {
        let pairs: Vec<_> = variables.iter().cloned().zip(gradients.into_iter().map(Some)).collect();
        adam.apply_gradients(scope, &pairs)
    });
    let scope_of_calls = scope.clone();
    Ok(repeated(scope, move || update.call(&scope_of_calls, gradients.clone())))
}

/// Returns the measurement of the time that each node adds to a graph: two chains of cumulative sums, which nothing fuses, that differ in
/// their lengths.
fn launch(scope: &Eager, short: u32, long: u32) -> Result<Step> {
    let device = scope.device();
    let x = random(&device, &[4])?;
    let chain = |nodes: u32| {
        let function = Function::new(move |_: &dyn Scope, x: Tensor| (0..nodes).try_fold(x, |sum, _| sum.cumsum(0, false, false)));
        function.concrete(scope, &x)
    };
    let [few, many] = [chain(short)?, chain(long)?];
    Ok(Box::new(move || {
        let inputs = [x.clone()];
        let [few, many] = [&few, &many].map(|chain| time(&device, || chain.run(&inputs).map(drop)));
        Ok((many? - few?) / f64::from(long - short))
    }))
}
