//! Physical devices, and the logical ones that are made of them.

use crate::compute::devices::logical_cpu;
use gradlet_core::{Device, Error, Result};
use std::fmt;

/// Something that computes: the CPU of the host, or a GPU. A [`Context`](super::Context) makes logical devices of it.
pub trait Physical: Send + Sync {
    /// Returns the type: `CPU`, `GPU`, or another word in capital letters.
    fn device_type(&self) -> &str;
    /// Returns the size of the memory in bytes, or `None` if it is unknown.
    fn memory(&self) -> Option<u64> {
        None
    }
    /// Returns what is known of the device, such as its name and its compute capability: TensorFlow's `get_device_details`.
    fn details(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// True if the device was listed in obedience to the environment already, as CUDA's driver does: see
    /// [`Environment`](super::Environment).
    fn is_chosen(&self) -> bool {
        false
    }
    /// Creates a logical device with this name, such as `GPU:0`.
    fn create(&self, name: &str, options: &LogicalOptions) -> Result<Device>;
}

/// Settings of a logical device, for the [`Physical`] that creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogicalOptions {
    /// Largest number of bytes that may be in use at the same time, or `None` for all memory that there is.
    pub memory_limit: Option<u64>,
    /// True if the device allocates memory when a program needs it. False if it allocates all of it when it is created.
    pub memory_growth: bool,
    /// Number of threads of a CPU.
    pub threads: usize,
    /// True if the physical device has no other logical device.
    pub only: bool,
}

/// Name of a physical device: TensorFlow's `tf.config.PhysicalDevice`.
///
/// ```
/// use gradlet::config::PhysicalDevice;
/// let gpu = PhysicalDevice::new("GPU", 0);
/// assert_eq!(gpu.to_string(), "PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhysicalDevice {
    device_type: String,
    index: u32,
}

impl PhysicalDevice {
    /// Creates the name of the device with this type and index.
    pub fn new(device_type: &str, index: u32) -> PhysicalDevice {
        PhysicalDevice { device_type: device_type.into(), index }
    }

    /// Returns the type, such as `GPU`.
    pub fn device_type(&self) -> &str {
        &self.device_type
    }

    /// Returns the index among the devices of the same type.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns TensorFlow's name, such as `/physical_device:GPU:0`.
    pub fn name(&self) -> String {
        format!("/physical_device:{}:{}", self.device_type, self.index)
    }
}

impl fmt::Display for PhysicalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PhysicalDevice(name='{}', device_type='{}')", self.name(), self.device_type)
    }
}

impl fmt::Debug for PhysicalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A device on which ops run: TensorFlow's `tf.config.LogicalDevice`. Its `Display` and `Debug` texts are those of TensorFlow.
#[derive(Clone)]
pub struct LogicalDevice {
    pub(super) device: Device,
    pub(super) device_type: String,
}

impl LogicalDevice {
    /// Returns TensorFlow's name, such as `/device:GPU:0`.
    pub fn name(&self) -> String {
        format!("/device:{}", self.device.name())
    }

    /// Returns the type, such as `GPU`.
    pub fn device_type(&self) -> &str {
        &self.device_type
    }

    /// Returns the device by itself. Ops on tensors that are created on it run there, and nowhere else.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl fmt::Display for LogicalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogicalDevice(name='{}', device_type='{}')", self.name(), self.device_type)
    }
}

impl fmt::Debug for LogicalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Settings of a logical device: TensorFlow's `tf.config.LogicalDeviceConfiguration`.
///
/// ```
/// use gradlet::config::LogicalDeviceConfiguration;
/// let small = LogicalDeviceConfiguration::new().memory_limit(1024);
/// assert_eq!(small, LogicalDeviceConfiguration::new().memory_limit_bytes(1024 << 20));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogicalDeviceConfiguration {
    pub(super) memory_limit: Option<u64>,
    pub(super) threads: Option<usize>,
}

impl LogicalDeviceConfiguration {
    /// Creates settings without a limit, and with an equal share of the threads.
    pub fn new() -> LogicalDeviceConfiguration {
        LogicalDeviceConfiguration::default()
    }

    /// Limits the memory to this number of MiB, TensorFlow's unit. Beyond the limit, an allocation fails with
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory). Unlike TensorFlow, gradlet also limits logical CPUs.
    pub fn memory_limit(self, mebibytes: u64) -> LogicalDeviceConfiguration {
        self.memory_limit_bytes(mebibytes.saturating_mul(1 << 20))
    }

    /// Limits the memory to this number of bytes.
    pub fn memory_limit_bytes(self, bytes: u64) -> LogicalDeviceConfiguration {
        LogicalDeviceConfiguration { memory_limit: Some(bytes), ..self }
    }

    /// Sets the number of threads of a logical CPU. By default, the logical CPUs share the threads of the physical one equally.
    pub fn threads(self, threads: usize) -> LogicalDeviceConfiguration {
        LogicalDeviceConfiguration { threads: Some(threads), ..self }
    }
}

/// The CPU of the host, with fast kernels: see [`cpu`](crate::cpu).
pub(super) struct HostCpu {
    pub(super) portable: bool,
}

impl Physical for HostCpu {
    fn device_type(&self) -> &str {
        "CPU"
    }

    fn memory(&self) -> Option<u64> {
        #[cfg(target_os = "linux")]
        {
            let system = rustix::system::sysinfo();
            u64::try_from(system.totalram as u128 * u128::from(system.mem_unit.max(1))).ok()
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    fn create(&self, name: &str, options: &LogicalOptions) -> Result<Device> {
        if options.threads == 0 {
            return Err(Error::message(format!("{name} cannot have 0 threads: give it at least 1")));
        }
        let device = logical_cpu(name, self.portable, options.threads, options.only);
        Ok(match options.memory_limit {
            Some(bytes) => device.limited(bytes),
            None => device,
        })
    }
}
