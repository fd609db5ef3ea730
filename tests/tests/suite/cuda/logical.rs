//! Several devices on one GPU, several GPUs, placement between them, and replicas.

use crate::distribute::equality::{Replicated, batch, steps_are_ordered};
use gradlet::config::{Context, Environment, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet::distribute::{InProcess, MirroredStrategy, NcclAllReduce, ReduceOp, Replica, all_reduce};
use gradlet::optimizers::{Adam, Sgd};
use gradlet::tensor::VariableAggregation;
use gradlet_core::{DType, Error, Function, Result, Scope, Tensor, Variable};
use gradlet_tests::golden::checks::Checks;
use gradlet_tests::golden::{device_cases, fixtures};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;
use std::sync::{Arc, Mutex};

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

/// Starts an emulator whose GPU is divided into `devices` logical devices.
fn divided(devices: usize) -> Result<(Emulator, Context)> {
    let emulator = Emulator::new()?;
    let context = emulator.context()?;
    let limits = vec![LogicalDeviceConfiguration::new().memory_limit_bytes(4 << 20); devices];
    context.set_logical_device_configuration(&PhysicalDevice::new("GPU", 0), &limits)?;
    Ok((emulator, context))
}

/// The lines of a log.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Checks the lines.
    pub fn are(&self, wanted: &[&str]) {
        assert_eq!(*self.0.lock().unwrap(), wanted);
    }
}

/// Returns a log, and the lines that are sent to it.
pub fn collect() -> (impl Fn(&str) + Send + Sync + 'static, Lines) {
    let lines = Lines::default();
    let own = lines.clone();
    (move |line: &str| own.0.lock().unwrap().push(line.to_string()), lines)
}

/// Combines tensors of all types and of some sizes, by all reductions. Compares the bits with the ordered sum on a CPU.
pub fn combines_as_the_host(strategy: &MirroredStrategy) -> Result<()> {
    let (scope, replicas) = (strategy.scope(), strategy.num_replicas_in_sync());
    for (dtype, elements) in
        [DType::F32, DType::F64, DType::I32, DType::I64].into_iter().flat_map(|dtype| [0, 1, 3, 4, 7, 1030].map(|n| (dtype, n)))
    {
        let parts = (0..replicas).map(|rank| numbers(dtype, elements, rank)).collect::<Result<Vec<Tensor>>>()?;
        let sum = parts[1..].iter().try_fold(parts[0].clone(), |sum, part| sum.add(part))?;
        let count = Tensor::scalar(&sum.device()?, replicas as f32).cast(dtype)?;
        let mean = if dtype.is_float() { sum.div(&count)? } else { sum.truncatediv(&count)? };
        let first = Variable::untrained("first").aggregated(VariableAggregation::OnlyFirstReplica);
        first.create(&scope, &sum.to(&scope.device())?)?;
        let results = strategy.run(|replica| {
            let own = parts[replica.replica_id()].to(&replica.device())?;
            replica.assign(&first, &own)?;
            let results = [replica.all_reduce(ReduceOp::Sum, &own)?, replica.all_reduce(ReduceOp::Mean, &own)?, replica.read(&first)?];
            results.iter().map(|result| Ok(result.bytes()?.to_vec())).collect::<Result<Vec<_>>>()
        })?;
        let wanted = [&sum, &mean, &parts[0]].map(|tensor| tensor.bytes().unwrap().to_vec());
        results.values().iter().for_each(|got| assert_eq!(*got, wanted, "{elements} elements {dtype}"));
    }
    Ok(())
}

/// Returns random numbers on a CPU, others for each replica.
fn numbers(dtype: DType, elements: u32, rank: usize) -> Result<Tensor> {
    let mut random = Random::new(rank as u64 + 1);
    let numbers: Vec<f64> = (0..elements).map(|_| (random.unit() - 0.5) * 1e6).collect();
    Tensor::new(&gradlet::portable_cpu(), &numbers, &[elements])?.cast(dtype)
}

