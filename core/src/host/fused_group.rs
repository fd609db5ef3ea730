//! A step of several nodes, or of one node with several outputs. Elementwise nodes run block by block, so that intermediate values stay
//! in the cache. The device's threads share the blocks.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, MAX_INPUTS, MAX_OUTPUTS, Slice};
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, Task};
use crate::base::view::{TensorView, TensorViewMut};
use crate::compile::fuse::{MAX_READS, MAX_THREADS, MAX_WRITES};
use crate::compile::plan::Division;
use crate::host::kernel_step::{Address, Memory, Operand, part};
use crate::tensor::device::{Buffer, Device};
use alloc::vec::Vec;
use core::ops::Range;

/// The division of a storage area's bytes into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cut {
    /// No division: every block uses the whole storage area.
    Whole,
    /// Each block has its own elements. The value is the size of an element in bytes.
    Elements(usize),
    /// Each thread has one block, which it reuses. The value is the size of an element in bytes.
    Block(usize),
}

/// A node before it becomes part of a group.
pub(crate) struct Member {
    pub(crate) kernel: &'static Kernel,
    pub(crate) attributes: Vec<u32>,
    pub(crate) inputs: Vec<(Operand, Cut)>,
    pub(crate) outputs: Vec<(Operand, Cut)>,
}

/// Storage area: bytes that a group reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    place: Address,
    bytes: usize,
    cut: Cut,
}

/// The location of an operand of a group's node.
#[derive(Clone, Copy, Debug)]
enum Access {
    /// The storage area with this index among those that the group writes.
    Written(usize),
    /// The storage area with this index among those that the group only reads.
    Read(usize),
}

/// A node of a group.
struct GroupNode {
    kernel: &'static Kernel,
    attributes: Vec<u32>,
    inputs: Vec<(TensorType, Access)>,
    /// The type of each output, and the index of its storage area among those that the group writes.
    outputs: Vec<(TensorType, usize)>,
}

/// A group: nodes that run together, block by block.
pub(crate) struct Group {
    nodes: Vec<GroupNode>,
    /// The storage areas that the group writes, sorted by location.
    writes: Vec<Span>,
    reads: Vec<Span>,
    division: Division,
}

impl Group {
    /// Creates a group of `members`, which run one after the other on each block.
    pub(crate) fn new(members: Vec<Member>, division: Division) -> Group {
        let storage = |&(operand, cut): &(Operand, Cut)| Span { place: operand.place, bytes: operand.bytes, cut };
        let mut writes: Vec<Span> = members.iter().flat_map(|member| &member.outputs).map(storage).collect();
        writes.sort_unstable();
        writes.dedup();
        let mut reads: Vec<Span> = members.iter().flat_map(|member| &member.inputs).map(storage).collect();
        reads.sort_unstable();
        reads.dedup();
        reads.retain(|storage| !writes.contains(storage));
        let nodes = members.into_iter().map(|member| {
            let written = |operand| writes.iter().position(|other| *other == storage(operand));
            let read = |operand| reads.iter().position(|other| *other == storage(operand)).unwrap_or(0);
            let source = |operand| written(operand).map_or_else(|| Access::Read(read(operand)), Access::Written);
            GroupNode {
                kernel: member.kernel,
                inputs: member.inputs.iter().map(|operand| (operand.0.tensor_type, source(operand))).collect(),
                outputs: member.outputs.iter().map(|operand| (operand.0.tensor_type, written(operand).unwrap_or(0))).collect(),
                attributes: member.attributes,
            }
        });
        Group { nodes: nodes.collect(), writes, reads, division }
    }

    pub(crate) fn run(&self, memory: Memory<'_>, device: &Device) -> Result<()> {
        let divided = Divided::new(memory, &self.writes).ok_or(Error::Internal)?;
        let reads: Option<heapless::Vec<&[u8], MAX_READS>> = self.reads.iter().map(|storage| divided.read(storage)).collect();
        let reads = reads.ok_or(Error::Internal)?;
        let mut portion = Portion { group: self, elements: 0..self.division.elements, written: divided.written, reads: &reads };
        if self.division.threads == 1 { portion.run() } else { portion.spread(device) }
    }
}

