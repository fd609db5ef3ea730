//! The context: physical devices, their configuration, and the logical devices that exist once the context is in use.

use super::environment::Environment;
use super::physical::{HostCpu, LogicalDevice, LogicalDeviceConfiguration, LogicalOptions, Physical, PhysicalDevice};
use super::rules::Rules;
use gradlet_core::device::{MemoryInfo, Placement};
use gradlet_core::{Device, Eager, Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Devices and their configuration, with TensorFlow's names and rules. Clones share them.
///
/// A context is configured first and used afterwards. Its first use creates the logical devices: [`scope`](Context::scope),
/// [`device`](Context::device) and [`list_logical_devices`](Context::list_logical_devices). From then on, devices, limits and threads
/// cannot change. Soft placement and the placement log can.
///
/// ```
/// use gradlet::config::{Context, LogicalDeviceConfiguration};
/// use gradlet::{Scope, Tensor};
/// let context = Context::new();
/// let cpu = &context.list_physical_devices(Some("CPU"))[0];
/// context.set_logical_device_configuration(cpu, &[LogicalDeviceConfiguration::new(); 2])?;
/// let scope = context.scope()?;
/// let there = scope.with_device("CPU:1")?;
/// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
/// let y = x.add(&x)?;
/// drop(there);
/// assert_eq!((x.device()?.name(), y.device()?.name(), x.add(&y)?.device()?.name()), ("CPU:1", "CPU:1", "CPU:0"));
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    physical: Vec<(PhysicalDevice, Arc<dyn Physical>)>,
    environment: Environment,
    rules: Arc<Rules>,
    settings: Mutex<Settings>,
    logical: OnceLock<Logical>,
}

#[derive(Clone, PartialEq)]
struct Settings {
    visible: Vec<PhysicalDevice>,
    logical: BTreeMap<PhysicalDevice, Vec<LogicalDeviceConfiguration>>,
    growth: BTreeMap<PhysicalDevice, bool>,
    intra_op: usize,
    inter_op: usize,
}

/// The devices of a context in use.
struct Logical {
    devices: Vec<LogicalDevice>,
    group: Device,
}

impl Inner {
    /// Returns true if the memory of `device` grows.
    fn growth(&self, settings: &Settings, device: &PhysicalDevice) -> bool {
        self.environment.growth().or(settings.growth.get(device).copied()).unwrap_or(true)
    }
}

impl Default for Context {
    fn default() -> Context {
        Context::new()
    }
}

impl Context {
    /// Creates a context with the physical devices of this machine: its CPU and, with the feature `cuda`, its GPUs. It obeys the
    /// [`Environment`] of the process.
    pub fn new() -> Context {
        Context::with_devices(super::gpus(), &Environment::of_process())
    }

    /// Creates a context with the host's CPU and `devices`, such as GPUs.
    pub fn with_devices(devices: impl IntoIterator<Item = Arc<dyn Physical>>, environment: &Environment) -> Context {
        Context::of(Arc::new(HostCpu { portable: false }), devices, environment)
    }

    /// Creates a context like [`Context::with_devices`], whose CPUs have the portable kernels: see [`portable_cpu`](crate::portable_cpu).
    pub fn portable(devices: impl IntoIterator<Item = Arc<dyn Physical>>, environment: &Environment) -> Context {
        Context::of(Arc::new(HostCpu { portable: true }), devices, environment)
    }

    /// Creates a context with `cpu` in place of the host's CPU: a device of type `CPU`.
    pub fn of(cpu: Arc<dyn Physical>, devices: impl IntoIterator<Item = Arc<dyn Physical>>, environment: &Environment) -> Context {
        let mut counts = BTreeMap::<String, u32>::new();
        let named = |device: Arc<dyn Physical>| {
            let count = counts.entry(device.device_type().into()).or_default();
            *count += 1;
            (PhysicalDevice::new(device.device_type(), *count - 1), device)
        };
        let physical: Vec<_> = std::iter::once(cpu).chain(environment.chosen(devices.into_iter().collect())).map(named).collect();
        let visible = physical.iter().map(|(device, _)| device.clone()).collect();
        let settings = Settings { visible, logical: BTreeMap::new(), growth: BTreeMap::new(), intra_op: 0, inter_op: 0 };
        let (environment, rules, settings) = (environment.clone(), Arc::new(Rules::new()), Mutex::new(settings));
        Context(Arc::new(Inner { physical, environment, rules, settings, logical: OnceLock::new() }))
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.0.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, device: &PhysicalDevice) -> Result<&Arc<dyn Physical>> {
        let found = self.0.physical.iter().find(|(own, _)| own == device).map(|(_, physical)| physical);
        found.ok_or_else(|| {
            let own: Vec<String> = self.0.physical.iter().map(|(own, _)| own.to_string()).collect();
            Error::message(format!("unrecognized device {device}: there are {}", own.join(", ")))
        })
    }

