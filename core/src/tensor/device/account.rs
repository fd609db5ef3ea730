//! The account of a device's memory: how much is in use, and who holds it.

use crate::base::error::{Error, OutOfMemory, Result};
use crate::base::sync::{Lock, Shared};
use crate::tensor::device::aligned::AlignedBytes;
use crate::tensor::device::pool::{self, Pool};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Size of a block of a CPU's memory in bytes. A limit is exact to a block.
pub(crate) const BLOCK: usize = 16;

/// Memory of a device: `tf.config.experimental.get_memory_info`, with the limit and the number of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "get_memory_info")]
pub struct MemoryInfo {
    /// Bytes in use.
    pub current: u64,
    /// Largest number of bytes that were in use at the same time.
    pub peak: u64,
    /// Limit in bytes, or `None` for a device without a limit.
    pub limit: Option<u64>,
    /// Number of allocations since the device was created.
    pub allocations: u64,
}

/// Holder of memory, for errors about memory.
#[derive(Clone)]
pub(crate) enum Holder {
    /// A tensor that this op computed, or that a program created.
    Tensor(&'static str),
    /// A variable.
    Variable(Shared<str>),
    /// A function: its scratch memory, results and constants.
    Function(Shared<str>),
}

impl Holder {
    /// Returns the text that errors and reports have for the holder.
    pub(crate) fn text(&self) -> String {
        match self {
            Holder::Tensor("") => "tensors".into(),
            Holder::Tensor(op) => format!("tensors of {op}"),
            Holder::Variable(name) => format!("variable {name:?}"),
            Holder::Function(name) => format!("function {name}"),
        }
    }
}

/// Entry of an allocation in the account's list of holders. It is 0 if the account keeps no list.
pub(crate) struct Ticket(u64);

/// Account of a device's memory.
#[derive(Default)]
pub(crate) struct Account {
    limit: Option<u64>,
    /// True if the account lists the holders. Only a device with a limit pays for that.
    lists: bool,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    current: u64,
    peak: u64,
    allocations: u64,
    holders: BTreeMap<u64, (Holder, u64)>,
    pool: Pool,
}

impl Account {
    /// Creates the account of a device that may use `limit` bytes, rounded down to whole blocks. `lists` is true if another part of the
    /// device has a limit.
    pub(crate) fn new(limit: Option<u64>, lists: bool) -> Account {
        let limit = limit.map(|limit| limit / BLOCK as u64 * BLOCK as u64);
        Account { limit, lists: lists || limit.is_some(), state: Lock::default() }
    }

    /// True if the account itself has a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    pub(crate) fn info(&self, limit: Option<u64>) -> MemoryInfo {
        let State { current, peak, allocations, .. } = &*self.state.lock();
        MemoryInfo { current: *current, peak: *peak, limit: self.limit.or(limit), allocations: *allocations }
    }

    /// Adds an allocation of `bytes` bytes, in whole blocks. Also returns memory of this size from the pool, if there is some. Fails with
    /// [`Error::OutOfMemory`] over the limit.
    pub(crate) fn reserve(&self, device: &str, bytes: usize, holder: Holder) -> Result<(Ticket, Option<AlignedBytes>)> {
        let size = blocks(bytes);
        let mut state = self.state.lock();
        if let Some(limit) = self.limit
            && size > limit - state.current
        {
            let free = limit - state.current;
            drop(state);
            return Err(self.shortage(device, bytes, None, free, free));
        }
        let peak = state.peak;
        let ticket = state.add(size, holder, self.lists);
        let pooled = if bytes < pool::LEAST { None } else { state.pool.take(bytes) };
        let room = peak.max(state.current) - state.current;
        if pooled.is_some() || !state.pool.exceeds(room) {
            return Ok((ticket, pooled));
        }
        let surplus = state.pool.shrink(room);
        drop(state);
        // Memory is freed after the lock is released.
        drop(surplus);
        Ok((ticket, pooled))
    }

    /// Adds an allocation that the device has made.
    pub(crate) fn add(&self, bytes: usize, holder: Holder) -> Ticket {
        self.state.lock().add(blocks(bytes), holder, self.lists)
    }

    /// Removes an allocation. If it was memory of the host, the pool may keep it.
    pub(crate) fn release(&self, ticket: &Ticket, bytes: usize, memory: AlignedBytes) {
        let mut state = self.state.lock();
        state.current -= blocks(bytes);
        let room = state.peak - state.current;
        let surplus = if memory.len() < pool::LEAST { Some(memory) } else { state.pool.keep(memory, room) };
        let holder = if ticket.0 != 0 { state.holders.remove(&ticket.0) } else { None };
        drop(state);
        // Memory and names are freed after the lock is released.
        drop((surplus, holder));
    }

    /// Empties the pool.
    pub(crate) fn free_unused(&self) {
        let unused = self.state.lock().pool.shrink(0);
        drop(unused);
    }

    /// Replaces the holder of an allocation.
    pub(crate) fn rename(&self, ticket: &Ticket, holder: impl FnOnce() -> Holder) {
        if ticket.0 != 0 {
            let holder = holder();
            let mut state = self.state.lock();
            let old = state.holders.get_mut(&ticket.0).map(|entry| core::mem::replace(&mut entry.0, holder));
            drop(state);
            drop(old);
        }
    }

    /// Returns the error for a request that does not fit.
    pub(crate) fn shortage(&self, device: &str, bytes: usize, limit: Option<u64>, free: u64, largest: u64) -> Error {
        let mut holders = BTreeMap::<String, u64>::new();
        let state = self.state.lock();
        for (holder, bytes) in state.holders.values() {
            *holders.entry(holder.text()).or_default() += bytes;
        }
        drop(state);
        let mut holders: Vec<_> = holders.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        holders.sort_by_key(|(_, bytes)| core::cmp::Reverse(*bytes));
        let limit = self.limit.or(limit);
        Error::OutOfMemory(Box::new(OutOfMemory { device: device.into(), requested: bytes as u64, free, largest, limit, holders }))
    }
}

impl State {
    fn add(&mut self, size: u64, holder: Holder, lists: bool) -> Ticket {
        self.current += size;
        self.peak = self.peak.max(self.current);
        self.allocations += 1;
        if !lists {
            return Ticket(0);
        }
        self.holders.insert(self.allocations, (holder, size));
        Ticket(self.allocations)
    }
}

/// Returns the size of the blocks that `bytes` bytes occupy.
pub(crate) fn blocks(bytes: usize) -> u64 {
    bytes.next_multiple_of(BLOCK) as u64
}