/// Memory split into the bytes that a group writes and the bytes that it does not write.
struct Divided<'m> {
    written: heapless::Vec<&'m mut [u8], MAX_WRITES>,
    /// The pieces of scratch memory that are not written, with their offsets.
    scratch: heapless::Vec<(usize, &'m [u8]), { MAX_WRITES + 1 }>,
    /// The slices of buffers that are not written, with the index of their first buffer.
    buffers: heapless::Vec<(usize, &'m [Option<Shared<Buffer>>]), { MAX_WRITES + 1 }>,
}

impl<'m> Divided<'m> {
    /// Splits `memory` at the storage areas in `writes`. Returns `None` if these overlap or are outside the memory.
    fn new(memory: Memory<'m>, writes: &[Span]) -> Option<Divided<'m>> {
        let mut divided = Divided { written: heapless::Vec::new(), scratch: heapless::Vec::new(), buffers: heapless::Vec::new() };
        let (mut scratch, mut buffers) = ((0, memory.scratch), (0, memory.buffers));
        for storage in writes {
            let data = match storage.place {
                Address::Scratch(start) => {
                    let (before, rest) = scratch.1.split_at_mut_checked(start.checked_sub(scratch.0)?)?;
                    let (data, after) = rest.split_at_mut_checked(storage.bytes)?;
                    divided.scratch.push((scratch.0, before)).ok()?;
                    scratch = (start + storage.bytes, after);
                    data
                }
                Address::Buffer(index) => {
                    let (before, rest) = buffers.1.split_at_mut_checked(index.checked_sub(buffers.0)?)?;
                    let (own, after) = rest.split_first_mut()?;
                    divided.buffers.push((buffers.0, before)).ok()?;
                    buffers = (index + 1, after);
                    Shared::get_mut(own.as_mut()?)?.memory_mut()
                }
            };
            divided.written.push(data).ok()?;
        }
        divided.scratch.push((scratch.0, scratch.1)).ok()?;
        divided.buffers.push((buffers.0, buffers.1)).ok()?;
        Some(divided)
    }

    fn read(&self, storage: &Span) -> Option<&'m [u8]> {
        match storage.place {
            Address::Scratch(start) => {
                self.scratch.iter().find_map(|(first, bytes)| part(bytes, start.checked_sub(*first)?, storage.bytes))
            }
            Address::Buffer(index) => {
                let buffer = self.buffers.iter().find_map(|(first, buffers)| buffers.get(index.checked_sub(*first)?));
                buffer.and_then(Option::as_ref).map(|buffer| buffer.memory())
            }
        }
    }
}

/// A range of a group's elements, with the bytes that are written for it.
struct Portion<'g, 'm> {
    group: &'g Group,
    elements: Range<usize>,
    written: heapless::Vec<&'m mut [u8], MAX_WRITES>,
    reads: &'g [&'m [u8]],
}

