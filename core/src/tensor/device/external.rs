//! External memory: memory that a program owns, for tensors of a device.

use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, ThreadSafe};
use crate::tensor::device::{Buffer, Device};
use crate::tensor::{Tensor, size};
use alloc::boxed::Box;
use alloc::format;
use core::any::Any;

/// The address of every tensor in remote memory is a multiple of this number of bytes.
const ALIGN: u64 = 16;

/// Memory that a program owns and a device addresses, such as the buffer of a camera. [`Device::import`] returns it, and a tensor over it
/// reads the bytes where they are, without a copy. Clones are handles of the same memory.
///
/// - A program creates a tensor once. The tensor always has the bytes that are in the memory when an op reads them. The program may change
///   them after [`Device::synchronize`], before it calls the next op.
/// - The memory is not in the account of the device: [`Device::memory_info`] and limits leave it out.
/// - A variable that is set to such a tensor receives a copy. A function takes such a tensor as an argument. If it captures one, the
///   compiler may keep the elements that it had then.
/// - The owner of the memory is dropped when no handle and no tensor is left and the device has finished its work.
///
/// `gradlet::cuda::External` describes such memory for GPUs, and has an example.
#[derive(Clone)]
pub struct ExternalMemory {
    device: Device,
    memory: Shared<Imported>,
}

/// Memory that a program owns, as a device addresses it.
pub struct Imported {
    /// The address of the first byte, which is not 0.
    pub address: u64,
    /// Number of bytes.
    pub bytes: usize,
    /// The owner of the memory. When it is dropped, no tensor uses the memory any more. It must then wait for the device's work.
    pub owner: Box<dyn ThreadSafe>,
}

impl ExternalMemory {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Creates a tensor over the bytes from `offset` on.
    ///
    /// Fails if the memory ends before the tensor, or if the address of the tensor is not a multiple of 16.
    pub fn tensor(&self, offset: usize, tensor_type: TensorType) -> Result<Tensor> {
        let (bytes, Imported { address, bytes: all, .. }) = (size(tensor_type)?, &*self.memory);
        if offset.checked_add(bytes).is_none_or(|end| end > *all) {
            let text = format!("a {tensor_type} tensor at byte {offset} has {bytes} bytes, but the external memory has {all}");
            return Err(Error::message(text));
        }
        let address = address + offset as u64;
        if !address.is_multiple_of(ALIGN) {
            return Err(Error::message(format!("the address of a tensor must be a multiple of {ALIGN}, not {address:#x}")));
        }
        Ok(Tensor::computed(tensor_type, Buffer::external(&self.device, bytes, address, self.memory.clone())))
    }
}

impl Device {
    /// Makes memory that the program owns addressable by this device. `source` describes the memory, in a type that the device knows: on a
    /// GPU, `gradlet::cuda::External`.
    ///
    /// Fails if the device does not know the type, or if it cannot address the memory. A CPU takes no memory of a program:
    /// [`Tensor::written`] fills the tensor's own bytes in place.
    pub fn import(&self, source: impl Any + Send + Sync) -> Result<ExternalMemory> {
        let import = || match self.remote() {
            Some(remote) => remote.import(Box::new(source)),
            None => Err(Error::message("a CPU takes no external memory: Tensor::written fills a tensor in place")),
        };
        let memory = import().map_err(|error| error.context(self.name()))?;
        Ok(ExternalMemory { device: self.clone(), memory: Shared::new(memory) })
    }

    /// Waits until the device has finished all its work: `tf.test.experimental.sync_devices`, for one device. Afterwards no op reads
    /// [external memory](ExternalMemory). A CPU has finished whenever a call returns.
    ///
    /// Fails if the device fails in this work.
    ///
    /// ```
    /// use gradlet_core::{Tensor, ops};
    /// let device = ops::portable_cpu();
    /// let y = Tensor::scalar(&device, 2.0f32).mul(&Tensor::scalar(&device, 3.0f32))?;
    /// device.synchronize()?;
    /// assert_eq!(y.item::<f32>()?, 6.0);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    #[doc(alias = "sync_devices")]
    pub fn synchronize(&self) -> Result<()> {
        self.remote().map_or(Ok(()), |remote| remote.synchronize().map_err(|error| error.context(self.name())))
    }
}
