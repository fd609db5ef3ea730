//! Immediate execution.

use crate::device::Device;
use crate::error::{Error, Result};
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
    seed: u64,
    random: Variable,
    taking: Lock<()>,
}

impl Eager {
    /// A scope whose new tensors are made on `device`, with the random seed 0.
    pub fn new(device: &Device) -> Eager {
        Eager::with_seed(device, 0)
    }

    /// A scope whose new tensors are made on `device`, with this random seed.
    pub fn with_seed(device: &Device, seed: u64) -> Eager {
        let random = Variable::untrained("seed_generator_state");
        Eager(Shared::new(Immediate { device: device.clone(), seed, random, taking: Lock::new(()) }))
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

    fn random_state(&self) -> Result<Variable> {
        self.random.create_with(|| Tensor::new(&self.device, &[self.seed as i64, 0], &[2]))?;
        Ok(self.random.clone())
    }

    fn next_stream(&self) -> Result<Stream> {
        let _one_at_a_time = self.taking.lock();
        let state = self.random_state()?.value()?.to_vec::<i64>()?;
        let &[key, stream] = state.as_slice() else { return Err(Error::TensorType { index: 0 }) };
        self.random.set(&Tensor::new(&self.device, &[key, stream.wrapping_add(1)], &[2])?)?;
        Ok(Stream { key: key as u64, stream: stream as u64 })
    }
}