    /// Returns the physical devices of a type, or all of them.
    pub fn list_physical_devices(&self, device_type: Option<&str>) -> Vec<PhysicalDevice> {
        of_type(self.0.physical.iter().map(|(device, _)| device), device_type)
    }

    /// Returns what is known of a physical device.
    pub fn get_device_details(&self, device: &PhysicalDevice) -> Result<Vec<(String, String)>> {
        Ok(self.known(device)?.details())
    }

    /// Returns the size of the memory of a physical device in bytes, or `None` if it is unknown.
    pub(super) fn memory(&self, device: &PhysicalDevice) -> Result<Option<u64>> {
        Ok(self.known(device)?.memory())
    }

    /// Returns the visible physical devices of a type, or all of them. Only visible devices are used.
    pub fn get_visible_devices(&self, device_type: Option<&str>) -> Vec<PhysicalDevice> {
        of_type(self.settings().visible.iter(), device_type)
    }

    /// Makes only `devices` visible. With a type, the devices of other types stay as they are.
    ///
    /// Fails if a device does not exist or has another type, and after first use if it would change something.
    pub fn set_visible_devices(&self, devices: &[PhysicalDevice], device_type: Option<&str>) -> Result<()> {
        for device in devices {
            self.known(device)?;
            if let Some(wanted) = device_type.filter(|wanted| *wanted != device.device_type()) {
                return Err(Error::message(format!("unrecognized device {device}: its type is not {wanted}")));
            }
        }
        self.set("the visible devices", |settings| {
            let stays = |device: &&PhysicalDevice| match device_type {
                Some(changed) if device.device_type() != changed => settings.visible.contains(device),
                _ => devices.contains(device),
            };
            settings.visible = self.0.physical.iter().map(|(device, _)| device).filter(stays).cloned().collect();
            Ok(())
        })
    }

    /// Returns the configuration of the logical devices that `device` becomes, or `None` if none was set.
    pub fn get_logical_device_configuration(&self, device: &PhysicalDevice) -> Result<Option<Vec<LogicalDeviceConfiguration>>> {
        self.known(device)?;
        Ok(self.settings().logical.get(device).cloned())
    }

    /// Divides a physical device into logical ones. A visible device without a configuration becomes one logical device.
    ///
    /// Fails if the device does not exist, if a limit is 0 or above the memory that exists, if a logical GPU has no limit, and after first
    /// use if it would change something.
    pub fn set_logical_device_configuration(&self, device: &PhysicalDevice, logical: &[LogicalDeviceConfiguration]) -> Result<()> {
        let physical = self.known(device)?;
        let limits = logical.iter().map(|one| one.memory_limit);
        if limits.clone().any(|limit| limit == Some(0)) {
            return Err(Error::message(format!("a logical device of {device} cannot have a memory limit of 0 bytes")));
        }
        let wanted = limits.clone().flatten().fold(0, u64::saturating_add);
        if let Some(memory) = physical.memory().filter(|memory| wanted > *memory) {
            return Err(Error::message(format!("the logical devices of {device} are given {wanted} bytes, but it has {memory} bytes")));
        }
        if device.device_type() != "CPU" && limits.clone().any(|limit| limit.is_none()) {
            return Err(Error::message(format!("every logical device of {device} needs a memory limit: set it with memory_limit()")));
        }
        if logical.iter().any(|one| one.threads == Some(0)) {
            return Err(Error::message(format!("a logical device of {device} cannot have 0 threads: give it at least 1")));
        }
        self.set("the logical devices", |settings| {
            settings.logical.insert(device.clone(), logical.into());
            Ok(())
        })
    }

    /// Returns true if the GPU allocates memory when a program needs it, and false if it allocates all of it on first use.
    pub fn get_memory_growth(&self, device: &PhysicalDevice) -> Result<bool> {
        self.known(device)?;
        Ok(self.0.growth(&self.settings(), device))
    }

