//! Replicas on several GPUs, which exchange data by NCCL.

use super::logical::{collect, combines_as_the_host};
use crate::distribute::equality::{Replicated, batch, steps_are_ordered};
use gradlet::config::{Context, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet::distribute::{InProcess, MirroredStrategy, NcclAllReduce, ReduceOp, Replica};
use gradlet::optimizers::{Adam, Sgd};
use gradlet_core::{Error, Result, Scope, Tensor};
use gradlet_tests::gpu::Emulator;

/// Starts an emulator with `gpus` GPUs. Returns it, a context, and a strategy on all GPUs that uses the emulator's NCCL.
fn gpus(gpus: usize) -> Result<(Emulator, Context, MirroredStrategy)> {
    let emulator = Emulator::with(&format!("devices={gpus}"))?;
    let context = emulator.context()?;
    let strategy = MirroredStrategy::with_seed(&context, &[], 7)?.cross_device_ops(NcclAllReduce::with(emulator.nccl()?));
    Ok((emulator, context, strategy))
}

/// Adds 1, 2, … over the replicas.
fn sum(replica: &Replica<'_>) -> Result<f32> {
    let own = Tensor::full(&replica.device(), replica.replica_id() as f32 + 1.0, &[5])?;
    replica.all_reduce(ReduceOp::Sum, &own)?.sum(&[], false)?.item::<f32>()
}

/// Checks that two replicas work together.
fn works(strategy: &MirroredStrategy) -> Result<()> {
    assert_eq!(strategy.run(sum)?.into_values(), [15.0, 15.0]);
    Ok(())
}

#[test]
fn steps_on_two_gpus_have_the_bits_of_the_ordered_sum() -> Result<()> {
    let (emulator, context, strategy) = gpus(2)?;
    steps_are_ordered(&context, &strategy, || Box::new(Sgd::new(0.1)))?;
    // All gradients of a step are one group.
    let counts = emulator.nccl_counts();
    assert_eq!((counts.inits, counts.groups, counts.aborted), (1, 20, 0));
    drop(strategy);
    assert_eq!(emulator.nccl_counts().destroyed, 2);
    let strategy = MirroredStrategy::with_seed(&context, &[], 7)?.cross_device_ops(NcclAllReduce::with(emulator.nccl()?));
    steps_are_ordered(&context, &strategy, || Box::new(Adam::new(0.01)))?;
    assert_eq!(emulator.nccl_counts().inits, 2);
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// The copies of the variables stay equal, although the order of NCCL's sums is not that of the replicas.
#[test]
fn three_gpus_agree() -> Result<()> {
    let (emulator, _, strategy) = gpus(3)?;
    let replicas = Replicated::new(&strategy, Box::new(Adam::new(0.01)))?;
    for step in 0..5 {
        replicas.train(&batch(step, 7)?)?;
        replicas.bits()?;
    }
    assert_eq!(emulator.nccl_counts().groups, 5);
    Ok(())
}

#[test]
fn no_byte_goes_through_the_host() -> Result<()> {
    let (emulator, _, strategy) = gpus(2)?;
    let replicas = Replicated::new(&strategy, Box::new(Sgd::new(0.1)))?;
    let parts = strategy.split(&batch(0, 6)?)?;
    replicas.run(&parts)?;
    let (losses, counts) = emulator.during(|| replicas.run(&parts));
    drop(losses?);
    // Each replica launches the two kernels after the sum.
    assert_eq!((counts.uploads, counts.downloads, counts.kernel_launches), (0, 0, 4), "{counts:?}");
    Ok(())
}

#[test]
fn all_types_and_reductions_have_the_hosts_bits() -> Result<()> {
    let (emulator, _, strategy) = gpus(2)?;
    combines_as_the_host(&strategy)?;
    let counts = emulator.nccl_counts();
    assert!(counts.all_reduces > 0 && counts.broadcasts > 0, "{counts:?}");
    assert_eq!(emulator.report(), "");
    Ok(())
}

#[test]
fn a_replica_that_fails_reaches_no_gpu() -> Result<()> {
    let (emulator, _, strategy) = gpus(2)?;
    works(&strategy)?;
    for failing in 0..2 {
        let failed = strategy.run(|replica| if replica.replica_id() == failing { Err(Error::message("not today")) } else { sum(replica) });
        let error = failed.unwrap_err().to_string();
        assert!(error.contains("not today"), "{error}");
        works(&strategy)?;
    }
    let counts = emulator.nccl_counts();
    assert_eq!((counts.inits, counts.groups, counts.aborted), (1, 3, 0));
    Ok(())
}

#[test]
fn an_error_of_nccl_names_the_function_and_the_replicas() -> Result<()> {
    let (emulator, _, strategy) = gpus(2)?;
    works(&strategy)?;
    for (failure, text) in [
        ("ncclGroupStart 3", "ncclGroupStart failed with NCCL's error 3: internal error"),
        ("ncclAllReduce 5", "ncclAllReduce failed with NCCL's error 5: invalid usage"),
        ("ncclGroupEnd 1", "ncclGroupEnd failed with NCCL's error 1: unhandled cuda error"),
        ("ncclCommGetAsyncError 6", "an earlier operation failed with NCCL's error 6: remote process exited"),
    ] {
        let before = emulator.nccl_counts();
        emulator.fail_nccl(failure);
        let error = strategy.run(sum).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("NCCL 2.21.5 between replica 0 on GPU:0, replica 1 on GPU:1"), "{error}");
        assert_eq!(emulator.nccl_counts().aborted, before.aborted + 2, "{failure}");
        // The next run has new communicators.
        works(&strategy)?;
        assert_eq!(emulator.nccl_counts().inits, before.inits + 1, "{failure}");
    }
    emulator.fail_nccl("ncclCommInitAll 2");
    let other = MirroredStrategy::new(&emulator.context()?, &[])?.cross_device_ops(NcclAllReduce::with(emulator.nccl()?));
    let error = other.run(sum).unwrap_err().to_string();
    assert!(error.contains("ncclCommInitAll failed with NCCL's error 2: unhandled system error"), "{error}");
    works(&other)
}

/// NCCL refuses two ranks on a GPU. gradlet does not ask it.
#[test]
fn logical_devices_never_reach_nccl() -> Result<()> {
    let emulator = Emulator::with("devices=2")?;
    assert_eq!(emulator.init_nccl(&[0, 0]), 5);
    assert!(emulator.report().starts_with("DuplicateGpu"), "{}", emulator.report());
    let context = emulator.context()?;
    let limits = [LogicalDeviceConfiguration::new().memory_limit(8); 2];
    context.set_logical_device_configuration(&PhysicalDevice::new("GPU", 0), &limits)?;
    let (log, lines) = collect();
    let ops = NcclAllReduce::with(emulator.nccl()?).log_to(log);
    let strategy = MirroredStrategy::with_seed(&context, &[], 7)?.cross_device_ops(ops);
    steps_are_ordered(&context, &strategy, || Box::new(Sgd::new(0.1)))?;
    lines.are(&["NCCL does not support several logical devices of one GPU: the host adds the values of all"]);
    assert_eq!(emulator.nccl_counts().inits, 0);
    Ok(())
}

#[test]
fn a_cpu_among_gpus_makes_the_host_add() -> Result<()> {
    let emulator = Emulator::with("devices=2")?;
    let context = emulator.context()?;
    let (log, lines) = collect();
    let ops = NcclAllReduce::with(emulator.nccl()?).log_to(log);
    let strategy = MirroredStrategy::with_seed(&context, &["GPU:0", "CPU:0", "GPU:1"], 7)?.cross_device_ops(ops);
    combines_as_the_host(&strategy)?;
    lines.are(&["not all replicas are on GPUs, which NCCL needs: the host adds their values"]);
    assert_eq!(emulator.nccl_counts().inits, 0);
    Ok(())
}

/// The library that is installed belongs to another driver than the emulator's.
#[test]
fn without_nccl_the_host_adds() -> Result<()> {
    let emulator = Emulator::with("devices=2")?;
    let context = emulator.context()?;
    let (log, lines) = collect();
    let strategy = MirroredStrategy::with_seed(&context, &[], 7)?.cross_device_ops(NcclAllReduce::new().log_to(log));
    steps_are_ordered(&context, &strategy, || Box::new(Sgd::new(0.1)))?;
    let line = "the GPUs' driver is not the one that is installed: open NCCL by its path: the host adds the values of the GPUs";
    lines.are(&[line]);
    let host = MirroredStrategy::with_seed(&context, &[], 7)?.cross_device_ops(InProcess);
    steps_are_ordered(&context, &host, || Box::new(Sgd::new(0.1)))?;
    assert_eq!(emulator.nccl_counts().inits, 0);
    Ok(())
}

#[test]
fn a_file_that_is_no_nccl_is_refused() {
    let error = gradlet_tests::gpu::open_nccl("/nowhere/libnccl.so.2".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/libnccl.so.2 is no NCCL: "), "{error}");
    let error = gradlet_tests::gpu::open_nccl("libc.so.6".as_ref()).unwrap_err().to_string();
    assert_eq!(error, "libc.so.6 has no ncclGetVersion: gradlet needs NCCL 2.4 or later");
}

/// Strategies of different GPUs share an NCCL: its communicators follow.
#[test]
fn communicators_follow_the_gpus() -> Result<()> {
    let emulator = Emulator::with("devices=3")?;
    let context = emulator.context()?;
    let shared = NcclAllReduce::with(emulator.nccl()?);
    for (names, inits) in [(["GPU:0", "GPU:1"], 1), (["GPU:0", "GPU:1"], 1), (["GPU:1", "GPU:0"], 2), (["GPU:1", "GPU:2"], 3)] {
        works(&MirroredStrategy::new(&context, &names)?.cross_device_ops(shared.clone()))?;
        assert_eq!(emulator.nccl_counts().inits, inits, "{names:?}");
    }
    Ok(())
}
