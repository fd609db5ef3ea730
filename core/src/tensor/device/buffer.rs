//! Buffers: allocations of a device's memory.

use crate::base::error::Result;
use crate::base::sync::Shared;
use crate::tensor::device::Device;
use crate::tensor::device::account::{Holder, Ticket};
use crate::tensor::device::aligned::AlignedBytes;
use crate::tensor::device::external::Imported;
use crate::tensor::device::remote::Refused;
use crate::tensor::device::report;
use crate::tensor::profile::Transfer;
use core::fmt;
use core::ops::Deref;

/// Bytes of a tensor, in the memory of the device that they belong to. They do not change once they are shared.
pub(crate) struct Buffer {
    device: Device,
    bytes: usize,
    /// Memory of the host, which kernels see as slices. It is empty on a remote device.
    memory: AlignedBytes,
    /// Address in the memory of a remote device. It is 0 if there are no bytes, and on a CPU.
    address: u64,
    owner: Owner,
}

/// Owner of a buffer's memory.
enum Owner {
    /// The device, whose account has this entry.
    Device(Ticket),
    /// The program.
    Program { _memory: Shared<Imported> },
}

impl Buffer {
    /// Allocates `bytes` bytes on `device`, with arbitrary content, for `holder`.
    ///
    /// Fails with [`OutOfMemory`](crate::Error::OutOfMemory) if the device refuses.
    pub(crate) fn allocate(device: &Device, bytes: usize, holder: Holder) -> Result<Buffer> {
        let Some(remote) = device.remote() else {
            return Buffer::host(device, bytes, holder, |pooled| pooled.or_else(|| AlignedBytes::try_zeroed(bytes)));
        };
        let (account, told) = (device.account(), report::text(device, &holder));
        let reserved = if account.is_limited() { Some(account.reserve(device.name(), bytes, holder.clone())?.0) } else { None };
        let allocated = if bytes == 0 { Ok(0) } else { remote.allocate(bytes) };
        let address = allocated.map_err(|refused| {
            reserved.iter().for_each(|ticket| account.release(ticket, bytes, AlignedBytes::default()));
            match refused {
                Refused::Full { free, largest } => account.shortage(device.name(), bytes, remote.limit(), free, largest),
                Refused::Failed(error) => error,
            }
        })?;
        let ticket = reserved.unwrap_or_else(|| account.add(bytes, holder));
        let (memory, owner) = (AlignedBytes::default(), Owner::Device(ticket));
        Ok(report::allocated(Buffer { device: device.clone(), bytes, memory, address, owner }, told))
    }

    /// Creates a buffer on a CPU from the memory that `allocate` returns. It receives memory of this size from the pool, if there is some.
    fn host(
        device: &Device,
        bytes: usize,
        holder: Holder,
        allocate: impl Fn(Option<AlignedBytes>) -> Option<AlignedBytes>,
    ) -> Result<Buffer> {
        let (account, told) = (device.account(), report::text(device, &holder));
        let (ticket, pooled) = account.reserve(device.name(), bytes, holder)?;
        let memory = allocate(pooled).or_else(|| {
            // The system may have enough once it has the memory of the pool.
            account.free_unused();
            allocate(None)
        });
        let Some(memory) = memory else {
            account.release(&ticket, bytes, AlignedBytes::default());
            return Err(account.shortage(device.name(), bytes, None, 0, 0));
        };
        Ok(report::allocated(Buffer { device: device.clone(), bytes, memory, address: 0, owner: Owner::Device(ticket) }, told))
    }

    /// Creates a buffer of `bytes` bytes at `address`, in memory that the program owns.
    pub(crate) fn external(device: &Device, bytes: usize, address: u64, memory: Shared<Imported>) -> Buffer {
        Buffer { device: device.clone(), bytes, memory: AlignedBytes::default(), address, owner: Owner::Program { _memory: memory } }
    }

    /// Returns the buffer if its device owns the memory. Otherwise returns a copy, because the program may change the memory.
    pub(crate) fn lasting(buffer: &Shared<Buffer>, holder: impl FnOnce() -> Holder) -> Result<Shared<Buffer>> {
        match buffer.owner {
            Owner::Device(_) => Ok(buffer.clone()),
            Owner::Program { .. } => buffer.copy(holder()).map(Shared::new),
        }
    }

    /// Allocates `bytes` zero bytes.
    pub(crate) fn zeros(device: &Device, bytes: usize, holder: Holder) -> Result<Buffer> {
        if device.remote().is_some() {
            return Buffer::filled(device, &[0], bytes, holder);
        }
        Buffer::host(device, bytes, holder, |pooled| match pooled {
            Some(mut memory) => {
                memory.fill(0);
                Some(memory)
            }
            None => AlignedBytes::try_zeroed(bytes),
        })
    }

    /// Allocates `bytes` bytes, and fills them with repetitions of `element`.
    pub(crate) fn filled(device: &Device, element: &[u8], bytes: usize, holder: Holder) -> Result<Buffer> {
        let mut buffer = Buffer::allocate(device, bytes, holder)?;
        match device.remote() {
            Some(remote) if bytes > 0 => device.transfer(Transfer::Fill, bytes, || remote.fill(element, buffer.address, bytes))?,
            _ => buffer.memory.chunks_exact_mut(element.len()).for_each(|slot| slot.copy_from_slice(element)),
        }
        Ok(buffer)
    }

