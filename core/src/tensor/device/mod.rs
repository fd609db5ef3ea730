//! Devices: their memory, and what computes in it.

pub(crate) mod account;
pub(crate) mod aligned;
pub(crate) mod blocks;
pub(crate) mod buffer;
mod cpu;
mod external;
mod group;
mod heard;
mod pool;
pub(crate) mod remote;
mod report;
mod timed;

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::format::{Said, Summary};
use crate::base::op::{Call, Kernel, MAX_INPUTS, MAX_OUTPUTS, OpDef, Slice};
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, Task, ThreadSafe};
use crate::base::view::{TensorView, TensorViewMut};
use crate::tensor::profile::{Activity, Either, NamedOp, Ops, Profiler, during};
use crate::tensor::size;
use account::{Account, Holder};
use core::fmt;
use group::{Group, Member};
use heard::{Heard, Listener, PrintsTo, TellsTo};
use remote::{Launch, Placed};

pub use account::MemoryInfo;
pub use aligned::AlignedBytes;
pub(crate) use buffer::Buffer;
pub use cpu::Cpu;
pub use external::{ExternalMemory, Imported};
pub use group::{Now, Placement};
pub use remote::Remote;

/// Implementation of a device, which holds buffers and runs ops on them.
pub trait Backend: ThreadSafe {
    /// Returns the name of the device, such as `CPU:0`.
    fn name(&self) -> &str;
    /// Computes `def` on the inputs of `call` into its outputs, which have the types that the op's shape rule returned. The inputs and
    /// outputs are in memory of the host. A device with [remote](Backend::remote) memory gets only ops without outputs here.
    ///
    /// Fails with [`Error::NoKernel`] if the device cannot compute the op for these types.
    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()>;
    /// True if the device can compute `def` for inputs of `dtype`.
    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool;
    /// Returns the kernels that a compiled program may use on memory of the host, in order of preference. A device with
    /// [remote](Backend::remote) memory has at least those of branches, loops and ops without outputs.
    fn kernels(&self) -> &[&'static Kernel];
    /// Returns the device's memory if the host cannot address it. A CPU has none: its tensors are slices.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }
    /// Returns the number of tasks that can run in parallel.
    fn threads(&self) -> usize {
        1
    }
    /// Calls `work`, which runs kernels of the device on this thread. A device can choose here which threads help.
    fn during(&self, work: &mut dyn FnMut()) {
        work();
    }
    /// Runs all tasks, in parallel if possible, and returns when the last one has ended.
    fn join(&self, tasks: &mut [&mut Task<'_>]) {
        tasks.iter_mut().for_each(|task| task());
    }
    /// Prints the text of a program. The text includes its line break, if it has one.
    fn print(&self, text: fmt::Arguments<'_>) {
        let _ = text;
    }
    /// Receives a summary value of a program. A device without a listener ignores it.
    fn summary(&self, summary: &Summary<'_>) -> Result<()> {
        let _ = summary;
        Ok(())
    }
    /// Warns the programmer about a probable mistake.
    fn warn(&self, text: fmt::Arguments<'_>) {
        let _ = text;
    }
    /// Blocks the thread until `ready` returns true, for example to wait for a value that another thread has taken. The device calls
    /// `ready` at least once, and again after each later [`wake`](Backend::wake). Between the calls the thread sleeps, if the target
    /// supports that. `ready` must not block.
    fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        while !ready() {
            core::hint::spin_loop();
        }
    }
    /// Makes all threads in [`wait`](Backend::wait) call `ready` again.
    fn wake(&self) {}
}

/// Handle of a device. Two devices are equal if they share their memory. CPUs without a limit are also equal if they have the same name
/// and the same kernels.
#[derive(Clone)]
pub struct Device {
    group: Shared<Group>,
    /// Index of the device in its group.
    index: u32,
}

impl Device {
    /// Creates the device that `backend` implements.
    pub fn new(backend: impl Backend + 'static) -> Device {
        let limited = backend.remote().is_some_and(|remote| remote.limit().is_some());
        let (is_remote, account) = (backend.remote().is_some(), Shared::new(Account::new(None, limited)));
        let group = Group::of(Member { account, is_remote, backend: Shared::new(backend) });
        Device { group: Shared::new(group), index: 0 }
    }

