//! Devices, and the buffers that belong to them.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::format::{Said, Summary};
use crate::base::op::{Call, Kernel, MAX_OUTPUTS, OpDef, Slice};
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, Task, ThreadSafe};
use crate::base::view::{TensorView, TensorViewMut};
use crate::tensor::profile::{Activity, NamedOp, Ops, Profiler, during};
use crate::tensor::size;
use alloc::vec::Vec;
use bytemuck::{Pod, Zeroable};
use core::fmt;

/// Heap memory aligned to 16 bytes, as artifacts, arenas and tensors require.
#[derive(Clone, Default)]
pub struct AlignedBytes {
    blocks: Vec<Block>,
    length: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(16))]
struct Block([u8; 16]);

impl AlignedBytes {
    /// Allocates `length` zero bytes.
    pub fn zeroed(length: usize) -> AlignedBytes {
        AlignedBytes { blocks: bytemuck::zeroed_vec(length.div_ceil(16)), length }
    }

    /// Concatenates `parts`.
    pub fn concat(parts: &[&[u8]]) -> AlignedBytes {
        let length = parts.iter().map(|part| part.len()).sum();
        // If all parts are whole blocks, they are copied into new memory that need not be zeroed first.
        let whole: Option<Vec<&[Block]>> = parts.iter().map(|part| bytemuck::try_cast_slice(part).ok()).collect();
        match whole {
            Some(parts) => AlignedBytes { blocks: parts.concat(), length },
            None => {
                let mut bytes = AlignedBytes::zeroed(length);
                let mut rest = &mut *bytes;
                for part in parts {
                    let (own, behind) = rest.split_at_mut(part.len());
                    own.copy_from_slice(part);
                    rest = behind;
                }
                bytes
            }
        }
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> AlignedBytes {
        let mut aligned = AlignedBytes::zeroed(bytes.len());
        aligned.copy_from_slice(bytes);
        aligned
    }
}

impl core::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.length]
    }
}

impl core::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..self.length]
    }
}

/// Bytes of a tensor, on the device that they belong to. They do not change once they are shared.
pub struct Buffer {
    device: Device,
    bytes: AlignedBytes,
}

impl Buffer {
    /// Returns the device that the bytes belong to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(crate) fn new(device: &Device, bytes: AlignedBytes) -> Buffer {
        Buffer { device: device.clone(), bytes }
    }

    /// Returns a copy of the buffer.
    pub(crate) fn copy(&self) -> Buffer {
        Buffer { device: self.device.clone(), bytes: self.bytes.clone() }
    }
}

