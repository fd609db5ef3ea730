//! Replicas of a strategy: variables with copies, training steps against those of one device, `fit`, and failures.

mod checkpoints;
pub(crate) mod equality;
mod exchanges;
mod failures;
mod fitting;
mod refusals;
mod shared;
mod state;
mod threads;
mod variables;

use gradlet::config::{Context, Environment, LogicalDeviceConfiguration, Physical, PhysicalDevice};
use gradlet::distribute::MirroredStrategy;
use gradlet::{DType, Result, Scope, Tensor, Variable};
use gradlet_tests::hiding::HidingGpu;
use std::sync::Arc;

/// The bytes of several tensors.
type Bits = Vec<Vec<u8>>;

/// Memory of a GPU of these tests, in bytes. A hiding device allocates all of it.
const MEMORY: u64 = 2 << 20;
/// Random seed of scopes and strategies.
const SEED: u64 = 7;

/// Creates a context with `count` logical CPUs of one thread each, with portable kernels or with fast ones.
fn cpus(portable: bool, count: usize) -> Result<Context> {
    let environment = Environment::default();
    let context = if portable { Context::portable([], &environment) } else { Context::with_devices([], &environment) };
    let logical = vec![LogicalDeviceConfiguration::new().threads(1); count];
    context.set_logical_device_configuration(&PhysicalDevice::new("CPU", 0), &logical)?;
    Ok(context)
}

/// Creates a context with a portable CPU and `count` GPUs. Also returns the GPUs.
fn machine(count: usize) -> (Context, Vec<Arc<HidingGpu>>) {
    let gpus: Vec<Arc<HidingGpu>> = (0..count).map(|_| HidingGpu::new(MEMORY)).collect();
    let context = Context::portable(gpus.iter().map(|gpu| gpu.clone() as Arc<dyn Physical>), &Environment::default());
    (context, gpus)
}

/// Creates a strategy on all GPUs of a context, or on all CPUs if it has no GPUs.
fn strategy(context: &Context) -> Result<MirroredStrategy> {
    MirroredStrategy::with_seed(context, &[], SEED)
}

/// Creates a strategy on two portable CPUs.
pub(crate) fn two() -> Result<MirroredStrategy> {
    strategy(&cpus(true, 2)?)
}

/// Returns the bytes of a tensor.
fn bits(tensor: &Tensor) -> Result<Vec<u8>> {
    Ok(tensor.bytes()?.to_vec())
}

/// Returns the bytes of each copy of a variable.
fn copies(strategy: &MirroredStrategy, variable: &Variable) -> Result<Bits> {
    let scope = strategy.scope();
    variable.copies().iter().map(|copy| bits(&scope.read(copy)?)).collect()
}

/// Returns the elements of all copies of an f32 variable, one copy after the other.
fn elements(strategy: &MirroredStrategy, variable: &Variable) -> Result<Vec<f32>> {
    let scope = strategy.scope();
    let copies = variable.copies().iter().map(|copy| scope.read(copy)?.to_vec::<f32>()).collect::<Result<Vec<_>>>()?;
    Ok(copies.concat())
}

/// Returns the names of the variables whose copies differ.
fn differing(strategy: &MirroredStrategy, variables: &[Variable]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for variable in variables {
        let copies = copies(strategy, variable)?;
        assert_eq!(copies.len(), strategy.num_replicas_in_sync(), "{variable:?}");
        if copies.iter().any(|copy| *copy != copies[0]) {
            names.push(variable.name().to_string());
        }
    }
    Ok(names)
}

/// Checks that all copies of every variable have the same bits. Returns these bits.
fn agreed(strategy: &MirroredStrategy, variables: &[Variable]) -> Result<Bits> {
    assert_eq!(differing(strategy, variables)?, [""; 0], "copies differ");
    variables.iter().map(|variable| Ok(copies(strategy, variable)?.swap_remove(0))).collect()
}

/// Checks that the elements of two tensors differ by `tolerance` at most, which is relative and absolute.
fn near(got: &Tensor, wanted: &Tensor, tolerance: f32) -> Result<()> {
    assert_eq!(got.tensor_type(), wanted.tensor_type());
    let (got, wanted) = (got.cast(DType::F32)?.to_vec::<f32>()?, wanted.cast(DType::F32)?.to_vec::<f32>()?);
    let close = |(got, wanted): (&f32, &f32)| (got - wanted).abs() <= tolerance * (1.0 + wanted.abs());
    assert!(got.iter().zip(&wanted).all(close), "got {got:?}, wanted {wanted:?}");
    Ok(())
}

/// Checks that tensors are nearly equal: see [`near`].
fn all_near(got: &[Tensor], wanted: &[Tensor], tolerance: f32) -> Result<()> {
    assert_eq!(got.len(), wanted.len());
    got.iter().zip(wanted).try_for_each(|(got, wanted)| near(got, wanted, tolerance))
}
