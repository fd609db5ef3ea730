//! The stream of a device: its work, in order, and its copies from and to the host.

use crate::driver::Driver;
use crate::driver::api::{Address, Handle};
use crate::gpu::Context;
use gradlet_core::Result;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// Size of each half of the staging memory in bytes.
const HALF: usize = 1 << 20;
/// Flag of a stream that does not wait for the driver's own stream.
const NON_BLOCKING: u32 = 1;
/// Flag of an event with a time.
const TIME: u32 = 0;
/// Flag of an event without a time.
pub(crate) const NO_TIME: u32 = 2;
/// Flag of memory of the host that every context may use.
const PORTABLE: u32 = 1;

/// Stream of a device. All work of the device is on it, so it happens in the order of the calls.
pub(crate) struct Stream {
    context: Arc<Context>,
    handle: Handle,
    staging: Mutex<Staging>,
    /// Pairs of events that measure no work at the moment.
    pairs: Mutex<Vec<[Handle; 2]>>,
}

/// Pinned memory of the host, through which uploads go: the driver copies from it while the program goes on.
struct Staging {
    memory: *mut u8,
    /// For each half, an event that comes after the last copy from it.
    read: [Handle; 2],
    half: usize,
    used: usize,
}

// SAFETY: streams, events and pinned memory are not tied to a thread. The staging memory has a lock.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Stream> {
        let (null, pairs) = (std::ptr::null_mut(), Mutex::default());
        let staging = Mutex::new(Staging { memory: std::ptr::null_mut(), read: [null; 2], half: 0, used: 0 });
        // What fails half-way is dropped.
        let mut stream = Stream { context: context.clone(), handle: null, staging, pairs };
        let driver = context.enter()?;
        // SAFETY: the first argument is a place for the handle, here and below.
        driver.check("cuStreamCreate", unsafe { (driver.api().create_stream)(&mut stream.handle, NON_BLOCKING) })?;
        let staging = stream.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        staging.read.iter_mut().try_for_each(|event| new_event(driver, event, NO_TIME))?;
        let mut memory = std::ptr::null_mut::<c_void>();
        // SAFETY: see above.
        driver.check("cuMemHostAlloc", unsafe { (driver.api().allocate_host)(&mut memory, 2 * HALF, PORTABLE) })?;
        staging.memory = memory.cast();
        Ok(stream)
    }

    /// Makes the context current for this thread.
    pub(crate) fn enter(&self) -> Result<&Driver> {
        self.context.enter()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until all work is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the stream exists as long as this value.
        driver.check("cuStreamSynchronize", unsafe { (driver.api().synchronize)(self.handle) })
    }

    /// Waits until all work before `event` is done.
    pub(crate) fn wait_for(&self, event: Handle) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the event exists.
        driver.check("cuEventSynchronize", unsafe { (driver.api().await_event)(event) })
    }

    /// Calls `work`, which puts work on the stream, waits until that is done, and returns the nanoseconds that it took. Work of other
    /// threads can come between.
    pub(crate) fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        let driver = self.enter()?;
        let unused = self.pairs.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pair = match unused {
            Some(pair) => pair,
            None => {
                let mut pair = [std::ptr::null_mut(); 2];
                let made = pair.iter_mut().try_for_each(|event| new_event(driver, event, TIME));
                made.inspect_err(|_| destroy_events(driver, pair))?;
                pair
            }
        };
        let time = self.between(driver, pair, work);
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).push(pair);
        time
    }

    /// Calls `work` between two events, and returns the nanoseconds between them.
    fn between(&self, driver: &Driver, [start, end]: [Handle; 2], work: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        // SAFETY: the events and the stream exist as long as this value, here and below.
        driver.check("cuEventRecord", unsafe { (driver.api().record_event)(start, self.handle) })?;
        work()?;
        let driver = self.enter()?;
        // SAFETY: see above.
        driver.check("cuEventRecord", unsafe { (driver.api().record_event)(end, self.handle) })?;
        // SAFETY: see above.
        driver.check("cuEventSynchronize", unsafe { (driver.api().await_event)(end) })?;
        let mut milliseconds = 0.0;
        // SAFETY: see above. The first argument is a place for the time.
        driver.check("cuEventElapsedTime", unsafe { (driver.api().elapsed)(&mut milliseconds, start, end) })?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    /// Copies `bytes` to address `to`. The caller may change them at once.
    pub(crate) fn upload(&self, bytes: &[u8], to: Address) -> Result<()> {
        let driver = self.enter()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = to;
        let mut rest = bytes;
        while !rest.is_empty() {
            if staging.used == HALF {
                staging.turn(driver, self.handle)?;
            }
            let (part, after) = rest.split_at(rest.len().min(HALF - staging.used));
            let place = staging.memory.wrapping_add(staging.half * HALF + staging.used);
            // SAFETY: the place is in the half that no copy reads any more, behind what this half has been used for, and large enough.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), place, part.len()) };
            // SAFETY: the driver reads the place until the event of this half.
            driver.check("cuMemcpyHtoDAsync", unsafe { (driver.api().upload)(at, place.cast(), part.len(), self.handle) })?;
            // The next upload begins at a multiple of 16.
            staging.used = (staging.used + part.len()).next_multiple_of(16).min(HALF);
            (rest, at) = (after, at + part.len() as u64);
        }
        Ok(())
    }

    /// Copies the bytes at address `from` to the host, when all work before is done.
    pub(crate) fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the bytes are borrowed until the copy is done.
        let status = unsafe { (driver.api().download)(bytes.as_mut_ptr().cast(), from, bytes.len(), self.handle) };
        driver.check("cuMemcpyDtoHAsync", status)?;
        self.synchronize()
    }

    /// Copies `bytes` bytes from address `from` to address `to`.
    pub(crate) fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: both ranges are allocations of the device.
        driver.check("cuMemcpyDtoDAsync", unsafe { (driver.api().copy)(to, from, bytes, self.handle) })
    }

    /// Fills the `bytes` bytes at address `to` with `element`, which has 1, 2 or 4 bytes.
    pub(crate) fn fill(&self, element: &[u8], to: Address, bytes: usize) -> Result<()> {
        let (driver, stream) = (self.enter()?, self.handle);
        let api = driver.api();
        // SAFETY: the range is an allocation of the device.
        let status = unsafe {
            match *element {
                [a] => (api.fill_8)(to, a, bytes, stream),
                [a, b] => (api.fill_16)(to, u16::from_le_bytes([a, b]), bytes / 2, stream),
                [a, b, c, d] => (api.fill_32)(to, u32::from_le_bytes([a, b, c, d]), bytes / 4, stream),
                _ => return Err(gradlet_core::Error::Internal),
            }
        };
        driver.check("cuMemsetAsync", status)
    }
}

