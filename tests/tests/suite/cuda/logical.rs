//! Several devices on one GPU, several GPUs, placement between them, and replicas.

use gradlet::config::{Context, Environment, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet::distribute::{MirroredStrategy, ReduceOp};
use gradlet_core::{Result, Scope, Tensor, Variable};
use gradlet_tests::golden::checks::Checks;
use gradlet_tests::golden::{device_cases, fixtures};
use gradlet_tests::gpu::Emulator;

#[test]
fn a_context_lists_the_gpus() -> Result<()> {
    let emulator = Emulator::with("devices=2 capability=87 name=Orin")?;
    let context = emulator.context()?;
    let gpus = context.list_physical_devices(Some("GPU"));
    assert_eq!(gpus, [PhysicalDevice::new("GPU", 0), PhysicalDevice::new("GPU", 1)]);
    let details = context.get_device_details(&gpus[1])?;
    assert_eq!(details, [("device_name".into(), "Orin".into()), ("compute_capability".into(), "(8, 7)".to_string())]);
    let scope = context.scope()?;
    let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
    assert_eq!(x.device()?.name(), "GPU:0");
    let there = scope.with_device("GPU:1")?;
    let y = x.add(&x)?;
    drop(there);
    assert_eq!((y.device()?.name(), y.to_vec::<f32>()?), ("GPU:1", vec![2.0, 4.0]));
    Ok(())
}

/// The programs of the devices' golden vectors, with a GPU in the place of the CPU.
#[test]
fn every_scenario_has_tensorflows_results() -> Result<()> {
    let emulator = Emulator::new()?;
    let cpu = emulator.as_cpu()?;
    let mut checks = Checks::default();
    let context = || Context::of(cpu.clone(), [], &Environment::default());
    device_cases::scenarios_in(&fixtures("devices"), context, &mut checks).unwrap();
    assert_eq!((checks.counts.passed, checks.counts.failed), (344, 0));
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// Two devices share a GPU: each has its limit, and neither sees the memory of the other.
#[test]
fn two_devices_share_a_gpu() -> Result<()> {
    let emulator = Emulator::new()?;
    let context = emulator.context()?;
    let limits = [1 << 20, 2 << 20].map(|bytes| LogicalDeviceConfiguration::new().memory_limit_bytes(bytes));
    context.set_logical_device_configuration(&PhysicalDevice::new("GPU", 0), &limits)?;
    let [first, second] = ["GPU:0", "GPU:1"].map(|name| context.device(name).unwrap());
    assert_eq!([&first, &second].map(|device| device.memory_info().limit), [Some(1 << 20), Some(2 << 20)]);
    assert!(Tensor::full(&first, 1.0f32, &[400_000]).is_err());
    let large = Tensor::full(&second, 1.0f32, &[400_000])?;
    let error = large.to(&first).unwrap_err().to_string();
    assert!(error.contains("GPU:0 has no memory"), "{error}");
    let small = Tensor::full(&second, 2.0f32, &[1000])?.to(&first)?;
    assert_eq!(small.sum(&[], false)?.item::<f32>()?, 2000.0);
    Ok(())
}

#[test]
fn replicas_on_two_devices_have_the_same_bits() -> Result<()> {
    let emulator = Emulator::new()?;
    let context = emulator.context()?;
    let limits = [LogicalDeviceConfiguration::new().memory_limit_bytes(4 << 20); 2];
    context.set_logical_device_configuration(&PhysicalDevice::new("GPU", 0), &limits)?;
    let strategy = MirroredStrategy::with_seed(&context, &[], 7)?;
    let scope = strategy.scope();
    let weight = Variable::new(&scope, "weight", &Tensor::full(&scope.device(), 0.5f32, &[3])?)?;
    for step in 0..3 {
        let totals = strategy.run(|replica| {
            let part = Tensor::full(&replica.device(), 0.1 * (replica.replica_id() as f32 + 1.0) + step as f32, &[3])?;
            let sum = replica.all_reduce(ReduceOp::Sum, &part)?;
            replica.assign_add(&weight, &sum)?;
            Ok(sum)
        })?;
        let bits: Vec<Vec<f32>> = totals.values().iter().map(|total| total.to_vec::<f32>()).collect::<Result<_>>()?;
        assert_eq!(bits[0], bits[1], "step {step}");
    }
    let copies: Vec<Vec<f32>> = weight.copies().iter().map(|copy| scope.read(copy)?.to_vec::<f32>()).collect::<Result<_>>()?;
    assert_eq!(copies[0], copies[1]);
    assert!((copies[0][0] - 7.4).abs() < 1e-5, "{copies:?}");
    Ok(())
}
