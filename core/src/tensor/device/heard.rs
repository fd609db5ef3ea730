//! Devices whose messages and reports go to a listener.

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::format::Summary;
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::sync::{Shared, Task, ThreadSafe};
use crate::tensor::device::Backend;
use crate::tensor::device::remote::Remote;
use core::fmt;

/// Listener that overrides part of a device's behavior.
pub(super) trait Listener: ThreadSafe {
    fn print(&self, device: &dyn Backend, text: fmt::Arguments<'_>) {
        device.print(text);
    }
    fn warn(&self, device: &dyn Backend, text: fmt::Arguments<'_>) {
        device.warn(text);
    }
    fn summary(&self, device: &dyn Backend, summary: &Summary<'_>) -> Result<()> {
        device.summary(summary)
    }
}

pub(super) struct PrintsTo<F>(pub(super) F);

impl<F: Fn(fmt::Arguments<'_>) + ThreadSafe> Listener for PrintsTo<F> {
    fn print(&self, _: &dyn Backend, text: fmt::Arguments<'_>) {
        (self.0)(text);
    }
    fn warn(&self, _: &dyn Backend, text: fmt::Arguments<'_>) {
        (self.0)(text);
    }
}

pub(super) struct TellsTo<F>(pub(super) F);

impl<F: Fn(&Summary<'_>) -> Result<()> + ThreadSafe> Listener for TellsTo<F> {
    fn summary(&self, _: &dyn Backend, summary: &Summary<'_>) -> Result<()> {
        (self.0)(summary)
    }
}

/// Device whose behavior a listener overrides in part.
pub(super) struct Heard<L> {
    pub(super) device: Shared<dyn Backend>,
    pub(super) by: L,
}

impl<L: Listener> Backend for Heard<L> {
    fn name(&self) -> &str {
        self.device.name()
    }
    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        self.device.run(def, call)
    }
    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.device.has_kernel(def, dtype)
    }
    fn kernels(&self) -> &[&'static Kernel] {
        self.device.kernels()
    }
    fn remote(&self) -> Option<&dyn Remote> {
        self.device.remote()
    }
    fn threads(&self) -> usize {
        self.device.threads()
    }
    fn during(&self, work: &mut dyn FnMut()) {
        self.device.during(work);
    }
    fn join(&self, tasks: &mut [&mut Task<'_>]) {
        self.device.join(tasks);
    }
    fn print(&self, text: fmt::Arguments<'_>) {
        self.by.print(&*self.device, text);
    }
    fn warn(&self, text: fmt::Arguments<'_>) {
        self.by.warn(&*self.device, text);
    }
    fn summary(&self, summary: &Summary<'_>) -> Result<()> {
        self.by.summary(&*self.device, summary)
    }
    fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        self.device.wait(ready);
    }
    fn wake(&self) {
        self.device.wake();
    }
}