    /// Returns this device as a member of the group.
    #[inline(always)]
    fn own(&self) -> &Member {
        &self.group.members[self.index as usize]
    }

    /// Returns the same device in a group that `change` has changed.
    fn changed(&self, change: impl FnOnce(&mut Group, usize)) -> Device {
        let mut group = (*self.group).clone();
        change(&mut group, self.index as usize);
        Device { group: Shared::new(group), index: self.index }
    }

    /// Returns the same device with `by` as a listener.
    fn heard(&self, by: impl Listener + 'static) -> Device {
        let backend = Shared::new(Heard { device: self.own().backend.clone(), by });
        self.changed(|group, own| group.members[own].backend = backend)
    }

    fn backend(&self) -> &dyn Backend {
        &*self.own().backend
    }

    fn account(&self) -> &Account {
        &self.own().account
    }

    /// Returns the memory of a remote device.
    #[inline(always)]
    pub(crate) fn remote(&self) -> Option<&dyn Remote> {
        if self.own().is_remote { self.backend().remote() } else { None }
    }

    /// Returns the bytes in use, their peak, the limit, and the number of allocations.
    ///
    /// ```
    /// use gradlet_core::{Tensor, ops};
    /// let device = ops::portable_cpu();
    /// let x = Tensor::full(&device, 1.0f32, &[100])?;
    /// assert_eq!(device.memory_info().current, 400);
    /// drop(x);
    /// assert_eq!((device.memory_info().current, device.memory_info().peak), (0, 400));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn memory_info(&self) -> MemoryInfo {
        self.account().info(self.remote().and_then(Remote::limit))
    }

    /// Gives memory that was freed and waits for reuse back to the system. A CPU keeps such memory, but never so much that it would hold
    /// more than the peak of [`Device::memory_info`].
    pub fn free_unused(&self) {
        self.account().free_unused();
    }

