//! Devices of a program and their configuration, as `tf.config`: the devices that exist and those that are visible, their memory and
//! threads, and the placement of ops.
//!
//! A *physical device* is something that computes, such as the CPU. A *logical device* is a part of a physical one, with memory and threads
//! of its own. Ops run on logical devices. A [`Context`] has both, with their configuration. The functions of this module configure the
//! context of the process, [`context`]. Libraries and tests create their own.
//!
//! A context is configured first and used afterwards. Its first use creates the logical devices. From then on, devices, limits and threads
//! cannot change.
//!
//! ```
//! use gradlet::{Scope, Tensor, config};
//! config::set_intra_op_parallelism_threads(2)?;
//! let scope = config::scope()?;
//! let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
//! assert_eq!(x.device()?.full_name(), "/job:localhost/replica:0/task:0/device:CPU:0");
//! assert!(config::set_intra_op_parallelism_threads(4).is_err()); // The devices are in use.
//! # Ok::<(), gradlet::Error>(())
//! ```
//!
//! | task | functions and methods |
//! |---|---|
//! | list devices | [`list_physical_devices`], [`list_logical_devices`] |
//! | hide devices | [`set_visible_devices`] |
//! | divide a device, and limit its memory | [`set_logical_device_configuration`] |
//! | choose the threads of the CPU | [`set_intra_op_parallelism_threads`] |
//! | create a scope on the devices | [`scope`](scope()) |
//! | run ops on a device | [`Scope::with_device`](crate::Scope::with_device), [`set_soft_device_placement`] |
//! | log where ops run | [`set_log_device_placement`] |
//! | measure memory | [`get_memory_info`] |
//! | train on several devices | [`MirroredStrategy`](crate::distribute::MirroredStrategy) |
//!
//! # Placement
//!
//! An op on tensors of a context's scope runs on the device that [`with_device`](crate::Scope::with_device) names. If the program names
//! none, it runs on the fastest device with a kernel for it: the GPUs come first, then the CPUs, each in the order of their numbers. Inputs
//! on another device are copied. The result stays where it was computed.
//!
//! A function runs on the device on which it is called. If its body names other devices, each of them computes its own nodes, and the
//! values between them are copied. The results are on the device of the call.
//!
//! A device by itself, such as [`cpu`](crate::cpu) or that of [`Context::device`], knows no other device. Ops on its tensors run there, and
//! ops on tensors of two such devices fail.
//!
//! # Memory of a GPU
//!
//! A GPU allocates memory when a program needs it. TensorFlow allocates nearly all of it on first use, to prevent fragmentation. gradlet
//! does not, for two reasons. The GPU of a Jetson shares its memory with the CPU: a program that takes all of it starves the camera, the
//! system, and every other program. And a compiled function takes its memory in one piece, so there is little to fragment.
//! [`set_memory_growth`] with `false` has TensorFlow's effect. A memory limit is exact.

mod context;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
mod environment;
mod physical;
mod rules;
mod spec;
pub(crate) mod v1;

pub use context::Context;
pub use environment::Environment;
pub use physical::{LogicalDevice, LogicalDeviceConfiguration, LogicalOptions, Physical, PhysicalDevice};

use gradlet_core::device::MemoryInfo;
use gradlet_core::{Eager, Result};
use std::sync::{Arc, LazyLock};

/// Returns the GPUs of this machine that gradlet supports. There are none if the driver or the feature `cuda` is missing.
fn gpus() -> Vec<Arc<dyn Physical>> {
    #[cfg(feature = "cuda")]
    return gradlet_cuda::Driver::load().and_then(|driver| cuda::physical_devices(&driver, &Default::default())).unwrap_or_default();
    #[cfg(not(feature = "cuda"))]
    Vec::new()
}

/// Returns the context of the process.
pub fn context() -> &'static Context {
    static CONTEXT: LazyLock<Context> = LazyLock::new(Context::new);
    &CONTEXT
}

/// Returns a scope on the devices of the process: see [`Context::scope`].
pub fn scope() -> Result<Eager> {
    context().scope()
}

/// See [`Context::list_physical_devices`].
pub fn list_physical_devices(device_type: Option<&str>) -> Vec<PhysicalDevice> {
    context().list_physical_devices(device_type)
}

/// See [`Context::list_logical_devices`].
pub fn list_logical_devices(device_type: Option<&str>) -> Result<Vec<LogicalDevice>> {
    context().list_logical_devices(device_type)
}

/// See [`Context::get_visible_devices`].
pub fn get_visible_devices(device_type: Option<&str>) -> Vec<PhysicalDevice> {
    context().get_visible_devices(device_type)
}

/// See [`Context::set_visible_devices`].
pub fn set_visible_devices(devices: &[PhysicalDevice], device_type: Option<&str>) -> Result<()> {
    context().set_visible_devices(devices, device_type)
}

/// See [`Context::get_logical_device_configuration`].
pub fn get_logical_device_configuration(device: &PhysicalDevice) -> Result<Option<Vec<LogicalDeviceConfiguration>>> {
    context().get_logical_device_configuration(device)
}

/// See [`Context::set_logical_device_configuration`].
pub fn set_logical_device_configuration(device: &PhysicalDevice, logical: &[LogicalDeviceConfiguration]) -> Result<()> {
    context().set_logical_device_configuration(device, logical)
}

/// See [`Context::get_memory_growth`].
pub fn get_memory_growth(device: &PhysicalDevice) -> Result<bool> {
    context().get_memory_growth(device)
}

/// See [`Context::set_memory_growth`].
pub fn set_memory_growth(device: &PhysicalDevice, enable: bool) -> Result<()> {
    context().set_memory_growth(device, enable)
}

/// See [`Context::get_memory_info`].
pub fn get_memory_info(device: &str) -> Result<MemoryInfo> {
    context().get_memory_info(device)
}

/// See [`Context::get_device_details`].
pub fn get_device_details(device: &PhysicalDevice) -> Result<Vec<(String, String)>> {
    context().get_device_details(device)
}

/// See [`Context::get_intra_op_parallelism_threads`].
pub fn get_intra_op_parallelism_threads() -> usize {
    context().get_intra_op_parallelism_threads()
}

/// See [`Context::set_intra_op_parallelism_threads`].
pub fn set_intra_op_parallelism_threads(threads: usize) -> Result<()> {
    context().set_intra_op_parallelism_threads(threads)
}

/// See [`Context::get_inter_op_parallelism_threads`].
pub fn get_inter_op_parallelism_threads() -> usize {
    context().get_inter_op_parallelism_threads()
}

/// See [`Context::set_inter_op_parallelism_threads`].
pub fn set_inter_op_parallelism_threads(threads: usize) -> Result<()> {
    context().set_inter_op_parallelism_threads(threads)
}

/// See [`Context::get_soft_device_placement`].
pub fn get_soft_device_placement() -> bool {
    context().get_soft_device_placement()
}

/// See [`Context::set_soft_device_placement`].
pub fn set_soft_device_placement(enabled: bool) {
    context().set_soft_device_placement(enabled);
}

/// See [`Context::get_log_device_placement`].
pub fn get_log_device_placement() -> bool {
    context().get_log_device_placement()
}

/// See [`Context::set_log_device_placement`].
pub fn set_log_device_placement(enabled: bool) {
    context().set_log_device_placement(enabled);
}
