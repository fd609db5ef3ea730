//! The memory of the devices: allocations with gaps between them, at addresses that are never used twice.

use super::block::{Block, Place};
use super::state::Handle;
use super::status::{Outcome, Status, Stop};
use super::storage::Storage;
use crate::machine::{self, Access, Fault, FaultKind, Region};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// The first address of a device's memory. No pointer of the host is as large.
pub(crate) const FIRST: u64 = 1 << 48;
/// Distance between the first addresses of two devices.
const STRIDE: u64 = 1 << 44;
/// Alignment of allocations in bytes.
const ALIGN: u64 = 512;
/// The least distance between two allocations.
const GAP: u64 = 1 << 20;

/// The allocations of all devices.
#[derive(Default)]
pub(crate) struct Memory {
    /// The allocations, by ascending address.
    blocks: Vec<Block>,
    /// Index of the allocation that was used last.
    last: usize,
    /// Ends of the freed allocations of devices, by address.
    freed: BTreeMap<u64, u64>,
    heaps: Vec<Heap>,
    /// Pairs of devices whose first one may use the memory of the second one.
    pub peers: HashSet<(usize, usize)>,
    /// Number of bytes of each device.
    limit: u64,
    is_tracked: bool,
}

/// Allocations of a device.
#[derive(Clone, Default)]
struct Heap {
    /// Distance of the next allocation from the device's first address.
    next: u64,
    /// Number of bytes in use.
    used: u64,
}

impl Memory {
    /// Creates the memory of `devices` devices with `limit` bytes each. If it `is_tracked`, it knows which bytes were written.
    pub(crate) fn new(devices: usize, limit: u64, is_tracked: bool) -> Memory {
        Memory { heaps: vec![Heap::default(); devices], limit, is_tracked, ..Memory::default() }
    }

    /// Returns the numbers of free bytes and of all bytes of a device.
    pub(crate) fn info(&self, device: usize) -> (u64, u64) {
        (self.limit - self.heaps[device].used, self.limit)
    }

    /// Allocates `bytes` bytes and returns their address.
    pub(crate) fn allocate(&mut self, device: usize, bytes: usize, place: Place) -> Outcome<u64> {
        let taken = (bytes as u64).next_multiple_of(ALIGN);
        let heap = &mut self.heaps[device];
        let is_full = bytes as u64 > self.limit || taken > self.limit - heap.used || heap.next + taken + GAP > STRIDE;
        if is_full && !place.is_host() {
            return Err(Status::OUT_OF_MEMORY);
        }
        let block = Block::new(first_address(device, heap), bytes, device, place, self.is_tracked)?;
        if !place.is_host() {
            heap.next += taken + GAP;
            heap.used += taken;
        }
        Ok(self.insert(block))
    }

    /// Adds memory of the host that the program owns, and returns its address.
    pub(crate) fn register(&mut self, device: usize, storage: Storage, place: Place) -> Outcome<u64> {
        let (start, end) = (storage.address(), storage.address() + storage.bytes as u64);
        if self.blocks.iter().any(|block| block.address < end && start < block.end()) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        Ok(self.insert(Block::of(start, storage, device, place)))
    }

    /// Adds imported memory, and returns the address that a device has for it. It is no part of the device's own memory.
    pub(crate) fn import(&mut self, device: usize, storage: Storage) -> u64 {
        let heap = &mut self.heaps[device];
        let address = first_address(device, heap);
        heap.next += (storage.bytes as u64).next_multiple_of(ALIGN) + GAP;
        self.insert(Block::of(address, storage, device, Place::External))
    }

    fn insert(&mut self, block: Block) -> u64 {
        let address = block.address;
        let index = self.blocks.partition_point(|other| other.address < address);
        self.blocks.insert(index, block);
        address
    }

    /// Frees the allocation that begins at `address` and is in a place that is right.
    pub(crate) fn free(&mut self, address: u64, is_right: impl Fn(&Block) -> bool) -> Outcome {
        let found = self.blocks.binary_search_by_key(&address, |block| block.address).map_err(|_| Status::INVALID_VALUE)?;
        if !is_right(&self.blocks[found]) {
            return Err(Status::INVALID_VALUE);
        }
        self.remove(found);
        Ok(())
    }

    /// Frees what `is_unused` names.
    pub(crate) fn free_all(&mut self, is_unused: impl Fn(&Block) -> bool) {
        for index in (0..self.blocks.len()).rev() {
            if is_unused(&self.blocks[index]) {
                self.remove(index);
            }
        }
    }

    fn remove(&mut self, index: usize) {
        let block = self.blocks.remove(index);
        if !block.place.is_host() {
            if block.place != Place::External {
                self.heaps[block.device].used -= (block.bytes() as u64).next_multiple_of(ALIGN);
            }
            self.freed.insert(block.address, block.end());
        }
    }

    /// Returns the queues of marks of page-locked memory, which the host may use when a stream has ended its work.
    pub(crate) fn host_marks(&self) -> Vec<Handle> {
        self.blocks.iter().filter(|block| block.place.is_host()).filter_map(|block| block.marks).collect()
    }

    /// Returns the allocation that has the byte at `address`.
    pub(crate) fn find(&mut self, address: u64) -> Option<&mut Block> {
        let has = |block: &Block| (block.address..block.end()).contains(&address);
        if !self.blocks.get(self.last).is_some_and(has) {
            self.last = self.blocks.partition_point(|block| block.address <= address).checked_sub(1)?;
        }
        self.blocks.get_mut(self.last).filter(|block| has(block))
    }

    /// Returns the allocation of the host that has the byte at `pointer`.
    pub(crate) fn find_host(&mut self, pointer: u64) -> Option<&mut Block> {
        self.find(pointer).filter(|block| block.place.is_host())
    }

