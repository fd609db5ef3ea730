//! Memory that a program owns, as the driver makes it addressable for a GPU.

use crate::driver::Driver;
use crate::driver::api::{Address, ExternalBuffer, ExternalMemory, Handle};
use crate::gpu::region::MAPPED;
use gradlet_core::Result;
use std::ffi::c_void;
#[cfg(unix)]
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

/// Kinds of external memory in a file, in the order in which they are tried: a file of any NVIDIA driver, and a dma-buf.
#[cfg(unix)]
const FILES: [u32; 2] = [1, 9];

/// Memory that a program owns, for [`Device::import`](gradlet_core::Device::import) on a GPU: a camera's buffer, for example. The device
/// then addresses the memory itself, and nothing is copied.
///
/// `owner` is the value that keeps the memory: a `Box`, the camera's own type, or `()` for memory that lasts as long as the program. It is
/// dropped after the last tensor over the memory, when the GPU has finished its work.
///
/// ```no_run
/// use gradlet_core::{DType, Device, Result, Shape, Tensor, TensorType};
/// use gradlet_cuda::External;
///
/// /// A camera that writes each frame to the same buffer.
/// struct Camera {
///     frame: Box<[u8; 224 * 224 * 3]>,
/// }
/// # impl Camera { fn capture(&mut self) {} }
///
/// fn run(device: &Device, mut camera: Camera, infer: impl Fn(&Tensor) -> Result<i32>) -> Result<()> {
///     let bytes = camera.frame.len();
///     // SAFETY: `camera` lives longer than `device`'s work, and writes only after `synchronize`.
///     let memory = device.import(unsafe { External::host(camera.frame.as_mut_ptr().cast(), bytes, ()) })?;
///     let frame = memory.tensor(0, TensorType::new(DType::U8, Shape::new(&[1, 224, 224, 3])?))?; // once
///     loop {
///         camera.capture(); // into the memory that the GPU reads
///         println!("class {}", infer(&frame)?);
///         device.synchronize()?; // the GPU has read the frame
///     }
/// }
/// ```
pub struct External {
    place: Place,
    bytes: usize,
    /// The value that keeps the memory.
    owner: Box<dyn Send + Sync>,
}

/// Place of external memory.
enum Place {
    Device(Address),
    Host(*mut c_void),
    #[cfg(unix)]
    File(OwnedFd),
}

// SAFETY: the driver's addresses and memory of the host are not tied to a thread. The owner is `Send`.
unsafe impl Send for External {}
// SAFETY: as above, and a shared value gives no access to the memory.
unsafe impl Sync for External {}

impl External {
    /// Describes memory at a device pointer: memory of CUDA's own allocators, or a frame that another library has mapped for CUDA, such as
    /// an `EGLImage` of a Jetson's camera. The pointer belongs to the primary context of the device's GPU.
    ///
    /// # Safety
    ///
    /// - The `bytes` bytes at `address` are memory of the GPU until `owner` is dropped.
    /// - Nobody writes them while an op of the device reads them: from the call of the op until
    ///   [`Device::synchronize`](gradlet_core::Device::synchronize).
    pub unsafe fn device_pointer(address: u64, bytes: usize, owner: impl Send + Sync + 'static) -> External {
        External { place: Place::Device(address), bytes, owner: Box::new(owner) }
    }

    /// Describes memory of the host. The driver locks its pages and maps them for the GPU (`cuMemHostRegister`). On an integrated GPU, that
    /// is the memory itself. Other GPUs read it over PCIe. Only one device of a GPU can import it.
    ///
    /// # Safety
    ///
    /// - The `bytes` bytes at `pointer` are valid for reads and writes until `owner` is dropped, wherever `owner` is moved.
    /// - Nobody writes them while an op of the device reads them: from the call of the op until
    ///   [`Device::synchronize`](gradlet_core::Device::synchronize).
    pub unsafe fn host(pointer: *mut c_void, bytes: usize, owner: impl Send + Sync + 'static) -> External {
        External { place: Place::Host(pointer), bytes, owner: Box::new(owner) }
    }

