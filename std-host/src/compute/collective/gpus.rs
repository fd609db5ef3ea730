//! Collective operations of replicas on GPUs, in the memory of the GPUs.

use super::all_reduce::{Seat, name};
use super::hub::{Communicator, CrossDeviceOps, DevicePart, Exchange, Hub, Reducer};
use gradlet_core::{Error, Result};
use gradlet_cuda::{Nccl, Part, Parts, Spread};
use std::any::Any;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

/// Combines the part of this replica's GPU with those of the other replicas: see [`gradlet_cuda::Options::combine`].
pub(crate) fn combine(part: Part) -> Result<bool> {
    let seat = Seat::current()?;
    let word = *part.attributes().first().ok_or(Error::Internal)?;
    let what = Exchange { name: name(word), dtype: part.dtype(), bytes: Some(part.bytes()) };
    seat.communicator.combine(seat.rank, what, DevicePart(Box::new(part)))
}

/// Returns the parts of GPUs, or `None` if a part is on the host or of another device.
fn of_gpus<'p>(parts: &[Option<&'p (dyn Any + Send)>]) -> Option<Vec<&'p Part>> {
    parts.iter().map(|part| part.and_then(|part| part.downcast_ref())).collect()
}

/// Combination by kernels, among logical devices of one GPU.
pub(super) struct Kernels;

impl Reducer for Kernels {
    fn combine(&self, parts: &[Option<&(dyn Any + Send)>]) -> Result<bool> {
        let Some(parts) = of_gpus(parts) else { return Ok(false) };
        Parts::new(parts)?.map_or(Ok(false), |parts| parts.combine())
    }
}

/// Exchange between GPUs by NVIDIA's NCCL: TensorFlow's `tf.distribute.NcclAllReduce`. It is the default of a strategy.
///
/// NCCL needs a GPU for each replica. Its library, `libnccl.so.2`, is loaded when GPUs first exchange data. Where NCCL cannot be used, a
/// line says so once, and the exchange is that of `InProcess`. The sum of two replicas has the bits of the ordered sum;
/// NCCL chooses the order of more than two. Clones share the library and its communicators.
///
/// ```
/// use gradlet::config::Context;
/// use gradlet::distribute::{MirroredStrategy, NcclAllReduce};
/// let ops = NcclAllReduce::new().log_to(|line| println!("{line}"));
/// let strategy = MirroredStrategy::new(&Context::new(), &[])?.cross_device_ops(ops);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[doc(alias = "tf.distribute.NcclAllReduce")]
#[derive(Clone)]
pub struct NcclAllReduce {
    /// The library, or why it cannot be used, once GPUs have exchanged data.
    nccl: Arc<OnceLock<Result<Nccl>>>,
    notice: Arc<Once>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl NcclAllReduce {
    /// Creates an exchange by the NCCL that is installed.
    pub fn new() -> NcclAllReduce {
        NcclAllReduce::of(OnceLock::new())
    }

    /// Creates an exchange by this NCCL, which the program has opened itself.
    pub fn with(nccl: Nccl) -> NcclAllReduce {
        NcclAllReduce::of(OnceLock::from(Ok(nccl)))
    }

    fn of(nccl: OnceLock<Result<Nccl>>) -> NcclAllReduce {
        NcclAllReduce { nccl: Arc::new(nccl), notice: Arc::new(Once::new()), log: Arc::new(|line| eprintln!("{line}")) }
    }

    /// Sends the line that says why NCCL is not used to `log`. The default is standard error.
    pub fn log_to(self, log: impl Fn(&str) + Send + Sync + 'static) -> NcclAllReduce {
        NcclAllReduce { log: Arc::new(log), ..self }
    }

    /// Sends a line to the log, once.
    fn notify(&self, line: &str) {
        self.notice.call_once(|| (self.log)(line));
    }
}

impl Default for NcclAllReduce {
    fn default() -> NcclAllReduce {
        NcclAllReduce::new()
    }
}

impl CrossDeviceOps for NcclAllReduce {
    fn begin(&self, replicas: usize, limit: Duration) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(Hub::new(replicas, limit, Some(Arc::new(self.clone())))))
    }
}

impl Reducer for NcclAllReduce {
    fn combine(&self, parts: &[Option<&(dyn Any + Send)>]) -> Result<bool> {
        let Some(parts) = of_gpus(parts) else {
            self.notify("not all replicas are on GPUs, which NCCL needs: the host adds their values");
            return Ok(false);
        };
        let replicas = parts.len();
        let Some(parts) = Parts::new(parts)? else { return Ok(false) };
        match parts.spread() {
            Spread::OneGpu => {
                if replicas > 1 {
                    self.notify("NCCL does not support several logical devices of one GPU: kernels of the GPU add their values");
                }
                parts.combine()
            }
            Spread::Mixed => {
                self.notify("NCCL does not support several logical devices of one GPU: the host adds the values of all");
                Ok(false)
            }
            Spread::Apart => match self.nccl.get_or_init(|| Nccl::load(&parts)) {
                Ok(nccl) => nccl.combine(&parts).map(|()| true),
                Err(error) => {
                    self.notify(&format!("{error}: the host adds the values of the GPUs"));
                    Ok(false)
                }
            },
        }
    }
}
