//! Memory that a program owns, as memory of a GPU: at a pointer, of the host, and behind a file.
//!
//! The program promises that the memory lasts, so every import is `unsafe`.

#![allow(unsafe_code)]

use gradlet::cuda::External;
use gradlet::device::ExternalMemory;
use gradlet_core::{DType, Device, Eager, Function, Result, Scope, Shape, Tensor, TensorType, Variable};
use gradlet_tests::gpu::Emulator;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of the host, with a count of its owners.
struct Frame {
    words: Vec<u128>,
    owners: Arc<AtomicUsize>,
}

impl Frame {
    fn new(floats: usize) -> (Frame, Arc<AtomicUsize>) {
        let owners = Arc::new(AtomicUsize::new(1));
        (Frame { words: vec![0; floats.div_ceil(4)], owners: owners.clone() }, owners)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.owners.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A camera: it writes frames to memory that a device reads.
struct Camera(*mut f32, usize);

impl Camera {
    fn capture(&self, value: f32) {
        // SAFETY: the memory has this size, and no op reads it now.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }.fill(value);
    }
}

/// Imports memory of the host with `floats` numbers. The owner of the memory belongs to the device then.
fn host(device: &Device, floats: usize) -> Result<(ExternalMemory, Camera, Arc<AtomicUsize>)> {
    let (mut frame, owners) = Frame::new(floats);
    let pointer = frame.words.as_mut_ptr();
    // SAFETY: a vector keeps its address when it moves. Every test waits for the device before it writes.
    let memory = device.import(unsafe { External::host(pointer.cast(), floats * 4, frame) })?;
    Ok((memory, Camera(pointer.cast(), floats), owners))
}

fn floats(count: u32) -> TensorType {
    TensorType::new(DType::F32, Shape::new(&[count]).unwrap())
}

/// One tensor over the memory has each frame that the camera writes, eagerly and in a compiled function.
#[test]
fn a_tensor_has_each_frame() -> Result<()> {
    for words in ["", "integrated=1"] {
        let emulator = Emulator::with(words)?;
        let device = emulator.limited(1 << 16)?;
        let before = device.memory_info();
        let (memory, camera, owners) = host(&device, 1000)?;
        let x = memory.tensor(0, floats(1000))?;
        assert_eq!((device.memory_info(), memory.bytes()), (before, 4000), "the memory is in the account");
        let sum = Function::new(|_: &dyn Scope, x: Tensor| x.mul(&x)?.sum(&[], false));
        let scope = Eager::new(&device);
        for frame in 1..5u8 {
            let value = f32::from(frame);
            camera.capture(value);
            let (eager, compiled) = (x.mean(&[], false)?, sum.call(&scope, x.clone())?);
            device.synchronize()?;
            camera.capture(f32::NAN);
            assert_eq!((eager.item::<f32>()?, compiled.item::<f32>()?), (value, 1000.0 * value * value));
        }
        drop((memory, sum));
        assert_eq!(owners.load(Ordering::Relaxed), 1, "a tensor is left");
        drop(x);
        assert_eq!(owners.load(Ordering::Relaxed), 0);
        assert_eq!(emulator.report(), "");
    }
    Ok(())
}

/// The owner is dropped when the device has finished its work, not before.
#[test]
fn the_last_work_keeps_the_memory() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let (memory, camera, owners) = host(&device, 4096)?;
    camera.capture(2.0);
    let x = memory.tensor(0, floats(4096))?;
    drop(memory);
    let y = x.add(&x)?;
    drop(x);
    assert_eq!(owners.load(Ordering::Relaxed), 0);
    assert_eq!(y.to_vec::<f32>()?, [4.0; 4096]);
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A variable keeps its value when the program changes the memory, and its next step does not change the memory.
#[test]
fn a_variable_has_a_copy() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let scope = Eager::new(&device);
    let (memory, camera, _owners) = host(&device, 16)?;
    camera.capture(1.0);
    let x = memory.tensor(0, floats(16))?;
    let (created, assigned) = (Variable::new(&scope, "created", &x)?, Variable::new(&scope, "assigned", &x.zeros_like()?)?);
    scope.assign(&assigned, &x)?;
    device.synchronize()?;
    camera.capture(5.0);
    for variable in [&created, &assigned] {
        scope.assign_add(variable, &Tensor::full(&device, 1.0f32, &[16])?)?;
        assert_eq!(scope.read(variable)?.to_vec::<f32>()?, [2.0; 16]);
    }
    assert_eq!(x.to_vec::<f32>()?, [5.0; 16]);
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// Two planes of a picture are two tensors over one memory.
#[test]
fn tensors_at_offsets() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let (memory, camera, _owners) = host(&device, 8)?;
    camera.capture(0.0);
    // SAFETY: no op reads the memory now.
    unsafe { *camera.0.add(4) = 7.0 };
    assert_eq!(memory.tensor(16, floats(4))?.to_vec::<f32>()?, [7.0, 0.0, 0.0, 0.0]);
    let error = |offset, count| memory.tensor(offset, floats(count)).unwrap_err().to_string();
    assert_eq!(error(16, 5), "a f32[5] tensor at byte 16 has 20 bytes, but the external memory has 32");
    assert!(error(usize::MAX, 1).contains("has 4 bytes"), "{}", error(usize::MAX, 1));
    assert!(error(4, 1).starts_with("the address of a tensor must be a multiple of 16"), "{}", error(4, 1));
    Ok(())
}

/// Another library's memory of the GPU: here, that of a tensor of another device of the same GPU.
#[test]
fn memory_at_a_device_pointer() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let (memory, camera, owners) = host(&device, 64)?;
    camera.capture(3.0);
    let pointer = camera.0 as u64;
    // SAFETY: the emulator's GPUs address memory of the host by its own address, and `memory` is the owner.
    let again = device.import(unsafe { External::device_pointer(pointer, 256, memory.clone()) })?;
    drop(memory);
    let x = again.tensor(0, floats(64))?;
    drop(again);
    assert_eq!(x.sum(&[], false)?.item::<f32>()?, 192.0);
    drop(x);
    assert_eq!(owners.load(Ordering::Relaxed), 0);
    // SAFETY: nothing reads a null pointer.
    let error = device.import(unsafe { External::device_pointer(0, 16, ()) }).err().unwrap().to_string();
    assert_eq!(error, "GPU:0: external memory at a null pointer");
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A file in memory, as an exported buffer of another driver is one.
#[test]
fn memory_behind_a_file() -> Result<()> {
    let emulator = Emulator::with("integrated=1")?;
    let device = emulator.device()?;
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let copy = |file: &File| OwnedFd::from(file.try_clone().unwrap());
    // SAFETY: the file has this size, and is written only when the device has read it.
    let memory = device.import(unsafe { External::file(copy(&file), 4096, ()) })?;
    let x = memory.tensor(1024, floats(256))?;
    for value in [1.5f32, -2.0] {
        file.write_all_at(&value.to_le_bytes().repeat(256), 1024).unwrap();
        assert_eq!(x.neg()?.to_vec::<f32>()?, [-value; 256]);
    }
    drop((x, memory));
    assert_eq!(emulator.report(), "");
    // SAFETY: the import fails.
    let error = device.import(unsafe { External::file(copy(&file), 1 << 20, ()) }).err().unwrap().to_string();
    assert!(error.starts_with("GPU:0: external memory of 1048576 bytes: cuImportExternalMemory failed with"), "{error}");
    assert_eq!(Tensor::full(&device, 1.0f32, &[4])?.sum(&[], false)?.item::<f32>()?, 4.0);
    Ok(())
}

/// The host's memory can be locked only once. Other devices say that they take none.
#[test]
fn what_cannot_be_imported() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let (memory, camera, _owners) = host(&device, 16)?;
    // SAFETY: the import fails.
    let again = unsafe { External::host(camera.0.cast(), 64, memory.clone()) };
    let error = emulator.device()?.import(again).err().unwrap().to_string();
    assert!(error.contains("cuMemHostRegister failed with CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"), "{error}");
    // SAFETY: the import fails.
    let none = device.import(unsafe { External::host(camera.0.cast(), 0, ()) }).err().unwrap().to_string();
    assert_eq!(none, "GPU:0: external memory has at least one byte");
    let text = device.import("a text").err().unwrap().to_string();
    assert_eq!(text, "GPU:0: external memory of a GPU is of the type External");
    let cpu = gradlet::cpu().import(()).err().unwrap().to_string();
    assert!(cpu.starts_with("CPU:0: a CPU takes no external memory"), "{cpu}");
    Ok(())
}
