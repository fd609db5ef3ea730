//! The memory of a device: regions that the driver allocates, divided into blocks by gradlet's own allocator.

use crate::driver::Driver;
use crate::driver::api::Address;
use crate::gpu::Context;
use gradlet_core::device::{Blocks, Refused};
use gradlet_core::{Error, Result};
use std::ffi::c_void;
use std::sync::Arc;

/// Size of the smallest block in bytes. Addresses are multiples of it, as the driver's own are.
pub(crate) const GRAIN: u64 = 256;
/// Size of the smallest region of a device whose memory grows.
const SMALLEST: u64 = 8 << 20;
/// A device that takes memory in advance leaves one part in this many to the driver, which needs memory for kernels and graphs.
const LEFT: u64 = 16;
/// Flags of memory of the host that every context may use and the GPU may address.
pub(crate) const MAPPED: u32 = 1 | 2;

/// Where the memory of a device is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the GPU's own memory.
    Own,
    /// In memory of the host that the GPU addresses too.
    Mapped,
}

/// Memory of a device.
pub(crate) struct Memory {
    context: Arc<Context>,
    kind: Kind,
    /// The largest number of bytes that the regions may have together.
    limit: u64,
    grows: bool,
    regions: Vec<Region>,
}

struct Region {
    address: Address,
    /// The address at which the host sees mapped memory.
    host: *mut c_void,
    bytes: u64,
    blocks: Blocks,
}

// SAFETY: a region's addresses are not tied to a thread.
unsafe impl Send for Region {}

impl Memory {
    /// Creates memory of at most `limit` bytes, which it takes now. Without a limit, the memory grows up to that of the GPU, or takes
    /// nearly all that is free.
    pub(crate) fn new(context: &Arc<Context>, kind: Kind, limit: Option<u64>, grows: bool) -> Result<Memory> {
        let available = || context.available().map(|free| free - free / LEFT);
        let (limit, grows) = match limit {
            Some(limit) => (limit, false),
            None if grows => (context.memory(), true),
            None => (available()?, false),
        };
        let mut memory = Memory { context: context.clone(), kind, limit: limit / GRAIN * GRAIN, grows, regions: Vec::new() };
        if !grows {
            memory.add(memory.limit).map_err(|error| error.context(format!("the memory of {limit} bytes")))?;
        }
        Ok(memory)
    }

    /// Returns the largest number of bytes that can be in use.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Allocates `bytes` bytes and returns their address.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<Address, Refused> {
        let found = self.regions.iter_mut().find_map(|region| region.blocks.allocate(bytes));
        let address = match found {
            Some(address) => address,
            None => self.grow(bytes)?,
        };
        match self.kind {
            Kind::Own => self.context.driver().handed_out(address, bytes),
            Kind::Mapped => self.context.driver().shared_out(address, bytes),
        }
        Ok(address)
    }

    /// Frees the `bytes` bytes at `address`.
    pub(crate) fn free(&mut self, address: Address, bytes: u64) {
        if let Some(region) = self.regions.iter_mut().find(|region| region.contains(address)) {
            self.context.driver().taken_back(address, bytes);
            region.blocks.free(address, bytes);
        }
    }

    /// Returns the address at which the host sees `address`, or `None` if it does not.
    pub(crate) fn host(&self, address: Address) -> Option<*mut u8> {
        let region = self.regions.iter().find(|region| self.kind == Kind::Mapped && region.contains(address))?;
        Some(region.host.cast::<u8>().wrapping_add((address - region.address) as usize))
    }

    /// Allocates `bytes` bytes in a new region. If possible, each region is as large as all before it, so there are few.
    fn grow(&mut self, bytes: u64) -> Result<Address, Refused> {
        let needed = bytes.next_multiple_of(GRAIN);
        // The GPU may have less memory than the limit: other programs use it too.
        let room = if self.grows { self.room().min(self.context.available().map_err(Refused::Failed)?) } else { 0 };
        if needed > room {
            return Err(self.full(room));
        }
        let spare = room.saturating_sub(self.limit / LEFT);
        let mut wanted = (self.limit - self.room()).max(SMALLEST).min(spare).max(needed);
        while let Err(error) = self.add(wanted) {
            if wanted == needed {
                // A GPU that is lost says nothing of its memory either.
                return Err(if self.context.available().is_ok() { self.full(0) } else { Refused::Failed(error) });
            }
            wanted = (wanted / 2 / GRAIN * GRAIN).max(needed);
        }
        let added = self.regions.last_mut().and_then(|region| region.blocks.allocate(bytes));
        added.ok_or(Refused::Failed(Error::Internal))
    }

    /// Returns the refusal of memory whose regions could have `room` more bytes.
    fn full(&self, room: u64) -> Refused {
        let blocks = || self.regions.iter().map(|region| &region.blocks);
        let free = blocks().map(|blocks| blocks.free_bytes()).sum::<u64>() + room;
        Refused::Full { free, largest: blocks().map(|blocks| blocks.largest()).max().unwrap_or(0).max(room / GRAIN * GRAIN) }
    }

    /// Returns the number of bytes that new regions may have.
    fn room(&self) -> u64 {
        self.limit - self.regions.iter().map(|region| region.bytes).sum::<u64>()
    }

    /// Allocates a region of `bytes` bytes.
    fn add(&mut self, bytes: u64) -> Result<()> {
        let driver = self.context.enter()?;
        let mut region = Region { address: 0, host: std::ptr::null_mut(), bytes, blocks: Blocks::new(0, 0, GRAIN) };
        match self.kind {
            // SAFETY: the first argument is a place for the address.
            Kind::Own => driver.check("cuMemAlloc", unsafe { (driver.api().allocate)(&mut region.address, bytes as usize) })?,
            Kind::Mapped => {
                // SAFETY: the first arguments are places for the addresses; `host` is the driver's own.
                driver.check("cuMemHostAlloc", unsafe { (driver.api().allocate_host)(&mut region.host, bytes as usize, MAPPED) })?;
                // SAFETY: as above.
                let status = unsafe { (driver.api().host_address)(&mut region.address, region.host, 0) };
                if let Err(error) = driver.check("cuMemHostGetDevicePointer", status) {
                    region.release(driver, self.kind);
                    return Err(error);
                }
            }
        }
        driver.taken_back(region.address, bytes);
        region.blocks = Blocks::new(region.address, bytes, GRAIN);
        self.regions.push(region);
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.enter() {
            self.regions.iter().for_each(|region| region.release(driver, self.kind));
        }
    }
}

impl Region {
    fn contains(&self, address: Address) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
    }

    /// Gives the region back to the driver. Nothing uses it any more.
    fn release(&self, driver: &Driver, kind: Kind) {
        // SAFETY: the region is an allocation of this kind.
        unsafe {
            match kind {
                Kind::Own => (driver.api().free)(self.address),
                Kind::Mapped => (driver.api().free_host)(self.host),
            }
        };
    }
}

/// An allocation in a GPU's own memory.
pub(crate) struct Allocation {
    context: Arc<Context>,
    address: Address,
}

impl Allocation {
    pub(crate) fn new(context: &Arc<Context>, bytes: u64) -> Result<Allocation> {
        let (driver, mut address) = (context.enter()?, 0);
        // SAFETY: the first argument is a place for the address.
        driver.check("cuMemAlloc", unsafe { (driver.api().allocate)(&mut address, bytes as usize) })?;
        driver.handed_out(address, bytes);
        Ok(Allocation { context: context.clone(), address })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.enter() {
            // SAFETY: nothing uses the memory any more.
            unsafe { (driver.api().free)(self.address) };
        }
    }
}
