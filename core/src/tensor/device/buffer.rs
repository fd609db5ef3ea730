//! Buffers: allocations of a device's memory.

use crate::base::error::Result;
use crate::tensor::device::Device;
use crate::tensor::device::account::{Holder, Ticket};
use crate::tensor::device::aligned::AlignedBytes;
use crate::tensor::device::remote::{Refused, Remote};
use core::fmt;
use core::ops::Deref;

/// Bytes of a tensor, in the memory of the device that they belong to. They do not change once they are shared.
pub(crate) struct Buffer {
    device: Device,
    bytes: usize,
    storage: Storage,
    ticket: Ticket,
}

enum Storage {
    /// Memory that the host's kernels see as slices.
    Host(AlignedBytes),
    /// Memory of a remote device, at this address. It is 0 if there are no bytes.
    Remote(u64),
}

impl Buffer {
    /// Allocates `bytes` bytes on `device`, with arbitrary content, for `holder`.
    ///
    /// Fails with [`OutOfMemory`](crate::Error::OutOfMemory) if the device refuses.
    pub(crate) fn allocate(device: &Device, bytes: usize, holder: Holder) -> Result<Buffer> {
        let Some(remote) = device.remote() else {
            return Buffer::host(device, bytes, holder, || AlignedBytes::try_zeroed(bytes));
        };
        Buffer::counted(device, bytes, holder, || match bytes {
            0 => Ok(Storage::Remote(0)),
            bytes => remote.allocate(bytes).map(Storage::Remote),
        })
    }

    /// Creates a buffer on a CPU from the memory that `allocate` returns.
    fn host(device: &Device, bytes: usize, holder: Holder, allocate: impl FnOnce() -> Option<AlignedBytes>) -> Result<Buffer> {
        let refused = Refused::Full { free: 0, largest: 0 };
        Buffer::counted(device, bytes, holder, || allocate().map(Storage::Host).ok_or(refused))
    }

    /// Creates a buffer from the storage that `allocate` returns, and adds it to the device's account.
    fn counted(device: &Device, bytes: usize, holder: Holder, allocate: impl FnOnce() -> Result<Storage, Refused>) -> Result<Buffer> {
        let account = device.account();
        let reserved = if account.is_limited() { Some(account.reserve(device.name(), bytes, holder.clone())?) } else { None };
        let storage = allocate().map_err(|refused| {
            reserved.iter().for_each(|ticket| account.release(ticket, bytes));
            match refused {
                Refused::Full { free, largest } => {
                    account.shortage(device.name(), bytes, device.remote().and_then(Remote::limit), free, largest)
                }
                Refused::Failed(error) => error,
            }
        })?;
        let ticket = reserved.unwrap_or_else(|| account.add(bytes, holder));
        Ok(Buffer { device: device.clone(), bytes, storage, ticket })
    }

    /// Allocates `bytes` zero bytes.
    pub(crate) fn zeros(device: &Device, bytes: usize, holder: Holder) -> Result<Buffer> {
        match device.remote() {
            None => Buffer::host(device, bytes, holder, || AlignedBytes::try_zeroed(bytes)),
            Some(_) => Buffer::filled(device, &[0], bytes, holder),
        }
    }

    /// Allocates `bytes` bytes, and fills them with repetitions of `element`.
    pub(crate) fn filled(device: &Device, element: &[u8], bytes: usize, holder: Holder) -> Result<Buffer> {
        let mut buffer = Buffer::allocate(device, bytes, holder)?;
        match (&mut buffer.storage, device.remote()) {
            (Storage::Remote(address), Some(remote)) if bytes > 0 => remote.fill(element, *address, bytes)?,
            (Storage::Host(own), _) => own.chunks_exact_mut(element.len()).for_each(|slot| slot.copy_from_slice(element)),
            _ => (),
        }
        Ok(buffer)
    }

    /// Allocates a buffer that holds `parts`, one after the other.
    pub(crate) fn concat(device: &Device, parts: &[&[u8]], holder: Holder) -> Result<Buffer> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let Some(remote) = device.remote() else {
            return Buffer::host(device, bytes, holder, || Some(AlignedBytes::concat(parts)));
        };
        let buffer = Buffer::allocate(device, bytes, holder)?;
        match parts {
            _ if bytes == 0 => (),
            [part] => remote.upload(part, buffer.address())?,
            parts => remote.upload(&AlignedBytes::concat(parts), buffer.address())?,
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
        match (&self.storage, self.device.remote()) {
            (Storage::Host(own), _) => Buffer::host(&self.device, self.bytes, holder, || Some(own.clone())),
            (Storage::Remote(address), remote) => {
                let copy = Buffer::allocate(&self.device, self.bytes, holder)?;
                remote.filter(|_| self.bytes > 0).map_or(Ok(()), |remote| remote.copy(*address, copy.address(), self.bytes))?;
                Ok(copy)
            }
        }
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
        match &self.storage {
            Storage::Host(bytes) => Some(bytes),
            Storage::Remote(_) => None,
        }
    }

    /// Returns the bytes for writing, or `None` if the host cannot address them.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.storage {
            Storage::Host(bytes) => Some(bytes),
            Storage::Remote(_) => None,
        }
    }

    /// Returns the address in the memory of a remote device, or 0 for memory of the host.
    pub(crate) fn address(&self) -> u64 {
        match &self.storage {
            Storage::Host(_) => 0,
            Storage::Remote(address) => *address,
        }
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
        match (&self.storage, self.device.remote()) {
            (Storage::Host(bytes), _) => into.copy_from_slice(bytes),
            (Storage::Remote(address), Some(remote)) if self.bytes > 0 => remote.download(*address, into)?,
            _ => (),
        }
        Ok(())
    }

    /// Sets the bytes to `bytes`, which has the same length.
    pub(crate) fn upload(&mut self, bytes: &[u8]) -> Result<()> {
        match (&mut self.storage, self.device.remote()) {
            (Storage::Host(own), _) => own.copy_from_slice(bytes),
            (Storage::Remote(address), Some(remote)) if self.bytes > 0 => remote.upload(bytes, *address)?,
            _ => (),
        }
        Ok(())
    }

    /// Names a new holder of the bytes, for errors about memory.
    pub(crate) fn hold(&self, holder: impl FnOnce() -> Holder) {
        self.device.account().rename(&self.ticket, holder);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Storage::Remote(address), Some(remote)) = (&self.storage, self.device.remote())
            && *address != 0
        {
            remote.free(*address, self.bytes);
        }
        self.device.account().release(&self.ticket, self.bytes);
    }
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
