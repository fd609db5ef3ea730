//! Contexts with several devices: their configuration, placement, functions that several devices run, and the programs of TensorFlow's
//! tutorials.

mod config;
mod divided;
mod hidden;
mod mirrored;
mod placement;
mod seeds;
mod sessions;

use gradlet::config::{Context, Environment, LogicalDeviceConfiguration, Physical, PhysicalDevice};
use gradlet::{Device, Result, Scope};
use gradlet_tests::hiding::{Hiding, HidingGpu};
use std::sync::Arc;

/// Memory of a GPU of these tests, in bytes. A hiding device allocates all of it.
const MEMORY: u64 = 2 << 20;

/// Creates a context with a portable CPU and `count` GPUs. Also returns the GPUs.
fn machine(count: usize) -> (Context, Vec<Arc<HidingGpu>>) {
    machine_in(count, &Environment::default())
}

/// Creates a context like [`machine`], which obeys `environment`.
fn machine_in(count: usize, environment: &Environment) -> (Context, Vec<Arc<HidingGpu>>) {
    let gpus: Vec<Arc<HidingGpu>> = (0..count).map(|_| HidingGpu::new(MEMORY)).collect();
    let context = Context::portable(gpus.iter().map(|gpu| gpu.clone() as Arc<dyn Physical>), environment);
    (context, gpus)
}

/// Creates a context with two logical CPUs.
fn two_cpus() -> Result<Context> {
    let (context, _) = machine(0);
    context.set_logical_device_configuration(&cpu(), &[LogicalDeviceConfiguration::new(); 2])?;
    Ok(context)
}

/// Returns the name of the physical CPU.
fn cpu() -> PhysicalDevice {
    PhysicalDevice::new("CPU", 0)
}

/// Returns the name of physical GPU number `index`.
fn gpu(index: u32) -> PhysicalDevice {
    PhysicalDevice::new("GPU", index)
}

/// Returns the only logical device that a context has made of `gpu`.
fn only(gpu: &HidingGpu) -> Hiding {
    match gpu.created().as_slice() {
        [(hiding, _)] => hiding.clone(),
        created => panic!("{} logical devices", created.len()),
    }
}

/// Returns the device that `scope` names `name`, as a member of its group.
fn member(scope: &dyn Scope, name: &str) -> Result<Device> {
    let _there = scope.with_device(name)?;
    Ok(scope.device())
}

/// Fails unless `result` is an error whose text has all `parts`.
fn refuses<T>(result: Result<T>, parts: &[&str]) {
    let error = result.err().expect("an error").to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error:?} lacks one of {parts:?}");
}
