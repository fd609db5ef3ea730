//! A device that hides its memory. It has the portable kernels, and its storage is reachable only through upload, download and its own
//! kernels, as that of a GPU. It is stricter than one: it fills fresh memory with a pattern, and it panics on an access outside of an
//! allocation, on operands that overlap, and on a second free. It counts what it does, and refuses or fails where a test tells it to. It
//! prepares the steps of compiled functions and fuses elementwise nodes, unless a test creates one that only launches ops. A test can
//! create one with a clock, by which a launch and the transfer of a byte always take the same time.

use gradlet::config::{LogicalOptions, Physical};
use gradlet_core::custom_op::{Call, Kernel, OpDef, Slice};
use gradlet_core::device::{
    AlignedBytes, Backend, Blocks, Cpu, Fuses, Launch, Member, Placed, Recorded, Refused, Remote, Slot, Source, Step,
};
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{DType, Device, Error, Result, ops};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Byte with which fresh memory is filled. As a float it is NaN, and as a bool it is neither true nor false.
const PATTERN: u8 = 0xff;
/// Address of the first byte.
const START: u64 = 0x10_0000;
/// Size of the memory in bytes if there is no limit.
const ROOM: u64 = 1 << 30;
/// Size of a block in bytes, as on a GPU.
pub const GRAIN: u64 = 256;
/// Time of a launch in nanoseconds, by the clock of a device that has one.
pub const LAUNCH: u64 = 1000;
/// Time in which one byte is copied or filled, in nanoseconds.
pub const BYTE: u64 = 10;

/// Handle of a hiding device, for tests that look at its counts or tell it to fail.
#[derive(Clone)]
pub struct Hiding {
    hidden: Arc<Hidden>,
    /// The device.
    pub device: Device,
}

/// Numbers of what a device did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Copies from the host.
    pub uploads: u64,
    /// Copies to the host.
    pub downloads: u64,
    /// Copies within the device.
    pub copies: u64,
    /// Fills with one value.
    pub fills: u64,
    /// Ops.
    pub launches: u64,
    /// Allocations, refused ones included.
    pub allocations: u64,
}

struct Hidden {
    cpu: Cpu,
    limit: Option<u64>,
    /// True if the device prepares steps.
    prepares: bool,
    /// True if the device tells what its clock shows.
    clocked: bool,
    state: Mutex<State>,
    text: Mutex<String>,
}

struct State {
    memory: AlignedBytes,
    blocks: Blocks,
    /// The allocations: their addresses with their sizes.
    live: BTreeMap<u64, usize>,
    counts: Counts,
    /// Time that the clock shows, in nanoseconds.
    now: u64,
    /// Number of the allocation that is refused.
    refuse: Option<u64>,
    /// Number of the launch that fails.
    fail: Option<u64>,
}

impl Hiding {
    /// Creates a device without a limit.
    pub fn new() -> Hiding {
        Hiding::of(None)
    }

    /// Creates a device with `bytes` bytes of memory, in blocks of [`GRAIN`].
    pub fn limited(bytes: u64) -> Hiding {
        Hiding::of(Some(bytes))
    }

    /// Creates a device without a limit that only launches ops.
    pub fn launching() -> Hiding {
        Hiding::create("HIDING:0", None, false, false)
    }

    fn of(limit: Option<u64>) -> Hiding {
        Hiding::named("HIDING:0", limit)
    }

    /// Creates a device with this name, with a limit or without one.
    pub fn named(name: &str, limit: Option<u64>) -> Hiding {
        Hiding::create(name, limit, true, false)
    }

    /// Creates a device with this name that has a clock. `prepares` is false if it only launches ops.
    pub fn clocked(name: &str, prepares: bool) -> Hiding {
        Hiding::create(name, None, prepares, true)
    }

    fn create(name: &str, limit: Option<u64>, prepares: bool, clocked: bool) -> Hiding {
        static KERNELS: LazyLock<Vec<&'static Kernel>> =
            LazyLock::new(|| ops::KERNELS.iter().copied().chain(gradlet::distribute::KERNELS).collect());
        let room = limit.unwrap_or(ROOM);
        let state = State {
            memory: AlignedBytes::zeroed(room as usize),
            blocks: Blocks::new(START, room, GRAIN),
            live: BTreeMap::new(),
            counts: Counts::default(),
            now: 0,
            refuse: None,
            fail: None,
        };
        let cpu = Cpu::new(name, &KERNELS);
        let hidden = Arc::new(Hidden { cpu, limit, prepares, clocked, state: Mutex::new(state), text: Mutex::default() });
        Hiding { device: Device::new(Handle(hidden.clone())), hidden }
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.hidden.lock().counts
    }

