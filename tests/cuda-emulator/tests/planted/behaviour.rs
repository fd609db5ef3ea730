//! Behaviour of the driver for programs without mistakes.

use crate::order::{add_copy, launch};
use crate::session::{BYTES, COUNT, GLOBAL, Session, c_string, check, control, counts, get, prepare};
use gradlet_cuda_emulator::driver::*;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

#[test]
fn devices_have_the_configured_properties() {
    let _session = Session::new("devices=2 memory=1048576 capability=110 driver=13000 integrated=1 name=Thor_T5000").unwrap();
    // SAFETY: the first arguments are places for the results.
    unsafe {
        let attribute = |number| get(|value| cuDeviceGetAttribute(value, number, 1));
        assert_eq!((attribute(75), attribute(76), attribute(18)), (Ok(11), Ok(0), Ok(1)));
        assert_eq!(attribute(1000), Err(Status::INVALID_VALUE));
        assert_eq!(get(|count| cuDeviceGetCount(count)), Ok(2));
        assert_eq!(get(|device| cuDeviceGet(device, 2)), Err(Status::INVALID_DEVICE));
        assert_eq!(get(|bytes| cuDeviceTotalMem_v2(bytes, 1)), Ok(1 << 20));
        assert_eq!(get(|version| cuDriverGetVersion(version)), Ok(13_000));
        let mut name = [1; 8];
        check(cuDeviceGetName(name.as_mut_ptr(), 8, 0)).unwrap();
        assert_eq!(CStr::from_ptr(name.as_ptr()).to_str(), Ok("Thor T5"));
        let identity = |device| get(|identity| cuDeviceGetUuid(identity, device));
        assert_ne!(identity(0), identity(1));
    }
}

#[test]
fn configuration_ends_with_initialisation() {
    let _session = Session::new("").unwrap();
    // SAFETY: the text ends with a zero.
    assert_eq!(unsafe { emulator_configure(c_string("devices=2").as_ptr()) }, Status::NOT_SUPPORTED);
    assert_eq!(control("explode"), Err(Status::INVALID_VALUE));
}

#[test]
fn unknown_properties_are_refused() {
    let _turn = prepare("");
    // SAFETY: the text ends with a zero.
    assert_eq!(unsafe { emulator_configure(c_string("colour=green").as_ptr()) }, Status::INVALID_VALUE);
}