    /// Describes the memory behind a file: a dma-buf, or memory that Vulkan or CUDA has exported (`cuImportExternalMemory`). `bytes` is the
    /// size of the whole allocation. The driver decides which files it imports: see the page on Jetsons.
    ///
    /// # Safety
    ///
    /// - The file has `bytes` bytes until `owner` is dropped.
    /// - Nobody writes them while an op of the device reads them: from the call of the op until
    ///   [`Device::synchronize`](gradlet_core::Device::synchronize).
    #[cfg(unix)]
    pub unsafe fn file(file: OwnedFd, bytes: usize, owner: impl Send + Sync + 'static) -> External {
        External { place: Place::File(file), bytes, owner: Box::new(owner) }
    }

    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the memory addressable in the current context.
    pub(crate) fn map(self, driver: &Driver) -> Result<(Mapping, Box<dyn Send + Sync>)> {
        let mapping = match self.place {
            Place::Device(address) => Mapping { address, undo: Undo::Nothing },
            Place::Host(pointer) => Mapping::of_host(driver, pointer, self.bytes)?,
            #[cfg(unix)]
            Place::File(file) => Mapping::of_file(driver, file, self.bytes)?,
        };
        Ok((mapping, self.owner))
    }
}

/// Memory that a program owns, as a GPU addresses it.
pub(crate) struct Mapping {
    address: Address,
    undo: Undo,
}

/// The end of a mapping.
enum Undo {
    Nothing,
    Unregister(*mut c_void),
    #[cfg(unix)]
    Destroy(Handle),
}

// SAFETY: the driver's handles and addresses are not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    fn of_host(driver: &Driver, pointer: *mut c_void, bytes: usize) -> Result<Mapping> {
        // SAFETY: the creator of the `External` promises that the memory is valid.
        driver.check("cuMemHostRegister", unsafe { (driver.api().register_host)(pointer, bytes, MAPPED) })?;
        let mut mapping = Mapping { address: 0, undo: Undo::Unregister(pointer) };
        // SAFETY: the first argument is a place for the address, and the memory is registered.
        let status = unsafe { (driver.api().host_address)(&mut mapping.address, pointer, 0) };
        let found = driver.check("cuMemHostGetDevicePointer", status);
        found.inspect_err(|_| mapping.end(driver))?;
        Ok(mapping)
    }

    #[cfg(unix)]
    fn of_file(driver: &Driver, file: OwnedFd, bytes: usize) -> Result<Mapping> {
        let mut memory = std::ptr::null_mut();
        let mut import = |kind| {
            let mut description = ExternalMemory { kind, size: bytes as u64, ..ExternalMemory::default() };
            description.handle.file = file.as_raw_fd();
            // SAFETY: the first argument is a place for the handle, and the description is complete.
            driver.check("cuImportExternalMemory", unsafe { (driver.api().import_memory)(&mut memory, &description) })
        };
        let [first, second] = FILES;
        import(first).or_else(|error| import(second).map_err(|_| error))?;
        // The driver owns the file now.
        let _ = file.into_raw_fd();
        let mut mapping = Mapping { address: 0, undo: Undo::Destroy(memory) };
        let whole = ExternalBuffer { size: bytes as u64, ..ExternalBuffer::default() };
        // SAFETY: the first argument is a place for the address, and the memory is imported.
        let status = unsafe { (driver.api().map_memory)(&mut mapping.address, memory, &whole) };
        let mapped = driver.check("cuExternalMemoryGetMappedBuffer", status);
        mapped.inspect_err(|_| mapping.end(driver))?;
        Ok(mapping)
    }

    /// Ends the mapping, in the current context. No work of the GPU uses it any more. An error means that the GPU is lost.
    pub(crate) fn end(&self, driver: &Driver) {
        // SAFETY: the mapping was made and has not ended.
        unsafe {
            match self.undo {
                Undo::Nothing => {}
                Undo::Unregister(pointer) => {
                    (driver.api().unregister_host)(pointer);
                }
                #[cfg(unix)]
                Undo::Destroy(memory) => {
                    if self.address != 0 {
                        (driver.api().free)(self.address);
                    }
                    (driver.api().destroy_memory)(memory);
                }
            }
        }
    }
}
