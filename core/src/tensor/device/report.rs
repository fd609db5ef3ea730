//! Reports to a device's profiler of memory that is allocated and freed.

use crate::tensor::device::account::{Holder, blocks};
use crate::tensor::device::{Buffer, Device, MemoryInfo};
use crate::tensor::profile::MemoryChange;
use alloc::string::String;

/// Returns the text that a report has for `holder`, or `None` if the device has no profiler.
#[inline(always)]
pub(super) fn text(device: &Device, holder: &Holder) -> Option<String> {
    device.profiler().map(|_| holder.text())
}

/// Returns `buffer`, which is new. Reports it if there is the text of its holder.
#[inline(always)]
pub(super) fn allocated(buffer: Buffer, holder: Option<String>) -> Buffer {
    if let Some(holder) = holder {
        report(&buffer, Some(&holder));
    }
    buffer
}

/// Reports that the memory of `buffer` is freed. A caller reports it before it happens: afterwards another thread could report a new
/// allocation at the same address first.
#[inline(always)]
pub(super) fn freed(buffer: &Buffer) {
    if buffer.device().profiler().is_some() {
        report(buffer, None);
    }
}

/// Reports an allocation for `holder`, or its end if there is no holder. A separate function keeps that of a plain device short.
#[cold]
#[inline(never)]
fn report(buffer: &Buffer, holder: Option<&str>) {
    let (device, requested) = (buffer.device(), buffer.len());
    let Some(profiler) = device.profiler().filter(|_| requested > 0) else { return };
    let (bytes, memory) = (blocks(requested), device.memory_info());
    let current = if holder.is_some() { memory.current } else { memory.current.saturating_sub(bytes) };
    profiler.memory(&MemoryChange {
        allocated: holder.is_some(),
        requested: requested as u64,
        bytes,
        address: buffer.place(),
        holder: holder.unwrap_or_default(),
        memory: MemoryInfo { current, ..memory },
    });
}