#[test]
fn statuses_have_the_names_of_the_driver() {
    // SAFETY: the second argument is a place for the text, which is static.
    let name = |status| unsafe {
        let mut text = null();
        check(cuGetErrorName(status, &mut text)).map(|()| CStr::from_ptr(text).to_str().unwrap())
    };
    assert_eq!(name(Status::SUCCESS), Ok("CUDA_SUCCESS"));
    assert_eq!(name(Status::ILLEGAL_ADDRESS), Ok("CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_eq!(name(Status(12_345)), Err(Status::INVALID_VALUE));
}

#[test]
fn memory_is_accounted_and_fresh_memory_has_the_pattern() {
    let session = Session::new("memory=65536").unwrap();
    // SAFETY: the arguments are places for the results, and an address that the emulator checks.
    unsafe {
        let (mut free, mut total) = (0, 0);
        let one = session.allocate(1).unwrap();
        check(cuMemGetInfo_v2(&mut free, &mut total)).unwrap();
        assert_eq!((free, total), (65_536 - 512, 65_536));
        check(cuMemFree_v2(one)).unwrap();
        check(cuMemGetInfo_v2(&mut free, &mut total)).unwrap();
        assert_eq!(free, total);
    }
    let fresh = session.allocate(BYTES).unwrap();
    assert_eq!(fresh % 512, 0);
    assert!(session.read(fresh).unwrap().iter().all(|number| number.to_bits() == u32::MAX));
}

#[test]
fn fills_have_three_widths() {
    let session = Session::new("").unwrap();
    let to = session.allocate(BYTES).unwrap();
    // SAFETY: the emulator checks the ranges.
    unsafe {
        check(cuMemsetD32Async(to, 0x3F80_0000, COUNT, session.stream)).unwrap();
        check(cuMemsetD16Async(to + 8, 0x4000, 1, session.stream)).unwrap();
        check(cuMemsetD8Async(to + 11, 0xC0, 1, session.stream)).unwrap();
    }
    let bits: Vec<u32> = session.read(to).unwrap()[1..4].iter().map(|number| number.to_bits()).collect();
    assert_eq!(bits, [0x3F80_0000, 0xC080_4000, 0x3F80_0000]);
}

#[test]
fn pageable_memory_is_copied_at_the_call() {
    let session = Session::new("").unwrap();
    let (mut source, to) = (vec![1.0; COUNT], session.allocate(BYTES).unwrap());
    session.upload(to, &source).unwrap();
    source.fill(2.0);
    assert_eq!(session.read(to).unwrap(), [1.0; COUNT]);
}

#[test]
fn queries_make_progress() {
    let session = Session::new("").unwrap();
    let (from, to) = (session.numbers().unwrap(), session.pinned().unwrap());
    session.download(to, from).unwrap();
    // SAFETY: the emulator checks the handle.
    let query = || check(unsafe { cuStreamQuery(session.stream) });
    assert_eq!((query(), query()), (Err(Status::NOT_READY), Ok(())));
    assert_eq!(to[9], 9.0);
}

#[test]
fn the_default_stream_orders_others() {
    let session = Session::new("").unwrap();
    let (from, middle, out) = (session.numbers().unwrap(), session.allocate(BYTES).unwrap(), session.allocate(BYTES).unwrap());
    session.synchronise().unwrap();
    // SAFETY: the arguments are places for the handles, and handles and ranges that the emulator checks.
    unsafe {
        let (one, other) = (get(|stream| cuStreamCreate(stream, 0)).unwrap(), get(|stream| cuStreamCreate(stream, 0)).unwrap());
        check(cuMemcpyDtoDAsync_v2(middle, from, BYTES, one)).unwrap();
        check(cuMemcpyDtoDAsync_v2(out, middle, BYTES, 0)).unwrap();
        check(cuMemcpyDtoDAsync_v2(middle, out, BYTES, other)).unwrap();
        check(cuStreamSynchronize(other)).unwrap();
    }
    assert_eq!(session.read(middle).unwrap()[9], 9.0);
}

#[test]
fn events_tell_the_time() {
    let session = Session::new("").unwrap();
    // SAFETY: the arguments are places for the results, and handles that the emulator checks.
    unsafe {
        let [start, end] = [0, 0].map(|flags| get(|event| cuEventCreate(event, flags)).unwrap());
        let elapsed = || get(|time| cuEventElapsedTime(time, start, end));
        assert_eq!(elapsed(), Err(Status::INVALID_HANDLE));
        check(cuEventRecord(start, session.stream)).unwrap();
        session.numbers().unwrap();
        check(cuEventRecord(end, session.stream)).unwrap();
        assert_eq!(elapsed(), Err(Status::NOT_READY));
        assert_eq!(check(cuEventQuery(end)), Err(Status::NOT_READY));
        check(cuEventSynchronize(end)).unwrap();
        assert!(elapsed().unwrap() > 0.0);
    }
}

#[test]
fn marks_take_effect_in_the_order_of_the_stream() {
    let session = Session::new("").unwrap();
    let (from, out, function) = (session.numbers().unwrap(), session.allocate(BYTES).unwrap(), session.copy_kernel().unwrap());
    // The kernel has not run when the program frees the block and gives it a new use.
    session.launch(function, out, from).unwrap();
    // SAFETY: the emulator checks the ranges.
    unsafe {
        emulator_ban(from, BYTES as u64);
        emulator_poison(from, BYTES as u64);
    }
    session.upload(from, &[5.0; COUNT]).unwrap();
    assert_eq!(session.read(out).unwrap()[9], 9.0);
    assert_eq!(session.read(from).unwrap()[9], 5.0);
}

#[test]
fn graphs_are_counted_and_their_nodes_can_change() {
    let session = Session::new("").unwrap();
    let (from, out, other) = (session.numbers().unwrap(), session.allocate(BYTES).unwrap(), session.allocate(BYTES).unwrap());
    let function = session.copy_kernel().unwrap();
    control("reset-counts").unwrap();
    // SAFETY: the arguments are places for the handles, and handles and parameters that fit the kernel.
    unsafe {
        let graph = get(|graph| cuGraphCreate(graph, 0)).unwrap();
        let node = add_copy(function, graph, &[], out, from).unwrap();
        let fill = FillNode { destination: other, pitch: 0, value: 0, element_size: 4, width: COUNT, height: 1 };
        get(|node| cuGraphAddMemsetNode(node, graph, null(), 0, &fill, session.context)).unwrap();
        let executable = launch(&session, graph).unwrap();
        let (mut to, mut source, mut count) = (other, out, COUNT as u32);
        let mut parameters: [*mut c_void; 3] = [(&raw mut to).cast(), (&raw mut source).cast(), (&raw mut count).cast()];
        let kernel = KernelNode {
            function,
            grid: [1, 1, 1],
            block: [64, 1, 1],
            shared_bytes: 0,
            parameters: parameters.as_mut_ptr(),
            extra: null_mut(),
        };
        check(cuGraphExecKernelNodeSetParams(executable, node, &kernel)).unwrap();
        assert_eq!(session.read(out).unwrap()[9], 9.0);
        check(cuGraphLaunch(executable, session.stream)).unwrap();
        let changed = session.read(other).unwrap();
        assert_eq!((changed[63], changed[64]), (63.0, 0.0));
        let wrong = CopyNode::default();
        assert_eq!(cuGraphExecMemcpyNodeSetParams(executable, node, &wrong, session.context), Status::INVALID_VALUE);
        check(cuGraphDestroy(graph)).unwrap();
        assert_eq!(cuGraphExecKernelNodeSetParams(executable, node, &kernel), Status::INVALID_HANDLE);
        check(cuGraphExecDestroy(executable)).unwrap();
    }
    let counts = counts();
    assert_eq!((counts.kernel_launches, counts.graph_launches, counts.graph_kernel_nodes, counts.graph_copies), (0, 2, 2, 2));
    assert_eq!((counts.downloads, counts.download_bytes), (2, 2 * BYTES as u64));
    assert!(counts.instructions > 64 * 4);
}

#[test]
fn the_compiler_writes_its_log() {
    let session = Session::new("driver=11040").unwrap();
    let (text, mut log) = (c_string(&GLOBAL.replace(".version 7.4", ".version 8.8")), [1u8; 24]);
    let mut options = [5, 6];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
    // SAFETY: the text ends with a zero, and there are two options with their values.
    let load = |options: &mut [i32], values: &mut [*mut c_void]| unsafe {
        get(|module| cuModuleLoadDataEx(module, text.as_ptr(), 2, options.as_ptr(), values.as_mut_ptr()))
    };
    assert_eq!(load(&mut options, &mut values), Err(Status::UNSUPPORTED_PTX_VERSION));
    assert_eq!(CStr::from_bytes_until_nul(&log).unwrap().to_str(), Ok("UnsupportedPtxVersion: "));
    assert_eq!(values[1] as usize, 24);
    assert_eq!(session.load("ELF"), Err(Status::INVALID_IMAGE));
}

#[test]
fn functions_have_attributes() {
    let session = Session::new("").unwrap();
    let module = session.load(include_str!("shared.ptx")).unwrap();
    let function = session.function(module, "uninitialised_shared").unwrap();
    assert_eq!(session.function(module, "uninitialised_shared"), Ok(function));
    // SAFETY: the first argument is a place for the value.
    let attribute = |number| get(|value| unsafe { cuFuncGetAttribute(value, number, function) });
    assert_eq!(attribute(1), Ok(65 * 4));
    assert!(attribute(4).unwrap() > 0);
}
