//! A driver that is installed: the library is found by its name, as on a machine with a GPU.

use gradlet::config;
use gradlet_core::{Result, Scope, Tensor};
use gradlet_tests::gpu;
use std::process::Command;

#[test]
fn the_context_of_a_process_finds_the_installed_driver() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(gpu::built().unwrap(), folder.path().join("libcuda.so.1")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cuda::installed::in_a_process", "--ignored"]).env("LD_LIBRARY_PATH", folder.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs in the process that the test above starts.
#[test]
#[ignore = "the test above starts it"]
fn in_a_process() -> Result<()> {
    assert_eq!(config::list_physical_devices(Some("GPU")).len(), 1);
    let scope = config::scope()?;
    let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
    let y = x.mul(&x)?;
    assert_eq!((y.device()?.name(), y.to_vec::<f32>()?), ("GPU:0", vec![1.0, 4.0]));
    Ok(())
}