    /// Returns the allocation that has the range, if `device` may use it, and the range's place in it.
    fn locate(&mut self, device: usize, address: u64, bytes: usize, access: Access) -> Option<(&mut Block, Range<usize>)> {
        let owner = self.find(address)?.device;
        let is_near = owner == device || self.peers.contains(&(device, owner));
        let block = self.find(address)?;
        let range = block.range(address, bytes)?;
        let is_usable = match block.place {
            Place::Device => is_near,
            Place::External => block.device == device,
            Place::Module { constant } => block.device == device && !(constant && matches!(access, Access::Write | Access::Atomic)),
            Place::Host { portable, mapped, .. } => mapped && (portable || block.device == device),
        };
        is_usable.then_some((block, range))
    }

    /// Like [`Memory::locate`], without what the program has freed in its own accounts.
    fn locate_allowed(&mut self, device: usize, address: u64, bytes: usize, access: Access) -> Option<(&mut Block, Range<usize>)> {
        self.locate(device, address, bytes, access).filter(|(block, range)| !block.is_banned(range.clone()))
    }

    /// Checks that a range that a copy names is in one allocation that `device` may use.
    pub(crate) fn check(&mut self, device: usize, address: u64, bytes: usize) -> Result<(), Stop> {
        match self.locate(device, address, bytes, Access::Read) {
            Some(_) => Ok(()),
            None => Err(Stop::new(Status::INVALID_VALUE, format!("InvalidValue: {}", self.reason(device, address, bytes, "copy")))),
        }
    }

    /// Returns bytes that a copy reads.
    pub(crate) fn read(&mut self, device: usize, address: u64, bytes: usize) -> Result<&[u8], Stop> {
        self.check_allowed(device, address, bytes, "read")?;
        let found = self.locate_allowed(device, address, bytes, Access::Read);
        Ok(found.map_or(&[], |(block, range)| block.read(range)))
    }

    /// Returns bytes that a copy writes. It may write the variables that kernels only read.
    pub(crate) fn write(&mut self, device: usize, address: u64, bytes: usize) -> Result<&mut [u8], Stop> {
        self.check_allowed(device, address, bytes, "write")?;
        let found = self.locate_allowed(device, address, bytes, Access::Read);
        Ok(found.map_or(&mut [], |(block, range)| block.write(range)))
    }

    fn check_allowed(&mut self, device: usize, address: u64, bytes: usize, verb: &str) -> Result<(), Stop> {
        match self.locate_allowed(device, address, bytes, Access::Read) {
            Some(_) => Ok(()),
            None => Err(Stop::new(Status::ILLEGAL_ADDRESS, format!("IllegalAddress: {}", self.reason(device, address, bytes, verb)))),
        }
    }

    /// Returns why `device` may not use a range.
    fn reason(&self, device: usize, address: u64, bytes: usize, verb: &str) -> String {
        format!("{verb} of {bytes} bytes at {address:#x}: {}", self.describe(device, address, bytes))
    }

    fn describe(&self, device: usize, address: u64, bytes: usize) -> String {
        if address < 4096 {
            return "a null pointer".into();
        }
        let near = if address < FIRST { 4096 } else { GAP };
        let after = self.blocks.partition_point(|block| block.address <= address);
        if let Some(block) = after.checked_sub(1).map(|index| &self.blocks[index])
            && address < block.end().saturating_add(near)
        {
            return describe_in(block, device, address, bytes);
        }
        if let Some((start, end)) = self.freed.range(..=address).next_back()
            && address < *end
        {
            return format!("in the freed allocation of {} bytes at {start:#x}", end - start);
        }
        if let Some(block) = self.blocks.get(after)
            && block.address - address < near
        {
            return format!("{} bytes before the allocation of {} bytes at {:#x}", block.address - address, block.bytes(), block.address);
        }
        if address < FIRST { "memory of the host that no context has allocated".into() } else { "in no allocation".into() }
    }
}

/// Returns the address of a device's next allocation.
fn first_address(device: usize, heap: &Heap) -> u64 {
    FIRST + device as u64 * STRIDE + heap.next
}

/// Describes the range at `address`, which begins in a block or not far after it.
fn describe_in(block: &Block, device: usize, address: u64, bytes: usize) -> String {
    let what = format!("the allocation of {} bytes at {:#x}", block.bytes(), block.address);
    let start = (address - block.address) as usize;
    let end = start.saturating_add(bytes);
    if end > block.bytes() {
        return format!("{} bytes past the end of {what}", end - block.bytes());
    }
    if block.is_banned(start..end) {
        return format!("memory that the program has freed, byte {start} of {what}");
    }
    match block.place {
        Place::Module { constant: true } if block.device == device => "a constant".into(),
        Place::Host { mapped: false, .. } => "memory of the host that is not mapped".into(),
        _ => format!("memory of device {}, not of device {device}", block.device),
    }
}

/// The memory as kernels of a device see it.
pub(crate) struct View<'m> {
    /// All memory.
    pub memory: &'m mut Memory,
    /// The device.
    pub device: usize,
}

impl machine::Memory for View<'_> {
    fn region(&mut self, address: u64, length: usize, access: Access) -> Option<Region<'_>> {
        self.memory.locate_allowed(self.device, address, length, access).map(|(block, range)| block.region(range))
    }

    fn fault(&self, address: u64, length: usize, access: Access) -> Fault {
        let verb = match access {
            Access::Read | Access::ReadOnly => "read",
            Access::Write => "write",
            Access::Atomic => "atomic access",
        };
        Fault::new(FaultKind::IllegalAddress, self.memory.reason(self.device, address, length, verb))
    }
}