    /// Calls `work` and returns its result with the counts of what it did.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> (R, Counts) {
        let before = self.counts();
        let result = work();
        let after = self.counts();
        let counts = Counts {
            uploads: after.uploads - before.uploads,
            downloads: after.downloads - before.downloads,
            copies: after.copies - before.copies,
            fills: after.fills - before.fills,
            launches: after.launches - before.launches,
            allocations: after.allocations - before.allocations,
        };
        (result, counts)
    }

    /// Refuses the allocation after the next `others`. `None` refuses none.
    pub fn refuse_after(&self, others: Option<u64>) {
        let mut state = self.hidden.lock();
        state.refuse = others.map(|others| state.counts.allocations + others + 1);
    }

    /// Fails the launch after the next `others`. `None` fails none.
    pub fn fail_after(&self, others: Option<u64>) {
        let mut state = self.hidden.lock();
        state.fail = others.map(|others| state.counts.launches + others + 1);
    }

    /// Returns the text that programs printed.
    pub fn printed(&self) -> String {
        self.hidden.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of live allocations.
    pub fn live(&self) -> usize {
        self.hidden.lock().live.len()
    }
}

/// A physical GPU whose logical devices are hiding devices. The devices that it has created can be looked at.
pub struct HidingGpu {
    device_type: &'static str,
    memory: u64,
    clocked: bool,
    created: Mutex<Vec<(Hiding, LogicalOptions)>>,
}

impl HidingGpu {
    /// Creates a GPU with `memory` bytes of memory.
    pub fn new(memory: u64) -> Arc<HidingGpu> {
        HidingGpu::of("GPU", memory, false)
    }

    /// Creates a GPU like [`HidingGpu::new`] whose devices have a clock.
    pub fn clocked(memory: u64) -> Arc<HidingGpu> {
        HidingGpu::of("GPU", memory, true)
    }

    /// Creates a device like [`HidingGpu::new`] in the place of a CPU.
    pub fn cpu(memory: u64) -> Arc<HidingGpu> {
        HidingGpu::of("CPU", memory, false)
    }

    fn of(device_type: &'static str, memory: u64, clocked: bool) -> Arc<HidingGpu> {
        Arc::new(HidingGpu { device_type, memory, clocked, created: Mutex::default() })
    }

    /// Returns the logical devices that a context has created, with their settings.
    pub fn created(&self) -> Vec<(Hiding, LogicalOptions)> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Physical for HidingGpu {
    fn device_type(&self) -> &str {
        self.device_type
    }

    fn memory(&self) -> Option<u64> {
        Some(self.memory)
    }

    fn details(&self) -> Vec<(String, String)> {
        vec![("device_name".into(), "hiding".into())]
    }

    fn create(&self, name: &str, options: &LogicalOptions) -> Result<Device> {
        let hiding = Hiding::create(name, Some(options.memory_limit.unwrap_or(self.memory)), true, self.clocked);
        self.created.lock().unwrap_or_else(PoisonError::into_inner).push((hiding.clone(), *options));
        Ok(hiding.device)
    }
}

impl Default for Hiding {
    fn default() -> Hiding {
        Hiding::new()
    }
}

impl Hidden {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the place of `bytes` bytes at `address` in the memory. Panics if they are not part of one allocation.
    fn range(&self, address: u64, bytes: usize) -> Range<usize> {
        let (start, size) = self.live.range(..=address).next_back().unwrap_or_else(|| panic!("nothing is allocated at {address:#x}"));
        let end = start + *size as u64;
        assert!(address + bytes as u64 <= end, "{bytes} bytes at {address:#x} leave the allocation {start:#x}..{end:#x}");
        let first = (address - START) as usize;
        first..first + bytes
    }

    fn operand(&self, placed: &Placed<'_>) -> Range<usize> {
        match placed.tensor_type.bytes().unwrap_or(0) {
            0 => 0..0,
            bytes => {
                assert!(placed.address.is_multiple_of(16), "{:#x} is not aligned", placed.address);
                self.range(placed.address, bytes)
            }
        }
    }

    fn fill(&mut self, range: Range<usize>, byte: u8) {
        self.memory[range].fill(byte);
    }
}

fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

struct Handle(Arc<Hidden>);

impl Backend for Handle {
    fn name(&self) -> &str {
        self.0.cpu.name()
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        assert!(def.outputs == 0 && !self.checks(def, DType::F32), "{} ran in memory of the host", def.name);
        self.0.cpu.run(def, call)
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.0.cpu.has_kernel(def, dtype)
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.0.cpu.kernels()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn print(&self, text: fmt::Arguments<'_>) {
        *self.0.text.lock().unwrap_or_else(PoisonError::into_inner) += &text.to_string();
    }

    fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        while !ready() {
            std::thread::yield_now();
        }
    }
}

impl Remote for Handle {
    fn allocate(&self, bytes: usize) -> Result<u64, Refused> {
        assert!(bytes > 0, "an empty allocation");
        let mut state = self.0.lock();
        state.counts.allocations += 1;
        let told = state.refuse == Some(state.counts.allocations);
        let allocated = if told { None } else { state.blocks.allocate(bytes as u64) };
        let Some(address) = allocated else {
            return Err(Refused::Full { free: state.blocks.free_bytes(), largest: state.blocks.largest() });
        };
        state.live.insert(address, bytes);
        let range = state.range(address, bytes);
        state.fill(range, PATTERN);
        Ok(address)
    }