impl<'g, 'm> Portion<'g, 'm> {
    /// Runs the blocks on several threads.
    #[inline(never)]
    fn spread(mut self, device: &Device) -> Result<()> {
        let (threads, block) = (self.group.division.threads, self.group.division.block);
        let blocks = self.elements.len().div_ceil(block);
        let mut portions = heapless::Vec::<(Portion<'_, '_>, Result<()>), MAX_THREADS>::new();
        for thread in 0..threads {
            let end = (blocks * (thread + 1) / threads * block).min(self.group.division.elements);
            let first = self.take_until(end).ok_or(Error::Internal)?;
            portions.push((first, Ok(()))).map_err(|_| Error::Internal)?;
        }
        let mut work = portions.iter_mut().map(|(portion, result)| move || *result = portion.run());
        let mut work: [_; MAX_THREADS] = core::array::from_fn(|_| work.next());
        let tasks = work.iter_mut().flatten().map(|task| task as &mut Task<'_>);
        device.join(&mut tasks.collect::<heapless::Vec<&mut Task<'_>, MAX_THREADS>>());
        portions.into_iter().try_for_each(|(_, result)| result)
    }

    /// Splits off the elements before `end`, for one thread. Returns `None` if a written storage area cannot be divided.
    fn take_until(&mut self, end: usize) -> Option<Portion<'g, 'm>> {
        let (group, reads, elements) = (self.group, self.reads, self.elements.start..end);
        let mut written = heapless::Vec::new();
        for (data, storage) in self.written.iter_mut().zip(&group.writes) {
            let bytes = match storage.cut {
                Cut::Whole => return None,
                Cut::Elements(size) => elements.len() * size,
                Cut::Block(size) => group.division.block * size,
            };
            let (first, rest) = core::mem::take(data).split_at_mut_checked(bytes)?;
            *data = rest;
            written.push(first).ok()?;
        }
        self.elements.start = end;
        Some(Portion { group, elements, written, reads })
    }

    /// Runs the blocks one after the other.
    fn run(&mut self) -> Result<()> {
        let division = &self.group.division;
        let (first, count) = (self.elements.start, self.elements.len());
        let mut types = division.types(division.block);
        for done in (0..count).step_by(division.block) {
            let length = division.block.min(count - done);
            if length < division.block {
                types = division.types(length);
            }
            for node in &self.group.nodes {
                let block = Block { group: self.group, types: &types, first, done, length };
                block.run(node, &mut self.written, self.reads)?;
            }
        }
        Ok(())
    }
}

/// A block of a portion.
struct Block<'b> {
    group: &'b Group,
    types: &'b [TensorType; DType::ALL.len()],
    /// Index of the portion's first element among the elements of the group.
    first: usize,
    /// Number of the portion's elements before the block.
    done: usize,
    length: usize,
}

impl Block<'_> {
    /// Runs `node` on this block.
    fn run(&self, node: &GroupNode, written: &mut [&mut [u8]], reads: &[&[u8]]) -> Result<()> {
        let mut own = [const { None }; MAX_OUTPUTS];
        // The storages that other nodes write; `None` for a storage that this node writes, because it reads that one in place.
        let mut others = heapless::Vec::<Option<&[u8]>, MAX_WRITES>::new();
        for (index, (data, storage)) in written.iter_mut().zip(&self.group.writes).enumerate() {
            let data = data.get_mut(self.range(storage, self.done)).ok_or(Error::Internal)?;
            let output = node.outputs.iter().position(|&(_, written)| written == index);
            let other = match output.and_then(|output| own.get_mut(output)) {
                Some(own) => {
                    *own = Some(data);
                    None
                }
                None => Some(&*data),
            };
            others.push(other).map_err(|_| Error::Internal)?;
        }
        let mut inputs = heapless::Vec::<TensorView<'_>, MAX_INPUTS>::new();
        for (tensor_type, source) in &node.inputs {
            let (storage, data) = match *source {
                Access::Written(index) => (self.group.writes.get(index), others.get(index).copied().flatten()),
                Access::Read(index) => {
                    let storage = self.group.reads.get(index).ok_or(Error::Internal)?;
                    let data = reads.get(index).and_then(|data| data.get(self.range(storage, self.first + self.done)));
                    (Some(storage), Some(data.ok_or(Error::Internal)?))
                }
            };
            let tensor_type = self.block_type(tensor_type, storage.ok_or(Error::Internal)?);
            inputs.push(TensorView { tensor_type, data }).map_err(|_| Error::Internal)?;
        }
        let mut outputs = heapless::Vec::<TensorViewMut<'_>, MAX_OUTPUTS>::new();
        for ((tensor_type, written), data) in node.outputs.iter().zip(own) {
            let storage = self.group.writes.get(*written).ok_or(Error::Internal)?;
            let tensor_type = self.block_type(tensor_type, storage);
            outputs.push(TensorViewMut { tensor_type, data: data.ok_or(Error::Internal)? }).map_err(|_| Error::Internal)?;
        }
        (node.kernel.run)(&mut Call { attributes: &node.attributes, inputs: &inputs, outputs: &mut outputs, slice: &mut Slice::all() })
    }

    /// Returns the range of a storage area's bytes that belongs to this block. `first` is the block's first element, counted from the
    /// beginning of those bytes.
    fn range(&self, storage: &Span, first: usize) -> Range<usize> {
        match storage.cut {
            Cut::Whole => 0..storage.bytes,
            Cut::Elements(size) => first * size..(first + self.length) * size,
            Cut::Block(size) => 0..self.length * size,
        }
    }

    /// Returns the type of this block of a tensor.
    fn block_type<'t>(&'t self, tensor_type: &'t TensorType, storage: &Span) -> &'t TensorType {
        match storage.cut {
            Cut::Whole => tensor_type,
            _ => self.types.get(tensor_type.dtype as usize - 1).unwrap_or(tensor_type),
        }
    }
}