    /// Sets whether the GPU allocates memory when a program needs it, which is the default, or all of it on first use. The
    /// [module](super) explains the default.
    ///
    /// Fails if the device does not exist, is a CPU, or is divided into logical devices, and after first use if it would change something.
    pub fn set_memory_growth(&self, device: &PhysicalDevice, enable: bool) -> Result<()> {
        self.known(device)?;
        self.set("memory growth", |settings| {
            if settings.logical.contains_key(device) {
                let text = "because it is divided into logical devices";
                return Err(Error::message(format!("memory growth cannot be set on {device}, {text}")));
            }
            if device.device_type() == "CPU" {
                let text = "because the memory of a CPU always grows";
                return Err(Error::message(format!("memory growth cannot be set on {device}, {text}")));
            }
            settings.growth.insert(device.clone(), enable);
            Ok(())
        })
    }

    /// Returns the number of threads of the CPU, or 0 for as many as it has cores.
    pub fn get_intra_op_parallelism_threads(&self) -> usize {
        self.settings().intra_op
    }

    /// Sets the number of threads of the CPU, which its logical devices share. 0 means as many as it has cores.
    ///
    /// Fails after first use if it would change something.
    pub fn set_intra_op_parallelism_threads(&self, threads: usize) -> Result<()> {
        self.set("the number of threads", |settings| {
            settings.intra_op = threads;
            Ok(())
        })
    }

    /// Returns the number that was set with [`set_inter_op_parallelism_threads`](Context::set_inter_op_parallelism_threads).
    pub fn get_inter_op_parallelism_threads(&self) -> usize {
        self.settings().inter_op
    }

    /// Sets the number of ops that may run at the same time in TensorFlow. It has no effect: a function of gradlet runs one op after the
    /// other, each on all threads of its device.
    ///
    /// Fails after first use if it would change something.
    pub fn set_inter_op_parallelism_threads(&self, threads: usize) -> Result<()> {
        self.set("the number of threads", |settings| {
            settings.inter_op = threads;
            Ok(())
        })
    }

    /// Returns true if an op runs on another device when the named one does not exist or cannot compute it. That is the default.
    pub fn get_soft_device_placement(&self) -> bool {
        self.0.rules.is_soft()
    }

    /// Sets whether an op runs on another device when the named one does not exist or cannot compute it. Otherwise that is an error.
    pub fn set_soft_device_placement(&self, enabled: bool) {
        self.0.rules.set_soft(enabled);
    }

    /// Returns true if the placement of ops is logged.
    pub fn get_log_device_placement(&self) -> bool {
        self.0.rules.logs()
    }

    /// Sets whether each op that runs eagerly, each node of a function that is compiled, and each copy between devices is logged, as
    /// `tf.debugging.set_log_device_placement` does. The log goes to standard error, or where [`log_to`](Context::log_to) says.
    pub fn set_log_device_placement(&self, enabled: bool) {
        self.0.rules.set_logs(enabled);
    }

    /// Sends the lines of the placement log to `log`.
    pub fn log_to(&self, log: impl Fn(&str) + Send + Sync + 'static) {
        self.0.rules.set_log(Arc::new(log));
    }

    /// Returns the memory of a logical device: the bytes in use, their peak, and the limit. Fails if there is no such device.
    pub fn get_memory_info(&self, device: &str) -> Result<MemoryInfo> {
        Ok(self.device(device)?.memory_info())
    }

    /// Returns the logical devices of a type, or all of them. This is the first use of the context, if there was none.
    ///
    /// Fails if no CPU is visible, and if a device cannot be created.
    pub fn list_logical_devices(&self, device_type: Option<&str>) -> Result<Vec<LogicalDevice>> {
        let wanted = |device: &&LogicalDevice| device_type.is_none_or(|wanted| wanted == device.device_type);
        Ok(self.logical()?.devices.iter().filter(wanted).cloned().collect())
    }

    /// Returns the logical device with this name, by itself. Ops on tensors that are created on it run there, and nowhere else.
    ///
    /// Fails like [`Context::list_logical_devices`], and if there is no such device.
    pub fn device(&self, name: &str) -> Result<Device> {
        let logical = self.logical()?;
        let index = self.0.rules.exactly(name)?;
        logical.devices.get(index as usize).map(|one| one.device.clone()).ok_or(Error::Internal)
    }

