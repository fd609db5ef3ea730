//! Devices, and the buffers that belong to them.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::format::{Said, Summary};
use crate::base::op::{Call, Kernel, MAX_OUTPUTS, NONE, OpDef};
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, Task, ThreadSafe};
use crate::base::view::{TensorView, TensorViewMut};
use crate::tensor::profile::{Activity, NamedOp, Ops, Profiler, during};
use alloc::vec::Vec;
use bytemuck::{Pod, Zeroable};
use core::fmt;

/// Bytes on the heap that begin at a multiple of 16, as artifacts, arenas and tensors must.
#[derive(Clone, Default)]
pub struct AlignedBytes {
    blocks: Vec<Block>,
    length: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(16))]
struct Block([u8; 16]);

impl AlignedBytes {
    /// `length` bytes of zero.
    pub fn zeroed(length: usize) -> AlignedBytes {
        AlignedBytes { blocks: bytemuck::zeroed_vec(length.div_ceil(16)), length }
    }

    /// The bytes of `parts`, one after another.
    pub fn concat(parts: &[&[u8]]) -> AlignedBytes {
        let length = parts.iter().map(|part| part.len()).sum();
        // Whole blocks are copied to memory that nobody has to clear before.
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

/// The bytes of a tensor, on the device that they belong to. They do not change once they are shared.
pub struct Buffer {
    device: Device,
    bytes: AlignedBytes,
}

impl Buffer {
    /// The device that the bytes belong to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(crate) fn new(device: &Device, bytes: AlignedBytes) -> Buffer {
        Buffer { device: device.clone(), bytes }
    }

    /// The same bytes in a buffer of its own.
    pub(crate) fn copy(&self) -> Buffer {
        Buffer { device: self.device.clone(), bytes: self.bytes.clone() }
    }
}

/// What computes: holds buffers and runs ops on them.
pub trait Backend: ThreadSafe {
    /// What the device is called, such as `CPU:0`.
    fn name(&self) -> &str;
    /// Computes `def` on `inputs` into `outputs`, which have the types that the op's rule gave.
    ///
    /// Fails with [`Error::NoKernel`] where the device cannot compute the op for these types.
    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()>;
    /// True if the device computes `def` for inputs of `dtype`.
    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool;
    /// The kernels a compiled program may use on this device, first choice first.
    fn kernels(&self) -> &[&'static Kernel];
    /// How many tasks can run at the same time.
    fn threads(&self) -> usize {
        1
    }
    /// Does all tasks, at the same time where it can.
    fn join(&self, tasks: &mut [&mut Task<'_>]) {
        tasks.iter_mut().for_each(|task| task());
    }
    /// Prints what a program prints. It ends in a line break, if it is to have one.
    fn print(&self, text: fmt::Arguments<'_>) {
        let _ = text;
    }
    /// Hears of a value that a program tells of. A device that nobody listens to passes over it.
    fn summary(&self, summary: &Summary<'_>) -> Result<()> {
        let _ = summary;
        Ok(())
    }
    /// Tells the programmer of something that is likely not meant.
    fn warn(&self, text: fmt::Arguments<'_>) {
        let _ = text;
    }
    /// Returns once `ready` says true: this is how a thread waits for what another one has. It asks at least once, and again after each
    /// [`wake`](Backend::wake) that follows an answer; where there are threads that can sleep, they sleep in between. `ready` waits for
    /// nobody.
    fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        while !ready() {
            core::hint::spin_loop();
        }
    }
    /// Lets all threads that [`wait`](Backend::wait) ask again.
    fn wake(&self) {}
    /// Who is told what runs here, if somebody is.
    fn profiler(&self) -> Option<&dyn Profiler> {
        None
    }
}

/// A device: a handle to be cloned. Two are equal if they have the same name and compute with the same kernels.
#[derive(Clone)]
pub struct Device(Shared<dyn Backend>);

impl Device {
    /// The device that `backend` implements.
    pub fn new(backend: impl Backend + 'static) -> Device {
        Device(Shared::new(backend))
    }

