//! Drivers and GPUs that gradlet cannot use, kernels that a driver refuses, and a GPU that is lost in the middle of training.

use crate::cnn::Cnn;
use gradlet::checkpoint::Checkpoint;
use gradlet_core::{Result, Scope, Tensor, ops};
use gradlet_tests::gpu;
use gradlet_tests::gpu::Emulator;
use std::path::Path;

#[test]
fn a_driver_that_is_missing_is_named() {
    let error = gpu::open(Path::new("/nonexistent/libcuda.so.1")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/libcuda.so.1 is no NVIDIA driver"), "{error}");
}

#[test]
fn a_driver_that_is_too_old_is_told_with_its_version() {
    let error = Emulator::refused("driver=10020").to_string();
    assert_eq!(error, "the NVIDIA driver is of CUDA 10.2: gradlet needs CUDA 11.4 or later (driver 470)");
}

#[test]
fn the_oldest_driver_is_enough() -> Result<()> {
    let emulator = Emulator::with("driver=11040 capability=72")?;
    assert_eq!(emulator.driver().to_string(), "NVIDIA driver of CUDA 11.4");
    let cnn = Cnn::new(&emulator.device()?, 1)?;
    assert!(cnn.compiled().call(&cnn.scope, cnn.batch(0)?)?.item::<f32>()?.is_finite());
    Ok(())
}

#[test]
fn a_machine_without_a_gpu_is_told() {
    let error = Emulator::refused("no_device=1").to_string();
    assert!(error.contains("CUDA_ERROR_NO_DEVICE"), "{error}");
}

#[test]
fn a_gpu_that_is_too_old_is_told() -> Result<()> {
    let emulator = Emulator::with("capability=61 name=Tegra")?;
    let error = emulator.device().unwrap_err().to_string();
    assert_eq!(error, "GPU:0: Tegra has compute capability 6.1: gradlet needs 7.0 or later");
    Ok(())
}

/// As in TensorFlow, such a GPU does not keep a program from using the CPU.
#[test]
fn a_context_leaves_out_a_gpu_that_is_too_old() -> Result<()> {
    let context = Emulator::with("capability=61")?.context()?;
    assert_eq!(context.list_physical_devices(Some("GPU")), []);
    assert_eq!(context.scope()?.device().name(), "CPU:0");
    Ok(())
}

#[test]
fn a_refused_kernel_is_told_with_the_compilers_log() -> Result<()> {
    let emulator = Emulator::new()?;
    emulator.control("refuse-module matmul_");
    let x = Tensor::full(&emulator.device()?, 1.0f32, &[2, 2])?;
    let error = x.matmul(&x).unwrap_err().to_string();
    assert!(error.contains("the driver refuses the kernel matmul_small_f32: ") && error.contains("CUDA_ERROR"), "{error}");
    assert_eq!(x.add(&x)?.to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}

/// After the GPU is lost, every call is an error, and the program goes on with the CPU from its last checkpoint.
#[test]
fn a_lost_gpu_is_an_error_and_the_cpu_goes_on() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let emulator = Emulator::new()?;
    let cnn = Cnn::new(&emulator.device()?, 1)?;
    let train = cnn.compiled();
    for index in 0..2 {
        train.call(&cnn.scope, cnn.batch(index)?)?;
    }
    let saved = Checkpoint::new().with("model", &cnn.model).write(folder.path().join("last")).unwrap();
    let state = cnn.state();
    emulator.control("fail-launch-after 0");
    let error = train.call(&cnn.scope, cnn.batch(2)?).and_then(|loss| loss.item::<f32>()).unwrap_err().to_string();
    assert!(
        error.contains("GPU:0 failed in the ") && error.contains(", or before") && error.contains("CUDA_ERROR_LAUNCH_FAILED"),
        "{error}"
    );
    let again = cnn.batch(2).and_then(|batch| train.call(&cnn.scope, batch)?.item::<f32>());
    assert!(again.is_err(), "a lost GPU trains");
    drop((train, cnn));

    let cnn = Cnn::new(&ops::portable_cpu(), 2)?;
    Checkpoint::new().with("model", &cnn.model).read(&saved).unwrap();
    let weights = 4;
    assert!(cnn.state()[..weights] == state[..weights], "the weights of the checkpoint");
    assert!(cnn.compiled().call(&cnn.scope, cnn.batch(2)?)?.item::<f32>()?.is_finite());
    Ok(())
}
