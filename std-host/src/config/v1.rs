//! Options of TensorFlow 1's sessions, for a context.

use super::{Context, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet_core::{Eager, Error, Result};

/// Options of a session: TensorFlow's `tf.compat.v1.ConfigProto`. They configure a context, in whose scope the graph is built.
///
/// ```
/// use gradlet::compat::v1::{ConfigProto, Graph, Session};
/// use gradlet::config::Context;
/// use gradlet::{DType, Scope, Tensor};
/// let mut config = ConfigProto { intra_op_parallelism_threads: 1, ..ConfigProto::default() };
/// config.gpu_options.allow_growth = true;
/// let scope = config.scope(&Context::new())?;
/// let graph = Graph::new(&scope);
/// let x = graph.placeholder("x", DType::F32, &[2])?;
/// let y = x.add(&x)?;
/// let fed = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
/// assert_eq!(Session::new(&graph).run(&y, &[(&x, &fed)])?.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "tf.ConfigProto", alias = "tf.compat.v1.ConfigProto")]
pub struct ConfigProto {
    /// Options of the GPUs.
    pub gpu_options: GPUOptions,
    /// Number of threads of the CPU. 0 means as many as it has cores.
    pub intra_op_parallelism_threads: usize,
    /// Number of ops that may run at the same time. It has no effect: see [`Context::set_inter_op_parallelism_threads`].
    pub inter_op_parallelism_threads: usize,
    /// True if an op runs on another device when the named one does not exist or cannot compute it. As in TensorFlow 1, the default is
    /// false.
    pub allow_soft_placement: bool,
    /// True if the placement of ops is logged.
    pub log_device_placement: bool,
}

/// Options of the GPUs: TensorFlow's `tf.compat.v1.GPUOptions`.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "tf.GPUOptions", alias = "tf.compat.v1.GPUOptions")]
pub struct GPUOptions {
    /// True if GPUs allocate memory when a program needs it. False leaves the setting of the context, which is the same by default.
    pub allow_growth: bool,
    /// Fraction of its memory that each GPU may use, more than 0 and at most 1. `None` means all of it.
    pub per_process_gpu_memory_fraction: Option<f64>,
    /// Indices of the visible GPUs, such as `0,2`. An empty text leaves all of them visible.
    pub visible_device_list: String,
}

impl ConfigProto {
    /// Applies the options to `context`.
    ///
    /// Fails if an option is invalid, and if the context is in use and an option would change it.
    pub fn apply(&self, context: &Context) -> Result<()> {
        let options = &self.gpu_options;
        if !options.visible_device_list.is_empty() {
            let number = |text: &str| text.trim().parse::<u32>().map(|index| PhysicalDevice::new("GPU", index));
            let listed = options.visible_device_list.split(',').map(number).collect::<Result<Vec<_>, _>>();
            let wrong = |_| Error::message(format!("visible_device_list is {:?}: write indices, such as 0,2", options.visible_device_list));
            context.set_visible_devices(&listed.map_err(wrong)?, Some("GPU"))?;
        }
        for gpu in context.get_visible_devices(Some("GPU")) {
            if options.allow_growth && !context.get_memory_growth(&gpu)? {
                context.set_memory_growth(&gpu, true)?;
            }
            if let Some(fraction) = options.per_process_gpu_memory_fraction {
                context.set_logical_device_configuration(&gpu, &[limited(context, &gpu, fraction)?])?;
            }
        }
        context.set_intra_op_parallelism_threads(self.intra_op_parallelism_threads)?;
        context.set_inter_op_parallelism_threads(self.inter_op_parallelism_threads)?;
        context.set_soft_device_placement(self.allow_soft_placement);
        context.set_log_device_placement(self.log_device_placement);
        Ok(())
    }

    /// Applies the options to `context`, and returns a scope on its devices, for the graph of a session. Fails like [`ConfigProto::apply`].
    pub fn scope(&self, context: &Context) -> Result<Eager> {
        self.apply(context)?;
        context.scope()
    }
}

/// Returns the settings of a GPU that may use a fraction of its memory.
fn limited(context: &Context, gpu: &PhysicalDevice, fraction: f64) -> Result<LogicalDeviceConfiguration> {
    if !(fraction > 0.0 && fraction <= 1.0) {
        return Err(Error::message(format!("per_process_gpu_memory_fraction is {fraction}: it must be more than 0 and at most 1")));
    }
    let unknown = || Error::message(format!("the size of the memory of {gpu} is unknown, so it cannot be limited to a fraction of it"));
    let memory = context.memory(gpu)?.ok_or_else(unknown)?;
    Ok(LogicalDeviceConfiguration::new().memory_limit_bytes((memory as f64 * fraction) as u64))
}
