//! A device on a GPU: gradlet's interface of devices with remote memory.

mod arrival;
mod borrowed;
mod graph;
mod host_ops;
mod launch;
mod merge;
mod moments;
mod options;
mod order;
mod part;
mod tensor_cores;
mod tuner;

pub use host_ops::Combine;
pub use options::Options;
pub use part::Part;

use crate::gpu::Gpu;
use crate::gpu::ahead::{Ahead, Begun};
use crate::gpu::cublaslt::Places;
use crate::gpu::region::{Allocation, Kind, Memory};
use crate::gpu::stream::Stream;
use crate::gpu::workspace::Workspace;
use crate::lower::call::KernelCall;
use crate::lower::product::Product;
use crate::lower::{self, Job, Target, TensorCores};
use arrival::{Arrivals, Early};
use gradlet_core::custom_op::{Call, Kernel, OpDef};
use gradlet_core::device::{Backend, Fuses, Imported, Launch, Placed, Recorded, Refused, Remote, Step};
use gradlet_core::{DType, Device, Error, Result, TensorType, ops};
use graph::Recording;
use host_ops::HostOps;
use launch::{Operand, Ready};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tuner::{Plan, Tuner};

/// Value of the fault word while no step has refused its data.
pub(crate) const NO_FAULT: u32 = u32::MAX;
/// Size of the pieces in which memory is filled with elements of 8 bytes.
const PIECE: usize = 1 << 20;
/// Size from which a copy from the host has a stream of its own, in bytes. A smaller one takes less time than the streams' order.
const LARGE: usize = 64 << 10;
/// Size up to which a copy from the host is on the stream of the work, if that is idle: what comes next hardly waits for it.
const MEDIUM: usize = 1 << 20;

impl Gpu {
    /// Creates a device with the name `name`, such as `GPU:0`. A GPU can have several devices; each has memory and a stream of its own.
    ///
    /// Fails if the GPU is too old, has less free memory than the limit, or if the driver fails. Without `host_kernels`, the device has no
    /// collective operations; `gradlet::cuda::physical_devices` adds them.
    ///
    /// ```no_run
    /// use gradlet_core::Tensor;
    /// use gradlet_cuda::{Driver, Options};
    /// let gpu = &Driver::load()?.gpus()?[0];
    /// let device = gpu.create("GPU:0", &Options { memory_limit: Some(256 << 20), ..Options::default() })?;
    /// let x = Tensor::new(&device, &[1.0f32, 2.0], &[2])?;
    /// assert_eq!(x.add(&x)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn create(&self, name: &str, options: &Options) -> Result<Device> {
        Ok(Device::new(Cuda(Arc::new(Shared::new(self, name, options).map_err(|error| error.context(name))?))))
    }
}

/// The work of an op on the GPU.
pub(crate) enum Work {
    /// Launches of kernels.
    Kernels(Vec<Ready>),
    /// A product that cuBLASLt computes.
    Product(Product),
}

/// State that the device and the steps that it prepared share.
pub(crate) struct Shared {
    name: String,
    target: Target,
    workspace: Workspace,
    tuner: Tuner,
    host_ops: HostOps,
    stream: Stream,
    ahead: Ahead,
    arrivals: Mutex<Arrivals>,
    memory: Mutex<Memory>,
    /// The word to which a kernel writes the number of a step that refuses its data.
    fault: Allocation,
    /// Held from the launch of work that may write the fault word until the word is read and cleared. Only its holder launches work with a
    /// step above 0, which does nothing after a fault.
    turn: Mutex<()>,
    /// Lock of the condition variable `bell`, on which threads sleep while they wait for other threads.
    bed: Mutex<()>,
    bell: Condvar,
}

