//! Immediate execution.

use crate::device::Device;
use crate::error::Result;
use crate::random::Stream;
use crate::scope::{Op, Outputs, Recorder, Scope, ScopeHandle};
use crate::sync::{Lock, Shared};
use crate::tensor::Tensor;
use crate::variable::Variable;

/// The scope that computes at once and records nothing.
///
/// ```
/// use gradlet_core::{Eager, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// ```
#[derive(Clone)]
pub struct Eager(Shared<Immediate>);

struct Immediate {
    device: Device,
    random: Lock<Stream>,
}

impl Eager {
    /// A scope whose new tensors are made on `device`, with the random seed 0.
    pub fn new(device: &Device) -> Eager {
        Eager::with_seed(device, 0)
    }

    /// A scope whose new tensors are made on `device`, with this random seed.
    pub fn with_seed(device: &Device, seed: u64) -> Eager {
        Eager(Shared::new(Immediate { device: device.clone(), random: Lock::new(Stream { key: seed, stream: 0 }) }))
    }
}

impl Scope for Eager {
    fn handle(&self) -> ScopeHandle {
        ScopeHandle::new(self.0.clone())
    }
}

impl Recorder for Immediate {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        Tensor::compute(op, attributes, inputs)
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        variable.value()
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        variable.set(value)
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        None
    }

    fn recording(&self) -> bool {
        true
    }

    fn may_create(&self) -> bool {
        true
    }

    fn next_stream(&self) -> Stream {
        let mut random = self.random.lock();
        let next = *random;
        random.stream += 1;
        next
    }
}