    /// Allocates a buffer that holds `parts`, one after the other.
    pub(crate) fn concat(device: &Device, parts: &[&[u8]], holder: Holder) -> Result<Buffer> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let Some(remote) = device.remote() else {
            return Buffer::host(device, bytes, holder, |pooled| joined(pooled, parts));
        };
        let buffer = Buffer::allocate(device, bytes, holder)?;
        match parts {
            _ if bytes == 0 => (),
            [part] => device.transfer(Transfer::Upload, bytes, || remote.upload(part, buffer.address))?,
            parts => {
                let mut staged = AlignedBytes::staged(bytes)?;
                staged.join(parts);
                device.transfer(Transfer::Upload, bytes, || remote.upload(&staged, buffer.address))?;
            }
        }
        Ok(buffer)
    }

    /// Allocates `bytes` bytes that are 0 until `write` fills them in.
    pub(crate) fn written(device: &Device, bytes: usize, holder: Holder, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Buffer> {
        if device.remote().is_some() {
            let mut staged = AlignedBytes::staged(bytes)?;
            write(&mut staged)?;
            return Buffer::concat(device, &[&staged], holder);
        }
        let mut buffer = Buffer::zeros(device, bytes, holder)?;
        write(buffer.bytes_mut().unwrap_or_default())?;
        Ok(buffer)
    }

    /// Returns a copy of the buffer on the same device, for `holder`.
    pub(crate) fn copy(&self, holder: Holder) -> Result<Buffer> {
        let Some(remote) = self.device.remote() else {
            return Buffer::host(&self.device, self.bytes, holder, |pooled| joined(pooled, &[&self.memory]));
        };
        let copy = Buffer::allocate(&self.device, self.bytes, holder)?;
        if self.bytes > 0 {
            self.device.transfer(Transfer::Copy, self.bytes, || remote.copy(self.address, copy.address, self.bytes))?;
        }
        Ok(copy)
    }

    /// Returns the device that the bytes belong to.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes, or `None` if the host cannot address them.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        (self.address == 0).then_some(&*self.memory)
    }

    /// Returns the bytes for writing, or `None` if the host cannot address them.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        (self.address == 0).then_some(&mut *self.memory)
    }

    /// Returns the bytes in memory of the host. There are none on a remote device.
    #[inline(always)]
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Returns the bytes in memory of the host for writing. There are none on a remote device.
    #[inline(always)]
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Returns the address in the memory of a remote device, or 0 for memory of the host.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns a number that no other live buffer of the device has, unless it is empty.
    pub(super) fn place(&self) -> u64 {
        if self.address == 0 { self.memory.as_ptr() as u64 } else { self.address }
    }

    /// Returns the bytes. Those of a remote device are copied to the host.
    pub(crate) fn read(&self) -> Result<Bytes<'_>> {
        if let Some(bytes) = self.bytes() {
            return Ok(Bytes::from(bytes));
        }
        let mut copy = AlignedBytes::staged(self.bytes)?;
        self.download(&mut copy)?;
        Ok(Bytes::from(copy))
    }

    /// Copies the bytes to `into`, which has the same length.
    pub(crate) fn download(&self, into: &mut [u8]) -> Result<()> {
        match self.device.remote() {
            Some(remote) if self.bytes > 0 => {
                self.device.transfer(Transfer::Download, self.bytes, || remote.download(self.address, into))?
            }
            _ => into.copy_from_slice(&self.memory),
        }
        Ok(())
    }

    /// Sets the bytes to `bytes`, which has the same length.
    pub(crate) fn upload(&mut self, bytes: &[u8]) -> Result<()> {
        match self.device.remote() {
            Some(remote) if self.bytes > 0 => self.device.transfer(Transfer::Upload, self.bytes, || remote.upload(bytes, self.address))?,
            _ => self.memory.copy_from_slice(bytes),
        }
        Ok(())
    }

    /// Names a new holder of the bytes, for errors about memory.
    pub(crate) fn hold(&self, holder: impl FnOnce() -> Holder) {
        if let Owner::Device(ticket) = &self.owner {
            self.device.account().rename(ticket, holder);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Owner::Device(ticket) = &self.owner else { return };
        report::freed(self);
        let memory = core::mem::take(&mut self.memory);
        // First in the account, so that it never has more than the device.
        self.device.account().release(ticket, self.bytes, memory);
        if self.address != 0
            && let Some(remote) = self.device.remote()
        {
            remote.free(self.address, self.bytes);
        }
    }
}

/// Returns `parts`, one after the other, in memory of the pool or in new memory. Returns `None` if there is none.
fn joined(pooled: Option<AlignedBytes>, parts: &[&[u8]]) -> Option<AlignedBytes> {
    let Some(mut memory) = pooled else { return AlignedBytes::try_concat(parts) };
    memory.join(parts);
    Some(memory)
}

/// Bytes of a tensor, as the host sees them: those of a CPU themselves, or a copy of those of another device.
///
/// ```
/// use gradlet_core::{Tensor, ops};
/// let bytes = Tensor::new(&ops::portable_cpu(), &[1u8, 2], &[2])?;
/// assert_eq!(bytes.bytes()?[1], 2);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub struct Bytes<'t>(Read<'t>);

enum Read<'t> {
    Seen(&'t [u8]),
    Copied(AlignedBytes),
}

impl<'t> From<&'t [u8]> for Bytes<'t> {
    fn from(bytes: &'t [u8]) -> Bytes<'t> {
        Bytes(Read::Seen(bytes))
    }
}

impl From<AlignedBytes> for Bytes<'_> {
    fn from(bytes: AlignedBytes) -> Self {
        Bytes(Read::Copied(bytes))
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Bytes<'_> {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl AsRef<[u8]> for Bytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Read::Seen(bytes) => bytes,
            Read::Copied(bytes) => bytes,
        }
    }
}
