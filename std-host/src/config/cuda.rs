//! NVIDIA GPUs as physical devices.

use super::physical::{LogicalOptions, Physical};
use crate::compute::collective::{all_reduce, gpus};
use gradlet_core::{Device, Result};
use gradlet_cuda::{Driver, Gpu, Options};
use std::sync::Arc;

/// Returns the driver's GPUs that gradlet supports, for [`Context::with_devices`](crate::config::Context::with_devices). Their devices have
/// the settings `options`, except `memory_limit` and `memory_growth`, which the context sets, and `host_kernels` and `combine`, which are
/// those of replicas.
///
/// ```no_run
/// use gradlet::config::{Context, Environment};
/// use gradlet::cuda::{self, Driver, Options};
/// let driver = Driver::load()?; // The error says why a GPU is not listed.
/// let options = Options { strict: true, ..Options::default() };
/// let context = Context::with_devices(cuda::physical_devices(&driver, &options)?, &Environment::of_process());
/// println!("{:?}", context.list_physical_devices(Some("GPU")));
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn physical_devices(driver: &Driver, options: &Options) -> Result<Vec<Arc<dyn Physical>>> {
    let options = Options { host_kernels: all_reduce::KERNELS, combine: Some(gpus::combine), ..*options };
    Ok(driver.gpus()?.into_iter().filter(Gpu::is_supported).map(|gpu| Arc::new(CudaGpu { gpu, options }) as Arc<dyn Physical>).collect())
}

struct CudaGpu {
    gpu: Gpu,
    options: Options,
}

impl Physical for CudaGpu {
    fn device_type(&self) -> &str {
        "GPU"
    }

    fn memory(&self) -> Option<u64> {
        Some(self.gpu.memory())
    }

    fn details(&self) -> Vec<(String, String)> {
        let (major, minor) = self.gpu.compute_capability();
        vec![("device_name".into(), self.gpu.name().into()), ("compute_capability".into(), format!("({major}, {minor})"))]
    }

    fn is_chosen(&self) -> bool {
        true
    }

    fn create(&self, name: &str, options: &LogicalOptions) -> Result<Device> {
        let LogicalOptions { memory_limit, memory_growth, .. } = *options;
        self.gpu.create(name, &Options { memory_limit, memory_growth, ..self.options })
    }
}