    /// Returns a device with the kernels of this CPU and memory of its own, of which at most `bytes` bytes can be in use. The bytes are
    /// rounded down to whole blocks of 16. Beyond the limit, every allocation fails with [`Error::OutOfMemory`], which names the holders of
    /// the memory; the device goes on working. TensorFlow has no such limit on a CPU.
    ///
    /// ```
    /// use gradlet_core::{Error, Tensor, ops};
    /// let device = ops::portable_cpu().limited(1024);
    /// let x = Tensor::full(&device, 1.0f32, &[200])?;
    /// let refused = Tensor::full(&device, 1.0f32, &[100]).unwrap_err();
    /// assert!(matches!(refused.root(), Error::OutOfMemory(shortage) if shortage.free == 224));
    /// assert_eq!(x.mean(&[], false)?.item::<f32>()?, 1.0);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn limited(&self, bytes: u64) -> Device {
        let account = Shared::new(Account::new(Some(bytes), true));
        self.changed(|group, own| group.members[own].account = account)
    }

    /// Creates a CPU that computes with `kernels`. If several kernels compute the same op and element type, it uses the first.
    pub fn cpu(name: &str, kernels: &'static [&'static Kernel]) -> Device {
        Device::new(Cpu::new(name, kernels))
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        self.backend().name()
    }

    /// Returns the kernels that a compiled program may use on this device, in order of preference.
    pub fn kernels(&self) -> &[&'static Kernel] {
        self.backend().kernels()
    }

    /// True if the device can compute `def` for inputs of `dtype`.
    pub fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.backend().has_kernel(def, dtype)
    }

    pub(crate) fn threads(&self) -> usize {
        self.backend().threads()
    }

    /// Calls `work`, which runs kernels of the device, and returns its result.
    pub(crate) fn during<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let (mut work, mut result) = (Some(work), None);
        self.backend().during(&mut || result = work.take().map(|work| work()));
        result
    }

    pub(crate) fn join(&self, tasks: &mut [&mut Task<'_>]) {
        self.backend().join(tasks);
    }

    pub(crate) fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        self.backend().wait(ready);
    }

    pub(crate) fn wake(&self) {
        self.backend().wake();
    }

    /// True if both are handles of the same backend.
    #[inline(always)]
    pub(crate) fn is(&self, other: &Device) -> bool {
        Shared::ptr_eq(&self.group, &other.group) && self.index == other.index
    }

    /// Delivers a program's message: prints its text or passes its summary to the listener. Fails if the listener fails.
    pub fn say(&self, said: &Said<'_>) -> Result<()> {
        match said {
            Said::Print(printed) => self.backend().print(format_args!("{printed}")),
            Said::Summary(summary) => return self.backend().summary(summary),
        }
        Ok(())
    }

    pub(crate) fn warn(&self, text: fmt::Arguments<'_>) {
        self.backend().warn(text);
    }

    /// Returns the same device with its output redirected to `sink`, which receives all printed text and all warnings.
    ///
    /// ```
    /// use gradlet_core::{Eager, Print, Tensor, ops};
    /// use std::sync::{Arc, Mutex};
    /// let text = Arc::new(Mutex::new(String::new()));
    /// let sink = text.clone();
    /// let device = ops::portable_cpu().printing(move |part| *sink.lock().unwrap() += &part.to_string());
    /// let scope = Eager::new(&device);
    /// scope.print("loss {}", &[&Tensor::scalar(&device, 0.5f32)])?;
    /// assert_eq!(*text.lock().unwrap(), "loss 0.5\n");
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn printing(&self, sink: impl Fn(fmt::Arguments<'_>) + ThreadSafe + 'static) -> Device {
        self.heard(PrintsTo(sink))
    }

    /// Returns the same device with `sink` as the receiver of the summaries. `sink` is called while a program runs. It must not call the
    /// function that reports the summary, nor use the variables that the function assigns. An error of `sink` is the program's error.
    /// [`Summarize`](crate::Summarize) has an example.
    pub fn summarizing(&self, sink: impl Fn(&Summary<'_>) -> Result<()> + ThreadSafe + 'static) -> Device {
        self.heard(TellsTo(sink))
    }

    /// Returns the same device, which reports its work to `profiler`. The reports cover eager ops that the device computes, every step of
    /// functions called in a scope of the device, and transfers from and to memory that the device allocated. If only some inputs of an op
    /// are on this device and the others on the same device without profiler, this device computes the op.
    ///
    /// ```
    /// use gradlet_core::device::{Activity, Profiler};
    /// use gradlet_core::{Tensor, ops};
    /// use std::sync::{Arc, Mutex};
    /// #[derive(Default)]
    /// struct Names(Mutex<Vec<&'static str>>);
    /// impl Profiler for Names {
    ///     fn begin(&self, activity: &Activity<'_>) {
    ///         if let Activity::Ops(ops) = activity {
    ///             self.0.lock().unwrap().extend(ops.nodes.iter().map(|node| node.op.name));
    ///         }
    ///     }
    ///     fn end(&self) {}
    /// }
    /// let names = Arc::new(Names::default());
    /// let x = Tensor::scalar(&ops::portable_cpu().profiling(names.clone()), 2.0f32);
    /// x.mul(&x)?.neg()?;
    /// assert_eq!(*names.0.lock().unwrap(), ["mul", "neg"]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn profiling(&self, profiler: Shared<dyn Profiler>) -> Device {
        let profiler = match &self.group.profiler {
            Some(before) => Shared::new(Either { first: profiler, second: before.clone() }),
            None => profiler,
        };
        self.changed(|group, _| group.profiler = Some(profiler))
    }

    /// Returns the profiler, if there is one that is on.
    #[inline(always)]
    pub(crate) fn profiler(&self) -> Option<&dyn Profiler> {
        self.group.profiler.as_deref().filter(|profiler| profiler.is_on())
    }

    /// Returns the device's preferred kernel of `def` for `dtype`, for use in compiled programs. Fails if there is none.
    pub(crate) fn kernel(&self, def: &OpDef, dtype: DType) -> Result<&'static Kernel> {
        let fits = |kernel: &&&'static Kernel| kernel.def.code == def.code && kernel.dtype == dtype;
        let missing = || Error::message(alloc::format!("{} has no kernel for {} on {dtype}", self.name(), def.name));
        self.kernels().iter().find(fits).copied().ok_or_else(missing)
    }

    /// Computes `def` eagerly and returns a buffer for each output. The inputs must be on this device, and `outputs` must be the types that
    /// the op's shape rule returns.
    pub(crate) fn run(
        &self,
        def: &'static OpDef,
        attributes: &[u32],
        inputs: &[(&TensorType, &Buffer)],
        outputs: &[TensorType],
    ) -> Result<heapless::Vec<Buffer, MAX_OUTPUTS>> {
        let mut buffers = heapless::Vec::<Buffer, MAX_OUTPUTS>::new();
        let dtype = inputs.first().map_or(DType::U8, |(tensor_type, _)| tensor_type.dtype);
        let checks = |remote: &dyn Remote| remote.checks(def, dtype);
        if outputs.is_empty() && !self.remote().is_some_and(checks) {
            return self.effect(def, attributes, inputs).map(|()| buffers);
        }
        for tensor_type in outputs {
            let _ = buffers.push(Buffer::allocate(self, size(*tensor_type)?, Holder::Tensor(def.name))?);
        }
        if let Some(remote) = self.remote() {
            let inputs: heapless::Vec<Placed<'_>, MAX_INPUTS> =
                inputs.iter().map(|(tensor_type, buffer)| Placed { tensor_type, address: buffer.address() }).collect();
            let outputs: heapless::Vec<Placed<'_>, MAX_OUTPUTS> =
                outputs.iter().zip(&buffers).map(|(tensor_type, buffer)| Placed { tensor_type, address: buffer.address() }).collect();
            self.launch(remote, &Launch { op: def, attributes, inputs: &inputs, outputs: &outputs })?;
            return Ok(buffers);
        }
        let mut read = heapless::Vec::<TensorView<'_>, MAX_INPUTS>::new();
        for (tensor_type, buffer) in inputs {
            let _ = read.push(TensorView { tensor_type, data: Some(buffer.memory()) });
        }
        let mut views = heapless::Vec::<TensorViewMut<'_>, MAX_OUTPUTS>::new();
        for (buffer, tensor_type) in buffers.iter_mut().zip(outputs) {
            let _ = views.push(TensorViewMut { tensor_type, data: buffer.memory_mut() });
        }
        self.compute(def, &mut Call { attributes, inputs: &read, outputs: &mut views, slice: &mut Slice::all() })?;
        drop(views);
        Ok(buffers)
    }

    /// Computes `def` in place: on `own`, the first inputs, which are its outputs too, and on `inputs`. `types` are those of all of them.
    pub(crate) fn update(
        &self,
        def: &'static OpDef,
        attributes: &[u32],
        types: &[TensorType],
        own: heapless::Vec<&mut Buffer, MAX_OUTPUTS>,
        inputs: &[&Buffer],
    ) -> Result<()> {
        let (first, others) = types.split_at_checked(own.len()).ok_or(Error::Internal)?;
        if let Some(remote) = self.remote() {
            let addresses = own.iter().map(|buffer| buffer.address()).chain(inputs.iter().map(|buffer| buffer.address()));
            let placed = types.iter().zip(addresses).map(|(tensor_type, address)| Placed { tensor_type, address });
            let placed: heapless::Vec<Placed<'_>, MAX_INPUTS> = placed.collect();
            let outputs = placed.get(..own.len()).ok_or(Error::Internal)?;
            return self.launch(remote, &Launch { op: def, attributes, inputs: &placed, outputs });
        }
        let updated = first.iter().map(|tensor_type| TensorView { tensor_type, data: None });
        let read = others.iter().zip(inputs).map(|(tensor_type, buffer)| TensorView { tensor_type, data: buffer.bytes() });
        let views: heapless::Vec<TensorView<'_>, MAX_INPUTS> = updated.chain(read).collect();
        let mut results = heapless::Vec::<TensorViewMut<'_>, MAX_OUTPUTS>::new();
        for (buffer, tensor_type) in own.into_iter().zip(first) {
            let _ = results.push(TensorViewMut { tensor_type, data: buffer.memory_mut() });
        }
        self.compute(def, &mut Call { attributes, inputs: &views, outputs: &mut results, slice: &mut Slice::all() })
    }

    /// Computes `def` in memory of the host.
    pub(crate) fn compute(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        let Some(profiler) = self.profiler() else { return self.backend().run(def, call) };
        let reads = call.inputs.iter().map(|view| view.tensor_type);
        let ops = ops(def, reads, call.outputs.iter().map(|view| view.tensor_type));
        during(Some(profiler), Activity::Ops(&ops), || self.backend().run(def, call))
    }

    /// Computes an op in the device's own memory.
    pub(crate) fn launch(&self, remote: &dyn Remote, launch: &Launch<'_>) -> Result<()> {
        let Some(profiler) = self.profiler() else { return remote.launch(launch) };
        let types = |placed: &'_ [Placed<'_>]| placed.iter().map(|one| *one.tensor_type).collect::<heapless::Vec<_, MAX_INPUTS>>();
        let ops = ops(launch.op, types(launch.inputs).iter(), types(launch.outputs).iter());
        self.timed(profiler, Activity::Ops(&ops), || remote.launch(launch))
    }

    /// Runs an op without outputs, and delivers its message, if it has one.
    fn effect(&self, def: &'static OpDef, attributes: &[u32], inputs: &[(&TensorType, &Buffer)]) -> Result<()> {
        let read = inputs.iter().map(|(_, buffer)| buffer.read()).collect::<Result<heapless::Vec<_, MAX_INPUTS>>>()?;
        let views = inputs.iter().zip(&read).map(|((tensor_type, _), bytes)| TensorView { tensor_type, data: Some(bytes) });
        let views: heapless::Vec<TensorView<'_>, MAX_INPUTS> = views.collect();
        let mut slice = Slice::all();
        self.compute(def, &mut Call { attributes, inputs: &views, outputs: &mut [], slice: &mut slice })?;
        Said::new(slice.answer, attributes, &views).map_or(Ok(()), |said| self.say(&said))
    }
}

/// Describes an op for a profiler.
fn ops<'t>(op: &'static OpDef, reads: impl Iterator<Item = &'t TensorType>, writes: impl Iterator<Item = &'t TensorType> + Clone) -> Ops {
    let bytes = |tensor_type: &TensorType| tensor_type.bytes().unwrap_or(0) as u64;
    let output = writes.clone().next().copied();
    Ops { nodes: alloc::vec![NamedOp { name: None, op, output }], read: reads.map(bytes).sum(), written: writes.map(bytes).sum() }
}

impl PartialEq for Device {
    #[inline]
    fn eq(&self, other: &Device) -> bool {
        self.is(other) || self.shares_memory(other)
    }
}

impl Device {
    #[cold]
    fn shares_memory(&self, other: &Device) -> bool {
        let same = || self.name() == other.name() && core::ptr::eq(self.kernels(), other.kernels());
        let open = |device: &Device| !device.account().is_limited() && device.remote().is_none();
        Shared::ptr_eq(&self.own().account, &other.own().account) || (same() && open(self) && open(other))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
