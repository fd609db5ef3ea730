//! The combination of tensors by a kernel, whose threads read the operands of all devices and write the results of all.

use super::Kind;
use crate::device::{Part, Shared};
use crate::driver::api::Handle;
use crate::gpu::stream::{NO_TIME, destroy_events, new_event};
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::ptx::Code;
use gradlet_core::{DType, Result};

/// Number of words of a kernel's table: `WORDS` in `all_reduce.cu`.
const WORDS: usize = 480;
/// Size of a pack of elements in bytes.
const PACK: u64 = 16;
/// Largest number of blocks that share a tensor.
const MAX_BLOCKS: u64 = 1024;

/// Work on the tensors of a table.
struct Table {
    dtype: DType,
    /// Number of addresses of operands that are added.
    operands: usize,
    /// Number of replicas.
    replicas: usize,
    /// Number by which the sum is divided.
    divisor: usize,
}

/// Combines the tensors of devices with the same GPU. Returns false if there are too many devices.
///
/// The kernels run on the stream of the first device. They wait for the other streams, and the other streams wait for them.
pub(super) fn combine(parts: &[&Part], kind: Kind) -> Result<bool> {
    let Some((first, others)) = parts.split_first() else { return Ok(false) };
    let replicas = parts.len();
    let operands = if kind == Kind::First { 1 } else { replicas };
    let table = Table { dtype: first.dtype(), operands, replicas, divisor: if kind == Kind::Mean { replicas } else { 1 } };
    let tensor = |index: usize| parts.iter().filter_map(|part| part.tensors.get(index).copied()).collect();
    let Some(calls) = table.calls(&(0..first.tensors.len()).map(tensor).collect::<Vec<_>>()) else { return Ok(false) };
    if calls.is_empty() {
        return Ok(true);
    }
    let ready = calls.iter().map(|call| first.device.ready(call, 0)).collect::<Result<Vec<_>>>()?;
    let event = Event::new(&first.device)?;
    others.iter().try_for_each(|other| event.order(&other.device, &first.device))?;
    let work = first.device.work()?;
    let launched = ready.iter().try_for_each(|one| one.launch(work.driver, work.stream));
    drop(work);
    // Even after an error, no stream may go on before the kernels that were launched.
    let waits = others.iter().try_for_each(|other| event.order(&first.device, &other.device));
    launched.and(waits).map(|()| true)
}

/// Divides the tensors of a part by a number, in place.
pub(super) fn divide(part: &Part, divisor: usize) -> Result<()> {
    let table = Table { dtype: part.dtype(), operands: 1, replicas: 1, divisor };
    let tensors: Vec<_> = part.tensors.iter().map(|&[_, output, elements]| vec![[output, output, elements]]).collect();
    for call in table.calls(&tensors).into_iter().flatten() {
        let ready = part.device.ready(&call, 0)?;
        let work = part.device.work()?;
        ready.launch(work.driver, work.stream)?;
    }
    Ok(())
}

impl Table {
    /// Returns the launches for tensors, each given by the input, the output and the number of elements of each replica. Returns `None` if
    /// a table has no place for one.
    fn calls(&self, tensors: &[Vec<[u64; 3]>]) -> Option<Vec<KernelCall>> {
        let capacity = WORDS / (2 + 2 * self.replicas);
        let tensors: Vec<_> = tensors.iter().filter(|tensor| tensor.iter().any(|[.., elements]| *elements > 0)).collect();
        (capacity > 0).then(|| tensors.chunks(capacity).map(|tensors| self.call(tensors)).collect())
    }

    fn call(&self, tensors: &[&Vec<[u64; 3]>]) -> KernelCall {
        let per_pack = PACK / self.dtype.size() as u64;
        let (mut words, mut most) = (Vec::with_capacity(WORDS), 0);
        for tensor in tensors {
            let elements = tensor.first().map_or(0, |[.., elements]| *elements);
            let is_aligned = tensor.iter().all(|[input, output, _]| (input | output) % PACK == 0);
            let packs = if is_aligned { elements / per_pack } else { 0 };
            words.extend([packs, elements]);
            words.extend(tensor.iter().map(|[input, ..]| *input));
            words.extend(tensor.iter().map(|[_, output, _]| *output));
            most = most.max(if packs > 0 { packs } else { elements });
        }
        words.resize(WORDS, 0);
        let halves = words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        let blocks = most.div_ceil(u64::from(BLOCK)).clamp(1, MAX_BLOCKS) as u32;
        let number = |number: usize| Argument::Words(vec![number as u32]);
        let arguments = vec![number(self.operands), number(self.replicas), number(self.divisor), Argument::Words(halves.collect())];
        let code = Code::stored("all_reduce", format!("all_reduce_{}", self.dtype));
        KernelCall { code, grid: [blocks, tensors.len() as u32, 1], block: [BLOCK, 1, 1], shared: 0, arguments }
    }
}

/// An event, which orders the work of streams.
struct Event<'d> {
    device: &'d Shared,
    handle: Handle,
}

impl<'d> Event<'d> {
    /// Creates an event of the GPU of `device`.
    fn new(device: &'d Shared) -> Result<Event<'d>> {
        let mut event = Event { device, handle: std::ptr::null_mut() };
        new_event(device.stream().enter()?, &mut event.handle, NO_TIME)?;
        Ok(event)
    }

    /// Makes the later work of device `after` wait for the work that device `before` has now. The devices have the same GPU.
    fn order(&self, before: &Shared, after: &Shared) -> Result<()> {
        let work = before.work()?;
        let driver = work.driver;
        // SAFETY: the event and the stream exist.
        driver.check("cuEventRecord", unsafe { (driver.api().record_event)(self.handle, work.stream) })?;
        // SAFETY: as above.
        let status = unsafe { (driver.api().wait_event)(after.stream().handle(), self.handle, 0) };
        driver.check("cuStreamWaitEvent", status)?;
        // Memory of `after` that is freed from now on is in use until its stream has waited.
        after.work().map(drop)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // The driver keeps what streams still wait for.
        if let Ok(driver) = self.device.stream().enter() {
            destroy_events(driver, [self.handle]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_tensors_take_few_launches() {
        let table = Table { dtype: DType::F32, operands: 2, replicas: 2, divisor: 1 };
        let tensors: Vec<_> = (0..100).map(|index| vec![[index << 12, index << 12, 10], [1 << 40, 1 << 40, 10]]).collect();
        let calls = table.calls(&tensors).unwrap();
        assert_eq!(calls.iter().map(|call| call.grid).collect::<Vec<_>>(), [[1, 80, 1], [1, 20, 1]]);
        let Argument::Words(words) = &calls[0].arguments[3] else { panic!("the table is missing") };
        assert_eq!(words.len(), 2 * WORDS);
        let row: Vec<u64> = words[12..24].chunks(2).map(|half| u64::from(half[0]) | u64::from(half[1]) << 32).collect();
        assert_eq!(row, [2, 10, 1 << 12, 1 << 40, 1 << 12, 1 << 40]);
    }

    #[test]
    fn tables_have_limits() {
        let of = |replicas, elements| {
            let tensors = vec![vec![[4, 4, elements]; replicas]];
            Table { dtype: DType::F64, operands: replicas, replicas, divisor: 1 }.calls(&tensors).map(|calls| calls.len())
        };
        assert_eq!([of(239, 1), of(240, 1), of(2, 0)], [Some(1), None, Some(0)]);
    }
}