    /// Creates a scope that places ops on the logical devices: on the one that [`with_device`](crate::Scope::with_device) names, otherwise
    /// on the fastest one with a kernel. Its random seed is 0.
    ///
    /// Fails like [`Context::list_logical_devices`].
    pub fn scope(&self) -> Result<Eager> {
        self.scope_with_seed(0)
    }

    /// Creates a scope like [`Context::scope`], with this random seed.
    pub fn scope_with_seed(&self, seed: u64) -> Result<Eager> {
        Ok(Eager::with_seed(&self.logical()?.group, seed))
    }

    /// Returns the device on which ops run that name `name`. It is one of the logical devices, or `None` if placement is soft and there is
    /// no such device.
    pub(crate) fn placed(&self, name: &str) -> Result<Option<Device>> {
        let devices = &self.logical()?.devices;
        Ok(self.0.rules.find(name)?.and_then(|index| devices.get(index as usize)).map(|one| one.device.clone()))
    }

    /// Returns the fastest device, as a member of the group of all logical devices.
    pub(crate) fn group(&self) -> Result<Device> {
        Ok(self.logical()?.group.clone())
    }

    /// Changes the settings. Fails if `change` fails, and if the context is in use and `what` would change.
    fn set(&self, what: &str, change: impl FnOnce(&mut Settings) -> Result<()>) -> Result<()> {
        let mut settings = self.settings();
        let mut changed = settings.clone();
        change(&mut changed)?;
        if changed != *settings && self.0.logical.get().is_some() {
            return Err(Error::message(format!(
                "{what} cannot change any more, because the devices are in use: set them at the beginning"
            )));
        }
        *settings = changed;
        Ok(())
    }

    fn logical(&self) -> Result<&Logical> {
        if let Some(logical) = self.0.logical.get() {
            return Ok(logical);
        }
        // The settings are locked until the devices exist, so they cannot change in between.
        let settings = self.settings();
        if self.0.logical.get().is_none() {
            let logical = self.create(&settings)?;
            let _ = self.0.logical.set(logical);
        }
        self.0.logical.get().ok_or(Error::Internal)
    }

    fn create(&self, settings: &Settings) -> Result<Logical> {
        let used = |name: &&PhysicalDevice| name.device_type() == "CPU" && settings.logical.get(name).is_none_or(|all| !all.is_empty());
        if !settings.visible.iter().any(|name| used(&name)) {
            return Err(Error::message("no CPU devices are available: make a CPU visible, and do not divide it into 0 logical devices"));
        }
        let (mut devices, mut names) = (Vec::<LogicalDevice>::new(), Vec::<(String, u32)>::new());
        for (name, physical) in self.0.physical.iter().filter(|(name, _)| settings.visible.contains(name)) {
            let configured = settings.logical.get(name);
            let logical = configured.cloned().unwrap_or_else(|| vec![LogicalDeviceConfiguration::new()]);
            let threads = if settings.intra_op > 0 { settings.intra_op } else { gradlet_cpu::threads() };
            for one in &logical {
                let index = names.iter().filter(|(kind, _)| *kind == name.device_type()).count() as u32;
                let options = LogicalOptions {
                    memory_limit: one.memory_limit,
                    memory_growth: self.0.growth(settings, name),
                    threads: one.threads.unwrap_or((threads / logical.len()).max(1)),
                    only: logical.len() == 1,
                };
                let device = physical.create(&format!("{}:{index}", name.device_type()), &options)?;
                devices.push(LogicalDevice { device, device_type: name.device_type().into() });
                names.push((name.device_type().into(), index));
            }
        }
        let (cpus, others): (Vec<u32>, Vec<u32>) = (0..names.len() as u32).partition(|&index| names[index as usize].0 == "CPU");
        let all: Vec<Device> = devices.iter().map(|one| one.device.clone()).collect();
        let rules: Arc<dyn Placement> = self.0.rules.clone();
        let group = Device::group(&all, &[others, cpus].concat(), rules)?;
        self.0.rules.set_devices(names);
        Ok(Logical { devices, group })
    }
}

fn of_type<'d>(devices: impl Iterator<Item = &'d PhysicalDevice>, device_type: Option<&str>) -> Vec<PhysicalDevice> {
    devices.filter(|device| device_type.is_none_or(|wanted| wanted == device.device_type())).cloned().collect()
}
