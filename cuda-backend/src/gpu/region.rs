//! The memory of a device: regions that the driver allocates, divided into blocks by gradlet's own allocator.

use crate::driver::Driver;
use crate::driver::api::Address;
use gradlet_core::device::{Blocks, Refused};
use gradlet_core::{Error, Result};
use std::ffi::c_void;

/// Size of the smallest block in bytes. Addresses are multiples of it, as the driver's own are.
const GRAIN: u64 = 256;
/// Size of the smallest region of a device whose memory grows.
const SMALLEST: u64 = 8 << 20;
/// Flags of memory of the host that every context may use and the GPU may address.
const MAPPED: u32 = 1 | 2;

/// Where the memory of a device is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the GPU's own memory.
    Own,
    /// In memory of the host that the GPU addresses too. An integrated GPU has no other memory.
    Mapped,
}

/// Memory of a device.
pub(crate) struct Memory {
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
    /// Creates memory of at most `limit` bytes. If it does not grow, it takes all of them now.
    pub(crate) fn new(driver: &Driver, kind: Kind, limit: u64, grows: bool) -> Result<Memory> {
        let mut memory = Memory { kind, limit: limit / GRAIN * GRAIN, grows, regions: Vec::new() };
        if !grows {
            memory.add(driver, memory.limit).map_err(|error| error.context(format!("the memory of {limit} bytes")))?;
        }
        Ok(memory)
    }

    /// Returns the largest number of bytes that can be in use.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Allocates `bytes` bytes and returns their address.
    pub(crate) fn allocate(&mut self, driver: &Driver, bytes: u64) -> Result<Address, Refused> {
        let found = self.regions.iter_mut().find_map(|region| region.blocks.allocate(bytes));
        let address = match found {
            Some(address) => address,
            None => self.grow(driver, bytes)?,
        };
        driver.handed_out(address, bytes);
        Ok(address)
    }

    /// Frees the `bytes` bytes at `address`.
    pub(crate) fn free(&mut self, driver: &Driver, address: Address, bytes: u64) {
        if let Some(region) = self.regions.iter_mut().find(|region| region.contains(address)) {
            driver.taken_back(address, bytes);
            region.blocks.free(address, bytes);
        }
    }

    /// Returns the address at which the host sees `address`, or `None` if it does not.
    pub(crate) fn host(&self, address: Address) -> Option<*mut u8> {
        let region = self.regions.iter().find(|region| self.kind == Kind::Mapped && region.contains(address))?;
        Some(region.host.cast::<u8>().wrapping_add((address - region.address) as usize))
    }

    /// Allocates `bytes` bytes in a new region. Each region is as large as all before it, so there are few.
    fn grow(&mut self, driver: &Driver, bytes: u64) -> Result<Address, Refused> {
        let needed = bytes.next_multiple_of(GRAIN);
        // The GPU may have less memory than the limit: other programs use it too.
        let room = if self.grows { self.room().min(free_memory(driver).map_err(Refused::Failed)?) } else { 0 };
        if needed > room {
            return Err(self.full(room));
        }
        let wanted = (self.limit - self.room()).max(SMALLEST).max(needed).min(room);
        if let Err(error) = self.add(driver, wanted).or_else(|_| self.add(driver, needed)) {
            // A GPU that is lost says nothing of its memory either.
            return Err(if free_memory(driver).is_ok() { self.full(0) } else { Refused::Failed(error) });
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
    fn add(&mut self, driver: &Driver, bytes: u64) -> Result<()> {
        let (mut address, mut host) = (0, std::ptr::null_mut());
        match self.kind {
            // SAFETY: the first argument is a place for the address.
            Kind::Own => driver.check("cuMemAlloc", unsafe { (driver.api().allocate)(&mut address, bytes as usize) })?,
            Kind::Mapped => {
                // SAFETY: the first arguments are places for the addresses; `host` is the driver's own.
                driver.check("cuMemHostAlloc", unsafe { (driver.api().allocate_host)(&mut host, bytes as usize, MAPPED) })?;
                // SAFETY: as above.
                driver.check("cuMemHostGetDevicePointer", unsafe { (driver.api().host_address)(&mut address, host, 0) })?;
            }
        }
        driver.taken_back(address, bytes);
        self.regions.push(Region { address, host, bytes, blocks: Blocks::new(address, bytes, GRAIN) });
        Ok(())
    }

    /// Gives all regions back to the driver.
    pub(crate) fn release(&mut self, driver: &Driver) {
        for region in self.regions.drain(..) {
            // SAFETY: the device has ended, so nothing uses the region.
            unsafe {
                match self.kind {
                    Kind::Own => (driver.api().free)(region.address),
                    Kind::Mapped => (driver.api().free_host)(region.host),
                }
            };
        }
    }
}

impl Region {
    fn contains(&self, address: Address) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
    }
}

/// Returns the number of bytes of the GPU's memory that no program uses.
pub(crate) fn free_memory(driver: &Driver) -> Result<u64> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the arguments are places for the results.
    driver.check("cuMemGetInfo", unsafe { (driver.api().memory_info)(&mut free, &mut total) })?;
    Ok(free as u64)
}