impl Shared {
    fn new(gpu: &Gpu, name: &str, options: &Options) -> Result<Shared> {
        let context = gpu.context()?;
        let kind = if options.mapped.unwrap_or(gpu.is_integrated()) { Kind::Mapped } else { Kind::Own };
        let (stream, fault) = (Stream::new(&context)?, Allocation::new(&context, 4)?);
        let memory = Mutex::new(Memory::new(&context, kind, options.memory_limit, options.memory_growth)?);
        let host_ops = HostOps::new(options.host_kernels, options.combine);
        let (turn, bed, bell) = (Mutex::default(), Mutex::default(), Condvar::new());
        let (target, workspace) = (target(gpu, options), Workspace::new(&context, options.workspace));
        let (ahead, tuner) = (Ahead::new(&context), Tuner::new(gpu, kind, options.tune));
        let (name, arrivals) = (name.into(), Mutex::default());
        let shared = Shared { name, target, workspace, tuner, host_ops, stream, ahead, arrivals, memory, fault, turn, bed, bell };
        shared.clear_fault()?;
        Ok(shared)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the facts for which ops are lowered. The workspace counts until the driver has refused it.
    pub(crate) fn target(&self) -> Target {
        Target { workspace: self.workspace.size(), ..self.target }
    }

    /// Returns the facts for which `op` is lowered for elements of `dtype`. Before the first op on tensor cores, it checks their kernels.
    pub(crate) fn target_for(&self, op: &OpDef, dtype: DType) -> Target {
        let target = self.target();
        if !lower::tensor_core::has_kernel(op, dtype, &target) {
            return target;
        }
        let right = *self.stream.context().tensor_cores.get_or_init(|| tensor_cores::checked(self, &target));
        Target { tensor_cores: right.min(target.tensor_cores), ..target }
    }

    /// Returns the job of an op whose operands have these types.
    pub(crate) fn job<'j>(
        &self,
        op: &'static OpDef,
        attributes: &'j [u32],
        inputs: &'j [TensorType],
        outputs: &'j [TensorType],
    ) -> Job<'j> {
        let job = Job { op, attributes, inputs, outputs, target: self.target };
        Job { target: self.target_for(op, job.dtype()), ..job }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Begins work on the stream, which comes after all copies from the host. The caller drops the result when the work is on the stream.
    pub(crate) fn work(&self) -> Result<Begun<'_>> {
        self.ahead.work(self.stream.enter()?, self.stream.handle())
    }

    /// Notes the results of a graph that was launched.
    fn launched(&self, early: &[Early], bases: &[u64]) {
        self.arrivals().launched(early, bases, self.ahead.last(), |address| self.memory().host(address));
    }

    /// Forgets the results of a graph that ends.
    fn ended(&self, early: &[Early]) {
        self.arrivals().forget(early);
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address of the fault word.
    pub(crate) fn fault(&self) -> u64 {
        self.fault.address()
    }

    pub(crate) fn clear_fault(&self) -> Result<()> {
        self.fill(&NO_FAULT.to_le_bytes(), self.fault(), 4)
    }

    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares an op for step `step`. There is nothing to launch if the outputs have no elements.
    pub(crate) fn prepare(&self, job: &Job<'_>, step: u32) -> Result<Work> {
        let operands = if job.op.outputs == 0 { job.inputs } else { job.outputs };
        if operands.iter().all(|tensor_type| tensor_type.bytes() == Some(0)) {
            return Ok(Work::Kernels(Vec::new()));
        }
        let rank = match self.tuner.plan(self, job)? {
            Plan::Kernels(rank) => rank,
            Plan::CublasLt(product) => return Ok(Work::Product(product)),
        };
        let calls = lower::lower(&job.ranked(rank))?;
        if self.lacks_workspace(&calls)? {
            // Without a workspace, the op has other launches.
            let target = Target { workspace: self.workspace.size(), ..job.target };
            return self.prepare(&Job { target, ..*job }, step);
        }
        calls.iter().map(|call| self.ready(call, step)).collect::<Result<_>>().map(Work::Kernels)
    }

    /// Prepares the launches to which `lower` lowers step `step`.
    pub(crate) fn prepare_for(
        &self,
        target: &Target,
        step: u32,
        mut lower: impl FnMut(&Target) -> Result<Vec<KernelCall>>,
    ) -> Result<Vec<Ready>> {
        let mut calls = lower(target)?;
        if self.lacks_workspace(&calls)? {
            calls = lower(&Target { workspace: self.workspace.size(), ..*target })?;
        }
        calls.iter().map(|call| self.ready(call, step)).collect()
    }

    /// True if the launches need a workspace and the driver has no memory for it. From then on, [`Shared::target`] has none.
    fn lacks_workspace(&self, calls: &[KernelCall]) -> Result<bool> {
        Ok(calls.iter().any(KernelCall::needs_workspace) && !self.workspace.is_there()?)
    }

    /// Prepares a launch for step `step`.
    pub(crate) fn ready(&self, call: &KernelCall, step: u32) -> Result<Ready> {
        let driver = self.stream.enter()?;
        let function = self.stream.context().modules.function(driver, &call.code, self.target.strict, call.shared)?;
        Ok(Ready::new(call, function, self.fault(), step, self.workspace.address()))
    }

    /// Returns the address and the size of the workspace in bytes, or zeros without one.
    fn whole_workspace(&self) -> Result<(u64, usize)> {
        let size = self.workspace.size();
        Ok(if size > 0 && self.workspace.is_there()? { (self.workspace.address(), size as usize) } else { (0, 0) })
    }

    /// Launches a product by cuBLASLt.
    pub(crate) fn multiply(&self, product: &Product, places: &Places) -> Result<()> {
        let workspace = self.whole_workspace()?;
        let work = self.work()?;
        self.stream.context().multiplier().ok_or(Error::Internal)?.launch(product, places, workspace, work.stream)
    }

    /// Launches an op and, if it may refuse its data, waits for it.
    pub(crate) fn launch(self: &Arc<Shared>, launch: &Launch<'_>) -> Result<()> {
        let types = |placed: &[Placed<'_>]| placed.iter().map(|one| *one.tensor_type).collect::<Vec<TensorType>>();
        let (inputs, outputs) = (types(launch.inputs), types(launch.outputs));
        let job = self.job(launch.op, launch.attributes, &inputs, &outputs);
        if self.on_host(&job) {
            return self.host_ops.run(self, std::slice::from_ref(launch));
        }
        let mut ready = match self.prepare(&job, 0)? {
            Work::Kernels(ready) => ready,
            Work::Product(product) => return self.multiply(&product, &Places::new(launch.inputs, launch.outputs)?),
        };
        let address = |placed: &[Placed<'_>], index: usize| placed.get(index).map(|one| one.address);
        for one in &mut ready {
            one.place(|operand| match operand {
                Operand::Input(index) => address(launch.inputs, index),
                Operand::Output(index) => address(launch.outputs, index),
            })?;
        }
        let refuses = may_refuse(launch.op, job.dtype());
        let _turn = refuses.then(|| self.turn());
        let work = self.work()?;
        ready.iter().try_for_each(|one| one.launch(work.driver, work.stream))?;
        drop(work);
        if !refuses || ready.is_empty() {
            return Ok(());
        }
        let mut fault = [0; 4];
        self.stream.download(self.fault(), &mut fault)?;
        if u32::from_le_bytes(fault) == NO_FAULT {
            return Ok(());
        }
        self.clear_fault()?;
        Err(self.refusal(launch))
    }

    /// Returns the error of an op that has refused its data.
    pub(crate) fn refusal(&self, launch: &Launch<'_>) -> Error {
        self.host_ops.refusal(self, launch)
    }

    /// True if an op runs on the host, although its operands are in the GPU's memory: a collective operation, an op for which the GPU has
    /// no kernel, or an op that writes nothing but may refuse its data, such as labels when there are no classes.
    pub(crate) fn on_host(&self, job: &Job<'_>) -> bool {
        let empty = |types: &[TensorType]| types.iter().all(|one| one.bytes() == Some(0));
        let only_checks = job.op.outputs > 0 && empty(job.outputs) && !empty(job.inputs);
        self.host_ops.moves(job.op) || host_ops::is_on_host(job.op, job.dtype()) || only_checks && may_refuse(job.op, job.dtype())
    }

    /// Copies `bytes` to address `to`. The copy does not wait for work that has never used this memory.
    pub(crate) fn upload(&self, bytes: &[u8], to: u64) -> Result<()> {
        let host = self.memory().host(to);
        let alone = bytes.len() >= LARGE && !(bytes.len() <= MEDIUM && self.ahead.is_idle(self.stream.enter()?));
        match (self.ahead.user(to, bytes.len()), host) {
            (Some(user), None) if alone => return self.ahead.upload(bytes, to, user),
            (_, None) => return self.work().and_then(|_work| self.stream.upload(bytes, to)),
            (Some(None), Some(_)) => (),
            (Some(Some(user)), Some(_)) => self.stream.wait_for(user)?,
            (None, Some(_)) => self.stream.synchronize()?,
        }
        let place = host.ok_or(Error::Internal)?;
        // SAFETY: the place is an allocation of at least this size, and no work uses it now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        Ok(())
    }

    /// Fills the `bytes` bytes at address `to` with `element`, which has 1, 2 or 4 bytes.
    fn fill(&self, element: &[u8], to: u64, bytes: usize) -> Result<()> {
        self.work().and_then(|_work| self.stream.fill(element, to, bytes))
    }

    /// Copies the bytes at address `from` to the host.
    pub(crate) fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        if self.arrivals().read(from, bytes, || self.ahead.last(), |event| self.stream.wait_for(event))? {
            return Ok(());
        }
        let Some(place) = self.memory().host(from) else {
            return self.work().and_then(|_work| self.stream.download(from, bytes));
        };
        self.stream.synchronize()?;
        // SAFETY: as in `upload`.
        unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The memory is freed after the last work on it. A failure means that the GPU is lost.
        let _ = self.stream.synchronize();
    }
}

/// Returns the facts for which ops are lowered.
fn target(gpu: &Gpu, options: &Options) -> Target {
    let Options { strict, tf32, workspace, .. } = *options;
    let (major, minor) = gpu.compute_capability();
    let capability = (major * 10 + minor).unsigned_abs();
    let tensor_cores = if strict { TensorCores::None } else { TensorCores::of(capability) };
    let (multiprocessors, shared) = (gpu.multiprocessors(), gpu.shared());
    Target { capability, multiprocessors, shared, strict, tf32: tf32 && !strict, tensor_cores, workspace, rank: 0 }
}

/// True if the op may refuse its data.
pub(crate) fn may_refuse(op: &OpDef, dtype: DType) -> bool {
    ops::OPS.iter().find(|own| own.def.code == op.code).is_some_and(|own| own.may_refuse(dtype))
}

/// A device on a GPU.
struct Cuda(Arc<Shared>);

impl Backend for Cuda {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        self.0.host_ops.effect(def, call)
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        lower::has_kernel(def, dtype, &self.0.target_for(def, dtype)) || self.0.host_ops.has(def, dtype)
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.0.host_ops.kernels()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn print(&self, text: fmt::Arguments<'_>) {
        print!("{text}");
    }

    fn warn(&self, text: fmt::Arguments<'_>) {
        eprint!("{text}");
    }

    fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        // `wake` takes this lock too. Hence it cannot run between a failed check here and the sleep that follows it.
        let mut bed = self.0.bed.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready() {
            bed = self.0.bell.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        drop(self.0.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.bell.notify_all();
    }
}

impl Remote for Cuda {
    fn allocate(&self, bytes: usize) -> Result<u64, Refused> {
        let address = self.0.memory().allocate(bytes as u64);
        self.0.ahead.allocated(&address);
        address
    }

    fn free(&self, address: u64, bytes: usize) {
        self.0.ahead.freed(address, bytes as u64, &self.0.stream);
        self.0.memory().free(address, bytes as u64);
    }

    fn limit(&self) -> Option<u64> {
        Some(self.0.memory().limit())
    }

    fn upload(&self, bytes: &[u8], to: u64) -> Result<()> {
        self.0.upload(bytes, to)
    }

    fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        self.0.download(from, bytes)
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.0.work().and_then(|_work| self.0.stream.copy(from, to, bytes))
    }

    fn fill(&self, element: &[u8], to: u64, bytes: usize) -> Result<()> {
        match element {
            // The driver fills at most 4 bytes at once, and most elements of 8 bytes are zeros.
            [_, _, _, _, ..] if element.iter().all(|byte| *byte == element[0]) => self.0.fill(&element[..1], to, bytes),
            [_, _, _, _, _, ..] => {
                let piece = element.repeat(PIECE.min(bytes) / element.len());
                (0..bytes).step_by(PIECE).try_for_each(|at| self.0.upload(&piece[..piece.len().min(bytes - at)], to + at as u64))
            }
            _ => self.0.fill(element, to, bytes),
        }
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        self.0.launch(launch)
    }

    fn synchronize(&self) -> Result<()> {
        self.0.stream.synchronize()
    }

    fn import(&self, source: Box<dyn Any + Send + Sync>) -> Result<Imported> {
        borrowed::import(&self.0, source)
    }

    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<u64>> {
        self.0.stream.timed(work).map(Some)
    }

    fn checks(&self, op: &OpDef, dtype: DType) -> bool {
        op.outputs == 0 && lower::has_kernel(op, dtype, &self.0.target)
    }

    fn fuses(&self) -> Fuses {
        // A strict device sums in the order of the portable kernels.
        if self.0.target.strict { Fuses::Elementwise } else { Fuses::Neighbours }
    }

    fn record(&self, steps: Vec<Step>) -> Result<Option<Box<dyn Recorded>>> {
        Ok(Some(Box::new(Recording::new(&self.0, steps)?)))
    }
}