#[test]
fn replicas_on_two_devices_have_the_same_bits() -> Result<()> {
    let (_emulator, context) = divided(2)?;
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

#[test]
fn steps_on_logical_devices_have_the_bits_of_the_ordered_sum() -> Result<()> {
    for devices in [2, 3] {
        let (emulator, context) = divided(devices)?;
        let (log, lines) = collect();
        let ops = NcclAllReduce::new().log_to(log);
        let strategy = || MirroredStrategy::with_seed(&context, &[], 7).map(|strategy| strategy.cross_device_ops(ops.clone()));
        steps_are_ordered(&context, &strategy()?, || Box::new(Sgd::new(0.1)))?;
        steps_are_ordered(&context, &strategy()?, || Box::new(Adam::new(0.01)))?;
        lines.are(&["NCCL does not support several logical devices of one GPU: kernels of the GPU add their values"]);
        assert_eq!(emulator.report(), "");
    }
    Ok(())
}

/// A step on data of the GPU: for each replica, a launch of the graph before the sum and of two kernels after it, and one kernel for all
/// gradients of all replicas. No thread waits for the GPU before the labels are checked.
#[test]
fn no_byte_goes_through_the_host() -> Result<()> {
    let (emulator, context) = divided(3)?;
    let strategy = MirroredStrategy::with_seed(&context, &[], 7)?;
    let replicas = Replicated::new(&strategy, Box::new(Sgd::new(0.1)))?;
    let parts = strategy.split(&batch(0, 6)?)?;
    replicas.run(&parts)?;
    let (losses, counts) = emulator.during(|| replicas.run(&parts));
    drop(losses?);
    assert_eq!((counts.uploads, counts.downloads), (0, 0), "{counts:?}");
    assert_eq!((counts.graph_launches, counts.kernel_launches, counts.synchronizations), (3, 7, 3), "{counts:?}");
    Ok(())
}

#[test]
fn all_types_and_reductions_have_the_hosts_bits() -> Result<()> {
    for devices in [2, 3] {
        let (emulator, context) = divided(devices)?;
        let strategy = MirroredStrategy::new(&context, &[])?.cross_device_ops(InProcess);
        let (result, counts) = emulator.during(|| combines_as_the_host(&strategy));
        result?;
        assert!(counts.kernel_launches >= 60, "{counts:?}");
        assert_eq!(emulator.report(), "");
    }
    Ok(())
}

/// Returns the sum over the replicas of each of `count` tensors.
fn sums(scope: &dyn Scope, rank: &Tensor, count: u32) -> Result<Vec<Tensor>> {
    let own = (0..count).map(|index| rank.add_scalar(f64::from(index))).collect::<Result<Vec<_>>>()?;
    own.iter().map(|own| all_reduce(scope, ReduceOp::Sum, own)).collect()
}

/// 100 tensors do not fit into the table of one launch. Each replica computes them in two.
#[test]
fn a_function_combines_many_tensors_in_few_launches() -> Result<()> {
    let (emulator, context) = divided(2)?;
    let strategy = MirroredStrategy::new(&context, &[])?;
    let function = Function::new(|scope: &dyn Scope, rank: Tensor| sums(scope, &rank, 100));
    let run = || strategy.run(|replica| function.call(replica, Tensor::full(&replica.device(), replica.replica_id() as f32, &[33])?));
    run()?;
    let (results, counts) = emulator.during(run);
    assert_eq!(counts.kernel_launches, 2 + 2 * 2, "{counts:?}");
    for results in results?.values() {
        for (index, result) in results.iter().enumerate() {
            assert_eq!(result.to_vec::<f32>()?, [1.0 + 2.0 * index as f32; 33]);
        }
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A replica that calls a function combines several tensors at once, another one does so one by one. The host then adds them.
#[test]
fn replicas_that_combine_differently_meet_on_the_host() -> Result<()> {
    let (_emulator, context) = divided(2)?;
    let strategy = MirroredStrategy::new(&context, &[])?;
    let function = Function::new(|scope: &dyn Scope, rank: Tensor| sums(scope, &rank, 3));
    let results = strategy.run(|replica| {
        let rank = Tensor::full(&replica.device(), replica.replica_id() as f32, &[2])?;
        if replica.replica_id() == 0 { function.call(replica, rank) } else { sums(replica, &rank, 3) }
    })?;
    for results in results.values() {
        let sums = results.iter().map(Tensor::to_vec::<f32>).collect::<Result<Vec<_>>>()?.concat();
        assert_eq!(sums, [1.0, 1.0, 3.0, 3.0, 5.0, 5.0]);
    }
    Ok(())
}

#[test]
fn replicas_that_disagree_fail_as_on_cpus() -> Result<()> {
    let (_emulator, context) = divided(2)?;
    let strategy = MirroredStrategy::new(&context, &[])?;
    let failed = strategy.run(|replica| {
        let own = Tensor::full(&replica.device(), 1.0f32, &[2 + replica.replica_id() as u32])?;
        replica.all_reduce(ReduceOp::Sum, &own)
    });
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("of 2 elements f32") && error.contains("of 3 elements f32"), "{error}");
    Ok(())
}

#[test]
fn a_replica_that_fails_makes_the_others_fail() -> Result<()> {
    let (emulator, context) = divided(2)?;
    let strategy = MirroredStrategy::new(&context, &[])?;
    let sum = |replica: &Replica<'_>| replica.all_reduce(ReduceOp::Sum, &Tensor::full(&replica.device(), 1.0f32, &[3])?);
    for failing in 0..2 {
        let failed = strategy.run(|replica| if replica.replica_id() == failing { Err(Error::message("not today")) } else { sum(replica) });
        let error = failed.unwrap_err().to_string();
        assert!(error.contains("not today"), "{error}");
        for sum in strategy.run(sum)?.values() {
            assert_eq!(sum.to_vec::<f32>()?, [2.0; 3]);
        }
    }
    emulator.control("fail-launch-after 0");
    let error = strategy.run(sum).unwrap_err().to_string();
    assert!(error.contains("failed with CUDA_ERROR"), "{error}");
    assert!(strategy.run(sum).is_err(), "a GPU that has failed fails always");
    Ok(())
}