impl Staging {
    /// Goes on in the other half, when the copies from it are done.
    fn turn(&mut self, driver: &Driver, stream: Handle) -> Result<()> {
        // SAFETY: the events and the stream exist.
        driver.check("cuEventRecord", unsafe { (driver.api().record_event)(self.read[self.half], stream) })?;
        (self.half, self.used) = (1 - self.half, 0);
        // SAFETY: as above. An event that was never recorded is over.
        driver.check("cuEventSynchronize", unsafe { (driver.api().await_event)(self.read[self.half]) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A failure means that the GPU is lost. Then nothing is left to free.
        if !self.handle.is_null() {
            let _ = self.synchronize();
        }
        let Ok(driver) = self.enter() else { return };
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        destroy_events(driver, staging.read);
        pairs.iter().for_each(|pair| destroy_events(driver, *pair));
        // SAFETY: all work is done, and nothing else has the handles.
        unsafe {
            if !staging.memory.is_null() {
                (driver.api().free_host)(staging.memory.cast());
            }
            if !self.handle.is_null() {
                (driver.api().destroy_stream)(self.handle);
            }
        }
    }
}

pub(crate) fn new_event(driver: &Driver, event: &mut Handle, flags: u32) -> Result<()> {
    // SAFETY: the first argument is a place for the handle.
    driver.check("cuEventCreate", unsafe { (driver.api().create_event)(event, flags) })
}

/// Destroys those of the events that exist.
pub(crate) fn destroy_events(driver: &Driver, events: impl IntoIterator<Item = Handle>) {
    for event in events.into_iter().filter(|event| !event.is_null()) {
        // SAFETY: nothing else has the handle.
        unsafe { (driver.api().destroy_event)(event) };
    }
}
