//! The functions of NVIDIA's driver that gradlet calls, as the library exports them.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Result of a call: 0, or the number of an error.
pub(crate) type Status = c_int;
/// A handle: of a context, a stream, a module, a function, a graph or an event.
pub(crate) type Handle = *mut c_void;
/// An address in memory of a GPU.
pub(crate) type Address = u64;

/// A kernel node of a graph: the driver's `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct KernelNode {
    pub function: Handle,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub parameters: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// Memory of another part of the system: the driver's `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ExternalMemory {
    pub kind: c_uint,
    pub handle: ExternalHandle,
    pub size: u64,
    pub flags: c_uint,
    pub reserved: [c_uint; 16],
}

/// Handle of external memory: a union of pointers, which begins with the descriptor of a file. The driver closes the file after an import.
#[repr(C, align(8))]
#[derive(Default)]
pub(crate) struct ExternalHandle {
    pub file: c_int,
    pub rest: [u32; 3],
}

const _: () = assert!(std::mem::offset_of!(ExternalMemory, handle) == 8 && std::mem::offset_of!(ExternalMemory, size) == 24);

/// A part of external memory: the driver's `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ExternalBuffer {
    pub offset: u64,
    pub size: u64,
    pub flags: c_uint,
    pub reserved: [c_uint; 16],
}

macro_rules! functions {
    ($($name:ident: $symbol:literal($($argument:ty),*);)*) => {
        /// The functions of the library.
        pub(crate) struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Api {
            /// Finds the functions in `library`. Returns the name of the first one that is missing, if one is.
            pub(crate) fn find(library: &libloading::Library) -> Result<Api, &'static str> {
                Ok(Api {
                    $(
                        // SAFETY: the functions of the driver and of cuBLASLt have had these signatures since CUDA 11.4, and names with a
                        // version keep them.
                        $name: unsafe { *library.get(concat!($symbol, "\0").as_bytes()).map_err(|_| $symbol)? },
                    )*
                })
            }
        }
    };
}

pub(super) use functions;

functions! {
    init: "cuInit"(c_uint);
    error_name: "cuGetErrorName"(Status, *mut *const c_char);
    error_string: "cuGetErrorString"(Status, *mut *const c_char);
    device_count: "cuDeviceGetCount"(*mut c_int);
    device: "cuDeviceGet"(*mut c_int, c_int);
    device_name: "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute: "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_memory: "cuDeviceTotalMem_v2"(*mut usize, c_int);
    retain_context: "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    release_context: "cuDevicePrimaryCtxRelease_v2"(c_int);
    set_current: "cuCtxSetCurrent"(Handle);
    memory_info: "cuMemGetInfo_v2"(*mut usize, *mut usize);
    allocate: "cuMemAlloc_v2"(*mut Address, usize);
    free: "cuMemFree_v2"(Address);
    allocate_host: "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    free_host: "cuMemFreeHost"(*mut c_void);
    host_address: "cuMemHostGetDevicePointer_v2"(*mut Address, *mut c_void, c_uint);
    register_host: "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    unregister_host: "cuMemHostUnregister"(*mut c_void);
    import_memory: "cuImportExternalMemory"(*mut Handle, *const ExternalMemory);
    map_memory: "cuExternalMemoryGetMappedBuffer"(*mut Address, Handle, *const ExternalBuffer);
    destroy_memory: "cuDestroyExternalMemory"(Handle);
    upload: "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Handle);
    download: "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, Handle);
    copy: "cuMemcpyDtoDAsync_v2"(Address, Address, usize, Handle);
    fill_8: "cuMemsetD8Async"(Address, u8, usize, Handle);
    fill_16: "cuMemsetD16Async"(Address, u16, usize, Handle);
    fill_32: "cuMemsetD32Async"(Address, c_uint, usize, Handle);
    load_module: "cuModuleLoadDataEx"(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    unload_module: "cuModuleUnload"(Handle);
    function: "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    set_attribute: "cuFuncSetAttribute"(Handle, c_int, c_int);
    launch: "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    create_stream: "cuStreamCreate"(*mut Handle, c_uint);
    destroy_stream: "cuStreamDestroy_v2"(Handle);
    synchronize: "cuStreamSynchronize"(Handle);
    wait_event: "cuStreamWaitEvent"(Handle, Handle, c_uint);
    create_event: "cuEventCreate"(*mut Handle, c_uint);
    record_event: "cuEventRecord"(Handle, Handle);
    await_event: "cuEventSynchronize"(Handle);
    query_event: "cuEventQuery"(Handle);
    elapsed: "cuEventElapsedTime"(*mut f32, Handle, Handle);
    destroy_event: "cuEventDestroy_v2"(Handle);
    create_graph: "cuGraphCreate"(*mut Handle, c_uint);
    add_kernel: "cuGraphAddKernelNode"(*mut Handle, Handle, *const Handle, usize, *const KernelNode);
    add_event: "cuGraphAddEventRecordNode"(*mut Handle, Handle, *const Handle, usize, Handle);
    instantiate: "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
    set_kernel: "cuGraphExecKernelNodeSetParams"(Handle, Handle, *const KernelNode);
    launch_graph: "cuGraphLaunch"(Handle, Handle);
    destroy_executable: "cuGraphExecDestroy"(Handle);
    destroy_graph: "cuGraphDestroy"(Handle);
}