    /// A CPU that computes with `kernels`; of several for the same op and element type the first is taken.
    pub fn cpu(name: &'static str, kernels: &'static [&'static Kernel]) -> Device {
        Device::new(Cpu::new(name, kernels))
    }

    /// What the device is called.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The kernels a compiled program may use on this device, first choice first.
    pub fn kernels(&self) -> &[&'static Kernel] {
        self.0.kernels()
    }

    /// True if the device computes `def` for inputs of `dtype`.
    pub fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.0.has_kernel(def, dtype)
    }

    /// Computes `def` now, where the caller wants it.
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

    /// True if both are handles of one backend.
    pub(crate) fn is(&self, other: &Device) -> bool {
        Shared::ptr_eq(&self.0, &other.0)
    }

    /// Does what a program says. Fails where who listens to its summaries does.
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

    /// The same device, with `sink` in place of its output: it is given all that programs print, and all warnings.
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

    /// The same device; `sink` is given the summaries of all programs that run on it, while they run: it must not call the function that
    /// tells, nor touch the variables that it assigns. What it fails with is the program's error.
    /// [`Summarize`](crate::Summarize) has an example.
    pub fn summarizing(&self, sink: impl Fn(&Summary<'_>) -> Result<()> + ThreadSafe + 'static) -> Device {
        Device::new(Heard { device: self.clone(), by: TellsTo(sink) })
    }

    /// The same device, which tells `profiler` what it runs: ops of eager code that it computes, and functions that are called in a
    /// scope of this device, step by step. What only reads tensors of this device beside others is computed by it, too.
    ///
    /// ```
    /// use gradlet_core::internal::profile::{Activity, Profiler};
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

    /// This device, or `other`, if that is the same but for a profiler, which this one has not.
    pub(crate) fn or_profiled<'d>(&'d self, other: &'d Device) -> &'d Device {
        if !self.is(other) && other.profiler().is_some() && self.profiler().is_none() && self == other { other } else { self }
    }

    /// The device's first choice of a kernel, for programs of its own.
    pub(crate) fn kernel(&self, def: &OpDef, dtype: DType) -> Result<&'static Kernel> {
        let fits = |kernel: &&&'static Kernel| kernel.def.code == def.code && kernel.dtype == dtype;
        let missing = || Error::message(alloc::format!("{} has no kernel for {} on {dtype}", self.name(), def.name));
        self.kernels().iter().find(fits).copied().ok_or_else(missing)
    }

    /// A buffer of zeros.
    pub fn zeros(&self, bytes: usize) -> Buffer {
        Buffer { device: self.clone(), bytes: AlignedBytes::zeroed(bytes) }
    }

    /// Computes `def` now. The output types must be those that the op's rule gives.
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
            let _ = buffers.push(self.zeros(tensor_type.bytes().ok_or(Error::TooLarge)? as usize));
        }
        let mut views: heapless::Vec<TensorViewMut<'_>, MAX_OUTPUTS> =
            buffers.iter_mut().zip(outputs).map(|(buffer, tensor_type)| TensorViewMut { tensor_type, data: buffer.bytes_mut() }).collect();
        self.0.run(def, &mut Call { attributes, inputs, outputs: &mut views })?;
        drop(views);
        Ok(buffers)
    }

    /// Runs an op without outputs: it is given two words instead, and may answer there that it has something to say.
    fn effect(&self, def: &'static OpDef, attributes: &[u32], inputs: &[TensorView<'_>]) -> Result<()> {
        let mut words = [0, NONE];
        let said = TensorViewMut { tensor_type: &TensorType::I32, data: bytemuck::bytes_of_mut(&mut words) };
        self.0.run(def, &mut Call { attributes, inputs, outputs: &mut [said] })?;
        Said::new(words[1], attributes, inputs).map_or(Ok(()), |said| self.say(&said))
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

/// Who hears something in place of a device.
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
        // What is updated in place has no bytes among the inputs.
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

/// A device that somebody listens to.
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

/// A CPU: a table of kernels by op and element type. It knows one thread; a [`Backend`] that knows more can be made of it.
pub struct Cpu {
    name: &'static str,
    kernels: &'static [&'static Kernel],
    table: Vec<Option<&'static Kernel>>,
}

impl Cpu {
    /// A CPU that computes with `kernels`; of several for the same op and element type the first is taken.
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
        let dtype = dtype.ok_or(Error::Internal)?;
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