    fn free(&self, address: u64, bytes: usize) {
        let mut state = self.0.lock();
        assert_eq!(state.live.remove(&address), Some(bytes), "no allocation of {bytes} bytes is at {address:#x}");
        state.blocks.free(address, bytes as u64);
    }

    fn limit(&self) -> Option<u64> {
        self.0.limit
    }

    fn upload(&self, bytes: &[u8], to: u64) -> Result<()> {
        let mut state = self.0.lock();
        state.counts.uploads += 1;
        state.now += BYTE * bytes.len() as u64;
        let range = state.range(to, bytes.len());
        state.memory[range].copy_from_slice(bytes);
        Ok(())
    }

    fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let mut state = self.0.lock();
        state.counts.downloads += 1;
        state.now += BYTE * bytes.len() as u64;
        let range = state.range(from, bytes.len());
        bytes.copy_from_slice(&state.memory[range]);
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        let mut state = self.0.lock();
        state.counts.copies += 1;
        state.now += BYTE * bytes as u64;
        let (from, to) = (state.range(from, bytes), state.range(to, bytes));
        assert!(!meet(&from, &to), "a copy of {bytes} bytes onto itself");
        state.memory.copy_within(from, to.start);
        Ok(())
    }

    fn fill(&self, element: &[u8], to: u64, bytes: usize) -> Result<()> {
        let mut state = self.0.lock();
        state.counts.fills += 1;
        state.now += BYTE * bytes as u64;
        assert!(matches!(element.len(), 1 | 2 | 4 | 8) && bytes.is_multiple_of(element.len()), "{bytes} bytes of {element:?}");
        let range = state.range(to, bytes);
        state.memory[range].copy_from_slice(&element.repeat(bytes / element.len()));
        Ok(())
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        self.0.launch(launch)
    }

    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<u64>> {
        let before = self.0.lock().now;
        work()?;
        Ok(self.0.clocked.then(|| self.0.lock().now - before))
    }

    fn checks(&self, op: &OpDef, _: DType) -> bool {
        self.0.prepares && CHECKS.contains(&op.name)
    }

    fn fuses(&self) -> Fuses {
        if self.0.prepares { Fuses::Neighbours } else { Fuses::Nothing }
    }

    fn record(&self, steps: Vec<Step>) -> Result<Option<Box<dyn Recorded>>> {
        Ok(self.0.prepares.then(|| Box::new(Prepared { hidden: self.0.clone(), steps }) as Box<dyn Recorded>))
    }
}

/// The ops without outputs that the device computes itself.
const CHECKS: [&str; 2] = ["assert", "check_numerics"];

/// Steps of a compiled function.
struct Prepared {
    hidden: Arc<Hidden>,
    steps: Vec<Step>,
}

impl Recorded for Prepared {
    fn run(&self, bases: &[u64]) -> Result<(), (usize, Error)> {
        (0..self.steps.len()).try_for_each(|index| self.step(index, bases).map_err(|error| (index, error)))
    }

    fn step(&self, index: usize, bases: &[u64]) -> Result<()> {
        match &self.steps[index] {
            Step::Op(step) => {
                let inputs: Vec<_> = step.inputs.iter().map(|slot| placed(slot, bases)).collect();
                let outputs: Vec<_> = step.outputs.iter().map(|slot| placed(slot, bases)).collect();
                self.hidden.launch(&Launch { op: step.op, attributes: &step.attributes, inputs: &inputs, outputs: &outputs })
            }
            Step::Group { elements, members } => self.hidden.group(*elements, members, bases),
        }
    }
}

/// True if a member of a group is its last one, a reduction.
fn reduces(member: &Member) -> bool {
    [ops::code::sum, ops::code::mean, ops::code::max].contains(&member.op.code)
}

/// True if a member of a group is its first one, a product.
fn multiplies(member: &Member) -> bool {
    use ops::code;
    [code::matmul, code::dense, code::conv2d, code::conv2d_input_grad].contains(&member.op.code)
}