/// Implementation of a device, which holds buffers and runs ops on them.
pub trait Backend: ThreadSafe {
    /// Returns the name of the device, such as `CPU:0`.
    fn name(&self) -> &str;
    /// Computes `def` on the inputs of `call` into its outputs, which have the types that the op's shape rule returned.
    ///
    /// Fails with [`Error::NoKernel`] if the device cannot compute the op for these types.
    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()>;
    /// True if the device can compute `def` for inputs of `dtype`.
    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool;
    /// Returns the kernels that a compiled program may use on this device, in order of preference.
    fn kernels(&self) -> &[&'static Kernel];
    /// Returns the number of tasks that can run in parallel.
    fn threads(&self) -> usize {
        1
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
    /// Returns the profiler of the device, if there is one.
    fn profiler(&self) -> Option<&dyn Profiler> {
        None
    }
}

/// Handle of a device. Two devices are equal if they have the same name and the same kernels.
#[derive(Clone)]
pub struct Device(Shared<dyn Backend>);

impl Device {
    /// Creates the device that `backend` implements.
    pub fn new(backend: impl Backend + 'static) -> Device {
        Device(Shared::new(backend))
    }

    /// Creates a CPU that computes with `kernels`. If several kernels compute the same op and element type, it uses the first.
    pub fn cpu(name: &'static str, kernels: &'static [&'static Kernel]) -> Device {
        Device::new(Cpu::new(name, kernels))
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the kernels that a compiled program may use on this device, in order of preference.
    pub fn kernels(&self) -> &[&'static Kernel] {
        self.0.kernels()
    }

    /// True if the device can compute `def` for inputs of `dtype`.
    pub fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.0.has_kernel(def, dtype)
    }

    /// Computes `def` eagerly into the caller's memory.
    pub(crate) fn compute(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        self.0.run(def, call)
    }

    pub(crate) fn threads(&self) -> usize {
        self.0.threads()
    }

    pub(crate) fn join(&self, tasks: &mut [&mut Task<'_>]) {
        self.0.join(tasks);
    }

    pub(crate) fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        self.0.wait(ready);
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }

    /// True if both are handles of the same backend.
    pub(crate) fn is(&self, other: &Device) -> bool {
        Shared::ptr_eq(&self.0, &other.0)
    }

    /// Delivers a program's message: prints its text or passes its summary to the listener. Fails if the listener fails.
    pub fn say(&self, said: &Said<'_>) -> Result<()> {
        match said {
            Said::Print(printed) => self.0.print(format_args!("{printed}")),
            Said::Summary(summary) => return self.0.summary(summary),
        }
        Ok(())
    }

    pub(crate) fn warn(&self, text: fmt::Arguments<'_>) {
        self.0.warn(text);
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
        Device::new(Heard { device: self.clone(), by: PrintsTo(sink) })
    }

    /// Returns the same device with `sink` as the receiver of the summaries. `sink` is called while a program runs. It must not call the
    /// function that reports the summary, nor use the variables that the function assigns. An error of `sink` is the program's error.
    /// [`Summarize`](crate::Summarize) has an example.
    pub fn summarizing(&self, sink: impl Fn(&Summary<'_>) -> Result<()> + ThreadSafe + 'static) -> Device {
        Device::new(Heard { device: self.clone(), by: TellsTo(sink) })
    }

    /// Returns the same device, which reports its work to `profiler`. The reports cover eager ops that the device computes, and every step
    /// of functions called in a scope of the device. If only some inputs of an op are on this device and the others on the same device
    /// without profiler, this device computes the op.
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
        Device::new(Heard { device: self.clone(), by: Told(profiler) })
    }

    pub(crate) fn profiler(&self) -> Option<&dyn Profiler> {
        self.0.profiler()
    }

    /// Returns `other` if it is an equal device with a profiler and this one has none, otherwise this device.
    pub(crate) fn or_profiled<'d>(&'d self, other: &'d Device) -> &'d Device {
        if !self.is(other) && other.profiler().is_some() && self.profiler().is_none() && self == other { other } else { self }
    }

    /// Returns the device's preferred kernel of `def` for `dtype`, for use in compiled programs. Fails if there is none.
    pub(crate) fn kernel(&self, def: &OpDef, dtype: DType) -> Result<&'static Kernel> {
        let fits = |kernel: &&&'static Kernel| kernel.def.code == def.code && kernel.dtype == dtype;
        let missing = || Error::message(alloc::format!("{} has no kernel for {} on {dtype}", self.name(), def.name));
        self.kernels().iter().find(fits).copied().ok_or_else(missing)
    }

    /// Allocates a buffer of `bytes` zero bytes.
    pub fn zeros(&self, bytes: usize) -> Buffer {
        Buffer { device: self.clone(), bytes: AlignedBytes::zeroed(bytes) }
    }

    /// Computes `def` eagerly and returns a buffer for each output. `outputs` must be the types that the op's shape rule returns.
    pub(crate) fn run(
        &self,
        def: &'static OpDef,
        attributes: &[u32],
        inputs: &[TensorView<'_>],
        outputs: &[TensorType],
    ) -> Result<heapless::Vec<Buffer, MAX_OUTPUTS>> {
        let mut buffers = heapless::Vec::<Buffer, MAX_OUTPUTS>::new();
        if outputs.is_empty() {
            return self.effect(def, attributes, inputs).map(|()| buffers);
        }
        for tensor_type in outputs {
            let _ = buffers.push(self.zeros(size(*tensor_type)?));
        }
        let mut views: heapless::Vec<TensorViewMut<'_>, MAX_OUTPUTS> =
            buffers.iter_mut().zip(outputs).map(|(buffer, tensor_type)| TensorViewMut { tensor_type, data: buffer.bytes_mut() }).collect();
        self.0.run(def, &mut Call { attributes, inputs, outputs: &mut views, slice: &mut Slice::all() })?;
        drop(views);
        Ok(buffers)
    }

    /// Runs an op without outputs, and delivers its message, if it has one.
    fn effect(&self, def: &'static OpDef, attributes: &[u32], inputs: &[TensorView<'_>]) -> Result<()> {
        let mut slice = Slice::all();
        self.0.run(def, &mut Call { attributes, inputs, outputs: &mut [], slice: &mut slice })?;
        Said::new(slice.answer, attributes, inputs).map_or(Ok(()), |said| self.say(&said))
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.is(other) || (self.name() == other.name() && core::ptr::eq(self.kernels(), other.kernels()))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Listener that overrides part of a device's behavior.
trait Listener: ThreadSafe {
    fn print(&self, device: &Device, text: fmt::Arguments<'_>) {
        device.0.print(text);
    }
    fn warn(&self, device: &Device, text: fmt::Arguments<'_>) {
        device.0.warn(text);
    }
    fn summary(&self, device: &Device, summary: &Summary<'_>) -> Result<()> {
        device.0.summary(summary)
    }
    fn run(&self, device: &Device, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        device.0.run(def, call)
    }
    fn profiler<'d>(&'d self, device: &'d Device) -> Option<&'d dyn Profiler> {
        device.profiler()
    }
}

struct PrintsTo<F>(F);

impl<F: Fn(fmt::Arguments<'_>) + ThreadSafe> Listener for PrintsTo<F> {
    fn print(&self, _: &Device, text: fmt::Arguments<'_>) {
        (self.0)(text);
    }
    fn warn(&self, _: &Device, text: fmt::Arguments<'_>) {
        (self.0)(text);
    }
}

struct TellsTo<F>(F);

impl<F: Fn(&Summary<'_>) -> Result<()> + ThreadSafe> Listener for TellsTo<F> {
    fn summary(&self, _: &Device, summary: &Summary<'_>) -> Result<()> {
        (self.0)(summary)
    }
}

struct Told(Shared<dyn Profiler>);

impl Listener for Told {
    fn run(&self, device: &Device, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        if !self.0.is_on() {
            return device.0.run(def, call);
        }
        // An input that is updated in place has no bytes here.
        let bytes = |view: &TensorView<'_>| view.data.map_or(view.tensor_type.bytes().map(u64::from), |data| Some(data.len() as u64));
        let read = call.inputs.iter().filter_map(bytes).sum();
        let written = call.outputs.iter().map(|view| view.data.len() as u64).sum();
        let output = call.outputs.first().map(|view| *view.tensor_type).filter(|_| def.outputs > 0);
        let ops = Ops { nodes: alloc::vec![NamedOp { name: None, op: def, output }], read, written };
        during(Some(&*self.0), Activity::Ops(&ops), || device.0.run(def, call))
    }
    fn profiler<'d>(&'d self, device: &'d Device) -> Option<&'d dyn Profiler> {
        if self.0.is_on() { Some(&*self.0) } else { device.profiler() }
    }
}

/// Device whose behavior a listener overrides in part.
struct Heard<L> {
    device: Device,
    by: L,
}

impl<L: Listener> Backend for Heard<L> {
    fn name(&self) -> &str {
        self.device.name()
    }
    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        self.by.run(&self.device, def, call)
    }
    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.device.has_kernel(def, dtype)
    }
    fn kernels(&self) -> &[&'static Kernel] {
        self.device.kernels()
    }
    fn threads(&self) -> usize {
        self.device.threads()
    }
    fn join(&self, tasks: &mut [&mut Task<'_>]) {
        self.device.join(tasks);
    }
    fn print(&self, text: fmt::Arguments<'_>) {
        self.by.print(&self.device, text);
    }
    fn warn(&self, text: fmt::Arguments<'_>) {
        self.by.warn(&self.device, text);
    }
    fn summary(&self, summary: &Summary<'_>) -> Result<()> {
        self.by.summary(&self.device, summary)
    }
    fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        self.device.wait(ready);
    }
    fn wake(&self) {
        self.device.wake();
    }
    fn profiler(&self) -> Option<&dyn Profiler> {
        self.by.profiler(&self.device)
    }
}

/// CPU: a table of kernels by op and element type. It uses one thread. A [`Backend`] with more threads can wrap it.
pub struct Cpu {
    name: &'static str,
    kernels: &'static [&'static Kernel],
    table: Vec<Option<&'static Kernel>>,
}

impl Cpu {
    /// Creates a CPU that computes with `kernels`. If several kernels compute the same op and element type, it uses the first.
    pub fn new(name: &'static str, kernels: &'static [&'static Kernel]) -> Cpu {
        let slots = kernels.iter().map(|kernel| Cpu::slot(kernel.def, kernel.dtype) + 1).max().unwrap_or(0);
        let mut table = alloc::vec![None; slots];
        for kernel in kernels.iter().rev() {
            table[Cpu::slot(kernel.def, kernel.dtype)] = Some(*kernel);
        }
        Cpu { name, kernels, table }
    }

    fn slot(def: &OpDef, dtype: DType) -> usize {
        usize::from(def.code.0) * (DType::ALL.len() + 1) + dtype as usize
    }

    fn kernel(&self, def: &OpDef, dtype: DType) -> Option<&'static Kernel> {
        self.table.get(Cpu::slot(def, dtype)).copied().flatten()
    }
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        let dtype = call.inputs.first().map(|view| view.dtype()).or(call.outputs.first().map(|view| view.dtype()));
        let dtype = dtype.unwrap_or(DType::U8);
        let kernel = self.kernel(def, dtype);
        (kernel.ok_or(Error::NoKernel { op: def.name, dtype })?.run)(call)
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.kernel(def, dtype).is_some()
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.kernels
    }
}