/// Returns a slot's tensor. Panics if its buffer is not there.
fn placed<'s>(slot: &'s Slot, bases: &[u64]) -> Placed<'s> {
    let base = bases[slot.base as usize];
    assert!(base != 0 || slot.tensor_type.bytes() == Some(0), "a step uses buffer {}, which is not there", slot.base);
    Placed { tensor_type: &slot.tensor_type, address: base + slot.offset }
}

impl Hidden {
    /// Counts a launch. Fails if a test has told so.
    fn count(&self, state: &mut State, name: &str) -> Result<()> {
        state.counts.launches += 1;
        state.now += LAUNCH;
        match state.fail == Some(state.counts.launches) {
            true => Err(Error::message(format!("{} was told to fail in {name}", self.cpu.name()))),
            false => Ok(()),
        }
    }

    /// Computes the members of a group. As in the registers of a GPU, the values are apart from the memory, and what is kept is written
    /// last.
    fn group(&self, elements: usize, members: &[Member], bases: &[u64]) -> Result<()> {
        let mut state = self.lock();
        self.count(&mut state, members[0].op.name)?;
        let mut values: Vec<AlignedBytes> = Vec::new();
        let mut read_from = Vec::new();
        for member in members {
            let alike = reduces(member) || member.output.shape.elements() == Some(elements);
            assert!(alike, "{} has another number of elements", member.op.name);
            let mut read = |source: &Source| match source {
                Source::Value { member, tensor_type } => (*tensor_type, values[*member].clone()),
                Source::Memory(slot) => {
                    let range = state.operand(&placed(slot, bases));
                    read_from.push(range.clone());
                    (slot.tensor_type, AlignedBytes::from(&state.memory[range]))
                }
            };
            let inputs: Vec<_> = member.inputs.iter().map(&mut read).collect();
            let views: Vec<_> = inputs.iter().map(|(tensor_type, bytes)| TensorView { tensor_type, data: Some(bytes) }).collect();
            let mut result = AlignedBytes::from(&vec![PATTERN; member.output.bytes().unwrap_or(0)][..]);
            let outputs = &mut [TensorViewMut { tensor_type: &member.output, data: &mut result }];
            self.cpu.run(member.op, &mut Call { attributes: &member.attributes, inputs: &views, outputs, slice: &mut Slice::all() })?;
            values.push(result);
        }
        let mut written: Vec<Range<usize>> = Vec::new();
        for (member, value) in members.iter().zip(&values) {
            let Some(slot) = &member.kept else { continue };
            let range = state.operand(&placed(slot, bases));
            assert!(written.iter().all(|other| !meet(other, &range)), "outputs of a group overlap");
            // A thread reads and writes only its own elements. Those of products and reductions result from the elements of many.
            let own = |other: &Range<usize>| *other == range && !reduces(member) && !multiplies(&members[0]);
            assert!(read_from.iter().all(|other| !meet(other, &range) || own(other)), "a group writes a part of what it reads");
            state.memory[range.clone()].copy_from_slice(value);
            written.push(range);
        }
        Ok(())
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let mut state = self.lock();
        self.count(&mut state, launch.op.name)?;
        let Launch { op, attributes, inputs, outputs } = launch;
        let read: Vec<Range<usize>> = inputs.iter().map(|placed| state.operand(placed)).collect();
        let written: Vec<Range<usize>> = outputs.iter().map(|placed| state.operand(placed)).collect();
        for (index, output) in written.iter().enumerate() {
            assert!(written[..index].iter().all(|other| !meet(output, other)), "outputs of {} overlap", op.name);
            for (input, own) in read.iter().enumerate().filter(|(_, own)| meet(own, output)) {
                let allowed = own == output && op.in_place.contains(&(input as u8, index as u8));
                assert!(allowed, "input {input} of {} overlaps output {index}", op.name);
            }
        }
        let taken = |range: &Range<usize>| AlignedBytes::from(&state.memory[range.clone()]);
        let own: Vec<AlignedBytes> = read.iter().map(taken).collect();
        let mut results: Vec<AlignedBytes> = written.iter().map(taken).collect();
        results.iter_mut().zip(&written).for_each(|(result, range)| {
            if !read.contains(range) {
                result.fill(PATTERN);
            }
        });
        let views = inputs.iter().zip(&own).map(|(placed, bytes)| TensorView { tensor_type: placed.tensor_type, data: Some(bytes) });
        let views: Vec<TensorView<'_>> = views.collect();
        let slots = outputs.iter().zip(&mut results).map(|(placed, data)| TensorViewMut { tensor_type: placed.tensor_type, data });
        let mut slots: Vec<TensorViewMut<'_>> = slots.collect();
        self.cpu.run(op, &mut Call { attributes, inputs: &views, outputs: &mut slots, slice: &mut Slice::all() })?;
        for (range, result) in written.into_iter().zip(&results) {
            state.memory[range].copy_from_slice(result);
        }
        Ok(())
    }
}
